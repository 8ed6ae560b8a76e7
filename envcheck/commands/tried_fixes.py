"""Try the fixes of broken rules, and search the smallest change after which nothing is broken.

`envcheck doctor` imports this module, so whatever only some commands need is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from envcheck.commands.judging import atlas_rules, with_atlas_rules
from envcheck.commands.loading import published_releases
from envcheck.core.facts import (
    Inventory,
    Value,
    installed_versions,
    is_package_version_key,
    package_key,
    package_name,
)
from envcheck.core.findings import Finding, Judgement, Plan, Verdict
from envcheck.core.rules import Fix, Matrix, Severity, Target
from envcheck.knowledge.generated_rules import target_rules
from envcheck.rules import judge
from envcheck.rules.atlas import keys_of, without_repetitions
from envcheck.rules.changed_inventory import ChangedInventory
from envcheck.rules.changes import changed_keys
from envcheck.rules.fixes import requirement_fixes, with_passing_fixes
from envcheck.rules.requirements import installed_requirements
from envcheck.rules.rule_index import RuleIndex


def add_fixes(
    judgement: Judgement, read: Inventory, inventory: Inventory, matrix: Matrix, target: Target | None
) -> Judgement:
    """Try the fixes of each broken finding's rule, and give the finding those that work here."""
    # A fix is refused only if it breaks a rule at error level, so only those rules are judged again.
    all_rules = (*matrix.rules, *target_rules(target))
    errors = RuleIndex(rule for rule in all_rules if rule.severity is Severity.ERROR)
    error_ids = {rule.id for rule in errors.rules}

    asked = cache(lambda: tuple(installed_requirements(inventory)))
    trial = ChangedInventory(read, matrix)

    @cache
    def judged_by_errors(changes: tuple[tuple[str, Value], ...]) -> tuple[Inventory, Judgement]:
        changed = trial.after(changes)
        concerned = errors.concerned(changed_keys(inventory, changed))
        unconcerned = error_ids.difference(rule.id for rule in concerned)
        unchanged = tuple(finding for finding in judgement.findings if finding.rule.id in unconcerned)
        after = judge.judge(changed, [*concerned, *atlas_rules(changed, matrix, worded=False)])
        after = after._replace(findings=(*unchanged, *after.findings))
        return changed, without_repetitions(after)  # as in the judgement that it is compared with

    def with_fixes(finding: Finding) -> Finding:
        def attempt(changes: Sequence[tuple[str, Value]]) -> Judgement:
            changed, after = judged_by_errors(tuple(changes))  # many findings try the same fix
            if finding.rule.severity is Severity.ERROR:
                return after
            own = judge.judge(changed, [finding.rule])
            return after._replace(findings=(*after.findings, *own.findings))

        found = _without_withdrawn(with_passing_fixes(finding, judgement, inventory, attempt), matrix)
        if any(is_package_version_key(key) for fix in found.fixes for key, _ in fix.tried):
            from envcheck.commands.excluded_fixes import without_excluded  # most reports have no such fix

            found = without_excluded(found, judgement, inventory, matrix, attempt, asked())
        return found if len(found.fixes) <= 1 else _smallest_fix_first(found, inventory)

    findings = tuple(
        with_fixes(finding) if finding.verdict is Verdict.BROKEN and finding.rule.fixes else finding
        for finding in _with_stated_fixes(judgement, inventory, matrix)
    )
    return judgement._replace(findings=findings)


def _without_withdrawn(finding: Finding, matrix: Matrix) -> Finding:
    """Return the finding without the fixes that install a release which its authors have withdrawn."""
    fixes = tuple(
        fix
        for fix in finding.fixes
        if not any((package_name(key), str(value)) in matrix.tables.withdrawn for key, value in fix.tried)
    )
    return finding._replace(fixes=fixes)


