"""Rules by the facts that they concern, so that after a change only rules on changed facts are judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from envcheck.core import versions
from envcheck.core.facts import Inventory, Known, Reading, Tri, is_device_key
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Clause, Rule
from envcheck.rules.clauses import evaluate, keys_in, referenced_keys


class RuleIndex:
    """Rules in a fixed order, and which of them concern a fact."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """Index the rules by the keys in their clauses."""
        self.rules = tuple(rules)
        self._about: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for key in keys_in(rule):
                self._about.setdefault(key, []).append(number)

    def numbers(self, key: str) -> list[int]:
        """Return the places of the rules that concern a fact."""
        return self._about.get(key, [])

    def concerned(self, keys: Iterable[str]) -> list[Rule]:
        """Return the rules that concern one of these facts, in their order."""
        numbers = {number for key in keys for number in self._about.get(key, ())}
        return [self.rules[number] for number in sorted(numbers)]


class ChangedAnswers:
    """Find the rules that may be judged differently after changes to one inventory.

    Most rules on a changed fact answer as before: of 130 rules about transformers, a move from 4.41 to 4.44
    concerns the few with a bound between the two. Their findings stay those of the start, and name the
    releases of the start.
    """

    def __init__(self, index: RuleIndex, start: Inventory) -> None:
        """Take the rules and the inventory before any change."""
        self._index, self._start = index, start
        self._clauses: dict[str, list[_ClauseAtStart]] = {}
        self._changed: dict[tuple[str, tuple[Reading, ...]], Collection[int]] = {}

    def concerned(self, keys: Iterable[str], after: Inventory) -> list[Rule]:
        """Return the rules of which a clause on one of these facts answers differently now."""
        numbers: set[int] = set()
        for key in keys:
            readings = _readings(after, key)
            changed = self._changed.get((key, readings))
            if changed is None:
                changed = self._changed[key, readings] = self._changed_by(key, readings, after)
            numbers.update(changed)
        return [self._index.rules[number] for number in sorted(numbers)]

    def _changed_by(self, key: str, readings: tuple[Reading, ...], after: Inventory) -> Collection[int]:
        before = _readings(self._start, key)
        if any(map(_is_told_apart, before, readings)):
            return self._index.numbers(key)
        devices = _devices(after, key)
        return [
            number
            for number, clause, answers in self._clauses_on(key)
            if clause is None or [evaluate(clause, after, device) for device in devices] != answers
        ]

    def _clauses_on(self, key: str) -> list[_ClauseAtStart]:
        if key not in self._clauses:
            self._clauses[key] = list(self._evaluated_at_start(key))
        return self._clauses[key]

    def _evaluated_at_start(self, key: str) -> Iterator[_ClauseAtStart]:
        devices = _devices(self._start, key)
        for number in self._index.numbers(key):
            rule = self._index.rules[number]
            clauses = [clause for table in (*rule.when, rule.require) for clause in table]
            if any(clause.key == key and any(referenced_keys(clause)) for clause in clauses) or any(
                key in referenced_keys(clause) for clause in clauses
            ):
                yield _ClauseAtStart(number, None, [])
                continue
            for clause in clauses:
                if clause.key == key:
                    answers = [evaluate(clause, self._start, device) for device in devices]
                    yield _ClauseAtStart(number, clause, answers)


class _ClauseAtStart(NamedTuple):
    """Hold a clause of a rule by the rule's number, and its answers before any change.

    The clause is None if it compares two facts, so that its answer is not that of one reading.
    """

    number: int
    clause: Clause | None
    answers: Sequence[Tri]


def _devices(inventory: Inventory, key: str) -> tuple[int | None, ...]:
    """Return where a fact is read: on the machine, and if it is one of GPUs, on each."""
    return (None, *range(len(inventory.devices))) if is_device_key(key) else (None,)


def _readings(inventory: Inventory, key: str) -> tuple[Reading, ...]:
    return tuple(inventory.reading(key, device) for device in _devices(inventory, key))


def _is_told_apart(before: Reading, after: Reading) -> bool:
    """Return whether the judge may tell two readings apart although every clause answers the same."""
    if isinstance(before, Known) and isinstance(after, Known):
        # A finding on a vendor's build is at most a warning.
        return _is_vendor_build(before) != _is_vendor_build(after)
    return before != after


def _is_vendor_build(reading: Known) -> bool:
    version = versions.parse(str(reading.value))
    return version is not None and versions.is_vendor_build(version)
