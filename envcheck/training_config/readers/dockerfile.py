"""Dockerfiles: what ENTRYPOINT and CMD start, with the variables of ENV and ARG."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document
from envcheck.training_config.readers import Beside, ConfigReader

_BEGINNING = pattern(r"(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\r?\n)*+[ \t]*FROM[ \t]+\S", re.IGNORECASE)
_STARTS = pattern(r"^[ \t]*(?:CMD|ENTRYPOINT)\b", re.IGNORECASE | re.MULTILINE)
_PAIR = pattern(r"""([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|'[^']*'|\S*)""")


class _Instruction(NamedTuple):
    name: str
    text: str
    line: int


def recognises(text: str) -> bool:
    """Return whether a text is a Dockerfile that says what its container starts."""
    return _BEGINNING.match(text) is not None and _STARTS.search(text) is not None


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of the command that the container starts.

    Raises:
        InputError: it starts no training that can be read.
    """
    from envcheck.training_config.readers._shell_lines import ShellLine, documents

    variables: list[ShellLine] = []
    started: dict[str, _Instruction] = {}
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            started, variables = {}, []
        elif instruction.name in ("ENV", "ARG"):
            pairs = _PAIR.findall(instruction.text)
            if not pairs and len(words := instruction.text.split(None, 1)) == 2:  # noqa: PLR2004 - `ENV NAME value`
                pairs = [(words[0], shlex.quote(words[1]))]
            variables += [ShellLine(f"export {name}={value}", instruction.line) for name, value in pairs]
        elif instruction.name in ("CMD", "ENTRYPOINT"):
            started[instruction.name] = instruction
    if not started:
        raise InputError(file, "a Dockerfile that starts nothing")
    parts = [_command(started[name]) for name in ("ENTRYPOINT", "CMD") if name in started]
    last = [*started.values()][-1]
    lines = [ShellLine(line, last.line + number) for number, line in enumerate(" ".join(parts).split("\n"))]
    return documents([*variables, *lines], file, beside)


def _instructions(text: str) -> Iterator[_Instruction]:
    """Yield the instructions; continuation lines are joined."""
    pending, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        start = start if pending else number
        pending += line.rstrip().removesuffix("\\") + " "
        if line.rstrip().endswith("\\"):
            continue
        name, _, rest = pending.strip().partition(" ")
        yield _Instruction(name.upper(), rest.strip(), start)
        pending = ""


def _command(instruction: _Instruction) -> str:
    """Return the shell text of a command in shell form or in exec form (a JSON list)."""
    try:
        words = parse_json(instruction.text, "") if instruction.text.startswith("[") else None
    except InputError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return instruction.text
    return " ".join(map(shlex.quote, words))


READER = ConfigReader("a Dockerfile", -1, recognises, read, read)
