"""Builtin commands of the shell that change variables, arguments or control flow."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from envcheck.core.facts import Tri
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts.expansion import POSITION, Expander
from envcheck.training_config.launch_scripts.project_paths import is_above_project
from envcheck.training_config.launch_scripts.session import Session
from envcheck.training_config.launch_scripts.syntax import SimpleCommand
from envcheck.training_config.launch_scripts.values import (
    NAME,
    Fragment,
    Scope,
    Value,
    known_text,
    spelled,
    stripped,
    unknown,
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
        name = known_text(field) or ""
        call.scope.variables[name] = None
        call.expander.session.spend(call.scope.forget_elements(name))
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
    """Follow `read`, which takes its variables from `<<<` if that text is known; else they are unknown.

    `read -d '' NAME <<EOF` takes the whole text, and `read -a NAME` an array.
    """
    options = [known_text(field) or "" for field in call.fields[1:]]
    names = [word for word in options if NAME.fullmatch(word)]
    text = call.expander.standard_input(call.command, call.scope)
    at = call.command.at
    for name in names:
        reason = f"${name} is read in line {call.expander.session.line(at)}"
        call.scope.variables[name] = unknown(at, f"${name}", reason)
    if not names or text is None:
        return None
    if any(option in ("-d", "-rd") for option in options):
        call.scope.variables[names[-1]] = stripped(text)
    elif known_text(call.fields[0]) == "read" and (line := known_text(text)) is not None and "\n" not in line:
        _read_line(line, names, call, array=any(re.fullmatch("-r?a", option) for option in options))
    return None


def _read_line(line: str, names: list[str], call: Invocation, *, array: bool) -> None:
    """Set the variables that `read` takes from a line."""
    at = call.command.at
    separators = _separators(call)
    if separators is None:
        return
    most = 0 if array else len(names) - 1  # the last variable takes the rest
    if separators == "":
        words = [line]  # nothing separates words, and blanks at the ends are kept
    elif separators.strip():
        words = re.split(f"[{re.escape(separators)}]", line, maxsplit=most) if array or most else [line]
    else:
        line = line.strip(separators)
        words = re.split(f"[{separators}]+", line, maxsplit=most) if array or most else [line]
    if array:
        call.scope.variables[names[-1]] = [(Fragment(word, at),) for word in words]
        return
    for name, word in zip(names, [*words, *[""] * len(names)], strict=False):
        call.scope.variables[name] = (Fragment(word, at),)


def _separators(call: Invocation) -> str | None:
    """Return the characters that separate words: those of `IFS=… read`, else blanks; None if not known."""
    for word in call.command.words:
        text = known_text(call.expander.joined(word, call.scope)) or ""
        if text == "read":
            break
        if text.startswith("IFS="):
            return text.removeprefix("IFS=")
    return " \t\n" if call.scope.get("IFS") is None else None


def _printf(call: Invocation) -> Tri | None:
    """Follow `printf -v NAME FORMAT WORDS`."""
    words = [known_text(field) for field in call.fields[1:]]
    if len(words) < 3 or words[0] != "-v" or not NAME.fullmatch(words[1] or ""):  # noqa: PLR2004
        return None
    from envcheck.training_config.launch_scripts.text_filters import formatted

    at, name = call.command.at, words[1] or ""
    known = [word for word in words[2:] if word is not None]
    text = formatted(known) if len(known) == len(words) - 2 else None
    reason = f"${name} is composed in line {call.expander.session.line(at)}"
    call.scope.variables[name] = unknown(at, f"${name}", reason) if text is None else (Fragment(text, at),)
    return None


def _cd(call: Invocation) -> Tri:
    """Follow `cd FOLDER` and `pushd FOLDER`: later relative paths start there."""
    words = [field for field in call.fields[1:] if not (known_text(field) or "/").startswith("-")]
    to = _folder_of(words[0], call.expander.session) if len(words) == len(call.fields) - 1 == 1 else None
    before = call.scope.get(FOLDER)
    start = "" if before is None else known_text(before) if isinstance(before, tuple) else None
    if to is None or (start is None and not to.startswith("/")):
        reason = f"the folder that line {call.expander.session.line(call.command.at)} changes to is not known"
        call.scope.variables[FOLDER] = unknown(call.command.at, f"${FOLDER}", reason)
    else:
        folder = posixpath.normpath(posixpath.join(start or "", to))
        call.scope.variables[FOLDER] = (Fragment(folder, call.command.at),)
    return Tri.YES


def _folder_of(field: Value, session: Session) -> str | None:
    """Return a folder of which only the beginning may be unknown, or None.

    The files of `/projects/$USER/project/src` are looked up like those below any absolute folder: by the end
    of their paths. A variable that the script does not set is assumed to name a folder above the project's.
    """
    if (known := known_text(field)) is not None:
        return known
    last = max(at for at, each in enumerate(field) if each.why)
    variable, rest = field[last], field[last + 1 :]
    end = "".join(each.text for each in rest)
    if not end.startswith("/") or not end.strip("/.") or ".." in end.split("/"):
        return None
    if not is_above_project(variable):
        return None
    if variable.unset:
        session.roots.add(variable.unset)
    return f"/{_UNKNOWN_FOLDER}{end}"


_UNKNOWN_FOLDER = "…"
"""What stands for the beginning of a path that is not known."""


def _source(call: Invocation) -> Tri | None:
    """Follow `source FILE`; if it cannot be read, any variable may be different afterwards.

    A file that the script asks for first, as in `[ -f .env ] && source .env`, is optional: if it is not here,
    the script is read as if there were none, just as variables are assumed not to be set outside.
    """
    name = spelled(call.fields[1]) if len(call.fields) > 1 else ""
    session, at = call.expander.session, call.command.at
    if name.endswith(_SETUP_FILES) or call.run_file(name, call.fields[2:], call.scope, at):
        return None
    if name in session.tested:
        session.left_out.add(name)
    else:
        by = f"may be set by {name}, which line {session.line(at)} reads"
        session.spend(call.scope.set_elsewhere(by, at))
    return None


BUILTINS: Mapping[str, Callable[[Invocation], Tri | None]] = {
    "eval": _eval, "exit": _exit, "return": _exit, "true": _true, ":": _true, "false": _false,
    "getopts": _getopts, "unset": _unset, "set": _set, "shift": _shift, "read": _read, "mapfile": _read,
    "readarray": _read, "cd": _cd, "pushd": _cd, "popd": _cd, "source": _source, ".": _source,
    "printf -v": _printf,
}  # fmt: skip
