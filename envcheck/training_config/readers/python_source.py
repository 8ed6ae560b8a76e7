"""Python files: recognise them; `_python_calls`, imported only when needed, reads them."""

from __future__ import annotations

import posixpath
import re

from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document
from envcheck.training_config.readers import Beside, ConfigReader

_IMPORTS = pattern(
    r"^(?:from[ \t]+[\w.]+[ \t]+import[ \t]+\S|import[ \t]+[A-Za-z_][\w., \t]*$)", re.MULTILINE
)
_DESCRIBES = pattern(r"^\w+ = dict\($", re.MULTILINE)
"""Beginning of a section of a configuration of mmengine, whose written form has no imports."""

_SHELL = pattern(r"#![^\n]*(?:ba|z|da|k)?sh\b")


def recognises(text: str) -> bool:
    """Return whether a text has Python's imports and parses as Python."""
    text = text.removeprefix("\ufeff")
    if _SHELL.match(text) or not (_IMPORTS.search(text) or _DESCRIBES.search(text)):
        return False
    from envcheck.training_config.programs.modules import parse

    return parse(text) is not None


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return what calls with literal arguments state; nothing is run, and computed values are Unknown.

    Raises:
        InputError: the file calls nothing that configures a training.
    """
    from envcheck.training_config.readers import _python_calls

    return _python_calls.documents(text, file)


def read_with(text: str, file: str, beside: Beside) -> tuple[Document, ...]:
    """Return what the calls of a program state, followed through the modules of its project.

    Raises:
        InputError: the file calls nothing that configures a training.
    """
    from envcheck.training_config.programs.parsers import GivenArguments
    from envcheck.training_config.readers import _python_calls, _started_processes
    from envcheck.training_config.readers._environment import (
        devices_of_program,
        single_device,
        variables_of_program,
    )
    from envcheck.training_config.readers._program_source import follow_program

    name = posixpath.basename(file)
    arguments = GivenArguments({})
    followed = follow_program(name, "", lambda other: text if other == name else beside(other), arguments)
    if started := _started_processes.documents(followed, file, beside):
        return started
    found = _python_calls.documents(text, file, (), followed)
    own = tuple(variables_of_program(followed, file))
    on_one = single_device(devices_of_program(followed), file)
    return (*on_one, *found[:-1], found[-1]._replace(environment=own))


READER = ConfigReader("a Python file", -1, recognises, read, read_with, reads_programs=True)
