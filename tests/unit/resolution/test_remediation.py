"""The smallest change: over every case of compat/, against brute force in tiny worlds, and in time."""

from __future__ import annotations

import cProfile
from functools import cache, lru_cache
from typing import Any

import pytest
from hypothesis import strategies as st

from envcheck.commands import judging, tried_fixes
from envcheck.core.facts import Fact, Inventory, Known, Value
from envcheck.core.findings import Finding, Judgement, Move, Plan, Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.knowledge.tables import ReleaseRow
from envcheck.resolution.remediation.cost import Cost
from envcheck.resolution.remediation.moves import MoveSize, move_size
from envcheck.resolution.remediation.plan import plan_remediation
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import Releases, supports_python
from envcheck.resolution.remediation.search import STATES, RemediationSpace
from envcheck.resolution.remediation.ways_out import BreakingReleases
from envcheck.rules import derive
from envcheck.rules.changes import apply_changes
from tests.support import worlds
from tests.unit.knowledge.test_cases import EVERY_CASE, facts_of, known

BROKEN_CASES = [case for case in EVERY_CASE if case["expect"] == "broken"]


@lru_cache(maxsize=8)
def listed(python: str | None) -> Releases:
    return Releases(known(), known().tables["release"], python)


def planned(read: Inventory, level: Severity = Severity.ERROR, of: Matrix | None = None) -> Plan:
    python = read.known("python.version")
    if of is None:
        releases = listed(str(python) if python else None)
    else:
        releases = Releases(of, of.tables.get("release", []), None)
    return plan_remediation(problem_of(read, of or known(), level), releases)


@cache
def plan_of(case_id: str, level: Severity) -> Plan:
    """Return the plan for a broken case of compat/; several tests ask for the same one."""
    return planned(facts_of(next(case for case in BROKEN_CASES if case["id"] == case_id)), level)


def problem_of(read: Inventory, of: Matrix, level: Severity = Severity.ERROR) -> RemediationProblem:
    return RemediationProblem(read=read, known=of, target=None, level=level)


def applied(read: Inventory, moves: tuple[Move, ...], of: Matrix) -> Inventory:
    """Return the inventory after the moves of a plan and nothing else."""
    own = [(move.key, move.after) for move in moves if not move.leader and move.after is not None]
    along = [(move.key, move.after) for move in moves if move.leader and move.after is not None]
    return apply_changes(apply_changes(read, own, of), along, of)


def judged(read: Inventory, of: Matrix) -> Judgement:
    return judging.judge_inventory(derive.derive(read, of), of, None)


def broken(judgement: Judgement, level: Severity) -> dict[str, Finding]:
    return {
        each.rule.id: each
        for each in judgement.findings
        if each.verdict is Verdict.BROKEN and each.severity.rank >= level.rank
    }


# --- every case -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", BROKEN_CASES, ids=lambda case: str(case["id"]))
def test_a_broken_case_is_repaired_or_the_plan_names_what_cannot_be(case: dict[str, Any]) -> None:
    read = facts_of(case)
    rule = known().rule(case["rule"])
    assert rule is not None
    level = rule.severity
    before, plan = broken(judged(read, known()), level), plan_of(case["id"], level)
    after = broken(judged(applied(read, plan.moves, known()), known()), level)
    left = {each.rule.id for each in plan.unresolved}
    assert left <= before.keys()
    assert after.keys() <= left | {each.id for each in plan.brings}
    assert {each.id for each in plan.brings if each.severity is Severity.ERROR} == set()
    assert not (left and rule.fixes), "a rule with a fix is repaired"
    assert all(each.why for each in plan.unresolved)


@pytest.mark.parametrize(
    "case",
    [case for case in BROKEN_CASES if known().rule(case["rule"]).severity is Severity.ERROR],  # type: ignore[union-attr]
    ids=lambda case: str(case["id"]),
)
def test_no_move_of_a_plan_is_needless_and_each_names_the_rules_it_repairs(case: dict[str, Any]) -> None:
    read = facts_of(case)
    plan = plan_of(case["id"], Severity.ERROR)
    for move in plan.moves:
        if move.leader:
            continue
        assert move.rules
        fewer = tuple(each for each in plan.moves if each is not move and each.leader != move.key[4:])
        after = judged(applied(read, fewer, known()), known())
        still = {each.rule.id for each in after.findings if each.verdict is not Verdict.PASSED}
        assert {rule.id for rule in move.rules if rule.group != "requires-dist"} <= still


