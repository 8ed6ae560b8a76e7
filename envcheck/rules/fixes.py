"""Fixes of a broken rule that work here: each is tried, and kept only if the judge passes the result."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import (
    Inventory,
    Known,
    Reading,
    Tri,
    Unknown,
    Value,
    is_package_version_key,
    package_key,
)
from envcheck.core.findings import Finding, Judgement
from envcheck.core.rules import Fix, Requirement, Severity, uninstalls
from envcheck.rules.derive import FOLLOWS_FROM
from envcheck.rules.judge import device_of, errors

JudgeChanges = Callable[[Sequence[tuple[str, Value]]], Judgement]
"""Judges this environment after some changes, with the facts that they make stale forgotten."""


def with_passing_fixes(
    finding: Finding, judgement: Judgement, inventory: Inventory, judge_changes: JudgeChanges
) -> Finding:
    """Return the finding with those fixes that work here, in the order of its rule.

    Fixes that lead to a warning which was not there before, or leave a new one undecided, come last.

    A fix works if its rule is neither broken nor undecided afterwards, if it breaks no rule at error level
    that was not broken in `judgement`, and if no error about a changed fact is left. If none of the
    rule's own fixes works, those of the other broken rules are tried.
    """
    before = judgement
    own = _passing(finding, finding.rule.fixes, before, inventory, judge_changes)
    if own or finding.severity is not Severity.ERROR:
        return finding._replace(fixes=own)
    broken = errors(judgement)
    others = tuple(fix for other in judgement.findings if other.rule.id in broken for fix in other.rule.fixes)
    return finding._replace(fixes=_passing(finding, others, before, inventory, judge_changes))


def _passing(
    finding: Finding,
    fixes: Sequence[Fix],
    before: Judgement,
    inventory: Inventory,
    judge_changes: JudgeChanges,
) -> tuple[Fix, ...]:
    """Return the fixes that work, with the values that were tried: those with new warnings come last."""
    broken, warned = errors(before), _warnings(before)
    passed: list[Fix] = []
    warning: list[Fix] = []
    for fix in fixes:
        bound = bind_fix(fix, inventory, device_of(finding))
        if bound is None:
            continue
        bound = _without_switches_that_are_off(_without_met_bounds(bound, inventory), inventory)
        if any(bound.set == other.set for other in (*passed, *warning)):
            continue
        changes = tuple((key, trial_value(value)) for key, value in bound.set)
        after = judge_changes(changes)
        still = any(other.rule.id == finding.rule.id for other in after.findings)
        if not still and errors(after) <= broken and not _leaves_error(after, dict(changes)):
            (passed if _warnings(after) <= warned else warning).append(bound._replace(tried=changes))
    return (*passed, *warning)


def _warnings(judgement: Judgement) -> frozenset[str]:
    return frozenset(each.rule.id for each in judgement.findings if each.severity is Severity.WARNING)


def _without_met_bounds(fix: Fix, inventory: Inventory) -> Fix:
    """Return the fix without the packages whose installed release meets its bound: they need not change.

    A package that has to be uninstalled and is not installed need not change either.
    """

    def met(key: str, value: Value) -> bool:
        installed = inventory.known(key)
        if uninstalls(key, value) or installed is None:
            return uninstalls(key, value) and installed is None
        return versions.satisfies(str(installed), str(value), unknown=Tri.NO) is Tri.YES

    needed = tuple(
        (key, value) for key, value in fix.set if not (is_package_version_key(key) and met(key, value))
    )
    return fix._replace(set=needed) if needed else fix


def _without_switches_that_are_off(fix: Fix, inventory: Inventory) -> Fix:
    """Return a fix that only switches things off without those that nobody switched on.

    A rule with several uses of one failing part has one fix for all of them.
    """
    if any(value is not False for _, value in fix.set):
        return fix
    on = tuple((key, value) for key, value in fix.set if _may_be_on(inventory.reading(key)))
    return fix._replace(set=on) if on else fix


def _may_be_on(reading: Reading) -> bool:
    if isinstance(reading, Unknown):
        return reading.asked
    return isinstance(reading, Known) and reading.value is not False


def _leaves_error(after: Judgement, changed: Mapping[str, Value]) -> bool:
    """Return whether an error is left that rests on a changed fact, directly or through a derived one."""
    left = errors(after)
    return any(
        finding.rule.id in left and finding.decided and not changed.keys().isdisjoint(origins(finding))
        for finding in after.findings
    )


def requirement_fixes(
    finding: Finding, inventory: Inventory, requirements: Iterable[Requirement]
) -> tuple[Fix, ...]:
    """Return the fix of an unmet requirement: the pinned release, or an upgrade to the lower bound.

    `requirements` are those of all installed packages. There is no fix if the package exceeds an upper bound,
    because the requirement then names no release; nor if the requirement of another package excludes it.
    """
    _, package, required = finding.rule.id.split(":")
    key = package_key(required)
    installed = inventory.known(key)
    asked = [each for each in requirements if each.requires == required]
    own = ",".join(dict.fromkeys(each.specifier for each in asked if each.package == package))
    named = trial_value(own)
    if named == own or not isinstance(named, str) or versions.parse(named) is None:
        return ()
    upgrade = versions.order(named) > versions.order(str(installed))
    pinned = f"=={named}" in own.split(",")
    allowed = all(versions.satisfies(named, each.specifier, unknown=Tri.YES) is Tri.YES for each in asked)
    return (Fix(((key, own),)),) if allowed and (upgrade or pinned) else ()


def origins(finding: Finding) -> set[str]:
    """Return the keys of the facts that a finding rests on, and of those they follow from."""
    found: set[str] = set()
    to_visit = [item.fact.key for item in finding.evidence]
    while to_visit:
        key = to_visit.pop()
        if key not in found:
            found.add(key)
            to_visit += FOLLOWS_FROM.get(key, ())
    return found


def bind_fix(fix: Fix, inventory: Inventory, device: int | None) -> Fix | None:
    """Return the fix with its `{fact}` references filled in, or None if one of the facts is not known."""
    bound: list[tuple[str, str | int | bool]] = []
    for key, value in fix.set:
        if isinstance(value, str) and "{" in value:
            head, _, rest = value.partition("{")
            other = inventory.known(rest.rstrip("}"), device)
            if not isinstance(other, (str, int)):
                return None
            bound.append((key, f"{head}{other}"))
        else:
            bound.append((key, value))
    return fix._replace(set=tuple(bound))


def trial_value(value: str | int | bool) -> Value:
    """Return the value to try for a change; for a version bound, its lower end, which is a real release."""
    if not isinstance(value, str):
        return value
    try:
        comparisons = versions.parse_specifier(value)
    except ValueError:
        return value
    for test in comparisons:
        if test.op in (">=", "=="):
            return str(test.operand)
    return value
