"""The plan for the user: the smallest change as moves, the reason for each, and what cannot be repaired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envcheck.core.facts import Absent, Inventory, family, package_key, package_name
from envcheck.core.findings import Move, Plan, Unresolved, Verdict
from envcheck.core.rules import Rule, uninstalls
from envcheck.resolution.remediation.cost import ADMINISTRATOR
from envcheck.resolution.remediation.moves import Changes, Proposal
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import Releases
from envcheck.resolution.remediation.search import (
    RemediationSpace,
    most_findings,
    smallest_changes,
    without_needless,
)
from envcheck.resolution.remediation.state import RemediationState
from envcheck.rules import judge
from envcheck.rules.changes import changed_keys
from envcheck.rules.requirements import check_requirements

NO_WAY = "no change of packages or configuration is known to fix it"
NOT_TOGETHER = "no combination of the known fixes passes the judge here"


def plan_remediation(problem: RemediationProblem, listed: Releases) -> Plan:
    """Return the smallest change that repairs everything that can be repaired.

    If no more moves are needed for it, packages change only to releases that all requirements admit.
    """
    admitted = RemediationSpace.of(problem.with_condition(admitted_only=True), listed)
    plan = _smallest_plan(admitted)
    if not admitted.judge.unmet_at_start or (not plan.unresolved and _count_leading(plan) <= 1):
        return plan  # without the condition, the plan would be the same or have as many moves
    unconditional = _smallest_plan(admitted.without_condition())
    return min(plan, unconditional, key=lambda each: (len(each.unresolved), _count_leading(each)))


def _count_leading(plan: Plan) -> int:
    """Return the number of moves, without those of packages that follow another."""
    return sum(not move.leader for move in plan.moves)


def _smallest_plan(space: RemediationSpace) -> Plan:
    broken = space.judge.broken
    start = space.judge.state({}, frozenset())
    repairable = [finding for finding in broken if any(space.neighbourhood.ways_out(finding, start))]
    goal = frozenset(finding.rule.id for finding in repairable)
    found = smallest_changes(space, goal)
    if found.changes is None:
        goal, found = most_findings(space, repairable)
    changes = without_needless(space, found.changes or {}, goal)
    after = space.judge.state(changes, frozenset(space.judge.rank_before))
    left = [finding for finding in broken if finding.rule.id in after.rule_ids]
    unresolved = (
        Unresolved(finding.rule, NOT_TOGETHER if finding in repairable else NO_WAY) for finding in left
    )
    return Plan(
        moves=tuple(_moves(space, changes, goal)),
        unresolved=tuple(unresolved),
        level=space.problem.level,
        brings=tuple(_newly_broken(space, after)) if changes else (),
        added=_added_packages(changes, after.settled),
        proved="smallest" if found.smallest else "fewest" if found.fewest else "",
        states=space.judge.states,
    )


def _moves(space: RemediationSpace, changes: Changes, goal: frozenset[str]) -> Iterator[Move]:
    """Yield the changes as moves, each followed by the companion packages that move with it."""
    companions = space.editor.companions(changes)
    listed = space.choices.listed
    for key in _in_order(space, changes):
        proposal = changes[key]
        fewer = {other: each for other, each in changes.items() if other != key}
        without = space.judge.state(fewer, goal)
        yield Move(
            key=key,
            before=space.judge.start.known(key),
            after=proposal.value,
            bound=proposal.text,
            rules=_named(finding.rule for finding in without.unresolved) or (proposal.rule,),
            cost=proposal.cost,
            proposed_by=proposal.rule,
            install=_requirement_to_install(space, key, proposal),
            unchecked=_unchecked(listed, key, str(proposal.value)),
            administrator=family(key) in ADMINISTRATOR,
        )
        yield from _companion_moves(space, package_name(key), companions)


def _named(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules to show as the reason for a move; rules of the atlas only if there are no others."""
    every = tuple(rules)
    return tuple(rule for rule in every if rule.group != "atlas") or every


def _in_order(space: RemediationSpace, changes: Changes) -> list[str]:
    """Return the keys in the order of work: packages, configuration, then administrator's tasks.

    A package whose companions move with it comes before the other packages.
    """
    families = {"pkg": 0, "train": 1, "env": 1}
    leaders = space.problem.known.moves_with
    return sorted(
        changes, key=lambda key: (families.get(family(key), 2), package_name(key) not in leaders, key)
    )


def _companion_moves(space: RemediationSpace, leader: str, companions: dict[str, str]) -> Iterator[Move]:
    for key, version in companions.items():
        before = space.problem.read.known(key)
        name = package_name(key)
        if name in space.problem.known.moves_with.get(leader, ()) and version != before:
            install = name + (f"=={version}" if version else "")
            yield Move(key, before, version or None, "", (), leader=leader, install=install)


def _requirement_to_install(space: RemediationSpace, key: str, proposal: Proposal) -> str:
    """Return the requirement that an installer gets for a move; empty if it installs nothing."""
    name = package_name(key)
    if name == key or uninstalls(key, proposal.value):
        return ""
    # If no table lists the package, the value is the lower bound of a requirement and may not exist as a
    # release. Install by the bound in that case.
    guessed = proposal.rule.group == "requires-dist" and proposal.value not in space.choices.within(
        name, ">=0"
    )
    if guessed and name not in space.choices.listed.packages:
        return f"{name}{proposal.text}"
    return f"{name}=={proposal.value}"


def _unchecked(listed: Releases, key: str, version: str) -> str:
    """Return in words what is unchecked about a proposed release.

    Empty if the release is listed for this Python, or if there is none.
    """
    name = package_name(key)
    if name == key or uninstalls(key, version):
        return ""
    if version in listed.fit(name):
        return "" if listed.checked else "not checked for your Python"
    return "not checked: no table lists its releases" if name not in listed.packages else "not checked"


def _added_packages(changes: Changes, settled: Inventory) -> tuple[str, ...]:
    """Return the missing packages that an installer adds because changed packages require them."""
    missing = {
        requirement.requires
        for requirement in check_requirements(settled).unmet
        if package_key(requirement.package) in changes
        and isinstance(settled.fact(package_key(requirement.requires)).reading, Absent)
    }
    return tuple(sorted(missing))


def _newly_broken(space: RemediationSpace, after: RemediationState) -> Iterator[Rule]:
    """Yield the rules, at any level, that the change breaks; only rules on changed facts are evaluated."""
    rules = space.problem.rules.concerned(changed_keys(space.judge.start, after.settled))

    def broken(settled: Inventory) -> dict[str, Rule]:
        findings = judge.judge(settled, rules).findings
        return {finding.rule.id: finding.rule for finding in findings if finding.verdict is Verdict.BROKEN}

    before = broken(space.judge.start)
    for rule_id, rule in broken(after.settled).items():
        if rule_id not in before:
            yield rule
