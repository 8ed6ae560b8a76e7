"""Readers turn training configurations into `train.*` facts. A module here that defines `READER` is one.

Readers read text, never run it. What a configuration leaves open stays not given, and the trainer's
defaults fill it in later.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.model import Fact, InputError

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


class Reader(NamedTuple):
    """One kind of configuration: whether a text is one, and what it says.

    `read` gets the text, the name to report problems under, and the matrix's tables; it raises
    InputError with `file:line:column`. `refers` names other files that belong to it.
    """

    name: str
    recognises: Callable[[str], bool]
    read: Callable[[str, str, Tables], list[Fact]]
    refers: Callable[[str, str], tuple[str, ...]] = lambda text, where: ()  # noqa: ARG005


def every_reader() -> tuple[Reader, ...]:
    """All readers of this folder, by module name."""
    found = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        reader = getattr(importlib.import_module(f"{__name__}.{module.name}"), "READER", None)
        if isinstance(reader, Reader):
            found.append(reader)
    return tuple(found)


def read_training(text: str, where: str, tables: Tables) -> list[Fact]:
    """The facts of one configuration, by the first reader that recognises it.

    Raises:
        InputError: no reader does, or the one that does found a mistake.
    """
    readers = every_reader()
    for reader in readers:
        if reader.recognises(text):
            return reader.read(text, where, tables)
    kinds = " or ".join(reader.name for reader in readers)
    raise InputError(where, f"not recognised as {kinds}")


def referred_files(text: str, where: str) -> tuple[str, ...]:
    """Other configurations that this one names, such as `--deepspeed ds_config.json`."""
    reader = next((reader for reader in every_reader() if reader.recognises(text)), None)
    return reader.refers(text, where) if reader else ()


# --- JSON as people write it ------------------------------------------------------------------------


def loads_commented(text: str, where: str) -> Any:
    """JSON with `//`, `#` and `/* */` comments and trailing commas.

    Raises:
        InputError: with line and column.
    """
    try:
        return json.loads(without_comments(text))
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}:{error.colno}", f"not JSON: {error.msg.lower()}") from None
    except RecursionError:
        raise InputError(where, "not JSON: nested too deeply") from None


def without_comments(text: str) -> str:
    """The text with comments and trailing commas blanked out, every character in its place."""
    out = list(text)
    i, last_comma = 0, -1
    while i < len(text):
        char = text[i]
        if char == '"':
            i = _end_of_string(text, i)
            last_comma = -1
            continue
        end = _end_of_comment(text, i)
        if end > i:
            out[i:end] = ["\n" if each == "\n" else " " for each in text[i:end]]
            i = end
            continue
        if char == ",":
            last_comma = i
        elif char in "}]" and last_comma >= 0:
            out[last_comma] = " "
            last_comma = -1
        elif not char.isspace():
            last_comma = -1
        i += 1
    return "".join(out)


def _end_of_string(text: str, start: int) -> int:
    i = start + 1
    while i < len(text) and text[i] != '"':
        i += 2 if text[i] == "\\" else 1
    return i + 1


def _end_of_comment(text: str, start: int) -> int:
    """The index behind a comment that starts here; `start` itself if none does."""
    if text[start] == "#" or text.startswith("//", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    if text.startswith("/*", start):
        end = text.find("*/", start + 2)
        return len(text) if end < 0 else end + 2
    return start
