"""Every case in compat/cases gets its expected verdict, and every error rule has both kinds of case."""

from __future__ import annotations

import json
import re
import tomllib
from functools import lru_cache
from typing import Any

import pytest

from envcheck.commands import judging, loading
from envcheck.core import facts_file
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.findings import Judgement, Verdict
from envcheck.core.rules import Matrix, Rule, Severity, uninstalls
from envcheck.knowledge.compiled import (
    freeze_matrix,
    freeze_vocabulary,
    slim,
    thaw_matrix,
    thaw_vocabulary,
)
from envcheck.knowledge.load import build_matrix
from envcheck.rules import derive, judge
from envcheck.rules.changes import apply_changes
from envcheck.rules.fixes import bind_fix, trial_value, with_passing_fixes
from tests.support.worlds import vocabulary


@lru_cache(maxsize=1)
def tree() -> dict[str, Any]:
    return loading.source_tree()


@lru_cache(maxsize=1)
def known() -> Matrix:
    return build_matrix(tree(), vocabulary())


EVERY_CASE: list[dict[str, Any]] = tree()["case"]
CASES = [case for case in EVERY_CASE if case["expect"] != "signature"]


def facts_of(case: dict[str, Any]) -> Inventory:
    return facts_file.load(case["facts"], f"compat/{case['file']}: {case['id']}", vocabulary())


def judged(read: Inventory) -> Judgement:
    settled = derive.derive(read, known())
    return judging.judge_inventory(settled, known(), None)


