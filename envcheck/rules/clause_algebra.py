"""Relations between clauses: whether one implies another, overlaps it, or can be satisfied at all.

Clauses are compared on sample values: every bound they name, and a value between, below and above the
bounds. Clauses with equal answers on all samples accept the same values. The samples are evaluated by the
judge's own comparator, so there is no second algebra of versions that could disagree with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Tri, Value, is_device_key
from envcheck.core.rules import Clause, Ref, When
from envcheck.rules.clauses import evaluate

OTHER = "another-word"
"""A sample for all words that no clause names."""


def answer(clause: Clause, reading: Reading) -> Tri:
    """Return the clause's answer for one reading; maybe if the clause compares with another fact."""
    if isinstance(reading, Absent):
        return Tri.of(any(test.op == "absent" for alternative in clause.any_of for test in alternative))
    fact = Fact(clause.key, reading)
    if is_device_key(clause.key):
        return evaluate(clause, Inventory(devices=({clause.key: fact},)), 0)
    return evaluate(clause, Inventory({clause.key: fact}))


def sample_readings(clauses: Sequence[Clause], declared: Key | None) -> list[Reading]:
    """Return readings of one fact that tell these clauses apart: Absent, every bound, and values between."""
    return [Absent(), *(Known(value) for value in _sample_values(clauses, declared))]


def _sample_values(clauses: Sequence[Clause], declared: Key | None) -> Iterable[Value]:
    operands = [operand for clause in clauses for operand in _constant_operands(clause)]
    match clauses[0].kind:
        case Kind.VERSION:
            return _sample_versions(str(operand).removesuffix(".*") for operand in operands)
        case Kind.NUMBER:
            return _sample_numbers(map(int, operands))
        case Kind.FLAG:
            return (True, False)
        case Kind.WORD:
            closed = declared.words if declared else ()
            return closed or (*map(str, operands), OTHER)
        case Kind.WORDS:
            return (*((str(operand),) for operand in operands), (OTHER,), ())


def _constant_operands(clause: Clause) -> Iterator[str | int | bool]:
    """Yield the values that a clause compares its fact with; other facts are left out."""
    for alternative in clause.any_of:
        for test in alternative:
            if test.op not in ("present", "absent") and not isinstance(test.operand, Ref):
                yield test.operand


def _sample_numbers(bounds: Iterable[int]) -> list[int]:
    """Return the bounds, and the numbers just below and above them."""
    return sorted({bound + step for bound in set(bounds) or {0} for step in (-1, 0, 1)})


def _sample_versions(bounds: Iterable[str]) -> Iterator[str]:
    """Yield the bounds, and one version below, between and above them."""
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
        between = _version_after(bound)
        if bound < between < following:
            yield str(between)


def _version_after(bound: Version) -> Version:
    """Return a version just above the bound: its release for a pre-release, else its next post-release."""
    if bound.is_prerelease:
        return Version(bound.base_version)
    post = -1 if bound.post is None else bound.post
    return Version(f"{bound.base_version}.post{post + 1}")


def satisfiable(clause: Clause, declared: Key | None) -> bool:
    """Return whether any reading satisfies the clause."""
    return any(answer(clause, reading) is not Tri.NO for reading in sample_readings([clause], declared))


def implies(one: Clause, other: Clause, declared: Key | None) -> bool:
    """Return whether every reading that satisfies `one` satisfies `other`; both are about the same fact."""
    if one.any_of == other.any_of:
        return True
    return all(
        answer(other, reading) is Tri.YES
        for reading in sample_readings([one, other], declared)
        if answer(one, reading) is not Tri.NO
    )


def overlap(one: Clause, other: Clause, declared: Key | None) -> bool:
    """Return whether some reading satisfies both clauses."""
    return any(
        Tri.NO not in (answer(one, reading), answer(other, reading))
        for reading in sample_readings([one, other], declared)
    )


class Interval(NamedTuple):
    """Versions from `low` up to but not including `high`; an empty string means that there is no bound."""

    low: str
    high: str


def interval(clause: Clause) -> Interval | None:
    """Return the clause as one contiguous range, or None (a list, `!=`, `==`, an empty range)."""
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
        return None  # the range is empty
    return Interval(low, high) if low or high else None


def table_implies(one: When, other: When, declared: dict[str, Key | None]) -> bool:
    """Return whether every combination of facts that satisfies `one` satisfies `other`."""
    by_key = {clause.key: clause for clause in one}
    return all(
        clause.key in by_key and implies(by_key[clause.key], clause, declared.get(clause.key))
        for clause in other
    )
