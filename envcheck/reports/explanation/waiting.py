"""The collective calls in which ranks waited until a timeout, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.logs.collectives import WaitingRank, out_of_step
from envcheck.reports.explanation.wording import LISTED


def waiting_sentence(waiting: Sequence[WaitingRank]) -> str:
    """Return in one line that ranks waited in different calls; empty if they did not."""
    if not out_of_step(waiting):
        return ""
    return f"the ranks waited in different collective calls: {_calls(waiting)}"


def waiting_lines(waiting: Sequence[WaitingRank]) -> Iterator[str]:
    """Yield in which calls the ranks waited, what that means, and what to do."""
    if len(waiting) < 2:  # noqa: PLR2004 - one rank cannot be compared
        return
    yield f"    waits   {_calls(waiting)}"
    if out_of_step(waiting):
        yield (
            "    means   if these calls are of one group, a rank skipped a step or took another branch than "
            "the others; the link between them is not at fault"
        )
        yield (
            "    advice  let all ranks take the same number of steps (drop_last, a sampler that pads) and "
            "the same branches: no evaluation, save, early end or skipped batch on one rank alone"
        )
    elif len({each.call for each in waiting}) == 1:
        yield (
            "    means   these ranks wait in the same call: a rank that is not among them did not come, and "
            "its log says why; if all are among them, the link or the driver is at fault"
        )


def _calls(waiting: Sequence[WaitingRank]) -> str:
    """Return each call with the ranks that waited in it: `ranks 0 and 2 in ALLREDUCE 1580`."""
    ranks: dict[str, list[int]] = {}
    for each in waiting:
        size = f" of {each.elements} element{'s' * (each.elements != '1')}" if each.elements else ""
        ranks.setdefault(f"{each.operation} {each.number}{size}", []).append(each.rank)
    shown = [f"{_ranks(those)} in {call}" for call, those in list(ranks.items())[:LISTED]]
    more = len(ranks) - len(shown)
    return ", ".join(shown) + (f" and {more} other calls" if more else "")


def _ranks(numbers: Sequence[int]) -> str:
    """Return the numbers of ranks in words."""
    shown = ", ".join(map(str, numbers[:LISTED]))
    more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    return f"rank{'s' * (len(numbers) > 1)} {shown}{more}"
