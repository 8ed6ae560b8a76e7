"""Rules by the facts that they concern."""

from __future__ import annotations

from envcheck.commands import loading
from envcheck.rules.clauses import keys_in
from envcheck.rules.rule_index import RuleIndex


def test_the_concerned_rules_are_those_whose_clauses_name_or_compare_with_a_fact() -> None:
    rules = loading.knowledge().rules
    index = RuleIndex(rules)
    for keys in ({"pkg.deepspeed"}, {"cuda.minimum_driver", "train.zero_stage"}, {"no.such"}):
        assert index.concerned(keys) == [rule for rule in rules if not keys.isdisjoint(keys_in(rule))]
