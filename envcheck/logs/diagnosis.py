"""Diagnose a log: find the first cause, what followed from it, and the known cases that match. Pure.

A cause is the earliest failure that does not follow from another one. The failure of a rank that only lost
its peer is a consequence, and so is a launcher's report on its ranks. The kind of a failure comes from the
signatures in compat/. The file of the innermost frame shows whether the failure is in the user's own code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from envcheck.knowledge.log_signatures import SearchedText, Signature, match_positions
from envcheck.logs.events import Event, Frame, Log, Raised
from envcheck.logs.own_code import is_pythons_own, own_code
from envcheck.logs.tracebacks import QUOTES_FRAMES

_SIGTERM, _SIGABRT = -15, -6
_SURVIVED = 200
"""If a run printed this many lines of training after a failure, it survived the failure."""

_STRONG = frozenset({"memory", "killed", "crash", "disk", "network", "hardware"})
"""Kinds that make a passage without a traceback a failure; one of another kind may be only a warning."""

_MIN_PARTIAL_SCORE = 0.25  # for example one full sentence of two
_MIN_PARTIAL_TEXT = 20  # characters of one text; the name of an exception alone resembles nothing

_SPECIFIC = 0.5  # a match of this score (a text of some 40 characters) is a failure even in an `aside` line

_EVENT_ORDER = (
    "ended",
    "raised",
    "stated",
    "said",
)  # of events with equally many texts of a signature, the first kind here is preferred

_RAISED_BY_STATEMENTS = frozenset(
    {"KeyError", "NameError", "UnboundLocalError", "TypeError", "IndexError", "ZeroDivisionError"}
    | {"ValueError", "AssertionError", "SyntaxError", "IndentationError", "TabError", "AttributeError"}
    | {"NotImplementedError", "RecursionError", "FileNotFoundError", "IsADirectoryError"}
)
"""Errors that Python itself raises in a line of the user; a RuntimeError comes from a compiled library."""

_OF_SOME_CLASS = re.compile(r"(?:type object )?'(?!NoneType)[A-Z]\w+'(?: object)? has no attribute '")
"""Message about an object of a class that is not one of Python's own."""

_WRONG_CALLS = ("unexpected keyword argument", "module '", "positional argument")
"""Messages of calls that another release of a library would accept."""


class Match(NamedTuple):
    """A signature that was found: its score, its lines, and the index of the event with most of its texts.

    A partial match lacks some of the signature's texts.
    """

    signature: Signature
    score: float
    lines: tuple[int, ...]
    event: int
    partial: bool = False


class Cause(NamedTuple):
    """An event that is a failure, its kind, and the match that it comes from, if any."""

    event: Event
    kind: str  # of log_signatures.KINDS, or unknown
    match: Match | None = None

    @property
    def told(self) -> Raised | None:
        """Return the first exception with a message of its own, or the first one; None if there is none."""
        raised = self.event.exceptions
        said = (one for one in raised if one.message and not one.name.endswith(QUOTES_FRAMES))
        return next(said, raised[0] if raised else None)

    @property
    def later(self) -> tuple[Raised, ...]:
        """Return the exceptions that were raised after the one that is told."""
        raised = self.event.exceptions
        return raised[raised.index(self.told) + 1 :] if self.told is not None else ()

    @property
    def place(self) -> Frame | None:
        """Return the innermost frame of the told exception, or the last one of a traceback that was cut."""
        return self.told.place if self.told is not None else self.event.cut_at


class Diagnosis(NamedTuple):
    """First cause, if there is one, its consequences, and other failures.

    `apart` are failures that are unrelated to the cause. `survived` are failures after which the run
    continued. `matches` are those of all signatures, the cause's own first; `partial` are those that lack
    some of their texts.
    """

    cause: Cause | None
    consequences: tuple[Cause, ...] = ()
    apart: tuple[Cause, ...] = ()
    survived: tuple[Cause, ...] = ()
    matches: tuple[Match, ...] = ()
    partial: tuple[Match, ...] = ()
    remarked: tuple[Cause, ...] = ()

    @property
    def failed(self) -> bool:
        """Return whether the log reports any failure."""
        return bool(self.cause or self.consequences)


