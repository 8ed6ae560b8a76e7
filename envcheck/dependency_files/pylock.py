"""pylock.toml (PEP 751): every package of an environment with its version."""

from __future__ import annotations

import re

from envcheck.core import markers
from envcheck.core.errors import InputError
from envcheck.core.facts import normalised
from envcheck.core.toml_locations import parse_toml
from envcheck.dependency_files import (
    DependencyFormat,
    DependencyList,
    ListedPackage,
    ReadingContext,
    toml,
)


def read(text: str, where: str, asked: ReadingContext) -> tuple[DependencyList, ...]:
    """The one sheet of a lock, which is whole; packages whose marker leaves them out are left out.

    Raises:
        InputError: not TOML, or not a lock.
    """
    tree = parse_toml(text, where)
    packages = tree.get("packages")
    if not isinstance(packages, list) or "lock-version" not in tree:
        raise InputError(where, "expected lock-version and [[packages]] as PEP 751 has them")
    lines: dict[str, ListedPackage] = {}
    places = toml.rows(text, "packages", "name")
    for number, package in enumerate(packages):
        place = f"{where}:{places[number]}:1" if number < len(places) else where
        if not isinstance(package, dict) or not isinstance(package.get("name"), str):
            raise InputError(place, "a package without a name")
        line = _line(package, place, asked)
        if line is None:
            continue
        if line.name in lines and lines[line.name].version != line.version:
            line = ListedPackage(line.name, "", place, "the lock has it in several versions")
        lines[line.name] = line
    return (DependencyList(where, tuple(lines.values()), whole=True),)


def _line(package: dict[str, object], place: str, asked: ReadingContext) -> ListedPackage | None:
    name, version, marker = normalised(str(package["name"])), package.get("version"), package.get("marker")
    if isinstance(marker, str):
        from packaging.markers import InvalidMarker, Marker

        if re.search(r"\b(?:extras|dependency_groups)\b", marker):
            return ListedPackage(
                name, "", place, "its marker asks for an extra or a group, which nobody named"
            )
        if "python" in marker and not asked.python:
            return ListedPackage(name, "", place, "its marker asks for the Python, which nobody said")
        try:
            if not Marker(marker).evaluate(markers.environment(asked.python, architecture=asked.arch)):
                return None
        except InvalidMarker:
            raise InputError(place, f"{name}: its marker cannot be read") from None
    if isinstance(version, str) and version:
        return ListedPackage(name, version, place)
    return ListedPackage(name, "", place, "the lock gives no version")


LISTING = DependencyFormat(
    "pylock.toml", lambda name: re.fullmatch(r"pylock(?:\.[^.]+)?\.toml", name) is not None, read
)
