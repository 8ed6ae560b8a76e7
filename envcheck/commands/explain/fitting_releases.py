"""Find releases that end a clash of requirements, from the metadata of published releases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from envcheck.commands.atlas_tables import release_table
from envcheck.core import markers
from envcheck.core.facts import Tri, normalised
from envcheck.core.versions import order, satisfies
from envcheck.knowledge.release_metadata import ReleaseTable
from envcheck.knowledge.release_spans import spans_in_words
from envcheck.knowledge.requirement_windows import requirements_of

_CLASH = re.compile(
    r"(?:(?P<package>[A-Za-z][\w.-]*) (?P<version>\d\S*) requires |asked for: )"
    r"(?P<needed>[A-Za-z][\w.-]*)(?:\[[^\]]*\])? ?(?P<bounds>[=<>!~][^;]*)?"
    r"(?:; (?P<there>\d\S*) is installed)?$"
)
"""A row of `clashing_requirements`."""

_PIN = re.compile(r"={2,3} ?(?P<version>\d[\w.]*)")

_LINUX = markers.environment("3.11.9", architecture="x86_64")
"""The usual environment, for the markers of requirements."""

_MOST = 3
"""Answers, at most."""


class _Asked(NamedTuple):
    """Hold a requirement in a clash: `package` is empty if the user asked; `there` is what is installed."""

    package: str
    version: str
    needed: str
    bounds: str
    there: str

    @property
    def pinned(self) -> str:
        found = _PIN.fullmatch(self.bounds)
        return found["version"] if found else ""

    def admits(self, version: str) -> bool:
        return not self.bounds or satisfies(version, self.bounds, unknown=Tri.MAYBE) is Tri.YES


def fitting_releases(clash: Sequence[str]) -> tuple[str, ...]:
    """Return in words which releases end a clash, whose rows are those of `clashing_requirements`.

    If packages require another release than the one that is installed, that is one which all of them accept.
    If one requires another release than the one that is asked for, those of its releases that accept this.
    """
    asked = [
        _Asked(*(each or "" for each in found.groups())) for row in clash if (found := _CLASH.match(row))
    ]
    table = release_table()
    answers = [*_accepted_by_all(asked, table)] or [*_of_the_one_that_refuses(asked, table)]
    return tuple(dict.fromkeys(answers))[:_MOST]


def _accepted_by_all(asked: Sequence[_Asked], table: ReleaseTable) -> Iterator[str]:
    """Yield the release of an installed package that all who require it accept, with the least change."""
    for needed in dict.fromkeys(one.needed for one in asked if one.there):
        those = [one for one in asked if one.needed == needed and one.package]
        releases = table.versions(normalised(needed))
        accepted = [version for version in releases if all(one.admits(version) for one in those)]
        if accepted:
            there = order(next(one.there for one in those if one.there))
            newer = [version for version in accepted if order(version) > there]
            names = ", ".join(dict.fromkeys(f"{one.package} {one.version}" for one in those))
            accepts = "accepts" if len(those) == 1 else "accept"
            yield f"{needed} {(newer or accepted[::-1])[0]}, which {names} {accepts}"


def _of_the_one_that_refuses(asked: Sequence[_Asked], table: ReleaseTable) -> Iterator[str]:
    """Yield the releases of a package that accept the release which another one, or the user, pins."""
    for one in asked:
        rest = [other for other in asked if other.needed == one.needed and other.package != one.package]
        of_user = [other for other in rest if not other.package]
        pins = (other.pinned for other in of_user or rest)
        pin = next((each for each in pins if each and not one.admits(each)), "")
        if one.package and pin and (words := _accepting(one.package, one.needed, pin, table)):
            accepts = "accept" if " " in words else "accepts"
            yield f"{one.package} {words}, which {accepts} {one.needed} {pin}"


def _accepting(package: str, needed: str, version: str, table: ReleaseTable) -> str:
    """Return in words the newest releases in a row of a package that require another one's given release."""
    name, key = normalised(package), normalised(needed)
    releases = table.versions(name)
    answers = [(release, _accepts(name, release, key, version, table)) for release in releases]
    runs = [[each for each, _ in run] for fits, run in groupby(answers, key=lambda one: one[1]) if fits]
    return spans_in_words(((runs[-1][0], runs[-1][-1]),), (releases[0], releases[-1])) if runs else ""


def _accepts(package: str, release: str, needed: str, version: str, table: ReleaseTable) -> bool:
    bounds = [
        one.specifier for one in requirements_of(package, release, table, _LINUX) if one.requires == needed
    ]
    return bool(bounds) and all(
        satisfies(version, each, unknown=Tri.MAYBE) is Tri.YES for each in bounds if each
    )
