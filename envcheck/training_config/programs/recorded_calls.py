"""Calls that following a program records: what is called, where, and with which arguments."""

from __future__ import annotations

import ast
from typing import NamedTuple

from envcheck.training_config.programs.values import MISSING, Value


class KeywordGiven(NamedTuple):
    """Keyword argument of a call, with its value and the expression that gives it."""

    name: str
    value: Value
    node: ast.expr


class Arguments(NamedTuple):
    """Arguments of a call; `rest` is the reason why there may be others, or ""."""

    positional: tuple[Value, ...]
    keywords: tuple[KeywordGiven, ...]
    rest: str = ""

    def keyword(self, name: str) -> Value:
        """Return a keyword argument, or MISSING."""
        return next((each.value for each in self.keywords if each.name == name), MISSING)

    def get(self, name: str, position: int) -> Value:
        """Return an argument by its name or its position, or MISSING."""
        found = self.keyword(name)
        if found is MISSING and 0 <= position < len(self.positional):
            return self.positional[position]
        return found


NO_ARGUMENTS = Arguments((), ())


class FollowedCall(NamedTuple):
    """Call of a library: what is called, by name and owner, with its place and its arguments.

    `conditions` are the undecided conditions under which it is reached, the outermost first; `made` is the
    object that it returns, if the library makes one. If a class of the project that is derived from a
    library's makes the call, `own` are the arguments that this class is given.
    """

    name: str
    owner: str
    node: ast.Call
    path: str
    arguments: Arguments
    conditions: tuple[str, ...]
    made: Value = None
    own: Arguments = NO_ARGUMENTS
