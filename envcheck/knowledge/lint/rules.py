"""Checks of rules against releases and one another: never broken, overlapping, or with a gap between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Kind, Known, Tri, family, package_key, package_name
from envcheck.core.rules import Clause, Rule, When
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject
from envcheck.rules import clause_algebra
from envcheck.rules.clause_algebra import Interval
from envcheck.rules.clauses import keys_in

NARROW_GAP = 2
"""A gap with at most this many releases looks like a mistake; a wider one looks intended."""


# --- rules that nothing can break -------------------------------------------------------------------


def _never_broken(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield `when` tables that can never match, and so state nothing."""
    for rule, number, table in subject.tables():
        line = subject.place_of(rule).at("when", number)
        for message in _reasons_never_broken(subject, rule, table):
            yield subject.rule_problem("never-holds", rule, message, line)


def _reasons_never_broken(subject: LintSubject, rule: Rule, table: When) -> Iterator[str]:
    impossible = [clause for clause in table if not subject.satisfiable(clause)]
    if impossible:
        yield from (f"can never match: no value satisfies {clause.key} {clause.raw}" for clause in impossible)
        return
    if _implies_requirement(subject, rule, table):
        yield "can never be broken: `when` already implies `require`"
    yield from (
        f"can never match: no release of {package_name(clause.key)} is {clause.raw}"
        for clause in table
        if _between_releases(subject, clause)
    )


def _implies_requirement(subject: LintSubject, rule: Rule, table: When) -> bool:
    given = {clause.key: clause for clause in table}
    return bool(rule.require) and all(
        clause.key in given
        and clause_algebra.implies(given[clause.key], clause, subject.declared(clause.key))
        for clause in rule.require
    )


def _between_releases(subject: LintSubject, clause: Clause) -> bool:
    """Return whether a range has both ends among the listed releases and contains none of them."""
    releases, span = subject.releases_of(clause.key), clause_algebra.interval(clause)
    if not releases or span is None or not (span.low and span.high):
        return False
    within_tables = versions.order(releases[0]) <= versions.order(span.low) and versions.order(
        span.high
    ) <= versions.order(releases[-1])
    return within_tables and all(
        clause_algebra.answer(clause, Known(release)) is Tri.NO for release in releases
    )


# --- rules that overlap -----------------------------------------------------------------------------


class _RuleTable(NamedTuple):
    rule: Rule
    number: int
    when: When
    keys: frozenset[str]


