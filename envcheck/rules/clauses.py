"""The clause grammar: what a rule may ask of a fact, how it is written in TOML, and its answer.

A clause is one key and what its value must be; a list means any of its values. Versions and numbers
take bounds (`">=2.5,<3"`), words and flags a value (`"!=none"`), any key `"present"` or `"absent"`, and
`"<{cuda.minimum_driver}"` compares two facts. There is no other operator: what does not fit becomes
a derived fact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import Absent, Inventory, Key, Kind, Known, Tri, Unknown, Value
from envcheck.core.rules import ABSENT, PRESENT, Clause, Comparison, Ref

RULE_OPERATORS = frozenset({"==", "!=", ">=", "<"})
"""What a bound in compat/ may use, so that every version falls on one side of it."""

# --- from TOML --------------------------------------------------------------------------------------


def clause(key: str, declared: Key, raw: Any) -> Clause:
    """One clause from its TOML value: a list means any of its values.

    Raises:
        ValueError: the value does not fit the fact's kind.
    """
    alternatives = raw if isinstance(raw, list) else [raw]
    any_of = tuple(_alternative(declared, each) for each in alternatives)
    if not any_of:
        raise ValueError("an empty list holds for nothing")
    return Clause(key, declared.kind, any_of, " or ".join(shown(each) for each in alternatives))


def shown(raw: Any) -> str:
    """A value as a rule file spells it: true, not True."""
    return str(raw).lower() if isinstance(raw, bool) else str(raw)


def _alternative(declared: Key, raw: Any) -> tuple[Comparison, ...]:
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
            return _bounds(raw, declared.kind)
        case (Kind.WORD | Kind.WORDS, str()):
            op, word = ("!=", raw[2:]) if raw.startswith("!=") else ("==", raw)
            if declared.words and word not in declared.words:
                raise ValueError(f"{word!r} is none of {', '.join(declared.words)}")
            return (Comparison(op, word),)
        case _:
            raise ValueError(f"{raw!r} does not fit a {declared.kind.value}")


def _bounds(raw: str, kind: Kind) -> tuple[Comparison, ...]:
    bounds = versions.parse_specifier(raw)
    if not bounds:
        raise ValueError("an empty bound holds for everything")
    for bound in bounds:
        if bound.op not in RULE_OPERATORS:
            raise ValueError(f"{raw!r}: bounds use {_operators()} only")
    if kind is Kind.NUMBER:
        return tuple(Comparison(bound.op, int(str(bound.operand))) for bound in bounds)
    return bounds


def _operators() -> str:
    return ", ".join(sorted(RULE_OPERATORS))


def refs(of: Clause) -> Iterator[str]:
    """Keys of the facts a clause compares with."""
    for alternative in of.any_of:
        for test in alternative:
            if isinstance(test.operand, Ref):
                yield test.operand.key


# --- its answer -------------------------------------------------------------------------------------


def ask(clause: Clause, inventory: Inventory, device: int | None = None) -> Tri:
    """Whether the clause holds for the inventory (of the given device, for a `gpu.*` key)."""
    reading = inventory.fact(clause.key, device).reading
    if isinstance(reading, Unknown):
        return Tri.MAYBE
    if isinstance(reading, Absent):
        return Tri.YES if (ABSENT,) in clause.any_of else Tri.NO
    best = Tri.NO
    # Loops and no generators: a thousand clauses are asked in a tenth of a second.
    for alternative in clause.any_of:
        answer = Tri.YES
        for test in alternative:
            if test.op in ("present", "absent"):
                compared = Tri.of(test.op == "present")
            else:
                compared = _compare(reading.value, clause.kind, test, inventory, device)
            answer = min(answer, compared)
            if answer is Tri.NO:
                break
        best = max(best, answer)
        if best is Tri.YES:
            break
    return best


def _compare(value: Value, kind: Kind, test: Comparison, inventory: Inventory, device: int | None) -> Tri:
    operand = test.operand
    if isinstance(operand, Ref):
        other = inventory.fact(operand.key, device).reading
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
