"""Builtin commands of the shell that change variables, arguments or control flow."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

from envcheck.core.facts import Tri
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts.expansion import POSITION, Expander
from envcheck.training_config.launch_scripts.syntax import SimpleCommand
from envcheck.training_config.launch_scripts.values import (
    NAME,
    Fragment,
    Scope,
    Value,
    known_text,
    stripped,
    unknown,
    unknown_words,
)

FOLDER = "PWD"
"""The name of the variable that keeps the current folder, once the script has changed it."""

_SETUP_FILES = ("activate", "bashrc", "profile", "conda.sh", "modules.sh", "lmod.sh", "setvars.sh")
"""Endings of files that set up an environment; sourcing one changes no variable of the script."""


class Invocation(NamedTuple):
    """A builtin command after expansion; `fields` begins with its name.

    `evaluate` follows a value as a script, and `run_file` follows a script file; it returns whether the file
    could be read.
    """

    fields: list[Value]
    command: SimpleCommand
    scope: Scope
    expander: Expander
    evaluate: Callable[[Value, Scope], Tri | None]
    run_file: Callable[[str, list[Value], Scope, int], bool]


def _eval(call: Invocation) -> Tri | None:
    space = Fragment(" ", call.fields[0][0].at)
    text = tuple(fragment for field in call.fields[1:] for fragment in (*field, space))
    return call.evaluate(text, call.scope)


def _exit(call: Invocation) -> Tri:
    """Follow `exit` and `return`."""
    call.scope.ended_by = "return" if known_text(call.fields[0]) == "return" else "exit"
    return Tri.YES


def _true(call: Invocation) -> Tri:
    del call
    return Tri.YES


def _false(call: Invocation) -> Tri:
    del call
    return Tri.NO


def _getopts(call: Invocation) -> Tri:
    """Follow `getopts`, which finds no option because the script is assumed to have no arguments."""
    if call.scope.arguments is None:
        call.expander.session.assumed.add("@")
    return Tri.NO


def _unset(call: Invocation) -> Tri:
    for field in call.fields[1:]:
        call.scope.variables[known_text(field) or ""] = None
    return Tri.YES


def _set(call: Invocation) -> Tri:
    """Follow `set -- words`, which replaces the arguments."""
    marks = [index for index, field in enumerate(call.fields) if known_text(field) == "--"]
    if marks:
        call.scope.arguments = call.fields[marks[0] + 1 :]
    return Tri.YES


def _shift(call: Invocation) -> Tri:
    arguments = call.scope.arguments
    if arguments is not None:
        count = known_text(call.fields[1]) if len(call.fields) > 1 else "1"
        call.scope.arguments = arguments[int(count) :] if count and POSITION.fullmatch(count) else None
    return Tri.YES


def _read(call: Invocation) -> Tri | None:
    """Follow `read`: its variables are unknown, but `read -d '' NAME <<EOF` takes the whole text."""
    names = [word for field in call.fields[1:] if NAME.fullmatch(word := known_text(field) or "")]
    text = call.expander.standard_input(call.command, call.scope)
    takes_all = any(known_text(field) in ("-d", "-rd") for field in call.fields)
    at = call.command.at
    for name in names:
        reason = f"${name} is read in line {call.expander.session.line(at)}"
        call.scope.variables[name] = unknown(at, f"${name}", reason)
    if names and takes_all and text is not None:
        call.scope.variables[names[-1]] = stripped(text)
    return None


def _cd(call: Invocation) -> Tri:
    """Follow `cd FOLDER` and `pushd FOLDER`: later relative paths start there."""
    words = [field for field in call.fields[1:] if not (known_text(field) or "/").startswith("-")]
    to = known_text(words[0]) if len(words) == len(call.fields) - 1 == 1 else None
    before = call.scope.get(FOLDER)
    start = "" if before is None else known_text(before) if isinstance(before, tuple) else None
    if to is None or (start is None and not to.startswith("/")):
        reason = f"the folder that line {call.expander.session.line(call.command.at)} changes to is not known"
        call.scope.variables[FOLDER] = unknown(call.command.at, f"${FOLDER}", reason)
    else:
        call.scope.variables[FOLDER] = (Fragment(posixpath.join(start or "", to), call.command.at),)
    return Tri.YES


def _source(call: Invocation) -> Tri | None:
    """Follow `source FILE`; if it cannot be read, any variable may be different afterwards."""
    name = "".join(fragment.text for field in call.fields[1:2] for fragment in field)
    if not name.endswith(_SETUP_FILES) and not call.run_file(
        name, call.fields[2:], call.scope, call.command.at
    ):
        session, scope, at = call.expander.session, call.scope, call.command.at
        scope.may_set = f"may be set by {name}, which line {session.line(at)} reads"
        for known in scope.names():
            session.spend(1)
            if known.startswith("SLURM_"):  # the job sets these
                continue
            scope.variables[known] = unknown_words(known, at, f"${known} {scope.may_set}")
    return None


BUILTINS: Mapping[str, Callable[[Invocation], Tri | None]] = {
    "eval": _eval, "exit": _exit, "return": _exit, "true": _true, ":": _true, "false": _false,
    "getopts": _getopts, "unset": _unset, "set": _set, "shift": _shift, "read": _read, "mapfile": _read,
    "readarray": _read, "cd": _cd, "pushd": _cd, "popd": _cd, "source": _source, ".": _source,
}  # fmt: skip
