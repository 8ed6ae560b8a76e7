"""pylock.toml (PEP 751): every package of an environment with its version."""

from __future__ import annotations

import re

from envcheck.core import markers
from envcheck.core.errors import InputError
from envcheck.core.facts import normalised
from envcheck.core.parsing import parse_toml
from envcheck.dependency_files import (
    NEEDS_PYTHON,
    DependencyFormat,
    DependencyList,
    ListedPackage,
    ReadingContext,
)
from envcheck.dependency_files.parsing import toml_lines
from envcheck.dependency_files.parsing.locked_packages import with_sources


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return the one dependency list of a lock, which is whole, without packages that a marker excludes.

    Raises:
        InputError: the file is not TOML, or not a lock.
    """
    tree = parse_toml(text, where)
    rows = tree.get("packages")
    if not isinstance(rows, list) or "lock-version" not in tree:
        raise InputError(where, "expected lock-version and [[packages]] as in PEP 751")
    packages: dict[str, ListedPackage] = {}
    lines = toml_lines.lines_of_key(text, "packages", "name")
    for number, row in enumerate(rows):
        place = f"{where}:{lines[number]}:1" if number < len(lines) else where
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise InputError(place, "a package without a name")
        package = _package(row, place, context)
        if package is None:
            continue
        earlier = packages.get(package.name)
        if earlier is not None and earlier.version != package.version:
            package = ListedPackage(package.name, "", place, "the lock has it in several versions")
        packages[package.name] = package
    return with_sources([DependencyList(where, tuple(packages.values()), whole=True)], rows)


def _package(row: dict[str, object], place: str, context: ReadingContext) -> ListedPackage | None:
    """Return the package of a row; None if its marker excludes it. Raises InputError."""
    name, version, marker = normalised(str(row["name"])), row.get("version"), row.get("marker")
    if isinstance(marker, str):
        if re.search(r"\b(?:extras|dependency_groups)\b", marker):
            return ListedPackage(
                name, "", place, "its marker depends on an extra or a group, which is not given"
            )
        if "python" in marker and not context.python:
            return ListedPackage(name, "", place, NEEDS_PYTHON)
        if not _applies(marker, name, place, context):
            return None
    if isinstance(version, str) and version:
        return ListedPackage(name, version, place)
    return ListedPackage(name, "", place, "the lock gives no version")


def _applies(marker: str, name: str, place: str, context: ReadingContext) -> bool:
    """Return whether a marker includes a package. Raises InputError."""
    from packaging.markers import InvalidMarker, Marker

    try:
        return Marker(marker).evaluate(markers.environment(context.python, architecture=context.arch))
    except InvalidMarker:
        raise InputError(place, f"{name}: the marker is not valid") from None


LISTING = DependencyFormat(
    "pylock.toml", lambda name: re.fullmatch(r"pylock(?:\.[^.]+)?\.toml", name) is not None, read
)
