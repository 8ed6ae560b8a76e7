"""Rules by the facts that they concern."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.core.findings import Judgement, Verdict
from envcheck.rules import derive, judge
from envcheck.rules.changes import apply_changes, changed_keys
from envcheck.rules.clauses import keys_in
from envcheck.rules.fixes import trial_value
from envcheck.rules.rule_index import ChangedAnswers, RuleIndex
from tests.support import worlds
from tests.unit.knowledge.test_cases import EVERY_CASE, facts_of


def test_the_concerned_rules_are_those_whose_clauses_name_or_compare_with_a_fact() -> None:
    rules = loading.knowledge().rules
    index = RuleIndex(rules)
    for keys in ({"pkg.deepspeed"}, {"cuda.minimum_driver", "train.zero_stage"}, {"no.such"}):
        assert index.concerned(keys) == [rule for rule in rules if not keys.isdisjoint(keys_in(rule))]


JUDGED_ALIKE = 0.6
"""The least share of rules on a changed fact that are not judged again; without it, the index would be idle."""


def test_rules_that_are_not_judged_again_are_judged_as_before() -> None:
    """Every twenty-fifth case, with every tenth change that a fix names; the next case takes those beside them."""
    matrix = loading.knowledge()
    index = RuleIndex(matrix.rules)
    changes = sorted({fix for rule in matrix.rules for each in rule.fixes for fix in each.set}, key=str)
    passed_over = concerned = 0
    described = [case for case in EVERY_CASE if "facts" in case]
    for number, case in enumerate(described[::25]):
        read = facts_of(case)
        start = derive.derive(read, matrix)
        answers = ChangedAnswers(index, start)
        for key, value in changes[number % 10 :: 10]:
            if start.known(key) is None or (isinstance(value, str) and "{" in value):
                continue
            changed = apply_changes(read, [(key, trial_value(value))], matrix)
            after = derive.derive(changed, matrix)
            touched = list(changed_keys(start, after))
            again = {rule.id for rule in answers.concerned(touched, after)}
            left = [rule for rule in index.concerned(touched) if rule.id not in again]
            assert told(judge.judge(start, left)) == told(judge.judge(after, left)), (case["id"], key, value)
            passed_over, concerned = passed_over + len(left), concerned + len(again)
    assert passed_over > JUDGED_ALIKE * (passed_over + concerned)


def test_the_short_question_is_answered_as_by_the_judge() -> None:
    matrix = loading.knowledge()
    with_gpus = [case for case in EVERY_CASE if "gpu" in case.get("facts", {})]
    asked = 0
    for case in [*with_gpus[::4], *(case for case in EVERY_CASE[::20] if "facts" in case)]:
        settled = derive.derive(facts_of(case), matrix)
        findings = judge.judge(settled, matrix.rules).findings
        broken = {each.rule.id for each in findings if each.verdict is Verdict.BROKEN}
        assert {rule.id for rule in matrix.rules if judge.is_broken(settled, rule)} == broken, case["id"]
        asked += len(settled.devices) > 1
    assert asked > 5


def told(judgement: Judgement) -> set[tuple[object, ...]]:
    """Return what a judgement says of each rule, without the facts that it names."""
    found = {
        (each.rule.id, each.verdict, each.severity, each.devices, each.note) for each in judgement.findings
    }
    return {*found, *((each.rule.id, each.reason) for each in judgement.waiting)}


APART = worlds.rule('{ "pkg.torch" = "<2.6" }', "old-torch") + worlds.rule(
    '{ "pkg.aa" = "present" }\nrequire = { "pkg.bb" = ">=2" }', "partner-needs-2"
)


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ('torch = "2.5.0a0+872d972e41.nv24.8"', 'torch = "2.5.1"', "old-torch"),
        ('aa = "1.0"', 'aa = "1.0"\nbb = "1.0"', "partner-needs-2"),
    ],
)
def test_a_rule_is_judged_again_where_only_the_kind_of_reading_changes(
    before: str, after: str, rule: str
) -> None:
    """On a vendor's build a rule only warns, and an absent package is not the wrong release."""
    matrix = worlds.known(APART)
    start, changed = (worlds.inventory(f'complete = ["pkg"]\n[pkg]\n{each}') for each in (before, after))
    answers = ChangedAnswers(RuleIndex(matrix.rules), start)
    assert [each.id for each in answers.concerned(changed_keys(start, changed), changed)] == [rule]
    assert told(judge.judge(start, matrix.rules)) != told(judge.judge(changed, matrix.rules))
