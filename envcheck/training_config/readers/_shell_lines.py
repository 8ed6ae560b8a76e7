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
    return tuple(_moved(document, file, numbers) for document in found)


def _moved(document: Document, file: str, numbers: Sequence[int]) -> Document:
    """Return the document with its places in the text changed to those in the file; others stay."""

    def moved(place: Place) -> Place:
        return _placed(place, numbers) if place.file == file else place

    settings = tuple(
        setting._replace(name_place=moved(setting.name_place), place=moved(setting.place))
        for setting in document.settings
    )
    diagnostics = tuple(
        each._replace(places=tuple(moved(place) for place in each.places)) for each in document.diagnostics
    )
    return document._replace(settings=settings, diagnostics=diagnostics)


def _placed(place: Place, numbers: Sequence[int]) -> Place:
    return place._replace(line=numbers[place.line - 1]) if 0 < place.line <= len(numbers) else place
