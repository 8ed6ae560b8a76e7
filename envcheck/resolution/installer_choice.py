"""The releases that an installer chooses today for requirements that leave the version open. Pure.

An installer takes the newest releases that satisfy the requirements and one another's metadata. Only the
releases of the table count; a package that is not in the table is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core import markers, versions
from envcheck.core.facts import Tri, normalised
from envcheck.core.versions import satisfies
from envcheck.knowledge.release_metadata import ReleaseTable

_STEPS = 20_000
"""Comparisons after which the search gives up without an answer."""


class RangeConflict(NamedTuple):
    """Two packages whose requirements exclude each other; `requires` says which release requires what."""

    package: str
    of: str  # the other package; either one may require the other
    requires: str


class InstallerChoice(NamedTuple):
    """Releases that an installer chooses, and the requirements that exclude each other.

    `chosen` is empty if no choice was found. `admitted` are the releases of each range that can be installed
    beside the pins, newest first.
    """

    chosen: Mapping[str, str]
    admitted: Mapping[str, tuple[str, ...]]
    conflicts: tuple[RangeConflict, ...] = ()


def choose_releases(
    pinned: Mapping[str, str], ranges: Mapping[str, str], table: ReleaseTable, python: str
) -> InstallerChoice:
    """Return the choice for `ranges` beside the `pinned` releases.

    `pinned` has a version and `ranges` a specifier by package. `python` is `3.11`, or empty if not known.
    """
    search = _ChoiceSearch(pinned, ranges, table, python)
    admitted = {name: found for name in ranges if (found := tuple(search.admitted(name)))}
    conflicts = tuple(
        conflict for name in admitted if (conflict := search.conflict(name, admitted[name])) is not None
    )
    excluded = {conflict.package for conflict in conflicts} | {conflict.of for conflict in conflicts}
    open_names = [name for name in admitted if name not in excluded]
    chosen = search.newest(open_names, admitted)
    if chosen is None:
        conflicts = (*conflicts, *search.conflicts_between(open_names, admitted))
    beside_pins = {name: tuple(filter(search.fits_pins(name), found)) for name, found in admitted.items()}
    return InstallerChoice(chosen or {}, beside_pins, conflicts)


class _ChoiceSearch:
    """Newest compatible releases, found as pip finds them: newest first, in the order of the file."""

    def __init__(
        self, pinned: Mapping[str, str], ranges: Mapping[str, str], table: ReleaseTable, python: str
    ) -> None:
        self._pinned = pinned
        self._ranges = ranges
        self._table = table
        self._python = python
        self._environment = markers.environment(python or "3.12", architecture="x86_64")
        self._names = frozenset(pinned) | frozenset(ranges)
        self._requires: dict[tuple[str, str], dict[str, str]] = {}
        self._steps = 0

    def admitted(self, name: str) -> Iterator[str]:
        """Yield the releases that a range admits, newest first."""
        specifier = self._ranges[name]
        for version in reversed(self._table.versions(name)):
            parsed = versions.parse(version)
            row = self._table.row(name, version)
            if row is None or row.yanked or parsed is None or parsed.is_prerelease:
                continue
            if satisfies(version, specifier, unknown=Tri.NO) is Tri.YES and self._runs(row.python):
                yield version

    def _runs(self, pythons: str) -> bool:
        if not self._python or not pythons:
            return True
        full = self._python if self._python.count(".") > 1 else f"{self._python}.99"
        return satisfies(full, pythons, unknown=Tri.YES) is Tri.YES

    def requires(self, name: str, version: str) -> dict[str, str]:
        """Return what a release requires of the given packages."""
        key = (name, version)
        if key not in self._requires:
            row = self._table.row(name, version)
            self._requires[key] = dict(self._parsed(row.requires if row and row.known else ()))
        return self._requires[key]

    def _parsed(self, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
        for line in lines:
            bare, _, marker = line.partition(";")
            name = normalised(_name_of(bare))
            if name in self._names and (not marker or markers.matches(marker, self._environment)):
                yield name, _specifier_of(bare)

    def _fit(self, name: str, version: str, other: str, other_version: str) -> bool:
        self._steps += 1
        mine = self.requires(name, version).get(other, "")
        theirs = self.requires(other, other_version).get(name, "")
        return (
            satisfies(other_version, mine, unknown=Tri.YES) is not Tri.NO
            and satisfies(version, theirs, unknown=Tri.YES) is not Tri.NO
        )

    def fits_pins(self, name: str) -> Callable[[str], bool]:
        """Return a function that tells whether a release of the package can be installed beside all pins."""
        return lambda version: all(self._fit(name, version, *pin) for pin in self._pinned.items())

    def conflict(self, name: str, admitted: Sequence[str]) -> RangeConflict | None:
        """Return the pin beside which no release of a range can be installed, or None."""
        for other, version in self._pinned.items():
            if any(self._fit(name, candidate, other, version) for candidate in admitted):
                continue
            theirs = self.requires(other, version).get(name, "")
            if theirs and all(satisfies(one, theirs, unknown=Tri.YES) is Tri.NO for one in admitted):
                return RangeConflict(name, other, f"{other} {version} requires {name}{theirs}")
            return RangeConflict(name, other, self._required_by(name, admitted, other))
        return None

    def _required_by(self, name: str, admitted: Sequence[str], other: str) -> str:
        """Return what the newest release of a range requires, and the oldest if that differs."""
        newest, oldest = (self.requires(name, each).get(other, "") for each in (admitted[0], admitted[-1]))
        less = f", and {admitted[-1]} {other}{oldest}" if oldest and oldest != newest else ""
        return f"{name} {admitted[0]} requires {other}{newest}{less}"

    def conflicts_between(
        self, names: Sequence[str], admitted: Mapping[str, Sequence[str]]
    ) -> Iterator[RangeConflict]:
        """Yield a conflict for each pair of ranges that have no compatible releases."""
        for at, name in enumerate(names):
            for other in names[at + 1 :]:
                pairs = ((one, its) for one in admitted[name] for its in admitted[other])
                if len(admitted[name]) * len(admitted[other]) > _STEPS or any(
                    self._fit(name, one, other, its) for one, its in pairs
                ):
                    continue
                asks, lacks = (other, name) if self._asks(other, admitted, name) else (name, other)
                yield RangeConflict(name, other, self._required_by(asks, admitted[asks], lacks))

    def _asks(self, name: str, admitted: Mapping[str, Sequence[str]], other: str) -> bool:
        return bool(self.requires(name, admitted[name][0]).get(other))

    def newest(self, names: Sequence[str], admitted: Mapping[str, Sequence[str]]) -> dict[str, str] | None:
        """Return the newest compatible releases; None if there are none, or if the search gives up."""
        return self._extended({}, names, admitted)

    def _extended(
        self, chosen: dict[str, str], names: Sequence[str], admitted: Mapping[str, Sequence[str]]
    ) -> dict[str, str] | None:
        if not names:
            return chosen
        name, *others = names
        for version in admitted[name]:
            if self._steps > _STEPS:
                return None
            beside = [*self._pinned.items(), *chosen.items()]
            if all(self._fit(name, version, other, its) for other, its in beside):
                found = self._extended({**chosen, name: version}, others, admitted)
                if found is not None:
                    return found
        return None


def _name_of(requirement: str) -> str:
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), None)
    return requirement[:end]


def _specifier_of(requirement: str) -> str:
    rest = requirement[len(_name_of(requirement)) :].strip()
    if rest.startswith("["):
        rest = rest.partition("]")[2]
    return rest.strip().strip("()").replace(" ", "")
