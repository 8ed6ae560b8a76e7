"""The training configurations a user names: read with the files they name themselves, understood, merged.

What cannot be read is a remark with its place, and the rest is still judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Fact, Known, Unknown
from envcheck.core.findings import UNREADABLE, Diagnostic
from envcheck.core.rules import Severity
from envcheck.host import machine as host
from envcheck.training_config import dialects, merge, readers, source_lines
from envcheck.training_config.dialects import Dialect
from envcheck.training_config.document import Document, Reference
from envcheck.training_config.interpret import Interpretation, understood

_LARGEST = 1 << 20  # bytes of a configuration; the largest seen in the wild is a tenth
_LONGEST = 200  # characters of a file's name that a message quotes
_DEEPEST = 8  # files that name files
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Configured(NamedTuple):
    """What all configurations say together, and what is wrong with them, worst first."""

    facts: tuple[Fact, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()


def configured(
    named: Sequence[str], shared: Iterable[Mapping[str, Any]], installed: Mapping[str, str]
) -> Configured:
    """The facts of files, and of arguments given in place of a file.

    `shared` are the rows that all dialects share, `installed` the versions that are known.

    Raises:
        InputError: not one of them could be read.
    """
    if not named:
        return Configured()
    known = dialects.load(_trees(), shared)
    reading = _FileReader(known, installed)
    for each in named:
        reading.take(each)
    if not reading.parts:
        unreadable = next(remark for remark in reading.remarks if remark.code == UNREADABLE)
        raise InputError(unreadable.places[0], unreadable.text)
    facts, remarks = merge.merged(reading.parts)
    found = [*reading.remarks, *(remark for part in reading.parts for remark in part.diagnostics), *remarks]
    ordered = sorted(
        source_lines.with_excerpts(found, reading.texts), key=lambda remark: -remark.severity.rank
    )
    return Configured((*reading.unread, *facts), tuple(ordered))


def _trees() -> dict[str, Any]:
    """compat/dialects by name: compiled in a wheel, TOML in a checkout."""
    if compiled := host.shipped_text("dialects.json"):
        import json

        trees: dict[str, Any] = json.loads(compiled)
        return trees
    import tomllib

    texts = host.source_texts("compat/dialects", ".toml")
    return {Path(name).stem: tomllib.loads(text) for name, text in texts.items()}


class _FileReader:
    """The files read so far, in the order in which they count."""

    def __init__(self, known: Mapping[str, Dialect], installed: Mapping[str, str]) -> None:
        self.known, self.installed = known, installed
        self.parts: list[Interpretation] = []
        self.remarks: list[Diagnostic] = []
        self.unread: list[Fact] = []
        self.texts: dict[str, str] = {}
        self.read: set[tuple[str, int]] = set()
        self.reading: list[str] = []  # the chain of files that name one another
        self.inline = 0

    def take(self, named: str) -> None:
        """Read what the user named."""
        try:
            if _stands_for_itself(named):
                self.inline += 1
                number = "" if self.inline == 1 else f" ({self.inline})"
                self._text(named, f"--train{number}", Path())
            else:
                self._file(Path(named), named)
        except InputError as error:
            self.remarks.append(Diagnostic(Severity.ERROR, UNREADABLE, error.problem, (error.place,)))

    def _file(self, path: Path, name: str, dialect: str = "", launch: int = 0) -> None:
        resolved = host.followed(path)
        if resolved in self.reading:
            raise InputError(name, "names itself, by way of the files that it names")
        if (resolved, launch) in self.read:
            return
        if len(self.reading) > _DEEPEST:
            raise InputError(name, f"more than {_DEEPEST} files that name one another")
        self.read.add((resolved, launch))
        data = host.read_file(path, _LARGEST)
        if data.startswith(_UTF_16):
            raise InputError(name, "UTF-16: save it as UTF-8")
        self.reading.append(resolved)
        try:
            self._text(data.decode("utf-8", "replace"), name, path.parent, dialect, launch)
        finally:
            self.reading.pop()
        self.remarks += _not_utf_8(data, name)

    def _text(self, text: str, name: str, folder: Path, dialect: str = "", launch: int = 0) -> None:
        self.texts[name] = text
        taken: list[Interpretation] = []
        for document in readers.read(text, name):
            placed = document._replace(launch=document.launch or launch)
            if dialect and document.form in self.known[dialect].forms:
                placed = placed._replace(dialect=dialect)
            parts = understood(placed, self.known, self.installed)
            for part in parts:
                for reference in part.references:
                    self._refer(reference, part.document, folder)
            taken += parts
        if not dialect and not any(part.facts or part.references or part.diagnostics for part in taken):
            raise InputError(name, "says nothing of training that envcheck knows")
        self.parts += taken

    def _refer(self, reference: Reference, document: Document, folder: Path) -> None:
        """Read the file that a setting names, beside the file that names it or where we are."""
        if reference.unknown:
            self._leave_open(reference, reference.unknown)
            return
        inside = self.known[reference.dialect].inside
        path = folder / reference.path / inside
        path = path if host.is_file(path) else Path(reference.path) / inside
        if inside and not host.is_file(path):
            return  # a name of the Hub
        if not host.exists(path):
            name = reference.path if len(reference.path) <= _LONGEST else f"{reference.path[:_LONGEST]}…"
            self._leave_open(reference, f"{name}, which {document.file} names, is not here")
            text = f"{name} is not here: what it says is not known"
            self.remarks.append(Diagnostic(Severity.WARNING, "not-here", text, (reference.place,)))
            return
        try:
            self._file(path, str(path), reference.dialect, reference.launch)
        except InputError as error:
            self._leave_open(reference, f"{reference.path} cannot be read")
            places = (error.place, reference.place)
            self.remarks.append(Diagnostic(Severity.ERROR, UNREADABLE, error.problem, places))

    def _leave_open(self, reference: Reference, why: str) -> None:
        dialect = self.known[reference.dialect]
        source = f"{reference.place.file}:{reference.place.line}"
        self.unread += [
            Fact(each.key, Known(each.value), source)
            for each in dialect.implied
            if not each.when and each.value is not None
        ]
        self.unread += [Fact(key, Unknown(why), source) for key in dialect.unread]


def _not_utf_8(data: bytes, name: str) -> list[Diagnostic]:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = Place(name, before.count("\n") + 1, len(before) - before.rfind("\n"))
        text = "not UTF-8 from here on: a program that reads it as UTF-8 stops there"
        return [Diagnostic(Severity.WARNING, "not-utf-8", text, (place,), "save it as UTF-8")]
    return []


def _stands_for_itself(named: str) -> bool:
    """Whether arguments, or a configuration, are given in place of a file's name."""
    if host.exists(Path(named)):
        return False
    return named.lstrip().startswith(("-", "{")) or "=" in named or " -" in named
