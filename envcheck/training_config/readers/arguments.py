"""Arguments as a user passes them: `--flag value`, `--flag=value`, `key=value`, in a file or after `--train`.

Words are split as a shell splits them. A value that only a shell can compute (`$LR`) is Unknown with that
reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document, Scalar, Setting
from envcheck.training_config.readers import ConfigReader, json_text
from envcheck.training_config.source_lines import SourceLines

_PIECE = pattern(
    r"""(?P<blank>[ \t\r\n;&|]+|\\\r?\n)
    | (?P<comment>(?<![^\s])\#[^\n]*)
    | (?P<single>'[^']*')
    | (?P<double>"(?:[^"\\]++|\\.)*+")
    | (?P<escaped>\\.)
    | (?P<bare>[^\s'"\\;&|]+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = pattern(r'\\(["\\$`])|\\\n')


class ArgumentWord(NamedTuple):
    """A word of a command line without its quotes; `needs_shell` if a `$` or backquote is left in it."""

    text: str
    place: Place
    needs_shell: bool


def recognises(text: str) -> bool:
    """Return whether a word of the text looks like an argument."""
    return any(token.startswith("--") or "=" in token for token in text.split())


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return the settings among the words of a text.

    Raises:
        InputError: a quote is not closed.
    """
    words = _words(text, file)
    settings: dict[str, Setting] = {}
    program: list[str] = []
    repeated: list[tuple[str, Place, Place]] = []
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        has_value = "=" in word.text
        if not word.text.startswith("-") and not has_value:
            program.append(word.text)
            continue
        following = None
        if not has_value and i < len(words) and not words[i].text.startswith("--"):
            following = words[i]
            i += 1
        more = _further_values(words[i:]) if following is not None else ()
        for setting in nested(_setting(word, following, more)):
            if setting.name in settings:
                earlier = settings.pop(setting.name)
                repeated.append((setting.name, earlier.name_place, setting.name_place))
            settings[setting.name] = setting
    return (Document(file, "arguments", tuple(settings.values()), tuple(program), repeated=tuple(repeated)),)


def nested(setting: Setting) -> Iterator[Setting]:
    """Yield a setting, and those inside a JSON value under dotted names.

    For example `gradient_checkpointing_kwargs '{"use_reentrant": false}'` also yields
    `gradient_checkpointing_kwargs.use_reentrant`.
    """
    yield setting
    if isinstance(setting.value, str) and setting.value.startswith("{"):
        try:
            (inner,) = json_text.read(setting.value, setting.place.file)
        except InputError:
            return
        for entry in inner.settings:
            yield Setting(f"{setting.name}.{entry.name}", entry.value, setting.name_place, setting.place)


def _further_values(words: Sequence[ArgumentWord]) -> tuple[Scalar | Unknown, ...]:
    """Return the words up to the next option: the rest of a list if the option before them takes one."""
    own = takewhile(lambda word: not word.text.startswith("-") and "=" not in word.text, words)
    return tuple(_shell_value(word.text, needs_shell=word.needs_shell) for word in own)


def _shell_value(text: str, *, needs_shell: bool) -> str | Unknown:
    return Unknown(f"{text} is known only to the shell") if needs_shell else text


def _setting(
    word: ArgumentWord, following: ArgumentWord | None, more: tuple[Scalar | Unknown, ...]
) -> Setting:
    """Return `--name=value`, or `--name` with the word that follows it as its value."""
    spelled, equals, value = word.text.partition("=")
    name_place, place, needs_shell = word.place, word.place, word.needs_shell
    if equals:
        name_place = word.place._replace(length=min(len(spelled), word.place.length) or 1)
        if word.place.length > len(spelled) + 1:  # else the value is on another line
            column, length = word.place.column + len(spelled) + 1, word.place.length - len(spelled) - 1
            place = word.place._replace(column=column, length=length)
    elif following is not None:
        value, place, needs_shell = following
    name = spelled.lstrip("-+").replace("-", "_")
    given = _shell_value(value, needs_shell=needs_shell)
    return Setting(name, None if is_null_override(spelled, value) else given, name_place, place, more)


def is_null_override(spelled: str, value: str) -> bool:
    """Return whether `spelled=value` sets nothing.

    Hydra and OmegaConf take names without a dash and read the values as YAML; for other programs, `null` is a
    text.
    """
    return value == "null" and not spelled.startswith("-")


def _words(text: str, file: str) -> list[ArgumentWord]:
    """Return the words of a text.

    Raises:
        InputError: a quote is not closed, with its place.
    """
    lines = SourceLines(text, file)
    found: list[ArgumentWord] = []
    spelled, start, needs_shell, inside = "", 0, False, False
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind in ("blank", "comment"):
            if inside:
                found.append(ArgumentWord(spelled, lines.place(start, piece.start()), needs_shell))
                spelled, needs_shell, inside = "", False, False
            continue
        if kind == "other":
            raise InputError(lines.place(*piece.span()), f"not arguments: {piece[0]} is not closed")
        if not inside:
            start, inside = piece.start(), True
        spelled += _unquoted(piece)
        needs_shell |= kind in ("double", "bare") and ("$" in piece[0] or "`" in piece[0])
    if inside:
        found.append(ArgumentWord(spelled, lines.place(start, len(text)), needs_shell))
    return found


def _unquoted(piece: re.Match[str]) -> str:
    """Return a piece of a word without its quotes or backslash."""
    match piece.lastgroup:
        case "single":
            return piece[0][1:-1]
        case "double":
            return _ESCAPED.sub(r"\1", piece[0][1:-1])
        case "escaped":
            return piece[0][1:]
        case _:
            return piece[0]


READER = ConfigReader("arguments such as --flag value", 9, recognises, read)
