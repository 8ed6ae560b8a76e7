"""Dialects: what the names of a configuration mean, as rows of data in compat/dialects, one file each. Pure.

A document belongs to the dialect whose marks (typical names) it has. compat/dialects/README.md explains every
field of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from types import MappingProxyType
from typing import Any

from envcheck.core.facts import Value
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document, ProgramSource, Scalar, Section, SettingValue
from envcheck.training_config.values import FALSE, TRUE, alternatives, as_number, same, shown, spelled

_EMPTY: Mapping[str, Any] = {}


class DialectRow(NamedTuple):
    """What some names of one section mean; `under` is the field `in` of the file."""

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
    values: Mapping[str, Value] = _EMPTY
    when: str = "true"
    otherwise: Value | None = None
    refers: str = ""
    argument: str = ""
    trainers: Sequence[str] = ()
    patterns: Mapping[str, Value] = _EMPTY
    weak: bool = False
    source: str = ""
    package: str = ""  # the package whose releases `versions` are
    off: Sequence[str] = ()  # settings that leave it without effect if one of them is off
    shared: bool = False  # one of `tables/arguments.toml`, whose names a program may define itself


class Implied(NamedTuple):
    """A fact that follows from several settings; without a value it is Absent.

    A `[[default]]` row has the same fields and counts only if nothing else states its fact. With a reason in
    `unknown`, its fact is Unknown.
    """

    key: str
    when: Mapping[str, Any]
    value: Value | None = None
    versions: str = ""
    package: str = ""
    unknown: str = ""


class Product(NamedTuple):
    """Hold a fact that is the product of several settings, such as nodes and processes of each.

    `otherwise` has the values of settings that are not given, if they are as `when` states.
    """

    key: str
    of: Sequence[str]
    otherwise: Mapping[str, int] = MappingProxyType({})
    when: Mapping[str, Any] = MappingProxyType({})
    package: str = ""


class Family(NamedTuple):
    """Hold the words in a setting's name which show that it affects a fact, even if its meaning is unknown.

    If the name of a setting without a row contains one of `words` and none of `beside`, the fact is Unknown
    instead of at its default. The fact is also Unknown if the regular expression `models` matches the name of
    the model (such as that of a quantised base), or if `programs` matches the name of the file or of the
    program.

    If the code of the program could be read and contains none of `words` or `code`, the fact is `absent` by
    default. The same applies if the program has flags whose names match the regular expression `switch`, and
    all of them are off by default.

    With `parts`, the name of the model only says that it has parts that a program may freeze: it does not
    count if the program's code names nothing of the family, nor in files of the dialects `whole`, whose
    trainers train every part.

    A name of `anywhere` counts wherever the code has it: a parser makes objects of the classes it is given.
    With `bodies`, the name of a function of the program does not count if its body could be read.
    """

    key: str
    words: Sequence[str]
    beside: Sequence[str] = ()
    models: str = ""
    programs: str = ""
    code: Sequence[str] = ()
    absent: Value | None = None
    switch: str = ""
    parts: bool = False
    whole: Sequence[str] = ()
    anywhere: Sequence[str] = ()
    bodies: bool = False


class NeverImported(NamedTuple):
    """Facts that are false if the code of a program imports nothing that leads to the library they are about.

    The dialect `arguments` lists as `plain`, and the row as `packages`, those that do not. The code must also
    contain none of the `names` by which one of `packages` would lead to it.
    """

    keys: Sequence[str]
    packages: Sequence[str] = ()
    names: Sequence[str] = ()


class PartSwitches(NamedTuple):
    """Flags that each train or freeze one part of a model; regular expressions match their names.

    The fact is true if one part is frozen. It is false if at least `enough` flags are given and none of them
    freezes its part. In the dialects `present_in`, a flag freezes nothing unless the name of the model
    suggests that it has such parts.

    `encoders` and `connectors` match the names of flags for parts that come before the language model;
    `only_encoders` is the fact that is true if no flag freezes another part, and one freezes an encoder.
    `gradients` are names in code, in lower case, that may ask for gradients of what an encoder is given.
    """

    key: str
    freezes: str
    trains: str
    enough: int
    encoders: str
    connectors: str
    only_encoders: str
    gradients: Sequence[str]
    present_in: Sequence[str] = ()


class Contradiction(NamedTuple):
    """Settings that contradict one another in every environment.

    With `certain` it is reported only if the release is known.
    """

    code: str
    severity: str
    when: Mapping[str, Any]
    text: str
    advice: str = ""
    versions: str = ""
    source: str = ""
    package: str = ""
    certain: bool = False


class FilledRow(NamedTuple):
    """A setting that takes its value from a trainer's arguments; `arguments` is the field `from` of the file.

    With `any` the setting is true if one of the arguments is on. `refuses` says what happens if the setting
    and the arguments differ.
    """

    setting: str
    by: str
    arguments: Sequence[str]
    refuses: str
    any: bool = False
    source: str = ""


class ExcludedRow(NamedTuple):
    """Settings that a configuration of the dialect `by` must not have beside this one."""

    by: str
    when: Mapping[str, str]
    settings: Sequence[str]
    refuses: str
    advice: str
    source: str


class ShippedFiles(NamedTuple):
    """Configurations that a trainer ships, which people name without having them here: text by path.

    The texts hold what the files have in common in `releases` of the package; `dialect` is the one that they
    are written in. A path without a folder is a name that the trainer itself resolves.
    """

    files: Mapping[str, str] = _EMPTY
    releases: str = ""
    dialect: str = ""

    def end_of(self, path: str) -> str:
        """Return the path of the shipped file that a path means, also under another folder; empty if none."""
        for end in self.files:
            if path == end or ("/" in end and path.endswith(f"/{end}")):
                return end
        return ""


class _Files(NamedTuple):
    """What the dialects are read from: the parsed files by dialect, and the rows that dialects share."""

    trees: Mapping[str, Mapping[str, Any]] = _EMPTY
    shared: Sequence[DialectRow] = ()


class _RecognisedBy(NamedTuple):
    """What is read of every dialect, to recognise the one that a document belongs to."""

    name: str
    title: str
    trainer: str = ""
    package: str = ""
    forms: Sequence[str] = ("json", "yaml", "arguments")
    marks: Sequence[str] = ()
    programs: Sequence[str] = ()
    unknown: Mapping[str, str] = _EMPTY  # what each section does with unknown names: ignored, refused
    twice: str = ""  # why a repeated name is refused; empty if the later one counts
    auto: Sequence[str] = ()  # names that a trainer fills in
    sources: Mapping[str, str] = _EMPTY
    unread: Sequence[str] = ()  # facts that are Unknown if such a configuration cannot be read
    only: Sequence[str] = ()  # names that no other trainer has
    enough: int = 1  # the number of marks needed to recognise the dialect
    spelled: bool = False  # whether its program reads numbers that are written as text, such as YAML's 1e-4
    proofs: Sequence[str] = ()  # names of which two prove the trainer; if empty, marks suffice
    unproved: Sequence[str] = ()  # names in a file that another trainer with the same proofs may have
    inherits: str = ""  # the setting that names the files a configuration is based on
    closed: bool = False  # whether only names in its rows affect facts
    read_from: str = ""  # the releases of `package` whose code the rows were taken from
    inside: str = ""  # name of the file in the folder that a setting names, such as a local model's
    in_packages: Sequence[str] = ()  # packages of which the program's code imports one, if it can be read
    flat: bool = False  # whether sections only group the names
    never_with: Sequence[str] = ()  # settings that show that a file is something else
    in_code: Sequence[str] = ()  # names that the program's code contains, if it can be read
    parsed_by: Sequence[str] = ()  # names in a program's code which show that it parses these arguments
    strict: str = ""  # the program that refuses JSON with comments, as the end of a sentence
    fills: bool = False  # whether its trainer fills in what a DeepSpeed configuration leaves "auto"
    own_processes: bool = False  # whether its trainer starts all processes, whatever starts its program
    lineage: Sequence[str] = ()  # its own name and those of the dialects that it extends
    files: _Files = _Files()


class Dialect(_RecognisedBy):
    """One way of naming settings.

    The fields up to `parsed_by` come from the dialect's own file only; later fields and the tables also come
    from the dialects that it extends. Of the thirty dialects a configuration uses few, so the rows of each
    table are read when they are first asked for.

    Raises:
        ValueError: a row has an unknown field or lacks one; raised when its table is first read.
    """

    @cached_property
    def rows(self) -> Mapping[str, Sequence[DialectRow]]:
        """Return the rows on settings by dotted name, with `*` for an index of a list."""
        own = self.files.trees[self.name]
        settings = [_row(DialectRow, row) for row in self._rows_of("setting")]
        return _by_name([*settings, *(self.files.shared if own.get("shared", True) else ())])

    @cached_property
    def sections(self) -> Mapping[str, frozenset[str]]:
        """Return the names that have a row in a section, by the section's name.

        A section that may refer to a file of another dialect is left out.
        """
        elsewhere = {name for name, rows in self.rows.items() if any(row.refers for row in rows)}
        sections = {row.under for rows in self.rows.values() for row in rows if row.under} - elsewhere
        return {
            section: frozenset(
                name.removeprefix(f"{section}.") for name in self.rows if name.startswith(f"{section}.")
            )
            for section in sections
        }

    @cached_property
    def implied(self) -> Sequence[Implied]:
        """Return the facts that follow from several settings."""
        return [_row(Implied, row) for row in self._rows_of("implied")]

    @cached_property
    def products(self) -> Sequence[Product]:
        """Return the facts that are the product of several settings."""
        return [_row(Product, row) for row in self._rows_of("product")]

    @cached_property
    def defaults(self) -> Sequence[Implied]:
        """Return the facts that hold where nothing else states them."""
        return [_row(Implied, row) for row in self._rows_of("default")]

    @cached_property
    def contradictions(self) -> Sequence[Contradiction]:
        """Return the settings that contradict one another."""
        return [_row(Contradiction, row) for row in self._rows_of("contradiction")]

    @cached_property
    def filled(self) -> Sequence[FilledRow]:
        """Return the settings that take their value from a trainer's arguments."""
        return [_row(FilledRow, row) for tree in self._inherited() for row in tree.get("filled", ())]

    @cached_property
    def excluded(self) -> Sequence[ExcludedRow]:
        """Return the settings that must not stand beside a configuration of another dialect."""
        return [_row(ExcludedRow, row) for tree in self._inherited() for row in tree.get("excluded", ())]

    @cached_property
    def families(self) -> Sequence[Family]:
        """Return the words by which the name of a setting shows that it affects a fact."""
        return self._for_all(Family, "family")

    @cached_property
    def switches(self) -> Sequence[PartSwitches]:
        """Return the flags that each train or freeze one part of a model."""
        return self._for_all(PartSwitches, "switches")

    @cached_property
    def never_imported(self) -> Sequence[NeverImported]:
        """Return the facts that are false if the program's code imports nothing that leads to a library."""
        return self._for_all(NeverImported, "never_imported")

    @cached_property
    def shipped(self) -> ShippedFiles:
        """Return the configurations that the trainer ships."""
        return ShippedFiles(**self.files.trees[self.name].get("shipped", {}))

    @property
    def libraries(self) -> Sequence[str]:
        """Return the packages whose import says nothing about the families."""
        return self._of_arguments("libraries")

    @property
    def plain(self) -> Sequence[str]:
        """Return the packages that import no library for training models."""
        return self._of_arguments("plain")

    @property
    def own_loop(self) -> Sequence[str]:
        """Return the names of which the code of a training loop has one."""
        return self._of_arguments("own_loop")

    @property
    def hidden(self) -> Sequence[str]:
        """Return the names in code that may import what is not read."""
        return self._of_arguments("hidden")

    def _inherited(self) -> Iterator[Mapping[str, Any]]:
        return (self.files.trees[ancestor] for ancestor in self.lineage)

    def _rows_of(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of a table along the lineage, each with the package of its file."""
        for tree in self._inherited():
            for row in tree.get(table, ()):
                yield {"package": tree.get("package", ""), **row}

    def _for_all(self, kind: Any, table: str) -> list[Any]:
        """Return the rows that the dialect `arguments` adds to each dialect that is not closed."""
        closed = self.files.trees[self.name].get("closed")
        return [] if closed else [_row(kind, row) for row in self._of_arguments(table)]

    def _of_arguments(self, field: str) -> Sequence[Any]:
        """Return a field of the dialect of command lines without marks."""
        found: Sequence[Any] = self.files.trees.get("arguments", {}).get(field, ())
        return found


_OWN_FIELDS = (
    "title", "trainer", "package", "forms", "marks", "programs", "unknown", "twice", "auto", "sources",
    "unread", "enough", "spelled", "inside", "closed", "read_from", "proofs", "unproved", "inherits",
    "in_code", "in_packages", "never_with", "flat", "only", "parsed_by", "own_processes",
)  # fmt: skip
"""Fields of a file that are not inherited."""

_PYTHON_NAMES = {"in": "under", "from": "arguments"}
"""Fields of a row whose names are keywords of Python."""


# --- loading ----------------------------------------------------------------------------------------


def load(
    trees: Mapping[str, Mapping[str, Any]], shared: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Dialect]:
    """Return the dialects of parsed files by name.

    `shared` rows come last in every dialect that does not opt out of them.

    Raises:
        ValueError: a shared row has an unknown field, or a dialect extends one that does not exist.
    """
    files = _Files(trees, [_row(DialectRow, {**row, "shared": True}) for row in shared])
    return {name: _dialect(name, files) for name in sorted(trees)}


def _dialect(name: str, files: _Files) -> Dialect:
    own = files.trees[name]
    lineage = _lineage(name, files.trees)
    inherited = [files.trees[ancestor] for ancestor in lineage]
    return Dialect(
        name=name,
        **{field: own[field] for field in _OWN_FIELDS if field in own},
        strict=next((tree["strict"] for tree in inherited if "strict" in tree), ""),
        fills=any(tree.get("fills", False) for tree in inherited),
        lineage=lineage,
        files=files,
    )


def _lineage(name: str, trees: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a dialect and those it extends, directly or not, nearest first."""
    lineage = [name]
    for ancestor in lineage:  # grows during the loop
        if ancestor not in trees:
            raise ValueError(f"dialect {name} extends {ancestor}, which is not there")
        lineage += [parent for parent in trees[ancestor].get("extends", ()) if parent not in lineage]
    return lineage


def _by_name(rows: Iterable[DialectRow]) -> dict[str, list[DialectRow]]:
    """Return rows by the dotted name of each setting that they describe."""
    found: dict[str, list[DialectRow]] = {}
    for row in rows:
        for leaf in row.names:
            found.setdefault(f"{row.under}.{leaf}" if row.under else leaf, []).append(row)
    return found


def _row(kind: Any, row: Mapping[str, Any]) -> Any:
    """Return a row of a file as a named tuple of this kind.

    Raises:
        ValueError: the row has an unknown field or lacks one.
    """
    fields = {_PYTHON_NAMES.get(field, field): value for field, value in row.items()}
    if isinstance(fields.get("value"), list):
        fields["value"] = tuple(fields["value"])  # a fact of several words, such as trackers
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"{dict(row)}: {error}") from None