def test_no_way_out_leaves_a_bound_outside_which_the_failure_has_another_form() -> None:
    # TRL 0.16 starts no vLLM on a GPU of the training, but asks a server that does not run.
    case = next(case for case in EVERY_CASE if case["id"] == "trl-0140-one-gpu")
    rule = known().rule(case["rule"])
    assert rule is not None
    assert rule.no_cure == ("pkg.trl",)

    def moved(no_cure: tuple[str, ...]) -> set[str]:
        changed = rule._replace(no_cure=no_cure)
        of = known()._replace(rules=tuple(changed if each.id == rule.id else each for each in known().rules))
        space = RemediationSpace.of(problem_of(facts_of(case), of), listed("3.11.9"))
        goal = frozenset({rule.id})
        start = space.judge.state({}, goal)
        successors = space.neighbourhood.successors(start, goal, any_release=True)
        return {key for state in successors for key in state.changes}

    assert "pkg.trl" in moved(())
    assert moved(rule.no_cure) == {"train.vllm"}


def test_kept_answers_are_those_of_the_judge() -> None:
    when = '{ "pkg.peft" = "<0.18", "pkg.torch" = ">=2.4" }'
    on_old_gpus = '{ "pkg.peft" = "<0.18", "gpu.compute_capability" = "<8.0" }'
    of = worlds.known(worlds.rule(when) + worlds.rule(on_old_gpus, "on-old-gpus"))
    breaking = BreakingReleases()

    def breaks(rule_id: str, peft: str, torch: str = "2.3.0", arch: str = "8.0") -> bool:
        facts = f'complete = ["pkg"]\npkg = {{ torch = "{torch}", trl = "{torch}" }}\ngpu = [{{ compute_capability = "{arch}" }}]'
        rule = of.rule(rule_id)
        assert rule is not None
        return breaking.breaks(rule, Fact("pkg.peft", Known(peft)), worlds.inventory(facts))

    for _ in range(2):  # the second time, the answers are kept
        assert [breaks("a-rule", peft, "2.4.0") for peft in ("0.17.1", "0.18.0")] == [True, False]
        assert not breaks("a-rule", "0.17.1", "2.3.0"), "another fact that the rule reads has changed"
        assert [breaks("on-old-gpus", "0.17.1", arch=arch) for arch in ("7.5", "8.0")] == [True, False]


def calls_and_plan(read: Inventory) -> tuple[int, Plan]:
    """Return how many functions are called to plan a change, which no other process slows down, and the plan."""
    listed(str(read.known("python.version")))
    profile = cProfile.Profile()
    plan = profile.runcall(planned, read)
    return sum(entry.callcount for entry in profile.getstats()), plan


MANY_CONFLICTS = """
complete = ["pkg"]
python = { version = "3.12.4" }
driver = { version = "535.104.05" }
gpu = [{ name = "NVIDIA A100-SXM4-80GB" }, { name = "NVIDIA A100-SXM4-80GB" }]
[pkg]
torch = "2.11.0"
torchvision = "0.21.0"
torchaudio = "2.6.0"
triton = "3.2.0"
deepspeed = "0.14.0"
transformers = "5.0.0"
peft = "0.17.1"
accelerate = "1.0.1"
tokenizers = "0.19.0"
huggingface-hub = "0.29.0"
bitsandbytes = "0.42.0"
trl = "0.11.4"
torchao = "0.10.0"
pandas = "2.2.1"
pyarrow = "15.0.2"
datasets = "2.14.5"
fsspec = "2024.1.0"
numpy = "2.1.0"
[train]
zero_stage = 3
adapter = "lora"
dora = true
quantization = "nf4"
gradient_checkpointing = true
use_reentrant = false
offload_optimizer = "cpu"
attention = "flash_attention_2"
"""


# --- which change is smaller ------------------------------------------------------------------------


def ordered(*steps: tuple[str, Value | None, Value, str]) -> list[MoveSize]:
    return [move_size(key, before, after, cost) for key, before, after, cost in steps]


def test_patch_before_minor_before_major_and_upgrades_before_downgrades() -> None:
    sizes = ordered(
        ("pkg.a", "1.2.3", "1.2.4", ""),
        ("pkg.a", "1.2.3", "1.2.2", ""),
        ("pkg.a", "1.2.3", "1.3.0", ""),
        ("pkg.a", "1.2.3", "1.1.9", ""),
        ("pkg.a", "1.2.3", "2.0", ""),
        ("pkg.a", "1.2.3", "0.9", ""),
        ("train.x", True, False, "trains something else"),
    )
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)
    assert move_size("train.x", True, False) == move_size("pkg.a", "1.2.3", "1.2.4")
    assert move_size("pkg.a", None, "0.1") == move_size("pkg.a", "1.2.3", "2.0")


def test_an_administrator_comes_last_and_fewer_moves_come_before_smaller_ones() -> None:
    cost = Cost
    assert cost(0, 9, 9, 9, 1, 9, 9) < cost(1, 0, 0, 0, 0, 0, 0)
    assert cost(0, 1, 4, 1, 1, 9, 9) < cost(0, 2, 2, 0, 0, 0, 0)
    assert cost(0, 1, 2, 0, 0, 9, 9) < cost(0, 1, 2, 0, 1, 0, 0)  # measured before unmeasured


# --- tiny worlds, against brute force ---------------------------------------------------------------

