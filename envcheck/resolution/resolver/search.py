"""The search itself: depth-first, with learnt conflicts, and trying first what a broken rule's fixes name."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import Value, family
from envcheck.core.rules import Target
from envcheck.resolution.resolver.candidates import (
    candidates,
    free_values,
    required_packages,
    surely_satisfies,
    wanted_packages,
)
from envcheck.resolution.resolver.choice_judge import Choice, ChoiceJudge, Refusal
from envcheck.resolution.resolver.consistency import consistent_releases
from envcheck.resolution.resolver.problem import Answer, Reason, SearchProblem
from envcheck.resolution.resolver.refusing_rules import reason_of

NODES = 60_000
"""Maximum number of choices judged: half a minute at 0.5 ms each. Typical searches need hundreds.

A dependency that no chosen package requires is not counted: it is left out at once.
"""

NODES_BEFORE_PAIRS = 3_000
"""Number of choices after which the packages are compared in pairs, which leaves less to search."""

_Domains = Mapping[str, Sequence[Value | None]]
_Measured = Mapping[str, str]


def solve(problem: SearchProblem, without: Container[Reason] = ()) -> Answer:
    """Return the first choice that nothing refuses, as if the reasons in `without` did not exist.

    Raises:
        NoSolutionError: the search gave up, so such a choice may still exist.
    """
    offer = _collect_offer(problem, without)
    if offer.missing is not None:
        return Answer(None, {}, offer.missing, 0)
    nodes, reasons = 0, {*offer.excluding, *(("wants", name) for name in offer.releases)}
    measured = [pkg for pkg in _measured_good(problem) if _is_offered(pkg, problem.target, offer.releases)]
    for free in _free_domains(problem, without):
        judge = ChoiceJudge(problem, without, (*offer.order, *free), offer.requires)
        if judge.broken is not None:
            return Answer(None, {}, frozenset({reason_of(judge.broken)}), nodes)
        newest: Choice | None = None
        if offer.required:
            # Find the newest releases of the user's packages first and fix them, so that a measured
            # combination cannot make them older.
            run = _SearchRun(judge, _domains(problem, offer, {}, free), tuple(offer.releases))
            newest, nodes = run.solution(), nodes + run.nodes
            reasons |= run.reasons
            if newest is None:
                continue
        required = {name: str(newest[name]) for name in offer.required} if newest else {}
        for pkg in (*measured, *([] if newest else [{}])):
            domains = _domains(problem, offer, {**pkg, **required}, free)
            run = _SearchRun(judge, domains, tuple(offer.releases))
            found, nodes = run.solution(), nodes + run.nodes
            if found is not None:
                return _answer(problem, found, nodes, measured=bool(pkg))
            if not pkg:
                reasons |= run.reasons
        if newest is not None:
            return _answer(problem, newest, nodes, measured=False)
    return Answer(None, {}, frozenset(reasons), nodes)


def _answer(problem: SearchProblem, found: Choice, nodes: int, *, measured: bool) -> Answer:
    chosen = {name: str(value) for name, value in found.items() if value is not None}
    packages = {
        name: chosen[name]
        for name in dict.fromkeys((*problem.target.packages, *chosen))
        if name in chosen and family(name) != "train"
    }
    brought = {name: packages.pop(name) for name in problem.dependencies if name in packages}
    changed = {key: value for key, value in found.items() if family(key) == "train" and value is not None}
    return Answer(packages, changed, frozenset(), nodes, measured=measured, brought=brought)


# --- what is offered to the search ------------------------------------------------------------------


class _Offer(NamedTuple):
    """Versions of each wanted package, newest first, what each requires, and what excluded the others.

    `brought` has the versions of dependencies, and `required` the packages that the user requires besides the
    target's. If a package has no version at all, `missing` has the reasons.
    """

    releases: Mapping[str, Sequence[str]]
    requires: Mapping[tuple[str, str], tuple[str, ...]]
    excluding: frozenset[Reason]
    missing: frozenset[Reason] | None = None
    brought: Mapping[str, Sequence[str]] = {}
    required: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        """All packages, in the order of the search."""
        return *self.releases, *self.brought


def _collect_offer(problem: SearchProblem, without: Container[Reason]) -> _Offer:
    wanted = wanted_packages(problem, without)
    offered: dict[str, list[str]] = {}
    requires: dict[tuple[str, str], tuple[str, ...]] = {}
    excluding: frozenset[Reason] = frozenset()
    for name in dict.fromkeys((*wanted, *problem.dependencies)):
        releases, reasons = candidates(problem, name, without)
        if not releases and name in wanted:
            return _Offer(offered, requires, excluding, missing=reasons | {("wants", name)})
        offered[name] = [release.version for release in releases]
        requires.update({(name, release.version): release.requires for release in releases})
        excluding |= reasons
    return _Offer(
        {name: offered[name] for name in wanted},
        requires,
        excluding,
        brought={name: offered[name] for name in problem.dependencies if name not in wanted},
        required=tuple(name for name in required_packages(problem) if name in wanted),
    )


def _free_domains(
    problem: SearchProblem, without: Container[Reason]
) -> Iterator[Mapping[str, Sequence[Value]]]:
    """Yield the values of free facts for rules that no release satisfies, then all values.

    The second item is left out if it is equal to the first.
    """
    reluctant = free_values(problem, reluctant=True, without=without)
    yield reluctant
    every = free_values(problem, reluctant=False, without=without)
    if every != reluctant:
        yield every


def _domains(
    problem: SearchProblem, offer: _Offer, pkg: _Measured, free: Mapping[str, Sequence[Value]]
) -> _Domains:
    """Return the values to try by variable; target and required packages that `pkg` names are fixed to it."""
    fixed = {name for name in pkg if name in problem.target.packages or name in offer.required}
    domains: dict[str, Sequence[Value | None]] = {
        name: [pkg[name]] if name in fixed else releases for name, releases in offer.releases.items()
    }
    optional = {**offer.brought, **free}
    return {**domains, **{key: (None, *values) for key, values in optional.items()}}


def _measured_good(problem: SearchProblem) -> list[_Measured]:
    """Return the combinations that trained with the target's settings, newest first.

    They are compared by the versions of the target's packages, in the target's order.
    """
    target = problem.target
    found = [
        cell.pkg
        for cell in problem.known.cells
        if cell.target == target.name
        and cell.outcome == "ok"
        and all(
            target.train.get(key, value) == value or key in target.free for key, value in cell.train.items()
        )
    ]
    found.sort(key=lambda pkg: [versions.order(pkg.get(name, "")) for name in target.packages], reverse=True)
    distinct: list[_Measured] = []
    for pkg in found:
        if pkg not in distinct:
            distinct.append(pkg)
    return distinct


def _is_offered(pkg: _Measured, target: Target, offered: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a measured combination has an offered release of each searched package of the target."""
    return all(pkg.get(name) in offered.get(name, ()) for name in target.packages if name in offered)


