"""Find a minimal set of reasons that together refuse every choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.errors import NoSolutionError
from envcheck.resolution import resolver
from envcheck.resolution.conflicts.folding import MOST_LINES
from envcheck.resolution.conflicts.sentences import conflict_sentences
from envcheck.resolution.conflicts.view import DROP_ORDER, AllBut, ConflictView
from envcheck.resolution.conflicts.ways_out import ways_out
from envcheck.resolution.resolver import Reason, SearchProblem

MOST_WAYS = 6
"""Number of ways out that are shown. More would be hard to compare."""


class ConflictProof(NamedTuple):
    """A sentence for each conflicting reason, a sentence for each way out that helps, and the reasons."""

    conflict: tuple[str, ...]
    ways_out: tuple[str, ...]
    reasons: frozenset[Reason]


def prove(problem: SearchProblem, reasons: frozenset[Reason], most: int = MOST_LINES) -> ConflictProof:
    """Return a minimal set of these reasons that refuses every choice, in `most` sentences, and ways out."""
    least = _least(problem, reasons)
    view = ConflictView(problem, least)
    return ConflictProof(tuple(conflict_sentences(view, most)), tuple(_first_distinct(ways_out(view))), least)


def _first_distinct(sentences: Iterator[str]) -> Iterator[str]:
    """Yield the first `MOST_WAYS` different sentences, then stop the search for more."""
    seen: set[str] = set()
    for sentence in sentences:
        if sentence not in seen:
            seen.add(sentence)
            yield sentence
        if len(seen) == MOST_WAYS:
            return


def _least(problem: SearchProblem, reasons: frozenset[Reason]) -> frozenset[Reason]:
    kept = reasons
    for reason in sorted(reasons, key=lambda reason: (DROP_ORDER.index(reason[0]), reason)):
        if reason not in kept:
            continue
        try:
            answer = resolver.solve(problem, AllBut(kept - {reason}))
        except NoSolutionError:
            continue  # the search gave up, so it is not shown that the other reasons are enough
        if answer.versions is None:
            kept = answer.reasons & kept
    return kept
