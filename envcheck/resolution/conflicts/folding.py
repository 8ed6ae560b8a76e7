"""Keep the explanation of a conflict short, whatever the number of its reasons.

A proof needs all its reasons, so none is dropped while lines can be joined: first the requirements of one
package, then rules about the same packages, then what is asked for. If there are still too many lines, the
last one names the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST_LINES = 7
"""Number of lines for the reasons of a conflict, so that they and the line above them are at most 8."""


class ConflictLine(NamedTuple):
    """Hold one line of an explanation: its kind, what it is about, its text, and a short name for it.

    Lines of one kind about the same can be joined.
    """

    kind: str
    about: str
    text: str
    name: str


Join = Callable[[Sequence[ConflictLine]], ConflictLine]
"""Joins lines of one kind about the same."""


def fold(
    lines: Sequence[ConflictLine], joins: Sequence[tuple[str, Join]], most: int = MOST_LINES
) -> list[str]:
    """Return the texts of at most `most` lines; join lines kind by kind, in this order, until they fit."""
    for kind, join in joins:
        if len(lines) <= most:
            break
        lines = _joined(lines, kind, join)
    if len(lines) > most:
        rest = lines[most - 1 :]
        named = ", ".join(dict.fromkeys(line.name for line in rest))
        return [*(line.text for line in lines[: most - 1]), f"and {len(rest)} more: {named}"]
    return [line.text for line in lines]


def _joined(lines: Sequence[ConflictLine], kind: str, join: Join) -> list[ConflictLine]:
    groups: dict[tuple[str, ...], list[ConflictLine]] = {}
    for number, line in enumerate(lines):
        key = (kind, line.about) if line.kind == kind else (line.kind, line.about, str(number))
        groups.setdefault(key, []).append(line)
    return [join(group) if len(group) > 1 else group[0] for group in groups.values()]
