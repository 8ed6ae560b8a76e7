"""Turn lines of a log into events. Prefixes that launchers add distinguish the lines of several ranks."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator, Sequence

from envcheck.logs.event_store import EventStore
from envcheck.logs.events import Event, FailureForm, Raised
from envcheck.logs.json_lines import lines_in_json, place_of_json
from envcheck.logs.line_format import LogPatterns, line_text
from envcheck.logs.statements import Statement, StatementPatterns
from envcheck.logs.tracebacks import (
    MAX_LINES,
    MAX_TEXT,
    PATIENCE,
    Traceback,
    begins_traceback,
    continues_no_message,
    goes_on,
    headless,
    names_no_error_yet,
    source_above,
    unreadable_script,
    with_next_line,
    without_group_bars,
)

LINES_BEFORE = 3
"""Lines before a word that belong to its passage."""

_LINES_AFTER = 8  # lines behind a word that belong to its passage
_MESSAGE_LINES = 20  # lines that may be added to a message
_MAX_STREAMS = 1024
_STALE_CHECK = 64  # lines between two checks for stale streams

_SUMMARY_RANK = re.compile(r"\s*rank\s+: (\d+) \(local_rank: \d+\)")
_SUMMARY_CODE = re.compile(r"\s*exitcode\s+: (-?\d+) \(pid: \d+\)")
_SUMMARY_FIELD = re.compile(r"\s*(?:error_file|traceback)\s*:")


_LABEL = re.compile(r"(.{0,200}?\S)(\s*)Traceback \(")
"""What a logger, a test or a quotation wrote before the header of a traceback, and the space behind it."""


def _labelled(header: str) -> re.Pattern[str] | None:
    """Return what matches the label of a header before the lines below it; None without one.

    A program that logs each line of an exception by itself repeats the label, with other numbers: `ERROR: `,
    `10:00:01 - trainer - ERROR - `. A word alone, such as `Original`, belongs to the header.
    """
    found = _LABEL.match(header)
    if found is None or (found[1].isalpha() and found[2] == " "):
        return None
    label = re.sub(r"\d+", r"\\d+", re.escape(found[1]))
    return re.compile(f"{label}(?:{re.escape(found[2])}|\\s*$)")


_FIRST_FRAME = re.compile(r'\s+File "')


class _Passage:
    """Lines around a word that was found."""

    def __init__(self, before: Sequence[tuple[int, str]]) -> None:
        self.lines = list(before)
        self.lines_left = _LINES_AFTER
        self.size = 0
        self.statements: list[tuple[int, Statement]] = []  # each with the index of its line

    def state(self, statement: Statement) -> None:
        """Note that the last line states a failure; an `aside` statement belongs to the one before it.

        It does not if that one counts only at the end of a log, where it need not be.
        """
        if statement.form.aside and any(not said.form.last for _, said in self.statements):
            return
        self.statements.append((len(self.lines) - 1, statement))

    def add(self, number: int, text: str) -> None:
        self.lines.append((number, text))
        self.lines_left -= 1
        self.size += len(text)

    @property
    def complete(self) -> bool:
        return self.lines_left < 0 or len(self.lines) > MAX_LINES or self.size > MAX_TEXT


def _stated(passage: _Passage, ranks: tuple[str, ...], patterns: StatementPatterns) -> Iterator[Event]:
    """Yield the failures that a passage states, each with the lines up to the next; an end has one line."""
    ends = [*(at for at, _ in passage.statements[1:]), len(passage.lines)]
    for (at, stated), end in zip(passage.statements, ends, strict=False):
        lines, said = passage.lines[at : at + 1] if stated.ended else passage.lines[at:end], stated
        if said.form.heading:
            lines = [(lines[0][0], _with_lines_below(lines)), *lines[1:]]
            said = patterns.statement(lines[0][1]) or said
        above = [text for _, text in passage.lines[:at]]
        source, marked = source_above(above)
        source = source or _quoted_source(above, lines[0][1])
        exceptions = tuple(one._replace(source=source, marked=marked) for one in said.exceptions)
        yield Event(
            "ended" if said.ended else "stated",
            tuple(number for number, _ in lines),
            "\n".join(text for _, text in lines),
            (said.rank,) if said.rank else ranks,
            _with_message_below(exceptions, lines[1:], begun=lines[0][1].rstrip().endswith("Error:")),
            said.code,
            form=said.form,
        )


_OF_A_MESSAGE = 3
"""Lines below a heading that are read, at most."""


def _with_lines_below(lines: Sequence[tuple[int, str]]) -> str:
    """Return a heading and the message below it, which ends with an empty line, as one line."""
    below = itertools.dropwhile(lambda text: not text, (text.strip() for _, text in lines[1:]))
    message = itertools.islice(itertools.takewhile(bool, below), _OF_A_MESSAGE)
    return " ".join((lines[0][1].strip(), *message))


_CODE = re.compile(
    r"\s{4,40}(?=(?:raise|return|assert|await|yield|import|from|for|if|with) "
    r"|[\w.]{1,80}(?:\[.{1,60}\])? [-+*/|]?= "
    r"|[\w.]{1,80}\()(?P<code>\S.{0,400})$"
)
"""A line of code as Python shows it below a frame."""


def _quoted_source(above: Sequence[str], exception: str) -> str:
    """Return the line of code right above an exception, whose frame somebody left out; empty without one."""
    found = _CODE.match(above[-1]) if above and not exception[:1].isspace() else None
    return found["code"].rstrip() if found else ""


def _with_message_below(
    exceptions: tuple[Raised, ...], below: Sequence[tuple[int, str]], *, begun: bool
) -> tuple[Raised, ...]:
    """Return the exceptions; if the last message continues below, the next line is added to it.

    A message continues if it ends in a colon or an open bracket, if it is empty and the next line is
    indented or the exception's line has `begun` it with a colon, or if it is NCCL's, which names the call
    that failed in the lines below.
    """
    for text in [text for _, text in below if text.strip()][:_MESSAGE_LINES]:
        if not exceptions or continues_no_message(text):
            break
        message = exceptions[-1].message
        empty = not message and (begun or text[:1].isspace())
        follows = message.endswith(":") or empty or names_no_error_yet(exceptions[-1])
        if not (follows or goes_on(exceptions[-1], text)):
            break
        exceptions = (*exceptions[:-1], with_next_line(exceptions[-1], text))
    return exceptions


class _FailureTable:
    """Torchrun's table of failures, each line of which is a field of one process."""

    def __init__(self) -> None:
        self._rank = ""
        self._root = False
        self._end: Event | None = None

    def take(self, number: int, text: str) -> Event | None:
        """Read a field; if it is the last one of a process, return the end of that process."""
        if text.startswith("Failures:"):
            self._root = False  # the root cause may be that of an earlier attempt
        elif "Root Cause" in text:
            self._root = True
        elif "rank" in text and (found := _SUMMARY_RANK.match(text)):
            self._rank = found[1]
        elif "exitcode" in text and (found := _SUMMARY_CODE.match(text)):
            ranks = (self._rank,) if self._rank else ()
            self._end = Event("ended", (number,), text, ranks, code=int(found[1]), root=self._root)
        elif self._end is not None and _SUMMARY_FIELD.match(text):
            numbers, joined = (*self._end.numbers, number), f"{self._end.text}\n{text}"
            self._end = self._end._replace(numbers=numbers, text=joined)
            if "traceback" in text:
                return self.close()
        return None

    def close(self) -> Event | None:
        """Return the end of a process that has not been returned yet."""
        end, self._end = self._end, None
        return end