def diagnose(
    log: Log, signatures: Iterable[Signature], fits: Callable[[Signature, Event], bool] | None = None
) -> Diagnosis:
    """Return the diagnosis of a log's events; `fits` tells whether a signature may be about an event."""
    matches, partial = _matches(log.events, signatures)
    if fits is not None:
        matches = tuple(match for match in matches if fits(match.signature, log.events[match.event]))
        partial = tuple(match for match in partial if fits(match.signature, log.events[match.event]))
    told = _told_by_tracebacks(log)
    failures = [
        cause
        for number, event in enumerate(log.events)
        if (cause := _failure(event, [match for match in matches if match.event == number]))
        and not _is_said_again(cause, log, told)
        and not (cause.match is None and event.first < log.trained_until and _tries_import(event))
    ]
    failures = _without_last_words(failures, log)
    before_end = [failure for failure in failures if failure.event.again <= log.completed]
    failures = [failure for failure in failures if failure not in before_end]
    remarked = tuple(Cause(event, "open") for event in log.events if event.form and event.form.remark)
    if remarked and all(failure.event in [one.event for one in remarked] for failure in failures):
        survived = tuple(cause for cause in before_end if cause.event.what != "stated")
        return Diagnosis(None, survived=survived, matches=matches, partial=partial, remarked=remarked)
    follows = [failure for failure in failures if failure.kind == "consequence"]
    causes = [failure for failure in failures if failure.kind != "consequence"]
    follows += (aborts := [cause for cause in causes if _is_end_by_watchdog(cause, follows)])
    follows += (told_below := [cause for cause in causes if _is_told_below(cause, follows)])
    causes = [cause for cause in causes if cause not in told_below]
    follows += (stops := [cause for cause in causes if _is_stop(cause, causes)])
    causes = [cause for cause in causes if cause not in (*aborts, *stops)]
    first = _first_cause(log, causes)
    if first is None or _is_last_word(first.event) or _says_only_that_it_failed(first):
        first = (
            _passage_cause(log, matches, failed=first is not None) or _error_of_a_tool(first, causes) or first
        )
    elif _is_cut(first):
        first = (
            _passage_cause(log, _right_above(first, matches), failed=True)
            or _exception_above(first, causes)
            or first
        )
    of_before = tuple(cause for cause in before_end if cause.event.what != "stated")
    if first is None:
        return Diagnosis(None, tuple(follows), survived=of_before, matches=matches, partial=partial)
    survived = of_before + tuple(
        cause
        for cause in causes
        if cause.event.last < first.event.first
        and cause.event.what != "stated"
        and (not _is_cut(cause) or _is_outlived(cause, first, log))
    )
    ends = [cause for cause in causes if cause.event.what == "ended" and cause is not first]
    if _says_only_that_it_failed(first):  # what ended before it is no consequence of it
        survived = tuple(cause for cause in survived if cause not in ends)
        ends = [cause for cause in ends if cause.event.first > first.event.first]
    follows += ends if first.event.what != "ended" else [cause for cause in ends if cause.event.ranks]
    survived = tuple(cause for cause in survived if cause not in follows)
    apart = [
        cause
        for cause in causes
        if cause is not first
        and cause not in (*survived, *follows)
        and not _is_quoted_by(cause.event, first.event)
        and not _is_said_by_match(cause, first)
        and not _means_the_same(cause.event, first.event)
    ]
    follows += (closing := [cause for cause in apart if _closes_a_build(cause) or _goes_on(cause, first)])
    apart = [cause for cause in apart if cause not in closing]
    home = log.events.index(first.event)
    own_first = sorted(
        matches, key=lambda match: (not _touches(match, home, first.event), -match.score, match.lines)
    )
    return Diagnosis(
        first,
        tuple(sorted(follows, key=lambda cause: cause.event.first)),
        tuple(apart),
        survived,
        tuple(own_first),
        partial,
    )


