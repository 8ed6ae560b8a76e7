"""Properties that hold for any input: judge."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envcheck.core.facts import Absent, Fact, Inventory, Kind, Known, Reading, Unknown, Value
from envcheck.core.findings import Judgement, Verdict
from envcheck.core.rules import Rule
from envcheck.rules import judge
from tests.unit.rules.test_judge import KEYS, rules

VALUES: dict[Kind, list[Value]] = {
    Kind.VERSION: ["1.0", "1.5", "2.0", "2.0rc1", "2.0a0+git1", "3.0+cu121"],
    Kind.NUMBER: [0, 2, 3],
    Kind.WORD: ["none", "cpu", "nvme"],
    Kind.FLAG: [True, False],
}


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
