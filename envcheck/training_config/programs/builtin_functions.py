"""Results of built-in functions and of methods of texts, for known values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.paths import method_of_path
from envcheck.training_config.programs.recorded_calls import Arguments
from envcheck.training_config.programs.values import (
    LONGEST_TEXT,
    MISSING,
    ClassValue,
    File,
    Further,
    LibraryName,
    PartialText,
    ProjectFunction,
    Record,
    Value,
    is_known,
    is_list,
    text_of,
    truth,
)

_TEXT_METHODS = frozenset({
    "capitalize", "endswith", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rstrip",
    "startswith", "strip", "title", "upper",
})  # fmt: skip
_TYPES: Mapping[str, type] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": tuple,
    "tuple": tuple,
}


def method_of_text(text: str | PartialText, name: str, given: Arguments) -> Value:
    """Return the result of a method of a text or of a path, or MISSING."""
    if isinstance(text, PartialText):
        words = words_of(text) if name == "split" and not given.positional else None
        return MISSING if words is None else words
    if name in _TEXT_METHODS:
        return _text_method(text, name, given)
    if name == "split" and len(given.positional) <= 1 and all(map(is_known, given.positional)):
        separator = given.positional[0] if given.positional else None
        return (
            tuple(text.split(separator))
            if separator is None or (isinstance(separator, str) and separator)
            else MISSING
        )
    if name == "join" and given.positional and is_list(given.positional[0]):
        items = given.positional[0]
        return text_of([part for item in items for part in (text, item)][1:]) if items else ""
    return method_of_path(text, name, given.positional)


def words_of(text: str | PartialText) -> tuple[Value, ...] | None:
    """Return the words of a command, as a shell splits it; None if its quotes are not closed.

    A word with an unknown part is a PartialText, and an unknown word may be any number of words.
    """
    parts = text.parts if isinstance(text, PartialText) else (text,)
    unknown = [part for part in parts if isinstance(part, Unknown)]
    line = "".join(part if isinstance(part, str) else _HOLE for part in parts)
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    found: list[Value] = []
    for word in words:
        pieces = word.split(_HOLE)
        whys = [unknown.pop(0) for _ in pieces[1:]]
        holes = [value for pair in zip(pieces, [*whys, ""], strict=True) for value in pair]
        found.append(Further(whys[0].why) if word == _HOLE else text_of(holes))
    return tuple(found)


_HOLE = "\0"


def _text_method(text: str, name: str, given: Arguments) -> Value:
    if not all(map(is_known, given.positional)) or given.keywords:
        return MISSING
    try:
        found = getattr(text, name)(*given.positional)
    except (TypeError, ValueError):
        return MISSING
    return found if not isinstance(found, str) or len(found) < LONGEST_TEXT else MISSING


def of_values(name: str, first: Value, given: Arguments) -> Value:
    """Return the result of a built-in function of values alone, or MISSING."""
    found: Value = MISSING
    if name in ("str", "int", "float", "bool"):
        found = converted(name, first)
    elif name in ("list", "tuple", "set", "sorted", "reversed"):
        found = first if is_list(first) else () if first is MISSING else MISSING
    elif name == "len" and is_known(first) and (is_list(first) or isinstance(first, str)):
        found = len(first)
    elif name == "isinstance":
        found = _is_instance(first, given.get("", 1))
    elif name == "vars" and isinstance(first, Record):
        found = first
    elif name == "open" and isinstance(first, str):
        found = File(first)
    elif name == "print":
        found = None
    elif name in ("any", "all", "min", "max"):
        found = _of_items(name, first if is_list(first) else given.positional)
    return found


def _of_items(name: str, values: tuple[Value, ...]) -> Value:
    """Return the result of `any`, `all`, `min` or `max`, or MISSING."""
    if name in ("any", "all"):
        held = [truth(each) for each in values]
        return MISSING if None in held else any(held) if name == "any" else all(held)
    if not values or not all(type(each) in (int, float) for each in values):
        return MISSING
    return min(values) if name == "min" else max(values)


def converted(name: str, value: Value) -> Value:
    """Return a value as the built-in type `name` makes it, or MISSING."""
    if value is MISSING:
        return {"str": "", "int": 0, "float": 0.0, "bool": False}[name]
    if name == "bool":
        held = truth(value)
        return MISSING if held is None else held
    if not is_known(value) or is_list(value) or value is None:
        return MISSING
    try:
        return {"str": str, "int": int, "float": float}[name](value)
    except (ValueError, OverflowError):
        return MISSING


def _is_instance(value: Value, kind: Value) -> Value:
    """Return whether a value is of a built-in type, or MISSING."""
    kinds = kind if is_list(kind) else (kind,)
    names = [each.name.removeprefix("builtins.") for each in kinds if isinstance(each, LibraryName)]
    if len(names) != len(kinds) or not all(name in _TYPES or name == "dict" for name in names):
        return MISSING
    if isinstance(value, Record):
        return "dict" in names if value.role == "dict" else MISSING
    if isinstance(value, ClassValue | ProjectFunction):
        return False
    if is_list(value):
        return bool({"list", "tuple"} & {*names})
    return (
        any(isinstance(value, _TYPES[name]) for name in names if name in _TYPES)
        if is_known(value)
        else MISSING
    )
