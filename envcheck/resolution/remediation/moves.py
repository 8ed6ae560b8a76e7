"""Moves: a value proposed for a fact, the number of moves in a set of changes, and the size of each."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.core import versions
from envcheck.core.facts import Value
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Rule, uninstalls

_PATCH, _MINOR, _MAJOR, _OTHER_TRAINING = 1, 2, 3, 4


class Proposal(NamedTuple):
    """A value for one fact, the rule that proposes it, its cost in words, and the way out's position.

    `place` is the position among the ways out of the rule.
    """

    value: Value
    text: str  # the bound that the value satisfies; empty if there is none
    rule: Rule
    cost: str = ""
    place: int = 0


Changes = Mapping[str, Proposal]
"""Proposals by the key of the fact that each sets."""


class MoveSize(NamedTuple):
    """Size of one move, 1 to 4, and whether it is a downgrade."""

    size: int
    downwards: bool


def count_moves(changes: Changes) -> int:
    """Return the number of moves: one for each package, and one for the settings of each way out."""
    settings = [
        (proposal.rule.id, proposal.place) for key, proposal in changes.items() if not key.startswith("pkg.")
    ]
    return len(changes) - len(settings) + len(set(settings))


def move_size(key: str, before: Value | None, after: Value, cost: str = "") -> MoveSize:
    """Return the size of one move; `cost` is the cost in words, of a setting or of uninstalling a package."""
    if not key.startswith("pkg."):
        return MoveSize(_OTHER_TRAINING if cost else _PATCH, downwards=False)
    if uninstalls(key, after):
        return MoveSize(_MAJOR if cost else _PATCH, downwards=False)
    old = versions.parse(str(before)) if before is not None else None
    new = versions.parse(str(after))
    if old is None or new is None:
        return MoveSize(_MAJOR, downwards=False)
    parts = zip(_three_parts(old.release), _three_parts(new.release), (_MAJOR, _MINOR, _PATCH), strict=True)
    for old_part, new_part, size in parts:
        if old_part != new_part:
            return MoveSize(size, new_part < old_part)
    return MoveSize(_PATCH, new < old)


def _three_parts(release: tuple[int, ...]) -> tuple[int, ...]:
    return (*release, 0, 0, 0)[:3]
