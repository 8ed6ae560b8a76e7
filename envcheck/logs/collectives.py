"""The collective calls in which ranks were waiting when NCCL's watchdog ended them. Pure.

Each rank counts the calls of a group. Ranks that wait in calls of different kinds, sizes or numbers have left
the common path: one of them skipped a step or took another branch, and the link between them is not at fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_WAITED = re.compile(
    r"\bRank (?P<rank>\d{1,5})\] {1,4}Watchdog caught collective operation timeout: WorkNCCL\("
    r"(?P<fields>[^()\n]{1,300})(?:\(ms\)=\d{1,12}\)|\))"
)
_FIELD = re.compile(r"(\w+)=(\w+)")


class WaitingRank(NamedTuple):
    """Hold a rank, the collective call in which it waits, its number in the group, and its elements."""

    rank: int
    operation: str
    number: int
    elements: str

    @property
    def call(self) -> tuple[int, str, str]:
        """Return what is equal on all ranks that wait for one another."""
        return self.number, self.operation, self.elements


def waiting_ranks(texts: Iterable[str]) -> tuple[WaitingRank, ...]:
    """Return the ranks that waited, each in its first call that timed out, in the order of their numbers."""
    found: dict[int, WaitingRank] = {}
    for text in texts:
        for match in _WAITED.finditer(text) if "Watchdog caught" in text else ():
            fields = dict(_FIELD.findall(match["fields"]))
            number = fields.get("SeqNum", "")
            if number.isdecimal() and "OpType" in fields:
                rank = int(match["rank"])
                waiting = WaitingRank(rank, fields["OpType"], int(number), fields.get("NumelIn", ""))
                found.setdefault(rank, waiting)
    return tuple(found[rank] for rank in sorted(found))


_FAR = 50
"""Calls between two ranks of one group, at most; greater distances are those of different groups."""


def out_of_step(waiting: Iterable[WaitingRank]) -> bool:
    """Return whether the ranks wait in different calls that are near one another, as those of one group."""
    calls = {each.call for each in waiting}
    numbers = [number for number, _, _ in calls]
    return len(calls) > 1 and max(numbers) - min(numbers) <= _FAR