def without_blame(diagnosis: Diagnosis) -> Diagnosis:
    """Return a diagnosis that no longer says of its cause that the user's own code is at fault."""
    cause = diagnosis.cause
    if cause is None or cause.kind != "code":
        return diagnosis
    matches = tuple(
        match
        for match in diagnosis.matches
        if match.signature.kind != "code" or not _touches(match, -1, cause.event)
    )
    return diagnosis._replace(cause=Cause(cause.event, "unknown"), matches=matches)


def without_match(diagnosis: Diagnosis) -> Diagnosis:
    """Return a diagnosis whose cause is not taken for the known failure that its text resembles."""
    bare = _failure(diagnosis.cause.event, ()) if diagnosis.cause is not None else None
    return diagnosis._replace(cause=bare) if bare is not None else diagnosis


_LEAST_QUOTED = 40
"""Characters of a line that two failures hardly have in common by chance."""


def _is_quoted_by(event: Event, first: Event) -> bool:
    """Return whether a line that states a failure says nothing but what a line of the first one says.

    So does NCCL's warning, which the exception repeats as `Last error:`.
    """
    if event.what != "stated" or event.exceptions:
        return False
    return any(len(line) >= _LEAST_QUOTED and line in event.text for line in first.text.split("\n"))


def _is_said_by_match(cause: Cause, first: Cause) -> bool:
    """Return whether a line that states a failure is one of those by which the first one was recognised.

    So is the assertion of a kernel, above the exception that only says that some assertion failed.
    """
    stated = cause.event.what == "stated" and not cause.event.exceptions
    return stated and first.match is not None and not {*cause.event.numbers}.isdisjoint(first.match.lines)


_LINES_ABOVE = 10
"""Lines between a known failure and the traceback that it led to, at most."""


def _is_cut(cause: Cause) -> bool:
    """Return whether a cause is an unknown traceback whose exception the log leaves out."""
    return cause.match is None and cause.event.what == "raised" and not cause.event.exceptions


def _means_the_same(event: Event, first: Event) -> bool:
    """Return whether a line below the first cause says the same once more, as pip's last line does."""
    if event.form is None or first.form is None or event.first < first.first:
        return False
    return event.form.aside and event.what == "stated" and event.form.means == first.form.means != ""


def _goes_on(cause: Cause, first: Cause) -> bool:
    """Return whether a cause is a traceback without its exception that stands right below the first one."""
    return _is_cut(cause) and 0 < cause.event.first - first.event.last <= _LINES_ABOVE


def _right_above(cause: Cause, matches: Iterable[Match]) -> list[Match]:
    """Return the matches whose lines stand right above a cause."""
    first = cause.event.first
    return [match for match in matches if all(0 < first - line <= _LINES_ABOVE for line in match.lines)]


def _touches(match: Match, number: int, event: Event) -> bool:
    """Return whether a match belongs to an event, or one of its texts was found there."""
    return match.event == number or any(event.first <= line <= event.last for line in match.lines)


def _matches(
    events: Sequence[Event], signatures: Iterable[Signature]
) -> tuple[tuple[Match, ...], tuple[Match, ...]]:
    """Return the signatures whose texts are all in the events, and those of which only some texts are."""
    full: list[Match] = []
    partial: list[Match] = []
    texts_of = [SearchedText.of(event.text) for event in events]
    for signature in signatures:
        hits = {number: match_positions(signature, texts) for number, texts in enumerate(texts_of)}
        hits = {number: texts for number, texts in hits.items() if texts}
        told = {number: texts for number, texts in hits.items() if not _is_last_word(events[number])}
        hits = told or hits  # the passage around a last word has its line as well
        matched = {text for texts in hits.values() for text in texts}
        if not matched:
            continue
        home = _home(hits, events)
        lines = {
            _line(events[number], at)
            for number, texts in hits.items()
            if number == home or not matched <= hits[home].keys()
            for at in texts.values()
        }
        match = Match(signature, signature.score(matched), tuple(sorted(lines)), home)
        if len(matched) == len(signature.patterns):
            full.append(match)
        elif match.score > _MIN_PARTIAL_SCORE and _may_be_near(signature, matched, events[home].text):
            partial.append(match._replace(partial=True))
    return tuple(full), tuple(partial)


