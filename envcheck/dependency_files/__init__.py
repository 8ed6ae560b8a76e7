"""Dependency files list what is to be installed; each module here that defines `LISTING` reads one format.

`parsing/` contains what several formats share. A file is read as text: nothing is installed and no index is
read. A version that a file leaves open stays unknown, and so does what the base image of a Dockerfile
contains, except for what its tag says.

May import core. It must not judge what it reads or know which command needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Known, Unknown, package_key
from envcheck.core.plugins import plugins

TextOf = Callable[[str, str], tuple[str, str]]
"""Called with a file's name and the full name of the file that refers to it (or "").

Returns the file's full name and its text. Raises InputError if there is no such file.
"""


ANY_RELEASE = ">=0"
"""The range of a requirement that gives only a name."""


class ListedPackage(NamedTuple):
    """One package that a file names, with its place as `file:line:column`.

    If no version is known, `version` is empty, `why` gives the reason, and `specifier` the range, if any.
    """

    name: str
    version: str
    place: str
    why: str = ""
    specifier: str = ""

    @property
    def requirement(self) -> str:
        """Return the requirement as its line spells it: `torch==2.6.0`, `torch>=2.4`, `torch`."""
        if self.version:
            return f"{self.name}=={self.version}"
        return self.name if self.specifier == ANY_RELEASE else f"{self.name}{self.specifier}"


class DependencyList(NamedTuple):
    """Content of one file, or of one stage of a Dockerfile: packages, and facts on Python and builds.

    `whole` means that the list has everything that will be installed, dependencies included. `remarks` say
    what was not read, each with its place. `fresh` means that nothing is installed yet, so an installer
    chooses the versions that are left open. `overridden` names packages for which the file overrides what
    other packages require. `pythons` are those that a lock has these versions for, if it tells.
    """

    name: str
    lines: tuple[ListedPackage, ...]
    facts: tuple[Fact, ...] = ()
    whole: bool = False
    remarks: tuple[str, ...] = ()
    fresh: bool = False
    overridden: frozenset[str] = frozenset()
    pythons: tuple[str, ...] = ()


NEEDS_PYTHON = "its marker depends on the Python version, which is not given"
"""Why a package is not judged if only the Python version decides whether it is installed."""


class ReadingContext(NamedTuple):
    """What a format may need besides the text: other files, the tables, and where it will be installed.

    `tables` are the knowledge tables by name, such as `image`. `python` is a minor version (`3.11`), or empty
    if it is not known.
    """

    text_of: TextOf
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    python: str = ""
    arch: str = "x86_64"


class DependencyFormat(NamedTuple):
    """One format: its name, whether it recognises a file by the file's name, and how it reads the text.

    `usual` is the narrower pattern of names by which such a file is found in a folder, in upper or lower
    case; without it, `recognises` decides. `recognises_text` recognises files by their text, whatever their
    names.
    """

    kind: str
    recognises: Callable[[str], bool]
    read: Callable[[str, str, ReadingContext], tuple[DependencyList, ...]]
    usual: str = ""
    recognises_text: Callable[[str], bool] | None = None

    def is_usual(self, name: str) -> bool:
        """Return whether a file in a folder is taken for one of this format, by its name."""
        usual = re.fullmatch(self.usual, name, re.IGNORECASE) if self.usual else True
        return bool(usual) and self.recognises(name)


def every_format() -> tuple[DependencyFormat, ...]:
    """Return all formats of this package, ordered by module name."""
    return plugins(__name__, __path__, "LISTING", DependencyFormat)


def read(text: str, where: str, context: ReadingContext, file_name: str = "") -> tuple[DependencyList, ...]:
    """Return the dependency lists of a file, in the format that recognises its text or its name.

    `file_name` stands for the name of what has none of its own, such as standard input.

    If markers depend on the Python version and none is given, there is a list for each set of packages that
    some Python installs.

    Raises:
        InputError: no format recognises it, or the file has a mistake.
    """
    if "\0" in text or "\ufffd" in text:
        raise InputError(where, "not a text file in UTF-8")
    name = file_name or where.rpartition("/")[2]
    formats = every_format()
    by_text = [each for each in formats if each.recognises_text and each.recognises_text(text)]
    for candidate in (*by_text, *formats):
        if candidate in by_text or candidate.recognises(name):
            lists = candidate.read(text, where, context)
            if not any(line.why == NEEDS_PYTHON for each in lists for line in each.lines):
                return lists
            from envcheck.dependency_files.parsing.by_python import read_for_each_python

            return read_for_each_python(candidate, text, where, context)
    known = ", ".join(candidate.kind for candidate in formats)
    raise InputError(where, f"not recognised by its name as one of {known}")


def inventory(dependencies: DependencyList) -> Inventory:
    """Return the facts of a dependency list.

    The version of a package that is not pinned is Unknown and counts as not given, so rules on it
    stay undecided.
    """
    facts = {fact.key: fact for fact in dependencies.facts}
    for package in dependencies.lines:
        key = package_key(package.name)
        if package.version:
            facts[key] = Fact(key, Known(package.version), package.place)
        else:
            unknown = Unknown(package.why or "no version is pinned", asked=False)
            facts[key] = Fact(key, unknown, package.place)
    return Inventory(facts, complete=frozenset({"pkg"} if dependencies.whole else ()))
