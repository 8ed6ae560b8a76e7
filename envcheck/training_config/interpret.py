"""A document as its dialect reads it: `train.*` facts, what is wrong with it, and the files it names. Pure.

Which release of a package is installed decides, where it is known, what that package takes and refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from operator import ge, gt, le, lt, ne
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.errors import Place
from envcheck.core.facts import Absent, Fact, Known, Reading, Tri, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Severity
from envcheck.core.training_facts import KEYS
from envcheck.training_config.dialects import (
    CONVERTED,
    Dialect,
    DialectRow,
    misfit,
    program_names,
    recognised,
)
from envcheck.training_config.document import Document, Reference, Said, Section, Setting
from envcheck.training_config.values import FALSE, SILENT, TRUE, as_number, either, same, spelled


class Interpretation(NamedTuple):
    """What a document means: facts, what is wrong with it, and the files it names."""

    document: Document
    dialect: Dialect | None
    facts: tuple[Fact, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    references: tuple[Reference, ...] = ()


def understood(
    document: Document, dialects: Mapping[str, Dialect], installed: Mapping[str, str]
) -> list[Interpretation]:
    """What a document means, and what each configuration means that stands inside it.

    `installed` are versions of packages, as far as they are known.
    """
    dialect = recognised(document, dialects)
    if dialect is None:
        return [Interpretation(document, None)]
    reading = _Interpreter(document, dialect, installed)
    inner = [each for part in reading.embedded() for each in understood(part, dialects, installed)]
    facts, remarks = tuple(reading.facts()), tuple(_at_most(reading.remarks(), document.file))
    return [*inner, Interpretation(document, dialect, facts, remarks, tuple(reading.references()))]


_MOST = 100  # remarks on one document


def _at_most(remarks: Iterator[Diagnostic], file: str) -> Iterator[Diagnostic]:
    yield from islice(remarks, _MOST)
    if next(remarks, None) is not None:
        text = f"more than {_MOST} mistakes: the others are not shown"
        yield Diagnostic(Severity.WARNING, "too-many", text, (Place(file),))


class _Interpreter:
    def __init__(self, document: Document, dialect: Dialect, installed: Mapping[str, str]) -> None:
        self.document, self.dialect, self.installed = document, dialect, installed
        self.settings = {setting.name: setting for setting in document.settings}
        self.typed = document.form != "arguments"

    def rows(self, name: str) -> list[DialectRow]:
        """The rows about a name that speak in this document; an item of a list has those of `*`."""
        found = self.dialect.rows.get(name)
        if found is None:
            found = self.dialect.rows.get(
                ".".join("*" if part.isdigit() else part for part in name.split(".")), ()
            )
        trainers = {self.dialect.trainer, *program_names(self.document)}
        return [row for row in found if not row.trainers or {*row.trainers} & trainers]

    # --- facts

    def facts(self) -> Iterator[Fact]:
        """What follows from several settings, then what each says."""
        if self.dialect.trainer:
            yield Fact("train.trainer", Known(self.dialect.trainer), self.document.file)
        for implied in self.dialect.implied:
            if (
                self._all(implied.when) is Tri.YES
                and self._takes(implied.versions, implied.package) is not Tri.NO
            ):
                named = next((self.settings[name] for name in implied.when if name in self.settings), None)
                reading = Absent() if implied.value is None else Known(implied.value)
                yield Fact(implied.key, reading, self._source(named) if named else self.document.file)
        for setting in self.settings.values():
            decided: set[str] = set()
            for row in self.rows(setting.name):
                if row.key in decided or (says := self._says(row, setting.value)) is None:
                    continue
                decided.add(row.key)
                if not _outside(row, says):
                    yield Fact(row.key, says, self._source(setting))

    def _source(self, setting: Setting) -> str:
        line = f":{setting.named.line}" if setting.named.line else ""
        return f"{setting.named.file}{line}: {setting.name}"

    def _says(self, row: DialectRow, value: Said) -> Reading | None:
        """What a row makes of a value; None if the value says nothing, or nothing of its kind."""
        if not row.key:
            return None
        if isinstance(value, Unknown):
            return value
        word = spelled(_as_number(value, row))
        if row.values:
            return Known(row.values[word]) if word in row.values else None
        bare = row.kind == "flag" and word == "" and not self.typed
        if (word in SILENT and not bare and not isinstance(value, Section)) or self._unusable(row, value):
            return None
        if row.value is None:
            return Known(_value(row.kind, word))
        holds = _meets(row, word)
        return Known(row.value) if holds else None if row.otherwise is None else Known(row.otherwise)

    def _unusable(self, row: DialectRow, value: Said) -> bool:
        wrong, severity = self.problem(row, value)
        return bool(wrong) and severity is Severity.ERROR

    # --- what is wrong

    def remarks(self) -> Iterator[Diagnostic]:
        """Everything that is wrong with the document by itself: what contradicts, then each setting."""
        yield from self.document.remarks
        yield from self._twice()
        for each in self.dialect.contradictions:
            if self._all(each.when) is Tri.YES and self._takes(each.versions, each.package) is not Tri.NO:
                places = tuple(self.settings[name].place for name in each.when if name in self.settings)
                places = places or (Place(self.document.file),)
                severity = Severity(each.severity)
                yield Diagnostic(severity, each.code, each.text, places, each.advice, each.source)
        for setting in self.document.settings:
            rows = self.rows(setting.name)
            if not rows:
                yield from self._unknown(setting)
                continue
            yield from self._of_its_time(setting, rows[0])
            wrong, severity = self.problem(rows[0], setting.value)
            outside = (_outside(row, self._says(row, setting.value)) for row in rows)
            wrong = wrong or next(filter(None, outside), "")
            if wrong:
                severity = severity if severity is not Severity.NOTE else Severity.ERROR
                text, source = f"{setting.name}: {wrong}", self._said_in(rows[0])
                yield Diagnostic(severity, "wrong-value", text, (setting.place,), source=source)

    def _twice(self) -> Iterator[Diagnostic]:
        for name, first, again in self.document.twice if self.typed else ():
            if self.dialect.twice:
                text, severity = f"{name} stands twice: {self.dialect.twice}", Severity.ERROR
            else:
                text, severity = f"{name} stands twice; the later one counts", Severity.WARNING
            yield Diagnostic(severity, "twice", text, (again, first), source=self.dialect.sources.get("", ""))

    def _unknown(self, setting: Setting) -> Iterator[Diagnostic]:
        section, _, leaf = setting.name.rpartition(".")
        refused = self._refuses(section)
        if refused is None and not self.typed and not section:
            yield from self._misspelt(setting)
        if refused is None or (refused is Tri.NO and leaf.startswith("_")):  # people's way to comment JSON
            return
        if setting.value == "auto":
            refused = Tri.NO  # taken out before anything is checked
        what = self.dialect.package or self.dialect.title
        becomes = {
            Tri.YES: f"{what} refuses it",
            Tri.NO: f"{what} ignores it without a word",
            Tri.MAYBE: f"{what} refuses it from {self._since(section)} on, and ignores it before",
        }[refused]
        here = f"{section} has no {leaf}" if section else f"{leaf} is no setting of {what}"
        yield Diagnostic(
            Severity.ERROR if refused is Tri.YES else Severity.WARNING,
            "unknown-key",
            f"{here}: {becomes}",
            (setting.named,),
            self._meant(section, leaf),
            self.dialect.sources.get(section, ""),
        )

    def _misspelt(self, setting: Setting) -> Iterator[Diagnostic]:
        """An argument that is nearly one that decides something; a script may well have both."""
        name = setting.name
        near = [
            each
            for each, rows in self.dialect.rows.items()
            if abs(len(each) - len(name)) <= _EDITS
            and (each[:_ALIKE] == name[:_ALIKE] or each[-_ALIKE:] == name[-_ALIKE:])
            and any(row.key for row in rows)
        ]
        if not near or len(name) < 2 * _ALIKE:
            return
        from difflib import get_close_matches  # few configurations have such a name

        if meant := get_close_matches(name, near, n=1, cutoff=_NEARLY):
            text, advice = f"{name} is no name that envcheck knows", f"did you mean {meant[0]}?"
            yield Diagnostic(Severity.NOTE, "unknown-name", text, (setting.named,), advice)

    def _refuses(self, section: str) -> Tri | None:
        """Whether a section refuses names that it does not know; None if it takes any."""
        policy = self.dialect.unknown.get(section, "")
        if not policy:
            return None
        if policy == "ignored":
            return Tri.NO
        return self._takes(policy.removeprefix("refused").strip(), self.dialect.package)

    def _since(self, section: str) -> str:
        return self.dialect.unknown[section].partition(">=")[2]

    def _meant(self, section: str, leaf: str) -> str:
        """What was meant: the same name elsewhere, else the nearest here, else the nearest anywhere."""
        names = [
            name
            for name, rows in self.dialect.rows.items()
            if not rows[0].renamed and not rows[0].versions.startswith("<")
        ]
        elsewhere = next((name for name in names if name.rpartition(".")[2] == leaf), None)
        if elsewhere is not None:
            return f"{leaf} stands in {elsewhere.rpartition('.')[0] or 'the outermost object'}"
        from difflib import get_close_matches  # few configurations have such a name

        anywhere = {name.rpartition(".")[2]: name for name in names}
        here = {name.rpartition(".")[2]: name for name in names if name.rpartition(".")[0] == section}
        for known in (here, anywhere):
            if close := get_close_matches(leaf, known, n=1, cutoff=0.75):
                return f"did you mean {close[0] if known is here else known[close[0]]}?"
        return ""

    def _of_its_time(self, setting: Setting, row: DialectRow) -> Iterator[Diagnostic]:
        """Old names, and names that the installed release does not have."""
        section, _, leaf = setting.name.rpartition(".")
        said_in, write = self._said_in(row), f"write {row.instead or row.renamed}" if row.renamed else ""
        if self._takes(row.versions, row.package) is Tri.NO:
            policy = self._refuses(section)
            refused = policy is Tri.YES and setting.value != "auto"
            when = "yet" if ">=" in row.versions else "any more"
            becomes = " and refuses it" if refused else " and ignores it without a word"
            text = f"{row.package} {self.installed[row.package]} has no {leaf} {when} ({row.versions} has)"
            own = not self.typed and not self.dialect.programs
            text += becomes if policy is not None else "; a script may add it itself" if own else ""
            severity = Severity.ERROR if refused else Severity.WARNING
            yield Diagnostic(severity, "other-release", text, (setting.named,), write, said_in)
        if not row.renamed:
            return
        renamed = f"{section}.{row.renamed}" if section else row.renamed
        new = self.settings.get(renamed)
        if new is not None:
            text = f"{leaf} is the old name of {row.renamed}, and both are set"
            yield Diagnostic(Severity.ERROR, "old-and-new", text, (setting.named, new.named), source=said_in)
        elif write and self._has(renamed) and self._takes(row.versions, row.package) is not Tri.NO:
            text = f"{leaf} is the old name of {row.renamed}"
            yield Diagnostic(Severity.NOTE, "old-name", text, (setting.named,), write, said_in)

    def _said_in(self, row: DialectRow) -> str:
        return row.source or self.dialect.sources.get(row.under, "")

    def _has(self, name: str) -> bool:
        """Whether it is certain that the installed release has a name."""
        return all(self._takes(row.versions, row.package) is Tri.YES for row in self.rows(name)[:1])

    def _takes(self, wanted: str, package: str) -> Tri:
        """Whether the installed release of a package is within bounds; maybe if it is not known."""
        if not wanted:
            return Tri.YES
        if not self.installed.get(package):
            return Tri.MAYBE
        return versions.satisfies_all(self.installed[package], versions.parse_specifier(wanted))

    def problem(self, row: DialectRow, value: Said) -> tuple[str, Severity]:
        """What is wrong with a value (empty if nothing is), and how bad that is. "auto" is for `merging`.

        pydantic, which refuses unknown names, reads `"3"` as 3 and true as 1. YAML 1.1 takes 1e-4 for a text,
        of which a program makes a number or not, and for false a no that was meant as a word.
        """
        takes_null = row.null or not self.typed or row.under not in self.dialect.unknown
        nothing = value is None and takes_null
        if isinstance(value, Unknown) or nothing or value == "auto":
            return "", Severity.NOTE
        in_yaml = self.document.form == "yaml"
        if in_yaml and row.kind == "word" and isinstance(value, bool):
            value = spelled(value)
        wrong = misfit(row, value, as_text=not self.typed or self.dialect.spelled)
        if not wrong or row.kind not in CONVERTED or value == "":
            return wrong, Severity.ERROR
        fits = not misfit(row, _as_number(value, row), as_text=True)
        if fits and self.dialect.unknown.get(row.under, "ignored") != "ignored":
            converts = f"{self.dialect.package} converts it, others that read this file do not"
            return f"{wrong}; {converts}", Severity.WARNING
        if fits and in_yaml:
            return f"{wrong}; a text in YAML 1.1, which not every program converts", Severity.WARNING
        return wrong, Severity.ERROR

    # --- other configurations

    def references(self) -> Iterator[Reference]:
        """The files that settings name."""
        launch = self.document.launch
        for setting in self.settings.values():
            row = next((row for row in self.rows(setting.name) if row.refers), None)
            if row is None or setting.value in self.document.written:
                continue
            if isinstance(setting.value, Unknown):
                yield Reference("", setting.place, row.refers, launch, setting.value.why)
            elif _names_a_file(setting.value, row):
                yield Reference(str(setting.value), setting.place, row.refers, launch)

    def embedded(self) -> Iterator[Document]:
        """The configurations that stand inside this one."""
        for name in self.settings:
            refers = next((row.refers for row in self.rows(name) if row.refers), "")
            inside = [each for each in self.settings if each.startswith(f"{name}.")] if refers else []
            if inside:
                settings = [
                    self.settings[each]._replace(name=each.removeprefix(f"{name}.")) for each in inside
                ]
                yield Document(
                    self.document.file, "json", tuple(settings), launch=self.document.launch, dialect=refers
                )

    # --- conditions

    def _all(self, when: Mapping[str, Any]) -> Tri:
        return min((self._holds(name, wanted) for name, wanted in when.items()), default=Tri.YES)

    def _holds(self, name: str, wanted: Any) -> Tri:
        """Whether a setting is as wanted; what is auto or known to a shell only may be anything."""
        if isinstance(wanted, list):
            return max(self._holds(name, each) for each in wanted)
        setting = self.settings.get(name)
        if wanted in ("present", "absent"):
            return Tri.of((setting is not None) == (wanted == "present"))
        rows = self.dialect.rows.get(name, ())
        default = next((row.default for row in rows if row.default is not None), None)
        value = default if setting is None or setting.value is None else setting.value
        if isinstance(value, Unknown) or value == "auto":
            return Tri.MAYBE
        operator = next(
            (each for each in _OPERATORS if isinstance(wanted, str) and wanted.startswith(each)), ""
        )
        bound = as_number(wanted.removeprefix(operator)) if operator else None
        if bound is not None:
            number = as_number(value)
            return Tri.NO if number is None else Tri.of(_OPERATORS[operator](number, bound))
        if operator == "!=":
            return Tri.of(spelled(value) != wanted.removeprefix("!="))
        return Tri.of(same(value, wanted) or (isinstance(value, str) and _read_as(value, wanted)))


_EDITS = 3  # letters that a misspelt name has more or less
_ALIKE = 5  # letters at one of its ends that are right
_NEARLY = 0.9  # how alike the whole is, as difflib counts
_OPERATORS: Mapping[str, Any] = {">=": ge, "<=": le, "!=": ne, ">": gt, "<": lt}


def _read_as(text: Said, wanted: Any) -> bool:
    """Whether a text means a value."""
    if isinstance(wanted, bool):
        return spelled(text) in (TRUE if wanted else FALSE)
    return spelled(text) == spelled(wanted)


def _outside(row: DialectRow, reading: Reading | None) -> str:
    """What is wrong with a value that its fact cannot have; empty if nothing is."""
    words = KEYS[row.key].words if isinstance(reading, Known) else ()
    if not isinstance(reading, Known) or not words or str(reading.value) in words:
        return ""
    return f"expected {either(words)}, found {reading.value!r}"


def _as_number(value: Said, row: DialectRow) -> Said:
    """True as 1, where a number is meant."""
    return (
        int(value) if isinstance(value, bool) and row.kind not in ("flag", "word", "switch", "any") else value
    )


def _names_a_file(value: Said, row: DialectRow) -> bool:
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return False
    return spelled(value) not in {*row.values, *SILENT, *FALSE, "true"}


def _value(kind: str, word: str) -> str | int | bool:
    if kind == "flag":
        return word in TRUE
    number = as_number(word) or 0
    if kind == "positive":
        return number > 0
    if kind == "whole":
        return int(word) if word.isdigit() else int(number)
    return word


def _meets(row: DialectRow, word: str) -> bool:
    """Whether a value is such that the row's `value` is the fact."""
    if row.when == "any":
        return True
    if row.when == "positive":
        return (as_number(word) or 0) > 0
    return (word in TRUE) == (row.when == "true") if row.kind == "flag" else word not in FALSE