def _overlaps(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield pairs of rules for one combination, and notes where one rule's combinations include another's."""
    tables = [
        _RuleTable(rule, number, table, frozenset(clause.key for clause in table))
        for rule, number, table in subject.tables()
        if all(map(subject.satisfiable, table))
    ]
    for position, later in enumerate(tables):
        for earlier in tables[:position]:
            if _comparable(later, earlier):
                yield from _overlap(subject, later, earlier)


def _comparable(one: _RuleTable, other: _RuleTable) -> bool:
    return (
        one.rule.id != other.rule.id
        and one.rule.require == other.rule.require
        and (one.keys <= other.keys or other.keys <= one.keys)
    )


def _overlap(subject: LintSubject, one: _RuleTable, other: _RuleTable) -> Iterator[LintProblem]:
    declared = {key: subject.declared(key) for key in one.keys | other.keys}
    inside = one.keys >= other.keys and clause_algebra.table_implies(one.when, other.when, declared)
    around = one.keys <= other.keys and clause_algebra.table_implies(other.when, one.when, declared)
    line = subject.place_of(one.rule).at("when", one.number)
    if inside and around:
        advice = "" if _advice(one.rule) == _advice(other.rule) else ", with other advice"
        message = f"expected one rule for this combination; found it in {other.rule.id} too{advice}"
        yield subject.rule_problem("overlap", one.rule, message, line)
    elif inside or around:
        inner, outer = (one.rule, other.rule) if inside else (other.rule, one.rule)
        if outer.repeats == inner.id:
            return
        message = f"every combination of {inner.id} is one of {outer.id} too: a user sees both"
        yield subject.rule_problem("overlap", one.rule, message, line, note=True)


def _advice(rule: Rule) -> tuple[Any, ...]:
    return rule.severity, tuple(fix.set for fix in rule.fixes)


# --- gaps between rules -----------------------------------------------------------------------------


class _Range(NamedTuple):
    """A range of versions in a rule's `when` table of this number."""

    span: Interval
    rule: Rule
    number: int


def _gaps(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield gaps between rules that differ only in one range: `<0.14.1` and `>=0.14.2` leave out 0.14.1."""
    families: dict[Any, list[_Range]] = defaultdict(list)
    for rule, number, table in subject.tables():
        for clause in table:
            span = clause_algebra.interval(clause)
            if span is not None:
                others = frozenset((other.key, other.raw) for other in table if other is not clause)
                families[rule.group, clause.key, others].append(_Range(span, rule, number))
    for (_, key, _), ranges in families.items():
        yield from _gaps_between(subject, key, ranges)


def _gaps_between(subject: LintSubject, key: str, ranges: list[_Range]) -> Iterator[LintProblem]:
    name = package_name(key)
    for gap, before, after in _find_gaps(ranges):
        releases = _releases_in(subject.releases_of(key), gap)
        if releases is None or _has_fine_case(subject, key, gap, {before.id, after.rule.id}):
            continue
        listed = f" with {' and '.join(releases)}" if releases else ""
        message = (
            f"expected no gap after {before.id}; found {name} >={gap.low},<{gap.high}{listed}; "
            "close it, or add a case inside it that is fine"
        )
        line = subject.place_of(after.rule).at("when", after.number)
        yield subject.rule_problem("gap", after.rule, message, line)


def _find_gaps(ranges: list[_Range]) -> Iterator[tuple[Interval, Rule, _Range]]:
    """Yield each gap with the rule whose range ends below it and the range that starts above it."""
    ordered = sorted(ranges, key=lambda each: versions.order(each.span.low or "0"))
    highest, owner = "", ordered[0].rule
    for current, following in pairwise(ordered):
        if current.span.high == "":
            return  # a range without an upper end covers everything above
        if not highest or versions.order(current.span.high) > versions.order(highest):
            highest, owner = current.span.high, current.rule
        low = following.span.low
        if low and versions.order(low) > versions.order(highest):
            yield Interval(highest, low), owner, following


def _releases_in(releases: Sequence[str], gap: Interval) -> list[str] | None:
    """Return the releases in a gap; None if it deserves no report: no release in it, or too many.

    Where no releases are listed, a gap within one minor series is reported without any.
    """
    if not releases:
        low_series, high_series = (versions.base_release(end).split(".")[:2] for end in (gap.low, gap.high))
        return [] if low_series == high_series else None
    low, high = versions.order(gap.low), versions.order(gap.high)
    found = [release for release in releases if low <= versions.order(release) < high]
    return found if 0 < len(found) <= NARROW_GAP else None


def _has_fine_case(subject: LintSubject, key: str, gap: Interval, rules: set[str]) -> bool:
    """Return whether a case shows that a version in the gap is fine."""
    low, high = versions.order(gap.low), versions.order(gap.high)
    return any(
        case.row.get("expect") == "fine"
        and case.row.get("rule") in rules
        and isinstance(version := facts.known(key), str)
        and low <= versions.order(versions.base_release(version)) < high
        for case, facts in subject.readable_cases
    )


# --- rules that repeat another --------------------------------------------------------------------------


def _repeats(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield rules whose `repeats` names no rule that is more severe.

    A finding of the atlas (`atlas:vllm:torch`) is named by the two packages that the rule is about. The rule
    may name the host too, on which the build of a package depends, and whether its symbols were found.
    """
    by_id = {rule.id: rule for rule in subject.known.rules}
    for rule in subject.known.rules:
        other = by_id.get(rule.repeats)
        of_atlas = rule.repeats.startswith("atlas:")
        keys = {key for key in keys_in(rule) if family(key) != "host" and not key.endswith(".resolved")}
        if of_atlas and keys == {package_key(name) for name in rule.repeats.split(":")[1:]}:
            continue
        if rule.repeats and (other is None or other.severity.rank <= rule.severity.rank):
            message = f"repeats: expected a rule that is more severe; found {rule.repeats!r}"
            yield subject.rule_problem("repeats", rule, message, subject.place_of(rule).at("repeats"))


def _no_cure(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield rules whose `no_cure` names a key that no clause of `when` bounds as a version."""
    for rule in subject.known.rules:
        bounded = {clause.key for table in rule.when for clause in table if clause.kind is Kind.VERSION}
        for key in rule.no_cure:
            if key not in bounded:
                message = f"no_cure: expected a version that `when` bounds; found {key!r}"
                yield subject.rule_problem("no-cure", rule, message, subject.place_of(rule).at("no_cure"))


CHECKS = (_never_broken, _overlaps, _gaps, _repeats, _no_cure)
