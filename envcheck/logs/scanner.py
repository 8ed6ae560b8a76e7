"""Turn the bytes of a log into events: exceptions, ends of processes, and passages around known words.

Pure, and in bounded memory however long the log is. Blocks of bytes are searched for a few words, and only
the lines around these words are decoded and read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envcheck.logs.events import Log
from envcheck.logs.line_format import LogPatterns
from envcheck.logs.line_reader import LINES_BEFORE, LineReader
from envcheck.logs.tracebacks import MAX_LINES

LONG_LINE = 1 << 20
"""Bytes after which a line without an end is read as if it ended: progress bars, binary files."""

_MAX_LINE = 4 << 10  # bytes of one line that are read, around the first word that was found
_BLOCK = 16 << 10  # bytes that are searched, or skipped, at once
_LONGEST_WORD = 64
_MAX_REMEMBERED = 50_000  # different lines remembered to recognise repetitions
_REPEATS = 2  # how often equal lines are read, so that a warning at each step does not dominate
_COMPARED = 400  # bytes by which two lines are compared

_DIGITS = b"0123456789"
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_LOWER = bytes(range(256)).lower()
_NO_LETTER = bytes(set(range(256)) - {*_LETTERS, *_LETTERS.upper()})


class Scanner:
    """Reads chunks of bytes. How a log is cut into chunks does not change its events."""

    def __init__(self, patterns: LogPatterns) -> None:
        """Take the patterns of log lines."""
        self.reader = LineReader(patterns)
        self._words = patterns.words
        # Only letters are compared first: at most half of a training log is letters, so less is searched.
        by_letters = [(word.translate(_LOWER, _NO_LETTER), word) for word in patterns.words]
        self._words_by_letters = [(letters, word) for letters, word in by_letters if letters]
        self._words_without = [word for letters, word in by_letters if not letters]  # of other scripts
        self._rest = b""  # the end of the last chunk
        self._scanned = 0  # bytes of the rest that were searched already, kept as context
        self._given = 0  # bytes of the rest that the reader has
        self._first_number = 1  # the line number at the beginning of the rest
        self._lines = 0
        self._number_at, self._counted = 1, 0  # a line number, and the offset in the chunk of that line
        self._size = 0
        self._repetitions: dict[int, int] = {}
        self._progress_words = patterns.progress
        self._progress: list[tuple[int, int]] = []
        self._trained_from = self._trained_until = self._completed = 0

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes."""
        self._size += len(chunk)
        data = self._rest + chunk
        end = data.rfind(b"\n", self._scanned) + 1
        if not end:
            if len(data) - self._scanned < LONG_LINE:
                self._rest = data
                return
            end = max(data.rfind(b"\r", self._scanned), data.rfind(b" ", len(data) - _MAX_LINE)) + 1 or len(
                data
            )
        self._scan(data, end)

    def skip(self, lines: int, size: int) -> None:
        """Account for lines and bytes that were not kept; nothing that is open continues across them."""
        if len(self._rest) > self._scanned:
            self._scan(self._rest, len(self._rest))
        self.reader.close()
        self._first_number += self._rest.count(b"\n") + lines
        self._rest, self._scanned, self._given = b"", 0, 0
        self._size += size
        self._lines = self._first_number - 1

    def finish(self) -> Log:
        """Return the whole log."""
        if len(self._rest) > self._scanned:
            self._scan(self._rest, len(self._rest))
        progress = tuple(self._progress)
        crowded = self.reader.store.crowded
        steps = self._trained_from, self._trained_until, self._completed
        return Log(self.reader.finish(), self._lines, self._size, progress, crowded, *steps)

    def _scan(self, data: bytes, end: int) -> None:
        """Search the bytes up to `end`, one block after the other, and keep the rest."""
        at = max(self._scanned, self._given)
        self._number_at, self._counted = self._first_number, 0
        while at < end:
            at = self._scan_block(data, at, end)
        number = self._line_at(data, end)
        kept = _start_of_context(data, end, max(0, end - _MAX_LINE))
        self._first_number = number - data.count(b"\n", kept, end)
        self._lines = number - 1 + (data[end - 1 : end] not in (b"", b"\n"))
        self._rest = data[kept:]
        self._scanned, self._given = end - kept, max(0, self._given - kept)

    def _scan_block(self, data: bytes, at: int, end: int) -> int:
        """Search one block, and return where the next one begins."""
        stop = data.find(b"\n", at + _BLOCK, min(at + 2 * _BLOCK, end)) + 1 or min(at + 2 * _BLOCK, end)
        at_line_start = at == 0 or data[at - 1 : at] == b"\n"  # else a word may lie across two blocks
        overlap = at if at_line_start else max(at - _LONGEST_WORD, self._given, self._scanned)
        letters = data[overlap:stop].translate(_LOWER, _NO_LETTER)
        words = [word for word_letters, word in self._words_by_letters if word_letters in letters]
        if not data.isascii():
            words += [word for word in self._words_without if data.find(word, overlap, stop) >= 0]
        if any(word in letters for word in self._progress_words):
            first = self._line_at(data, at)
            self._add_progress(first, data.count(b"\n", at, stop))
            self._note_steps(first, data[at:stop])
        if words or self.reader.busy:
            return self._search(data, overlap, stop, end, words)
        return stop

    def _add_progress(self, line: int, count: int) -> None:
        """Note that the run trained within `count` lines from this one on."""
        if self._progress and line - self._progress[-1][1] <= MAX_LINES:
            self._progress[-1] = (self._progress[-1][0], line + count)
        else:
            self._progress.append((line, line + count))

    def _note_steps(self, line: int, block: bytes) -> None:
        """Note where a block, which begins with this line, reports steps of training and their end."""
        if (step := _last_step(block)) >= 0:
            if not self._trained_from and (found := _STEP.search(block)):
                self._trained_from = line + block.count(b"\n", 0, found.start())
            self._trained_until = line + block.count(b"\n", 0, step)
        if (end := block.rfind(_COMPLETED)) >= 0:
            self._completed = line + block.count(b"\n", 0, end)

    def _search(self, data: bytes, at: int, stop: int, end: int, words: Sequence[bytes]) -> int:
        """Give the reader the lines around the words in `data[at:stop]`.

        Return where the search ended: at `stop`, or at most at `end` if the reader wants the lines that
        follow.
        """
        hits = _Hits(data, at, stop, words)
        until = -1  # the reader gets the lines up to this offset, where a word is
        while at < stop or (at < end and self.reader.busy):
            if at <= until or self.reader.busy:
                at = self._give_line(data, at, end)
                continue
            until = hits.next(at)
            if until < 0:
                break
            line_start = data.rfind(b"\n", at, until) + 1 or at
            piece_start = data.rfind(b"\r", line_start, until) + 1 or line_start
            piece_end = _end_of_piece(data, until, end)
            if self._is_repetition(data[piece_start:piece_end]):
                at, until = piece_end, -1
            elif piece_start > line_start:  # a progress bar rewrites its line: earlier pieces mean nothing
                at = piece_start
            else:
                at = _start_of_context(data, line_start, self._given)
        return max(at, stop)

    def _give_line(self, data: bytes, at: int, end: int) -> int:
        """Give the reader the line at an offset, and return where the next one begins."""
        line_end = data.find(b"\n", at, end)
        line_end = end if line_end < 0 else line_end
        number, raw = self._line_at(data, at), data[at:line_end]
        for piece in raw.split(b"\r") if b"\r" in raw else (raw,):
            for text in self.reader.texts_of(piece) if piece or not raw else ():
                self.reader.line(number, self._shortened(text))
        self._given = min(line_end + 1, end)
        return self._given

    def _line_at(self, data: bytes, at: int) -> int:
        """Return the number of the line at an offset, which must not be before that of the last call."""
        self._number_at += data.count(b"\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._number_at

    def _is_repetition(self, line: bytes) -> bool:
        """Return whether equal lines were read often enough; one that begins a traceback is always read."""
        if b"Traceback" in line:
            return False
        key = hash(line[:_COMPARED].translate(None, _DIGITS))
        count = self._repetitions.get(key, 0)
        if count or len(self._repetitions) < _MAX_REMEMBERED:
            self._repetitions[key] = count + 1
        return count >= _REPEATS

    def _shortened(self, raw: bytes) -> bytes:
        """Return a line; of a very long one the part around the first word that was searched for."""
        if len(raw) <= _MAX_LINE:
            return raw
        lowered = raw.lower()
        hits = [offset for word in self._words if (offset := lowered.find(word)) >= 0]
        begin = max(0, min(hits, default=0) - _MAX_LINE // 4)
        return raw[begin : begin + _MAX_LINE]


_STEP = re.compile(rb"(?:loss|epoch|throughput)['\"]?\s?[:=]\s?['\"]?\d")
_COMPLETED = b"train_runtime"
"""What transformers' Trainer, and what is built on it, reports once, when the training has ended."""

_STEP_WORDS = (b"loss", b"epoch", b"throughput")
_STEPS_TRIED = 4  # occurrences of a word, from the end of a block, that are looked at


def _last_step(block: bytes) -> int:
    """Return the approximate offset of the last report on a training step in a block, or -1."""
    last = -1
    for word in _STEP_WORDS:
        end = len(block)
        for _ in range(_STEPS_TRIED):
            end = block.rfind(word, 0, end)
            if end < 0:
                break
            if _STEP.match(block, end):
                last = max(last, end)
                break
    return last


class _Hits:
    """Places of words in a part of the data, found one after the other."""

    def __init__(self, data: bytes, start: int, stop: int, words: Sequence[bytes]) -> None:
        self._lowered = data[start:stop].lower()
        self._start = start
        self._next = {word: self._lowered.find(word) for word in words}

    def next(self, at: int) -> int:
        """Return the offset of the first word at or behind an offset, or -1."""
        for word, place in self._next.items():
            if 0 <= place < at - self._start:
                self._next[word] = self._lowered.find(word, at - self._start)
        places = [place for place in self._next.values() if place >= 0]
        return min(places) + self._start if places else -1


def _end_of_piece(data: bytes, at: int, end: int) -> int:
    """Return the end of the line at an offset, or of its part up to a carriage return."""
    stop = data.find(b"\n", at, end)
    stop = end if stop < 0 else stop
    piece = data.find(b"\r", at, stop)
    return stop if piece < 0 else piece


def _start_of_context(data: bytes, at: int, floor: int) -> int:
    """Return where the context of the line at `at` begins: some lines before it, not before `floor`."""
    for _ in range(LINES_BEFORE):
        if at <= floor:
            break
        at = max(floor, data.rfind(b"\n", floor, at - 1) + 1)
    return at
