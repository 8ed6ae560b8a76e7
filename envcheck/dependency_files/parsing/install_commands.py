"""Recognise the commands that install packages (`pip install`, `conda install`), and read their arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from envcheck.dependency_files.parsing.dockerfile_syntax import ShellWord

FILE_OPTIONS = ("-r", "--requirement", "-c", "--constraint")
INDEX_OPTIONS = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")

_FLAGS = frozenset(
    {"--no-deps", "--pre", "--user", "--isolated", "--require-hashes", "--system", "--no-index"}
)
_FLAG_PREFIXES = (
    "-q",
    "-v",
    "--no-",
    "--force",
    "--ignore",
    "--break",
    "--use-",
    "--disable",
    "--quiet",
    "--verbose",
    "--compile",
)
"""Options of `pip install` that take no value; every other option takes its value from the next word."""


class PipArguments(NamedTuple):
    """Arguments of a `pip install`: requirements, options with their values, and whether it upgrades."""

    requirements: tuple[ShellWord, ...]
    options: tuple[tuple[str, ShellWord], ...]
    upgrade: bool


def pip_arguments(words: Sequence[ShellWord]) -> PipArguments:
    """Return the arguments of a `pip install` or `uv pip install`."""
    requirements: list[ShellWord] = []
    options: list[tuple[str, ShellWord]] = []
    upgrade = False
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.text.partition("=")
        if not word.text.startswith("-"):
            requirements.append(word)
        elif word.text in ("-U", "--upgrade"):
            upgrade = True
        elif equals:
            options.append((name, ShellWord(value, word.place)))
        elif re.match(r"-[rcfi][^-\s]", word.text):
            options.append((word.text[:2], ShellWord(word.text[2:], word.place)))
        elif not (name in _FLAGS or name.startswith(_FLAG_PREFIXES)) and remaining:
            options.append((name, remaining.pop(0)))
    return PipArguments(tuple(requirements), tuple(options), upgrade)


def installer(words: Sequence[ShellWord]) -> tuple[str, Sequence[ShellWord]]:
    """Return the kind of a command (`pip install`, `pip uninstall`, `conda install`) and its arguments.

    Both are empty for any other command.
    """
    for number, word in enumerate(words):
        program = word.text.rpartition("/")[2]
        kind = "pip" if re.fullmatch(r"pip[0-9.]*", program) else ""
        kind = "conda" if program in ("conda", "mamba", "micromamba") else kind
        if kind:
            rest = list(words[number + 1 :])
            while rest and rest[0].text.startswith("-"):
                rest.pop(0)
            verb = rest[0].text if rest else ""
            return (f"{kind} {verb}", rest[1:]) if verb in ("install", "uninstall") else ("", ())
        if not _may_precede_installer(word.text):
            return "", ()
    return "", ()


def _may_precede_installer(word: str) -> bool:
    program = word.rpartition("/")[2]
    prefix = program in ("sudo", "exec", "env", "time", "uv", "-m", "!", "{", "then", "do", "else", "if")
    return prefix or word.startswith("-") or re.match(r"[A-Za-z_]\w*=|python[0-9.]*$", program) is not None
