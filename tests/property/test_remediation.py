"""Properties that hold for any input: remediation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from envcheck.core.facts import Fact, Inventory, Known, Value
from envcheck.core.findings import Judgement, Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.resolution.remediation.bound import BoundModel
from envcheck.resolution.remediation.cost import CostModel
from envcheck.resolution.remediation.moves import Proposal
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import ReleaseChoices, Releases
from envcheck.resolution.remediation.search import RemediationSpace, SearchLimits, search
from envcheck.resolution.remediation.state import InventoryEditor
from envcheck.rules.changes import apply_changes, changed_keys
from envcheck.rules.fixes import trial_value
from tests.support import worlds
from tests.support.worlds import SOURCE
from tests.unit.knowledge.test_cases import EVERY_CASE, facts_of, known
from tests.unit.resolution.test_remediation import (
    HERE,
    RELEASES,
    applied,
    judged,
    listed,
    others,
    planned,
    problem_of,
)

NAMES = ("aa", "bb", "cc")

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


BOUNDS = ("<1.1.2", "<1.2.0", ">=1.1.0", ">=1.1.1", ">=1.0.0,<1.2.0", ">=1.1.1,<1.2.0")

package = st.sampled_from(NAMES)

fixes = st.lists(st.tuples(package, others), min_size=1, max_size=2)


clauses = st.dictionaries(package, st.sampled_from(BOUNDS), min_size=1, max_size=2)


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
    small = RemediationSpace.of(problem_of(tiny(of), of), Releases(of, of.tables["release"], None))
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


EVERY = 22
"""Each case tries one change in 22, and the next case the ones beside them: each is tried on 40 cases."""


def test_a_change_affects_only_facts_that_the_bound_knows_to_follow_from_it() -> None:
    """Otherwise the bound could be too high, and the search could miss the fewest moves."""
    changes = sorted({fix for rule in known().rules for each in rule.fixes for fix in each.set}, key=str)
    described = [case for case in EVERY_CASE[::3] if "facts" in case]
    reached = 0
    for number, case in enumerate(described):
        read = facts_of(case)
        problem = problem_of(read, known())
        editor = InventoryEditor(read, known(), listed("3.11.9"))
        behind = ancestors_in(problem)
        for key, value in changes[number % EVERY :: EVERY]:  # all pairs would take ten minutes
            if isinstance(value, str) and "{" in value:
                continue
            if key.startswith("train.") and not any(each.startswith("train.") for each in read.facts):
                continue  # rules about training wait there and propose nothing
            proposal = Proposal(trial_value(value), "", known().rules[0])
            for touched in changed_keys(problem.start, editor.apply({key: proposal})):
                assert key in behind(touched), (case["id"], key, touched)
                reached += touched != key
    assert reached > 100


def ancestors_in(problem: RemediationProblem) -> Callable[[str], set[str]]:
    """Return a function of a key that returns all keys from which its fact may follow, itself included."""
    choices = ReleaseChoices(problem, listed("3.11.9"))
    bounds = BoundModel(problem, CostModel(problem, choices))
    affecting = cache(lambda key: frozenset(bounds.affecting(key)))

    @cache
    def ancestors(key: str) -> set[str]:
        found, todo = {key}, [key]
        while todo:
            more = affecting(todo.pop()) - found
            found |= more
            todo += more
        return found

    return ancestors
