"""poetry.lock and pdm.lock: every package of a project, with the Pythons and platforms it applies to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import Tri, normalised
from envcheck.core.parsing import parse_toml
from envcheck.core.versions import satisfies
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing import toml_lines
from envcheck.dependency_files.parsing.locked_packages import (
    applies,
    lists_by_python,
    pythons_to_read,
    with_sources,
)


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return one list for each group of Pythons with the same versions; groups and extras are read together.

    Raises:
        InputError: the file is not TOML, or not a lock of poetry or pdm.
    """
    tree = parse_toml(text, where)
    rows = tree.get("package")
    metadata = tree.get("metadata")
    if not isinstance(rows, list) or not isinstance(metadata, Mapping):
        raise InputError(where, "expected [[package]] and [metadata] as poetry and pdm write them")
    lines = toml_lines.lines_of_key(text, "package", "name")
    requires = metadata.get("python-versions") or metadata.get("requires-python") or ""
    found = {
        python: _packages(rows, lines, where, context, python)
        for python in pythons_to_read(context, str(requires))
    }
    return with_sources(lists_by_python(where, found), rows)


def _packages(
    rows: list[Any], lines: list[int], where: str, context: ReadingContext, python: str
) -> list[ListedPackage]:
    packages: dict[str, ListedPackage] = {}
    for number, row in enumerate(rows):
        place = f"{where}:{lines[number]}:1" if number < len(lines) else where
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise InputError(place, "a package without a name")
        if not _is_for(row, context, python):
            continue
        name, version = normalised(row["name"]), row.get("version")
        package = ListedPackage(name, str(version), place) if version else None
        package = package or ListedPackage(name, "", place, "the lock gives no version")
        earlier = packages.get(name)
        if earlier is not None and earlier.version != package.version:
            package = ListedPackage(name, "", place, "the lock has it in several versions")
        packages[name] = package
    return list(packages.values())


def _is_for(row: Mapping[str, Any], context: ReadingContext, python: str) -> bool:
    """Return whether a package applies to a Python on Linux."""
    pythons = row.get("python-versions") or row.get("requires_python") or ""
    if satisfies(f"{python}.99", str(pythons), unknown=Tri.YES) is Tri.NO:
        return False
    stated = row.get("markers", row.get("marker", ""))
    by_group = stated.values() if isinstance(stated, Mapping) else [stated]
    return any(applies(str(one or ""), context, python) for one in by_group)


LISTING = DependencyFormat(
    "poetry.lock, pdm.lock", lambda name: name.endswith(("poetry.lock", "pdm.lock")), read
)
