"""Shell commands inside another file, read as a launch script; places refer to that file."""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core.errors import InputError, Place
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document
from envcheck.training_config.readers import Beside


class ShellLine(NamedTuple):
    """A line of shell text, and its line number in the file."""

    text: str
    line: int


def documents(
    lines: Sequence[ShellLine], file: str, beside: Beside | None, depth: int = 0
) -> tuple[Document, ...]:
    """Return the documents of each launch line that trains.

    `depth` counts the programs that started one another before.

    Raises:
        InputError: none of the lines starts a training, or they are not shell commands.
    """
    from envcheck.training_config.readers import _launch_documents

    text = "\n".join(line.text for line in lines) + "\n"
    numbers = [line.line for line in lines]
    try:
        found = _launch_documents.documents(text, file, beside, depth)
    except InputError as error:
        raise InputError(_placed(error.place, numbers), error.problem) from None
    return tuple(_moved(document, numbers) for document in found)


def _moved(document: Document, numbers: Sequence[int]) -> Document:
    """Return the document with its places changed to those in the file."""
    settings = tuple(
        setting._replace(
            name_place=_placed(setting.name_place, numbers), place=_placed(setting.place, numbers)
        )
        for setting in document.settings
    )
    diagnostics = tuple(
        each._replace(places=tuple(_placed(place, numbers) for place in each.places))
        for each in document.diagnostics
    )
    return document._replace(settings=settings, diagnostics=diagnostics)


def _placed(place: Place, numbers: Sequence[int]) -> Place:
    return place._replace(line=numbers[place.line - 1]) if 0 < place.line <= len(numbers) else place
