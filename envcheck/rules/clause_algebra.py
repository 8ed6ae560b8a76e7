"""What a clause covers: sample values on both sides of every bound, answered by the one comparator.

Two clauses cover the same ground if they answer alike on values taken from all their bounds and from
between them. So whether one implies another, or whether a rule can hold at all, needs no second
algebra of versions that could disagree with the judge's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Tri, Value, of_device
from envcheck.core.rules import Clause, Ref, When
from envcheck.rules.clauses import ask

OTHER = "another-word"
"""Stands for every word that no clause names."""


def answer(clause: Clause, reading: Reading) -> Tri:
    """What the clause says of one reading; maybe if it compares with another fact."""
    if isinstance(reading, Absent):
        return Tri.of(any(test.op == "absent" for each in clause.any_of for test in each))
    fact = Fact(clause.key, reading)
    if of_device(clause.key):
        return ask(clause, Inventory(devices=({clause.key: fact},)), 0)
    return ask(clause, Inventory({clause.key: fact}))


def samples(clauses: Sequence[Clause], declared: Key | None) -> list[Reading]:
    """Readings of one fact that tell these clauses apart: Absent, every bound, and what lies between."""
    operands = [
        test.operand
        for clause in clauses
        for alternative in clause.any_of
        for test in alternative
        if test.op not in ("present", "absent") and not isinstance(test.operand, Ref)
    ]
    values: Iterable[Value]
    match clauses[0].kind:
        case Kind.VERSION:
            values = _versions(str(each).removesuffix(".*") for each in operands)
        case Kind.NUMBER:
            numbers = {int(each) for each in operands} or {0}
            values = sorted({number + step for number in numbers for step in (-1, 0, 1)})
        case Kind.FLAG:
            values = (True, False)
        case Kind.WORD:
            closed = declared.words if declared else ()
            values = closed or (*(str(each) for each in operands), OTHER)
        case Kind.WORDS:
            values = (*((str(each),) for each in operands), (OTHER,), ())
    return [Absent(), *(Known(value) for value in values)]


def _versions(bounds: Iterable[str]) -> Iterator[str]:
    """The bounds, and one version below, between and above them."""
    parsed = sorted({Version(text) for text in bounds})
    if not parsed:
        yield "1.0"
        return
    if parsed[0] > Version("0"):
        yield "0"
    for bound, following in zip(parsed, [*parsed[1:], None], strict=True):
        yield str(bound)
        if following is None:
            yield f"{bound.epoch}!{bound.release[0] + 1}"
            continue
        post = -1 if bound.post is None else bound.post
        inside = Version(
            bound.base_version if bound.is_prerelease else f"{bound.base_version}.post{post + 1}"
        )
        if bound < inside < following:
            yield str(inside)


def can_hold(clause: Clause, declared: Key | None) -> bool:
    """Whether any value at all satisfies the clause."""
    return any(answer(clause, each) is not Tri.NO for each in samples([clause], declared))


def implies(one: Clause, other: Clause, declared: Key | None) -> bool:
    """Whether every value that satisfies one clause satisfies the other, on the same fact."""
    if one.any_of == other.any_of:
        return True
    return all(
        answer(other, each) is Tri.YES
        for each in samples([one, other], declared)
        if answer(one, each) is not Tri.NO
    )


def meet(one: Clause, other: Clause, declared: Key | None) -> bool:
    """Whether some value satisfies both."""
    return any(
        Tri.NO not in (answer(one, each), answer(other, each)) for each in samples([one, other], declared)
    )


class Interval(NamedTuple):
    """Versions from `low` up to but not including `high`; an empty text is no bound."""

    low: str
    high: str


def interval(clause: Clause) -> Interval | None:
    """The one range a version clause is; None if it is none: a list, a hole, one version."""
    if clause.kind is not Kind.VERSION or len(clause.any_of) != 1:
        return None
    low = high = ""
    for test in clause.any_of[0]:
        if isinstance(test.operand, Ref) or test.op not in (">=", "<"):
            return None
        if test.op == ">=":
            low = max(low, str(test.operand), key=versions.order) if low else str(test.operand)
        else:
            high = min(high, str(test.operand), key=versions.order) if high else str(test.operand)
    if low and high and versions.order(low) >= versions.order(high):
        return None  # nothing is in it
    return Interval(low, high) if low or high else None


def table_implies(one: When, other: When, declared: dict[str, Key | None]) -> bool:
    """Whether every combination that satisfies the first table satisfies the second."""
    by_key = {clause.key: clause for clause in one}
    return all(
        clause.key in by_key and implies(by_key[clause.key], clause, declared.get(clause.key))
        for clause in other
    )
