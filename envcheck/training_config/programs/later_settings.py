"""Attributes that a program sets on the arguments of a trainer after they were made."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.recorded_calls import FollowedCall, KeywordGiven
from envcheck.training_config.programs.values import Record, Thing, Value, same

PARSED = "namespace"
"""The role of an object of a library's class that a parser of a command line returns."""

COMMAND_LINE = "the command line may set it"
"""Why such an object may have attributes that are not known."""


class SetAttributes:
    """Hold where attributes of objects were set, by object and name; an object is kept by its identity."""

    def __init__(self) -> None:
        self._places: dict[int, dict[str, tuple[str, ast.expr]]] = {}
        self._owners: list[Thing | Record] = []

    def add(self, owner: Thing | Record, target: ast.Attribute, path: str) -> None:
        """Remember that an attribute of an object was set in a file."""
        if id(owner) not in self._places:
            self._owners.append(owner)
        self._places.setdefault(id(owner), {})[target.attr] = path, target

    def of(self, owner: Value) -> Mapping[str, tuple[str, ast.expr]]:
        """Return the attributes of an object that were set, each with its file and place."""
        return self._places.get(id(owner), {})


def with_later_settings(calls: Sequence[FollowedCall], set_later: SetAttributes) -> list[FollowedCall]:
    """Return the calls with what the program set on their objects afterwards as their arguments.

    As in `args = TrainingArguments(…)`, then `args.bf16 = True`. What is set under a condition that is not
    decided is Unknown. What a parser made of the command line alone is left out if nothing of it is set.
    """
    found = []
    for call in calls:
        keywords = _later_keywords(call, set_later)
        if keywords is not None:
            found.append(call._replace(arguments=call.arguments._replace(keywords=keywords)))
        elif not (isinstance(call.made, Record) and call.made.role == PARSED) and not _copies_parsed(call):
            found.append(call)
    return found


def _copies_parsed(call: FollowedCall) -> bool:
    """Return whether a call makes arguments of those of the command line: `Args(**parsed.to_dict())`."""
    return call.arguments.rest == COMMAND_LINE and call.name.endswith(("Arguments", "Config"))


def settings_replaced(calls: Sequence[FollowedCall], set_later: SetAttributes) -> dict[str, str]:
    """Return the options that the program itself sets after it parsed them.

    Each has the reason why its value is not known afterwards, or "".
    """
    found: dict[str, str] = {}
    for call in calls:
        if isinstance(call.made, Record):
            for name in set_later.of(call.made):
                value = call.made.items.get(name)
                found[name] = value.why if isinstance(value, Unknown) else ""
    return found


def _later_keywords(call: FollowedCall, set_later: SetAttributes) -> tuple[KeywordGiven, ...] | None:
    """Return the keyword arguments of a call with the attributes that were set later, or None without any."""
    places = set_later.of(call.made)
    values = _attributes(call.made)
    if not places:
        return None
    found = {each.name: each for each in call.arguments.keywords}
    for name, (path, target) in places.items():
        value = values.get(name, Unknown("it is set when the program runs"))
        if name not in found or not same(found[name].value, value):
            node = target if path == call.path else call.node
            found[name] = KeywordGiven(name, value, node)
    return tuple(found.values())


def _attributes(made: Value) -> Mapping[str, Value]:
    if isinstance(made, Thing):
        return made.given or {}
    return made.items if isinstance(made, Record) else {}
