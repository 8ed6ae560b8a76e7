"""Rules by the facts that they concern, so that after a change only rules on changed facts are judged."""

from collections.abc import Iterable

from envcheck.core.rules import Rule
from envcheck.rules.clauses import keys_in


class RuleIndex:
    """Rules in a fixed order, and which of them concern a fact."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Index the rules by the keys in their clauses."""
        self.rules = tuple(rules)
        self._about: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for key in keys_in(rule):
                self._about.setdefault(key, []).append(number)

    def concerned(self, keys: Iterable[str]) -> list[Rule]:
        """Return the rules that concern one of these facts, in their order."""
        numbers = {number for key in keys for number in self._about.get(key, ())}
        return [self.rules[number] for number in sorted(numbers)]
