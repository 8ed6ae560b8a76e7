"""Split a Dockerfile into instructions, their words, and the commands of a `RUN`, each with its place.

Nothing is executed: quotes are removed and known variables replaced; other shell syntax stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json


class ShellWord(NamedTuple):
    """A word of an instruction, and its place as `file:line:column`."""

    text: str
    place: str


class Instruction(NamedTuple):
    """One instruction: its name in capitals, where it starts, and its text.

    `places` has a `file:line:column` for every character of `text`.
    """

    name: str
    place: str
    text: str
    places: tuple[str, ...]

    def at(self, offset: int) -> str:
        """Return the place of a character of the text."""
        return self.places[min(offset, len(self.places) - 1)] if self.places else self.place


# --- text → instructions ----------------------------------------------------------------------------

_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?[\"']?([A-Za-z_]\w*)[\"']?(?=\s|$)")


class _PlacedText:
    """Characters, each with its place."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.chars: list[str] = []
        self.places: list[str] = []

    def add(self, char: str, line: int, column: int) -> None:
        """Append a character, or an empty text that only marks a place; line and column count from 1."""
        self.chars.append(char)
        self.places.append(f"{self.where}:{line}:{column}")

    def __str__(self) -> str:
        """Return the characters as one text."""
        return "".join(self.chars)


def instructions(text: str, where: str) -> Iterator[Instruction]:
    """Yield every instruction with its continued lines and here-documents, without comments."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    number = 0
    while number < len(lines):
        if not lines[number].strip() or lines[number].lstrip().startswith("#"):
            number += 1
            continue
        placed = _PlacedText(where)
        number = _add_logical_line(lines, number, placed)
        whole = str(placed)
        name = whole.split(None, 1)[0]
        for end_mark in _HEREDOC.findall(whole) if name.upper() in ("RUN", "COPY", "ADD") else ():
            number = _add_heredoc(lines, number, end_mark, placed)
        # Only the here-document of a RUN is a shell script; that of a COPY is the content of a file.
        whole = str(placed) if name.upper() == "RUN" else whole
        start = len(name) + len(whole[len(name) :]) - len(whole[len(name) :].lstrip())
        yield Instruction(name.upper(), placed.places[0], whole[start:], tuple(placed.places[start:]))


def _add_logical_line(lines: Sequence[str], number: int, placed: _PlacedText) -> int:
    """Append a line and those that continue it; return the index of the next line."""
    while number < len(lines):
        line = lines[number]
        if placed.chars and line.lstrip().startswith("#"):
            number += 1  # Docker drops comments, also between continued lines
            continue
        continued = re.search(r"\\[ \t]*$", line)
        body = line[: continued.start()] if continued else line
        indent = 0 if placed.chars else len(body) - len(body.lstrip())
        for column, char in enumerate(body[indent:], indent + 1):
            placed.add(char, number + 1, column)
        placed.add(" " if continued else "", number + 1, len(body) + 1)
        number += 1
        if not continued:
            break
    if placed.chars[-1:] == [""]:
        placed.chars.pop()
        placed.places.pop()
    return number


def _add_heredoc(lines: Sequence[str], number: int, end_mark: str, placed: _PlacedText) -> int:
    """Append a here-document and return the index of the next line. Without an end mark, append nothing."""
    if end_mark not in (line.strip() for line in lines[number:]):
        return number
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.strip() == end_mark:
            break
        for column, char in enumerate(f"\n{line}"):
            placed.add(char, number, max(column, 1))
    return number


# --- instructions → words ---------------------------------------------------------------------------


def split(instruction: Instruction) -> list[ShellWord]:
    """Return the words of an instruction that is not shell: separated by blanks, or items of a JSON list."""
    text = instruction.text
    if text.lstrip().startswith("["):
        try:
            listed = parse_json(text, "")
        except InputError:
            listed = None
        if isinstance(listed, list) and all(isinstance(word, str) for word in listed):
            return [ShellWord(word, instruction.at(max(text.find(word), 0))) for word in listed]
    found = re.finditer(r"(?:\"[^\"]*\"|'[^']*'|\S)+", text)
    return [ShellWord(_unquoted(match[0]), instruction.at(match.start())) for match in found]


def _unquoted(word: str) -> str:
    return word.replace('"', "").replace("'", "")


_SHELL = re.compile(
    r"""(?P<end>&&|\|\||[;|&()\n])|(?P<word>(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|\$\{[^}]*\}|[^\s;|&()\\"'])+)"""
)
_REDIRECTION = re.compile(r"\d*(?:>>?|<)&?")


def commands(instruction: Instruction) -> Iterator[list[ShellWord]]:
    """Yield the commands of a RUN, each as its words, without quotes; variables are left as they are."""
    if instruction.text.lstrip().startswith("["):
        yield split(instruction)
        return
    words: list[ShellWord] = []
    in_comment = False
    for match in _SHELL.finditer(instruction.text):
        in_comment = (in_comment or (match["word"] or "").startswith("#")) and match["end"] != "\n"
        if match["end"] and not in_comment:
            yield words
            words = []
        if match["end"] or in_comment:
            continue
        word = re.sub(r"\\(.)", r"\1", _unquoted(match["word"]))
        if word.startswith("--mount=") or _REDIRECTION.match(word):
            continue
        words.append(ShellWord(word, instruction.at(match.start())))
    yield words


# --- variables --------------------------------------------------------------------------------------


def assignments(
    instruction: Instruction, known: Mapping[str, str], global_args: Mapping[str, str]
) -> dict[str, str]:
    """Return what an ARG or ENV sets; a bare `ARG NAME` takes the value set before the first FROM."""
    words = [word.text for word in split(instruction)]
    if instruction.name == "ENV" and len(words) > 1 and "=" not in words[0]:
        return {words[0]: substituted(" ".join(words[1:]), known)}
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found[name] = substituted(value, known)
        elif name in global_args:
            found[name] = global_args[name]
    return found


def substituted(text: str, known: Mapping[str, str]) -> str:
    """Return the text with `$NAME`, `${NAME}` and `${NAME:-default}` replaced where the value is known."""

    def value(match: re.Match[str]) -> str:
        name, default = match["braced"] or match["plain"], match["default"]
        return known.get(name) or (default if default is not None else known.get(name, match[0]))

    return re.sub(r"\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|(?P<plain>[A-Za-z_]\w*))", value, text)
