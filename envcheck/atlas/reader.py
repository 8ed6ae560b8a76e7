"""All releases of one package, read on demand: what each offers and what each uses of other packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envcheck.atlas.conditions import PYTHON, UNREADABLE, Condition, Installed, Surroundings
from envcheck.atlas.demands import Demand, EntryReading, read_entries
from envcheck.atlas.entries import distribution_of, elsewhere, entries_of, import_names
from envcheck.atlas.offers import ReleaseOffers
from envcheck.atlas.predicates import GuardReader
from envcheck.atlas.release import PublishedRelease
from envcheck.atlas.release_modules import ReleaseModules
from envcheck.atlas.summary import FileSummary
from envcheck.core.versions import parse

_ALWAYS_THERE = ("torch",)
"""Every training environment has these, whatever the metadata says."""

_Made = TypeVar("_Made")

_PYTHON_TAG = re.compile(r"-cp3(\d+)-cp3\d+-")


@dataclass(eq=False)
class PackageReader:
    """Releases of one package.

    Attributes:
        name: normalised name.
        releases: those that are judged, in any order; pre-releases that were published may be among them.
        cache: file summaries by digest.
        readings: what was read of each release, by kind and version; kept from one run to the next.
        others: the readers of other packages, whose predicates this one may use.

    """

    name: str
    releases: Sequence[PublishedRelease]
    cache: MutableMapping[str, FileSummary] = field(default_factory=dict)
    others: Mapping[str, PackageReader] = field(default_factory=dict)
    readings: MutableMapping[tuple[str, str], Any] = field(default_factory=dict)
    _foreign: dict[str, Condition | None] = field(default_factory=dict)
    _windows: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _offers: dict[str, ReleaseOffers] = field(default_factory=dict)

    @cached_property
    def by_version(self) -> Mapping[str, PublishedRelease]:
        """Return the releases that are judged, oldest first."""
        known = [each for each in self.releases if parse(each.version)]
        return {each.version: each for each in sorted(known, key=lambda each: Version(each.version))}

    def window(self, version: str) -> Mapping[str, str]:
        """Return the packages installed with a release, and the versions that its metadata admits."""
        if version not in self._windows:
            self._windows[version] = windows(self.by_version[version])
        return self._windows[version]

    def offers(self, version: str) -> ReleaseOffers:
        """Return what a release offers."""
        if version not in self._offers:
            release = self.by_version[version]
            modules = ReleaseModules(release, import_names(self.name), self.cache)
            beside = Surroundings(
                versions={self.name: version}, windows=self.window(version), absent=elsewhere() - {self.name}
            )
            self._offers[version] = ReleaseOffers(modules, GuardReader(modules, self.foreign), beside)
        return self._offers[version]

    def entries(self, version: str) -> tuple[EntryReading, ...]:
        """Return what each entry of a release imports and asks of other packages."""
        return self.reading(
            "entries", version, lambda: read_entries(self.offers(version), entries_of(self.name))
        )

    def reading(self, kind: str, version: str, read: Callable[[], _Made]) -> _Made:
        """Return what was read of a release before, or read it now."""
        if (kind, version) not in self.readings:
            self.readings[kind, version] = read()
        return cast("_Made", self.readings[kind, version])

    def demands(self, version: str) -> list[Demand]:
        """Return what all entries of a release ask of other packages."""
        return [demand for entry in self.entries(version) for demand in entry.demands]

    def foreign(self, path: str) -> Condition | None:
        """Return what a predicate of another package states in all of its releases; None if it is unknown.

        Releases apply different minimums. Which release is installed is not known, so all minimums are kept.
        """
        if path not in self._foreign:
            other = self.others.get(distribution_of(path))
            self._foreign[path] = None  # ends the recursion if two packages use each other's predicates
            if other is not None and other is not self:
                self._foreign[path] = other.agreed_predicate(path)
        return self._foreign[path]

    def agreed_predicate(self, path: str) -> Condition | None:
        """Return the one condition that a predicate states in every release of this package that has it."""
        answers = (
            self.offers(each).guards.predicate(path) for each in _last_of_minors(tuple(self.by_version))
        )
        stated = dict.fromkeys(each for each in answers if each is not None)
        if len(stated) <= 1:
            return next(iter(stated), None)
        readable = [each for each in stated if isinstance(each, Installed)]
        if len(readable) != len(stated) or len({each.package for each in readable}) != 1:
            return UNREADABLE
        floors = {floor for each in readable for floor in each.floors}
        return Installed(
            readable[0].package,
            tuple(sorted(floors | ({"0"} if any(not each.floors for each in readable) else set()))),
        )


def surroundings(package: PackageReader, version: str, partner: PackageReader, release: str) -> Surroundings:
    """Return what is known of an environment that contains one release of each of two packages."""
    there = dict(partner.window(release))
    for name, window in package.window(version).items():
        there[name] = ",".join(filter(None, (there.get(name, ""), window)))
    return Surroundings(
        versions={package.name: version, partner.name: release},
        windows=there,
        absent=elsewhere() - {partner.name},
        has=partner.offers(release).has,
    )


def _last_of_minors(versions: Sequence[str]) -> list[str]:
    last: dict[tuple[int, ...], str] = {}
    for version in versions:
        last[Version(version).release[:2]] = version
    return list(last.values())


def windows(release: PublishedRelease) -> dict[str, str]:
    """Return the packages installed with a release, and the versions that its metadata admits.

    Lower bounds in extras count for packages that are installed anyway, because they state what the release
    was made for.
    """
    found: dict[str, set[str]] = {name: set() for name in _ALWAYS_THERE}
    optional: list[tuple[str, str]] = []
    for text in release.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        name, marker = str(canonicalize_name(requirement.name)), str(requirement.marker or "")
        if not marker:
            found.setdefault(name, set()).add(str(requirement.specifier))
        elif "extra" in marker and "sys_platform" not in marker and "python_version" not in marker:
            optional.append((name, str(requirement.specifier)))
    for name, specifier in optional:
        if name in found and specifier.startswith(">="):
            found[name].add(specifier)
    pythons = {part for part in (release.requires_python, _newest_python(release.wheels)) if part}
    return {
        **{name: ",".join(sorted(filter(None, specifiers))) for name, specifiers in found.items()},
        PYTHON: ",".join(sorted(pythons)),
    }


def _newest_python(wheels: Sequence[str]) -> str:
    """Return the bound above the newest Python that wheels were compiled for; empty for other wheels."""
    tags = [_PYTHON_TAG.search(each) for each in wheels]
    minors = [int(tag[1]) for tag in tags if tag]
    return f"<3.{max(minors) + 1}" if minors and all(tags) else ""
