"""Load what was read from published releases: the compiled form in the wheel, the text form in a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from envcheck.host.package_files import shipped_text, source_texts
from envcheck.knowledge.release_metadata import ReleaseTable, parse_release_files


def published_build(package: str, version: str) -> Mapping[str, tuple[str, ...]] | None:
    """Return what the wheels of a release were built for; None if the release was not read."""
    row = release_table().row(package, version)
    return None if row is None else row.build


@cache
def release_table() -> ReleaseTable:
    """Return what each published release requires and was built for.

    Raises:
        InputError: a line of a checkout's `compat/atlas/releases/` cannot be read.
    """
    text = shipped_text("compat/atlas/releases.json")
    if text is None:
        return parse_release_files(source_texts("compat/atlas/releases", ".txt"))
    import json

    return ReleaseTable(json.loads(text))
