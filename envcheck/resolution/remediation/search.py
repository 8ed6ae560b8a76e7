"""The search: visit states by lower bound until the smallest answer is proved or the limit is reached."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

from envcheck.core.facts import Value
from envcheck.core.findings import Finding
from envcheck.core.records import NamedTuple
from envcheck.resolution.remediation.bound import BoundModel, LowerBound
from envcheck.resolution.remediation.cost import CostModel
from envcheck.resolution.remediation.moves import Changes, count_moves
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import ReleaseChoices, Releases
from envcheck.resolution.remediation.state import InventoryEditor, RemediationState, StateJudge
from envcheck.resolution.remediation.ways_out import BreakingReleases, Neighbourhood

STATES = 200
"""Maximum number of states judged in one search. At two to four milliseconds each, with the search around it,
that is less than a second."""


class RemediationSpace(NamedTuple):
    """Parts with which the search solves one problem."""

    problem: RemediationProblem
    editor: InventoryEditor
    judge: StateJudge
    choices: ReleaseChoices
    costs: CostModel
    bounds: BoundModel
    neighbourhood: Neighbourhood

    @classmethod
    def of(cls, problem: RemediationProblem, listed: Releases) -> RemediationSpace:
        """Build the parts for a problem and the releases that may be proposed."""
        editor = InventoryEditor(problem.read, problem.known, listed)
        judge = StateJudge(problem, editor)
        choices = ReleaseChoices(problem, listed)
        costs = CostModel(problem, choices)
        return cls(
            problem=problem,
            editor=editor,
            judge=judge,
            choices=choices,
            costs=costs,
            bounds=BoundModel(problem, costs),
            neighbourhood=Neighbourhood(judge, choices, BreakingReleases()),
        )

    def without_condition(self) -> RemediationSpace:
        """Return the parts for the same problem without `admitted_only`; they share what they have judged."""
        judge = self.judge.without_condition()
        neighbourhood = Neighbourhood(judge, self.choices, self.neighbourhood.breaking)
        return self._replace(problem=judge.problem, judge=judge, neighbourhood=neighbourhood)


class RemediationResult(NamedTuple):
    """Best changes that a search found (None if it found none), and what it proved.

    `fewest` means that no answer has fewer moves (or that there is no answer); `smallest` means that no
    answer with the same number of moves is smaller.
    """

    changes: Changes | None
    fewest: bool
    smallest: bool


class SearchLimits(NamedTuple):
    """How far a search goes.

    `states` is the maximum number of states to judge. `more` is the maximum after the first answer, to find a
    smaller one with as many moves. `below` is a pair (administrator's moves, all moves): only answers with
    less count. With `any_release`, releases that no rule's fix lists are tried too. With `first_answer`, the
    states with the fewest unresolved findings come first, and the first answer is returned.
    """

    states: int = STATES
    more: int = STATES
    below: tuple[int, int] | None = None
    any_release: bool = False
    first_answer: bool = False


class _Frontier:
    """States still to be visited, those with the smallest lower bound first. No state is added twice."""

    def __init__(self, space: RemediationSpace, limits: SearchLimits) -> None:
        self.space, self.limits = space, limits
        self._serial = count()  # states with equal bounds leave in the order in which they were added
        self._queue: list[tuple[tuple[Any, ...], int, tuple[int, int], RemediationState]] = []
        self._seen: set[frozenset[tuple[str, Value]]] = set()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, state: RemediationState) -> None:
        values = frozenset((key, proposal.value) for key, proposal in state.changes.items())
        if values in self._seen:
            return
        self._seen.add(values)
        bound = self.space.bounds.bound(state)
        if not self._counts(bound):
            return
        unresolved = len(state.unresolved)
        order = (unresolved, *bound) if self.limits.first_answer else (*bound.least, unresolved, bound.cost)
        heapq.heappush(self._queue, (order, next(self._serial), bound.least, state))

    def may_lead_on(self, state: RemediationState, changes: Changes) -> bool:
        """Return whether these changes to a state may lead to an answer that counts, before they are judged.

        Findings that no changed fact can affect stay unresolved.
        """
        return self._counts(self.space.bounds.bound(state._replace(changes=changes)))

    def _counts(self, bound: LowerBound) -> bool:
        return self.limits.below is None or bound.least < self.limits.below

    def pop(self) -> tuple[tuple[int, int], RemediationState]:
        """Remove the first state; return its lower bound and the state."""
        *_, least, state = heapq.heappop(self._queue)
        return least, state


def search(space: RemediationSpace, goal: frozenset[str], limits: SearchLimits) -> RemediationResult:
    """Return the cheapest changes that resolve every rule of `goal` and break no other rule."""
    judge, cost = space.judge, space.costs.cost
    best: Changes | None = None
    last_state = judge.states + limits.states
    frontier = _Frontier(space, limits)
    frontier.add(judge.state({}, goal))
    while frontier and judge.states < last_state:
        least, state = frontier.pop()
        if best is not None and least > cost(best)[:2]:
            return RemediationResult(best, fewest=True, smallest=True)
        if state.unresolved:
            worthwhile = partial(frontier.may_lead_on, state)
            for after in space.neighbourhood.successors(
                state, goal, any_release=limits.any_release, worthwhile=worthwhile
            ):
                frontier.add(after)
        elif limits.first_answer:
            return RemediationResult(state.changes, fewest=False, smallest=False)
        elif best is None:
            best, last_state = state.changes, min(last_state, judge.states + limits.more)
        else:
            best = min(best, state.changes, key=cost)
    # States leave the frontier by their lower bound, so the first answer has the fewest moves.
    return RemediationResult(best, fewest=best is not None or not frontier, smallest=not frontier)


def smallest_changes(space: RemediationSpace, goal: frozenset[str]) -> RemediationResult:
    """Return the cheapest changes by the rules' fixes, or by other releases if that needs fewer moves."""
    # The more rules are broken, the longer a state takes to judge, and the less a proof is worth.
    states = STATES * 8 // (8 + len(goal))
    more = states // 4
    by_fixes = search(space, goal, SearchLimits(states=states, more=more))
    if by_fixes.changes is None and by_fixes.fewest:  # it is proved that no combination of fixes helps
        by_fixes = search(space, goal, SearchLimits(states=states, more=more, any_release=True))
        if by_fixes.changes is not None:
            return by_fixes
    if by_fixes.changes is None:
        by_fixes = search(space, goal, SearchLimits(states=STATES // 4, first_answer=True))
    if by_fixes.changes is None:
        return search(space, goal, SearchLimits(states=STATES // 4, any_release=True, first_answer=True))
    by_fixes = by_fixes._replace(changes=without_needless(space, by_fixes.changes, goal))
    if count_moves(by_fixes.changes or {}) <= 1:
        return by_fixes
    below = space.costs.cost(by_fixes.changes or {})[:2]
    limits = SearchLimits(states=states // 2, more=more, below=below, any_release=True)
    by_any_release = search(space, goal, limits)
    if by_any_release.changes is not None:
        return by_any_release
    fewest = by_fixes.fewest and by_any_release.fewest
    return by_fixes._replace(fewest=fewest, smallest=fewest and by_fixes.smallest)


def most_findings(
    space: RemediationSpace, findings: Sequence[Finding]
) -> tuple[frozenset[str], RemediationResult]:
    """Return the ids of rules that can be repaired together, and the changes that repair them.

    The findings are added one by one, worst first. One that cannot be repaired with the others is skipped.
    """
    goal: frozenset[str] = frozenset()
    best = RemediationResult({}, fewest=True, smallest=True)
    for finding in findings:
        larger = goal | {finding.rule.id}
        found = search(space, larger, SearchLimits(states=STATES // 10, first_answer=True))
        if found.changes is not None:
            goal, best = larger, found
    return goal, best


def without_needless(space: RemediationSpace, changes: Changes, goal: frozenset[str]) -> Changes:
    """Return the changes without those that turned out unnecessary; settings of one way out stay together."""
    for key, needless in changes.items():
        way_out = (needless.rule.id, needless.place)
        fewer = {
            other: proposal
            for other, proposal in changes.items()
            if other != key and (key.startswith("pkg.") or (proposal.rule.id, proposal.place) != way_out)
        }
        if not space.judge.state(fewer, goal).unresolved:
            return without_needless(space, fewer, goal)
    return changes