def _home(hits: Mapping[int, Mapping[int, int]], events: Sequence[Event]) -> int:
    """Return the event that a signature is about: the one with most of its texts.

    If that is a passage, and a failure that stands in it has one of the texts, it is that failure.
    """

    def preference(index: int) -> tuple[int, int, int]:
        return -len(hits[index]), _EVENT_ORDER.index(events[index].what), index

    home = min(hits, key=preference)
    passage = events[home]
    within = [
        index
        for index in hits
        if events[index].what in ("raised", "stated")
        and passage.first <= events[index].first
        and events[index].last <= passage.last
    ]
    raised = [index for index in within if events[index].exceptions]
    return min(raised or within or [home], key=preference) if passage.what == "said" else home


def _may_be_near(signature: Signature, matched: AbstractSet[int], text: str) -> bool:
    """Return whether a log that lacks some texts of a signature is worth comparing with it."""
    return _says_enough(signature, matched, text) and not _shows_other_files(signature, matched, text)


_NAMES_A_FILE = re.compile(r"\\\.py\b|\[/\\\\\]")
"""A pattern of a Python file's path."""


def _shows_other_files(signature: Signature, matched: AbstractSet[int], text: str) -> bool:
    """Return whether a traceback shows its frames, and none of them is in the file that a signature names."""
    lacking = (each.pattern for number, each in enumerate(signature.patterns) if number not in matched)
    return _FILE.search(text) is not None and any(map(_NAMES_A_FILE.search, lacking))


def _says_enough(signature: Signature, matched: Iterable[int], text: str) -> bool:
    """Return whether one of the texts that were found is longer than the name of an exception."""
    hits = (signature.patterns[number].search(text) for number in matched)
    return any(hit is not None and len(hit[0]) >= _MIN_PARTIAL_TEXT for hit in hits)


def _line(event: Event, at: int) -> int:
    """Return the line number of an offset in the text of an event."""
    return event.numbers[min(event.text.count("\n", 0, at), len(event.numbers) - 1)]


def _failure(event: Event, matches: Sequence[Match]) -> Cause | None:
    """Return an event as a failure; None for a passage that reports none."""
    best = max(matches, key=lambda match: (match.signature.kind != "consequence", match.score), default=None)
    kind = best.signature.kind if best else "unknown"
    if event.what == "said":
        return Cause(event, kind, best) if kind in _STRONG | {"consequence"} else None
    if kind == "harmless":
        kind, best = "unknown", None
    if best is None and event.form is not None and event.form.kind == "harmless":
        return None
    if best is None and event.form is not None:
        deeper = bool(event.exceptions) and _is_deeper(event.exceptions[0])
        of_library = event.form.kind == "code" and (deeper or _was_in_library(event))
        return Cause(event, "unknown" if of_library else event.form.kind)
    if best is None and event.cut_at is not None and _OF_LAUNCHER.search(event.cut_at.file):
        return Cause(event, "consequence")
    if event.what == "ended" and best is None:  # the end of the command that envcheck ran
        return Cause(event, "consequence" if event.code == _SIGTERM else "unknown")
    if best is None and event.exceptions and _raised_by_own_code(event.exceptions[0]):
        kind = "code"
    elif best is None and event.exceptions and _is_assertion_of_library(event.exceptions[0]):
        kind = "check"
    return Cause(event, kind, best)


