"""The smallest change: over every case of compat/, against brute force in tiny worlds, and in time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from envcheck.commands import examine
from envcheck.core.facts import Fact, Inventory, Known, Value
from envcheck.core.findings import Finding, Judgement, Move, Plan, Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.knowledge.tables import ReleaseRow
from envcheck.resolution.remediation.cost import Cost
from envcheck.resolution.remediation.moves import MoveSize, Proposal, move_size
from envcheck.resolution.remediation.plan import plan_remediation
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import Releases, available_releases, supports_python
from envcheck.resolution.remediation.search import STATES, RemediationSpace, SearchLimits, search
from envcheck.rules import derive
from envcheck.rules.changes import apply_changes
from envcheck.rules.fixes import trial_value
from tests.support import worlds
from tests.support.worlds import SOURCE
from tests.unit.knowledge.test_cases import EVERY_CASE, facts_of, known

BROKEN_CASES = [case for case in EVERY_CASE if case["expect"] == "broken"]


@lru_cache(maxsize=8)
def listed(python: str | None) -> Releases:
    return available_releases(known(), known().tables["release"], python)


def planned(read: Inventory, level: Severity = Severity.ERROR, of: Matrix | None = None) -> Plan:
    python = read.known("python.version")
    if of is None:
        releases = listed(str(python) if python else None)
    else:
        releases = available_releases(of, of.tables.get("release", []), None)
    return plan_remediation(problem_of(read, of or known(), level), releases)


def problem_of(read: Inventory, of: Matrix, level: Severity = Severity.ERROR) -> RemediationProblem:
    return RemediationProblem(read=read, known=of, target=None, level=level)


def applied(read: Inventory, moves: tuple[Move, ...], of: Matrix) -> Inventory:
    """Return the inventory after the moves of a plan and nothing else."""
    own = [(move.key, move.after) for move in moves if not move.leader and move.after is not None]
    along = [(move.key, move.after) for move in moves if move.leader and move.after is not None]
    return apply_changes(apply_changes(read, own, of), along, of)


def judged(read: Inventory, of: Matrix) -> Judgement:
    return examine.judge_inventory(derive.derive(read, of), of, None)


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
    before, plan = broken(judged(read, known()), level), planned(read, level)
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
    plan = planned(read)
    for move in plan.moves:
        if move.leader:
            continue
        assert move.rules
        fewer = tuple(each for each in plan.moves if each is not move and each.leader != move.key[4:])
        after = judged(applied(read, fewer, known()), known())
        still = {each.rule.id for each in after.findings if each.verdict is not Verdict.PASSED}
        assert {rule.id for rule in move.rules if rule.group != "requires-dist"} <= still


def test_the_plan_equals_the_findings_advice_if_there_is_one_fix() -> None:
    compared = 0
    for case in BROKEN_CASES:
        read = facts_of(case)
        settled = derive.derive(read, known())
        advice = examine.add_fixes(
            examine.judge_inventory(settled, known(), None), read, settled, known(), None
        )
        errors = broken(advice, Severity.ERROR)
        fixes = [fix for finding in errors.values() for fix in finding.fixes]
        if len(errors) != 1 or len(fixes) != 1 or len(fixes[0].tried) != 1:
            continue
        moves = [(move.key, move.after) for move in planned(read).moves if not move.leader]
        assert moves == [*fixes[0].tried], case["id"]
        compared += 1
    assert compared > 10


def test_every_proposed_release_exists_for_that_python_or_is_marked_unchecked() -> None:
    rows = {(row["package"], row["version"]): row for row in known().tables["release"]}
    for case in BROKEN_CASES:
        read = facts_of(case)
        python = read.known("python.version")
        for move in planned(read, Severity.WARNING).moves:
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


def test_the_slowest_case_and_many_conflicts_at_once_are_planned_in_time() -> None:
    slowest = max((_timed(facts_of(case)) for case in BROKEN_CASES), key=lambda each: each[0])
    assert slowest[0] < 0.5, slowest
    seconds, plan = _timed(worlds.inventory(MANY_CONFLICTS))
    assert seconds < 3, plan.states  # half a second on an idle machine
    assert plan.states < 4 * STATES
    read = worlds.inventory(MANY_CONFLICTS)
    after = broken(judged(applied(read, plan.moves, known()), known()), Severity.ERROR)
    assert after.keys() <= {each.rule.id for each in plan.unresolved}


def _timed(read: Inventory) -> tuple[float, Plan]:
    listed(str(read.known("python.version")))
    start = time.process_time()
    plan = planned(read)
    return time.process_time() - start, plan


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


UNLISTED = (
    [
        ({"bb": ">=1.1.0"}, False, [("bb", "1.1.2"), ("cc", "1.1.0")]),
        ({"cc": ">=1.1.1"}, False, [("cc", "1.2.0"), ("aa", "1.0.0")]),
        ({"bb": ">=1.1.0"}, False, [("aa", "1.1.0"), ("aa", "1.2.0")]),
        ({"aa": ">=1.1.0"}, True, [("aa", "1.2.0"), ("aa", "1.1.0")]),
        ({"cc": ">=1.1.1,<1.2.0", "aa": "<1.1.2"}, False, [("cc", "1.0.0")]),
    ],
    {("aa", "1.1.2"): ">=1.1.1,<1.2.0", ("bb", "1.2.0"): ">=1.1.1,<1.2.0", ("aa", "1.1.1"): ">=1.1.1"},
)
"""A world in which no fix helps, but three releases that no fix names do."""

# --- tiny worlds, against brute force ---------------------------------------------------------------

# One release for each size and direction of a move, so that "the nearest of each size" is every release.
RELEASES = ("1.0.0", "1.1.0", "1.1.1", "1.1.2", "1.2.0")
HERE = "1.1.1"
NAMES = ("aa", "bb", "cc")
BOUNDS = ("<1.1.2", "<1.2.0", ">=1.1.0", ">=1.1.1", ">=1.0.0,<1.2.0", ">=1.1.1,<1.2.0")

package = st.sampled_from(NAMES)
clauses = st.dictionaries(package, st.sampled_from(BOUNDS), min_size=1, max_size=2)
others = st.sampled_from([each for each in RELEASES if each != HERE])
fixes = st.lists(st.tuples(package, others), min_size=1, max_size=2)
rules = st.lists(st.tuples(clauses, st.booleans(), fixes), min_size=1, max_size=5)
requirements = st.dictionaries(
    st.tuples(st.sampled_from(("aa", "bb")), st.sampled_from(RELEASES)), st.sampled_from(BOUNDS), max_size=4
)


def world(
    drawn: list[tuple[dict[str, str], bool, list[tuple[str, str]]]], needs: Mapping[tuple[str, str], str]
) -> Matrix:
    text = []
    for number, (when, staged, ways) in enumerate(drawn):
        table = ", ".join(f'"pkg.{name}" = "{bound}"' for name, bound in when.items())
        stage = ', "train.zero_stage" = 3' if staged else ""
        text.append(
            f'[[rule]]\nid = "r{number}"\nseverity = "error"\nbasis = "measured"\ntitle = "t"\n'
            f"when = {{ {table}{stage} }}\n{SOURCE}"
        )
        text += [f'[[rule.fix]]\nset = {{ "pkg.{name}" = "=={version}" }}' for name, version in ways]
        if staged:
            text.append('[[rule.fix]]\nset = { "train.zero_stage" = 2 }\ncost = "memory"')
    rows = [
        f'{{ package = "{name}", version = "{version}", requires = {{ {_needs(needs, name, version)} }} }}'
        for name in NAMES
        for version in RELEASES
    ]
    return worlds.known("\n".join(text), f"release = [{', '.join(rows)}]")


def _needs(needs: Mapping[tuple[str, str], str], name: str, version: str) -> str:
    bound = needs.get((name, version))
    return f'cc = "{bound}"' if bound else ""


def tiny(of: Matrix) -> Inventory:
    packages = ", ".join(f"{name} = '{HERE}'" for name in NAMES)
    read = worlds.inventory(f"pkg = {{ {packages} }}\ntrain = {{ zero_stage = 3 }}")
    return with_requirements(read, of)


def with_requirements(read: Inventory, of: Matrix) -> Inventory:
    facts = []
    for row in of.tables["release"]:
        if row["requires"] and read.known(f"pkg.{row['package']}") == row["version"]:
            lines = tuple(f"{name}{bound}" for name, bound in row["requires"].items())
            facts.append(Fact(f"pkg.{row['package']}.requires", Known(lines)))
    return read.with_facts(facts)


def assignments(read: Inventory, of: Matrix) -> Iterator[tuple[int, Inventory]]:
    """Yield every assignment of releases and ZeRO stages, with the number of its moves."""
    for chosen in itertools.product(RELEASES, repeat=len(NAMES)):
        for stage in (3, 2):
            moves = [
                (f"pkg.{name}", version)
                for name, version in zip(NAMES, chosen, strict=True)
                if version != HERE
            ]
            changes: list[tuple[str, Value]] = [
                *moves,
                *([("train.zero_stage", stage)] if stage != 3 else []),
            ]
            yield len(changes), with_requirements(apply_changes(read, changes, of), of)


def passes(read: Inventory, before: Judgement, of: Matrix) -> bool:
    """Return whether there is no error, and no metadata conflict that is new or of a moved package."""
    after = judged(read, of)
    old = {each.rule.id for each in before.findings}
    for each in after.findings:
        if each.verdict is Verdict.BROKEN and each.rule.severity is Severity.ERROR:
            return False
        if each.rule.group == "requires-dist":
            package = each.rule.id.split(":")[1]
            if each.rule.id not in old or read.known(f"pkg.{package}") != HERE:
                return False
    return True


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules, requirements)
@example(*UNLISTED)
def test_no_assignment_of_fewer_moves_passes(
    drawn: list[tuple[dict[str, str], bool, list[tuple[str, str]]]], needs: dict[tuple[str, str], str]
) -> None:
    of = world(drawn, needs)
    read = tiny(of)
    before = judged(read, of)
    fewest = min((count for count, after in assignments(read, of) if passes(after, before, of)), default=None)
    plan = planned(read, of=of)
    if fewest is None:
        assert plan.unresolved
    else:
        assert not plan.unresolved
        assert len(plan.moves) == fewest or (not plan.proved and len(plan.moves) > fewest)
        assert passes(with_requirements(applied(read, plan.moves, of), of), before, of)


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules, requirements)
def test_the_cheapest_of_all_states_that_ways_out_reach_is_taken(
    drawn: list[tuple[dict[str, str], bool, list[tuple[str, str]]]], needs: dict[tuple[str, str], str]
) -> None:
    """Compare with all reachable states, visited without a bound, an order or a limit."""
    of = world(drawn, needs)
    small = RemediationSpace.of(problem_of(tiny(of), of), available_releases(of, of.tables["release"], None))
    wanted = frozenset(each.rule.id for each in small.judge.broken)
    seen, todo, costs = set(), [small.judge.state({}, wanted)], []
    while todo:
        state = todo.pop()
        values = tuple(sorted((key, str(each.value)) for key, each in state.changes.items()))
        if values in seen:
            continue
        seen.add(values)
        if not state.unresolved:
            costs.append(small.costs.cost(state.changes))
            continue
        todo += small.neighbourhood.successors(state, wanted, any_release=False)
    found = search(small, wanted, SearchLimits(states=100_000, more=100_000))
    assert found.fewest
    assert found.smallest
    if not costs:
        assert found.changes is None
    else:
        assert found.changes is not None
        # The place in a rule's list is not compared: it is that of the first rule that proposed a value.
        assert small.costs.cost(found.changes)[:-1] == min(costs)[:-1]


# --- what the bound relies on -----------------------------------------------------------------------


def test_a_change_affects_only_facts_that_the_bound_knows_to_follow_from_it() -> None:
    """Otherwise the bound could be too high, and the search could miss the fewest moves."""
    changes = {fix for rule in known().rules for each in rule.fixes for fix in each.set}
    reached = 0
    for case in EVERY_CASE[::3]:
        if "facts" not in case:
            continue
        read = facts_of(case)
        small = RemediationSpace.of(problem_of(read, known()), listed("3.11.9"))
        for key, value in sorted(changes, key=str)[::4]:
            if isinstance(value, str) and "{" in value:
                continue
            if key.startswith("train.") and not any(each.startswith("train.") for each in read.facts):
                continue  # rules about training wait there and propose nothing
            proposal = Proposal(trial_value(value), "", known().rules[0])
            for touched in small.judge.touched(small.editor.apply({key: proposal})):
                assert key in ancestors(small, touched), (case["id"], key, touched)
                reached += touched != key
    assert reached > 100


def ancestors(small: RemediationSpace, key: str) -> set[str]:
    found, todo = {key}, [key]
    while todo:
        more = set(small.bounds.affecting(todo.pop())) - found
        found |= more
        todo += more
    return found


def test_eight_gpus_and_two_hundred_packages_are_planned_in_time() -> None:
    gpus = ", ".join(['{ name = "NVIDIA A100-SXM4-80GB" }'] * 8)
    others = "\n".join(f'other{number} = "1.{number}"' for number in range(200))
    lines = MANY_CONFLICTS.replace(
        'gpu = [{ name = "NVIDIA A100-SXM4-80GB" }, { name = "NVIDIA A100-SXM4-80GB" }]', f"gpu = [{gpus}]"
    )
    read = worlds.inventory(lines.replace('numpy = "2.1.0"', f'numpy = "2.1.0"\n{others}'))
    requires = tuple(f"other{number}>=1" for number in range(200))
    read = read.with_facts(Fact(f"pkg.other{number}.requires", Known(requires[:10])) for number in range(200))
    seconds, plan = _timed(read)
    assert plan.moves
    assert seconds < 5, plan.states  # less than a second on an idle machine
