"""What `make TARGET` runs: the commands of a target and of those that it needs, as a shell script. Pure.

Variables are texts that are put in where they are named, as make does. A variable that the makefile does not
set stays one of the environment. Functions of make are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""The names that make looks for, in this order."""

_CONTINUED = re.compile(r"\\\r?\n[ \t]*")
_VARIABLE = re.compile(r"(?:export[ \t]+|override[ \t]+)?([A-Za-z_]\w*)[ \t]*(\?|\+|::?)?=[ \t]*(.*)")
_RULE = re.compile(r"([\w./ %-]+?)[ \t]*::?(?!=)[ \t]*([^;]*)")
_INCLUDE = re.compile(r"-?include[ \t]+([\w./-]+)[ \t]*")
_NAMED = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|([@<^*]))")
_MOST_TARGETS = 20
_DEEPEST = 8  # variables that name one another
_LONGEST = 1 << 16


class _Rules(NamedTuple):
    """Hold the content of a makefile: variables, and the needs and commands of each target."""

    variables: dict[str, str]
    needs: dict[str, list[str]]
    commands: dict[str, list[str]]


def make_script(
    text: str, targets: Sequence[str], given: Mapping[str, str], beside: Callable[[str], str | None]
) -> str:
    """Return the commands of the targets as a script; without one, those of the first target.

    `given` are the variables on the command line; `beside` reads the files that the makefile includes.
    """
    rules = _Rules({}, {}, {})
    _read(text, rules, beside)
    rules.variables.update(given)
    wanted = list(targets) or [name for name in rules.commands if not name.startswith(".")][:1]
    order: list[str] = []
    for target in wanted:
        _visit(target, rules, order, [])
    lines = [_expanded(line, rules.variables, 0) for target in order for line in rules.commands[target]]
    return "\n".join(f"( {line} )" for line in lines)[:_LONGEST]


def _read(text: str, rules: _Rules, beside: Callable[[str], str | None]) -> None:
    current: list[str] = []
    for line in _CONTINUED.sub(" ", text).splitlines():
        if line.startswith("\t"):
            for target in current:
                rules.commands[target].append(line.strip().lstrip("@-+"))
            continue
        plain = line.partition("#")[0].strip()
        if variable := _VARIABLE.fullmatch(plain):
            _set(rules.variables, variable)
        elif included := _INCLUDE.fullmatch(plain):
            if (other := beside(included.group(1))) is not None:
                _read(other, rules, lambda _: None)
        elif rule := _RULE.fullmatch(plain):
            current = rule.group(1).split()
            for target in current:
                rules.needs.setdefault(target, []).extend(rule.group(2).split())
                rules.commands.setdefault(target, [])


def _set(variables: dict[str, str], assignment: re.Match[str]) -> None:
    name, how, value = assignment.groups()
    if how == "+":
        value = f"{variables.get(name, '')} {value}".strip()
    if how != "?" or name not in variables:
        variables[name] = value


def _visit(target: str, rules: _Rules, order: list[str], path: list[str]) -> None:
    """Add a target to the order, after those that it needs."""
    if target in order or target in path or target not in rules.commands or len(order) >= _MOST_TARGETS:
        return
    for needed in rules.needs.get(target, ()):
        _visit(needed, rules, order, [*path, target])
    order.append(target)


def _expanded(line: str, variables: Mapping[str, str], depth: int) -> str:
    """Return a line with the texts of the variables in it."""

    def text(found: re.Match[str]) -> str:
        name = found.group(1) or found.group(2)
        if name in variables and depth < _DEEPEST:
            return _expanded(variables[name], variables, depth + 1)
        return f"${{{name}}}" if name else ""

    parts = line.split("$$")
    return "$".join(_NAMED.sub(text, part) for part in parts)[:_LONGEST]
