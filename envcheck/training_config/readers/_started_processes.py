"""Commands that a Python program starts: `subprocess.run([...])`, `os.system(...)`, a job of an SDK."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import Tri, Unknown
from envcheck.training_config.document import Document
from envcheck.training_config.programs.follow import FollowedProgram
from envcheck.training_config.programs.recorded_calls import FollowedCall
from envcheck.training_config.programs.values import (
    MISSING,
    Further,
    PartialText,
    Record,
    UnknownWord,
    Value,
    is_known,
    is_list,
)
from envcheck.training_config.readers import Beside, _shell_lines

_STARTS = {
    "run": ("subprocess", "sp"), "call": ("subprocess", "sp"), "check_call": ("subprocess", "sp"),
    "check_output": ("subprocess", "sp"), "Popen": ("subprocess", "sp"), "getoutput": ("subprocess", "sp"),
    "system": ("os",), "popen": ("os",), "create_subprocess_shell": ("asyncio",),
}  # fmt: skip
"""Functions that start a command, by the modules that have them."""

_REPLACES = frozenset({"execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp"})
"""Functions of os whose second argument is a list of words."""

_LAUNCHER_MODULES = frozenset({
    "torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner",
})  # fmt: skip
"""Modules of launchers with a function `main` that takes their arguments."""

_COMMAND_KEYWORDS = ("args", "cmd", "command")
_SDK_COMMANDS = frozenset({"command", "CustomContainerTrainingJob", "ScriptRunConfig"})
"""Functions of SDKs with the keyword `command`: of Azure ML, Vertex AI."""

_ESTIMATORS = frozenset({"HuggingFace", "PyTorch", "Estimator", "ModelTrainer"})
"""Classes of SageMaker, which give `hyperparameters` to the program `entry_point`."""

_WRITTEN = (".json", ".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LONGEST = 1 << 14  # characters of a command
_MOST_ITEMS = 1_000  # of a configuration that a program writes


def documents(
    followed: FollowedProgram | None,
    file: str,
    beside: Beside,
    before: Sequence[str] = (),
    depth: int = 1,
) -> tuple[Document, ...]:
    """Return the documents of the commands that a program starts and that train.

    Empty if none does, or if the program trains by itself. `before` are shell commands that come first, as of
    a change of the folder; `depth` counts the programs that started one another.
    """
    jobs = [call for call in followed.calls if _of_estimator(call)] if followed is not None else []
    if followed is None or (followed.trains is Tri.YES and not jobs):  # a job's `fit` starts it
        return ()
    lines = list(_lines(jobs or followed.calls))
    if not lines:
        return ()
    known = {name: value for name, value in followed.environment.items() if isinstance(value, str)}
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in known.items() if _NAME.fullmatch(name)
    ]
    files = [line for path, record in followed.written.items() for line in _writing(path, record)]
    first = [_shell_lines.ShellLine(text, lines[0].line) for text in (*before, *exports, *files)]
    with contextlib.suppress(InputError):
        return _shell_lines.documents([*first, *lines], file, beside, depth)
    return ()


def _writing(path: str, content: Record | str) -> Iterator[str]:
    """Yield the shell lines that write a configuration as the program does, if all of it is known."""
    text = text_of(content)
    lines = text.removesuffix("\n").split("\n") if text is not None else []
    if lines and path.endswith(_WRITTEN) and _END not in lines:  # a text with this line would end there
        yield from (f"cat > {shlex.quote(path)} <<'{_END}'", *lines, _END)


_END = "END_OF_FILE"
"""The line that ends what a program writes, for the reader of shell lines."""


def text_of(content: Record | str) -> str | None:
    """Return a configuration that a program writes as JSON or as its text; None if a part is not known."""
    if isinstance(content, str):
        return content
    plain = _plain(content) if _size(content, _MOST_ITEMS) <= _MOST_ITEMS else None
    return json.dumps(plain) if plain is not None else None


def _size(value: Value, limit: int) -> int:
    """Return the number of items in a record and in those inside it; one above `limit` if there are more."""
    found, waiting = 0, [value]
    while waiting and found <= limit:
        one = waiting.pop()
        items = [*one.items.values()] if isinstance(one, Record) else []
        found += len(items)
        waiting += items
    return min(found, limit + 1)


def _plain(value: Value) -> Any:
    """Return a known value as JSON has it, or None if a part of it is not known."""
    if isinstance(value, Record):
        inner = {name: _plain(each) for name, each in value.items.items()}
        lacks = any(inner[name] is None and each is not None for name, each in value.items.items())
        return None if lacks or value.rest else inner
    if is_list(value):
        return [*value] if is_known(value) else None
    return value if is_known(value) else None


def _lines(calls: Sequence[FollowedCall]) -> Iterator[_shell_lines.ShellLine]:
    for call in calls:
        text = _of_estimator(call) or _text(_command(call))
        if text and len(text) <= _LONGEST:
            folder = call.arguments.keyword("code")
            if call.name in _SDK_COMMANDS and isinstance(folder, str) and ":" not in folder:
                yield _shell_lines.ShellLine(f"cd {shlex.quote(folder)}", call.node.lineno)
            yield from (_shell_lines.ShellLine(part, call.node.lineno) for part in text.split("\n"))


def _of_estimator(call: FollowedCall) -> str:
    """Return the command of a job of SageMaker, or ""; with a distribution, several processes are started."""
    program = call.arguments.keyword("entry_point")
    given = call.arguments.keyword("hyperparameters")
    if call.name not in _ESTIMATORS or not call.owner.startswith("sagemaker") or not isinstance(program, str):
        return ""
    folder = call.arguments.keyword("source_dir")
    place = f"cd {shlex.quote(folder)}; " if isinstance(folder, str) and "://" not in folder else ""
    values = given.items if isinstance(given, Record) else {}
    flags = [
        f"--{name} {shlex.quote(str(value)) if isinstance(value, str | int | float) else '$COMPUTED'}"
        for name, value in values.items()
    ]
    more = ["$@"] if given is not MISSING and (not isinstance(given, Record) or given.rest) else []
    joined = call.arguments.keyword("distribution") not in (MISSING, None)
    started = ["torchrun", "--nproc_per_node", "$SM_NUM_GPUS"] if joined else ["python"]
    return place + " ".join([*started, shlex.quote(program), *flags, *more])


def _command(call: FollowedCall) -> Value:
    """Return the command that a call starts, or MISSING."""
    module = call.owner.rpartition(".")[2]
    if module in _STARTS.get(call.name, ()):
        if call.arguments.positional:
            return call.arguments.positional[0]
        given = (call.arguments.keyword(name) for name in _COMMAND_KEYWORDS)
        return next((value for value in given if value is not MISSING), MISSING)
    if call.owner == "os" and call.name in _REPLACES:
        return call.arguments.get("args", 1)
    if call.name == "main" and call.owner in _LAUNCHER_MODULES:
        words = call.arguments.get("args", 0)
        return ("python", "-m", call.owner, *words) if is_list(words) else MISSING
    if call.name in _SDK_COMMANDS and call.owner.startswith(("azure", "azureml", "google")):
        return call.arguments.keyword("command")
    return MISSING


def _text(command: Value) -> str:
    """Return a command as shell text; a word that is not known becomes a variable that is not set."""
    if isinstance(command, str):
        return command
    if isinstance(command, PartialText):
        return "".join(map(_part, command.parts))
    if not is_list(command) or not command or isinstance(command[0], Unknown | Further):
        return ""
    return " ".join(_word(word, f"$COMPUTED_{number}") for number, word in enumerate(command))


def _part(part: str | Unknown) -> str:
    """Return a part of a command's text as shell text."""
    return part if isinstance(part, str) else '"$COMPUTED"' if isinstance(part, UnknownWord) else "$COMPUTED"


def _word(word: Value, hole: str) -> str:
    """Return a word of a command as shell text; `hole` stands for what is not known."""
    if isinstance(word, str | int | float):
        return shlex.quote(str(word))
    if isinstance(word, PartialText):
        return "".join(shlex.quote(part) if isinstance(part, str) else f'"{hole}"' for part in word.parts)
    return f'"{hole}"' if isinstance(word, UnknownWord) else hole
