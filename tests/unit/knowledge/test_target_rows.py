"""Rows of targets: what `extends` brings, and what is said of a mistake."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from envcheck import probes
from envcheck.commands import loading
from envcheck.core.facts import Absent, Fact, Inventory, Known
from envcheck.core.findings import Verdict
from envcheck.core.rules import Target
from envcheck.knowledge.compiled import freeze_matrix, thaw_matrix
from envcheck.knowledge.generated_rules import target_rules
from envcheck.knowledge.load import read_matrix
from envcheck.knowledge.rule_pages import target_page
from envcheck.rules import judge
from tests.support.paths import ROOT

BASE: dict[str, Any] = {
    "title": "the base",
    "group": "a group",
    "note": "only of the base",
    "packages": ["torch", "trl", "deepspeed"],
    "build": ["deepspeed"],
    "train": {"zero_stage": 3, "adapter": "lora"},
    "free": ["use_reentrant"],
}


def read(**rows: dict[str, Any]) -> tuple[dict[str, Target], list[str]]:
    tree = {**loading.source_tree(), "matrix": {"target": rows}, "rule": [], "digest": ""}
    matrix, problems = read_matrix(tree, loading.vocabulary(probes.every_probe()))
    return dict(matrix.targets), [each for each in problems if "target" in each]


def test_what_a_row_does_not_give_comes_from_the_row_it_extends() -> None:
    targets, problems = read(
        base=BASE, full={"extends": "base", "title": "full", "train": {"adapter": "none"}}
    )
    assert problems == []
    full = targets["full"]
    assert (full.title, full.group, full.extends) == ("full", "a group", "base")
    assert (full.packages, full.build) == (("torch", "trl", "deepspeed"), ("deepspeed",))
    assert full.train == {"train.zero_stage": 3, "train.adapter": "none"}
    assert full.note == ""


def test_extending_goes_through_several_rows() -> None:
    targets, _ = read(
        base=BASE,
        middle={"extends": "base", "title": "middle", "packages": ["torch"]},
        last={"extends": "middle", "title": "last", "train": {"offload_optimizer": "cpu"}},
    )
    assert targets["last"].packages == ("torch",)
    assert targets["last"].train["train.offload_optimizer"] == "cpu"
    assert targets["last"].train["train.zero_stage"] == 3


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"extends": "nothing"}, "extends: expected the name of a target; found 'nothing'"),
        ({"extends": 3}, "extends: expected the name of a target; found 3"),
        ({"extends": "wrong"}, "extends: targets extend each other: wrong, wrong"),
        ({"extends": "base", "packages": "torch"}, "packages: expected a list of names; found 'torch'"),
        ({"extends": "base", "packages": [1]}, "packages: expected a list of names; found [1]"),
        ({"extends": "base", "for": ["x"]}, "for: expected a text; found ['x']"),
        ({"extends": "base", "train": "zero3"}, "train: expected a table; found 'zero3'"),
        ({"extends": "base", "conflicts": ["vllm"]}, "conflicts: expected a table; found ['vllm']"),
        ({"extends": "base", "bounds": {"torch": 2}}, "bounds: expected a text for each package"),
        ({"extends": "base", "conflicts": {"vllm": 1}}, "conflicts: expected a text for each package"),
        ({"extends": "base", "extras": ["vllm[cpu]"]}, "expected one of packages with an extra"),
        ({"extends": "base", "extras": ["trl"]}, "expected one of packages with an extra"),
        ({"extends": "base", "server": "bsae"}, "server: no such target; did you mean 'base'?"),
        ({"extends": "base", "train": {"zero_stge": 3}}, "zero_stge"),
    ],
)
def test_a_mistake_is_said_with_the_target_and_the_key(row: dict[str, Any], said: str) -> None:
    targets, problems = read(base=BASE, wrong={"title": "wrong", **row})
    assert len(problems) == 1
    assert "target 'wrong'" in problems[0]
    assert said in problems[0]
    assert "base" in targets


@pytest.mark.parametrize("name", ["a: [b", "../a", "", "a\nb", "-x"])
def test_a_name_that_would_break_a_file_is_refused(name: str) -> None:
    targets, problems = read(base=BASE, **{name: {"extends": "base"}})
    assert list(targets) == ["base"]
    assert "expected a name of letters, digits" in problems[0]


def test_a_package_that_conflicts_is_an_error_where_it_is_installed() -> None:
    target = Target("t", "t", ("torch",), {}, conflicts={"flash-attn": "it has no wheel"})
    (rule,) = [rule for rule in target_rules(target) if rule.id == "target:t:without-flash-attn"]
    there = Inventory({"pkg.flash-attn": Fact("pkg.flash-attn", Known("2.8.3"))})
    gone = Inventory({"pkg.flash-attn": Fact("pkg.flash-attn", Absent())})
    (finding,) = judge.judge(there, [rule]).findings
    assert finding.verdict is Verdict.BROKEN
    assert rule.title == "t does not go with flash-attn: it has no wheel"
    assert judge.judge(gone, [rule]).findings == ()


def test_the_compiled_matrix_keeps_every_field_of_a_target() -> None:
    known = loading.knowledge()
    rich = known.targets["zero3-lora"]._replace(
        extras=("trl[vllm]",),
        conflicts={"a": "b"},
        server="qlora",
        purpose="x",
        note="y",
        extends="z",
        bounds={"a": "<2"},
        lacks={"3.13": "c"},
    )
    known = known._replace(targets={**known.targets, "zero3-lora": rich})
    thawed = thaw_matrix(json.loads(json.dumps(freeze_matrix(known))))
    assert thawed.targets == known.targets


def test_a_target_says_for_which_python_and_machine_it_has_no_lock() -> None:
    target = Target("t", "t", ("torch",), {}, lacks={"3.13": "a has no wheel", "aarch64": "b has none"})
    assert target.why_none("3.13", "x86_64") == "a has no wheel"
    assert target.why_none("3.12", "aarch64") == "b has none"
    assert target.why_none("3.12", "x86_64") == ""
    known = loading.knowledge()
    page = target_page("t", known._replace(targets={**known.targets, "t": target}))
    assert "no lock  Python 3.13 (a has no wheel)\n         aarch64 (b has none)\n" in page
    rows = tomllib.loads((ROOT / "lockfiles/manifest.toml").read_text())["lock"]
    shipped = {(row["target"], row["python"]) for row in rows}
    shipped |= {(row["target"], row["platform"].partition("-")[2]) for row in rows}
    assert not {(each.name, place) for each in known.targets.values() for place in each.lacks} & shipped


def test_every_target_says_what_it_is_for_and_has_a_group() -> None:
    for target in loading.knowledge().targets.values():
        assert target.group, target.name
        assert target.purpose, target.name
        assert len(target.purpose) < 110, target.name
