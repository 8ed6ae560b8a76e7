"""Turn what the ranks of a test left behind (journals, exit codes, stacks) into the outcome of a variant.

If several ranks went wrong, the outcome names the one that caused it, whether it failed, died or hung.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json
from envcheck.selftest.declaration import SelftestDeclaration, SelftestVariant
from envcheck.selftest.outcome import FAIL, PASS, SKIP, UNKNOWN, Outcome
from envcheck.selftest.stacks import WaitState, innermost_line, waiting

_SIGABRT = 6
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

_LOST_PARTNER = re.compile(
    r"connection|peer|socket|broken pipe|timed? ?out|remote process|NCCL|ncclRemoteError", re.IGNORECASE
)
"""Matches the errors that a rank reports if its partner is gone."""

_CONSEQUENCE_S = 30.0
"""An error up to this many seconds before a death was noticed may be a consequence of that death.

A process that writes a core file dies that much later.
"""


class ProcessEnd(NamedTuple):
    """How the process of one rank ended: its exit code (None if killed at the deadline) and its output.

    `journal` is the text of the events that the rank wrote, as `_events` reads it. `stacks` maps
    `test.variant` to the stacks written shortly before the deadline.
    """

    code: int | None
    output: str
    journal: str
    stacks: Mapping[str, str]


class _Rank(NamedTuple):
    """One rank with the events of the variant in question."""

    number: int
    events: tuple[Mapping[str, Any], ...]
    ended: ProcessEnd
    stack: str

    def all(self, event: str) -> list[Mapping[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    def last(self, event: str) -> Mapping[str, Any]:
        """Return the last event of a kind; an empty mapping if there is none."""
        return next((each for each in reversed(self.events) if each["event"] == event), {})

    @property
    def last_call(self) -> str:
        return str(self.last("call").get("name", ""))


def outcome_of_ranks(
    claim: SelftestDeclaration, variant: SelftestVariant, ended: Sequence[ProcessEnd]
) -> Outcome:
    """Return the outcome of a variant from what each of its ranks left behind, rank 0 first."""
    ranks = [_rank(number, end, claim, variant) for number, end in enumerate(ended)]
    seen: dict[str, Any] = {}
    for rank in reversed(ranks):  # so that the values of rank 0 win
        for event in rank.all("saw"):
            values = event.get("values")
            seen.update(values if isinstance(values, dict) else {})
    seconds = max((float(rank.last("end").get("seconds") or 0.0) for rank in ranks), default=0.0)
    outcome = _Variant(claim, variant, ranks).outcome()
    return outcome._replace(seconds=max(seconds, outcome.seconds), seen=seen, ranks=len(ranks))


def _rank(number: int, end: ProcessEnd, claim: SelftestDeclaration, variant: SelftestVariant) -> _Rank:
    events = tuple(
        event
        for event in _events(end.journal)
        if (event.get("test"), event.get("variant")) == (claim.name, variant.name)
    )
    return _Rank(number, events, end, end.stacks.get(f"{claim.name}.{variant.name}", ""))


def _events(journal: str) -> Iterator[Mapping[str, Any]]:
    """Yield the events of all tests.

    Lines that are not events are skipped: a last line cut short by a kill, and output of a library.
    """
    for line in journal.splitlines():
        try:
            event = parse_json(line, "")
        except InputError:
            continue
        if (
            isinstance(event, dict)
            and isinstance(event.get("event"), str)
            and isinstance(event.get("time"), float)
        ):
            yield event


class _Variant(NamedTuple):
    """A variant with its ranks; finds the rank that decides the outcome."""

    claim: SelftestDeclaration
    variant: SelftestVariant
    ranks: Sequence[_Rank]

    def outcome(self) -> Outcome:
        """Return the outcome, which the first rank that went wrong decides.

        Ranks that probably only lost their partner are considered last.
        """
        absent = next((rank for rank in self.ranks if rank.last("absent")), None)
        if absent is not None:
            why = f"rank {absent.number} never came: the others waited for it to begin"
            return self._ended(FAIL, why, absent.number)
        failures = [(rank, event) for rank in self.ranks if (event := _failure(rank))]
        if failures:
            rank, event = min(failures, key=lambda each: (self._is_consequence(*each), each[1]["time"]))
            return self._erred(rank, event) if event["event"] == "end" else self._died(rank, event)
        ends = [rank.last("end") for rank in self.ranks]
        skipped = next((end for end in ends if end.get("result") == SKIP), None)
        if skipped is not None:
            return self._ended(SKIP, str(skipped.get("why", "")))
        return self._ended(PASS) if all(ends) else self._unfinished()

    def _ended(self, result: str, why: str = "", rank: int | None = None, call: str = "") -> Outcome:
        return Outcome(self.claim, self.variant, result, why, rank, call)

    def _is_consequence(self, rank: _Rank, event: Mapping[str, Any]) -> bool:
        """Return whether a rank probably went wrong only because another one had failed or was gone."""
        others = [_failure(other) for other in self.ranks if other is not rank]
        if event["event"] == "end":
            gone = [other for other in others if other and other["event"] in ("died", "lost")]
            near = any(event["time"] > other["time"] - _CONSEQUENCE_S for other in gone)
            lost_partner = _LOST_PARTNER.search(str(event.get("why"))) is not None
            return near and "accused" not in event and lost_partner
        # SIGABRT after an error elsewhere: a library aborted this rank because its partner had failed.
        earlier = any(other and other["time"] < event["time"] for other in others)
        return event.get("signal") == _SIGABRT and earlier

    def _erred(self, rank: _Rank, end: Mapping[str, Any]) -> Outcome:
        """Return the outcome of a rank that ended with an error.

        The error may name the rank at fault (`accused`); -1 means that no single rank is at fault.
        """
        accused = end.get("accused")
        number = accused if isinstance(accused, int) and -1 <= accused < len(self.ranks) else rank.number
        return Outcome(
            self.claim,
            self.variant,
            FAIL if end.get("result") == FAIL else UNKNOWN,
            str(end.get("why", "")),
            number if number >= 0 else None,
            str(end.get("call", "")),
            str(end.get("place", "")),
            str(end.get("trace", "")),
        )

    def _died(self, rank: _Rank, death: Mapping[str, Any]) -> Outcome:
        """Return the outcome of a rank that died or was lost."""
        if death["event"] == "lost":
            how = "was lost: no further report from it"
        elif isinstance(death.get("signal"), int):
            how = f"was killed by {_signal_name(death['signal'])}"
        else:
            how = f"ended itself with exit status {death.get('code')}"
        subject = f"rank {rank.number}" if len(self.ranks) > 1 else "the process"
        why = f"{subject} {how}{_after_colon(_last_line(str(death.get('said', ''))))}"
        return self._ended(FAIL, why, rank.number, rank.last_call)

    # --- no rank reported a failure, and some did not end

    def _unfinished(self) -> Outcome:
        """Return the outcome if no rank failed but some did not end: they hang or never started."""
        unended = [rank for rank in self.ranks if not rank.last("end")]
        stopped = any(rank.last("late") or rank.last("stopped") for rank in unended)
        if self.ranks[0].ended.code and not stopped and any(map(_is_in_a_test, self.ranks)):
            return self._worker_died()
        silent = next((rank for rank in unended if not rank.last("begin")), None)
        return self._not_begun(silent) if silent is not None else self._hung(unended)

    def _worker_died(self) -> Outcome:
        """Return the outcome if the worker ended during a test.

        The worker reports every rank that is late. Without such a report the worker ended first and its ranks
        with it.
        """
        end = self.ranks[0].ended
        code = end.code or 0
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit status {code}"
        last_line = _after_colon(_last_line(end.output))
        return self._ended(UNKNOWN, f"the process that runs the tests {how} during one{last_line}")

    def _not_begun(self, rank: _Rank) -> Outcome:
        """Return the outcome if a rank never began the test."""
        code = rank.ended.code
        if code is not None and code < 0:
            why = f"the process was killed by {_signal_name(-code)} before the test began"
            return self._ended(FAIL, why, rank.number, f"import {', '.join(self.claim.imports)}")
        if code is None:
            # Killed at the deadline: if the test imports something, that import hung in this environment.
            result = FAIL if self.claim.imports else UNKNOWN
            why = "no report within its deadline"
        else:
            result = UNKNOWN
            why = f"ended with exit status {code}: {_last_line(rank.ended.output) or 'said nothing'}"
        return self._ended(result, f"the test did not begin: {why}", rank.number)

    def _hung(self, unended: Sequence[_Rank]) -> Outcome:
        """Return the outcome if ranks began the test and did not end.

        A rank in a collective waits for another rank, so a rank outside any collective is the cause. If all
        ranks are in collectives, the cause is the one that made the fewest calls.
        """
        cause = min(unended, key=lambda rank: (waiting(rank.stack), len(rank.all("call")), rank.number))
        why = f"not finished within {self.claim.seconds:g} s"
        if len(self.ranks) > 1:
            all_wait = waiting(cause.stack) is WaitState.SURELY and len(unended) == len(self.ranks)
            why = _all_wait(unended, why) if all_wait else _one_hangs(cause, unended, why)
        place = innermost_line(cause.stack)
        return Outcome(
            self.claim,
            self.variant,
            FAIL,
            why,
            cause.number,
            cause.last_call,
            place,
            seconds=self.claim.seconds,
        )


def _failure(rank: _Rank) -> Mapping[str, Any]:
    """Return the error, death or loss of a rank; an empty mapping if it passed, skipped or was stopped."""
    end = rank.last("end")
    if end:
        return {} if end.get("result") in (PASS, SKIP) else end
    return rank.last("died") or rank.last("lost")


def _is_in_a_test(rank: _Rank) -> bool:
    """Return whether the journal stops in the middle of a test, this one or another."""
    *_, last = {}, *_events(rank.ended.journal)
    return last.get("event") in ("begin", "call", "saw")


def _all_wait(ranks: Sequence[_Rank], why: str) -> str:
    calls = ", ".join(f"rank {rank.number} in {rank.last('call').get('name', 'no call')}" for rank in ranks)
    return f"all ranks wait for one another: {why} ({calls})"


def _one_hangs(cause: _Rank, unended: Sequence[_Rank], why: str) -> str:
    others = [rank for rank in unended if rank is not cause]
    text = f"rank {cause.number} hangs: {why}"
    for how, verb in ((WaitState.SURELY, "waits"), (WaitState.PERHAPS, "may wait")):
        numbers = [str(rank.number) for rank in others if waiting(rank.stack) is how]
        text += f"; rank {', '.join(numbers)} {verb} for it" if numbers else ""
    return text


def _signal_name(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or [""])[-1][:300]


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""
