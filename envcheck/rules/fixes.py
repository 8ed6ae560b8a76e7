"""Fixes of a broken rule that work here: each is tried, and kept only if the judge passes the result."""

from collections.abc import Callable, Sequence

from envcheck.core import versions
from envcheck.core.facts import Inventory, Value
from envcheck.core.findings import Finding, Judgement
from envcheck.core.rules import Fix
from envcheck.rules.judge import device_of, errors

JudgeChanges = Callable[[Sequence[tuple[str, Value]]], Judgement]
"""Judges this environment after some changes, with the facts that they make stale forgotten."""


def with_passing_fixes(
    finding: Finding, judgement: Judgement, inventory: Inventory, judge_changes: JudgeChanges
) -> Finding:
    """Return the finding with those of its rule's fixes that work here, best first.

    A fix works if its rule is neither broken nor undecided afterwards, and if it breaks no rule at error
    level that was not broken in `judgement`.
    """
    before = errors(judgement)
    passed: list[Fix] = []
    for fix in finding.rule.fixes:
        bound = bind_fix(fix, inventory, device_of(finding))
        if bound is None or any(bound.set == other.set for other in passed):
            continue
        changes = tuple((key, trial_value(value)) for key, value in bound.set)
        after = judge_changes(changes)
        still = any(other.rule.id == finding.rule.id for other in after.findings)
        if not still and errors(after) <= before:
            passed.append(bound._replace(tried=changes))
    return finding._replace(fixes=tuple(passed))


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
    """Return the value to try for a change: of a version bound its lower end, which is a real release."""
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
