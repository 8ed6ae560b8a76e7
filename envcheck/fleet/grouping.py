"""Which nodes the judge cannot tell apart, so that each distinct machine is judged only once.

Two nodes are the same machine if every fact that a rule tests has the same reading. For a number, only the
side of each bound counts: 100 and 200 GiB are the same if no rule has a bound between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import Facts, Inventory, Kind, Known, Reading, family
from envcheck.core.rules import Clause, Matrix, Ref
from envcheck.rules.clauses import referenced_keys

_DERIVED_FROM = frozenset({"host.os", "host.arch"})  # facts that others are derived from
_IRRELEVANT = frozenset({"gpu.memory_free_mib", "python.origin", "gpus.models"})


class JudgeView(NamedTuple):
    """Facts by which the judge can tell machines apart, and the bounds of those that are numbers."""

    keys: frozenset[str]
    bounds: Mapping[str, tuple[int, ...]]
    pairs: tuple[tuple[str, str], ...]  # numbers of the host that rules compare with each other

    def sees(self, key: str) -> bool:
        """Return whether the judge can tell two machines apart by this fact.

        Facts of the host and environment variables count only if a rule tests them. Nearly all facts of
        packages and GPUs count.
        """
        if key in self.keys:
            return True
        return family(key) not in ("host", "env") and key not in _IRRELEVANT


def judge_view(known: Matrix) -> JudgeView:
    """Return the view that the rules and defaults of the matrix need."""
    clauses = [*_clauses(known)]
    keys = {key for clause in clauses for key in (clause.key, *referenced_keys(clause))}
    pairs = {(clause.key, key) for clause in clauses for key in referenced_keys(clause)}
    host_pairs = {pair for pair in pairs if {family(key) for key in pair} == {"host"}}
    # A number that is compared with a fact outside the host has no fixed bound, so its exact value counts.
    exact = {key for pair in pairs - host_pairs for key in pair}
    bounds = _bounds(clauses)
    for key in (key for pair in host_pairs for key in pair):
        bounds.setdefault(key, set())
    return JudgeView(
        frozenset(keys) | _DERIVED_FROM,
        {key: tuple(sorted(numbers)) for key, numbers in bounds.items() if key not in exact},
        tuple(sorted(host_pairs)),
    )


def _clauses(known: Matrix) -> Iterator[Clause]:
    for rule in known.rules:
        for table in (*rule.when, rule.require):
            yield from table
    for default in known.defaults:
        yield from default.when


def _bounds(clauses: Iterable[Clause]) -> dict[str, set[int]]:
    """Return the numbers with which clauses compare facts of the host and of GPUs, by key."""
    bounds: dict[str, set[int]] = {}
    for clause in clauses:
        if clause.kind is Kind.NUMBER and family(clause.key) in ("host", "gpu"):
            bounds.setdefault(clause.key, set()).update(_operands(clause))
    return bounds


def _operands(clause: Clause) -> Iterator[int]:
    for test in (test for tests in clause.any_of for test in tests):
        if not isinstance(test.operand, Ref) and not isinstance(test.operand, bool):
            yield int(test.operand)


def machine_key(inventory: Inventory, view: JudgeView) -> Any:
    """Return a hashable value; it is equal for two inventories if the judge cannot tell them apart."""

    def reduced(key: str, reading: Reading) -> Any:
        if isinstance(reading, Known) and key in view.bounds and isinstance(reading.value, int):
            return side_of(view.bounds[key], reading.value)
        return reading

    def visible(facts: Facts) -> Any:
        return tuple(
            sorted((key, reduced(key, fact.reading)) for key, fact in facts.items() if view.sees(key))
        )

    return (
        visible(inventory.facts),
        tuple(_order_of_pair(inventory, pair) for pair in view.pairs),
        tuple(visible(device) for device in inventory.devices),
        inventory.complete,
        tuple(sorted((key, why) for key, why in inventory.unread.items() if view.sees(key))),
    )


def side_of(bounds: Sequence[int], number: int) -> tuple[int, bool]:
    """Return how many sorted bounds are below a number, and whether it equals one."""
    return bisect_left(bounds, number), number in bounds


def _order_of_pair(inventory: Inventory, pair: tuple[str, str]) -> int | None:
    """Return -1, 0 or 1 if the first number is less than, equal to or greater than the second.

    Return None if one of them is not known.
    """
    one, other = (inventory.fact(key).value for key in pair)
    return (one > other) - (one < other) if isinstance(one, int) and isinstance(other, int) else None
