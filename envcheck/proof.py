"""Self-tests as values: what a test claims, how its journal reads, and the report. Pure.

A test is a script in `selftests/`. Its constants are read here without running it; what it wrote while it
ran is folded into one outcome a variant, whichever rank it was that failed, died or hung.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.model import InputError

PASS, FAIL, SKIP, UNKNOWN = "pass", "fail", "skip", "unknown"
"""How a variant may end; unknown is a fault of the test or the harness, and says nothing of the stack."""

MANY_RANKS = 1024

_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

_AFTERMATH_S = 5.0
"""A rank that dies takes its peers' connections along: errors this soon before are its echo."""


class Variant(NamedTuple):
    """One way a test is run: what it needs beyond its test, and the training facts it stands for."""

    name: str
    needs: Mapping[str, Any]
    train: Mapping[str, Any]
    devices: tuple[str, ...]


class Claim(NamedTuple):
    """A self-test by its constants.

    `needs` are clauses as in compat/, `seconds` the deadline of one variant, `ranks` the least and the most
    processes it runs in, `imports` what is loaded once for all variants, `digest` of its text and the
    stage's.
    """

    name: str
    title: str
    level: int
    needs: Mapping[str, Any]
    imports: tuple[str, ...]
    seconds: float
    ranks: tuple[int, int]
    variants: tuple[Variant, ...]
    digest: str


class Outcome(NamedTuple):
    """How one variant of one claim ended, and what was seen.

    `rank` is the one that failed, died or hung; `call` the call it did so in; `place` the innermost line of a
    library; `rule` the id of a rule that forbids this very combination, when the judge knows one.
    """

    claim: Claim
    variant: Variant
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
    ways_out: tuple[str, ...] = ()


# --- what a test claims -----------------------------------------------------------------------------

_CONSTANTS = {"LEVEL", "NEEDS", "IMPORTS", "SECONDS", "RANKS", "DEVICES", "TRAIN", "VARIANTS"}


def read_claim(name: str, text: str, stage: str) -> Claim:
    """The claim of a test's source text; `stage` is that of what it stands on.

    Raises:
        InputError: it lacks a docstring or LEVEL, or a constant is not a literal.
    """
    where = f"selftests/{name}.py"
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
    return Claim(
        name=name,
        title=doc.splitlines()[0].rstrip("."),
        level=given["LEVEL"],
        needs=given.get("NEEDS", {}),
        imports=tuple(given.get("IMPORTS", ())),
        seconds=float(given.get("SECONDS", 60)),
        ranks=tuple(given.get("RANKS", (1, 1))),
        variants=tuple(
            Variant(
                each,
                about.get("needs", {}),
                {**given.get("TRAIN", {}), **about.get("train", {})},
                tuple(about.get("devices", devices)),
            )
            for each, about in variants.items()
        ),
        digest="sha256:" + hashlib.sha256(f"{stage}\0{text}".encode()).hexdigest(),
    )


def contradicts(variant: Variant, train: Mapping[str, Any], free: Sequence[str] = ()) -> bool:
    """Whether a target's training facts (keys with `train.`) rule a variant out; a free fact never does."""
    return any(
        f"train.{key}" in train and f"train.{key}" not in free and train[f"train.{key}"] != value
        for key, value in variant.train.items()
    )


# --- what a journal says ----------------------------------------------------------------------------


class Ended(NamedTuple):
    """How the process of one rank ended: its exit code (None if killed at the deadline) and its words."""

    code: int | None
    said: str
    journal: str
    stacks: Mapping[str, str]  # test.variant → its stacks, shortly before the deadline


class _Rank(NamedTuple):
    rank: int
    events: tuple[Mapping[str, Any], ...]
    ended: Ended
    stack: str

    def last(self, event: str) -> Mapping[str, Any]:
        return next((each for each in reversed(self.events) if each["event"] == event), {})