# One release for each size and direction of a move, so that "the nearest of each size" is every release.
RELEASES = ("1.0.0", "1.1.0", "1.1.1", "1.1.2", "1.2.0")
HERE = "1.1.1"

others = st.sampled_from([each for each in RELEASES if each != HERE])


# --- what the bound relies on -----------------------------------------------------------------------


def test_eight_gpus_and_two_hundred_packages_are_planned_in_time() -> None:
    gpus = ", ".join(['{ name = "NVIDIA A100-SXM4-80GB" }'] * 8)
    others = "\n".join(f'other{number} = "1.{number}"' for number in range(200))
    lines = MANY_CONFLICTS.replace(
        'gpu = [{ name = "NVIDIA A100-SXM4-80GB" }, { name = "NVIDIA A100-SXM4-80GB" }]', f"gpu = [{gpus}]"
    )
    read = worlds.inventory(lines.replace('numpy = "2.1.0"', f'numpy = "2.1.0"\n{others}'))
    requires = tuple(f"other{number}>=1" for number in range(200))
    read = read.with_facts(Fact(f"pkg.other{number}.requires", Known(requires[:10])) for number in range(200))
    calls, plan = calls_and_plan(read)
    assert plan.moves
    assert calls < 6_000_000, plan.states


UNINSTALLING = """
[[rule.fix]]
set = { "pkg.hook" = "absent" }
%s
[[rule.fix]]
set = { "pkg.torch" = ">=2.7.0" }
"""


@pytest.mark.parametrize(
    ("cost", "beside", "moves"),
    [
        ("", "", [("pkg.hook", "absent", "")]),
        ('cost = "hooks are gone"', "", [("pkg.torch", "2.7.0", "torch==2.7.0")]),
        ("", ', user = { version = "1", requires = ["hook"] }', [("pkg.torch", "2.7.0", "torch==2.7.0")]),
    ],
)
def test_a_package_that_nothing_requires_is_uninstalled(
    cost: str, beside: str, moves: list[tuple[str, Value, str]]
) -> None:
    when = '{ "pkg.torch" = "<2.7", "pkg.hook" = "present" }'
    tiny = worlds.known(worlds.rule(when, more=UNINSTALLING % cost))
    read = worlds.inventory(f'complete = ["pkg"]\npkg = {{ torch = "2.6.0", hook = "1.0"{beside} }}')
    plan = planned(read, of=tiny)
    assert [(move.key, move.after, move.install) for move in plan.moves] == moves
    assert not plan.unresolved
    assert not broken(judged(applied(read, plan.moves, tiny), tiny), Severity.ERROR)


def test_the_plan_equals_the_findings_advice_if_there_is_one_fix() -> None:
    compared = 0
    for case in BROKEN_CASES:
        read = facts_of(case)
        settled = derive.derive(read, known())
        advice = tried_fixes.add_fixes(
            judging.judge_inventory(settled, known(), None), read, settled, known(), None
        )
        errors = broken(advice, Severity.ERROR)
        fixes = [fix for finding in errors.values() for fix in finding.fixes]
        if len(errors) != 1 or len(fixes) != 1 or len(fixes[0].tried) != 1:
            continue
        moves = [
            (move.key, move.after) for move in plan_of(case["id"], Severity.ERROR).moves if not move.leader
        ]
        assert moves == [*fixes[0].tried], case["id"]
        compared += 1
    assert compared > 10


def test_every_proposed_release_exists_for_that_python_or_is_marked_unchecked() -> None:
    rows = {(row["package"], row["version"]): row for row in known().tables["release"]}
    for case in BROKEN_CASES:
        read = facts_of(case)
        python = read.known("python.version")
        for move in plan_of(case["id"], Severity.WARNING).moves:
            row = rows.get((move.key[4:], str(move.after)))
            if row is not None and not move.unchecked:
                assert not row.get("yanked"), move
                assert python is None or supports_python(ReleaseRow.of(row), str(python)), move
            elif move.install and move.key not in (
                "pkg.torch",
                "pkg.torchvision",
                "pkg.torchaudio",
                "pkg.triton",
            ):
                assert move.unchecked


def test_the_slowest_cases_and_many_conflicts_at_once_are_planned_with_little_work() -> None:
    """Calls of functions are counted: unlike seconds, they do not depend on what else the machine does."""
    for case in sorted(BROKEN_CASES, key=lambda case: plan_of(case["id"], Severity.ERROR).states)[-8:]:
        calls, plan = calls_and_plan(facts_of(case))
        assert calls < 600_000, (case["id"], plan.states)
    calls, plan = calls_and_plan(worlds.inventory(MANY_CONFLICTS))
    assert calls < 4_000_000, plan.states
    assert plan.states < 4 * STATES
    read = worlds.inventory(MANY_CONFLICTS)
    after = broken(judged(applied(read, plan.moves, known()), known()), Severity.ERROR)
    assert after.keys() <= {each.rule.id for each in plan.unresolved}
