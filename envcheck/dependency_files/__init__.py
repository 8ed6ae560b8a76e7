"""What a file says shall be installed. A module here that defines `LISTING` reads one kind of file.

A listing is read as text: nothing is installed and no index is asked. What a file leaves open (a name
without a version) stays open; what was installed in an image before its Dockerfile begins is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Known, Unknown, package_key
from envcheck.core.plugins import plugins


class ListedPackage(NamedTuple):
    """One package that a file names: its version, or empty and why none is known; `file:line:column`."""

    name: str
    version: str
    place: str
    why: str = ""


class DependencyList(NamedTuple):
    """What one file, or one stage of a Dockerfile, says: packages, and facts of Python and builds.

    `whole` says that it lists all that will be there, dependencies too. `remarks` are what was not read,
    each with its place.
    """

    name: str
    lines: tuple[ListedPackage, ...]
    facts: tuple[Fact, ...] = ()
    whole: bool = False
    remarks: tuple[str, ...] = ()


class ReadingContext(NamedTuple):
    """What a reader may need besides the text: other files, the tables, and where it will run.

    `text_of` gives a file's full name and its text, by its name and the file that names it; it raises
    InputError. `python` is `3.11`, or empty where nobody said.
    """

    text_of: Callable[[str, str], tuple[str, str]]
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    python: str = ""
    arch: str = "x86_64"


class DependencyFormat(NamedTuple):
    """One kind of file: whether a file's name is of it, and what it says."""

    kind: str
    recognises: Callable[[str], bool]
    read: Callable[[str, str, ReadingContext], tuple[DependencyList, ...]]


def every_format() -> tuple[DependencyFormat, ...]:
    """All kinds of this folder, by module name."""
    return plugins(__name__, __path__, "LISTING", DependencyFormat)


def read(text: str, where: str, asked: ReadingContext) -> tuple[DependencyList, ...]:
    """The sheets of a file, by its name.

    Raises:
        InputError: no kind of file has that name, or it has a mistake.
    """
    if "\0" in text or "\ufffd" in text:
        raise InputError(where, "not a text file in UTF-8")
    name = where.rpartition("/")[2]
    kinds = every_format()
    for kind in kinds:
        if kind.recognises(name):
            return kind.read(text, where, asked)
    known = ", ".join(kind.kind for kind in kinds)
    raise InputError(where, f"not recognised by its name as one of {known}")


def inventory(sheet: DependencyList) -> Inventory:
    """The facts of a sheet: what is not pinned was given by nobody, and is waited for."""
    facts = {fact.key: fact for fact in sheet.facts}
    for line in sheet.lines:
        key = package_key(line.name)
        if line.version:
            facts[key] = Fact(key, Known(line.version), line.place)
        else:
            facts[key] = Fact(key, Unknown(line.why or "no version is pinned", asked=False), line.place)
    return Inventory(facts, complete=frozenset({"pkg"} if sheet.whole else ()))
