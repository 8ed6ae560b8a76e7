"""Readers turn a text into documents: settings with their places. A module here that defines `READER` is one.

Readers read text, never run it, and know nothing of what a name means.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from envcheck.core.errors import InputError, Place
from envcheck.core.findings import Diagnostic
from envcheck.core.plugins import plugins
from envcheck.training_config.document import Document


class ConfigReader(NamedTuple):
    """One form of text. `read` gets the text and the name to report places under.

    It raises InputError, with `file:line:column` where there is one, and nothing else. Of the readers that
    recognise a text the one with the least `order` reads it.
    """

    name: str
    order: int
    recognises: Callable[[str], bool]
    read: Callable[[str, str], tuple[Document, ...]]


def every_reader() -> tuple[ConfigReader, ...]:
    """All readers of this folder, in the order in which they are asked."""
    return tuple(sorted(plugins(__name__, __path__, "READER", ConfigReader), key=lambda reader: reader.order))


_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read(text: str, file: str) -> tuple[Document, ...]:
    """What a text says, by the first reader that recognises it.

    Raises:
        InputError: it is empty or no text, no reader recognises it, or the one that does found it malformed.
    """
    if not text.strip():
        raise InputError(file, "an empty file")
    if _BINARY.search(text):
        raise InputError(file, "a binary file, not a configuration")
    readers = every_reader()
    for reader in readers:
        if reader.recognises(text):
            return reader.read(text, file)
    kinds = ", ".join(reader.name for reader in readers)
    raise InputError(file, f"not recognised as a training configuration ({kinds})")


# --- places -----------------------------------------------------------------------------------------


class Lines:
    """Where the lines of a text begin, so that an offset becomes a place."""

    def __init__(self, text: str, file: str) -> None:
        """Take the text and the name of its file."""
        self.text, self.file = text, file
        self.starts = [0]
        at = text.find("\n")
        while at >= 0:
            self.starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, start: int, end: int) -> Place:
        """The place of `text[start:end]`, as far as it stands on its first line."""
        line = bisect_right(self.starts, start)
        begin = self.starts[line - 1]
        ends = self.starts[line] - 1 if line < len(self.starts) else len(self.text)
        return Place(self.file, line, start - begin + 1, max(1, min(end, ends) - start))


_WIDEST = 200  # characters of a line that are shown
_BEFORE = 40  # of them before the place, where the line is longer


def quoted(remarks: Iterable[Diagnostic], texts: dict[str, str]) -> list[Diagnostic]:
    """The remarks with the source line of each place; `texts` by the file names that places have."""
    lines = {file: text.split("\n") for file, text in texts.items()}

    def with_line(place: Place) -> Place:
        if not 0 < place.line <= len(lines.get(place.file, ())):
            return place
        line = lines[place.file][place.line - 1].rstrip("\r")
        cut = max(0, place.column - 1 - _BEFORE) if len(line) > _WIDEST else 0
        return place._replace(excerpt=line[cut : cut + _WIDEST], cut=cut)

    return [remark._replace(places=tuple(map(with_line, remark.places))) for remark in remarks]
