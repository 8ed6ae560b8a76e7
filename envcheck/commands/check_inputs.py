"""What the arguments of `check` name: files, folders with dependency files, pipes, and requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck import dependency_files
from envcheck.core.decoding import decode_text
from envcheck.core.errors import InputError
from envcheck.host.files import (
    STDIN,
    argument_name,
    is_file,
    is_folder,
    is_pipe,
    list_folder,
    path_exists,
    read_argument,
)

_USUAL_LIST = "requirements.txt"
"""The format of what has no name of its own: standard input, pipes, and requirements as arguments."""

_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?\s*(?:[=!~<>]=|[<>])\s*[\d.*].*")

_LISTING = re.compile(r"Package {1,200}Version\b")

ARGUMENTS = "arguments"
"""What reports call the list of the requirements that are arguments."""


class ListText(NamedTuple):
    """Hold a dependency file: what reports call it, its text, and a name of its format if that is none."""

    where: str
    text: str
    file_name: str = ""


def read_inputs(arguments: Sequence[str]) -> Iterator[ListText]:
    """Yield the text of every dependency file that the arguments name; requirements are one list, the last.

    Raises:
        InputError: a file cannot be read, or a folder has no dependency file.
    """
    requirements = []
    for argument in dict.fromkeys(arguments):
        path = Path(argument)
        if argument != STDIN and not path_exists(path) and _REQUIREMENT.fullmatch(argument):
            requirements.append(argument)
        elif is_folder(argument):
            yield from (ListText(file, _text(file)) for file in _files_of(argument))
        else:
            unnamed = argument == STDIN or is_pipe(path)
            yield ListText(argument_name(argument), _text(argument), _USUAL_LIST if unnamed else "")
    if requirements:
        yield ListText(ARGUMENTS, "\n".join(requirements), _USUAL_LIST)


def _text(argument: str) -> str:
    text = decode_text(read_argument(argument))
    if _LISTING.match(text):
        why = "what pip list prints is no dependency file: envcheck doctor --facts judges it"
        raise InputError(argument_name(argument), why)
    return text


def _files_of(folder: str) -> list[str]:
    """Return the files in a folder that have the usual name of a dependency file, ordered by name.

    Raises:
        InputError: there is none, or the folder cannot be listed.
    """
    formats = dependency_files.every_format()
    names = (name for name in sorted(list_folder(Path(folder))) if is_file(Path(folder) / name))
    found = [str(Path(folder) / name) for name in names if any(each.is_usual(name) for each in formats)]
    if not found:
        kinds = ", ".join(each.kind for each in formats)
        raise InputError(folder, f"a folder with no file that has the name of one of {kinds}")
    return found
