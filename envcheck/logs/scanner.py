"""The log of a run, as bytes → what went wrong in it: exceptions, ends of processes, passages.

Pure, and in bounded memory however long the log is: bytes are searched for a few words, and only the lines
around those are decoded. Lines of several ranks are told apart by what launchers put before them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LONG_LINE = 1 << 20
"""Bytes after which a line without an end is read as if it ended: progress bars, binary files."""

_CUT = 4 << 10  # bytes of one line that are looked at, around the word that was found
_BEFORE, _AFTER = 3, 8  # lines around a word that are kept together
_PATIENCE = 2000  # lines of other ranks inside one traceback
_MOST_EVENTS = 500  # different ones kept from the beginning, and from the end
_MOST_TEXT = 64 << 10  # characters of one event
_ROOM, _SCANT = 8 << 20, 2 << 10  # characters of all events; of one when there is no room left
_MOST_STREAMS = 1024
_SEEN = 50_000  # different lines remembered, so that a warning at each step is read twice and no more
_REPEATS = 2


class Frame(NamedTuple):
    """One line of a traceback: where, and in what."""

    file: str
    line: int
    name: str


class Raised(NamedTuple):
    """One exception: its name as printed, its first line, its innermost frame where that is certain."""

    name: str
    message: str
    place: Frame | None


class Event(NamedTuple):
    """Something the log tells: exceptions chained to one another, the end of a process, or a passage.

    `numbers` are those of the lines of its text, from 1. `exceptions` stand in the order they were raised
    in; an end and a passage have none. `code` is the exit code of an end, negative for a signal; `root`
    marks the end that torchrun calls the root cause. `again` is the last line of the last one like it.
    """

    what: str  # raised, ended, said
    numbers: tuple[int, ...]
    text: str
    ranks: tuple[str, ...] = ()
    exceptions: tuple[Raised, ...] = ()
    code: int | None = None
    root: bool = False
    times: int = 1
    again: int = 0

    @property
    def first(self) -> int:
        """The number of its first line."""
        return self.numbers[0]

    @property
    def last(self) -> int:
        """The number of its last line."""
        return self.numbers[-1]


class Log(NamedTuple):
    """What was read: events by first line, lines and bytes.

    `progress` are stretches of lines in which the run trained, first and last line. `crowded` says that
    some events were left out.
    """

    events: tuple[Event, ...]
    lines: int
    size: int
    progress: tuple[tuple[int, int], ...] = ()
    crowded: bool = False

    def trained(self, first: int, last: int) -> int:
        """How many lines of training stand between two lines."""
        return sum(max(0, min(last, end) - max(first, begin)) for begin, end in self.progress)


class Look(NamedTuple):
    """How logs look: the words to search for, those of training, in lower case; the prefixes of launchers."""

    words: tuple[bytes, ...]
    progress: tuple[bytes, ...]
    prefix: re.Pattern[str]
    times: re.Pattern[str]


def look(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Look:
    """What compat/tables/log.toml says."""
    rows = tables.get("log_prefix", ())

    def joined(*, time: bool) -> re.Pattern[str]:
        patterns = [
            row["pattern"].replace("(?P<rank>", "(") for row in rows if row.get("time", False) is time
        ]
        return re.compile("|".join(patterns) or r"\b\B")

    return Look(
        tuple(row["word"].lower().encode() for row in tables.get("trigger", ())),
        tuple(row["word"].lower().encode() for row in tables.get("progress", ())),
        joined(time=False),
        joined(time=True),
    )


# --- one line ---------------------------------------------------------------------------------------

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_SPEEDS = ("it/s", "s/it", "B/s")
_REST_OF_BAR = 200  # characters of a progress bar behind its speed


def _after_bar(text: str) -> str:
    """What follows a progress bar of tqdm on its line: it ends none, so that the next text begins there."""
    speed = max(map(text.rfind, _SPEEDS))
    end = text.find("]", speed, speed + _REST_OF_BAR) + 1 if speed >= 0 else 0
    return text[end:] if text[end:].strip() else text


def _cleaned(raw: bytes, look: Look) -> tuple[str, str, str]:
    """A line's stream, the rank it names, its text without what launchers and terminals put around it."""
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    stream, rank = "", ""
    text = _after_bar(text)
    while True:
        if found := look.prefix.match(text):
            stream += found[0].strip()
            rank = found[found.lastindex] if found.lastindex else rank
        elif not (found := look.times.match(text)):
            return stream, rank, text.rstrip()
        text = text[found.end() :]


