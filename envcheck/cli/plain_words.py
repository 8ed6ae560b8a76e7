"""Command lines that can be read without typer: options spelt out, their values, and words.

Anything that could mean something else (an unknown option, a value that begins with a dash, a number out of
range, `--`, `--help`) is left to typer, which also reports wrong usage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_type_hints

from envcheck.cli.declaration import CommandArgument, CommandOption, CommandParameter

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?", re.ASCII)


class _NotPlainError(Exception):
    """Typer must read this command line."""


class _Declared:
    """A parameter of a command: its name in Python, its declaration and the type of one value."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.name = name
        self.declaration: CommandParameter = annotation.__metadata__[0]
        one = annotation.__origin__
        if isinstance(one, UnionType):
            one = next(each for each in get_args(one) if each is not type(None))
        self.is_list = getattr(one, "__origin__", None) is list
        self.type: type = get_args(one)[0] if self.is_list else one

    def value(self, word: str) -> object:
        """Return the value that a word stands for. Raises _NotPlainError."""
        if issubclass(self.type, Enum):
            return _member(self.type, word)
        if self.type in (int, float):
            return self._number(word)
        if self.type is not str:
            raise _NotPlainError
        return word

    def _number(self, word: str) -> float:
        if not _NUMBER.fullmatch(word) or (self.type is int and "." in word):
            raise _NotPlainError
        number = self.type(word)
        settings = self.declaration.settings
        if not settings.get("min", number) <= number <= settings.get("max", number):
            raise _NotPlainError
        return number  # type: ignore[no-any-return]


def parse(command: Callable[..., int], words: Sequence[str]) -> dict[str, object] | None:
    """Return a command's keyword arguments from these words, or None if typer must read them."""
    declared = [
        _Declared(name, annotation)
        for name, annotation in get_type_hints(command, include_extras=True).items()
        if name != "return"
    ]
    try:
        given, left = _options(declared, words)
        given |= _arguments(declared, left)
    except _NotPlainError:
        return None
    needed = command.__code__.co_argcount - len(command.__defaults__ or ())
    if any(each.name not in given for each in declared[:needed]):
        return None
    for each in declared:
        callback = each.declaration.settings.get("callback")
        if callback is not None and each.name in given:
            given[each.name] = callback(given[each.name])
    return given


def _options(declared: list[_Declared], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the options and the words that are left. Raises _NotPlainError."""
    options = {
        name: each
        for each in declared
        if isinstance(each.declaration, CommandOption)
        for name in each.declaration.names
    }
    given: dict[str, Any] = {}
    left: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-" or not word.startswith("-"):
            left.append(word)
            continue
        name, joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = options.get(name)
        if option is None:
            raise _NotPlainError
        if option.type is bool:
            if joined:
                raise _NotPlainError
            given[option.name] = True
        else:
            _add(given, option, value if joined else _next_value(rest))
    return given, left


def _next_value(rest: Iterator[str]) -> str:
    value = next(rest, "-?")
    if value.startswith("-") and value != "-":
        raise _NotPlainError
    return value


def _arguments(declared: list[_Declared], words: list[str]) -> dict[str, Any]:
    """Return the values of the arguments, in the order of their declarations. Raises _NotPlainError."""
    given: dict[str, Any] = {}
    left = list(words)
    for each in declared:
        if isinstance(each.declaration, CommandArgument):
            for word in left if each.is_list else left[:1]:
                _add(given, each, word)
            left = [] if each.is_list else left[1:]
    if left:
        raise _NotPlainError
    return given


def _add(given: dict[str, Any], declared: _Declared, word: str) -> None:
    value = declared.value(word)
    if declared.is_list:
        given.setdefault(declared.name, []).append(value)
    else:
        given[declared.name] = value


def _member(kind: type[Enum], word: str) -> Enum:
    """Return the member of an enumeration with this value. Raises _NotPlainError."""
    try:
        return kind(word)
    except ValueError as error:
        raise _NotPlainError from error
