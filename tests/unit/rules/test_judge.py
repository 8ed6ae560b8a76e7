"""The judge: rules that are broken, passed, undecided and waiting; fixes; three-valued logic."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st

from envcheck.core.facts import Kind, Value
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
    """Return the verdict on the only rule: broken, undecided, waiting, or held (passed)."""
    result = judged(rules, facts)
    if result.findings:
        return result.findings[0].verdict.value
    return "waiting" if result.waiting else "held"


# --- the combination --------------------------------------------------------------------------------


def test_a_rule_whose_combination_is_there_is_broken() -> None:
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
def test_a_rule_with_one_clause_not_matching_passes(before: str, after: str) -> None:
    assert before in BAD
    assert verdict(ZERO3, BAD.replace(before, after)) == "held"


def test_a_finding_has_its_evidence_with_sources() -> None:
    (finding,) = judged(ZERO3, BAD).findings
    assert {each.fact.key: each.fact.value for each in finding.evidence} == {
        "train.zero_stage": 3, "train.frozen_params": True, "train.use_reentrant": False,
        "pkg.torch": "2.6.0", "pkg.deepspeed": "0.16.4",
    }  # fmt: skip
    assert all(each.fact.source == "facts.toml" for each in finding.evidence)


# --- absent, unknown, not given ---------------------------------------------------------------------


def test_an_absent_package_satisfies_no_bound() -> None:
    without = BAD.replace(', deepspeed = "0.16.4"', "")
    assert verdict(ZERO3, without) == "held"
    assert verdict(rule('{ "pkg.deepspeed" = "absent" }'), without) == "broken"
    assert verdict(rule('{ "pkg.deepspeed" = "present" }'), without) == "held"


def test_a_fact_that_could_not_be_read_leaves_the_rule_undecided() -> None:
    unread = BAD.replace(', deepspeed = "0.16.4"', "") + '[unknown]\n"pkg.deepspeed" = "METADATA is gone"\n'
    assert verdict(ZERO3, unread) == "undecided"


def test_a_rule_waits_for_facts_that_were_not_given_and_lists_them() -> None:
    result = judged(ZERO3, 'complete = ["pkg"]\npkg = { torch = "2.6.0", deepspeed = "0.16.4" }')
    assert not result.findings
    (waiting,) = result.waiting
    assert waiting.reason == "training"
    assert {clause.key for clause in waiting.open} == {
        "train.zero_stage", "train.frozen_params", "train.use_reentrant",
    }  # fmt: skip


def test_a_clause_that_does_not_match_decides_in_spite_of_unknown_facts() -> None:
    assert verdict(ZERO3, 'complete = ["pkg"]\npkg = { torch = "2.4.0", deepspeed = "0.16.4" }') == "held"


def test_a_release_candidate_of_the_bound_is_undecided() -> None:
    assert verdict(ZERO3, BAD.replace("2.6.0", "2.5.0rc1")) == "undecided"


def test_a_vendor_build_is_judged_by_its_base_release_and_softened_to_a_warning() -> None:
    (finding,) = judged(ZERO3, BAD.replace("2.6.0", "2.6.0a0+df5bbc09d1.nv24.12")).findings
    assert finding.verdict is Verdict.BROKEN
    assert finding.severity is Severity.WARNING
    assert any("vendor build" in each.note for each in finding.evidence)


# --- clauses ----------------------------------------------------------------------------------------


def test_a_list_matches_any_of_its_values() -> None:
    either = rule('{ "train.offload_optimizer" = ["cpu", "nvme"] }')
    assert verdict(either, 'train = { offload_optimizer = "nvme" }') == "broken"
    assert verdict(either, 'train = { offload_optimizer = "none" }') == "held"


def test_a_rule_is_broken_if_any_of_its_tables_matches() -> None:
    either = rule('[{ "pkg.torch" = "<2" }, { "pkg.torch" = ">=3" }]')
    assert [verdict(either, f'pkg = {{ torch = "{v}" }}') for v in ("1.13", "2.5", "3.0")] == [
        "broken", "held", "broken",
    ]  # fmt: skip


def test_require_applies_only_to_installed_packages() -> None:
    needs = rule('{ "pkg.peft" = "present" }', more='require = { "pkg.torch" = ">=2" }')
    installed = 'complete = ["pkg"]\n[pkg]\npeft = "0.14.0"\n'
    assert verdict(needs, installed + 'torch = "1.13.1"') == "broken"
    assert verdict(needs, installed + 'torch = "2.1.0"') == "held"
    assert verdict(needs, installed) == "held"
    assert verdict(needs, 'complete = ["pkg"]\npkg = { torch = "1.13.1" }') == "held"


def test_a_clause_compares_two_facts() -> None:
    older = rule('{ "driver.version" = "<{cuda.minimum_driver}" }')
    facts = 'driver = {{ version = "{}" }}\ncuda = {{ minimum_driver = "525.60.13" }}'
    assert verdict(older, facts.format("470.223.02")) == "broken"
    assert verdict(older, facts.format("535.104.05")) == "held"


def test_a_word_matches_a_list_that_contains_it() -> None:
    built = rule('{ "build.torch.architectures" = "sm_90" }')
    assert verdict(built, 'build = { torch = { architectures = ["sm_80", "sm_90"] } }') == "broken"
    assert verdict(built, 'build = { torch = { architectures = ["sm_80"] } }') == "held"


# --- devices ----------------------------------------------------------------------------------------

OLD_GPU = rule('{ "gpu.compute_capability" = "<8.0", "train.precision" = "bf16" }')
TWO = 'train = { precision = "bf16" }\n[[gpu]]\ncompute_capability = "8.0"\n[[gpu]]\ncompute_capability = "7.0"\n'


def test_a_rule_that_all_devices_break_is_an_error() -> None:
    (finding,) = judged(OLD_GPU, TWO.replace('"8.0"', '"7.5"')).findings
    assert finding.severity is Severity.ERROR
    assert finding.devices == ()


def test_a_rule_that_some_devices_break_is_a_warning_with_their_numbers() -> None:
    (finding,) = judged(OLD_GPU, TWO).findings
    assert (finding.severity, finding.devices) == (Severity.WARNING, (1,))
    assert "CUDA_VISIBLE_DEVICES=0 " in finding.note


def test_a_hidden_device_is_not_judged() -> None:
    assert verdict(OLD_GPU, TWO + "visible = false\n") == "held"


def test_rules_about_hardware_wait_without_a_gpu() -> None:
    none = 'complete = ["gpu", "gpus", "driver"]\ngpus = { count = 0 }\ntrain = { precision = "bf16" }'
    result = judged(OLD_GPU, none)
    assert [each.reason for each in result.waiting] == ["GPU"]
    assert judged(OLD_GPU, none.replace("bf16", "fp32")).passed == 1


# --- three-valued logic -----------------------------------------------------------------------------

KEYS: dict[str, Kind] = {
    "pkg.a": Kind.VERSION, "pkg.b": Kind.VERSION, "train.zero_stage": Kind.NUMBER,
    "train.offload_optimizer": Kind.WORD, "train.dora": Kind.FLAG, "driver.version": Kind.VERSION,
}  # fmt: skip
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


# --- fixes ------------------------------------------------------------------------------------------


def advised(rules_text: str, facts: str) -> Finding:
    matrix = known(rules_text)
    read = inventory(facts)
    settled = derive.derive(read, matrix)
    judgement = judge.judge(settled, matrix.rules)

    def attempt(changes: Sequence[tuple[str, Value]]) -> Judgement:
        return judge.judge(derive.derive(apply_changes(read, changes, matrix), matrix), matrix.rules)

    finding = next(each for each in judgement.findings if each.rule.id == "a-rule")
    return with_passing_fixes(finding, judgement, settled, attempt)


def test_fixes_come_in_the_order_of_the_rule() -> None:
    assert [fix.set[0][0] for fix in advised(ZERO3, BAD).fixes] == ["pkg.deepspeed", "train.use_reentrant"]


def test_a_fix_that_breaks_another_rule_is_not_shown() -> None:
    trap = rule('{ "pkg.deepspeed" = ">=0.19", "pkg.torch" = "<2.7" }', rule_id="trap")
    assert [fix.set[0][0] for fix in advised(ZERO3 + trap, BAD).fixes] == ["train.use_reentrant"]


@pytest.mark.parametrize(
    ("facts", "off"),
    [
        ("liger_kernel = true", ["liger_kernel"]),
        ("liger_kernel = true, torch_compile = false", ["liger_kernel"]),
        ("liger_kernel = true, torch_compile = true", ["liger_kernel", "torch_compile"]),
    ],
)
def test_a_fix_switches_off_only_what_is_on(facts: str, off: list[str]) -> None:
    both = '[[rule.fix]]\nset = { "train.liger_kernel" = false, "train.torch_compile" = false }'
    uses = rule('[{ "train.liger_kernel" = true }, { "train.torch_compile" = true }]', more=both)
    (fix,) = advised(uses, f"train = {{ {facts} }}").fixes
    assert [key for key, _ in fix.set] == [f"train.{name}" for name in off]


def test_what_a_fix_sets_beside_a_switch_stays() -> None:
    both = '[[rule.fix]]\nset = { "train.torch_compile" = false, "train.precision" = "bf16" }'
    (fix,) = advised(rule('{ "train.precision" = "fp16" }', more=both), 'train.precision = "fp16"').fixes
    assert [key for key, _ in fix.set] == ["train.torch_compile", "train.precision"]


def test_a_fix_may_leave_rules_broken_that_were_broken_before() -> None:
    other = rule('{ "pkg.torch" = ">=2.0" }', rule_id="other")
    assert len(advised(ZERO3 + other, BAD).fixes) == 2


def test_a_change_of_a_package_forgets_the_facts_of_the_old_release() -> None:
    matrix = known("", head='[moves_with]\ntorch = ["torchvision"]')
    read = inventory(
        'pkg = { torch = "2.6.0+cu124", torchvision = "0.21.0" }\nbuild = { torch = { cuda = "12.4" } }'
    )
    after = apply_changes(read, [("pkg.torch", "2.10.0")], matrix)
    assert after.known("pkg.torch") == "2.10.0"
    assert after.known("build.torch.cuda") is None
    assert after.known("pkg.torchvision") is None
    assert read.known("pkg.torchvision") == "0.21.0"  # the inventory itself did not change