def broken(judgement: Judgement, severity: Severity | None = None) -> set[str]:
    return {
        each.rule.id
        for each in judgement.findings
        if each.verdict is Verdict.BROKEN and severity in (None, each.rule.severity)
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_case(case: dict[str, Any]) -> None:
    judgement = judged(facts_of(case))
    rule_id, errors = case.get("rule", ""), broken(judgement, Severity.ERROR)
    if case["expect"] == "broken":
        assert rule_id in broken(judgement)
        assert errors <= {rule_id}
    elif case["expect"] == "undecided":
        undecided = {each.rule.id for each in judgement.findings if each.verdict is Verdict.UNDECIDED}
        assert rule_id in undecided
    else:
        assert case["expect"] == "fine"
        assert not errors
        assert rule_id not in broken(judgement)


@pytest.mark.parametrize(
    "case", [case for case in EVERY_CASE if case["expect"] == "signature"], ids=lambda case: str(case["id"])
)
def test_a_case_with_only_signatures_has_advice(case: dict[str, Any]) -> None:
    for key in ("signature", "explain", "title", "sources"):
        assert case[key], key
    assert "facts" not in case


def test_signatures_are_patterns() -> None:
    for case in EVERY_CASE:
        for signature in case.get("signature", []):
            assert not re.compile(signature).search(""), f"{case['id']} matches everything"


def test_case_ids_are_unique() -> None:
    ids = [case["id"] for case in EVERY_CASE]
    assert len(ids) == len(set(ids))


def test_cases_name_rules_that_exist() -> None:
    rules = {rule.id for rule in known().rules}
    assert {case["rule"] for case in CASES if case.get("rule")} <= rules


@pytest.mark.parametrize(
    "rule", [rule for rule in known().rules if rule.severity is Severity.ERROR], ids=lambda rule: rule.id
)
def test_an_error_rule_has_a_case_that_breaks_it_and_a_near_miss(rule: Rule) -> None:
    expected = {case["expect"] for case in CASES if case.get("rule") == rule.id}
    assert {"broken", "fine"} <= expected


ENTERED = {
    (
        "axolotl-fsdp2-8bit-optimizer",
        "transformers-lt452-torchao011-optimizer",
    ): "transformers before 4.52 takes the other torchao",
    (
        "axolotl-fsdp2-8bit-optimizer",
        "transformers54-torchao-optimizer-floor",
    ): "its torchao 0.9.0 is for transformers before 4.52",
    (
        "fsdp2-bitsandbytes-optimizer",
        "transformers54-torchao-optimizer-floor",
    ): "its torchao 0.9.0 is for transformers before 4.52",
    ("torch-build-lacks-gpu-code", "driver-below-cuda-family-floor"): "a newer torch needs a newer driver",
    (
        "fsdp-torch-floor",
        "trainer-seedable-sampler-accelerate-lt026",
    ): "transformers 4.38 asks for a newer one",
    ("layerwise-optimizer-distributed", "optimizer-package-missing"): "GaLore or APOLLO is not installed",
    ("layerwise-optimizer-accumulation", "optimizer-package-missing"): "GaLore or APOLLO is not installed",
    (
        "optimizer-name-too-new",
        "transformers-keep-torch-compile-accelerate",
    ): "the accelerate of that time is too old for it",
    ("transformers-tokenizers-window", "transformers-treats-torch-as-absent"): "the torch here is too old",
    ("trl-packing-without-flash-attention", "flash-attention-2-not-installed"): "its cost names the package",
    (
        "trl-grpo-liger-prompt-learning",
        "trl-dpo-virtual-tokens",
    ): "DPO trains them without Liger from TRL 1.15 on",
    ("zero3-frozen-nonreentrant-checkpoint", "transformers-treats-torch-as-absent"): "4.57 and older take it",
}
"""Errors that a rule's fix leads to in some of its cases; with_passing_fixes does not show the fix there."""


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["expect"] == "broken"], ids=lambda case: str(case["id"])
)
def test_every_fix_of_a_broken_case_helps_and_leads_to_no_other_error(case: dict[str, Any]) -> None:
    read = facts_of(case)
    settled = derive.derive(read, known())
    judgement = judged(read)
    before = broken(judgement, Severity.ERROR)
    finding = next(each for each in judgement.findings if each.rule.id == case["rule"])
    bound = [each for fix in finding.rule.fixes if (each := bind_fix(fix, settled, judge.device_of(finding)))]
    for fix in bound:
        changes = [(key, trial_value(value)) for key, value in fix.set]
        if all(uninstalls(key, value) and settled.known(key) is None for key, value in changes):
            continue  # it is for another package of the rule, and is not shown
        if all(value is False and settled.known(key) is False for key, value in changes):
            continue  # it switches off what is off, so it does not help, and is not shown
        after = judged(apply_changes(read, changes, known()))
        reported = {each.rule.id for each in after.findings}
        assert finding.rule.id not in reported, f"{fix.set} does not help, or leaves it undecided"
        entered = broken(after, Severity.ERROR) - before
        unexplained = {error for error in entered if (finding.rule.id, error) not in ENTERED}
        assert not unexplained, f"{fix.set} leads to {unexplained}"
    if finding.rule.fixes:
        assert with_passing_fixes(
            finding, judgement, settled, lambda changes: judged(apply_changes(read, changes, known()))
        ).fixes, "a user with this case gets no fix"


def test_measured_cells_agree_with_the_rules() -> None:
    """Check that a trained cell breaks no error rule, and that a failed one breaks the rule it names."""
    for cell in known().cells:
        target = known().targets[cell.target]
        lines = [
            'complete = ["pkg"]',
            "[pkg]",
            *(f'{name} = "{version}"' for name, version in cell.pkg.items()),
        ]
        read = facts_file.load(tomllib.loads("\n".join(lines)), "cell", vocabulary())
        train = {**target.train, **cell.train}
        facts = [Fact(key, Known(value), "cell") for key, value in train.items()]
        errors = broken(judged(read.with_facts(facts)), Severity.ERROR)
        if cell.outcome == "ok":
            assert not errors, f"{cell} trained"
        elif cell.outcome == "fails":
            assert cell.rule in errors, f"{cell} failed"


def test_the_compiled_matrix_equals_the_one_that_was_built() -> None:
    again = thaw_matrix(json.loads(json.dumps(freeze_matrix(known()))))
    assert again == slim(known())


def test_the_compiled_vocabulary_equals_the_one_that_was_built() -> None:
    thawed = thaw_vocabulary(json.loads(json.dumps(freeze_vocabulary(vocabulary()))))
    assert [*thawed.keys.items()] == [*vocabulary().keys.items()]