def fold(claim: Claim, variant: Variant, ranks: Sequence[Ended]) -> Outcome:
    """The outcome of a variant from what each of its ranks left behind, rank 0 first."""
    read = [
        _Rank(
            number,
            tuple(_events(each.journal, claim, variant)),
            each,
            each.stacks.get(f"{claim.name}.{variant.name}", ""),
        )
        for number, each in enumerate(ranks)
    ]
    seen: dict[str, Any] = {}
    for rank in reversed(read):
        for event in rank.events:
            seen.update(event.get("values", {}) if event["event"] == "saw" else {})
    seconds = max((rank.last("end").get("seconds", 0.0) for rank in read), default=0.0)
    outcome = _culprit(claim, variant, read)
    return outcome._replace(seconds=seconds or outcome.seconds, seen=seen, ranks=len(ranks))


def _events(journal: str, claim: Claim, variant: Variant) -> Iterator[Mapping[str, Any]]:
    """The events of a variant; a last line that a kill cut short is left out."""
    for line in journal.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and (event.get("test"), event.get("variant")) == (
            claim.name,
            variant.name,
        ):
            yield event


def _culprit(claim: Claim, variant: Variant, ranks: Sequence[_Rank]) -> Outcome:
    """The outcome by the rank that was first to go wrong."""
    errors = [(rank, rank.last("end")) for rank in ranks if rank.last("end").get("result") in (FAIL, UNKNOWN)]
    deaths = [(rank, rank.last("died")) for rank in ranks if rank.last("died")]
    if deaths:
        rank, death = min(deaths, key=lambda each: each[1]["time"])
        if not errors or min(each["time"] for _, each in errors) > death["time"] - _AFTERMATH_S:
            return _dead(claim, variant, rank, death, len(ranks))
    if errors:
        rank, end = min(errors, key=lambda each: each[1]["time"])
        return Outcome(
            claim,
            variant,
            end["result"],
            str(end.get("why", "")),
            rank.rank,
            str(end.get("call", "")),
            str(end.get("place", "")),
            str(end.get("trace", "")),
        )
    if all(rank.last("end") for rank in ranks):
        skipped = next((rank.last("end") for rank in ranks if rank.last("end")["result"] == SKIP), None)
        if skipped is not None:
            return Outcome(claim, variant, SKIP, str(skipped.get("why", "")))
        return Outcome(claim, variant, PASS)
    return _unfinished(claim, variant, [rank for rank in ranks if not rank.last("end")], ranks)


def _dead(claim: Claim, variant: Variant, rank: _Rank, death: Mapping[str, Any], world: int) -> Outcome:
    if "signal" in death:
        number = int(death["signal"])
        how = f"was killed by {_SIGNALS.get(number, f'signal {number}')}"
    else:
        how = f"ended itself with exit status {death.get('code')}"
    who = f"rank {rank.rank}" if world > 1 else "the process"
    return Outcome(claim, variant, FAIL, f"{who} {how}", rank.rank, str(rank.last("call").get("name", "")))


def _unfinished(claim: Claim, variant: Variant, open_: Sequence[_Rank], ranks: Sequence[_Rank]) -> Outcome:
    """No rank said what went wrong and some never came to an end: they hang, or never started."""
    silent = next((rank for rank in open_ if not rank.last("begin")), None)
    if silent is not None:
        code = silent.ended.code
        # Its own last words are about the environment; that it was killed at the deadline is about time.
        said = (silent.ended.said.strip().splitlines() or ["said nothing"])[-1][:300]
        died = -code if code is not None and code < 0 else None
        if died is not None:
            why = f"the process was killed by {_SIGNALS.get(died, f'signal {died}')} before the test began"
            return Outcome(claim, variant, FAIL, why, silent.rank, f"import {', '.join(claim.imports)}")
        why = "no word within its deadline" if code is None else f"ended with exit status {code}: {said}"
        result = FAIL if code is None and claim.imports else UNKNOWN
        return Outcome(claim, variant, result, f"the test did not begin: {why}", silent.rank)
    # Who waits in a collective waits for somebody else: the one that is elsewhere is the cause.
    elsewhere = [rank for rank in open_ if not _waits(rank.stack)]
    guilty = elsewhere[0] if elsewhere else open_[0]
    call = str(guilty.last("call").get("name", ""))
    what = f"no end within {claim.seconds:g} s"
    innermost = _innermost(guilty.stack)
    if len(ranks) > 1:
        waiting = [rank.rank for rank in open_ if rank is not guilty and _waits(rank.stack)]
        what = f"rank {guilty.rank} hangs: {what}"
        if waiting:
            what += f"; rank {', '.join(map(str, waiting))} waits for it in a collective"
        elif not elsewhere:
            what = f"all ranks wait in a collective: no end within {claim.seconds:g} s"
    return Outcome(claim, variant, FAIL, what, guilty.rank, call, innermost, seconds=claim.seconds)


