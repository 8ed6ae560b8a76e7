"""Find what is wrong with one document: contradictions, unknown and outdated names, wrong values. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.errors import Place
from envcheck.core.facts import Tri
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Severity
from envcheck.training_config.dialect_context import DialectContext
from envcheck.training_config.dialects import DialectRow
from envcheck.training_config.document import Setting
from envcheck.training_config.setting_facts import value_outside_fact

# A name counts as misspelt if it resembles a known one in all of these ways.
_MAX_EDITS = 3  # largest difference in length, in letters
_EQUAL_LETTERS = 5  # equal letters at the beginning or at the end
_MIN_SIMILARITY = 0.9  # difflib's ratio of the whole name
_SUGGESTION_SIMILARITY = 0.75  # difflib's ratio for a suggestion in a section that is fully known


class SettingDiagnostics:
    """Checks the settings of one document."""

    def __init__(self, context: DialectContext) -> None:
        """Check the document of this context."""
        self.context, self.document, self.dialect = context, context.document, context.dialect

    def all(self) -> Iterator[Diagnostic]:
        """Yield the diagnostics of the reader, those on the whole document, then those on each setting."""
        yield from self.document.diagnostics
        yield from self._repeated()
        yield from self._contradictions()
        for setting in self.document.settings:
            rows = self.context.rows(setting.name)
            if setting.perhaps and self.context.typed:
                continue  # perhaps it is not there
            if not rows:
                yield from self._unknown_name(setting)
                continue
            yield from self._missing_in_release(setting, rows[0])
            yield from self._old_name(setting, rows[0])
            yield from self._wrong_value(setting, rows)

    # --- the whole document -------------------------------------------------------------------------

    def _repeated(self) -> Iterator[Diagnostic]:
        """Yield names that are given twice; on a command line that is common and harmless."""
        for name, first, again in self.document.repeated if self.context.typed else ():
            if self.dialect.twice:
                text, severity = f"{name} is given twice: {self.dialect.twice}", Severity.ERROR
            else:
                text, severity = f"{name} is given twice; the later one counts", Severity.WARNING
            yield Diagnostic(severity, "twice", text, (again, first), source=self.dialect.sources.get("", ""))

    def _contradictions(self) -> Iterator[Diagnostic]:
        settings = self.context.settings
        for row in self.dialect.contradictions:
            known = self.context.release_matches(row.versions, row.package) is Tri.YES
            if (known or not row.certain) and self.context.may_apply(row.when, row.versions, row.package):
                places = tuple(settings[name].place for name in row.when if name in settings)
                places = places or (Place(self.document.file),)
                yield Diagnostic(Severity(row.severity), row.code, row.text, places, row.advice, row.source)

    # --- values -------------------------------------------------------------------------------------

    def _wrong_value(self, setting: Setting, rows: list[DialectRow]) -> Iterator[Diagnostic]:
        wrong, severity = self.context.problem(rows[0], setting.value)
        if wrong and self._is_defined_by_program(rows[0], setting):
            return
        if not wrong:
            outside = (value_outside_fact(self.context, row, setting.value) for row in rows)
            wrong = next(filter(None, outside), "")
        if wrong:
            severity = severity if severity is not Severity.NOTE else Severity.ERROR
            text, source = f"{setting.name}: {wrong}", self.context.source(rows[0])
            yield Diagnostic(severity, "wrong-value", text, (setting.place,), source=source)

    def _is_defined_by_program(self, row: DialectRow, setting: Setting) -> bool:
        """Return whether a program may give the name of a shared row another meaning.

        Its own parser may expect a number where others expect a word (`bits: 16`), or a section of that name.
        If no trainer is recognised, it may expect a word where others expect true or false.
        """
        if not row.shared:
            return False
        return (
            isinstance(setting.value, tuple)
            or row.kind == "word"
            or (row.kind == "flag" and not self.dialect.trainer)
        )

    # --- names --------------------------------------------------------------------------------------

    def _unknown_name(self, setting: Setting) -> Iterator[Diagnostic]:
        section, _, leaf = setting.name.rpartition(".")
        refused = self.context.refuses_unknown(section)
        if refused is None and not self.context.typed and not section:
            yield from self._misspelt_argument(setting)
        is_comment = refused is Tri.NO and leaf.startswith("_")  # a common way to comment JSON
        if refused is None or is_comment:
            return
        if setting.value == "auto":
            refused = Tri.NO  # such a name is removed before the check
        program = self.dialect.package or self.dialect.title
        since = self.dialect.unknown[section].partition(">=")[2]
        consequence = {
            Tri.YES: f"{program} refuses it",
            Tri.NO: f"{program} ignores it silently",
            Tri.MAYBE: f"{program} refuses it from {since} on, and ignores it before",
        }[refused]
        problem = f"{section} has no {leaf}" if section else f"{leaf} is not a setting of {program}"
        yield Diagnostic(
            Severity.ERROR if refused is Tri.YES else Severity.WARNING,
            "unknown-key",
            f"{problem}: {consequence}",
            (setting.name_place,),
            self._suggestion(section, leaf),
            self.dialect.sources.get(section, ""),
        )

    def _misspelt_argument(self, setting: Setting) -> Iterator[Diagnostic]:
        """Note an argument whose name resembles one that states a fact; the script may define both."""
        name = setting.name
        near = [
            known
            for known, rows in self.dialect.rows.items()
            if abs(len(known) - len(name)) <= _MAX_EDITS
            and (
                known[:_EQUAL_LETTERS] == name[:_EQUAL_LETTERS]
                or known[-_EQUAL_LETTERS:] == name[-_EQUAL_LETTERS:]
            )
            and any(row.key for row in rows)
        ]
        if not near or len(name) < 2 * _EQUAL_LETTERS:
            return
        from difflib import get_close_matches  # only few configurations have such a name

        if meant := get_close_matches(name, near, n=1, cutoff=_MIN_SIMILARITY):
            text, advice = f"{name} is not a name that envcheck knows", f"did you mean {meant[0]}?"
            yield Diagnostic(Severity.NOTE, "unknown-name", text, (setting.name_place,), advice)

    def _suggestion(self, section: str, leaf: str) -> str:
        """Return advice on the name meant: the same one elsewhere, else the nearest here, else anywhere."""
        names = [
            name
            for name, rows in self.dialect.rows.items()
            if not rows[0].renamed and not rows[0].versions.startswith("<")
        ]
        elsewhere = next((name for name in names if name.rpartition(".")[2] == leaf), None)
        if elsewhere is not None:
            return f"{leaf} stands in {elsewhere.rpartition('.')[0] or 'the outermost object'}"
        from difflib import get_close_matches  # only few configurations have such a name

        in_section = [name.rpartition(".")[2] for name in names if name.rpartition(".")[0] == section]
        if close := get_close_matches(leaf, in_section, n=1, cutoff=_SUGGESTION_SIMILARITY):
            return f"did you mean {close[0]}?"
        anywhere = {name.rpartition(".")[2]: name for name in names}
        if close := get_close_matches(leaf, anywhere, n=1, cutoff=_SUGGESTION_SIMILARITY):
            return f"did you mean {anywhere[close[0]]}?"
        return ""

    def _missing_in_release(self, setting: Setting, row: DialectRow) -> Iterator[Diagnostic]:
        """Yield a name that the installed release does not have yet, or no longer has."""
        if self.context.release_matches(row.versions, row.package) is not Tri.NO:
            return
        section, _, leaf = setting.name.rpartition(".")
        refuses = self.context.refuses_unknown(section)
        refused = refuses is Tri.YES and setting.value != "auto"
        when = "yet" if ">=" in row.versions else "any more"
        installed = self.context.installed[row.package]
        text = f"{row.package} {installed} has no {leaf} {when} ({row.versions} has)"
        if refuses is not None:
            text += " and refuses it" if refused else " and ignores it silently"
        elif not self.context.typed and not self.dialect.programs:
            text += "; a script may add it itself"
        severity = Severity.ERROR if refused else Severity.WARNING
        source = self.context.source(row)
        yield Diagnostic(severity, "other-release", text, (setting.name_place,), _new_name(row), source)

    def _old_name(self, setting: Setting, row: DialectRow) -> Iterator[Diagnostic]:
        """Yield an old name, if the new one is also set or the installed release has the new one."""
        if not row.renamed:
            return
        section, _, leaf = setting.name.rpartition(".")
        renamed = f"{section}.{row.renamed}" if section else row.renamed
        new = self.context.settings.get(renamed)
        source = self.context.source(row)
        text = f"{leaf} is the old name of {row.renamed}"
        if new is not None:
            places = (setting.name_place, new.name_place)
            yield Diagnostic(
                Severity.ERROR, "old-and-new", f"{text}, and both are set", places, source=source
            )
        elif (
            self.context.release_has(renamed)
            and self.context.release_matches(row.versions, row.package) is not Tri.NO
        ):
            yield Diagnostic(Severity.NOTE, "old-name", text, (setting.name_place,), _new_name(row), source)


def _new_name(row: DialectRow) -> str:
    """Return the advice to write the new name of a setting, or ""."""
    return f"write {row.instead or row.renamed}" if row.renamed else ""
