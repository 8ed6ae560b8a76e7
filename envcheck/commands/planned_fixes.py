"""Give findings the fixes of a plan, so that the findings and the plan of a report recommend the same change.

A report has a plan if `--fix` is given, or if it may advise another change than the first fix of a finding.
"""

from __future__ import annotations

from envcheck.core.facts import Value
from envcheck.core.findings import Finding, Judgement, Move, Plan
from envcheck.core.rules import Fix, uninstalls


def with_planned_fixes(judgement: Judgement, plan: Plan) -> Judgement:
    """Return the judgement with the plan's changes for each finding as its first fix."""
    unresolved = {each.rule.id for each in plan.unresolved}
    return judgement._replace(
        findings=tuple(
            finding if finding.rule.id in unresolved or not finding.decided else _with_fix(finding, plan)
            for finding in judgement.findings
        )
    )


def _with_fix(finding: Finding, plan: Plan) -> Finding:
    moves = [move for move in plan.moves if not move.leader and _is_for(move, finding)]
    if not moves:
        return finding
    planned = _as_fix(moves)
    # A fix of the finding may contain a move that the plan makes only because another one called for it.
    least, most = dict(planned.tried).items(), dict(_as_fix(list(plan.moves)).tried).items()
    same = [fix for fix in finding.fixes if least <= dict(fix.tried).items() <= most]
    same.sort(key=lambda fix: -len(fix.tried))
    others = [fix for fix in finding.fixes if fix not in same and not fix.conflict]
    return finding._replace(fixes=(*(same[:1] or [planned]), *others))


def _is_for(move: Move, finding: Finding) -> bool:
    return any(rule.id == finding.rule.id for rule in move.rules)


def _as_fix(moves: list[Move]) -> Fix:
    """Return moves as one fix; a change for an administrator has a bound instead of a value."""
    costs = dict.fromkeys(move.cost for move in moves if move.cost)
    changes = tuple((move.key, _after(move)) for move in moves)
    tried: tuple[tuple[str, Value], ...] = tuple(
        (move.key, move.after) for move in moves if move.after is not None
    )
    return Fix(changes, "; ".join(costs), tried)


def _after(move: Move) -> str | int | bool:
    if move.administrator:
        return move.bound
    if isinstance(move.after, str) and move.key.startswith("pkg.") and not uninstalls(move.key, move.after):
        return f"=={move.after}"
    return move.bound if move.after is None or isinstance(move.after, tuple) else move.after
