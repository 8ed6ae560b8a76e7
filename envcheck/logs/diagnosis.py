"""What a log tells, held against what is known: the first cause, what followed from it, known cases.

Pure. A cause is the earliest failure that follows from no other; what a rank says that only lost its
partner, and what a launcher says of its ranks, are consequences. Kinds come from compat's signatures,
the user's own code from where the innermost frame lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from envcheck.core.facts import Inventory, Tri, Unknown
from envcheck.core.findings import Evidence, Finding, Judgement, Verdict
from envcheck.core.rules import Fix, Rule
from envcheck.knowledge.log_signatures import Signature, match_positions
from envcheck.logs.scanner import Event, Frame, Log, Raised
from envcheck.rules.clauses import evaluate, format_value
from envcheck.rules.fixes import bind_fix

_SIGTERM, _SIGABRT = -15, -6
_SURVIVED = 200
"""Lines of training after which a run has survived what it raised before them."""

_STRONG = frozenset({"memory", "killed", "crash", "disk", "network", "hardware"})
"""Kinds that a passage without a traceback can be the cause by; a version told in a warning is not."""


_RESEMBLES = 0.25  # the score of a part worth a word: one full sentence of two

_ORDER = ("ended", "raised", "said")  # which event a text that several hold belongs to

_SPOKEN_BY_PYTHON = frozenset(
    {"KeyError", "NameError", "UnboundLocalError", "TypeError", "IndexError", "ZeroDivisionError"}
    | {"ValueError", "AssertionError", "SyntaxError", "IndentationError", "TabError", "AttributeError"}
    | {"NotImplementedError", "RecursionError", "FileNotFoundError", "IsADirectoryError"}
)
"""What a line of one's own raises by itself; a RuntimeError there is some library's, below Python."""

_OF_A_LIBRARY = ("unexpected keyword argument", "module '", "positional argument")
"""Words of a call that another release of a library would take."""


class Match(NamedTuple):
    """A signature that was found: its score, the lines it is on, the event that holds most of it.

    A partial one misses some of its texts.
    """

    signature: Signature
    score: float
    lines: tuple[int, ...]
    event: int
    partial: bool = False


class Cause(NamedTuple):
    """An event that is a failure: of what kind, and the match that says so, if any."""

    event: Event
    kind: str  # of signatures.KINDS, or unknown
    match: Match | None = None

    @property
    def place(self) -> Frame | None:
        """The innermost frame of what was raised first."""
        return self.event.exceptions[0].place if self.event.exceptions else None


class Diagnosis(NamedTuple):
    """The first cause, if there is a failure that follows from no other; what follows; what stands apart.

    `survived` are failures that the run went on after. `matches` are those of all signatures, the cause's
    own first; `partial` those that miss some of their texts.
    """

    cause: Cause | None
    consequences: tuple[Cause, ...] = ()
    apart: tuple[Cause, ...] = ()
    survived: tuple[Cause, ...] = ()
    matches: tuple[Match, ...] = ()
    partial: tuple[Match, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the log tells of any failure."""
        return bool(self.cause or self.consequences)


def diagnose(log: Log, signatures: Iterable[Signature]) -> Diagnosis:
    """What the events of a log come to."""
    matches, partial = _matches(log.events, signatures)
    causes = [
        cause
        for number, event in enumerate(log.events)
        if (cause := _cause(event, [each for each in matches if each.event == number]))
    ]
    follows = [each for each in causes if each.kind == "consequence"]
    causes = [each for each in causes if each.kind != "consequence"]
    first = _first(log, causes) or _said_only(log, matches)
    if first is None:
        return Diagnosis(None, tuple(follows), matches=matches, partial=partial)
    before = tuple(each for each in causes if each.event.last < first.event.first)
    ends = [each for each in causes if each.event.what == "ended" and each is not first]
    follows += ends if first.event.what != "ended" else [each for each in ends if each.event.ranks]
    apart = [each for each in causes if each is not first and each not in before and each not in follows]
    home = log.events.index(first.event)
    own = sorted(matches, key=lambda each: (each.event != home, -each.score, each.lines))
    return Diagnosis(
        first,
        tuple(sorted(follows, key=lambda each: each.event.first)),
        tuple(apart),
        before,
        tuple(own),
        partial,
    )


def _matches(
    events: Sequence[Event], signatures: Iterable[Signature]
) -> tuple[tuple[Match, ...], tuple[Match, ...]]:
    """Signatures all of whose texts are somewhere in the events, and those of which only some are."""
    full: list[Match] = []
    partial: list[Match] = []
    for signature in signatures:
        hits = {number: match_positions(signature, event.text) for number, event in enumerate(events)}
        hits = {number: texts for number, texts in hits.items() if texts}
        held = {text for texts in hits.values() for text in texts}
        if not held:
            continue
        home = min(hits, key=lambda each: (-len(hits[each]), _ORDER.index(events[each].what), each))
        lines = {
            _line(events[number], at)
            for number, texts in hits.items()
            if number == home or not held <= hits[home].keys()
            for at in texts.values()
        }
        match = Match(signature, signature.score(held), tuple(sorted(lines)), home)
        if len(held) == len(signature.patterns):
            full.append(match)
        elif match.score > _RESEMBLES:
            partial.append(match._replace(partial=True))
    return tuple(full), tuple(partial)