# --- recognising a document ----------------------------------------------------------------------------

_PROGRAM_WEIGHT = 100  # the number of marks that the name of a program counts as


_ONLY_WEIGHT = 10
"""The marks that a name which only one trainer has counts as."""


def recognised(document: Document, dialects: Mapping[str, Dialect]) -> Dialect | None:
    """Return the dialect whose marks the document has, or None.

    A dialect needs `enough` marks of its own. Of several dialects, the one with the most marks wins,
    including those of the dialects it extends. Among equals, the one with the longer lineage wins, because it
    is more specific. Several trainers have a `sft.py`: such a name does not count beside one that only one
    trainer has. A command line without marks belongs to the dialect `arguments`.
    """
    if document.dialect:
        return dialects[document.dialect]
    names = document.names()
    program = program_names(document)
    if any(name in names for dialect in dialects.values() for name in dialect.only):
        program = {name for name in program if not name.endswith(".py")}

    def own_marks(dialect: Dialect) -> int:
        marks = sum(mark in names for mark in dialect.marks)
        marks += _ONLY_WEIGHT * sum(name in names for name in dialect.only) + _is_parsed_by(document, dialect)
        if marks and _imports_one(document.read_by, {*dialect.in_packages}):
            marks += dialect.enough  # the program that reads the file imports the trainer
        return marks + _PROGRAM_WEIGHT * sum(name in program for name in dialect.programs)

    def score(dialect: Dialect) -> tuple[int, int]:
        return sum(own_marks(dialects[name]) for name in dialect.lineage), len(dialect.lineage)

    candidates = [
        dialect
        for dialect in dialects.values()
        if document.form in dialect.forms
        and not any(names & {*dialects[each].never_with} for each in dialect.lineage)
        and own_marks(dialect) >= dialect.enough
        and not _is_of_another_program(document, dialect)
    ]
    if not candidates:
        return dialects.get("arguments") if document.form == "arguments" else None
    return max(candidates, key=score)


