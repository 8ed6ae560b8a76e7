"""What a function prints whose output is read, as in `args=$(model_args "$name")`.

A scope keeps it like a variable, so branches that print differently leave a part of it unknown.
"""

from __future__ import annotations

from typing import Protocol

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.syntax import Node, Sequence, SimpleCommand, Word
from envcheck.training_config.launch_scripts.values import (
    PRINTED,
    Fragment,
    Scope,
    Value,
    echoed,
    known_text,
    spelled,
    unknown_words,
)

_SILENT = frozenset({
    "mkdir", "rm", "cp", "mv", "touch", "chmod", "ln", "sleep", "wait", "trap", "let", "kill", "ulimit",
})  # fmt: skip
"""Programs that print nothing unless they fail."""

_MEANT = {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}
_ESCAPE = pattern(r"\\([nt\\\"])")
_UNREAD_ESCAPE = pattern(r"(?<!\\)(?:\\\\)*\\(?![nt\\\"])")
_PLACE = pattern(r"%(?:%|[^A-Za-z%]*[A-Za-z])")
_MOST_PRINTED = 200  # arguments of `printf`

_TO_ERRORS = ("&2", "2", "/dev/stderr")


class ReadsInput(Protocol):
    """Know the text that a here-document passes to a command."""

    def standard_input(self, command: SimpleCommand, scope: Scope) -> Value | None:
        """Return the text, or None."""
        ...

    def joined(self, word: Word, scope: Scope) -> Value:
        """Return a word as one value."""
        ...


def follow_printing(
    program: str, fields: list[Value], command: SimpleCommand, scope: Scope, reader: ReadsInput
) -> None:
    """Add what a command prints to the output that is read; all of it is unknown if that is not known."""
    to = [redirect for redirect in command.redirects if redirect.operator.lstrip("&").startswith(">")]
    if any(redirect.word.bare in _TO_ERRORS for redirect in to) or program in _SILENT:
        return
    text = None if to else _text(program, fields, command, scope, reader)
    printed = scope.get(PRINTED)
    if text is None or not isinstance(printed, tuple):
        forget(scope, command)
    else:
        scope.variables[PRINTED] = (*printed, *text)


def text_of(program: str, fields: list[Value], at: int) -> Value | None:
    """Return what `echo` or `printf` prints, or None if that is not known."""
    if program == "printf":
        return _formatted(fields[1:], at)
    options = [known_text(field) or "" for field in fields[1:3]]
    text = echoed(fields)
    if any(option in ("-e", "-ne", "-en") for option in options):
        if _UNREAD_ESCAPE.search(spelled(text)):
            return None
        text = tuple(part._replace(text=_unescaped(part.text)) for part in text)
    return text if options[:1] and options[0] in ("-n", "-ne", "-en") else (*text, Fragment("\n", at))


def _formatted(fields: list[Value], at: int) -> Value | None:
    """Return what `printf` prints: its format, again and again until no argument is left; None if unknown."""
    if fields and known_text(fields[0]) == "--":
        fields = fields[1:]
    layout = known_text(fields[0]) if fields else None
    if layout is None or _UNREAD_ESCAPE.search(layout):
        return None
    parts = _PLACE.split(layout)
    places = _PLACE.findall(layout)
    given = fields[1:]
    if any(place not in ("%s", "%d", "%i", "%%") for place in places) or len(given) > _MOST_PRINTED:
        return None
    if any(part.splits for field in given for part in field):
        return None
    found: list[Fragment] = []
    takes = sum(place != "%%" for place in places)
    while True:
        for number, part in enumerate(parts):
            found.append(Fragment(_unescaped(part), at))
            if number < len(places):
                of_place: Value = (Fragment("%", at),)
                if places[number] != "%%":
                    of_place, given = (given[0], given[1:]) if given else ((), given)
                found += of_place
        if not given or not takes:
            return tuple(each for each in found if each.text or each.why)


def _unescaped(text: str) -> str:
    """Return a text with the newlines, tabs and signs that `printf` makes of their escapes."""
    return _ESCAPE.sub(lambda found: _MEANT[found.group(1)], text)


def _text(
    program: str, fields: list[Value], command: SimpleCommand, scope: Scope, reader: ReadsInput
) -> Value | None:
    """Return what a command prints, or None."""
    if program in ("echo", "printf"):
        return text_of(program, fields, command.at)
    if program == "cat" and len(fields) == 1:
        return reader.standard_input(command, scope)
    return None


def forget(scope: Scope, node: Node) -> None:
    """Note that nothing is known of the output that is read, if there is one."""
    if scope.get(PRINTED) is not None:
        at = 0 if isinstance(node, Sequence) else node.at
        why = "it is printed by a function of the script, and known only when the script runs"
        scope.variables[PRINTED] = unknown_words(PRINTED, at, why)


def take_over(scope: Scope, inner: Scope) -> None:
    """Keep what a shell of its own has printed, whose variables are gone."""
    if inner is not scope and scope.get(PRINTED) is not None:
        scope.variables[PRINTED] = inner.get(PRINTED)