def _line(event: Event, at: int) -> int:
    return event.numbers[min(event.text.count("\n", 0, at), len(event.numbers) - 1)]


def _cause(event: Event, matches: Sequence[Match]) -> Cause | None:
    """The event as a failure; None if it is a passage that says none."""
    best = max(matches, key=lambda each: (each.signature.kind != "consequence", each.score), default=None)
    kind = best.signature.kind if best else "unknown"
    if event.what == "said":
        return Cause(event, kind, best) if kind in _STRONG | {"consequence"} else None
    if kind == "harmless":
        kind, best = "unknown", None
    if event.what == "ended" and best is None:
        return Cause(event, "consequence" if event.code == _SIGTERM else "unknown")
    if best is None and event.exceptions and _by_own_code(event.exceptions[0]):
        kind = "code"
    return Cause(event, kind, best)


def _by_own_code(raised: Raised) -> bool:
    """Whether the user's own line raised it, and neither a library below Python nor one called in vain."""
    library = any(words in raised.message for words in _OF_A_LIBRARY)
    return raised.name in _SPOKEN_BY_PYTHON and not library and own_code(raised.place)


def own_code(place: Frame | None) -> bool:
    """Whether a frame is of the user's own file, and of no library and not the interpreter's."""
    if place is None or place.file.startswith("<"):
        return False
    return not any(part in place.file for part in ("site-packages/", "dist-packages/", "/lib/python"))


_AN_ERROR = re.compile(r"(?i)error|fatal|exception|failed")


def _said_only(log: Log, matches: Sequence[Match]) -> Cause | None:
    """The first line that is known and calls itself an error, where nothing was raised: pip, a compiler."""
    for match in sorted(matches, key=lambda each: (each.lines, -each.score)):
        event = log.events[match.event]
        lines = dict(zip(event.numbers, event.text.split("\n"), strict=False))
        told = any(_AN_ERROR.search(lines.get(line, "")) for line in match.lines)
        if told and match.signature.kind not in ("harmless", "consequence"):
            return Cause(event, match.signature.kind, match)
    return None


def _last_trouble(log: Log, causes: Sequence[Cause]) -> list[Cause]:
    """The causes since the run last trained: what it went on after did not end it."""
    stretch: list[Cause] = []
    for each in sorted(causes, key=lambda cause: cause.event.first):
        if stretch and log.trained(stretch[-1].event.again, each.event.first) >= _SURVIVED:
            stretch.clear()
        stretch.append(each)
    once = [each for each in stretch if log.trained(each.event.first, each.event.again) < _SURVIVED]
    return once or stretch


def _first(log: Log, causes: Sequence[Cause]) -> Cause | None:
    """The earliest that the run did not survive; of the rank that torchrun names, if that said anything."""
    told = [each for each in causes if each.event.what != "ended"]
    whole = [each for each in told if each.event.exceptions or each.match]
    raised = _last_trouble(log, whole or told)
    roots = [each for each in causes if each.event.root]
    ranks = {rank for each in roots for rank in each.event.ranks}
    named = [each for each in raised if ranks & {*each.event.ranks}]
    killed = [each for each in roots if (each.event.code or 0) < 0 and each.event.code != _SIGABRT]
    return next(iter([*named, *killed, *raised, *roots, *causes]), None)


# --- here ---------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """Whether the conditions of a match hold in an environment.

    `answer` is yes, no, unknown, or text for a case that has no conditions. `because` are facts in words:
    those that hold (yes), that do not (no), or that are missing (unknown). `fixes` passed the judge here if
    the answer is yes; untried ones are shown for unknown.
    """

    answer: str
    because: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    finding: Finding | None = None


def fit(rule: Rule | None, inventory: Inventory, judgement: Judgement) -> Fit:
    """Whether a rule is broken here, by a judgement that was advised."""
    if rule is None:
        return Fit("text")
    finding = next((each for each in judgement.findings if each.rule.id == rule.id), None)
    if finding is not None and finding.verdict is Verdict.BROKEN:
        held = tuple(
            f"{each.fact.key} = {format_value(each.fact.value)}"
            for each in finding.evidence
            if each.fact.value is not None
        )
        return Fit("yes", held, finding.fixes, finding)
    device = next(iter(inventory.visible_devices()), None)
    untried = tuple(bound for each in rule.fixes if (bound := bind_fix(each, inventory, device)))
    if finding is not None:
        return Fit("unknown", tuple(_unread(each) for each in finding.evidence), untried, finding)
    waiting = next((each for each in judgement.waiting if each.rule.id == rule.id), None)
    if waiting is not None:
        return Fit("unknown", tuple(dict.fromkeys(each.key for each in waiting.open)), untried)
    against = [[each for each in table if evaluate(each, inventory, device) is Tri.NO] for table in rule.when]
    said = [
        f"{each.key} is {_reading(each.key, inventory, device)}, not {each.raw}"
        for each in min(against, key=len)
    ]
    met = [f"{each.key} is {_reading(each.key, inventory, device)}" for each in rule.require]
    return Fit("no", tuple(said or met))


def _unread(because: Evidence) -> str:
    why = because.fact.reading.why if isinstance(because.fact.reading, Unknown) else ""
    return f"{because.fact.key} ({why})" if why else because.fact.key


def _reading(key: str, inventory: Inventory, device: int | None) -> str:
    value = inventory.fact(key, device).value
    return "absent" if value is None else format_value(value)