def _is_parsed_by(document: Document, dialect: Dialect) -> bool:
    """Return whether the launched program's code has all names that parse the dialect's arguments."""
    code = document.source
    return code is not None and bool(dialect.parsed_by) and {*dialect.parsed_by} <= code.calls


def _is_of_another_program(document: Document, dialect: Dialect) -> bool:
    """Return whether the launched program's code lacks a name or package of the dialect's own program.

    A program that is given a configuration file reads it itself, unless code that could not be read does.
    """
    code = document.source
    wanted = {*dialect.in_packages}
    if code is None:
        reader = document.read_by
        unread = reader is None or reader.unresolved - {*dialect.libraries, *dialect.plain}
        return not unread and bool(wanted) and not _imports_one(reader, wanted)
    return bool(wanted and not wanted & code.packages) or not {*dialect.in_code} <= code.names | code.packages


def _imports_one(code: ProgramSource | None, packages: AbstractSet[str]) -> bool:
    """Return whether code imports one of these packages, or names a module of one to start it."""
    if code is None:
        return False
    return bool(packages & code.packages) or any(name.partition(".")[0] in packages for name in code.names)


def program_names(document: Document) -> set[str]:
    """Return the words before the arguments, and the parts of each.

    `python -m openrlhf.cli.train_sft` has the part `openrlhf`. The file `tune.py` is not the command `tune`.
    """
    words = {word.rpartition("/")[2] for word in document.program}
    paths = (word.rpartition("/")[0] if word.endswith(".py") else word for word in document.program)
    return words | {part for path in paths for part in path.replace(".", "/").split("/")}


