"""Readers turn a text into documents: settings with places. Each module that defines `READER` is a plug-in.

A reader reads text and never runs it. It must not know what a name means. Modules with a leading underscore
are helpers of one reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.plugins import plugins
from envcheck.training_config.document import Document


class ConfigReader(NamedTuple):
    """One form of text. `read` gets the text and the file name that places get.

    `read` raises nothing but InputError, with `file:line:column` where there is one. Of the readers that
    recognise a text, the one with the lowest `order` reads it.
    """

    name: str
    order: int
    recognises: Callable[[str], bool]
    read: Callable[[str, str], tuple[Document, ...]]


def every_reader() -> tuple[ConfigReader, ...]:
    """Return all readers of this folder, in the order in which they are tried."""
    return tuple(sorted(plugins(__name__, __path__, "READER", ConfigReader), key=lambda reader: reader.order))


_PROGRAMS = (".py", ".pyc", ".ipynb")
_INSTEAD_OF_PROGRAM = (
    "a Python program, which is not run to see what it sets; give instead what it is started with: "
    "the launch script, the trainer's YAML or JSON, DeepSpeed's JSON, or the settings themselves, "
    "such as --train 'zero_stage=3 bf16=true'"
)
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return the documents of a text, read by the first reader that recognises it.

    Raises:
        InputError: the text is empty or binary, no reader recognises it, or it is malformed.
    """
    if not text.strip():
        raise InputError(file, "an empty file")
    if _BINARY.search(text):
        raise InputError(file, "a binary file, not a configuration")
    if file.endswith(_PROGRAMS):
        raise InputError(file, _INSTEAD_OF_PROGRAM)
    readers = every_reader()
    for reader in readers:
        if reader.recognises(text):
            return reader.read(text, file)
    kinds = ", ".join(reader.name for reader in readers)
    raise InputError(file, f"not recognised as a training configuration ({kinds})")
