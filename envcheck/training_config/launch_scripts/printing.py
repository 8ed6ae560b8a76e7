"""What a function prints whose output is read, as in `args=$(model_args "$name")`.

A scope keeps it like a variable, so branches that print differently leave a part of it unknown.
"""

from __future__ import annotations

from typing import Protocol

from envcheck.training_config.launch_scripts.syntax import Node, Sequence, SimpleCommand, Word
from envcheck.training_config.launch_scripts.values import (
    PRINTED,
    Fragment,
    Scope,
    Value,
    echoed,
    known_text,
    unknown_words,
)

_SILENT = frozenset({
    "mkdir", "rm", "cp", "mv", "touch", "chmod", "ln", "sleep", "wait", "trap", "let", "kill", "ulimit",
})  # fmt: skip
"""Programs that print nothing unless they fail."""

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


def _text(
    program: str, fields: list[Value], command: SimpleCommand, scope: Scope, reader: ReadsInput
) -> Value | None:
    """Return what a command prints, or None."""
    options = [known_text(field) or "" for field in fields[1:3]]
    if program == "echo":
        escapes = any(option in ("-e", "-ne", "-en") for option in options)
        if escapes and any("\\" in fragment.text for field in fields[1:] for fragment in field):
            return None
        end = "" if options[:1] and options[0] in ("-n", "-ne", "-en") else "\n"
        return (*echoed(fields), Fragment(end, command.at)) if end else echoed(fields)
    if program == "printf" and options[:1] in (["%s"], ["%s\\n"]) and len(fields) == len(options) + 1:
        return (*fields[-1], Fragment("\n", command.at)) if options[0] != "%s" else fields[-1]
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
