"""Debug configurations of VS Code (launch.json): the program of each, with its arguments and environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from envcheck.core.errors import InputError
from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document, Setting
from envcheck.training_config.readers import Beside, ConfigReader

_MARKS = (re.compile(r'"configurations"\s*:\s*\['), re.compile(r'"request"\s*:\s*"launch"'))
_CONFIGURATION = pattern(r"(configurations\.\d+)\.(?:program|module)")
_VARIABLE = pattern(r"\$\{(?:workspaceFolder|workspaceRoot|fileDirname)\}/?")


def recognises(text: str) -> bool:
    """Return whether a text has debug configurations that start something."""
    return text.lstrip().startswith(("{", "/")) and all(mark.search(text) for mark in _MARKS)


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of the programs that train.

    Raises:
        InputError: the text is malformed, or it starts no training that can be read.
    """
    from envcheck.training_config.readers import _shell_lines, json_text

    (document,) = json_text.read(text, file)
    settings = {setting.name: setting for setting in document.settings}
    lines = list(_lines(settings))
    if not lines:
        raise InputError(file, "debug configurations that start no program of Python")
    return _shell_lines.documents([_shell_lines.ShellLine(*line) for line in lines], file, beside)


def _lines(settings: Mapping[str, Setting]) -> Iterator[tuple[str, int]]:
    """Yield a shell line for each configuration, with its line in the file."""
    for name, setting in settings.items():
        if (found := _CONFIGURATION.fullmatch(name)) is None or not isinstance(setting.value, str):
            continue
        prefix = f"{found.group(1)}.env."
        variables = [
            f"{inner.removeprefix(prefix)}={shlex.quote(str(each.value))}"
            for inner, each in settings.items()
            if inner.startswith(prefix)
        ]
        given = settings.get(f"{found.group(1)}.args")
        words = given.value if given is not None and isinstance(given.value, tuple) else ()
        program = ["-m", setting.value] if name.endswith(".module") else [setting.value]
        quoted = [shlex.quote(_VARIABLE.sub("", str(word))) for word in (*program, *words)]
        yield f"( {' '.join(['env', *variables, 'python', *quoted])} )", setting.place.line


READER = ConfigReader("VS Code's debug configurations", -1, recognises, read, read)
