"""Commands that a Python program starts: `subprocess.run([...])`, `os.system(...)`, a job of an SDK."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

from envcheck.core.errors import InputError
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Document
from envcheck.training_config.programs.follow import FollowedProgram
from envcheck.training_config.programs.interpreter import FollowedCall
from envcheck.training_config.programs.values import MISSING, Value, is_list
from envcheck.training_config.readers import Beside, _shell_lines

_STARTS = {
    "run": ("subprocess", "sp"), "call": ("subprocess", "sp"), "check_call": ("subprocess", "sp"),
    "check_output": ("subprocess", "sp"), "Popen": ("subprocess", "sp"), "getoutput": ("subprocess", "sp"),
    "system": ("os",), "popen": ("os",), "create_subprocess_shell": ("asyncio",),
}  # fmt: skip
"""Functions that start a command, by the modules that have them."""

_COMMAND_KEYWORDS = ("args", "cmd", "command")
_SDK_COMMANDS = frozenset({"command", "CustomContainerTrainingJob", "ScriptRunConfig"})
"""Functions of SDKs with the keyword `command`: of Azure ML, Vertex AI."""

_LONGEST = 1 << 14  # characters of a command


def documents(followed: FollowedProgram | None, file: str, beside: Beside) -> tuple[Document, ...]:
    """Return the documents of the commands that a program starts and that train; empty if none does."""
    lines = list(_lines(followed)) if followed is not None else []
    if not lines:
        return ()
    with contextlib.suppress(InputError):
        return _shell_lines.documents(lines, file, beside)
    return ()


def _lines(followed: FollowedProgram) -> Iterator[_shell_lines.ShellLine]:
    for call in followed.calls:
        text = _text(_command(call))
        if text and len(text) <= _LONGEST:
            folder = call.arguments.keyword("code")
            if call.name in _SDK_COMMANDS and isinstance(folder, str) and ":" not in folder:
                yield _shell_lines.ShellLine(f"cd {shlex.quote(folder)}", call.node.lineno)
            yield from (_shell_lines.ShellLine(part, call.node.lineno) for part in text.split("\n"))


def _command(call: FollowedCall) -> Value:
    """Return the command that a call starts, or MISSING."""
    module = call.owner.rpartition(".")[2]
    if module in _STARTS.get(call.name, ()):
        if call.arguments.positional:
            return call.arguments.positional[0]
        given = (call.arguments.keyword(name) for name in _COMMAND_KEYWORDS)
        return next((value for value in given if value is not MISSING), MISSING)
    if call.name in _SDK_COMMANDS and call.owner.startswith(("azure", "azureml", "google")):
        return call.arguments.keyword("command")
    return MISSING


def _text(command: Value) -> str:
    """Return a command as shell text; a word that is not known becomes a variable that is not set."""
    if isinstance(command, str):
        return command
    if not is_list(command) or not command:
        return ""
    words = [
        shlex.quote(str(word)) if isinstance(word, str | int | float) else f"$COMPUTED_{number}"
        for number, word in enumerate(command)
    ]
    return " ".join(words) if not isinstance(command[0], Unknown) else ""
