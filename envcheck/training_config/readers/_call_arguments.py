"""The arguments of a call that configures a training, as settings with their places."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Section, Setting, SettingValue
from envcheck.training_config.programs.expressions import computed
from envcheck.training_config.programs.given_options import given_dictionary
from envcheck.training_config.programs.values import PerhapsSet, Thing
from envcheck.training_config.readers._known_calls import (
    FIRST_ARGUMENTS,
    ConfiguringCall,
    default_of_autocast,
)
from envcheck.training_config.readers._python_literals import Literals, plain


class CallArguments:
    """Arguments of the calls in one program.

    `file` is the name of the file for places, `path` the one by which following knows it. If the lines of the
    text and of the file differ, `lines` has the line in the file of each line of the text.
    """

    def __init__(self, file: str, path: str, lines: Sequence[int], literals: Literals) -> None:
        self.file, self.path, self.lines, self._literals = file, path, lines, literals

    def keywords(self, call: ConfiguringCall) -> Iterator[tuple[str, Any, ast.expr]]:
        """Yield the keyword arguments of a call with their values; "" is the name of `**`."""
        options = given_dictionary(call.followed) if call.followed is not None else None
        if options is not None:
            for name, value in options.items.items():
                yield name, plain(value, call.node), call.node
            return
        if call.followed is not None:
            for each in call.followed.arguments.keywords:
                yield each.name, plain(each.value, each.node), each.node
            return
        for keyword in call.node.keywords:
            yield keyword.arg or "", self._literals.of(keyword.value), keyword.value

    def unread(self, call: ConfiguringCall) -> str:
        """Return why a call may have more arguments than can be read, or ""."""
        options = given_dictionary(call.followed) if call.followed is not None else None
        if options is not None:
            return options.rest
        if call.followed is not None:
            return call.followed.arguments.rest
        for name, value, _ in self.keywords(call):
            if not name and isinstance(value, Unknown):
                return value.why
        return ""

    def file_of(self, call: ConfiguringCall) -> str:
        """Return the file of a call."""
        return (
            call.followed.path if call.followed is not None and call.followed.path != self.path else self.file
        )

    def settings(self, call: ConfiguringCall, prefix: str) -> Iterator[Setting]:
        """Yield the arguments of a call; of a few calls also the first one by its position."""
        file = self.file_of(call)
        node = call.node
        name_of_first = FIRST_ARGUMENTS.get(prefix.rstrip(".").rpartition(".")[2], "")
        if node.args and name_of_first and not isinstance(node.args[0], ast.Starred):
            first = call.followed.arguments.positional[:1] if call.followed is not None else ()
            value = plain(first[0], node.args[0]) if first else self._literals.of(node.args[0])
            place = self.place(node.args[0], file)
            yield Setting(f"{prefix}{name_of_first}", _flat(value, node.args[0]), place, place)
        if call.name == "autocast" and call.followed is not None and default_of_autocast(call.followed):
            place = self.place(node, file)
            yield Setting(f"{prefix}dtype", default_of_autocast(call.followed), place, place)
        for name, value, expression in self.keywords(call):
            if name == "strategy" and prefix == "lightning.":
                value = _strategy(call, value, expression)  # noqa: PLW2901 - its class says enough
            if name:
                yield from self._nested(f"{prefix}{name}", value, expression, file)
            elif isinstance(value, dict):  # **dict(…)
                for inner_name, inner in value.items():
                    yield from self._nested(f"{prefix}{inner_name}", inner, expression, file)

    def _nested(self, name: str, value: Any, node: ast.expr, file: str) -> Iterator[Setting]:
        """Yield a setting, and those inside a dictionary."""
        place = self.place(node, file)
        if isinstance(value, dict):
            yield Setting(name, Section(tuple(map(str, value))), place, place)
            for key, inner in value.items():
                yield from self._nested(f"{name}.{key}", inner, node, file)
        else:
            perhaps = isinstance(value, PerhapsSet)
            yield Setting(name, _flat(value, node), place, place, perhaps=perhaps)

    def place(self, node: ast.expr, file: str = "") -> Place:
        """Return the place of an expression in the file that is read, or in another one of the program."""
        own = not file or file == self.file
        line = self.lines[node.lineno - 1] if own and node.lineno <= len(self.lines) else node.lineno
        length = (node.end_col_offset or 0) - node.col_offset if node.end_lineno == node.lineno else 1
        return Place(file or self.file, line, node.col_offset + 1, max(1, length))


def _strategy(call: ConfiguringCall, value: Any, node: ast.expr) -> Any:
    """Return the name of the class of an object that Lightning is given as its strategy; else the value."""
    made = call.followed.arguments.keyword("strategy") if call.followed is not None else None
    name = (
        made.maker
        if isinstance(made, Thing)
        else ast.unparse(node.func)
        if isinstance(node, ast.Call)
        else ""
    )
    name = name.rpartition(".")[2]
    return name if name.endswith("Strategy") else value


def _flat(value: Any, node: ast.expr) -> SettingValue:
    """Return a value as a setting stores it; a dictionary, or a list with nested values, is Unknown."""
    if isinstance(value, tuple):
        simple = all(item is None or isinstance(item, bool | int | float | str) for item in value)
        return value if simple else computed(node)
    return (
        value
        if value is None or isinstance(value, bool | int | float | str | Unknown)
        else Unknown("a dictionary")
    )
