"""requirements.txt as pip reads it: pins, hashes, files named with `-r` and `-c`, options for indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Known, Reading, Unknown
from envcheck.dependency_files import (
    DependencyFormat,
    DependencyList,
    ListedPackage,
    ReadingContext,
    requirement,
)

_DEEPEST = 20
_INCLUDE = re.compile(
    r"(?:-r|--requirement|(?P<limit>-c|--constraint))(?:\s*=\s*|\s+|(?<=^-[rc]))(?P<file>\S.*)"
)
_OTHER_INDEX = re.compile(r"(?:--index-url|--extra-index-url|--find-links|-i|-f)\b")
_LABEL = re.compile(r"/whl/(cu\d{3}|cpu)/?\s*$")
"""How PyTorch's own indexes, and mirrors of them, say which builds they hold."""


def read(text: str, where: str, asked: ReadingContext) -> tuple[DependencyList, ...]:
    """The one sheet of a requirements file; whole if every line has a hash, for pip then wants them all.

    Raises:
        InputError: with file, line and column.
    """
    reader = RequirementsReader(asked)
    reader.file(text, where, (), limit=False)
    return (reader.sheet(where),)


class RequirementsReader:
    """Gathers what requirement files and `pip install` commands ask for, one after the other."""

    def __init__(self, asked: ReadingContext) -> None:
        """Begin with nothing."""
        self.asked = asked
        self.lines: dict[str, ListedPackage] = {}
        self.limits: dict[str, ListedPackage] = {}
        self.remarks: list[str] = []
        self.elsewhere = ""  # the place of an option that names another index
        self.label = ""  # of the builds on the only index there is: cu118, cpu
        self.hashed = True

    def file(self, text: str, where: str, above: tuple[str, ...], *, limit: bool) -> None:
        """Read a file and those it names. Raises InputError."""
        for number, column, line in entries(text, where):
            self.line(line, f"{where}:{number}:{column}", (*above, where), limit=limit)

    def line(self, line: str, place: str, chain: tuple[str, ...], *, limit: bool = False) -> None:
        """Take one line of the last file of `chain`, which the others led to. Raises InputError."""
        if included := _INCLUDE.fullmatch(line):
            self.included(included["file"].strip(), place, chain, limit=limit or bool(included["limit"]))
        else:
            self.one(line, place, limit=limit)

    def one(self, line: str, place: str, *, limit: bool = False, upgrade: bool = False) -> None:
        """Take one requirement, or one option of a file. Raises InputError."""
        if line.startswith("-"):
            if _OTHER_INDEX.match(line):
                self.index(line, place)
            elif re.match(r"(?:-e|--editable)\b", line):
                self.remarks.append(f"{place}: a checkout, whose package and version are not told here")
            return
        try:
            found = requirement.read(line, place, self.asked)
        except ValueError as error:
            raise InputError(place, str(error)) from None
        if found is None:
            if "://" in line or "/" in line:
                self.remarks.append(f"{place}: a path or an address, whose package is not told here")
            return
        if limit:
            self.limits[found.name] = found
            return
        self.hashed = self.hashed and "--hash" in line
        before = self.lines.get(found.name)
        if found.version or before is None or upgrade:
            self.lines[found.name] = found

    def index(self, option: str, place: str) -> None:
        """Take an option that names an index, as `--index-url ADDRESS` or `-i=ADDRESS`."""
        self.elsewhere = self.elsewhere or place
        label = _LABEL.search(option)
        self.label = label[1] if label and re.match(r"(?:--index-url|-i)\b", option) else self.label

    def included(self, file: str, place: str, chain: tuple[str, ...], *, limit: bool) -> None:
        """Read a file that a line names. Raises InputError."""
        if "://" in file:
            self.remarks.append(f"{place}: a file at an address is not fetched")
            return
        try:
            full, text = self.asked.text_of(file, chain[-1])
        except InputError as error:
            raise InputError(place, f"{file[:80]}: {error.problem}") from None
        if full in chain:
            raise InputError(place, f"{file[:80]} names this file again")
        if len(chain) > _DEEPEST:
            raise InputError(place, f"files name each other more than {_DEEPEST} deep")
        self.file(text, full, chain, limit=limit)

    def sheet(self, name: str, facts: tuple[Fact, ...] = ()) -> DependencyList:
        """All that was gathered; a constraint pins what a line leaves open."""
        lines = [
            limit if not line.version and (limit := self.limits.get(line.name)) else line
            for line in self.lines.values()
        ]
        return DependencyList(
            name,
            tuple(lines),
            (*facts, *self._build(lines, facts)),
            whole=bool(lines) and self.hashed,
            remarks=tuple(self.remarks),
        )

    def _build(self, lines: list[ListedPackage], facts: tuple[Fact, ...]) -> Iterator[Fact]:
        """Another index may hold a torch for another CUDA under the same version."""
        plain = any(line.name == "torch" and line.version and "+" not in line.version for line in lines)
        said = any(fact.key == "build.torch.cuda" for fact in facts)
        if not plain or not self.elsewhere or said or self.hashed:
            return
        reading: Reading = Unknown("another index may hold another build of the same release")
        if self.label:
            reading = Absent() if self.label == "cpu" else Known(f"{self.label[2:-1]}.{self.label[-1]}")
        yield Fact("build.torch.cuda", reading, self.elsewhere)


def entries(text: str, where: str) -> Iterator[tuple[int, int, str]]:
    """Each entry with line and column of its beginning; comments gone, continued lines joined.

    Raises:
        InputError: the file ends in the middle of an entry.
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
            yield start, column, line
    if joined.strip():
        raise InputError(f"{where}:{start}:{column}", "the file ends in the middle of an entry")


def _recognises(name: str) -> bool:
    return name.endswith((".txt", ".in", ".lock")) and not name.endswith(("uv.lock", "poetry.lock"))


LISTING = DependencyFormat("requirements.txt", _recognises, read)
