"""Dialects, which say what the names of a configuration mean: rows of data, one file of compat/dialects each.

A document is of the dialect whose marks it bears. Pure.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import Value
from envcheck.training_config.document import Document, Said, Scalar, Section
from envcheck.training_config.values import FALSE, TRUE, as_number, either, same, shown, spelled

_NOTHING: Mapping[str, Any] = {}


class DialectRow(NamedTuple):
    """What some names of one section mean. compat/dialects/README.md says what each field is."""

    names: Sequence[str]
    under: str = ""
    kind: str = "any"
    words: Sequence[Scalar] = ()
    least: float | None = None
    most: float | None = None
    null: bool = False
    default: Scalar = None
    versions: str = ""
    renamed: str = ""
    instead: str = ""
    key: str = ""
    value: Value | None = None
    values: Mapping[str, Value] = _NOTHING
    when: str = "true"
    otherwise: Value | None = None
    refers: str = ""
    argument: str = ""
    trainers: Sequence[str] = ()
    source: str = ""
    package: str = ""  # whose releases `versions` are


class Implied(NamedTuple):
    """A fact that follows from several settings; without a value it is Absent."""

    key: str
    when: Mapping[str, Any]
    value: Value | None = None
    versions: str = ""
    package: str = ""


class Contradiction(NamedTuple):
    """Settings that do not go together, whatever the environment."""

    code: str
    severity: str
    when: Mapping[str, Any]
    text: str
    advice: str = ""
    versions: str = ""
    source: str = ""
    package: str = ""


class Dialect(NamedTuple):
    """One way of naming settings. `rows` are by the dotted name they are about, `*` for a place in a list."""

    name: str
    title: str
    trainer: str
    package: str
    forms: Sequence[str]
    marks: Sequence[str]
    programs: Sequence[str]
    unknown: Mapping[str, str]  # section → ignored, refused
    twice: str  # refused, or empty: the later one counts
    strict: str  # who refuses what is no plain JSON, as the end of a sentence
    fills: bool  # whether its trainer fills in what a DeepSpeed configuration leaves "auto"
    auto: Sequence[str]  # names that such a trainer fills in
    sources: Mapping[str, str]
    unread: Sequence[str]  # facts that nobody knows while such a configuration cannot be read
    enough: int  # of its marks that it takes to recognise one
    spelled: bool  # whether its program reads numbers that are written as texts, such as YAML's 1e-4
    inside: str  # the file's name, where what is named is its folder, or nothing that is here
    lineage: Sequence[str]  # its own name and those of the dialects it extends
    rows: Mapping[str, Sequence[DialectRow]]
    implied: Sequence[Implied]
    contradictions: Sequence[Contradiction]
    filled: Sequence[Mapping[str, Any]]
    excluded: Sequence[Mapping[str, Any]]


# --- loading ----------------------------------------------------------------------------------------


def load(
    trees: Mapping[str, Mapping[str, Any]], shared: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Dialect]:
    """The dialects of parsed files by name; `shared` rows speak last in every dialect that says so.

    Raises:
        ValueError: a file has a field or extends a dialect that does not exist.
    """
    common = [_row(row) for row in shared]
    return {name: _dialect(name, trees, common) for name in sorted(trees)}


def _dialect(name: str, trees: Mapping[str, Mapping[str, Any]], common: Sequence[DialectRow]) -> Dialect:
    tree = trees[name]
    lineage = [name]
    for each in lineage:  # grows while it is walked
        if each not in trees:
            raise ValueError(f"dialect {name} extends {each}, which is not there")
        lineage += [parent for parent in trees[each].get("extends", ()) if parent not in lineage]
    rows: dict[str, list[DialectRow]] = {}
    said = [_row(row) for row in _stated("setting", lineage, trees)]
    for row in (*said, *(common if tree.get("shared", True) else ())):
        for leaf in row.names:
            rows.setdefault(f"{row.under}.{leaf}" if row.under else leaf, []).append(row)
    inherited: list[Mapping[str, Any]] = [trees[each] for each in lineage]
    return Dialect(
        name=name,
        title=tree["title"],
        trainer=tree.get("trainer", ""),
        package=tree.get("package", ""),
        forms=tree.get("forms", ("json", "yaml", "arguments")),
        marks=tree.get("marks", ()),
        programs=tree.get("programs", ()),
        unknown=tree.get("unknown", _NOTHING),
        twice=tree.get("twice", ""),
        strict=next((each["strict"] for each in inherited if "strict" in each), ""),
        fills=any(each.get("fills", False) for each in inherited),
        auto=tree.get("auto", ()),
        sources=tree.get("sources", _NOTHING),
        unread=tree.get("unread", ()),
        enough=tree.get("enough", 1),
        spelled=tree.get("spelled", False),
        inside=tree.get("inside", ""),
        lineage=lineage,
        rows=rows,
        implied=[_of(Implied, row) for row in _stated("implied", lineage, trees)],
        contradictions=[_of(Contradiction, row) for row in _stated("contradiction", lineage, trees)],
        filled=[row for each in inherited for row in each.get("filled", ())],
        excluded=[row for each in inherited for row in each.get("excluded", ())],
    )


def _stated(
    what: str, lineage: Sequence[str], trees: Mapping[str, Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The rows of a dialect and of those it extends; each speaks of releases of its own file's package."""
    for each in lineage:
        for row in trees[each].get(what, ()):
            yield {"package": trees[each].get("package", ""), **row}


