"""The form of one log line: what launchers and terminals put around its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import EMPTY_MAPPING
from envcheck.knowledge.needed_text import NeededOfPatterns
from envcheck.logs.json_lines import JsonFields, json_fields
from envcheck.logs.statements import StatementPatterns


class LogPatterns(NamedTuple):
    """What logs look like: words to search for and words of training, in lower case; launchers' prefixes.

    `statements` are the lines that state a failure, and `json` the fields of lines that are JSON objects.
    """

    words: tuple[bytes, ...]
    progress: tuple[bytes, ...]
    prefix: re.Pattern[str]
    times: re.Pattern[str]
    statements: StatementPatterns
    json: JsonFields = JsonFields()


def log_patterns(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], needed: NeededOfPatterns = EMPTY_MAPPING
) -> LogPatterns:
    """Return the patterns of compat/tables/log.toml and failure_lines.toml.

    With what they need, most of them need not be compiled.
    """
    rows = tables.get("log_prefix", ())

    def joined(*, time: bool) -> re.Pattern[str]:
        patterns = [
            row["pattern"].replace("(?P<rank>", "(") for row in rows if row.get("time", False) is time
        ]
        return re.compile("|".join(patterns) or r"\b\B")

    return LogPatterns(
        tuple(row["word"].lower().encode() for row in tables.get("trigger", ())),
        tuple(row["word"].lower().encode() for row in tables.get("progress", ())),
        joined(time=False),
        joined(time=True),
        StatementPatterns(tables, needed),
        json_fields(tables),
    )


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_SPEEDS = ("it/s", "s/it", "B/s")
_REST_OF_BAR = 200  # characters of a progress bar behind its speed
_BAR = re.compile(r"%\|[^|]{0,400}\|[^\[\]|]{1,80}\[[^\[\]]{1,300}\]")
"""A progress bar from its percentage on, whatever its unit is: `5%|██| 6/90 [00:10<04:06,  1.7s/step]`."""


class LineText(NamedTuple):
    """A line without its prefixes: the stream they identify, the rank they name, the text."""

    stream: str
    rank: str
    text: str


def line_text(raw: bytes, patterns: LogPatterns) -> LineText:
    """Return a line without what launchers and terminals put around it."""
    text = decoded(raw)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    stream, rank = "", ""
    text = _behind_progress_bar(text)
    while True:
        if found := patterns.prefix.match(text):
            stream += found[0].strip()
            rank = found[found.lastindex] if found.lastindex else rank
        elif not (found := patterns.times.match(text)):
            return LineText(stream, rank, text.rstrip())
        text = text[found.end() :]


def _behind_progress_bar(text: str) -> str:
    """Return what follows a progress bar of tqdm: a bar does not end its line, so other text begins there."""
    speed = max(map(text.rfind, _SPEEDS))
    end = text.find("]", speed, speed + _REST_OF_BAR) + 1 if speed >= 0 else 0
    if not end and (percentage := text.rfind("%|")) >= 0 and (bar := _BAR.match(text, percentage)):
        end = bar.end()
    return text[end:] if text[end:].strip() else text


_UNREADABLE = "\N{REPLACEMENT CHARACTER}"
_STRAIGHT_QUOTES = {**dict.fromkeys(range(0x2018, 0x201C), "'"), **dict.fromkeys(range(0x201C, 0x2020), '"')}
"""Word processors, chats and forums replace the quotes of a pasted message by typographic ones."""


def decoded(raw: bytes) -> str:
    """Return the text of bytes, with straight quotes.

    The bytes are UTF-8, or GB 18030, which a Chinese Windows writes, if most of the text is that.
    """
    text = _decoded(raw)
    return text if text.isascii() else text.translate(_STRAIGHT_QUOTES)


def _decoded(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if _UNREADABLE not in text:
        return text
    unreadable = text.count(_UNREADABLE)
    if sum(not one.isascii() for one in text) > 2 * unreadable:  # a piece of UTF-8 that was cut
        return text
    try:
        return raw.decode("gb18030")
    except UnicodeDecodeError:
        return text


def plain(raw: bytes) -> str:
    """Return text without terminal codes and carriage returns; the number of lines stays the same."""
    return _ANSI.sub("", decoded(raw)).replace("\r\n", "\n").replace("\r", " ")
