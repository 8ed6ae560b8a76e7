"""Clauses: how a condition on one fact is written in TOML, and its answer for an inventory.

A clause names a key and the values it accepts; a list accepts any of its entries. Versions and numbers
take bounds (`">=2.5,<3"`), words and flags a value (`"!=none"`), any key `"present"` or `"absent"`.
`"<{cuda.minimum_driver}"` compares two facts. There are no other operators: a condition that needs one is
expressed by a derived fact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import Absent, Inventory, Key, Kind, Known, Tri, Unknown, Value
from envcheck.core.rules import ABSENT, PRESENT, Clause, Comparison, Ref, Rule

RULE_OPERATORS = frozenset({"==", "!=", ">=", "<"})
"""The operators of bounds in compat/: each version lies on one side of such a bound."""

# --- from TOML --------------------------------------------------------------------------------------


def parse_clause(key: str, declared: Key, raw: Any) -> Clause:
    """Parse a clause from its TOML value; a list accepts any of its entries.

    Raises:
        ValueError: the value does not fit the fact's kind.
    """
    alternatives = raw if isinstance(raw, list) else [raw]
    any_of = tuple(_parse_alternative(declared, alternative) for alternative in alternatives)
    if not any_of:
        raise ValueError("expected a value; an empty list matches nothing")
    return Clause(key, declared.kind, any_of, " or ".join(map(format_value, alternatives)))


def format_value(raw: Any) -> str:
    """Return a value as a rule file spells it: true, not True."""
    return str(raw).lower() if isinstance(raw, bool) else str(raw)


def _parse_alternative(declared: Key, raw: Any) -> tuple[Comparison, ...]:
    if raw in ("present", "absent"):
        return (PRESENT if raw == "present" else ABSENT,)
    if isinstance(raw, str) and raw.endswith("}") and "{" in raw:
        head, _, name = raw.partition("{")
        if head not in RULE_OPERATORS:
            raise ValueError(f"{raw!r}: expected one of {_operators()} before {{")
        return (Comparison(head, Ref(name.removesuffix("}"))),)
    match declared.kind, raw:
        case (Kind.FLAG, bool()):
            return (Comparison("==", raw),)
        case (Kind.NUMBER, int()) if not isinstance(raw, bool):
            return (Comparison("==", raw),)
        case (Kind.NUMBER | Kind.VERSION, str()):
            return _parse_bounds(raw, declared.kind)
        case (Kind.WORD | Kind.WORDS, str()):
            op, word = ("!=", raw[2:]) if raw.startswith("!=") else ("==", raw)
            if declared.words and word not in declared.words:
                raise ValueError(f"expected one of {', '.join(declared.words)}; found {word!r}")
            return (Comparison(op, word),)
        case _:
            raise ValueError(f"{raw!r} does not fit a {declared.kind.value}")


def _parse_bounds(raw: str, kind: Kind) -> tuple[Comparison, ...]:
    bounds = versions.parse_specifier(raw)
    if not bounds:
        raise ValueError("expected a bound; an empty one matches everything")
    for bound in bounds:
        if bound.op not in RULE_OPERATORS:
            raise ValueError(f"{raw!r}: expected bounds with {_operators()}")
    if kind is Kind.NUMBER:
        return tuple(Comparison(bound.op, int(str(bound.operand))) for bound in bounds)
    return bounds


def _operators() -> str:
    return ", ".join(sorted(RULE_OPERATORS))


def referenced_keys(clause: Clause) -> Iterator[str]:
    """Yield the keys of the facts that a clause compares its own fact with."""
    for alternative in clause.any_of:
        for test in alternative:
            if isinstance(test.operand, Ref):
                yield test.operand.key


def keys_in(rule: Rule) -> set[str]:
    """Return the keys of the facts that a rule's clauses name or compare with."""
    keys: set[str] = set()
    # Loops, because every start with a finding asks this of all rules, and generators take twice as long.
    for table in (*rule.when, rule.require):
        for clause in table:
            keys.add(clause.key)
            for alternative in clause.any_of:
                for _, operand in alternative:
                    if isinstance(operand, Ref):
                        keys.add(operand.key)
    return keys


# --- evaluation -------------------------------------------------------------------------------------


class Evaluation:
    """Keep the answers of clauses on one inventory. A clause is evaluated once, however many rules have it.

    Half of all clauses are repetitions, and the judge asks twice. The clauses have to live as long as this
    object does, because answers are kept by their identity.
    """

    def __init__(self, inventory: Inventory) -> None:
        """Take the inventory; nothing is evaluated yet."""
        self.inventory = inventory
        self._answers: dict[tuple[int, int | None], Tri] = {}

    def answer(self, clause: Clause, device: int | None = None) -> Tri:
        """Return whether the inventory satisfies the clause; see `evaluate`."""
        asked = id(clause), device
        found = self._answers.get(asked)
        if found is None:
            found = self._answers[asked] = evaluate(clause, self.inventory, device)
        return found


def evaluate(clause: Clause, inventory: Inventory, device: int | None = None) -> Tri:
    """Return whether the inventory satisfies the clause, on the given device if its key is a device key."""
    reading = inventory.reading(clause.key, device)
    if isinstance(reading, Unknown):
        return Tri.MAYBE
    if isinstance(reading, Absent):
        return Tri.YES if (ABSENT,) in clause.any_of else Tri.NO
    best = Tri.NO
    # Loops and comparisons, because generators, `min` and `max` are slower, and doctor evaluates a thousand
    # clauses in a tenth of a second.
    for alternative in clause.any_of:
        answer = Tri.YES
        for test in alternative:
            if test.op in ("present", "absent"):
                compared = Tri.of(test.op == "present")
            else:
                compared = _compare(reading.value, clause.kind, test, inventory, device)
            if compared is Tri.NO:
                answer = compared
                break
            if compared is Tri.MAYBE:
                answer = compared
        if answer is Tri.YES:
            return answer
        if answer is Tri.MAYBE:
            best = answer
    return best


def _compare(value: Value, kind: Kind, test: Comparison, inventory: Inventory, device: int | None) -> Tri:
    operand = test.operand
    if isinstance(operand, Ref):
        other = inventory.reading(operand.key, device)
        if not isinstance(other, Known):
            return Tri.MAYBE if isinstance(other, Unknown) else Tri.NO
        if isinstance(other.value, tuple):
            return Tri.NO
        operand = other.value
    match kind:
        case Kind.VERSION:
            return versions.compare(str(value), test.op, str(operand))
        case Kind.NUMBER:
            return _compare_numbers(value, test.op, operand)
        case Kind.WORDS:
            inside = isinstance(value, tuple) and str(operand) in value
            return Tri.of(inside == (test.op == "=="))
        case Kind.WORD | Kind.FLAG:
            return Tri.of((value == operand) == (test.op == "=="))


def _compare_numbers(value: Value, op: str, operand: str | int | bool) -> Tri:
    try:
        one, other = int(value), int(operand)  # type: ignore[arg-type] # a tuple raises TypeError, caught
    except (TypeError, ValueError):
        return Tri.MAYBE
    return Tri.of({"==": one == other, "!=": one != other, ">=": one >= other, "<": one < other}[op])