# --- checking a value -------------------------------------------------------------------------------

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


def misfit(row: DialectRow, value: SettingValue, *, as_text: bool) -> str:
    """Return what is wrong with a value, or ""; `as_text` says that a text may spell a value of any kind."""
    if row.words:
        allowed = any(same(value, word) or (as_text and _spells(value, word)) for word in row.words)
        return "" if allowed else f"expected {alternatives(row.words)}, found {shown(value)}"
    if not _is_of_kind(row.kind, value, as_text=as_text):
        return f"expected {_KINDS[row.kind]}, found {shown(value)}"
    number = as_number(value, as_text=as_text)
    violated = _violated_bound(row, number) if number is not None and row.kind in _NUMBERS else ""
    return f"expected {violated}, found {shown(value)}" if violated else ""


_NUMBERS = ("whole", "number", "positive")
CONVERTED = ("flag", *_NUMBERS)
"""Kinds that pydantic converts from text, or from one another."""


def _spells(value: SettingValue, word: Scalar) -> bool:
    return isinstance(value, str) and value.lower() == spelled(word)


def _violated_bound(row: DialectRow, number: float) -> str:
    """Return the bound that a number violates, in words, or ""."""
    # The comparisons are negated so that NaN violates every bound.
    if row.least is not None and not number >= row.least:
        return f"{row.least:g} or more"
    if row.most is not None and not number <= row.most:
        return f"{row.most:g} or less"
    return ""


def _is_of_kind(kind: str, value: SettingValue, *, as_text: bool) -> bool:
    """Return whether a value is of a kind; a kind that is not listed here admits any value."""
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


def _spells_a_flag(value: SettingValue) -> bool:
    return isinstance(value, str) and value.lower() in TRUE | FALSE


def _is_whole(value: SettingValue, number: float) -> bool:
    if isinstance(value, str):
        return _WHOLE.fullmatch(value.strip()) is not None  # int("5e8") fails, while 5e8 in JSON is whole
    return math.isfinite(number) and number == int(number)


_WHOLE = pattern(r"[+-]?[0-9]{1,18}")