class _Stream:
    """What is open in the lines of one rank."""

    def __init__(self, rank: str) -> None:
        self.ranks = (rank,) if rank else ()
        self.recent: deque[tuple[int, str]] = deque(maxlen=LINES_BEFORE)
        self.traceback: Traceback | None = None
        self.label: re.Pattern[str] | None = None  # of the last header, if it had one
        self.passage: _Passage | None = None
        self.failures = _FailureTable()
        self.last_line = 0  # the reader's count when the last line came


class LineReader:
    """Reads lines in order and collects events."""

    def __init__(self, patterns: LogPatterns) -> None:
        """Take the patterns of log lines."""
        self.patterns = patterns
        self.store = EventStore()
        self._words = tuple(word.decode() for word in patterns.words)
        self._streams: dict[str, _Stream] = {}
        self._open: set[str] = set()  # streams with an open traceback or passage
        self._line_count = 0

    @property
    def busy(self) -> bool:
        """Return whether later lines may belong to something that is open."""
        return bool(self._open)

    def texts_of(self, raw: bytes) -> Sequence[bytes]:
        """Return the lines of text in a line of JSON, each behind its prefix, or the line itself."""
        begin = place_of_json(raw)
        if begin < 0 or (begin and line_text(raw[:begin], self.patterns).text):
            return (raw,)
        return [raw[:begin] + each for each in lines_in_json(raw[begin:], self.patterns.json)] or (raw,)

    def line(self, number: int, raw: bytes) -> None:
        """Read one line, or one of the texts in it, without its end."""
        key, rank, text = line_text(raw, self.patterns)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= _MAX_STREAMS:
                key = ""
            stream = self._streams.setdefault(key, _Stream(rank))
        self._line_count += 1
        stream.last_line = self._line_count
        self._adopt_header(stream, number, text)
        self._read(stream, number, text)
        if stream.traceback or stream.passage:
            self._open.add(key)
        else:
            self._open.discard(key)
        if self._open and self._line_count % _STALE_CHECK == 0:
            self._close_stale()

    def finish(self) -> tuple[Event, ...]:
        """Return the events by first line; everything open ends here."""
        self.close()
        return self.store.events()

    def close(self) -> None:
        """End everything that is open."""
        for stream in self._streams.values():
            self._close(stream)
        self._open.clear()

    # --- one line -----------------------------------------------------------------------------------

    def _read(self, stream: _Stream, number: int, text: str) -> None:
        traceback = stream.traceback
        if begins_traceback(text):
            stream.label = _labelled(text)
        elif stream.label is not None and traceback is not None and (found := stream.label.match(text)):
            text = text[found.end() :]
        if "Exception Group Traceback" in text or (traceback is not None and traceback.grouped):
            text = without_group_bars(text)
        self._keep_end(stream.failures.take(number, text))
        if begins_traceback(text):
            self._take_header(stream, number, text)
        elif traceback is None or not traceback.take(number, text):
            self._read_outside(stream, number, text)
        stream.recent.append((number, text))

    def _adopt_header(self, stream: _Stream, number: int, text: str) -> None:
        """Take over the header in the line above, if it lost the prefix that the frames below it have.

        So it does where somebody began to copy behind the prefix.
        """
        if not (stream.ranks and _FIRST_FRAME.match(text)) or stream.traceback is not None:
            return
        bare = self._streams.get("")
        if bare is not None and bare.traceback is not None and bare.traceback.numbers == [number - 1]:
            self._close_passage(stream)
            stream.traceback, bare.traceback = bare.traceback, None

    def _take_header(self, stream: _Stream, number: int, text: str) -> None:
        if stream.traceback is None or not stream.traceback.continues_with(text):
            self._close(stream)
            above = next((line for _, line in reversed([*stream.recent]) if line.strip()), "")
            stream.traceback = Traceback()
            stream.traceback.ignored = "Exception ignored " in above
        stream.traceback.take_header(number, text)

    def _read_outside(self, stream: _Stream, number: int, text: str) -> None:
        """Read a line that does not belong to the open traceback; a complete one ends here."""
        if stream.traceback is not None and not stream.traceback.pending:
            self._close_traceback(stream)
        if stream.traceback is None and (
            found := unreadable_script(number, text, stream.recent) or headless(number, text, stream.recent)
        ):
            self._close(stream)
            stream.traceback = found
        else:
            self._read_passage(stream, number, text)

    def _read_passage(self, stream: _Stream, number: int, text: str) -> None:
        lowered = text.lower()
        statement = None
        if any(word in lowered for word in self._words):
            stream.passage = stream.passage or _Passage(stream.recent)
            stream.passage.lines_left = _LINES_AFTER
            statement = self.patterns.statements.statement(text)
        if stream.passage is not None:
            stream.passage.add(number, text)
            if statement is not None:
                stream.passage.state(statement)
            if stream.passage.complete:
                self._close_passage(stream)

    # --- ends ---------------------------------------------------------------------------------------

    def _close_stale(self) -> None:
        """Close the streams that had no line for a long time; an incomplete traceback may wait longer."""
        for key in list(self._open):
            stream = self._streams[key]
            incomplete = stream.traceback is not None and stream.traceback.pending
            if self._line_count - stream.last_line > (PATIENCE if incomplete else PATIENCE // 10):
                self._close(stream)
                self._open.discard(key)

    def _close(self, stream: _Stream) -> None:
        self._close_traceback(stream)
        self._close_passage(stream)
        self._keep_end(stream.failures.close())

    def _close_traceback(self, stream: _Stream) -> None:
        traceback, stream.traceback = stream.traceback, None
        if traceback is not None:
            text = "\n".join(traceback.texts)
            numbers = tuple(traceback.numbers)
            raised, cut_at = tuple(traceback.raised), traceback.cut_at
            form = FailureForm("harmless", "Python ignored it", "") if traceback.ignored else None
            self._keep(Event("raised", numbers, text, stream.ranks, raised, cut_at=cut_at, form=form))

    def _close_passage(self, stream: _Stream) -> None:
        passage, stream.passage = stream.passage, None
        if passage is not None:
            text = "\n".join(text for _, text in passage.lines)
            self._keep(Event("said", tuple(number for number, _ in passage.lines), text, stream.ranks))
            for event in _stated(passage, stream.ranks, self.patterns.statements):
                self._keep(event)

    def _keep_end(self, end: Event | None) -> None:
        """Keep the end of a process with what its exit code says."""
        if end is not None:
            self._keep(end._replace(form=self.patterns.statements.ending(end.code or 0)))

    def _keep(self, event: Event | None) -> None:
        if event is None:
            return
        if event.exceptions and (event.form is None or not event.form.means):
            meaning = self.patterns.statements.meaning(event.exceptions[0], event.text)
            if meaning is not None:
                event = event._replace(form=meaning._replace(aside=bool(event.form and event.form.aside)))
        if event.exceptions:
            event = event._replace(general=self.patterns.statements.general_meaning(event.exceptions[0]))
        self.store.add(event)
