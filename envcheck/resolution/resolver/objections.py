"""The judge of a completed lock: what it breaks, in a form that the next search can use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from envcheck.core.facts import (
    Fact,
    Inventory,
    Known,
    Value,
    family,
    package_key,
    package_name,
    python_release,
)
from envcheck.core.findings import Finding
from envcheck.core.rules import Fix, Rule, Severity, uninstalls
from envcheck.knowledge.atlas_rules import rules_here
from envcheck.knowledge.generated_rules import requirement_rules, target_rules
from envcheck.resolution.resolver.bounds import bound_on, every_release
from envcheck.resolution.resolver.choice_judge import fact_in_lock
from envcheck.resolution.resolver.problem import Objection, SearchProblem
from envcheck.resolution.resolver.refusing_rules import refusing_rules, scope
from envcheck.rules import derive, judge
from envcheck.rules.fixes import bind_fix
from envcheck.rules.requirements import check_requirements


def objections(
    problem: SearchProblem, pins: Mapping[str, str], changed: Mapping[str, Value], stack: Collection[str]
) -> list[Objection]:
    """Return what a completed lock breaks; an empty list if nothing.

    `pins` is the whole closure, `changed` the training facts that the search set, and `stack` the packages in
    the closure that were searched.
    """
    inventory = _inventory(problem, pins, changed)
    # Missing packages are ignored: the backend made the lock complete by the metadata that its index serves.
    unmet = [each for each in check_requirements(inventory).unmet if each.requires in pins]
    requirements = requirement_rules(unmet)
    refusing = refusing_rules(problem)
    covered = {rule.id for rule in refusing}
    code = [each for each in _atlas_rules(problem, pins, inventory) if each.id not in covered]
    rules = [*refusing, *target_rules(problem.target), *requirements, *code]
    judgement = judge.judge(inventory, rules)
    return [
        _objection(problem, finding, inventory, pins, stack)
        for finding in judgement.findings
        if judge.forbids_lock(finding)
    ]


def avoidable_warnings(
    problem: SearchProblem, pins: Mapping[str, str], changed: Mapping[str, Value], stack: Collection[str]
) -> list[tuple[str, ...]]:
    """Return for each warning about a completed lock the bounds on packages outside the stack that avoid it.

    Warnings that no such bound avoids are left out. The arguments are those of `objections`.
    """
    inventory = _inventory(problem, pins, changed)
    added = pins.keys() - set(stack)
    found = []
    for each in warnings(problem, pins, changed):
        concerned = sorted(scope(each.rule, problem.known) & added)
        bounds = _bounds(each, inventory, added) or _bounds_by_trial(problem, each, inventory, concerned)
        found += [bounds] if bounds else []
    return found


def warnings(problem: SearchProblem, pins: Mapping[str, str], changed: Mapping[str, Value]) -> list[Finding]:
    """Return the decided findings at warning level about a completed lock, those of the atlas included."""
    inventory = _inventory(problem, pins, changed)
    rules = [rule for rule in problem.known.rules if rule.severity is Severity.WARNING]
    listed = {rule.id for rule in rules}
    rules += [
        rule
        for rule in _atlas_rules(problem, pins, inventory)
        if rule.severity is Severity.WARNING and rule.id not in listed
    ]
    return [each for each in judge.judge(inventory, rules).findings if each.decided]


def _atlas_rules(problem: SearchProblem, pins: Mapping[str, str], inventory: Inventory) -> Iterator[Rule]:
    """Yield the rules of the atlas on packages of a lock, and on the Python that it is for."""
    return rules_here(problem.known.atlas(), {**pins, **python_release(inventory)})


def _inventory(problem: SearchProblem, pins: Mapping[str, str], changed: Mapping[str, Value]) -> Inventory:
    """Return the machine with the whole lock installed, and nothing else."""
    facts = [Fact(key, Known(value), "") for key, value in {**problem.target.train, **changed}.items()]
    requires = {
        release.package: release.requires
        for release in problem.releases
        if pins.get(release.package) == release.version and release.requires
    }
    facts += [fact_in_lock(name, version) for name, version in pins.items()]
    facts += [
        Fact(package_key(name, "requires"), Known(lines), "metadata") for name, lines in requires.items()
    ]
    whole = problem.machine.with_facts(facts)
    return derive.derive(whole._replace(complete=whole.complete | {"pkg"}), problem.known)


def _objection(
    problem: SearchProblem,
    finding: Finding,
    inventory: Inventory,
    pins: Mapping[str, str],
    stack: Collection[str],
) -> Objection:
    names = {name for name in scope(finding.rule, problem.known) if family(name) != "train"}
    concerned = sorted(names & set(stack)) or sorted(stack)
    added = tuple((name, pins.get(name, "")) for name in sorted(names - set(stack)))
    chosen = [name for name, version in added if version]
    return Objection(
        rule=finding.rule.id,
        stack=tuple((name, pins[name]) for name in concerned),
        added=added,
        wide=bool(added) and bool(names & set(stack)) and problem.known.rule(finding.rule.id) is not None,
        message=finding.rule.title,
        bounds=_bounds(finding, inventory, chosen) or _bounds_by_trial(problem, finding, inventory, chosen),
        alternatives=tuple(_alternatives(finding, inventory, names)),
    )


def _alternatives(finding: Finding, inventory: Inventory, names: Collection[str]) -> Iterator[str]:
    """Yield a constraint for each fix that installs a release of one of the rule's packages."""
    for bound in _installing_fixes(finding, inventory):
        if len(bound.set) == 1 and package_name(bound.set[0][0]) in names:
            key, value = bound.set[0]
            yield f"{package_name(key)}{value}"


def _bounds(finding: Finding, inventory: Inventory, added: Collection[str]) -> tuple[str, ...]:
    """Return the rule's first fix that sets only packages added by a backend, as its constraints."""
    for bound in _installing_fixes(finding, inventory):
        if all(package_name(key) in added for key, _ in bound.set):
            return tuple(f"{package_name(key)}{value}" for key, value in bound.set)
    return ()


def _installing_fixes(finding: Finding, inventory: Inventory) -> Iterator[Fix]:
    """Yield the rule's fixes that uninstall nothing, which no constraint can say, with facts filled in."""
    for fix in finding.rule.fixes:
        bound = bind_fix(fix, inventory, judge.device_of(finding))
        if bound is not None and not any(uninstalls(key, value) for key, value in bound.set):
            yield bound


def _bounds_by_trial(
    problem: SearchProblem, finding: Finding, inventory: Inventory, added: Collection[str]
) -> tuple[str, ...]:
    """Return the bound on the first of these packages that some of its releases keep without the finding.

    Rules from the atlas and from metadata have no fixes that name a release.
    """
    for name in added:
        every = every_release(problem, name)
        allowed = [version for version in every if not _is_broken(finding.rule, inventory, name, version)]
        if allowed:
            return (f"{name}{bound_on(allowed, every)}",)
    return ()


def _is_broken(rule: Rule, inventory: Inventory, name: str, version: str) -> bool:
    other = inventory.with_facts([fact_in_lock(name, version)])
    findings = judge.judge(other, [rule]).findings
    if rule.severity is Severity.WARNING:
        return any(finding.decided for finding in findings)
    return any(judge.forbids_lock(finding) for finding in findings)