def plain(raw: bytes) -> str:
    """Text without terminal codes, each line's carriage returns gone, as many lines as there were."""
    return _ANSI.sub("", raw.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", " ")


# --- tracebacks -------------------------------------------------------------------------------------

_HEADER = re.compile(r"Traceback \(most recent call last\):?(?:$| *\|)")  # or the rest of a bar it cut off
_DRAWN = re.compile(r"(?:([A-Z]\w*[a-z]\w*) {2,}|╭─+ )Traceback \(most recent call last\)(?: ─+╮)?$")
_IN_BOX = ("│", "╰")
_NOT_READ = re.compile(r"((?:Syntax|Indentation|Tab)Error): (.*)")  # of a script itself: without a header
_QUOTING = "RayTaskError"  # tells the traceback of its task without a header
_FRAME = re.compile(r'(\s*)File "([^"]{1,1000})", line (\d+)(?:, in (.{1,300}))?$')
_BARS = re.compile(r"\s*(?:\| ?|\+-[-+ \d.]*$|\+ (?=Exception Group))")
_NAMED = re.compile(r"(\s*)((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\(\w+\))?(?::(?: (.*))?)?$", re.DOTALL)
_AN_EXCEPTION = re.compile(
    r"(?i)(error|exception|exit|interrupt|warning|group|iteration|timeout|expired|abort|fault|refused|failure"
    r"|traceback|empty|full|cancelled|killed)$"
)
_LINK = re.compile(
    r"\s*(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:)"
)
_LOGGED = re.compile(
    r"\[?\d{4}-\d\d-\d\d|\[?[EWIF]\d{4} \d\d:|\[?(?:INFO|DEBUG|WARNING|ERROR|CRITICAL)\b|\s*\d+%\|"
    r"|(?:srun|slurmstepd|wandb|bash|make|sh): |\S+: line \d+: "
    r"|Killed|Aborted|Segmentation|Bus error|Terminated|\{'|(?i:step|epoch|iter(?:ation)?|loss)\b"
)
_MESSAGE_LINES = 60


class _Block:
    """One traceback with those chained to it, or several that unnamed ranks print into each other."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.texts: list[str] = []
        self.size = 0
        self.pending = 1  # headers whose exception has not come
        self.mixed = False
        self.linked = False  # the line came that chains the next traceback to this one
        self.untold = False  # the last exception's message begins on the next line
        self.inner = False  # the next exception was raised before the one told last
        self.grouped = False
        self.drawn: str | None = None  # by rich (empty) or a notebook (the exception's name), not by Python
        self.frames: list[Frame] = []
        self.indent = 2
        self.raised: list[Raised] = []
        self.message: list[str] = []

    def add(self, number: int, text: str) -> None:
        if self.size < _MOST_TEXT:
            self.numbers.append(number)
            self.texts.append(text)
            self.size += len(text) + 1

    def again(self, number: int, text: str) -> None:
        """Another header inside: of an exception chained to this one, or of another rank."""
        self.mixed = self.mixed or self.pending > 0
        self.inner = not self.pending and self.holds(text)
        self.pending += 1
        self.linked = False
        if not self.mixed:
            self.frames.clear()
        self.add(number, text)

    def quotes(self, text: str) -> bool:
        """Whether a line begins the frames that the last exception quotes without a header."""
        told = not self.pending and self.raised and self.raised[-1].name.endswith(_QUOTING)
        return bool(told and _FRAME.match(text))

    def quoted(self) -> None:
        """What the last exception quotes begins: it was raised before that."""
        self.pending, self.inner = 1, True
        self.frames.clear()

    def holds(self, text: str) -> bool:
        """Whether a header begins what the last exception quotes: a worker's traceback, a group's member."""
        quoted = "Original Traceback" in text or self.message[-1:] == ['"""']
        return bool(self.raised) and (quoted or (self.grouped and not self.linked))

    def frame(self, found: re.Match[str]) -> None:
        self.indent = len(found[1])
        self.frames.append(Frame(found[2], int(found[3]), found[4] or ""))

    def end(self, name: str, message: str) -> None:
        where = len(self.raised) - 1 if self.inner else len(self.raised)
        self.raised.insert(where, Raised(name, message, self._innermost()))
        self.untold = not message and self.texts[-1].endswith(":") and not self.inner
        self.inner = False
        self.pending -= 1
        self.message = []
        if not self.pending:
            self.frames.clear()

    def tell(self, message: str) -> None:
        """The message of the last exception, which begins on a line of its own."""
        self.raised[-1] = self.raised[-1]._replace(message=message[:2000])
        self.untold = False

    def _innermost(self) -> Frame | None:
        """The last frame; of ranks that print into each other, only if all are at the same one."""
        if not self.mixed:
            return self.frames[-1] if self.frames else None
        alike = len({(each.file, each.line) for each in self.frames[-self.pending :]}) == 1
        return self.frames[-1] if self.frames and alike else None


class _Passage:
    """Lines around a word that was found."""

    def __init__(self, before: Sequence[tuple[int, str]]) -> None:
        self.lines = list(before)
        self.left = _AFTER
        self.size = 0


class _Stream:
    """What is open in the lines of one rank."""

    def __init__(self, rank: str) -> None:
        self.rank = rank
        self.recent: deque[tuple[int, str]] = deque(maxlen=_BEFORE)
        self.block: _Block | None = None
        self.passage: _Passage | None = None
        self.fed = 0  # when its last line came
        self.summary_rank = ""
        self.root = False
        self.end: Event | None = None  # of a process, as torchrun's table tells it


_SUMMARY_RANK = re.compile(r"\s*rank\s+: (\d+) \(local_rank: \d+\)")
_SUMMARY_CODE = re.compile(r"\s*exitcode\s+: (-?\d+) \(pid: \d+\)")
_SUMMARY_FIELD = re.compile(r"\s*(?:error_file|traceback)\s*:")


class LineReader:
    """Lines → events. `busy` says whether it wants the lines that follow, too."""

    def __init__(self, look: Look) -> None:
        """Take how logs look."""
        self.look = look
        self.words = tuple(word.decode() for word in look.words)
        self._streams: dict[str, _Stream] = {}
        self._open: set[str] = set()
        self._fed = 0
        self._events: dict[Any, Event] = {}  # the first ones
        self._late: dict[Any, Event] = {}  # the last ones of those for which there is no room
        self._room = _ROOM
        self.crowded = False

    @property
    def busy(self) -> bool:
        """Whether something is open that later lines may belong to."""
        return bool(self._open)

    def line(self, number: int, raw: bytes) -> None:
        """One line without its end."""
        key, rank, text = _cleaned(raw, self.look)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= _MOST_STREAMS:
                key = ""
            stream = self._streams.setdefault(key, _Stream(rank))
        self._fed += 1
        stream.fed = self._fed
        self._one(stream, number, text)
        if stream.block or stream.passage:
            self._open.add(key)
        else:
            self._open.discard(key)
        if self._open and self._fed % 64 == 0:
            self._close_stale()

    def finish(self) -> tuple[Event, ...]:
        """The events, by first line; what is open ends here."""
        self.close()
        events = [*self._events.values(), *self._late.values()]
        return tuple(sorted(events, key=lambda each: each.first))

    def close(self) -> None:
        """What is open ends here."""
        for stream in self._streams.values():
            self._close(stream)
        self._open.clear()

    # one stream

    def _one(self, stream: _Stream, number: int, text: str) -> None:
        block = stream.block
        grouped = "Exception Group Traceback" in text
        if grouped or (block is not None and block.grouped):
            text = _BARS.sub("", text, count=1)
        self._summary(stream, number, text)
        drawn = _DRAWN.match(text) if "Traceback" in text else None
        if drawn or ("Traceback" in text and _HEADER.search(text)):
            self._header(stream, number, text)
            if stream.block is not None:
                stream.block.drawn = (drawn[1] or "") if drawn else None
        elif block is not None and self._belongs(block, number, text):
            pass
        else:
            if block is not None and not block.pending:
                self._close_block(stream)
            if not self._not_read(stream, number, text):
                self._plain(stream, number, text)
        stream.recent.append((number, text))

    def _header(self, stream: _Stream, number: int, text: str) -> None:
        block = stream.block
        if block is not None and (block.pending or block.linked or block.holds(text)):
            block.again(number, text)
            return
        self._close(stream)
        stream.block = _Block()
        stream.block.grouped = "Exception Group" in text
        stream.block.add(number, text)

    def _not_read(self, stream: _Stream, number: int, text: str) -> bool:
        """Whether the line ends what Python says of a script that it cannot read."""
        named = _NOT_READ.match(text)
        places = [at for at, (_, line) in enumerate(stream.recent) if _FRAME.match(line)] if named else []
        if named is None or not places or (stream.block and stream.block.pending):
            return False
        self._close(stream)
        block = stream.block = _Block()
        for each, line in list(stream.recent)[places[-1] :]:
            self._in_frames(block, each, line)
        block.add(number, text)
        block.end(named[1], named[2])
        return True

    def _belongs(self, block: _Block, number: int, text: str) -> bool:
        """Whether a line is of the open traceback; it is added if so."""
        if block.quotes(text):
            block.quoted()
        if block.pending:
            read = self._in_frames if block.drawn is None else self._in_drawing
            return read(block, number, text)
        if _LINK.match(text):
            block.linked = True
        elif _LOGGED.match(text) or len(block.message) >= _MESSAGE_LINES:
            return False
        elif block.untold and text.strip():
            block.tell(text.strip())
        block.message.append(text.strip())
        block.add(number, text)
        return True

    @staticmethod
    def _in_drawing(block: _Block, number: int, text: str) -> bool:
        """A line of a traceback with its code drawn around it: where it breaks paths, no frame is certain."""
        named = _NAMED.match(text)
        boxed = text.lstrip().startswith(_IN_BOX)
        name = named[2].rpartition(".")[2] if named and not named[1] else ""
        if named and (name == block.drawn if block.drawn else _is_exception(name)):
            block.add(number, text)
            block.end(named[2], (named[3] or "")[:2000])
            return True
        if not block.drawn and text and not boxed:
            return False
        if number - block.numbers[0] > _PATIENCE:
            return False
        block.add(number, text)
        return True

    @staticmethod
    def _in_frames(block: _Block, number: int, text: str) -> bool:
        if found := _FRAME.match(text):
            block.frame(found)
        elif _LINK.match(text):
            block.linked = True
        else:
            named = _NAMED.match(text)
            if named and block.frames and len(named[1]) < block.indent and _is_exception(named[2]):
                block.add(number, text)
                block.end(named[2], (named[3] or "")[:2000])
                return True
            if text and not text[0].isspace() and not block.mixed:
                return False  # another rank's, or another thread's
        block.add(number, text)
        return True

    def _summary(self, stream: _Stream, number: int, text: str) -> None:
        """Torchrun's table of failures, a line of which is a field."""
        if text.startswith("Failures:"):
            stream.root = False  # of an earlier attempt, maybe
        elif "Root Cause" in text:
            stream.root = True
        elif "rank" in text and (found := _SUMMARY_RANK.match(text)):
            stream.summary_rank = found[1]
        elif "exitcode" in text and (found := _SUMMARY_CODE.match(text)):
            ranks = (stream.summary_rank,) if stream.summary_rank else ()
            stream.end = Event("ended", (number,), text, ranks, code=int(found[1]), root=stream.root)
        elif stream.end is not None and _SUMMARY_FIELD.match(text):
            numbers, told = (*stream.end.numbers, number), f"{stream.end.text}\n{text}"
            stream.end = stream.end._replace(numbers=numbers, text=told)
            if "traceback" in text:
                self._close_end(stream)

    def _plain(self, stream: _Stream, number: int, text: str) -> None:
        lowered = text.lower()
        if any(word in lowered for word in self.words):
            stream.passage = stream.passage or _Passage(stream.recent)
            stream.passage.left = _AFTER
        passage = stream.passage
        if passage is None:
            return
        passage.lines.append((number, text))
        passage.left -= 1
        passage.size += len(text)
        if passage.left < 0 or len(passage.lines) > _MESSAGE_LINES or passage.size > _MOST_TEXT:
            self._close_passage(stream)

    # ends

    def _close_stale(self) -> None:
        for key in list(self._open):
            stream = self._streams[key]
            patience = _PATIENCE if stream.block and stream.block.pending else _PATIENCE // 10
            if self._fed - stream.fed > patience:
                self._close(stream)
                self._open.discard(key)

    def _close(self, stream: _Stream) -> None:
        self._close_block(stream)
        self._close_passage(stream)
        self._close_end(stream)

    def _close_end(self, stream: _Stream) -> None:
        end, stream.end = stream.end, None
        if end is not None:
            self._add(end)

    def _close_block(self, stream: _Stream) -> None:
        block, stream.block = stream.block, None
        if block is None:
            return
        ranks = (stream.rank,) if stream.rank else ()
        text = "\n".join(block.texts)
        self._add(Event("raised", tuple(block.numbers), text, ranks, tuple(block.raised)))

    def _close_passage(self, stream: _Stream) -> None:
        passage, stream.passage = stream.passage, None
        if passage is None:
            return
        ranks = (stream.rank,) if stream.rank else ()
        text = "\n".join(text for _, text in passage.lines)
        self._add(Event("said", tuple(number for number, _ in passage.lines), text, ranks))

    def _add(self, event: Event) -> None:
        """Keep an event; one like an earlier one is counted there."""
        told: list[Any] = [(each.name, _digitless(each.message)) for each in event.exceptions]
        key = (event.what, event.code, event.root, *(told or [_digitless(event.text)]))
        held = self._late if key in self._late else self._events
        before = held.get(key)
        if before is not None:
            ranks = tuple(sorted({*before.ranks, *event.ranks}, key=_by_number))
            kept = min(before, event, key=lambda each: each.first)
            again = max(before.again, event.last)
            held[key] = kept._replace(ranks=ranks, times=before.times + 1, again=again)
            return
        if self._room < len(event.text):
            text = event.text[:_SCANT]
            event = event._replace(text=text, numbers=event.numbers[: text.count("\n") + 1])
        self._room -= len(event.text)
        held = self._events if len(self._events) < _MOST_EVENTS else self._late
        held[key] = event._replace(again=event.last)
        if len(self._late) > _MOST_EVENTS:
            self._room += len(self._late.pop(next(iter(self._late))).text)
            self.crowded = True


def _is_exception(name: str) -> bool:
    last = name.rpartition(".")[2]
    return bool(_AN_EXCEPTION.search(last)) or (last != name and last[:1].isupper())


def _digitless(text: str) -> str:
    return re.sub(r"\d+", "0", text[:2000])


def _by_number(rank: str) -> tuple[int, str]:
    return (int(rank) if rank.isdecimal() else 1 << 30, rank)


# --- bytes ------------------------------------------------------------------------------------------

_DIGITS = b"0123456789"
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_LOWER = bytes(range(256)).lower()
_NO_LETTER = bytes(set(range(256)) - {*_LETTERS, *_LETTERS.upper()})
_BLOCK = 16 << 10  # bytes that are searched, or passed over, at once
_LONGEST_WORD = 64


class Scanner:
    """Chunks of bytes → a Log. Whatever the chunks, the same log gives the same events."""

    def __init__(self, look: Look) -> None:
        """Take how logs look."""
        self.reader = LineReader(look)
        self._words = look.words
        self._bare_words = [(word.translate(_LOWER, _NO_LETTER), word) for word in look.words]
        self._rest = b""
        self._scanned = 0  # in the rest: what was searched already, kept as the lines before
        self._fed = 0  # in the rest: what the reader has
        self._number = 1  # of the line that the rest begins with
        self._lines = 0
        self._number_at, self._counted = 1, 0  # the line number at a place of the chunk
        self._size = 0
        self._seen: dict[int, int] = {}
        self._progress_words = look.progress
        self._progress: list[tuple[int, int]] = []

    def feed(self, chunk: bytes) -> None:
        """The next bytes."""
        self._size += len(chunk)
        data = self._rest + chunk
        end = data.rfind(b"\n", self._scanned) + 1
        if not end:
            if len(data) - self._scanned < LONG_LINE:
                self._rest = data
                return
            end = max(data.rfind(b"\r", self._scanned), data.rfind(b" ", len(data) - _CUT)) + 1 or len(data)
        self._scan(data, end)

    def skip(self, lines: int, size: int) -> None:
        """Leave so many lines and bytes out that nobody kept; nothing goes on across them."""
        if len(self._rest) > self._scanned:
            self._scan(self._rest, len(self._rest))
        self.reader.close()
        self._number += self._rest.count(b"\n") + lines
        self._rest, self._scanned, self._fed = b"", 0, 0
        self._size += size
        self._lines = self._number - 1

    def finish(self) -> Log:
        """What the whole log tells."""
        if len(self._rest) > self._scanned:
            self._scan(self._rest, len(self._rest))
        progress = tuple(self._progress)
        return Log(self.reader.finish(), self._lines, self._size, progress, self.reader.crowded)

    def _scan(self, data: bytes, end: int) -> None:
        """Search the bytes up to `end`, a block after the other."""
        at = max(self._scanned, self._fed)
        self._number_at, self._counted = self._number, 0
        while at < end:
            stop = data.find(b"\n", at + _BLOCK, min(at + 2 * _BLOCK, end)) + 1 or min(at + 2 * _BLOCK, end)
            whole = at == 0 or data[at - 1 : at] == b"\n"  # else a word may lie across two blocks
            overlap = at if whole else max(at - _LONGEST_WORD, self._fed, self._scanned)
            letters = data[overlap:stop].translate(_LOWER, _NO_LETTER)  # a half or less of a training log
            words = [word for bare, word in self._bare_words if bare in letters]
            if any(word in letters for word in self._progress_words):
                self._trains(self._line_at(data, at), data.count(b"\n", at, stop))
            if words or self.reader.busy:
                stop = self._search(data, overlap, stop, end, words)
            at = stop
        number = self._line_at(data, end)
        kept = _lines_before(data, end, max(0, end - _CUT))
        self._number = number - data.count(b"\n", kept, end)
        self._lines = number - 1 + (data[end - 1 : end] not in (b"", b"\n"))
        self._rest = data[kept:]
        self._scanned, self._fed = end - kept, max(0, self._fed - kept)

    def _trains(self, line: int, count: int) -> None:
        """So many lines from this one on, among which the run tells of its training."""
        if self._progress and line - self._progress[-1][1] <= _MESSAGE_LINES:
            self._progress[-1] = (self._progress[-1][0], line + count)
        else:
            self._progress.append((line, line + count))

    def _search(self, data: bytes, at: int, stop: int, end: int, words: Sequence[bytes]) -> int:
        """Give the reader the lines around the words in `data[at:stop]`; where it is done, at most `end`."""
        low = data[at:stop].lower()
        shift, until = at, -1
        nexts = {word: low.find(word) for word in words}
        while at < stop or (at < end and self.reader.busy):
            if at <= until or self.reader.busy:
                after = data.find(b"\n", at, end)
                after = end if after < 0 else after
                self._give(self._line_at(data, at), data[at:after])
                at = self._fed = min(after + 1, end)
                continue
            for word, where in nexts.items():
                if 0 <= where < at - shift:
                    nexts[word] = low.find(word, at - shift)
            until = min((where for where in nexts.values() if where >= 0), default=-1) + shift
            if until < shift:
                break
            begin = data.rfind(b"\n", at, until) + 1 or at
            piece = data.rfind(b"\r", begin, until) + 1 or begin
            after = _end_of_piece(data, until, end)
            if self._repeats(data[piece:after]):
                at, until = after, -1
            elif piece > begin:  # a progress bar rewrites its line: what stood before says nothing
                at = piece
            else:
                at = _lines_before(data, begin, self._fed)
        return max(at, stop)

    def _line_at(self, data: bytes, at: int) -> int:
        """The number of the line at a place, which is never before the last one asked for."""
        self._number_at += data.count(b"\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._number_at

    def _repeats(self, line: bytes) -> bool:
        """Whether a line like this came often enough before; one that begins a traceback never did."""
        if b"Traceback" in line:
            return False
        key = hash(line[:400].translate(None, _DIGITS))
        count = self._seen.get(key, 0)
        if count or len(self._seen) < _SEEN:
            self._seen[key] = count + 1
        return count >= _REPEATS

    def _give(self, number: int, raw: bytes) -> None:
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            if piece or not raw:
                self.reader.line(number, self._window(piece))

    def _window(self, raw: bytes) -> bytes:
        """A line, or what of a very long one lies around the first word that was searched for."""
        if len(raw) <= _CUT:
            return raw
        low = raw.lower()
        hits = [where for word in self._words if (where := low.find(word)) >= 0]
        begin = max(0, min(hits, default=0) - _CUT // 4)
        return raw[begin : begin + _CUT]


def _end_of_piece(data: bytes, at: int, end: int) -> int:
    stop = data.find(b"\n", at, end)
    stop = end if stop < 0 else stop
    piece = data.find(b"\r", at, stop)
    return stop if piece < 0 else piece


def _lines_before(data: bytes, at: int, floor: int) -> int:
    """Where the lines begin that stand before the one at `at`, not before `floor`."""
    for _ in range(_BEFORE):
        if at <= floor:
            break
        at = max(floor, data.rfind(b"\n", floor, at - 1) + 1)
    return at
