"""Assignments and declarations of variables: `NAME=word`, arrays, `export`, `declare`."""

from __future__ import annotations

import re

from envcheck.core.facts import Tri
from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.expansion import Expander
from envcheck.training_config.launch_scripts.syntax import SimpleCommand, Text, Word
from envcheck.training_config.launch_scripts.values import (
    Fragment,
    Scope,
    Value,
    shortened,
    spelled,
    unknown,
)

ASSIGNMENT = pattern(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
"""The beginning of an assignment: name, index in brackets, plus sign."""

_KEYED = re.compile(r"\[([^\]]*)\]=")
"""The beginning of an element with its key: `[key]=`."""

_WORDS = pattern(r"[^\s()<|\"']+")

DECLARATIONS = frozenset({"export", "declare", "local", "readonly", "typeset"})


class Assignments:
    """Follow the assignments of one script."""

    def __init__(self, expander: Expander) -> None:
        """Use the state of the session that the expander reads and updates."""
        self.expander, self.session = expander, expander.session

    def assign(self, word: Word, found: re.Match[str], scope: Scope) -> None:
        """Follow `NAME=word`, `NAME+=word` or `NAME=( … )`."""
        name, index, plus = found.group(1), found.group(2), found.group(3)
        before = scope.get(name) if plus else None
        if word.array is not None:
            if not plus:
                self.session.spend(scope.forget_elements(name))
            if word.array and all(map(_KEYED.match, map(_beginning, word.array))):
                self._assign_elements(name, word, scope)
                return
            values = self.expander.fields(word.array, scope)
            old = before if isinstance(before, list) else [before] if before else []
            scope.variables[name] = [*old, *values]
            self.session.spend(len(old))
            return
        value = self.expander.joined(_without_name(word, found.end()), scope)
        if index is not None:
            self._assign_element(name, self.expander.index(index[1:-1], scope), value, scope)
        elif isinstance(before, list):
            scope.variables[name] = [(*before[0], *value), *before[1:]] if before else [value]
        else:
            scope.variables[name] = (*(before or ()), *value)
            self.session.spend(len(before or ()))

    def _assign_elements(self, name: str, word: Word, scope: Scope) -> None:
        """Follow `NAME=([key]=word …)`."""
        for element in word.array or ():
            found = _KEYED.match(_beginning(element))
            if found is not None:
                value = self.expander.joined(_without_name(element, found.end()), scope)
                self._assign_element(name, self.expander.index(found.group(1), scope), value, scope)

    def _assign_element(self, name: str, key: str, value: Value, scope: Scope) -> None:
        """Set one element, which has a variable of its own; the array as a whole is unknown."""
        at = value[0].at if value else 0
        scope.variables[name] = unknown(at, f"${{{name}}}", f"${name} is filled element by element")
        if key == "?":
            self.session.spend(scope.forget_elements(name))
        else:
            scope.variables[f"{name}[{key}]"] = value or (Fragment("", at),)

    def declare(self, words: list[Word], scope: Scope, *, exports: bool) -> Tri:
        """Follow `export`, `declare` and the like; `exports` says that programs see the variables."""
        options = [word.bare for word in words if word.bare.startswith(("-", "+"))]
        keeps_back = any("n" in each if exports else each == "+x" for each in options)
        for word in words:
            found = assignment_in(word)
            if found:
                self.assign(word, found, scope)
            elif not word.bare:
                self._declare_printed(word, scope, exports=exports)
            name = found.group(1) if found else word.bare
            if keeps_back and scope.outer is None:
                self.session.exported.discard(name)
            elif keeps_back:  # under a condition, or in a function
                why = f"line {self.session.line(word.at)} may keep ${name} from programs"
                scope.variables[name] = unknown(word.at, f"${name}", why)
            elif exports:
                self.session.exported.add(name)
        return Tri.YES

    def _declare_printed(self, word: Word, scope: Scope, *, exports: bool) -> None:
        """Follow `export $(cat FILE)`: each word is an assignment; unknown ones may set any variable.

        A file that the script asks for first is optional, as in `[ -f .env ] && export $(xargs <.env)`, and
        assumed not to exist.
        """
        for field in self.expander.fields((word,), scope):
            text = spelled(field)
            pair = ASSIGNMENT.match(text)
            if pair and not field[0].why:
                self.session.exported.add(pair.group(1))
                rest = field[0]._replace(text=field[0].text[pair.end() :])
                scope.variables[pair.group(1)] = (rest, *field[1:])
            elif asked_for := self.session.tested.intersection(_WORDS.findall(text)):
                self.session.left_out |= asked_for
            elif any(fragment.why for fragment in field):
                by = f"may be set by {shortened(text)} of line {self.session.line(word.at)}"
                self.session.spend(scope.set_elsewhere(by, word.at))
                self.session.may_export = by if exports else self.session.may_export


def names_set_by(command: SimpleCommand) -> set[str]:
    """Return the variables that a simple command may set."""
    found = set()
    for word in command.words:
        first = word.pieces[0] if word.pieces else None
        pair = ASSIGNMENT.match(first.text) if isinstance(first, Text) else None
        if pair:
            found.add(pair.group(1))
    if command.words and command.words[0].bare in ("read", "mapfile", "readarray", "unset"):
        found |= {word.bare for word in command.words[1:]}
    return found


def assignment_in(word: Word) -> re.Match[str] | None:
    """Return the beginning of an assignment, or None for any other word."""
    first = word.pieces[0] if word.pieces else None
    return ASSIGNMENT.match(first.text) if isinstance(first, Text) and not first.quoted else None


def _beginning(word: Word) -> str:
    """Return the text with which a word begins, "" if that is quoted or expanded."""
    first = word.pieces[0] if word.pieces else None
    return first.text if isinstance(first, Text) and not first.quoted else ""


def _without_name(word: Word, length: int) -> Word:
    """Return the value of an assignment: the word without its first `length` characters."""
    first = word.pieces[0]
    if not isinstance(first, Text):
        return word
    rest = Text(first.text[length:], first.at + length, quoted=False)
    return word._replace(pieces=(rest, *word.pieces[1:]))