_FRAME = re.compile(r'^\s+File "(?P<file>[^"]*)", line (?P<line>\d+)(?: in (?P<name>.*))?$', re.MULTILINE)


def _main_thread(stack: str) -> str:
    """The stack of the thread that ran the test: faulthandler lists it last, innermost frame first."""
    return stack.rpartition("Thread 0x")[2]


def _waits(stack: str) -> bool:
    """Whether the innermost frame is one of torch.distributed's."""
    frame = _FRAME.search(_main_thread(stack))
    return frame is not None and "/torch/distributed/" in frame["file"]


def _innermost(stack: str) -> str:
    frame = _FRAME.search(_main_thread(stack))
    if frame is None:
        return ""
    file = frame["file"].rpartition("site-packages/")[2].rpartition("/selftests/")[2]
    return f"{file if file != frame['file'] else file.rpartition('/')[2]}:{frame['line']} in {frame['name']}"


# --- the report -------------------------------------------------------------------------------------

_MARKS = {PASS: "✓", FAIL: "✗", SKIP: "-", UNKNOWN: "?"}


class Proof(NamedTuple):
    """What was run: the environment and device in words, and the outcomes in order."""

    version: str
    subject: str
    device: str
    outcomes: tuple[Outcome, ...]

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


def facts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """`selftest.<name>` → pass or fail: a test passes if a variant did and none failed."""
    found: dict[str, str] = {}
    for each in outcomes:
        key = f"selftest.{each.claim.name}"
        if each.result == FAIL or (each.result == PASS and key not in found):
            found[key] = each.result
    return found


def render(proof: Proof) -> str:
    """The report for people: a line a variant, under each failure what was seen and what is known of it."""
    return "\n".join(_lines(proof)) + "\n"


def _lines(proof: Proof) -> Iterator[str]:
    yield f"envcheck {proof.version}  self-tests"
    yield f"tested  {proof.subject}"
    yield f"device  {proof.device}"
    yield ""
    last = ""
    for each in proof.outcomes:
        if each.claim.name != last:
            yield f"{each.claim.name}: {each.claim.title}"
            last = each.claim.name
        yield from _outcome_lines(each)
    yield ""
    counts = tally(proof.outcomes)
    words = {PASS: "passed", FAIL: "failed", SKIP: "skipped", UNKNOWN: "not decided"}
    yield " · ".join(
        f"{counts[each]} {words[each]}" for each in words if counts[each] or each in (PASS, FAIL)
    )


def _outcome_lines(each: Outcome) -> Iterator[str]:
    ranks = f", {each.ranks} ranks" if each.ranks > 1 else ""
    took = f"  {each.seconds:.1f} s{ranks}" if each.result != SKIP else ""
    skipped = f"  {each.why}" if each.result == SKIP else ""
    yield f"  [{_MARKS[each.result]}] {each.variant.name}{took}{skipped}"
    if each.result in (PASS, SKIP):
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
        yield f"      known: {each.rule} (envcheck rule {each.rule})"
        for way in each.ways_out:
            yield f"      way out: {way}"


def tree(proof: Proof) -> dict[str, Any]:
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
                "ways_out": list(each.ways_out),
                "digest": each.claim.digest,
            }
            for each in proof.outcomes
        ],
        "summary": tally(proof.outcomes),
    }
