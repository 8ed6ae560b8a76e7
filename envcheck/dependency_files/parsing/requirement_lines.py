"""Read the entries of a requirements file as pip sees them; included files (`-r`, `-c`) are read in place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.dependency_files import TextOf

_DEEPEST_INCLUDE = 20
_INCLUDE = re.compile(
    r"(?:-r|--requirement|(?P<constraint>-c|--constraint))(?:\s*=\s*|\s+|(?<=^-[rc]))(?P<file>\S.*)"
)


class Entry(NamedTuple):
    """One entry of a requirements file: a requirement or an option, and where it starts.

    `constraint` says that the entry was reached through `-c`: it restricts a version and installs nothing.
    """

    text: str
    file: str
    line: int
    column: int
    constraint: bool = False

    @property
    def place(self) -> str:
        """`file:line:column` of the first character."""
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def includes_address(self) -> bool:
        """Return whether the entry includes a file at an address, which is never fetched."""
        included = _INCLUDE.fullmatch(self.text)
        return included is not None and "://" in included["file"]


def expanded_entries(
    text: str, file: str, text_of: TextOf, *, included_by: tuple[str, ...] = (), constraint: bool = False
) -> Iterator[Entry]:
    """Yield the entries of a file, and in place of each include those of the included file.

    `included_by` are the files that led to this one, outermost first.

    Raises:
        InputError: an included file cannot be read, the files include each other, or a file ends within an
            entry.
    """
    for entry in entries(text, file, constraint=constraint):
        yield from expand(entry, text_of, (*included_by, file))


def expand(entry: Entry, text_of: TextOf, files: tuple[str, ...]) -> Iterator[Entry]:
    """Yield the entry itself, or the entries of the file that it includes; `files` led to the entry.

    An include of an address is yielded unchanged: the caller rejects or reports it.

    Raises:
        InputError: as `expanded_entries` raises it.
    """
    included = _INCLUDE.fullmatch(entry.text)
    if included is None or entry.includes_address:
        yield entry
        return
    name = included["file"].strip()
    try:
        full_name, text = text_of(name, files[-1])
    except InputError as error:
        raise InputError(entry.place, f"{name[:80]}: {error.problem}") from None
    if full_name in files:
        raise InputError(entry.place, f"{name[:80]} names this file again")
    if len(files) > _DEEPEST_INCLUDE:
        raise InputError(entry.place, f"files include each other more than {_DEEPEST_INCLUDE} deep")
    constraint = entry.constraint or bool(included["constraint"])
    yield from expanded_entries(text, full_name, text_of, included_by=files, constraint=constraint)


def entries(text: str, file: str, *, constraint: bool = False) -> Iterator[Entry]:
    """Yield each entry of one file, without comments and with continued lines joined.

    Raises:
        InputError: the file ends within an entry.
    """
    joined, start, column = "", 0, 0
    for number, raw in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        line = re.sub(r"(?:^|\s)#.*$", "", raw).rstrip()
        if not joined:
            start, column = number, len(line) - len(line.lstrip()) + 1
        if line.endswith("\\"):
            joined += f"{line[:-1].strip()} "
            continue
        line, joined = f"{joined}{line.strip()}".strip(), ""
        if line:
            yield Entry(line, file, start, column, constraint)
    if joined.strip():
        raise InputError(f"{file}:{start}:{column}", "the file ends within an entry")
