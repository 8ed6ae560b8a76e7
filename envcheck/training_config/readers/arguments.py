"""Arguments as people pass them: `--flag value`, `--flag=value`, `key=value`, in a file or on the spot.

Words are split as a shell does. A value that only a shell knows (`$LR`) is Unknown with that reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Document, Setting
from envcheck.training_config.readers import ConfigReader, Lines, json_text

_PIECE = re.compile(
    r"""(?P<blank>[ \t\r\n;&|]+|\\\r?\n)
    | (?P<comment>(?<![^\s])\#[^\n]*)
    | (?P<single>'[^']*')
    | (?P<double>"(?:[^"\\]++|\\.)*+")
    | (?P<escaped>\\.)
    | (?P<bare>[^\s'"\\;&|]+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r'\\(["\\$`])|\\\n')


class ArgumentWord(NamedTuple):
    """A word of a command line without its quotes, and where it stands; `open` if a `$` is left in it."""

    text: str
    place: Place
    open: bool


def recognises(text: str) -> bool:
    """Whether a word of it looks like an argument."""
    return any(token.startswith("--") or "=" in token for token in text.split())


def words(text: str, file: str) -> list[ArgumentWord]:
    """The words of a text.

    Raises:
        InputError: a quote is not closed, with its place.
    """
    lines = Lines(text, file)
    found: list[ArgumentWord] = []
    spelled, start, opened, glued = "", 0, False, False
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind in ("blank", "comment") and glued:
            found.append(ArgumentWord(spelled, lines.place(start, piece.start()), opened))
            spelled, opened, glued = "", False, False
        if kind in ("blank", "comment"):
            continue
        if kind == "other":
            raise InputError(lines.place(*piece.span()), f"not arguments: {piece[0]} is not closed")
        if not glued:
            start, glued = piece.start(), True
        if kind == "single":
            spelled += piece[0][1:-1]
        elif kind == "double":
            spelled += _ESCAPED.sub(r"\1", piece[0][1:-1])
            opened |= "$" in piece[0] or "`" in piece[0]
        elif kind == "escaped":
            spelled += piece[0][1:]
        else:
            spelled += piece[0]
            opened |= "$" in piece[0] or "`" in piece[0]
    if glued:
        found.append(ArgumentWord(spelled, lines.place(start, len(text)), opened))
    return found


def read(text: str, file: str) -> tuple[Document, ...]:
    """The settings among the words of a text.

    Raises:
        InputError: as `words`.
    """
    said = words(text, file)
    settings: dict[str, Setting] = {}
    program: list[str] = []
    twice: list[tuple[str, Place, Place]] = []
    i = 0
    while i < len(said):
        word = said[i]
        i += 1
        spelled, equals, value = word.text.partition("=")
        if not word.text.startswith("-") and not equals:
            program.append(word.text)
            continue
        named, place, is_open = word.place, word.place, word.open
        if equals:
            named = word.place._replace(length=min(len(spelled), word.place.length) or 1)
            if word.place.length > len(spelled) + 1:  # else the value stands on another line
                at, rest = word.place.column + len(spelled) + 1, word.place.length - len(spelled) - 1
                place = word.place._replace(column=at, length=rest)
        elif i < len(said) and not said[i].text.startswith("--"):
            value, place, is_open = said[i].text, said[i].place, said[i].open
            i += 1
        name = spelled.lstrip("-").replace("-", "_")
        shown = Unknown(f"{value} is known to the shell only") if is_open else value
        for setting in nested(Setting(name, shown, named, place)):
            if setting.name in settings:
                twice.append((setting.name, settings.pop(setting.name).named, setting.named))
            settings[setting.name] = setting
    return (Document(file, "arguments", tuple(settings.values()), tuple(program), twice=tuple(twice)),)


def nested(setting: Setting) -> Iterator[Setting]:
    """`gradient_checkpointing_kwargs '{"use_reentrant": false}'` as a dotted name with its own value."""
    yield setting
    if isinstance(setting.value, str) and setting.value.startswith("{"):
        try:
            (inner,) = json_text.read(setting.value, setting.place.file)
        except InputError:
            return
        for each in inner.settings:
            yield Setting(f"{setting.name}.{each.name}", each.value, setting.named, setting.place)


READER = ConfigReader("arguments such as --flag value", 9, recognises, read)
