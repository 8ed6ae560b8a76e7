"""Load what was read from published releases: the compiled form in the wheel, the text form in a checkout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from envcheck.host.package_files import shipped_text, source_texts
from envcheck.knowledge.release_metadata import ReleaseTable, parse_release_files
from envcheck.rules.requirements import split_requirement


def published_build(package: str, version: str) -> Mapping[str, tuple[str, ...]] | None:
    """Return what the wheels of a release were built for; None if the atlas lacks the release."""
    row = release_table().row(package, version)
    return None if row is None else row.build


def release_rows(packages: Iterable[str]) -> list[dict[str, Any]]:
    """Return the published releases of packages as rows of the table `release`.

    Requirements that depend on a marker are left out, because the rows hold for every machine.
    """
    table = release_table()
    found = []
    for package in packages:
        for version in table.versions(package):
            row = table.row(package, version)
            if row is not None:
                asked = (split_requirement(line) for line in row.requires if ";" not in line)
                found.append(
                    {
                        "package": package,
                        "version": version,
                        "date": row.uploaded,
                        "requires": {name: specifier for name, specifier in asked if name},
                        "requires_python": row.python,
                        "yanked": row.yanked,
                    }
                )
    return found


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
