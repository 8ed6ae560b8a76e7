"""The store of published files: one zip archive per release, `PACKAGE/VERSION.zip` in a folder.

Pre-releases are in `PACKAGE/candidates/`: only the atlas asks for them.

An archive holds the kept files under their paths in the wheel, and `release.json`, which describes the
release: package, version, uploaded, yanked, requires_python, requires, requires_known, wheels, others,
libraries.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from envcheck.atlas.library_facts import LibraryFacts
from envcheck.atlas.release import PublishedRelease
from envcheck.commands.harvest.wheel_files import KeptFiles
from envcheck.core.errors import InputError
from envcheck.host.files import list_folder, read_file, store_file
from envcheck.resolver_backends.index.published import ListedRelease

DESCRIPTION = "release.json"

_CANDIDATES = "candidates"
_ARCHIVE_LIMIT = 256 * 1024 * 1024
_DAMAGED = (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError)
_COMPRESSION = 4  # of 9: half the time of the default for 3 % more bytes


class StoredFiles:
    """Files of one stored release, unpacked when they are read."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        """Take the open archive."""
        self._archive = archive

    def names(self) -> Sequence[str]:
        """Return the paths of the stored files."""
        return [name for name in self._archive.namelist() if name != DESCRIPTION]

    def read(self, name: str) -> bytes:
        """Return the bytes of one stored file.

        Raises:
            KeyError: the file is not stored.

        """
        return self._archive.read(name)


class ReleaseStore:
    """A folder of stored releases."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which need not exist yet."""
        self.folder = folder

    def path(self, package: str, version: str) -> Path:
        """Return where the archive of a release is or would be."""
        parsed = _version(version)
        folder = self.folder / package
        return (folder / _CANDIDATES if parsed and parsed.is_prerelease else folder) / f"{version}.zip"

    def description(self, package: str, version: str) -> dict[str, Any] | None:
        """Return the stored description of a release; None if it is not stored or cannot be read."""
        try:
            with zipfile.ZipFile(self.path(package, version)) as archive:
                row = json.loads(archive.read(DESCRIPTION))
        except _DAMAGED:
            return None
        return row if isinstance(row, dict) else None

    def add(self, release: ListedRelease, kept: KeptFiles) -> int:
        """Store a release and return the bytes of its archive.

        Raises:
            ExamineError: it cannot be written.
        """
        row = {
            "package": release.package,
            "version": release.version,
            **index_fields(release),
            "requires_python": kept.requires.python,
            "requires": list(kept.requires.dists),
            "requires_known": kept.requires.known,
            "others": list(kept.others),
        }
        return self._write(release, {**kept.files, DESCRIPTION: json.dumps(row).encode()})

    def describe_anew(
        self, release: ListedRelease, libraries: Mapping[str, LibraryFacts] | None = None
    ) -> None:
        """Update the index's part of a stored description: wheels, day, whether it was yanked.

        `libraries`, if given, replaces the facts on its libraries.

        Raises:
            InputError: the archive cannot be read.
            ExamineError: it cannot be written.
        """
        path = self.path(release.package, release.version)
        with zipfile.ZipFile(io.BytesIO(read_file(path, _ARCHIVE_LIMIT))) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        row = {**json.loads(files[DESCRIPTION]), **index_fields(release)}
        if libraries is not None:
            row["libraries"] = {name: asdict(facts) for name, facts in libraries.items()}
        self._write(release, {**files, DESCRIPTION: json.dumps(row).encode()})

    def _write(self, release: ListedRelease, files: dict[str, bytes]) -> int:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, _COMPRESSION)
        store_file(self.path(release.package, release.version), packed.getvalue())
        return packed.tell()

    def versions(self, package: str, *, candidates: bool = False) -> list[str]:
        """Return the stored versions of a package, oldest first; none if the package is not stored.

        They are those of final releases, with `candidates` of pre-releases too.
        """
        folder = self.folder / package
        folders = (folder, folder / _CANDIDATES) if candidates else (folder,)
        names = [name for each in folders if each.is_dir() for name in list_folder(each)]
        stems = [name.removesuffix(".zip") for name in names if name.endswith(".zip")]
        return [str(version) for version in sorted(filter(None, map(_version, stems)))]

    def open(self, package: str, version: str) -> PublishedRelease:
        """Return a stored release, whose files are read on demand.

        Raises:
            InputError: it is not stored, or its archive cannot be read.
        """
        path = self.path(package, version)
        try:
            archive = zipfile.ZipFile(path)
            return _published(json.loads(archive.read(DESCRIPTION)), StoredFiles(archive))
        except _DAMAGED as error:
            raise InputError(str(path), f"not a stored release ({type(error).__name__})") from None

    def releases(self, package: str, *, candidates: bool = False) -> Iterator[PublishedRelease]:
        """Yield the stored releases of a package, oldest first; with `candidates`, pre-releases too.

        Raises:
            InputError: an archive cannot be read.
        """
        for version in self.versions(package, candidates=candidates):
            yield self.open(package, version)


def index_fields(release: ListedRelease) -> dict[str, Any]:
    """Return the part of a description that the index states and may change."""
    wheels = [file.name for file in release.wheels]
    return {"uploaded": release.uploaded, "yanked": release.yanked, "wheels": wheels}


def _published(row: dict[str, Any], files: StoredFiles) -> PublishedRelease:
    return PublishedRelease(
        package=row["package"],
        version=row["version"],
        uploaded=row["uploaded"],
        yanked=row["yanked"],
        requires_python=row["requires_python"],
        requires=tuple(row["requires"]),
        others=tuple(row["others"]),
        files=files,
        wheels=tuple(row["wheels"]),
        requires_known=row["requires_known"],
        libraries={name: LibraryFacts(**facts) for name, facts in row.get("libraries", {}).items()},
    )


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
