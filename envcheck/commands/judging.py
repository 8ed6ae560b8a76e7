"""Judge an inventory by the rules of `compat/` and by those that its target, metadata and atlas generate.

`envcheck doctor` imports this module, so whatever only some commands need is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from envcheck.core import versions
from envcheck.core.facts import Inventory, installed_versions, package_key, python_release
from envcheck.core.findings import Finding, Judgement, Verdict, worst_first
from envcheck.core.rules import Matrix, Rule, Target
from envcheck.knowledge.generated_rules import metadata_rules, requirement_rules, selftest_rules, target_rules
from envcheck.rules import judge
from envcheck.rules.atlas import broken_rows, compiled_for, judged_versions, without_repetitions
from envcheck.rules.requirements import RequirementCheck, check_requirements


def judge_inventory(
    inventory: Inventory,
    matrix: Matrix,
    target: Target | None,
    requirements: RequirementCheck | None = None,
) -> Judgement:
    """Judge an inventory by the rules of `compat/` and those generated from target, metadata and atlas."""
    requirements = requirements or check_requirements(inventory)
    rules = [
        *matrix.rules,
        *atlas_rules(inventory, matrix),
        *target_rules(target),
        *requirement_rules(requirements.unmet),
        *metadata_rules(requirements.unreadable),
        *selftest_rules(inventory.facts),
    ]
    judgement = without_repetitions(judge.judge(inventory, rules))
    judgement = _with_runs_beside_metadata(judgement, inventory, matrix)
    met = requirements.met
    return judgement._replace(passed=judgement.passed + met, applied=judgement.applied + met)


def with_requirements(read: Inventory) -> Inventory:
    """Return the inventory with published requirements if it is a list of versions, not an environment."""
    if any(key.endswith(".requires") for key in read.facts):
        return read
    from envcheck.commands.published_requirements import with_published_requirements

    return with_published_requirements(read)


def _with_runs_beside_metadata(judgement: Judgement, inventory: Inventory, matrix: Matrix) -> Judgement:
    """Add a note to each violated requirement whose two releases were nevertheless measured training."""
    findings = tuple(
        finding._replace(note=note)
        if finding.rule.group == "requires-dist" and (note := _run_beside(finding.rule.id, inventory, matrix))
        else finding
        for finding in judgement.findings
    )
    return judgement._replace(findings=findings)


def _run_beside(rule_id: str, inventory: Inventory, matrix: Matrix) -> str:
    _, *names = rule_id.split(":")
    installed = {name: inventory.known(package_key(name)) for name in names}
    if None in installed.values():
        return ""
    for cell in matrix.cells:
        if cell.outcome == "ok" and all(
            versions.base_release(str(version)) == versions.base_release(cell.pkg.get(name, ""))
            for name, version in installed.items()
        ):
            return f"these two trained together nevertheless: {cell.target}, {cell.device}, {cell.date}"
    return ""


def atlas_rules(inventory: Inventory, matrix: Matrix, *, worded: bool = True) -> Sequence[Rule]:
    """Return a rule for each pair of incompatible packages here; with texts and fixes if `worded`."""
    installed = {**installed_versions(inventory), **python_release(inventory)}
    if len(installed) < 2:  # noqa: PLR2004 - no two packages, nothing to compare
        return ()
    atlas = matrix.atlas()
    if not any(broken_rows(atlas, judged_versions(atlas, installed))):
        return ()
    from envcheck.knowledge import atlas_rules  # most environments fit

    fitting = partial(compiled_for, inventory, matrix)
    if worded:
        return tuple(atlas_rules.rules_here(atlas, installed, fitting, matrix.tables.withdrawn))
    return tuple(atlas_rules.unworded_rules_here(atlas, installed, fitting))


def with_atlas_rules(matrix: Matrix, inventory: Inventory) -> Matrix:
    """Return the matrix with the atlas's rules on all releases of the installed packages."""
    from envcheck.knowledge import atlas_rules

    present = {**installed_versions(inventory), **python_release(inventory)}
    generated = atlas_rules.rules_of(matrix.atlas(), present)
    return matrix._replace(rules=(*matrix.rules, *generated))


def add_findings(judgement: Judgement, generated: Sequence[Finding]) -> Judgement:
    """Return the judgement with generated findings (lock drift, file hashes, missing GPUs) added."""
    broken = sum(finding.verdict is Verdict.BROKEN for finding in generated)
    return judgement._replace(
        findings=worst_first([*judgement.findings, *generated]), applied=judgement.applied + broken
    )
