"""Find what releases of a package use of the standard library that some releases of Python lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from envcheck.atlas.conditions import PYTHON, Surroundings, decide
from envcheck.atlas.demands import Demand
from envcheck.atlas.entries import elsewhere
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.missing_names import late_demands
from envcheck.atlas.python_names import lacking_in, python_releases
from envcheck.atlas.reader import PackageReader
from envcheck.core.facts import Tri


def find_python_gaps(package: PackageReader) -> list[CodeGap]:
    """Return what releases of a package import from the standard library and some Pythons do not have.

    A release whose metadata admits none of these Pythons has no gap: installers refuse it there.
    """
    rows: dict[tuple[str, str, tuple[str, ...]], dict[str, str]] = {}
    for version in package.by_version:
        blamed: dict[str, set[str]] = {}
        for demand in (*package.demands(version), *late_demands(package, version)):
            if demand.what.partner != PYTHON:
                continue
            lacking = tuple(_failing(package, version, demand))
            hidden = set().union(*(found for entry, found in blamed.items() if entry != demand.entry), set())
            if set(lacking) - hidden and _is_admitted(package, version, lacking):
                key = (demand.what.text, demand.entry, lacking)
                rows.setdefault(key, {}).setdefault(version, demand.place)
            blamed.setdefault(demand.entry, set()).update(lacking)
    return [
        CodeGap(
            kind=GapKind.NAME,
            package=package.name,
            releases=tuple(places),
            entry=entry,
            partner=PYTHON,
            lacking=lacking,
            needs=needs,
            places=tuple(places.values()),
        )
        for (needs, entry, lacking), places in rows.items()
    ]


def _failing(package: PackageReader, version: str, demand: Demand) -> Iterator[str]:
    """Yield the releases of Python in which a line is surely reached and lacks what it uses."""
    without = lacking_in(demand.what.module, demand.what.name)
    for python in python_releases():
        if python in without and decide(demand.condition, _beside(package, version, python)) is Tri.YES:
            yield python


def _beside(package: PackageReader, version: str, python: str) -> Surroundings:
    """Return the surroundings of a release in an environment with any patch release of this Python."""
    minor = int(python.partition(".")[2])
    window = f">={python},<3.{minor + 1}"
    known = Surroundings(versions={package.name: version}, absent=elsewhere() - {package.name})
    return replace(known, windows={**package.window(version), PYTHON: window}, has=partial(_has, python))


def _has(python: str, path: str) -> Tri:
    """Return NO for what this Python lacks; nothing else is known."""
    return Tri.NO if python in lacking_in(path) else Tri.MAYBE


def _is_admitted(package: PackageReader, version: str, pythons: Sequence[str]) -> bool:
    """Return whether the metadata and the wheels of a release admit one of these Pythons."""
    try:
        window = SpecifierSet(package.window(version).get(PYTHON, ""))
    except InvalidSpecifier:
        return True
    return any(window.contains(f"{python}.9") for python in pythons)
