"""Readers turn a text into documents: settings with places. Each module that defines `READER` is a plug-in.

A reader reads text and never runs it. It must not know what a name means. Modules with a leading underscore
are helpers of one reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from envcheck.core.errors import InputError
from envcheck.core.patterns import pattern
from envcheck.core.plugins import plugins
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document

Beside: TypeAlias = Callable[[str], str | None]
"""Called with the name of another file; returns its text, or None if it cannot be read."""


class ConfigReader(NamedTuple):
    """One form of text. The arguments of `read` are the text, and the file name for places.

    `read` raises nothing but InputError, with `file:line:column` if known. Of the readers that recognise a
    text, the one with the lowest `order` reads it. A reader that also needs other files has `read_with`,
    whose third argument returns their texts. `reads_programs` marks a reader of programs (`.py`, `.ipynb`),
    which are not offered to any other reader.
    """

    name: str
    order: int
    recognises: Callable[[str], bool]
    read: Callable[[str, str], tuple[Document, ...]]
    read_with: Callable[[str, str, Beside], tuple[Document, ...]] | None = None
    reads_programs: bool = False


def every_reader() -> tuple[ConfigReader, ...]:
    """Return all readers of this folder, in the order in which they are tried."""
    return tuple(sorted(plugins(__name__, __path__, "READER", ConfigReader), key=lambda reader: reader.order))


_PROGRAMS = (".py", ".pyc", ".ipynb")
INSTEAD_OF_PROGRAM = (
    "a Python program, which is not run to see what it sets, and no call in it has literal arguments that "
    "configure a training; give instead what it is started with: "
    "the launch script, the trainer's YAML or JSON, DeepSpeed's JSON, or the settings themselves, "
    "such as --train 'zero_stage=3 bf16=true'"
)
_BRACE = pattern(r"(?:\s|#[^\n]*\n)*\{")
_YAML = (".yaml", ".yml")
_SHELL = (".sh", ".bash", ".slurm", ".sbatch")
_OPTIONS = pattern(r"(?:\s|#[^\n]*\n)*(?:-|[\w.-]+=\S*\s*\Z)")
_BINARY = pattern(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of a text, read by the first reader that recognises it.

    `beside` reads other files that the text names.

    Raises:
        InputError: the text is empty or binary, no reader recognises it, or it is malformed.
    """
    if not text.strip():
        raise InputError(file, "an empty file")
    if _BINARY.search(text):
        raise InputError(file, "a binary file, not a configuration")
    readers = _readers_of(text, file)
    if file.endswith(".toml"):
        return next(reader for reader in readers if reader.name == "TOML").read(text, file)
    for reader in readers:
        if reader.recognises(text):
            if file.endswith(_PROGRAMS) and not reader.reads_programs:
                break
            if reader.read_with is not None and beside is not None:
                return reader.read_with(text, file, beside)
            return reader.read(text, file)
    if file.endswith(_PROGRAMS):
        raise InputError(file, INSTEAD_OF_PROGRAM)
    kinds = ", ".join(reader.name for reader in readers)
    raise InputError(file, f"not recognised as a training configuration ({kinds})")


def _readers_of(text: str, file: str) -> tuple[ConfigReader, ...]:
    """Return the readers that are offered a text, by the end of its file's name."""
    if file.endswith(_SHELL) and not _OPTIONS.match(text):  # also one that only starts another
        from envcheck.training_config.readers import launch  # the others need not be imported

        return (launch.READER._replace(recognises=lambda _: True),)
    readers = every_reader()
    if file.endswith(_YAML) and _BRACE.match(text):  # YAML in braces, which need not be JSON
        return tuple(reader for reader in readers if reader.name == "YAML")
    return readers
