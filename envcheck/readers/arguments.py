"""Arguments as people pass them: `--flag value`, `--flag=value`, `key=value`, in a file or on the spot.

Which names mean what is data (compat/tables/arguments.toml). A value that only a shell knows (`$LR`)
is Unknown with that reason; names no row lists are other people's business.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.model import Fact, InputError, Known, Reading, Unknown, Value
from envcheck.readers import Reader, Tables

_TRUE = frozenset({"", "true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_SILENT = frozenset({"auto", "null", "none", ""})


def _recognises(text: str) -> bool:
    return any(token.startswith("--") or "=" in token for token in text.split())


def _read(text: str, where: str, tables: Tables) -> list[Fact]:
    rows = [row for row in tables.get("argument", []) if _applies(row, text)]
    facts: dict[str, Fact] = {}
    for name, value in _arguments(text, where):
        seen: set[str] = set()
        for row in rows:
            key = str(row["key"])
            if name not in row["names"] or key in seen:
                continue
            seen.add(key)
            reading = _reading(row, value, f"{where}: --{name}")
            if reading is not None:
                facts[key] = Fact(key, reading, f"{where}: {name}")
    return list(facts.values())


def _applies(row: Mapping[str, Any], text: str) -> bool:
    """Whether a row limited to some trainers may speak here: one of them is named in the text."""
    return not row.get("trainers") or any(trainer in text for trainer in row["trainers"])


# --- tokens → (name, value) -------------------------------------------------------------------------


def _arguments(text: str, where: str) -> Iterator[tuple[str, str]]:
    try:
        tokens = shlex.split(text.replace("\\\n", " ").replace("\\\r\n", " "), comments=True)
    except ValueError as error:
        raise InputError(where, f"not arguments: {str(error).lower()}") from None
    i = 0
    while i < len(tokens):
        token = tokens[i]
        i += 1
        name, equals, value = token.partition("=")
        if not token.startswith("-") and not equals:
            continue
        if not equals and i < len(tokens) and not tokens[i].startswith("--"):
            value = tokens[i]
            i += 1
        yield from _nested(name.lstrip("-").replace("-", "_"), value)


def _nested(name: str, value: str) -> Iterator[tuple[str, str]]:
    """`gradient_checkpointing_kwargs '{"use_reentrant": false}'` as a dotted name with its own value."""
    yield name, value
    if not value.startswith("{"):
        return
    try:
        inner = json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        return
    for key, each in inner.items():
        yield f"{name}.{key}", json.dumps(each) if isinstance(each, bool | int | float) else str(each)


# --- (row, value) → reading -------------------------------------------------------------------------


def _reading(row: Mapping[str, Any], text: str, where: str) -> Reading | None:
    """What a row makes of a value; None if the value says nothing.

    Raises:
        InputError: the value is of another kind than the row's.
    """
    if "$" in text:
        return Unknown(f"{text} is known to the shell only")
    word = text.lower()
    if "values" in row:
        return Known(row["values"][word]) if word in row["values"] else None
    kind, when = row["kind"], row.get("when", "true")
    if word in _SILENT and not (kind == "flag" and word == ""):
        return None
    if "value" in row:
        holds = _holds(when, kind, word, where)
        return Known(row["value"]) if holds else Known(row["otherwise"]) if "otherwise" in row else None
    return Known(_value(kind, word, where))


def _holds(when: str, kind: str, word: str, where: str) -> bool:
    if when == "any":
        return True
    if when == "positive":
        return _number(word, where) > 0
    return _flag(word, where) == (when == "true") if kind == "flag" else word not in _FALSE


def _value(kind: str, word: str, where: str) -> Value:
    if kind == "flag":
        return _flag(word, where)
    if kind == "positive":
        return _number(word, where) > 0
    if kind == "number":
        number = _number(word, where)
        if number != int(number):
            raise InputError(where, f"expected a whole number, found {word!r}")
        return int(number)
    return word


def _flag(word: str, where: str) -> bool:
    if word not in _TRUE | _FALSE:
        raise InputError(where, f"expected true or false, found {word!r}")
    return word in _TRUE


def _number(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(where, f"expected a number, found {word!r}") from None


_DEEPSPEED = frozenset({"deepspeed", "deepspeed_config"})


def _refers(text: str, where: str) -> tuple[str, ...]:
    return tuple(v for name, v in _arguments(text, where) if name in _DEEPSPEED and v.endswith(".json"))


READER = Reader("a list of arguments such as --flag value", _recognises, _read, _refers)
