"""A warning that names an error rule in `repeats` is left out where that rule is broken."""

from __future__ import annotations

from envcheck.commands.judging import judge_inventory
from envcheck.commands.loading import knowledge
from envcheck.core.findings import Verdict
from envcheck.rules import judge
from envcheck.rules.atlas import without_repetitions
from tests.support.worlds import inventory
from tests.unit.rules.test_derive import shipped

QWEN3 = """
pkg = { transformers = "4.50.0" }
train = { trainer = "transformers", model_type = "qwen3", trust_remote_code = TRUST }
"""


def broken(trust: str) -> set[str]:
    facts = inventory(QWEN3.replace("TRUST", trust), shipped())
    judgement = without_repetitions(judge.judge(facts, shipped().rules))
    return {each.rule.id for each in judgement.findings if each.verdict is Verdict.BROKEN}


def test_a_warning_is_left_out_beside_the_error_that_it_repeats() -> None:
    assert "model-type-newer-than-transformers" in broken("false")
    assert "model-type-without-own-code" not in broken("false")


def test_the_warning_stays_where_the_error_is_not_broken() -> None:
    assert "model-type-newer-than-transformers" not in broken("true")
    assert "model-type-without-own-code" in broken("true")


def test_a_rule_that_names_the_host_is_left_out_beside_the_atlas_too() -> None:
    versions = '[pkg]\nvllm = "0.8.5"\ntorch = "2.7.0"\n[host]\narch = "x86_64"\n'
    judgement = judge_inventory(inventory(versions, knowledge()), knowledge(), None)

    assert "atlas:vllm:torch" in {each.rule.id for each in judgement.findings}
    assert "vllm-torch-pin" in {each.rule.id for each in judgement.repeated}
