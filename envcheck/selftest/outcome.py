"""Self-tests as values: what a test claims, how its journal reads, and the report. Pure.

A test is a script in `target_scripts/selftests/`. Its constants are read here without running it; what it
wrote while it ran is folded into one outcome a variant, whichever rank it was that failed, died or hung.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple

from envcheck.core.errors import InputError

PASS, FAIL, SKIP, UNKNOWN = "pass", "fail", "skip", "unknown"
"""How a variant may end; unknown is a fault of the test or the harness, and says nothing of the stack."""

_SIGABRT = 6
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

_ECHO = re.compile(
    r"connection|peer|socket|broken pipe|timed? ?out|remote process|NCCL|ncclRemoteError", re.IGNORECASE
)
"""How the errors read of a rank whose partner is gone."""

_ECHO_S = 30.0
"""How long before a death was noticed an error may be its echo: writing a core file takes that long."""


class SelftestVariant(NamedTuple):
    """One way a test is run: what it needs beyond its test, and the training facts it stands for.

    `ranks` are the least and the most processes if they are others than its test's.
    """

    name: str
    needs: Mapping[str, Any]
    train: Mapping[str, Any]
    devices: tuple[str, ...]
    ranks: tuple[int, int] | None = None


class SelftestDeclaration(NamedTuple):
    """A self-test by its constants.

    `needs` are clauses as in compat/, `seconds` the deadline of one variant, `ranks` the least and the most
    processes it runs in, `imports` what is loaded once for all variants, `digest` of its text and the
    runner's.
    """

    name: str
    title: str
    level: int
    needs: Mapping[str, Any]
    imports: tuple[str, ...]
    seconds: float
    ranks: tuple[int, int]
    variants: tuple[SelftestVariant, ...]
    digest: str


class Outcome(NamedTuple):
    """How one variant of one claim ended, and what was seen.

    `rank` is the one that failed, died or hung, None if all did alike; `call` the call it did so in; `place`
    the innermost line of a library; `rule` the id of a rule that forbids this very combination, when the
    judge knows one.
    """

    claim: SelftestDeclaration
    variant: SelftestVariant
    result: str
    why: str = ""
    rank: int | None = None
    call: str = ""
    place: str = ""
    trace: str = ""
    seconds: float = 0.0
    ranks: int = 1
    seen: Mapping[str, Any] = {}
    rule: str = ""
    sure: bool = True
    ways_out: tuple[str, ...] = ()


# --- what a test claims -----------------------------------------------------------------------------

_CONSTANTS = {"LEVEL", "NEEDS", "IMPORTS", "SECONDS", "RANKS", "DEVICES", "TRAIN", "VARIANTS"}


def read_claim(name: str, text: str, runner: str) -> SelftestDeclaration:
    """The claim of a test's source text; `runner` is the text of the modules that run it.

    Raises:
        InputError: it lacks a docstring or LEVEL, or a constant is not a literal.
    """
    where = f"target_scripts/selftests/{name}.py"
    try:
        module = ast.parse(text)
        given = {
            target.id: ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id in _CONSTANTS
        }
    except (SyntaxError, ValueError) as error:
        raise InputError(where, f"not a self-test: {error}") from None
    doc = ast.get_docstring(module)
    if not doc or given.get("LEVEL") not in (1, 2, 3):
        raise InputError(where, "not a self-test: needs a docstring and LEVEL = 1, 2 or 3")
    devices = tuple(given.get("DEVICES", ("cpu", "cuda")))
    variants = given.get("VARIANTS", {name: {}})  # TRAIN holds for all of them, unless one says otherwise
    return SelftestDeclaration(
        name=name,
        title=doc.splitlines()[0].rstrip("."),
        level=given["LEVEL"],
        needs=given.get("NEEDS", {}),
        imports=tuple(given.get("IMPORTS", ())),
        seconds=float(given.get("SECONDS", 60)),
        ranks=tuple(given.get("RANKS", (1, 1))),
        variants=tuple(
            SelftestVariant(
                each,
                about.get("needs", {}),
                {**given.get("TRAIN", {}), **about.get("train", {})},
                tuple(about.get("devices", devices)),
                about.get("ranks"),
            )
            for each, about in variants.items()
        ),
        digest="sha256:" + hashlib.sha256(f"{runner}\0{text}".encode()).hexdigest(),
    )


def contradicts(variant: SelftestVariant, train: Mapping[str, Any], free: Sequence[str] = ()) -> bool:
    """Whether a target's training facts (keys with `train.`) rule a variant out; a free fact never does."""
    return any(
        f"train.{key}" in train and f"train.{key}" not in free and train[f"train.{key}"] != value
        for key, value in variant.train.items()
    )


