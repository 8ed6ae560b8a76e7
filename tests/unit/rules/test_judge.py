"""The judge: what is broken, what holds, what is undecided, what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envcheck.core.facts import Absent, Fact, Inventory, Kind, Known, Reading, Unknown, Value
from envcheck.core.findings import Finding, Judgement, Verdict
from envcheck.core.rules import Rule, Severity
from envcheck.rules import derive, judge
from envcheck.rules.changes import apply_changes
from envcheck.rules.fixes import with_passing_fixes
from tests.support.worlds import inventory, known, rule

BAD = """
complete = ["pkg"]
pkg = { torch = "2.6.0", deepspeed = "0.16.4" }
train = { zero_stage = 3, gradient_checkpointing = true, use_reentrant = false, frozen_params = true }
"""
ZERO3 = rule(
    '{ "train.zero_stage" = 3, "train.frozen_params" = true, "train.use_reentrant" = false, '
    '"pkg.torch" = ">=2.5", "pkg.deepspeed" = "<0.19.3" }',
    more="""[[rule.fix]]
set = { "pkg.deepspeed" = ">=0.19.3" }
[[rule.fix]]
set = { "train.use_reentrant" = true }
""",
)


def judged(rules: str, facts: str) -> Judgement:
    matrix = known(rules)
    return judge.judge(inventory(facts, matrix), matrix.rules)


def verdict(rules: str, facts: str) -> str:
    """The verdict of the only rule: broken, undecided, waiting or held."""
    result = judged(rules, facts)
    if result.findings:
        return result.findings[0].verdict.value
    return "waiting" if result.waiting else "held"


# --- the combination --------------------------------------------------------------------------------


def test_a_combination_that_is_there_is_broken() -> None:
    assert verdict(ZERO3, BAD) == "broken"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('torch = "2.6.0"', 'torch = "2.4.1"'),
        ('deepspeed = "0.16.4"', 'deepspeed = "0.19.3"'),
        ("zero_stage = 3", "zero_stage = 2"),
        ("use_reentrant = false", "use_reentrant = true"),
        ("frozen_params = true", "frozen_params = false"),
    ],
)
def test_breaking_any_one_clause_is_a_way_out(before: str, after: str) -> None:
    assert before in BAD
    assert verdict(ZERO3, BAD.replace(before, after)) == "held"


def test_a_finding_says_which_facts_made_it_and_where_they_came_from() -> None:
    (finding,) = judged(ZERO3, BAD).findings
    assert {each.fact.key: each.fact.value for each in finding.evidence} == {
        "train.zero_stage": 3, "train.frozen_params": True, "train.use_reentrant": False,
        "pkg.torch": "2.6.0", "pkg.deepspeed": "0.16.4",
    }  # fmt: skip
    assert all(each.fact.source == "facts.toml" for each in finding.evidence)


# --- absent, unknown, not given ---------------------------------------------------------------------


def test_a_package_that_is_not_there_satisfies_no_bound() -> None:
    without = BAD.replace(', deepspeed = "0.16.4"', "")
    assert verdict(ZERO3, without) == "held"
    assert verdict(rule('{ "pkg.deepspeed" = "absent" }'), without) == "broken"
    assert verdict(rule('{ "pkg.deepspeed" = "present" }'), without) == "held"


def test_a_fact_that_could_not_be_read_leaves_the_rule_undecided() -> None:
    unread = BAD.replace(', deepspeed = "0.16.4"', "") + '[unknown]\n"pkg.deepspeed" = "METADATA is gone"\n'
    assert verdict(ZERO3, unread) == "undecided"


def test_what_nobody_gave_is_waited_for_and_said() -> None:
    result = judged(ZERO3, 'complete = ["pkg"]\npkg = { torch = "2.6.0", deepspeed = "0.16.4" }')
    assert not result.findings
    (waiting,) = result.waiting
    assert waiting.reason == "training"
    assert {clause.key for clause in waiting.open} == {
        "train.zero_stage", "train.frozen_params", "train.use_reentrant",
    }  # fmt: skip


def test_a_clause_that_fails_decides_whatever_is_unknown() -> None:
    assert verdict(ZERO3, 'complete = ["pkg"]\npkg = { torch = "2.4.0", deepspeed = "0.16.4" }') == "held"


def test_a_release_candidate_of_the_bound_is_undecided() -> None:
    assert verdict(ZERO3, BAD.replace("2.6.0", "2.5.0rc1")) == "undecided"


def test_a_vendor_build_is_judged_by_its_base_release_and_softened_to_a_warning() -> None:
    (finding,) = judged(ZERO3, BAD.replace("2.6.0", "2.6.0a0+df5bbc09d1.nv24.12")).findings
    assert finding.verdict is Verdict.BROKEN
    assert finding.severity is Severity.WARNING
    assert any("vendor build" in each.note for each in finding.evidence)


# --- clauses ----------------------------------------------------------------------------------------


def test_a_list_means_any_of_its_values() -> None:
    either = rule('{ "train.offload_optimizer" = ["cpu", "nvme"] }')
    assert verdict(either, 'train = { offload_optimizer = "nvme" }') == "broken"
    assert verdict(either, 'train = { offload_optimizer = "none" }') == "held"


def test_several_tables_mean_any_of_them() -> None:
    either = rule('[{ "pkg.torch" = "<2" }, { "pkg.torch" = ">=3" }]')
    assert [verdict(either, f'pkg = {{ torch = "{v}" }}') for v in ("1.13", "2.5", "3.0")] == [
        "broken", "held", "broken",
    ]  # fmt: skip


def test_a_requirement_binds_only_what_is_installed() -> None:
    needs = rule('{ "pkg.peft" = "present" }', more='require = { "pkg.torch" = ">=2" }')
    installed = 'complete = ["pkg"]\n[pkg]\npeft = "0.14.0"\n'
    assert verdict(needs, installed + 'torch = "1.13.1"') == "broken"
    assert verdict(needs, installed + 'torch = "2.1.0"') == "held"
    assert verdict(needs, installed) == "held"
    assert verdict(needs, 'complete = ["pkg"]\npkg = { torch = "1.13.1" }') == "held"


def test_two_facts_are_compared() -> None:
    older = rule('{ "driver.version" = "<{cuda.minimum_driver}" }')
    facts = 'driver = {{ version = "{}" }}\ncuda = {{ minimum_driver = "525.60.13" }}'
    assert verdict(older, facts.format("470.223.02")) == "broken"
    assert verdict(older, facts.format("535.104.05")) == "held"


def test_a_word_in_a_list_of_words() -> None:
    built = rule('{ "build.torch.architectures" = "sm_90" }')
    assert verdict(built, 'build = { torch = { architectures = ["sm_80", "sm_90"] } }') == "broken"
    assert verdict(built, 'build = { torch = { architectures = ["sm_80"] } }') == "held"


# --- devices ----------------------------------------------------------------------------------------

OLD_GPU = rule('{ "gpu.compute_capability" = "<8.0", "train.precision" = "bf16" }')
TWO = 'train = { precision = "bf16" }\n[[gpu]]\ncompute_capability = "8.0"\n[[gpu]]\ncompute_capability = "7.0"\n'


def test_all_devices_failing_is_an_error() -> None:
    (finding,) = judged(OLD_GPU, TWO.replace('"8.0"', '"7.5"')).findings
    assert finding.severity is Severity.ERROR
    assert finding.devices == ()


def test_some_devices_failing_is_a_warning_that_names_them_and_how_to_leave_them_out() -> None:
    (finding,) = judged(OLD_GPU, TWO).findings
    assert (finding.severity, finding.devices) == (Severity.WARNING, (1,))
    assert "CUDA_VISIBLE_DEVICES=0 " in finding.note


def test_a_hidden_device_is_not_judged() -> None:
    assert verdict(OLD_GPU, TWO + "visible = false\n") == "held"


def test_rules_about_hardware_wait_where_there_is_none() -> None:
    none = 'complete = ["gpu", "gpus", "driver"]\ngpus = { count = 0 }\ntrain = { precision = "bf16" }'
    result = judged(OLD_GPU, none)
    assert [each.reason for each in result.waiting] == ["GPU"]
    assert judged(OLD_GPU, none.replace("bf16", "fp32")).passed == 1


# --- three-valued logic -----------------------------------------------------------------------------

KEYS: dict[str, Kind] = {
    "pkg.a": Kind.VERSION, "pkg.b": Kind.VERSION, "train.zero_stage": Kind.NUMBER,
    "train.offload_optimizer": Kind.WORD, "train.dora": Kind.FLAG, "driver.version": Kind.VERSION,
}  # fmt: skip
VALUES: dict[Kind, list[Value]] = {
    Kind.VERSION: ["1.0", "1.5", "2.0", "2.0rc1", "2.0a0+git1", "3.0+cu121"],
    Kind.NUMBER: [0, 2, 3],
    Kind.WORD: ["none", "cpu", "nvme"],
    Kind.FLAG: [True, False],
}
CLAUSES = {
    Kind.VERSION: ['">=2.0"', '"<2.0"', '"==1.5"', '"!=1.5"', '"present"', '"absent"', '["<1.2", ">=2.5"]', '">={pkg.b}"'],
    Kind.NUMBER: ["3", '">=2"', '"<2"', '"absent"'],
    Kind.WORD: ['"cpu"', '"!=cpu"', '["cpu", "nvme"]', '"present"'],
    Kind.FLAG: ["true", "false", '"absent"'],
}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=4, unique=True))
    return ", ".join(f'"{key}" = {draw(st.sampled_from(CLAUSES[KEYS[key]]))}' for key in keys)


@st.composite
def rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    when = ", ".join(f"{{ {draw(tables())} }}" for _ in range(draw(st.integers(1, 2))))
    require = f"require = {{ {draw(tables())} }}" if draw(st.booleans()) else ""
    return known(rule(f"[{when}]", more=require)).rules


@st.composite
def readings(draw: st.DrawFn, key: str) -> Reading:
    value = draw(st.sampled_from(VALUES[KEYS[key]]))
    options: list[Reading] = [Known(value), Absent(), Unknown("broken"), Unknown("not given", asked=False)]
    return draw(st.sampled_from(options))


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    return Inventory({key: Fact(key, draw(readings(key))) for key in KEYS})


def decided(judgement: Judgement) -> str | None:
    if judgement.waiting or any(each.verdict is Verdict.UNDECIDED for each in judgement.findings):
        return None
    return "broken" if judgement.findings else "held"


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(rules(), inventories(), st.data())
def test_replacing_an_unknown_never_changes_a_decided_verdict(
    held: tuple[Rule, ...], before: Inventory, data: st.DataObject
) -> None:
    verdict_before = decided(judge.judge(before, held))
    unknown = [key for key, fact in before.facts.items() if isinstance(fact.reading, Unknown)]
    learnt = [Fact(key, data.draw(readings(key))) for key in unknown]
    if verdict_before is not None:
        assert decided(judge.judge(before.with_facts(learnt), held)) == verdict_before


# --- ways out ---------------------------------------------------------------------------------------


def advised(rules_text: str, facts: str) -> Finding:
    matrix = known(rules_text)
    read = inventory(facts)
    settled = derive.derive(read, matrix)
    judgement = judge.judge(settled, matrix.rules)

    def attempt(changes: Sequence[tuple[str, Value]]) -> Judgement:
        return judge.judge(derive.derive(apply_changes(read, changes, matrix), matrix), matrix.rules)

    finding = next(each for each in judgement.findings if each.rule.id == "a-rule")
    return with_passing_fixes(finding, judgement, settled, attempt)


def test_ways_out_come_in_the_rules_order() -> None:
    assert [fix.set[0][0] for fix in advised(ZERO3, BAD).fixes] == ["pkg.deepspeed", "train.use_reentrant"]


def test_a_way_out_into_another_failure_is_not_advised() -> None:
    trap = rule('{ "pkg.deepspeed" = ">=0.19", "pkg.torch" = "<2.7" }', rule_id="trap")
    assert [fix.set[0][0] for fix in advised(ZERO3 + trap, BAD).fixes] == ["train.use_reentrant"]


def test_a_way_out_is_not_blamed_for_what_was_broken_before() -> None:
    other = rule('{ "pkg.torch" = ">=2.0" }', rule_id="other")
    assert len(advised(ZERO3 + other, BAD).fixes) == 2


def test_a_replaced_package_forgets_what_was_read_of_the_old_one() -> None:
    matrix = known("", head='[moves_with]\ntorch = ["torchvision"]')
    read = inventory(
        'pkg = { torch = "2.6.0+cu124", torchvision = "0.21.0" }\nbuild = { torch = { cuda = "12.4" } }'
    )
    after = apply_changes(read, [("pkg.torch", "2.10.0")], matrix)
    assert after.known("pkg.torch") == "2.10.0"
    assert after.known("build.torch.cuda") is None
    assert after.known("pkg.torchvision") is None
    assert replace(read) == read