def _with_stated_fixes(judgement: Judgement, inventory: Inventory, matrix: Matrix) -> Iterator[Finding]:
    """Yield the findings; rules without fixes get those that a requirement or the atlas states.

    A package that others move with, such as torch, is not changed for a requirement alone, and one that is
    not installed has no release to change.
    """
    requirements = cache(lambda: tuple(installed_requirements(inventory)))

    def fixes_of(finding: Finding) -> tuple[Fix, ...]:
        required = finding.rule.id.rpartition(":")[2]
        if finding.rule.fixes or finding.rule.group != "requires-dist" or required in matrix.moves_with:
            return finding.rule.fixes
        known = inventory.known(package_key(required)) is not None
        return requirement_fixes(finding, inventory, requirements()) if known else ()

    for finding in judgement.findings:
        fixes: tuple[Fix, ...] = ()
        if finding.verdict is Verdict.BROKEN and not finding.rule.fixes:
            same = [each for each in judgement.repeated if keys_of(each) == keys_of(finding)]
            fixes = tuple(fix for each in (finding, *same) for fix in fixes_of(each))
        yield finding._replace(rule=finding.rule._replace(fixes=fixes)) if fixes else finding


def _smallest_fix_first(finding: Finding, inventory: Inventory) -> Finding:
    """Sort the fixes as `--fix` compares changes, so that both recommend the same one."""
    from envcheck.resolution.remediation.moves import move_size  # few findings have several fixes

    def size(fix: Fix) -> tuple[bool, int, int, bool]:
        moves = [move_size(key, inventory.known(key), value, fix.cost) for key, value in fix.tried]
        administrator = any(key.startswith("driver.") for key, _ in fix.tried)
        packages = sum(key.startswith("pkg.") for key, _ in fix.tried)
        count = packages + (packages < len(moves))  # the settings of one fix count as one
        return administrator, count, sum(move.size for move in moves), any(m.downwards for m in moves)

    fixes = sorted(finding.fixes, key=size)
    if finding.rule.group in ("atlas", "requires-dist"):
        # They state the nearest release on each side; if a package has a nearby one, nobody goes far back.
        nearest: dict[tuple[str, ...], Fix] = {}
        for fix in fixes:
            nearest.setdefault(tuple(key for key, _ in fix.set), fix)
        fixes = list(nearest.values())
    return finding._replace(fixes=tuple(fixes))


def plan_change(
    read: Inventory, matrix: Matrix, target: Target | None, level: Severity, *, strict: bool = False
) -> Plan:
    """Search the smallest change after which nothing of this severity or worse is broken.

    With `strict`, the packages' requirements on one another have to be met as well.
    """
    from envcheck.resolution.remediation.plan import plan_remediation
    from envcheck.resolution.remediation.problem import RemediationProblem
    from envcheck.resolution.remediation.releases import Releases

    rows = _release_rows(read, matrix)
    python = read.known("python.version")
    releases = Releases(matrix, rows, None if python is None else str(python))
    known = with_atlas_rules(matrix, read)
    problem = RemediationProblem(read=read, known=known, target=target, level=level, strict=strict)
    return plan_remediation(problem, releases)


def _release_rows(read: Inventory, matrix: Matrix) -> list[Mapping[str, Any]]:
    """Return the releases in the tables, and the atlas's releases for other installed packages."""
    rows: list[Mapping[str, Any]] = [*(matrix.tables.get("release") or published_releases())]
    listed = {row["package"] for row in rows}.union(matrix.moves_with)
    from envcheck.commands.atlas_tables import release_rows

    return [*rows, *release_rows(sorted(installed_versions(read).keys() - listed))]


def needs_plan(findings: Sequence[Finding]) -> bool:
    """Return whether `--fix` may advise another change than the first fix of a finding.

    It cannot if there is one error, with one fix that changes one thing, which no unmet requirement concerns.
    """
    errors = [each for each in findings if each.decided and each.rule.severity is Severity.ERROR]
    fixes = [fix for each in errors for fix in each.fixes]
    unmet = (each.rule.id.rpartition(":")[2] for each in findings if each.rule.group == "requires-dist")
    required = {package_key(package) for package in unmet}
    if any(fix.conflict or not required.isdisjoint(key for key, _ in fix.set) for fix in fixes):
        return True
    if len(errors) > 1:
        return any(each.rule.fixes or each.rule.group == "target" for each in errors)
    return any(
        len(each.fixes) > 1 or any(len(fix.set) > 1 for fix in each.fixes)
        if each.fixes
        else each.rule.fixes or each.rule.group == "target"
        for each in errors
    )