def _was_in_library(event: Event) -> bool:
    """Return whether the innermost frame outside Python's own modules is in a library's file.

    Whatever a message mostly means, the traceback then says that the user's code did not raise it.
    """
    files = [found[1].replace("\\", "/") for found in _FILE.finditer(event.text)]
    outside = [file for file in files if not is_pythons_own(file)]
    return bool(outside) and not own_code(Frame(outside[-1], 0, ""))


_FILE = re.compile(r'File "([^"\n]{1,1000})", line')


def _without_last_words(failures: list[Cause], log: Log) -> list[Cause]:
    """Return the failures without lines that count only at the end of a log which tells of no other one."""
    others = [failure for failure in failures if not _is_last_word(failure.event)]
    return others or [failure for failure in failures if not _went_on(failure.event, log)]


def _is_last_word(event: Event) -> bool:
    return event.form is not None and event.form.last


_AFTER_THE_LAST = 3
"""Lines below the last thing that a program said of an error, at most: an empty line, a prompt, a summary."""


def _went_on(event: Event, log: Log) -> bool:
    """Return whether a program printed more than a few lines after a line that states an error."""
    return log.lines - event.numbers[0] > _AFTER_THE_LAST


def _same_end(event: Event, other: Event) -> bool:
    """Return whether `other` is a launcher's table with the same end of a process as `event`, a line."""
    same = (other.what, other.code, other.ranks) == (event.what, event.code, event.ranks)
    return same and len(other.numbers) > 1


def _told_by_tracebacks(log: Log) -> frozenset[tuple[str, str]]:
    """Return the exceptions of tracebacks; a line that repeats one of them is not a separate failure."""
    return frozenset(
        _exception_key(one) for event in log.events if event.what == "raised" for one in event.exceptions
    )


def _exception_key(raised: Raised) -> tuple[str, str]:
    return raised.name.rpartition(".")[2], raised.message[:60]


def _is_said_again(cause: Cause, log: Log, told: frozenset[tuple[str, str]]) -> bool:
    """Return whether a line that states a failure adds nothing.

    Such a line repeats a traceback or a table, or matches no signature and was followed by more training.
    """
    event = cause.event
    if event.what == "ended":
        return len(event.numbers) == 1 and any(_same_end(event, other) for other in log.events)
    if event.what != "stated":
        return False
    if event.exceptions and _exception_key(event.exceptions[0]) in told:
        return True
    return cause.match is None and event.again - len(event.numbers) + 1 < log.trained_until


_OF_LAUNCHER = re.compile(
    r"accelerate/commands/|torch/distributed/(?:run|launch|launcher/\w+|elastic/.+)\.py|deepspeed/launcher/"
    r"|bin/(?:torchrun|accelerate|deepspeed)$|/subprocess\.py"
)
"""Files of launchers: a traceback that ends in one of them only reports how the processes ended."""


def _is_assertion_of_library(raised: Raised) -> bool:
    """Return whether a library's own `assert`, which the traceback shows, raised the exception."""
    return raised.message.startswith("assert ") and raised.place is not None and not own_code(raised.place)


def _raised_by_own_code(raised: Raised) -> bool:
    """Return whether the user's own line raised the exception, not a compiled library or a library call.

    A line that raises on purpose says nothing of why, and an attribute that an object of some class lacks may
    be missing in this release of the class's library.
    """
    wrong_call = any(words in raised.message for words in _WRONG_CALLS)
    if raised.source.startswith("raise ") or _OF_SOME_CLASS.match(raised.message) or _is_deeper(raised):
        return False
    return raised.name in _RAISED_BY_STATEMENTS and not wrong_call and own_code(raised.place)


_NAMES_WHAT_A_LINE_USES = re.compile(r"has no attribute '(\w+)'|^name '(\w+)' is not defined")


def _is_deeper(raised: Raised) -> bool:
    """Return whether the line that is shown cannot have raised the exception: the traceback was cut."""
    found = _NAMES_WHAT_A_LINE_USES.search(raised.message)
    return bool(found and raised.source and (found[1] or found[2]) not in raised.source)


_OF_ENDS = ("CalledProcessError", "ChildFailedError", "ProcessExitedException")
"""Exceptions that only report how another process ended."""