# --- what a journal says ----------------------------------------------------------------------------


class ProcessEnd(NamedTuple):
    """How the process of one rank ended: its exit code (None if killed at the deadline) and its words."""

    code: int | None
    said: str
    journal: str
    stacks: Mapping[str, str]  # test.variant → its stacks, shortly before the deadline


class _Rank(NamedTuple):
    rank: int
    events: tuple[Mapping[str, Any], ...]
    ended: ProcessEnd
    stack: str

    def all(self, event: str) -> list[Mapping[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    def last(self, event: str) -> Mapping[str, Any]:
        return next((each for each in reversed(self.events) if each["event"] == event), {})


def fold(claim: SelftestDeclaration, variant: SelftestVariant, ranks: Sequence[ProcessEnd]) -> Outcome:
    """The outcome of a variant from what each of its ranks left behind, rank 0 first."""
    read = [
        _Rank(
            number,
            tuple(
                event
                for event in _events(each.journal)
                if (event.get("test"), event.get("variant")) == (claim.name, variant.name)
            ),
            each,
            each.stacks.get(f"{claim.name}.{variant.name}", ""),
        )
        for number, each in enumerate(ranks)
    ]
    seen: dict[str, Any] = {}
    for rank in reversed(read):
        for event in rank.events:
            values = event.get("values") if event["event"] == "saw" else None
            seen.update(values if isinstance(values, dict) else {})
    seconds = max((float(rank.last("end").get("seconds") or 0.0) for rank in read), default=0.0)
    outcome = _culprit(claim, variant, read)
    return outcome._replace(seconds=max(seconds, outcome.seconds), seen=seen, ranks=len(ranks))


def _events(journal: str) -> Iterator[Mapping[str, Any]]:
    """The events of all tests; a last line that a kill cut short is left out."""
    for line in journal.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        # Whatever a library scribbled in between is no event.
        if (
            isinstance(event, dict)
            and isinstance(event.get("event"), str)
            and isinstance(event.get("time"), float)
        ):
            yield event


def _culprit(claim: SelftestDeclaration, variant: SelftestVariant, ranks: Sequence[_Rank]) -> Outcome:
    """The outcome by the rank that was first to go wrong, those last that only lost their partner."""
    absent = next((rank for rank in ranks if rank.last("absent")), None)
    if absent is not None:
        why = f"rank {absent.rank} never came: the others waited for it to begin"
        return Outcome(claim, variant, FAIL, why, absent.rank)
    wrong = [
        (_echoes(rank, event, ranks), event["time"], rank, event)
        for rank in ranks
        for event in (_first_wrong(rank),)
        if event
    ]
    if wrong:
        _, _, rank, event = min(wrong, key=lambda each: each[:2])
        if event["event"] == "end":
            return _erred(claim, variant, rank, event, ranks)
        return _dead(claim, variant, rank, event, len(ranks))
    ends = [rank.last("end") for rank in ranks]
    skipped = next((end for end in ends if end.get("result") == SKIP), None)
    if skipped is not None:
        return Outcome(claim, variant, SKIP, str(skipped.get("why", "")))
    if all(ends):
        return Outcome(claim, variant, PASS)
    return _unfinished(claim, variant, [rank for rank in ranks if not rank.last("end")], ranks)


def _first_wrong(rank: _Rank) -> Mapping[str, Any]:
    """The error, death or loss of a rank; nothing if it is well, or was only stopped."""
    end = rank.last("end")
    if end:
        return {} if end.get("result") in (PASS, SKIP) else end
    return rank.last("died") or rank.last("lost")


def _echoes(rank: _Rank, event: Mapping[str, Any], ranks: Sequence[_Rank]) -> bool:
    """Whether a rank went wrong because another one was gone, or may have."""
    others = [_first_wrong(each) for each in ranks if each is not rank]
    if event["event"] == "end":
        gone = [each for each in others if each and each["event"] in ("died", "lost")]
        near = any(event["time"] > each["time"] - _ECHO_S for each in gone)
        return near and "accused" not in event and _ECHO.search(str(event.get("why"))) is not None
    # A library aborts a rank whose partner failed; nobody else aborts by SIGABRT after an error.
    return event.get("signal") == _SIGABRT and any(each and each["time"] < event["time"] for each in others)


def _erred(
    claim: SelftestDeclaration,
    variant: SelftestVariant,
    rank: _Rank,
    end: Mapping[str, Any],
    ranks: Sequence[_Rank],
) -> Outcome:
    accused = end.get("accused")
    number = accused if isinstance(accused, int) and -1 <= accused < len(ranks) else rank.rank
    return Outcome(
        claim,
        variant,
        FAIL if end.get("result") == FAIL else UNKNOWN,
        str(end.get("why", "")),
        number if number >= 0 else None,
        str(end.get("call", "")),
        str(end.get("place", "")),
        str(end.get("trace", "")),
    )


def _dead(
    claim: SelftestDeclaration, variant: SelftestVariant, rank: _Rank, death: Mapping[str, Any], world: int
) -> Outcome:
    if death["event"] == "lost":
        how = "was lost: no word of it any more"
    elif isinstance(death.get("signal"), int):
        how = f"was killed by {_signal(death['signal'])}"
    else:
        how = f"ended itself with exit status {death.get('code')}"
    who = f"rank {rank.rank}" if world > 1 else "the process"
    said = _last_line(str(death.get("said", "")))
    why = f"{who} {how}" + (f": {said}" if said else "")
    return Outcome(claim, variant, FAIL, why, rank.rank, str(rank.last("call").get("name", "")))


def _in_a_test(rank: _Rank) -> bool:
    """Whether a journal stops in the middle of a test, whichever that is."""
    *_, last = {}, *_events(rank.ended.journal)
    return last.get("event") in ("begin", "call", "saw")


def _signal(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1][:300]


def _unfinished(
    claim: SelftestDeclaration, variant: SelftestVariant, open_: Sequence[_Rank], ranks: Sequence[_Rank]
) -> Outcome:
    """No rank said what went wrong and some never came to an end: they hang, or never started."""
    code = ranks[0].ended.code
    stopped = any(rank.last("late") or rank.last("stopped") for rank in open_)
    if code and not stopped and any(map(_in_a_test, ranks)):
        # The worker records every rank that is late. Here the worker itself died, and its ranks with it.
        went = f"was killed by {_signal(-code)}" if code < 0 else f"ended with exit status {code}"
        said = _last_line(ranks[0].ended.said)
        why = f"the process that runs the tests {went} during one" + (f": {said}" if said else "")
        return Outcome(claim, variant, UNKNOWN, why)
    silent = next((rank for rank in open_ if not rank.last("begin")), None)
    if silent is not None:
        code = silent.ended.code
        # Its own last words are about the environment; that it was killed at the deadline is about time.
        said = _last_line(silent.ended.said) or "said nothing"
        if code is not None and code < 0:
            why = f"the process was killed by {_signal(-code)} before the test began"
            return Outcome(claim, variant, FAIL, why, silent.rank, f"import {', '.join(claim.imports)}")
        why = "no word within its deadline" if code is None else f"ended with exit status {code}: {said}"
        result = FAIL if code is None and claim.imports else UNKNOWN
        return Outcome(claim, variant, result, f"the test did not begin: {why}", silent.rank)
    # Who waits in a collective waits for somebody else: the one that is elsewhere is the cause, and if
    # there is none, the one that came least far.
    guilty = min(open_, key=lambda rank: (_waiting(rank.stack), len(rank.all("call")), rank.rank))
    call = str(guilty.last("call").get("name", ""))
    what = f"no end within {claim.seconds:g} s"
    others = [rank for rank in open_ if rank is not guilty]
    if len(ranks) > 1 and _waiting(guilty.stack) is _Waiting.SURELY and len(open_) == len(ranks):
        calls = ", ".join(f"rank {rank.rank} in {rank.last('call').get('name', 'no call')}" for rank in open_)
        what = f"all ranks wait for one another: {what} ({calls})"
    elif len(ranks) > 1:
        what = f"rank {guilty.rank} hangs: {what}"
        for how, verb in ((_Waiting.SURELY, "waits"), (_Waiting.PERHAPS, "may wait")):
            waiting = [str(rank.rank) for rank in others if _waiting(rank.stack) is how]
            what += f"; rank {', '.join(waiting)} {verb} for it" if waiting else ""
    where = _innermost(guilty.stack)
    return Outcome(claim, variant, FAIL, what, guilty.rank, call, where, seconds=claim.seconds)


_FRAME = re.compile(r'^\s+File "(?P<file>[^"]*)", line (?P<line>\d+)(?: in (?P<name>.*))?$', re.MULTILINE)


class _Waiting(IntEnum):
    """Whether a rank waits for another, by its stack."""

    NO = 0
    PERHAPS = 1
    SURELY = 2


_COLLECTIVES = ("/torch/distributed/distributed_c10d.py", "/torch/distributed/rendezvous.py")
_MAY_WAIT = ("/torch/autograd/", "/torch/_ops.py", "/torch/distributed/", "/deepspeed/comm/")
_IDLE = ("/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/concurrent/", "/multiprocessing/")


def _at(stack: str) -> re.Match[str] | None:
    """Where the test is: the innermost frame of its thread, which faulthandler lists last.

    A backward on CUDA runs in another thread, and its own shows only that it waits for it.
    """
    threads = [_FRAME.search(each) for each in stack.split("hread 0x")[1:]]
    if not threads or threads[-1] is None:
        return None
    if "/torch/autograd/" in threads[-1]["file"]:
        busy = [each for each in threads[:-1] if each and not any(part in each["file"] for part in _IDLE)]
        return busy[0] if busy else threads[-1]
    return threads[-1]


def _waiting(stack: str) -> _Waiting:
    frame = _at(stack)
    if frame is None:
        return _Waiting.NO
    file = frame["file"]
    if file.endswith(_COLLECTIVES) or (file.endswith("/_context.py") and frame["name"] == "exchange"):
        return _Waiting.SURELY
    return _Waiting.PERHAPS if any(part in file for part in _MAY_WAIT) else _Waiting.NO


def _innermost(stack: str) -> str:
    frame = _at(stack)
    if frame is None:
        return ""
    file = frame["file"].rpartition("site-packages/")[2].rpartition("/target_scripts/selftests/")[2]
    return f"{file if file != frame['file'] else file.rpartition('/')[2]}:{frame['line']} in {frame['name']}"


# --- the report -------------------------------------------------------------------------------------

_NAMED = 5  # names in the first lines; all of them stand below
_MARKS = {PASS: "✓", FAIL: "✗", SKIP: "-", UNKNOWN: "?"}


class SelftestReport(NamedTuple):
    """What was run: the environment and device in words, and the outcomes in order."""

    version: str
    subject: str
    device: str
    outcomes: tuple[Outcome, ...]
    rank: int = 0  # of this process, where torchrun or Slurm started several; rank 0 speaks for all

    @property
    def code(self) -> int:
        """The exit code: 1 if a claim failed, 3 if nothing was shown or a test is at fault, else 0."""
        results = [each.result for each in self.outcomes]
        if FAIL in results:
            return 1
        return 3 if UNKNOWN in results or PASS not in results else 0


def tally(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many variants ended each way."""
    counts = dict.fromkeys((PASS, FAIL, SKIP, UNKNOWN), 0)
    for each in outcomes:
        counts[each.result] += 1
    return counts


def facts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A facts file of `selftest.<name>`, pass or fail.

    A test passes if a variant did and each other was skipped; one that was not decided leaves no fact.
    What failed is the source of its fact: the variant, and what was seen.
    """
    found: dict[str, str] = {}
    sources: dict[str, str] = {}
    undecided = {each.claim.name for each in outcomes if each.result == UNKNOWN}
    for each in outcomes:
        name = each.claim.name
        if each.result == FAIL and found.get(name) != FAIL:
            found[name] = FAIL
            sources[f"selftest.{name}"] = f"self-test {each.variant.name}: {each.why}"
        elif each.result == PASS and name not in found and name not in undecided:
            found[name] = PASS
            sources[f"selftest.{name}"] = f"self-test {name}"
    return {"schema_version": 1, "selftest": found, "sources": sources}


def render(proof: SelftestReport) -> str:
    """The report for people: a line a variant, under each failure what was seen and what is known of it."""
    return "\n".join(_lines(proof)) + "\n"


def _lines(proof: SelftestReport) -> Iterator[str]:
    yield f"envcheck {proof.version}  self-tests"
    yield f"tested  {proof.subject}"
    yield f"device  {proof.device}"
    yield f"result  {_verdict(proof.outcomes)}"
    yield ""
    shown: dict[tuple[str, ...], str] = {}
    for claim, outcomes in groupby(proof.outcomes, key=lambda each: each.claim):
        yield f"{claim.name}: {claim.title}"
        skipped: dict[str, list[str]] = {}
        for each in outcomes:
            if each.result == SKIP:
                skipped.setdefault(each.why, []).append(_own_name(each))
            else:
                yield from _outcome_lines(each, shown)
        for why, names in skipped.items():
            yield f"  [{_MARKS[SKIP]}] {why}{': ' if any(names) else ''}{', '.join(names)}"
    yield ""
    counts = tally(proof.outcomes)
    words = {PASS: "passed", FAIL: "failed", SKIP: "skipped", UNKNOWN: "not decided"}
    yield " · ".join(
        f"{counts[each]} {words[each]}" for each in words if counts[each] or each in (PASS, FAIL)
    )


def _verdict(outcomes: Sequence[Outcome]) -> str:
    """What it comes to, for who reads no further; what failed by name."""
    counts = tally(outcomes)
    ran = len(outcomes) - counts[SKIP]
    parts = []
    for result, words in ((FAIL, "failed"), (UNKNOWN, "not decided")):
        names = [each.variant.name for each in outcomes if each.result == result]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{len(names)} of {ran} {words}: {', '.join(names[:_NAMED])}{more}")
    if parts:
        return "; ".join(parts)
    return f"all {ran} that ran passed" if ran else "nothing could be tested here: every test was skipped"


def _own_name(each: Outcome) -> str:
    """The name of a variant; empty if it is all there is of its test."""
    return "" if each.variant.name == each.claim.name else each.variant.name


def _outcome_lines(each: Outcome, shown: dict[tuple[str, ...], str]) -> Iterator[str]:
    """How a variant ended; what went wrong in the same words before is told once. `shown` keeps that."""
    ranks = f", {each.ranks} ranks" if each.ranks > 1 else ""
    name = _own_name(each)
    yield f"  [{_MARKS[each.result]}] {name}{'  ' if name else ''}{each.seconds:.1f} s{ranks}"
    if each.result == PASS:
        return
    full = f"{each.claim.name} {name}".rstrip()
    first = shown.setdefault((each.result, each.why, each.call, each.place, each.rule), full)
    if first != full:
        yield f"      the same as {first}"
        return
    who = f"rank {each.rank}, " if each.ranks > 1 and each.rank is not None else ""
    where = f"in {each.call}" if each.call else ""
    yield f"      {each.why}"
    if who or where or each.place:
        at = f" ({each.place})" if each.place else ""
        yield f"      {who}{where}{at}".rstrip().rstrip(",")
    if each.result == UNKNOWN:
        yield "      a fault of the self-test: it says nothing of this environment; please report it"
    if each.rule:
        word = "known" if each.sure else "perhaps"
        also = "" if each.sure else "; it forbids this combination, though in other words"
        yield f"      {word}: {each.rule} (envcheck rule {each.rule}{also})"
        if shown.setdefault(("ways out", each.rule, *each.ways_out), full) != full:
            return  # they stand under the first
        for way in each.ways_out:
            yield f"      way out: {way}"


def tree(proof: SelftestReport) -> dict[str, Any]:
    """The report for machines."""
    return {
        "schema_version": 1,
        "envcheck": proof.version,
        "subject": proof.subject,
        "device": proof.device,
        "facts": facts(proof.outcomes),
        "outcomes": [
            {
                "test": each.claim.name,
                "claim": each.claim.title,
                "level": each.claim.level,
                "variant": each.variant.name,
                "train": dict(each.variant.train),
                "result": each.result,
                "why": each.why,
                "rank": each.rank,
                "ranks": each.ranks,
                "call": each.call,
                "place": each.place,
                "seconds": round(each.seconds, 3),
                "seen": dict(each.seen),
                "rule": each.rule or None,
                "rule_sure": each.sure if each.rule else None,
                "ways_out": list(each.ways_out),
                "digest": each.claim.digest,
            }
            for each in proof.outcomes
        ],
        "summary": tally(proof.outcomes),
    }
