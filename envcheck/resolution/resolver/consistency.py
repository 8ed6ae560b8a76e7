"""Releases that no release of another package can stand beside, found by comparing packages in pairs.

The search finds out that two packages have no releases in common only after it has tried, for each of them,
every combination of the packages between them in its order. Comparing the pairs takes a few thousand verdicts
instead. What is left of each package is also a tighter bound for an installer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from envcheck.core.facts import Value
from envcheck.resolution.resolver.choice_judge import ChoiceJudge, Refusal
from envcheck.resolution.resolver.problem import Reason

Releases = Sequence[Value | None]


class Consistent(NamedTuple):
    """The releases of each package that have a partner in every other; None if nothing can be chosen.

    `reasons` has what refused the others or, if nothing can be chosen, enough to refuse everything.
    `partners` has, by package, the packages that ruled out some of its releases.
    """

    releases: Mapping[str, Releases] | None
    reasons: frozenset[Reason]
    partners: Mapping[str, frozenset[str]]


class _LeftOut(NamedTuple):
    """Why a release was left out: the package that has no partner for it, and what refused those left."""

    other: str
    reasons: frozenset[Reason]


def consistent_releases(judge: ChoiceJudge, releases: Mapping[str, Releases]) -> Consistent:
    """Return the releases that remain if those are left out for which another package has no partner.

    `releases` has every package that must be chosen.
    """
    return _Pairs(judge, releases).reduce()


class _Pairs:
    """The releases that are left, why the others were left out, and the partners found so far."""

    def __init__(self, judge: ChoiceJudge, releases: Mapping[str, Releases]) -> None:
        self._judge = judge
        self._place = {name: place for place, name in enumerate(judge.order)}
        self._left = {name: list(found) for name, found in releases.items()}
        self._partner: dict[tuple[str, Value | None, str], Value | None] = {}
        self._left_out: dict[tuple[str, Value | None], _LeftOut] = {}

    def reduce(self) -> Consistent:
        """Compare all pairs until nothing more is left out, or until a package has no release left."""
        for name in self._left:
            self._compare(name, name)
        changed = {*self._left}
        while changed:
            # A package with few releases is quickly compared, and often leaves out most of another's.
            pairs = sorted(permutations(self._left, 2), key=lambda pair: len(self._left[pair[1]]))
            narrowed = set[str]()
            for name, other in pairs:
                if other in changed | narrowed and self._compare(name, other):
                    narrowed.add(name)
                if not self._left[name]:
                    return self._nothing(name)
            changed = narrowed
        reasons = frozenset().union(*(why.reasons for why in self._left_out.values()))
        return Consistent(self._left, reasons, self._partners())

    def _nothing(self, name: str) -> Consistent:
        """Return the answer for a package without a release left, with the reasons that led to it."""
        open_, reasons, seen = [name], set[Reason](), set[str]()
        while open_:
            package = open_.pop()
            if package in seen:
                continue
            seen.add(package)
            for (left_out, _), why in self._left_out.items():
                if left_out == package:
                    reasons |= why.reasons
                    open_.append(why.other)
        return Consistent(None, frozenset(reasons), self._partners())

    def _partners(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for (name, _), why in self._left_out.items():
            if why.other != name:
                found.setdefault(name, set()).add(why.other)
        return {name: frozenset(others) for name, others in found.items()}

    def _compare(self, name: str, other: str) -> bool:
        """Leave out the releases of a package that have no partner in another; return whether there are any.

        With the package itself as the other, leave out the releases that are refused alone.
        """
        near: Value | None = None
        kept: list[Value | None] = []
        for release in self._left[name]:
            partner, reasons = (
                self._alone(name, release) if name == other else self._partner_of(name, release, other, near)
            )
            if partner is None:
                self._left_out[name, release] = _LeftOut(other, reasons)
            else:
                near = partner
                kept.append(release)
        fewer = len(kept) < len(self._left[name])
        self._left[name] = kept
        return fewer

    def _alone(self, name: str, release: Value | None) -> tuple[Value | None, frozenset[Reason]]:
        refusal = next(self._judge.refusals(name, {name: release}), None)
        return (release, frozenset()) if refusal is None else (None, frozenset(refusal.reasons))

    def _partner_of(
        self, name: str, release: Value | None, other: str, near: Value | None
    ) -> tuple[Value | None, frozenset[Reason]]:
        """Return a release of the other package that can stand beside this one; or None, and the reasons.

        The partner of an earlier comparison is tried first, then `near`, the partner of the release before.
        """
        left = self._left[other]
        first = [each for each in (self._partner.get((name, release, other)), near) if each in left]
        reasons = set[Reason]()
        for partner in dict.fromkeys((*first, *left)):
            refusal = self._refusal({name: release, other: partner})
            if refusal is None:
                self._partner[name, release, other] = partner
                return partner, frozenset()
            reasons.update(refusal.reasons)
        return None, frozenset(reasons)

    def _refusal(self, pair: Mapping[str, Value | None]) -> Refusal | None:
        """Return what refuses two releases together, such as their requirements on a third package."""
        first, last = sorted(pair, key=self._place.__getitem__)
        for package, meeting in self._judge.meeting_requirements(last, {first: pair[first]}):
            if pair[last] not in meeting:
                return Refusal((("metadata", package, last),), frozenset(pair))
        return next(self._judge.refusals(last, {first: pair[first], last: pair[last]}), None)