_AN_ERROR = re.compile(r"(?i)error|fatal|exception|failed")
_A_WARNING = re.compile(r"(?i)warning|can't|cannot|could not|not found|not compatible")


_OF_BUILDS = ("Error building extension", "Error compiling objects for extension", "Pip failed")
"""Messages of torch for a build, and of conda for pip, that failed; the compiler or pip said why before."""


def _says_only_that_it_failed(cause: Cause) -> bool:
    """Return whether a cause only reports that another process, or a build, failed, and nobody knows why."""
    known = cause.event.form is not None and cause.event.form.kind not in ("unknown", "open")
    return (
        cause.match is None
        and not known
        and any(
            raised.name.endswith(_OF_ENDS) or raised.message.startswith(_OF_BUILDS)
            for raised in cause.event.exceptions
        )
    )


def _closes_a_build(cause: Cause) -> bool:
    """Return whether a cause only reports that a process or a build failed, in an exception or in a line."""
    by_line = cause.match is None and cause.event.form is not None and cause.event.form.closing
    return by_line or _says_only_that_it_failed(cause)


def _exception_above(first: Cause, causes: Iterable[Cause]) -> Cause | None:
    """Return the exception that a line right above a traceback names, whose own end the log leaves out."""
    for cause in causes:
        near = 0 < first.event.first - cause.event.last <= _LINES_ABOVE
        near = near or 0 < first.event.first - cause.event.first <= _LINES_ABOVE
        if near and cause.event.what == "stated" and cause.event.exceptions:
            return cause
    return None


def _error_of_a_tool(first: Cause | None, causes: Iterable[Cause]) -> Cause | None:
    """Return the first line before a cause that a known form says is an error, such as a compiler's."""
    for cause in sorted(causes, key=lambda cause: cause.event.first):
        if first is None or cause.event.first >= first.event.first:
            return None
        if cause.event.what == "stated" and cause.event.form is not None and not _is_aside(cause):
            return cause
    return None


def _passage_cause(log: Log, matches: Sequence[Match], *, failed: bool) -> Cause | None:
    """Return the first known line that calls itself an error, for logs without exceptions (of pip, say).

    If the log has neither a failure nor training, it may be a part of the log of a failed run. Then a known
    line that warns counts, too.
    """
    possible = [match for match in matches if match.signature.kind not in ("harmless", "consequence")]
    possible.sort(key=lambda match: (match.lines, -match.score))
    words = [_AN_ERROR] if failed or log.progress else [_AN_ERROR, _A_WARNING]
    for word in words:
        for match in possible:
            event = log.events[match.event]
            lines = dict(zip(event.numbers, event.text.split("\n"), strict=False))
            told = [lines.get(line, "") for line in match.lines if line > log.completed]
            if any(word.search(line) and not _IN_PASSING.search(line) for line in told):
                return Cause(event, match.signature.kind, match)
    return None


_IN_PASSING = re.compile(r"(?<![=\w])(?:INFO|DEBUG)\b|(?i:\bif you (?:see|get|encounter|run into)\b)")
"""Words of a line that names an error which did not happen."""


