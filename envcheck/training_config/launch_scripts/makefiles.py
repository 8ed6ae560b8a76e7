"""What `make TARGET` runs: the commands of a target and of those that it needs, as a shell script. Pure.

Variables are texts that are put in where they are named, as make does. A variable that the makefile does not
set stays one of the environment. Functions of make are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""The names that make looks for, in this order."""

_CONDITIONAL = re.compile(r"(?:ifn?eq|ifn?def|define|export|unexport|vpath|override)\b|\$\(")
_VARIABLE = re.compile(r"(?:export[ \t]+|override[ \t]+)?([A-Za-z_]\w*)[ \t]*(\?|\+|::?)?=[ \t]*(.*)")
_RULE = re.compile(r"([\w./ %-]+?)[ \t]*::?(?!=)[ \t]*([^;]*)")
_INCLUDE = re.compile(r"-?include[ \t]+([\w./-]+)[ \t]*")
_PAIR = re.compile(r"\t[\t ]*[\w.\"'-]+:(?:[ \t]|$)")
_NAMED = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|([@<^*]))")
_MOST_TARGETS = 20
_DEEPEST = 8  # variables that name one another
_LONGEST = 1 << 16
_MOST_LINES = 500  # that a makefile may have before its first command
_LONGEST_RULE = 2000  # characters: a longer line is not taken for a rule


class MakeCommand(NamedTuple):
    """Hold a command of a target, and its line in the makefile."""

    text: str
    line: int


class _Rules(NamedTuple):
    """Hold the content of a makefile: variables, and the needs and commands of each target."""

    variables: dict[str, str]
    needs: dict[str, list[str]]
    commands: dict[str, list[MakeCommand]]


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
    lines = [_expanded(each.text, rules.variables, 0) for target in order for each in rules.commands[target]]
    return "\n".join(f"( {line} )" for line in lines)[:_LONGEST]


def is_makefile(text: str) -> bool:
    """Return whether a text has a rule with a command, which begins with a tab, before anything else is said.

    YAML that is indented with tabs, which is a mistake, has pairs there.
    """
    for line, following in islice(pairwise(_joined(text)), _MOST_LINES):
        plain = line.text.partition("#")[0].strip()
        if len(plain) > _LONGEST_RULE:
            return False
        if _RULE.fullmatch(plain) and following.text.startswith("\t"):
            return _PAIR.match(following.text) is None
        if plain and not any(form.fullmatch(plain) for form in (_RULE, _VARIABLE, _INCLUDE)):
            return _CONDITIONAL.match(plain) is not None
    return False


def every_command(text: str, beside: Callable[[str], str | None]) -> list[MakeCommand]:
    """Return the commands of every target of a makefile, with the variables in them put in.

    Those of a file that it includes are left out.
    """
    rules = _Rules({}, {}, {})
    _read(text, rules, beside)
    own = {each.line for each in _joined(text) if each.text.startswith("\t")}
    found = [each for commands in rules.commands.values() for each in commands if each.line in own]
    return [each._replace(text=f"( {_expanded(each.text, rules.variables, 0)} )") for each in found]


def _joined(text: str) -> Iterator[MakeCommand]:
    """Yield the lines of a makefile with those that continue them, and the number of the first."""
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        more = line.endswith("\\")
        parts.append((line.lstrip() if parts else line).removesuffix("\\"))
        if not more:
            yield MakeCommand(" ".join(parts), number - len(parts) + 1)
            parts = []
    if parts:
        yield MakeCommand(" ".join(parts), len(text.splitlines()) - len(parts) + 1)


def _read(text: str, rules: _Rules, beside: Callable[[str], str | None]) -> None:
    current: list[str] = []
    for line in _joined(text):
        if line.text.startswith("\t"):
            for target in current:
                rules.commands[target].append(line._replace(text=line.text.strip().lstrip("@-+")))
            continue
        plain = line.text.partition("#")[0].strip()
        if variable := _VARIABLE.fullmatch(plain):
            _set(rules.variables, variable)
        elif included := _INCLUDE.fullmatch(plain):
            if (other := beside(included.group(1))) is not None:
                _read(other, rules, lambda _: None)
        elif len(plain) <= _LONGEST_RULE and (rule := _RULE.fullmatch(plain)):
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
