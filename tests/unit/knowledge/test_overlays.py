"""A user's overlays: added to the shipped knowledge, named in the report, refused with file and key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envcheck.core.errors import InputError
from envcheck.core.findings import Verdict
from envcheck.core.rules import Matrix
from envcheck.knowledge.load import gather_tree
from envcheck.knowledge.overlay import build_with_overlays
from envcheck.rules import derive, judge
from tests.support.worlds import inventory, rule, vocabulary

HOUSE = rule('{ "pkg.peft" = ">=0.15.0" }', "house-peft-frozen")

TARGET = """
[target.house]
title = "what we train"
packages = ["torch", "peft"]
train = { zero_stage = 3 }
"""

CELL = """
[[cell]]
target = "house"
outcome = "ok"
pkg = { torch = "2.6.0", peft = "0.14.0" }
device = "H100"
date = 2026-11-20
test = "ours"
"""

FACTS = """
complete = ["pkg"]
pkg = { torch = "2.6.0", peft = "0.15.0" }
"""


def shipped(rules: str = "", tables: str = "", head: str = "") -> dict[str, Any]:
    return gather_tree({"rules/test.toml": rules, "tables/test.toml": tables, "matrix.toml": head})


def with_overlays(base: dict[str, Any], *overlays: str) -> Matrix:
    named = [(f"house{number}.toml", "--matrix", text) for number, text in enumerate(overlays)]
    return build_with_overlays(base, named, vocabulary())


def broken(known: Matrix, facts: str = FACTS) -> set[str]:
    judgement = judge.judge(inventory(facts, known), known.rules)
    return {each.rule.id for each in judgement.findings if each.verdict is Verdict.BROKEN}


def test_an_overlay_adds_a_rule() -> None:
    known = with_overlays(shipped(rule('{ "pkg.peft" = "<0.15.0" }')), HOUSE)
    assert broken(known) == {"house-peft-frozen"}
    assert [each.id for each in known.rules] == ["a-rule", "house-peft-frozen"]


def test_an_overlay_replaces_a_rule_with_the_same_id() -> None:
    known = with_overlays(shipped(rule('{ "pkg.peft" = "<0.15.0" }')), rule('{ "pkg.peft" = ">=0.15.0" }'))
    assert broken(known) == {"a-rule"}
    assert len(known.rules) == 1


def test_an_overlay_removes_a_rule_by_withdrawing_it() -> None:
    gone = 'withdrawn = 2026-11-20\nreason = "not here"'
    known = with_overlays(
        shipped(rule('{ "pkg.peft" = "present" }')), rule('{ "pkg.peft" = "present" }', more=gone)
    )
    assert known.rules == ()


def test_a_later_overlay_wins_over_an_earlier_one() -> None:
    known = with_overlays(shipped(), HOUSE, HOUSE.replace(">=0.15.0", ">=0.16.0"))
    assert broken(known) == set()
    assert [origin.name for origin in known.origins] == ["house0.toml", "house1.toml"]


def test_an_overlay_adds_targets_cells_and_machines() -> None:
    machine = '[machine.cluster]\ndriver = "550.54.15"\n'
    known = with_overlays(shipped(), TARGET + CELL + machine)
    assert known.targets["house"].train == {"train.zero_stage": 3}
    assert known.cells[0].device == "H100"
    assert known.machines["cluster"]["driver"] == "550.54.15"
    assert known.origins[0].brings == "1 target, 1 cell, 1 machine"


def test_a_cell_of_the_same_run_is_replaced_and_another_is_added() -> None:
    base = shipped(head=TARGET + CELL)
    assert [each.outcome for each in with_overlays(base, CELL.replace('"ok"', '"fails"')).cells] == ["fails"]
    assert len(with_overlays(base, CELL.replace("0.14.0", "0.14.1")).cells) == 2


def test_a_default_of_an_overlay_comes_before_the_shipped_ones() -> None:
    row = '[[default]]\nkey = "train.dora"\nvalue = {}\nwhen = {{ "train.adapter" = "lora" }}\nsource = "x"\n'
    known = with_overlays(shipped(tables=row.format("false")), row.format("true"))
    settled = derive.derive(inventory('train = { adapter = "lora" }'), known)
    assert settled.known("train.dora") is True


def test_the_origin_lists_what_was_added_and_replaced() -> None:
    base = shipped(rule('{ "pkg.peft" = "<0.15.0" }'), head=TARGET)
    known = with_overlays(base, rule('{ "pkg.peft" = "<0.14.0" }') + HOUSE + TARGET)
    assert known.origins[0].brings == "2 rules, 1 target; in place of rule a-rule, target house"


def test_the_digest_covers_every_overlay_and_their_order() -> None:
    base = shipped(rule('{ "pkg.peft" = "<0.15.0" }'))
    other = HOUSE.replace("house-peft-frozen", "house-other")
    digests = [
        with_overlays(base).digest,
        with_overlays(base, HOUSE).digest,
        with_overlays(base, HOUSE, other).digest,
    ]
    assert len({*digests, with_overlays(base, other, HOUSE).digest}) == 4
    assert with_overlays(base, HOUSE).digest == digests[1]


def test_an_overlay_does_not_change_the_shipped_tree() -> None:
    base = shipped(rule('{ "pkg.peft" = "<0.15.0" }'), head=TARGET + CELL)
    before = json.dumps(base, sort_keys=True)
    with_overlays(base, HOUSE + TARGET + CELL)
    assert json.dumps(base, sort_keys=True) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]\n", "house0.toml:1:7: not TOML"),
        ("rules = []\n", "house0.toml: rules: unknown key in an overlay; expected one of rule"),
        ("rule = 3\n", "house0.toml: rule: expected [[rule]] tables"),
        ("target = 3\n", "house0.toml: target: expected a table"),
        ("[target]\nhouse = 3\n", "house0.toml: target: expected [target.NAME] tables"),
        (
            HOUSE.replace("pkg.peft", "pgk.peft"),
            "house0.toml: rule 'house-peft-frozen': when: no such fact 'pgk.peft'",
        ),
        (HOUSE + HOUSE, "house0.toml: rule 'house-peft-frozen' is defined twice"),
        (CELL, "house0.toml: cell of 'house': needs a known target"),
        (
            TARGET.replace("zero_stage", "zero_stag"),
            "house0.toml: target 'house': no such fact 'train.zero_stag'",
        ),
        (
            '[[default]]\nkey = "train.dora"\n',
            "house0.toml: default 'train.dora': value and source are needed",
        ),
    ],
)
def test_a_bad_overlay_is_one_line_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        with_overlays(shipped(), text)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
    assert refused.value.code == 2


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(InputError, match=r"\(and 1 more\)"):
        with_overlays(shipped(), HOUSE.replace("pkg.peft", "pgk.peft").replace('"error"', '"fatal"'))


# --- on the command line ----------------------------------------------------------------------------
