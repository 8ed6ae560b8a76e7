"""The tables that judging does not read agree, row by row, with the rules written from them."""

from __future__ import annotations

from typing import Any

import pytest

from envcheck.commands import judging
from envcheck.core import versions
from envcheck.core.findings import Verdict
from envcheck.core.rules import Severity
from envcheck.knowledge.compiled import LARGE_TABLES, LOG_TABLES
from envcheck.rules import derive, judge
from tests.support.worlds import inventory
from tests.unit.knowledge.test_cases import known as shipped


def rows(table: str) -> list[dict[str, Any]]:
    return shipped().tables[table]


def broken(facts: str) -> dict[str, Severity]:
    settled = derive.derive(inventory(facts), shipped())
    findings = judging.judge_inventory(settled, shipped(), None).findings
    return {each.rule.id: each.rule.severity for each in findings if each.verdict is Verdict.BROKEN}


def breaks(rule_id: str, facts: str) -> bool:
    """Return whether the facts break one rule; to judge all of them for each pair would take half a minute."""
    rule = shipped().rule(rule_id)
    assert rule is not None
    findings = judge.judge(derive.derive(inventory(facts), shipped()), [rule]).findings
    return any(each.verdict is Verdict.BROKEN for each in findings)


def test_tables_left_out_of_judging_keep_their_evidence() -> None:
    assert shipped().tables.keys() >= LARGE_TABLES
    for name in LARGE_TABLES - LOG_TABLES - {"release"}:
        assert all(row["basis"] and row["source"] for row in rows(name)), name


def test_model_types_are_listed_once_and_in_order() -> None:
    types = [row["model_type"] for row in rows("model")]
    assert len(types) == len(set(types))
    for row in rows("model"):
        for earlier, later in (("code", "transformers"), ("transformers", "gone")):
            if earlier in row and later in row:
                assert versions.order(row[earlier]) < versions.order(row[later]), row


@pytest.mark.parametrize(
    "cuda", ["11.8", "12.1", "12.3", "12.4", "12.5", "12.6", "12.8", "12.9", "13.0", "13.1", "13.2", "13.4"]
)
def test_bitsandbytes_is_broken_if_its_wheel_has_no_library_for_the_cuda(cuda: str) -> None:
    for row in rows("bitsandbytes_cuda"):
        for version in row["versions"]:
            facts = f"""
pkg = {{ torch = "2.9.1", bitsandbytes = "{version}" }}
build = {{ torch = {{ cuda = "{cuda}" }} }}
train = {{ quantization = "nf4" }}
"""
            neighbour = versions.order(version) >= versions.order("0.50.0")
            fits = cuda in row["cuda"] or neighbour
            assert breaks("bitsandbytes-cuda-library-missing", facts) is not fits, (version, cuda)


@pytest.mark.parametrize("row", rows("xformers_build"), ids=lambda row: str(row["version"]))
def test_xformers_passes_with_the_minor_torch_it_was_built_with_and_with_no_older_one(
    row: dict[str, Any],
) -> None:
    built_with = str(row["torch"]).split(".")[:2]
    for torch in (str(each["version"]) for each in rows("torch")):
        facts = f'complete = ["pkg"]\nhost = {{ arch = "x86_64" }}\npkg = {{ torch = "{torch}", xformers = "{row["version"]}" }}'
        warned = breaks("xformers-torch-pair", facts)
        if torch.split(".")[:2] == built_with:
            assert not warned, torch
        elif versions.order(torch) < versions.order(row["torch"]):
            assert warned, torch


@pytest.mark.parametrize("row", rows("import_run"), ids=lambda row: str(row["transformers"]))
def test_pairs_that_ran_are_not_broken_and_pairs_that_failed_are(row: dict[str, Any]) -> None:
    def facts(peft: str, trainer: str = "") -> str:
        pkg = f'torch = "2.13.0+cpu", accelerate = "1.15.0", transformers = "{row["transformers"]}", peft = "{peft}"'
        return f'pkg = {{ {pkg} }}\ntrain = {{ adapter = "lora"{trainer} }}'

    for peft in row["peft_ok"]:
        errors = [
            rule
            for rule, severity in broken(facts(peft, ', trainer = "custom"')).items()
            if severity is Severity.ERROR
        ]
        assert not errors, peft
    for peft in row.get("peft_fails", {}):
        assert broken(facts(peft)), peft
