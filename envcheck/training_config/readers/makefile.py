"""Makefiles: what their targets start. `make TARGET` in a launch script is followed there."""

from __future__ import annotations

from envcheck.training_config.document import Document
from envcheck.training_config.launch_scripts.makefiles import every_command, is_makefile
from envcheck.training_config.readers import Beside, ConfigReader


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of the commands of all targets; those that train are alternatives.

    Raises:
        InputError: no target starts a training that can be read, or one that may start one cannot be read.
    """
    from envcheck.training_config.readers._shell_lines import ShellLine, documents

    commands = every_command(text, beside or (lambda _: None))
    lines = [ShellLine(each.text, each.line) for each in commands if _counts(each.text)]
    return documents(lines, file, beside)


def _counts(command: str) -> bool:
    """Return whether a command may train: one with functions of make need not be a shell command."""
    from envcheck.training_config.launch_scripts.parser import parse
    from envcheck.training_config.launch_scripts.syntax import NotAScriptError
    from envcheck.training_config.readers import launch

    try:
        parse(command)
    except NotAScriptError:
        return launch.recognises(command)
    return True


READER = ConfigReader("a makefile", -1, is_makefile, read, read)