def _row(row: Mapping[str, Any]) -> DialectRow:
    # `in` is the word for a section, and Python's own.
    named: DialectRow = _of(
        DialectRow, {("under" if field == "in" else field): value for field, value in row.items()}
    )
    return named


def _of(kind: Any, row: Mapping[str, Any]) -> Any:
    try:
        return kind(**row)
    except TypeError as error:
        raise ValueError(f"{dict(row)}: {error}") from None


# --- which dialect ----------------------------------------------------------------------------------

_A_PROGRAM = 100  # marks that a program's name counts for


def recognised(document: Document, dialects: Mapping[str, Dialect]) -> Dialect | None:
    """The dialect whose marks the document bears; of several that with most, the more special among equals.

    A dialect needs enough marks of its own; those of the dialects it extends count too. A command line that
    bears none is of the dialect `arguments`.
    """
    if document.dialect:
        return dialects[document.dialect]
    names = document.names()
    program = program_names(document)

    def own(dialect: Dialect) -> int:
        marks = sum(mark in names for mark in dialect.marks)
        return marks + _A_PROGRAM * sum(each in program for each in dialect.programs)

    def score(dialect: Dialect) -> tuple[int, int]:
        return sum(own(dialects[each]) for each in dialect.lineage), len(dialect.lineage)

    fitting = [each for each in dialects.values() if document.form in each.forms and own(each) >= each.enough]
    if not fitting:
        return dialects.get("arguments") if document.form == "arguments" else None
    return max(fitting, key=score)


def program_names(document: Document) -> set[str]:
    """The words before the arguments, and their parts: openrlhf of `python -m openrlhf.cli.train_sft`."""
    words = {word.rpartition("/")[2] for word in document.program}
    return words | {part for word in document.program for part in word.replace(".", "/").split("/")}


# --- values of a row --------------------------------------------------------------------------------

_KINDS = {
    "flag": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "positive": "a number",
    "word": "a text",
    "list": "a list",
    "section": "an object",
    "switch": "an object, true or false",
}


def misfit(row: DialectRow, value: Said, *, as_text: bool) -> str:
    """What is wrong with a value for a row, empty if nothing is; `as_text` where all is spelled out."""
    if row.words:
        fits = any(same(value, word) or (as_text and _spells(value, word)) for word in row.words)
        return "" if fits else f"expected {either(row.words)}, found {shown(value)}"
    if not _is(row.kind, value, as_text=as_text):
        return f"expected {_KINDS[row.kind]}, found {shown(value)}"
    number = as_number(value, as_text=as_text)
    bound = _out_of_bounds(row, number) if number is not None and row.kind in _NUMBERS else ""
    return f"expected {bound}, found {shown(value)}" if bound else ""


_NUMBERS = ("whole", "number", "positive")
CONVERTED = ("flag", *_NUMBERS)
"""Kinds that pydantic makes of a text, or of one another."""


def _spells(value: Said, word: Scalar) -> bool:
    return isinstance(value, str) and value.lower() == spelled(word)


def _out_of_bounds(row: DialectRow, number: float) -> str:
    # Written so that NaN, which compares with nothing, is out of every bound.
    if row.least is not None and not number >= row.least:
        return f"{row.least:g} or more"
    if row.most is not None and not number <= row.most:
        return f"{row.most:g} or less"
    return ""


def _is(kind: str, value: Said, *, as_text: bool) -> bool:
    if kind in _NUMBERS:
        number = as_number(value, as_text=as_text)
        return number is not None and (kind != "whole" or _is_whole(value, number))
    if kind == "flag":
        number = as_number(value, as_text=False)
        return isinstance(value, bool) or number in (0, 1) or (as_text and _spells_a_flag(value))
    if kind == "word":
        return isinstance(value, str)
    if kind == "list":
        return as_text or (isinstance(value, tuple) and not isinstance(value, Section))
    if kind == "switch":
        return isinstance(value, bool | Section)
    return kind != "section" or as_text or isinstance(value, Section)


def _spells_a_flag(value: Said) -> bool:
    return isinstance(value, str) and value.lower() in TRUE | FALSE


def _is_whole(value: Said, number: float) -> bool:
    if isinstance(value, str):
        return _WHOLE.fullmatch(value.strip()) is not None  # int("5e8") is an error, 5e8 in JSON is not
    return math.isfinite(number) and number == int(number)


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
