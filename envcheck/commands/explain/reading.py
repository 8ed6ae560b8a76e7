"""Read the bytes of a log: gzip, UTF-16, cut logs; refuse what is no text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from envcheck.core.decoding import UTF_16_MARKS
from envcheck.core.errors import InputError
from envcheck.host import files
from envcheck.host.pty_passthrough import Gap
from envcheck.logs import scanner as log_scanner
from envcheck.logs.events import Log
from envcheck.logs.hard_wraps import LONGEST_COPY, unfolded
from envcheck.logs.line_format import LogPatterns, plain


class LogText(NamedTuple):
    """A log as it was read: its events, its beginning, and notes on what could not be read."""

    log: Log
    head: str
    notes: tuple[str, ...]


_HEAD = 2 << 20
"""Bytes at the beginning of a log that are searched for what it prints about its environment."""


def read_log(chunks: Iterable[bytes | Gap], name: str, patterns: LogPatterns) -> LogText:
    """Return what is kept of a log.

    Raises:
        InputError: the chunks are not text.
    """
    scanner = log_scanner.Scanner(patterns)
    head = bytearray()
    notes: list[str] = []
    try:
        for chunk in _unfolded(_as_utf8(_unpacked(chunks, notes.append))):
            if isinstance(chunk, Gap):
                scanner.skip(*chunk)
                continue
            if not head:
                _refuse_binary(chunk, name)
            if len(head) < _HEAD:
                head += chunk[: _HEAD - len(head)]
            scanner.feed(chunk)
    except KeyboardInterrupt:
        if not head:
            raise
        notes.append("interrupted: the rest of the log was not read")
    log = scanner.finish()
    if log.crowded:
        notes.append("more kinds of errors than can be kept: only the first and the last ones are considered")
    return LogText(log, plain(bytes(head)), tuple(notes))


def _unfolded(chunks: Iterable[bytes | Gap]) -> Iterator[bytes | Gap]:
    """Yield the chunks of a log; those of a short one as one, with the lines joined that a terminal broke."""
    chunks = iter(chunks)
    begun = b""
    try:
        for chunk in chunks:
            if isinstance(chunk, Gap) or len(begun) + len(chunk) > LONGEST_COPY:
                yield from (begun, chunk) if begun else (chunk,)
                yield from chunks
                return
            begun += chunk
    except KeyboardInterrupt:
        if begun:
            yield begun
        raise
    if begun:
        yield unfolded(begun)


def _as_utf8(chunks: Iterable[bytes | Gap]) -> Iterator[bytes | Gap]:
    """Yield the chunks of a log; those of one in UTF-16 as UTF-8."""
    chunks = iter(chunks)
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for number, chunk in enumerate(chunks):
        if isinstance(chunk, Gap) or (number == 0 and not chunk.startswith(UTF_16_MARKS)):
            yield chunk
            yield from chunks
            return
        yield decoder.decode(chunk).encode("utf-8", "replace")


_GZIP = b"\x1f\x8b"


def _unpacked(chunks: Iterable[bytes | Gap], note: Callable[[str], None]) -> Iterator[bytes | Gap]:
    """Yield the chunks, or as much of a gzip file's content as can be read."""
    import zlib

    decompressor = None
    chunks = iter(chunks)
    for number, chunk in enumerate(chunks):
        if isinstance(chunk, Gap) or (number == 0 and not chunk.startswith(_GZIP)):
            yield chunk
            yield from chunks
            return
        left = chunk
        while left:
            decompressor = decompressor or zlib.decompressobj(wbits=31)
            try:
                text = decompressor.decompress(left, files.CHUNK)
            except zlib.error:
                note("its gzip data is damaged: only the part before the damage was read")
                return
            if text:
                yield text
            left = decompressor.unconsumed_tail or decompressor.unused_data.lstrip(b"\0")
            decompressor = None if decompressor.eof else decompressor
    if decompressor is not None:
        note("its gzip data is truncated: only the part before the end was read")


_SAMPLE = 1 << 16


_CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\b\x1b\x07"})


_TEXT_PER_CONTROL = 20
"""The least bytes per control character in text.

A log that a crash cut off contains a few; random bytes contain about 2 in 20.
"""


def _refuse_binary(chunk: bytes, name: str) -> None:
    sample = chunk[:_SAMPLE]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls * _TEXT_PER_CONTROL > len(sample):
        raise InputError(name, "expected the text of a log, found binary data")