# --- one run ----------------------------------------------------------------------------------------


class _TooManyNodesError(Exception):
    """More choices were judged than a run may judge."""


class _SearchRun:
    """One depth-first run over given domains; `wanted` are the packages that every choice has.

    `reasons` collects everything that refused a choice, and `nodes` counts the choices judged. `_conflicts`
    has sets of values that turned out incompatible, by the last variable of each set. `_hints` has bounds, by
    variable, from fixes for the refused best value of another variable.
    """

    def __init__(self, judge: ChoiceJudge, domains: _Domains, wanted: Sequence[str]) -> None:
        self.judge, self.domains, self.wanted = judge, domains, wanted
        self.reasons: set[Reason] = set()
        self._most_nodes = NODES_BEFORE_PAIRS
        self.nodes = 0
        self._conflicts: dict[str, list[tuple[dict[str, Value | None], frozenset[str]]]] = {}
        self._hints: dict[str, list[Value]] = {}

    def solution(self) -> dict[str, Value | None] | None:
        """Return the first complete choice that nothing refuses, or None.

        Raises:
            NoSolutionError: the search gave up after `NODES` choices.
        """
        try:
            found = self.extend({})
        except _TooManyNodesError:
            left = consistent_releases(self.judge, {name: self.domains[name] for name in self.wanted})
            self.reasons |= left.reasons
            if left.releases is None:
                return None
            self.domains = {**self.domains, **left.releases}
            self._most_nodes = NODES
            try:
                found = self.extend({})
            except _TooManyNodesError:
                raise NoSolutionError(
                    f"no answer after {NODES} combinations; ask for fewer packages"
                ) from None
        return found if isinstance(found, dict) else None

    def extend(self, chosen: dict[str, Value | None]) -> dict[str, Value | None] | frozenset[str]:
        """Return a complete choice that extends this one, or the variables whose values make that impossible.

        Raises:
            _TooManyNodesError: more than `_most_nodes` choices were judged.
        """
        order = self.judge.order
        if len(chosen) == len(order):
            return chosen
        name = order[len(chosen)]
        left, excluded = self._left_by_metadata(name, chosen)
        blame = set[str]()
        while left:
            value = left.pop(0)
            self.nodes += value is not None
            if self.nodes > self._most_nodes:
                raise _TooManyNodesError
            extended = {**chosen, name: value}
            refusal = self._refusal(name, extended)
            if refusal is None:
                found = self.extend(extended)
                if isinstance(found, dict) or name not in found:
                    return found
                blame |= found
                left = _named_first(left, self._hints.pop(name, []))
            else:
                blame |= refusal.concerns
                left = self._reorder(refusal, name, left, best=value == self.domains[name][0])
        blame |= self._needed_packages(name, chosen, blame, excluded)
        blame.discard(name)
        self._learn(chosen, blame)
        return frozenset(blame)

    def _left_by_metadata(
        self, name: str, chosen: Choice
    ) -> tuple[list[Value | None], dict[str, list[Value | None]]]:
        """Return the values that chosen releases' requirements admit, and by package those that it refuses.

        A value that several packages refuse is listed for the first of them.
        """
        left, excluded = list(self.domains[name]), dict[str, list[Value | None]]()
        for package, meeting in self.judge.meeting_requirements(name, chosen):
            kept = [value for value in left if value in meeting]
            if len(kept) < len(left):
                excluded[package] = [value for value in left if value not in meeting]
                self.reasons.add(("metadata", package, name))
            left = kept
        return left, excluded

    def _needed_packages(
        self,
        name: str,
        chosen: Choice,
        blame: Container[str],
        excluded: dict[str, list[Value | None]],
    ) -> set[str]:
        """Return the packages in `excluded` without which some value could be chosen.

        If the other blamed packages refuse the same values by rules, another release of this package changes
        nothing. Blaming it would try all its releases.
        """
        needed = {*excluded}
        for package in reversed(excluded.keys()):
            others = needed - {package}
            if all(
                any(
                    all(each == name or each in blame or each in others for each in refusal.concerns)
                    for refusal in self.judge.refusals(name, {**chosen, name: value})
                )
                for value in excluded[package]
            ):
                needed = others
        return needed

    def _refusal(self, name: str, chosen: Choice) -> Refusal | None:
        """Return the refusal of the last added value that concerns the fewest variables, or None."""
        for conflict, concerns in self._conflicts.get(name, ()):
            if all(chosen[other] == value for other, value in conflict.items()):
                return Refusal((), concerns)
        refusals = self.judge.refusals(name, chosen)
        return min(refusals, key=lambda refusal: len(refusal.concerns), default=None)

    def _learn(self, chosen: Choice, blame: set[str]) -> None:
        """Record the blamed values as a conflict, so that they are refused whenever they occur together."""
        if blame:
            last = max(blame, key=self.judge.order.index)
            conflict = {name: chosen[name] for name in blame}
            self._conflicts.setdefault(last, []).append((conflict, frozenset(blame)))

    def _reorder(
        self, refusal: Refusal, name: str, left: list[Value | None], *, best: bool
    ) -> list[Value | None]:
        """Return the values left to try after a refusal, in the order that its fixes suggest.

        If the refused value was the best one and its fixes are for other variables, store them as hints for
        when the search returns to those.
        """
        self.reasons.update(refusal.reasons)
        fixes = dict(reversed(refusal.fixes))  # the first fix of a package is the one that counts
        if best and name not in fixes:
            for other, bound in fixes.items():
                self._hints.setdefault(other, []).append(bound)
        return _named_first(left, [fixes[name]]) if name in fixes else left


def _named_first(left: list[Value | None], bounds: Sequence[Value]) -> list[Value | None]:
    """Return all values left to try, with those that satisfy a bound first."""

    def named(value: Value | None) -> bool:
        return value is not None and any(surely_satisfies(str(value), bound) for bound in bounds)

    if left and named(left[0]):
        return left
    first = [value for value in left if named(value)]
    return [*first, *(value for value in left if value not in first)] if first else left