def _not_survived(log: Log, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes since the run last trained: a cause after which it continued did not end it.

    Nor did one after which the training began: it was caught, or a run before this one had failed.
    """
    stretch: list[Cause] = []
    for cause in sorted(causes, key=lambda cause: cause.event.first):
        if stretch and _is_outlived(stretch[-1], cause, log):
            stretch.clear()
        stretch.append(cause)
    # An event that was repeated while the run trained was survived as well.
    ended = [cause for cause in stretch if log.trained(cause.event.first, cause.event.again) < _SURVIVED]
    return ended or stretch


def _is_outlived(cause: Cause, later: Cause, log: Log) -> bool:
    """Return whether the run trained on, or began to, between a cause and a later one."""
    if cause.event.again < log.trained_from < later.event.first:
        return True
    return log.trained(cause.event.again, later.event.first) >= _SURVIVED


def _first_cause(log: Log, causes: Sequence[Cause]) -> Cause | None:
    """Return the earliest cause that the run did not survive, preferably of the rank that torchrun names."""
    not_ends = [cause for cause in causes if cause.event.what != "ended" and not _is_aside(cause)]
    explained = [cause for cause in not_ends if cause.match or _is_traceback(cause)]
    stated = [cause for cause in not_ends if cause.event.exceptions or cause.kind != "unknown"]
    signals = [cause for cause in causes if cause.event.what == "ended" and cause.kind != "unknown"]
    raised = _not_survived(log, explained or stated or signals or not_ends)
    if signals and raised and _is_outlived(raised[-1], signals[-1], log):
        raised = signals
    roots = [cause for cause in causes if cause.event.root]
    ranks = {rank for cause in roots for rank in cause.event.ranks}
    of_root_ranks = [cause for cause in raised if ranks & {*cause.event.ranks}]
    killed = [cause for cause in roots if (cause.event.code or 0) < 0 and cause.event.code != _SIGABRT]
    return next(iter([*of_root_ranks, *killed, *raised, *roots, *causes]), None)


def _is_end_by_watchdog(cause: Cause, consequences: Iterable[Cause]) -> bool:
    """Return whether this is the end of a process that a consequence, such as NCCL's watchdog, aborted."""
    if cause.event.what != "ended" or cause.event.code != _SIGABRT or cause.match is not None:
        return False
    earlier = [each.event.text for each in consequences if each.event.first < cause.event.first]
    return any("terminate called" in text for text in earlier)


_LINES_BELOW = 3
"""Lines between an exception and the lines of the runtime that explain it, at most."""


def _is_told_below(cause: Cause, consequences: Iterable[Cause]) -> bool:
    """Return whether a runtime says right below an exception that this rank only waited for another one.

    So does Ascend's, whose code stands below the exception that names the call alone.
    """
    if cause.kind != "unknown" or cause.match is not None or cause.event.what != "raised":
        return False
    return any(
        each.event.what == "stated"
        and each.event.ranks == cause.event.ranks
        and 0 < each.event.first - cause.event.last <= _LINES_BELOW
        for each in consequences
    )


_INTERRUPTS = ("KeyboardInterrupt", "SignalException")


def _is_stop(cause: Cause, causes: Iterable[Cause]) -> bool:
    """Return whether this is the interrupt that a scheduler sent, if a line of its own says why."""
    if not any(raised.name.endswith(_INTERRUPTS) for raised in cause.event.exceptions):
        return False
    of_scheduler = (other for other in causes if other.event.what == "stated" and not other.event.exceptions)
    return any(other.kind == "killed" for other in of_scheduler)


def _is_traceback(cause: Cause) -> bool:
    return cause.event.what == "raised" and bool(cause.event.exceptions)


def _is_aside(cause: Cause) -> bool:
    """Return whether a run may print this without failing; any other failure is preferred to it."""
    if cause.match is None and _tries_import(cause.event):
        return True
    if cause.event.form is None or not cause.event.form.aside:
        return False
    return cause.match is None or cause.match.score < _SPECIFIC


_ASKS_FOR_PACKAGE = re.compile(
    r'File "([^"\n]{1,1000})", line \d+, in _?(?:is|has|check)_\w+_(?:available|installed|supported)$',
    re.MULTILINE,
)
"""A frame of a function that tells whether a package is there; the import may fail in a file below it."""


def _tries_import(event: Event) -> bool:
    """Return whether a library only tried whether a package is there, and printed that it is not."""
    last = event.exceptions[-1] if event.exceptions else None
    if last is None or last.place is None or own_code(last.place):
        return False
    missing = last.name.endswith(("ImportError", "ModuleNotFoundError"))
    asking = (Frame(found[1], 0, "") for found in _ASKS_FOR_PACKAGE.finditer(event.text))
    return missing and not all(map(own_code, asking))
