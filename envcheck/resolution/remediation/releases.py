"""The releases that a remediation may propose, and what each of them requires."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, Value, package_key, package_name
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Matrix, uninstalls
from envcheck.knowledge.tables import ReleaseRow, released_with_torch, torch_releases
from envcheck.resolution.remediation.moves import MoveSize, move_size
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.rules.fixes import trial_value
from envcheck.rules.requirements import installed_requirements


class _ListedReleases(NamedTuple):
    """Releases of a package: those that may be proposed, oldest first; and what each listed one requires."""

    fit: tuple[str, ...]
    requires: Mapping[str, tuple[str, ...]]


class Releases:
    """The releases in the tables: those that may be proposed for one Python, and what each requires.

    A search asks about few packages, so the rows of a package are read when it is first asked about.
    """

    def __init__(self, known: Matrix, rows: Iterable[Mapping[str, Any]], python: str | None) -> None:
        """Take the table `release`; the releases of torch and its companions come from the matrix.

        `python` is the Python of the environment (`3.11.9`), or None if it is unknown.
        """
        self._known, self._python = known, python
        self.checked = python is not None
        """Whether the Python is known, so that releases for another one are left out."""
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            self._rows.setdefault(row["package"], []).append(row)
        self.packages = frozenset((*self._rows, *released_with_torch(known)))
        """The packages whose releases are listed."""
        self._read: dict[str, _ListedReleases] = {}

    def fit(self, name: str) -> tuple[str, ...]:
        """Return the releases that may be proposed, oldest first.

        Releases for another Python, yanked ones, and those newer than `known_through` are left out.
        """
        return self._package(name).fit

    def every(self, name: str) -> Collection[str]:
        """Return all listed releases of a package."""
        return self._package(name).requires.keys()

    def requires(self, name: str, version: str) -> tuple[str, ...] | None:
        """Return what a release requires; None if it is not listed."""
        return self._package(name).requires.get(version)

    def _package(self, name: str) -> _ListedReleases:
        if name not in self._read:
            self._read[name] = self._read_package(name)
        return self._read[name]

    def _read_package(self, name: str) -> _ListedReleases:
        fit: set[str] = set()
        requires: dict[str, tuple[str, ...]] = {}
        through = self._known.known_through.get(name)
        listed = (*torch_releases(self._known, name), *map(ReleaseRow.of, self._rows.get(name, ())))
        for release in listed:
            version = release.version
            requires[version] = tuple(f"{other}{bound}" for other, bound in release.requires.items())
            beyond = through is not None and versions.compare(version, ">", through) is Tri.YES
            if not (release.yanked or beyond) and supports_python(release, self._python):
                fit.add(version)
        return _ListedReleases(tuple(sorted(fit, key=versions.order)), requires)


def supports_python(release: ReleaseRow, python: str | None) -> bool:
    """Return whether this Python (`3.11.9`) may install a release; True if either is unknown."""
    if python is None:
        return True
    if release.pythons is not None:
        return ".".join(python.split(".")[:2]) in release.pythons
    try:
        bounds = versions.parse_specifier(release.requires_python)
    except ValueError:
        return True
    return versions.satisfies_all(python, bounds) is not Tri.NO


def nearest_first(releases: Sequence[str], name: str, installed: Value | None) -> tuple[str, ...]:
    """Return the releases (given oldest first) other than the installed one, smallest move first.

    If the package is not installed, the newest comes first.
    """
    if installed is None:
        return tuple(reversed(releases))
    order = versions.order(str(installed))
    newer = [version for version in releases if versions.order(version) > order]
    older = [version for version in reversed(releases) if versions.order(version) < order]
    return tuple(
        sorted((*newer, *older), key=lambda version: move_size(package_key(name), installed, version))
    )


class ReleaseChoices:
    """Finds the releases of a package that are worth proposing for one problem, and caches its answers."""

    def __init__(self, problem: RemediationProblem, listed: Releases) -> None:
        self.read, self.listed = problem.read, listed
        self._measured_good = problem.measured_good
        self._named_by_fixes = _releases_in_fixes(problem.known)
        self._within: dict[tuple[str, str], tuple[str, ...]] = {}
        self._measured: dict[str, tuple[str, ...]] = {}
        self._accepted: dict[tuple[str, Value | None, str, Value | None], bool] = {}

    def within(self, name: str, bound: str) -> tuple[str, ...]:
        """Return the releases within a bound that this Python may install, smallest move first."""
        if (name, bound) not in self._within:
            self._within[name, bound] = self._find_within(name, bound)
        return self._within[name, bound]

    def _find_within(self, name: str, bound: str) -> tuple[str, ...]:
        try:
            limits = versions.parse_specifier(bound)
        except ValueError:
            return ()
        candidates: Iterable[str] = self.listed.fit(name)
        if name not in self.listed.packages:
            candidates = sorted(self._named_by_fixes.get(package_key(name), ()), key=versions.order)
        found = [version for version in candidates if versions.satisfies_all(version, limits) is Tri.YES]
        return nearest_first(found, name, self.read.known(package_key(name)))

    def nearest_of_each_size(self, name: str, suitable: Callable[[str], bool]) -> tuple[str, ...]:
        """Return the nearest suitable release for each size and direction of a move."""
        installed = self.read.known(package_key(name))
        nearest: dict[MoveSize, str] = {}
        for version in self.within(name, ">=0"):
            size = move_size(package_key(name), installed, version)
            if size not in nearest and suitable(version):
                nearest[size] = version
        return tuple(nearest.values())

    def for_fix(self, key: str, value: str | int | bool) -> Sequence[Value]:
        """Return the values to try for one fact of a fix; the value that the fix names comes first."""
        first = trial_value(value)
        name = package_name(key)
        if name == key or not isinstance(value, str) or uninstalls(key, value) or not self.listed.fit(name):
            return (first,)
        within = self.within(name, value)
        if first in within:
            return (first, *(version for version in within if version != first))
        # A release that is not in the tables may exist nevertheless.
        return within if first in self.listed.every(name) else (first, *within)

    def lowest(self, name: str, bound: str) -> Sequence[str]:
        """Return the lower bound of a requirement if it is an upgrade of a package that no table lists."""
        first = trial_value(bound) if bound and name not in self.listed.packages else bound
        if first == bound or not isinstance(first, str):
            return ()
        limits = versions.parse_specifier(bound)
        installed = self.read.known(package_key(name))
        upgrade = installed is not None and versions.order(first) > versions.order(str(installed))
        return (first,) if upgrade and versions.satisfies_all(first, limits) is Tri.YES else ()

    def accepts(self, package: str, version: Value | None, required: str, other: Value | None) -> bool:
        """Return whether a release's requirements allow that version of another package.

        The requirements come from the tables, or else from the metadata of the installed release. An
        unreadable bound counts as allowed, and so does a package that is not installed.
        """
        key = (package, version, required, other)
        if key not in self._accepted:
            self._accepted[key] = self._judge_accepts(package, version, required, other)
        return self._accepted[key]

    def _judge_accepts(self, package: str, version: Value | None, required: str, other: Value | None) -> bool:
        if other is None:
            return True
        lines = self.listed.requires(package, str(version))
        requires = package_key(package, "requires")
        if lines is None:
            installed = self.read.known(requires)
            lines = installed if isinstance(installed, tuple) else ()
        requirements = installed_requirements(Inventory({requires: Fact(requires, Known(lines))}))
        return all(
            versions.satisfies(str(other), requirement.specifier, unknown=Tri.YES) is not Tri.NO
            for requirement in requirements
            if requirement.requires == required
        )

    def as_measured(self, name: str) -> tuple[str, ...]:
        """Return a package's release in the good run most similar to this inventory; () if there is none."""
        if name not in self._measured:
            self._measured[name] = self._find_as_measured(name)
        return self._measured[name]

    def _find_as_measured(self, name: str) -> tuple[str, ...]:
        runs = [pkg for pkg in self._measured_good if pkg.get(name) in self.listed.fit(name)]

        def agreement(pkg: Mapping[str, str]) -> tuple[int, Any]:
            same = sum(
                versions.base_release(str(self.read.known(package_key(other))))
                == versions.base_release(version)
                for other, version in pkg.items()
            )
            return same, versions.order(pkg[name])

        return (max(runs, key=agreement)[name],) if runs else ()


def _releases_in_fixes(known: Matrix) -> Mapping[str, set[str]]:
    """Return the releases that fixes name, by package key; for unlisted packages, no others are known."""
    found: dict[str, set[str]] = {}
    for rule in known.rules:
        for key, value in (change for fix in rule.fixes for change in fix.set):
            named = isinstance(value, str) and "{" not in value and not uninstalls(key, value)
            if named and key.startswith("pkg."):
                found.setdefault(key, set()).add(str(trial_value(value)))
    return found
