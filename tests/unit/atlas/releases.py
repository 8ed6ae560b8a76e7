"""Published releases as tests build them: real small wheels, opened as the store opens them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

from envcheck.atlas.core_metadata import requires_of_metadata
from envcheck.atlas.release import PublishedRelease
from tests.support.local_index import wheel


class WheelFiles:
    """The files of a wheel in memory."""

    def __init__(self, archive: zipfile.ZipFile, held: Sequence[str]) -> None:
        self._archive, self._held = archive, held

    def names(self) -> Sequence[str]:
        return self._held

    def read(self, name: str) -> bytes:
        if name not in self._held:
            raise KeyError(name)
        return self._archive.read(name)


def release(
    package: str,
    version: str,
    requires: tuple[str, ...] = (),
    more: Mapping[str, bytes] | None = None,
    *,
    tag: str = "py3-none-any",
    wheels: tuple[str, ...] = (),
    python: str = "",
    yanked: bool = False,
) -> PublishedRelease:
    """Return a release whose wheel has these requirements and files; libraries are known by name only."""
    name, data = wheel(package, version, requires, tag, dict(more or {}), python)
    archive = zipfile.ZipFile(io.BytesIO(data))
    held = [path for path in archive.namelist() if not path.endswith((".so", "RECORD"))]
    metadata = next(path for path in held if path.endswith("METADATA"))
    read = requires_of_metadata(archive.read(metadata).decode())
    return PublishedRelease(
        package=package,
        version=version,
        uploaded="2025-01-02",
        yanked=yanked,
        requires_python=read.python,
        requires=read.dists,
        others=tuple(path for path in archive.namelist() if path not in held),
        files=WheelFiles(archive, held),
        wheels=wheels or (name,),
    )
