"""Python files: recognise them; `_python_calls`, imported only when needed, reads them."""

from __future__ import annotations

import re

from envcheck.training_config.document import Document
from envcheck.training_config.readers import ConfigReader

_IMPORTS = re.compile(
    r"^(?:from[ \t]+[\w.]+[ \t]+import[ \t]+\S|import[ \t]+[A-Za-z_][\w., \t]*$)", re.MULTILINE
)
_SHELL = re.compile(r"#![^\n]*(?:ba|z|da|k)?sh\b")


def recognises(text: str) -> bool:
    """Return whether a text has Python's imports and parses as Python."""
    if _SHELL.match(text) or not _IMPORTS.search(text):
        return False
    from envcheck.training_config.readers import _python_calls

    return _python_calls.parsed(text) is not None


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return what calls with literal arguments state; nothing is run, and computed values are Unknown.

    Raises:
        InputError: the file calls nothing that configures a training.
    """
    from envcheck.training_config.readers import _python_calls

    return _python_calls.documents(text, file)


READER = ConfigReader("a Python file", -1, recognises, read, reads_programs=True)
