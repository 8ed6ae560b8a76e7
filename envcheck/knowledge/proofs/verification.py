"""Prove one rule: open the releases around its bounds and in its fixes, and compare them with the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Tri, package_key
from envcheck.core.rules import Rule
from envcheck.knowledge.proofs import bounds, checks, running
from envcheck.knowledge.proofs.checks import OpenedRelease, Sight
from envcheck.knowledge.proofs.declaration import Proof, ReadCheck, RunCheck
from envcheck.knowledge.proofs.records import SeenRelease


class Supply(NamedTuple):
    """Where a proof takes releases from.

    Attributes:
        releases: the final releases of each package, oldest first.
        since: the first release of each package that the tables list; older ones are opened only if a bound
            lies there.
        open: returns the published files of a release.
        run: runs the program of a check beside releases.
        older: whether to open older releases than those of the tables, too.

    """

    releases: Mapping[str, Sequence[str]]
    since: Mapping[str, str]
    open: Callable[[str, str], OpenedRelease]
    run: running.Run
    older: bool = False


def prove(rule: Rule, proof: Proof, supply: Supply) -> list[SeenRelease]:
    """Return what was found in each release, in the order of the checks."""
    found: list[SeenRelease] = []
    for group in decisive_groups(proof.reads):
        found += _decided_by_reading(rule, group, supply)
    for check in proof.reads:
        if check.partner:
            found += _bounded(rule, check, supply)
    for run in proof.runs:
        releases = supply.releases[run.package]
        found += running.decided(rule, run, _to_run(rule, run, supply), releases[-1], supply.run)
    return list(dict.fromkeys(found))


def needed_packages(rule: Rule, proof: Proof) -> set[str]:
    """Return the packages whose releases a proof needs to know."""
    read = {name for check in proof.reads for name in (check.package, check.partner) if name}
    return read | {check.package for check in proof.runs} | set(bounds.bounded_packages(rule))


def look_for_all(group: Sequence[ReadCheck], release: OpenedRelease) -> Sight:
    """Return whether all true-or-false checks of a group are true in a release.

    Raises:
        ValueError: a file cannot be parsed, and a check needs its functions.
    """
    sights = [checks.look(check, release) for check in group]
    missed = next((sight for sight in sights if not sight.found), None)
    return missed or Sight(True, "; ".join(dict.fromkeys(sight.seen for sight in sights)))


def decisive_groups(reads: Iterable[ReadCheck]) -> list[list[ReadCheck]]:
    """Return the true-or-false checks, grouped by package and tables."""
    groups: dict[tuple[str, tuple[int, ...]], list[ReadCheck]] = {}
    for check in reads:
        if not check.partner:
            groups.setdefault((check.package, check.when), []).append(check)
    return list(groups.values())


# --- checks that are true or false --------------------------------------------------------------------


def _decided_by_reading(rule: Rule, group: Sequence[ReadCheck], supply: Supply) -> list[SeenRelease]:
    package = group[0].package

    def look(version: str) -> Sight:
        return look_for_all(group, supply.open(package, version))

    return _decided(rule, package, group[0].when, supply, look)


def _decided(
    rule: Rule, package: str, tables: Sequence[int], supply: Supply, look: Callable[[str], Sight]
) -> list[SeenRelease]:
    """Return whether the mechanism is there inside the bounds of a package, and not outside or with a fix."""

    def row(version: str) -> SeenRelease:
        inside = bounds.rule_matches(rule, package, version, tables)
        sight = look(version)
        side = "inside" if inside else "outside"
        return SeenRelease(package, version, side, sight.found is inside, sight.seen)

    rows = [row(version) for version in _around_bounds(rule, package, tables, supply)]
    rows += _walked(_older_releases(rule, package, tables, supply), row)
    newest = {name: releases[-1] for name, releases in supply.releases.items() if releases}
    for advice in bounds.advised(rule, newest):
        if advice.package == package and not bounds.rule_matches(rule, package, advice.version, tables):
            sight = look(advice.version)
            rows.append(
                SeenRelease(package, advice.version, f"fix {advice.fix}", not sight.found, sight.seen)
            )
    return rows


def _around_bounds(rule: Rule, package: str, tables: Sequence[int], supply: Supply) -> list[str]:
    """Return the releases on both sides of every bound, and the oldest and newest that a clause matches."""
    releases = supply.releases.get(package, ())
    found: set[str] = set()
    for number, clause in bounds.version_clauses(rule):
        if clause.key != package_key(package) or (tables and number not in tables):
            continue
        for edge in bounds.edges(clause, releases):
            found |= {edge.inside, edge.outside}
        first = supply.since.get(package, "")
        ends = {releases[-1], first} if first in releases else set(releases[-1:])
        found |= {end for end in ends if bounds.matches(clause, end)}
    return sorted(found, key=versions.order)


def _to_run(rule: Rule, check: RunCheck, supply: Supply) -> list[str]:
    """Return the releases around the bounds, and all those inside if they are few."""
    around = _around_bounds(rule, check.package, check.when, supply)
    first = supply.since.get(check.package, "")
    inside = [
        version
        for version in supply.releases[check.package]
        if bounds.rule_matches(rule, check.package, version, check.when)
        and (not first or versions.compare(version, ">=", first) is Tri.YES)
    ]
    some = limited(inside, check.among)
    oldest = some[:1] if check.among else []
    few = some if len(some) <= running.SHORT_RANGE else oldest
    return sorted({*limited(around, check.among), *few}, key=versions.order)


def _older_releases(rule: Rule, package: str, tables: Sequence[int], supply: Supply) -> list[str]:
    """Return the releases inside the bounds that are older than the tables, newest first."""
    first = supply.since.get(package, "")
    return [
        version
        for version in reversed(supply.releases.get(package, ()) if supply.older else ())
        if not (first and versions.compare(version, ">=", first) is Tri.YES)
        and bounds.rule_matches(rule, package, version, tables)
    ]


def _walked(releases: Iterable[str], look: Callable[[str], SeenRelease]) -> list[SeenRelease]:
    """Look at one release after the other until one contradicts the rule; return the last two rows."""
    rows: list[SeenRelease] = []
    for version in releases:
        rows = [*rows[-1:], look(version)]
        if not rows[-1].agrees:
            return rows
    return rows[-1:]


# --- checks that bound another package ----------------------------------------------------------------


def _bounded(rule: Rule, check: ReadCheck, supply: Supply) -> list[SeenRelease]:
    """Return whether the rule refuses exactly the releases of the partner that a release itself refuses."""
    among = partners_among(check, supply.releases.get(check.partner, ()))

    def look(version: str) -> SeenRelease:
        specifier = checks.bound(check, supply.open(check.package, version))
        within = bounds.rule_matches(rule, check.package, version, check.when)
        return compared(rule, check, version, specifier, among, "inside" if within else "outside")

    rows = [look(version) for version in _around_bounds(rule, check.package, check.when, supply)]
    inside = {
        row.version: checks.bound(check, supply.open(check.package, row.version))
        for row in rows
        if row.side == "inside"
    }
    rows += _walked(_older_releases(rule, check.package, check.when, supply), look)
    newest = {name: releases[-1] for name, releases in supply.releases.items() if releases}
    advice = list(bounds.advised(rule, newest))
    for each in advice:
        beside = [other for other in advice if other.fix == each.fix and other.package != each.package]
        if each.package == check.partner and not any(other.package == check.package for other in beside):
            rows.append(_accepted(each, inside))
        elif each.package == check.package:
            specifier = checks.bound(check, supply.open(check.package, each.version))
            partners = {other.version for other in beside if other.package == check.partner}
            row = compared(rule, check, each.version, specifier, among, f"fix {each.fix}")
            agrees = row.agrees and all(_accepts(specifier, partner) for partner in partners)
            rows.append(row._replace(agrees=agrees))
    return rows


def partners_among(check: ReadCheck, releases: Sequence[str]) -> list[str]:
    """Return the releases of the partner that the check compares."""
    return limited(releases, check.among)


def limited(releases: Iterable[str], specifier: str) -> list[str]:
    """Return the releases that satisfy a specifier; all of them if it is empty."""
    return [
        version
        for version in releases
        if not specifier or versions.satisfies(version, specifier, unknown=Tri.NO) is Tri.YES
    ]


def compared(
    rule: Rule, check: ReadCheck, version: str, specifier: str | None, among: Sequence[str], side: str
) -> SeenRelease:
    """Return whether the rule refuses the releases of the partner that one release refuses itself."""
    stated = set(bounds.refused_partners(rule, check.package, version, check.partner, among, check.when))
    demanded = {candidate for candidate in among if not _accepts(specifier, candidate)}
    seen = f"{check.partner} {specifier}" if specifier else f"no bound on {check.partner}"
    for words, group in (("not in the rule: ", demanded - stated), ("the rule adds ", stated - demanded)):
        if group:
            ordered = sorted(group, key=versions.order)
            span = ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
            seen += f"; {words}{span}"
    return SeenRelease(check.package, version, side, stated == demanded, seen)


def _accepts(specifier: str | None, version: str) -> bool:
    return specifier is None or versions.satisfies(version, specifier, unknown=Tri.YES) is Tri.YES


def _accepted(advice: bounds.AdvisedRelease, inside: Mapping[str, str | None]) -> SeenRelease:
    refusing = [version for version, specifier in inside.items() if not _accepts(specifier, advice.version)]
    newest = list(inside)[-1] if inside else ""
    # A single release that refuses the advised version counts only if it is the newest one inside.
    agrees = newest not in refusing
    seen = (
        f"accepted by {newest}: {inside.get(newest)}" if agrees else f"refused by {newest}: {inside[newest]}"
    )
    return SeenRelease(advice.package, advice.version, f"fix {advice.fix}", agrees, seen)
