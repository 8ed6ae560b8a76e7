"""Find the releases to open: those on each side of a rule's version bounds, and those its fixes advise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Kind, Known, Tri, package_key, package_name
from envcheck.core.rules import Clause, Ref, Rule, uninstalls
from envcheck.rules import clause_algebra


class Edge(NamedTuple):
    """Two consecutive releases; the clause matches `inside` and does not match `outside`."""

    package: str
    inside: str
    outside: str


class AdvisedRelease(NamedTuple):
    """A release that the fix of this number (from 1) advises."""

    fix: int
    package: str
    version: str


def version_clauses(rule: Rule) -> Iterator[tuple[int, Clause]]:
    """Yield the clauses with which a rule bounds the version of a package, with the number of their table."""
    for number, table in enumerate(rule.when, 1):
        for clause in table:
            if clause.key.startswith("pkg.") and clause.kind is Kind.VERSION and _has_bound(clause):
                yield number, clause


def _has_bound(clause: Clause) -> bool:
    tests = [test for alternative in clause.any_of for test in alternative]
    return any(test.op not in ("present", "absent") and not isinstance(test.operand, Ref) for test in tests)


def bounded_packages(rule: Rule) -> list[str]:
    """Return the packages whose versions a rule bounds."""
    return list(dict.fromkeys(package_name(clause.key) for _, clause in version_clauses(rule)))


def matches(clause: Clause, version: str) -> bool:
    """Return whether a clause matches a release."""
    return clause_algebra.answer(clause, Known(version)) is Tri.YES


def edges(clause: Clause, releases: Sequence[str]) -> Iterator[Edge]:
    """Yield the neighbours on both sides of every bound of a clause; `releases` are oldest first."""
    for older, newer in pairwise(releases):
        before, after = matches(clause, older), matches(clause, newer)
        if before != after:
            yield Edge(package_name(clause.key), *((older, newer) if before else (newer, older)))


def rule_matches(rule: Rule, package: str, version: str, tables: Sequence[int] = ()) -> bool:
    """Return whether a `when` table that bounds the package matches this release; some tables if given."""
    return any(
        matches(clause, version)
        for number, clause in version_clauses(rule)
        if clause.key == package_key(package) and (not tables or number in tables)
    )


def refused_partners(
    rule: Rule, package: str, version: str, partner: str, among: Sequence[str], tables: Sequence[int] = ()
) -> list[str]:
    """Return the releases of a partner that a rule refuses beside this release of a package."""
    key, other = package_key(package), package_key(partner)
    applying = []
    for number, table in enumerate(rule.when, 1):
        clauses = {clause.key: clause for clause in table}
        speaks = other in clauses and (not tables or number in tables)
        if speaks and (key not in clauses or matches(clauses[key], version)):
            applying.append(clauses[other])
    return [candidate for candidate in among if any(matches(clause, candidate) for clause in applying)]


def advised(rule: Rule, newest: Mapping[str, str]) -> Iterator[AdvisedRelease]:
    """Yield the releases that the fixes of a rule advise, of the packages that it bounds.

    A fix `>=V` advises V and the newest release that fits the fix; `newest` has the newest by package.
    """
    bounded = set(bounded_packages(rule))
    for number, fix in enumerate(rule.fixes, 1):
        for key, value in fix.set:
            package = package_name(key) if key.startswith("pkg.") else ""
            if package not in bounded or not isinstance(value, str) or "{" in value or uninstalls(key, value):
                continue
            lowest = next(
                str(test.operand) for test in versions.parse_specifier(value) if test.op in (">=", "==")
            )
            yield AdvisedRelease(number, package, lowest)
            last = newest.get(package, lowest)
            if last != lowest and versions.satisfies(last, value, unknown=Tri.NO) is Tri.YES:
                yield AdvisedRelease(number, package, last)
