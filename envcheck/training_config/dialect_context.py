"""A document with its dialect and the installed releases: what names, values and conditions mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from operator import ge, gt, le, lt, ne
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import Tri, Unknown
from envcheck.core.patterns import pattern
from envcheck.core.rules import Severity
from envcheck.training_config.dialects import CONVERTED, Dialect, DialectRow, Family, misfit, program_names
from envcheck.training_config.document import Document, Section, Setting, SettingValue
from envcheck.training_config.values import FALSE, TRUE, as_number, same, spelled

_COMPARISONS: Mapping[str, Any] = {">=": ge, "<=": le, "!=": ne, ">": gt, "<": lt}


_COMMAND_OF_ITS_OWN = pattern(r"[A-Za-z][\w-]*")
_PROOFS = 2  # number of `proofs` that prove a trainer; a user's own script may have one by chance
_PROOFS_OF_UNREAD = 4  # of a program that is not all here, and itself imports nothing that trains
_NAME = pattern(r"\w+(?:\.\w+)*")

_HAVE_TRAINERS = frozenset({"transformers", "trl", "sentence_transformers", "setfit", "unsloth"})
_STARTS_PROCESSES = frozenset(
    {"spawn", "start_processes", "init_process_group", "init_distributed", "notebook_launcher"}
)

_NEEDS_CODE = ("train.adapter", "train.quantization")
"""Facts that no arguments of a trainer state: the program must do what its option says."""

PROGRAM = "program"
"""The name in a condition whose value must be contained in a word that starts the program."""

COMMAND = "command"
"""The name in a condition whose value must be the last words that start the program: `trl sft`, `dpo.py`."""

ARGUMENTS = "arguments"
"""The dialect of a command line without any marks."""

LAUNCHED_BY = "launched_by"
"""The name in a condition for what starts the processes of a program of Python."""

STARTED = "started_processes"
"""The name in a condition for how many processes a launcher starts."""

FORM = "form"
"""The name in a condition for the form of the document: json, yaml, arguments."""

CODE = "code"
"""The name in a condition whose value must be a function that the program's code calls."""


class DialectContext:
    """A document, its dialect, and the versions of installed packages, as far as they are known.

    `typed` says that values have types; it is false for a command line, where every value is text.
    """

    def __init__(self, document: Document, dialect: Dialect, installed: Mapping[str, str]) -> None:
        """Index the settings by name."""
        self.document, self.dialect, self.installed = document, dialect, installed
        self.settings = {
            setting.name: setting for setting in document.settings if not self._reaches_nothing(setting)
        }
        self.typed = document.form != "arguments"
        self._trainers = {dialect.trainer, *program_names(document)}

    def _reaches_nothing(self, setting: Setting) -> bool:
        """Return whether an option of the program itself names a feature, and nothing reads the option.

        That is known only if all of the program was followed and none of its code is unread.
        """
        reader = self.document.source or self.document.read_by
        if reader is not None and setting.name in reader.unused:
            return True
        source = self.document.source
        if source is None or source.read_options is None or setting.name in source.read_options:
            return False
        if setting.name not in source.options or source.unresolved - {*self.dialect.libraries}:
            return False
        families = (family for family in self.dialect.families if family.key in _NEEDS_CODE)
        return any(is_named(family, setting.name.lower()) for family in families)

    def rows(self, name: str) -> list[DialectRow]:
        """Return the rows that describe a name in this document; an index of a list is described by `*`."""
        found = self.dialect.rows.get(name)
        if found is None:
            pattern = ".".join("*" if part.isdigit() else part for part in name.split("."))
            found = self.dialect.rows.get(pattern, ())
        return [row for row in found if not row.trainers or {*row.trainers} & self._trainers]

    def source(self, row: DialectRow) -> str:
        """Return the URL of the code that a row is taken from, or ""."""
        return row.source or self.dialect.sources.get(row.under, "")

    def proves_trainer(self) -> bool:
        """Return whether the document proves that the dialect's trainer runs the loop.

        A program that parses the trainer's arguments (`parsed_by`) may have a loop of its own. In a file, a
        switch for each of two precisions is one proof, not two: a program's own files have both.
        """
        proofs = self.dialect.proofs
        programs = {*self.dialect.programs} & program_names(self.document)
        of_others = any(name in self.settings for name in self.dialect.unproved)
        if of_others and self.document.form != "arguments" and not self.document.partial:
            return False
        if programs or (not proofs and not self._is_only_parsed()):
            return True
        if self._is_unknown_command():
            return False
        found = {name for name in proofs if name in self.settings}
        if self.document.form != "arguments" and found >= {"bf16", "fp16"}:
            found -= {"bf16"}
        return len(found) >= _PROOFS and not self._code_has_no_trainer(found)

    def _is_only_parsed(self) -> bool:
        """Return whether nothing but the parser in a program's code shows the dialect of its arguments."""
        marks = (*self.dialect.marks, *self.dialect.only)
        found = self.document.dialect or any(name in self.settings for name in marks)
        return bool(self.dialect.parsed_by) and not found

    def _is_unknown_command(self) -> bool:
        """Return whether a command of its own, no program of Python, takes the arguments of a trainer."""
        first = next(iter(self.document.program), "")
        launched = self.document.launcher not in ("", "none")
        return (
            not launched and self.document.source is None and _COMMAND_OF_ITS_OWN.fullmatch(first) is not None
        )

    def _code_has_no_trainer(self, proofs: AbstractSet[str]) -> bool:
        """Return whether no name in the program's code contains `trainer` or that of a trainer's arguments.

        A class of the program itself without a base does not count, nor do variables if there is one: they
        hold an object of it. Some of the code may be unread if the program itself defines the options that
        would prove the trainer. It may also be unread if there are few of them and what was read takes
        nothing but tokenizers from a library with trainers: any program may have options of these names.
        """
        source = self.document.source
        if source is None or source.own_loop:
            return source is not None
        unread = source.unresolved - {*self.dialect.libraries}
        few = len(proofs) < _PROOFS_OF_UNREAD and all("Tokenizer" in name for name in source.of_libraries)
        if unread and not few and not proofs <= source.options.keys():
            return False
        words = ("trainer", "trainingarguments") if unread else ("trainer",)
        own_classes = source.own_classes - source.of_libraries
        own = {name for name in own_classes if "trainer" in name.lower()}
        named = {name for name in source.names | source.calls if _NAME.fullmatch(name)}
        found = (name for name in named if name.rpartition(".")[2] not in own)
        return not any(
            word in name.lower() for name in found if not (own and name.islower()) for word in words
        )

    # --- releases -----------------------------------------------------------------------------------

    def release_matches(self, bounds: str, package: str) -> Tri:
        """Return whether the installed release of a package is within bounds; MAYBE if it is not known."""
        if not bounds:
            return Tri.YES
        if not self.installed.get(package):
            return Tri.MAYBE
        return versions.satisfies_all(self.installed[package], versions.parse_specifier(bounds))

    def refuses_unknown(self, section: str) -> Tri | None:
        """Return whether a section refuses unknown names; None if any name is valid in it."""
        policy = self.dialect.unknown.get(section, "")
        if not policy:
            return None
        if policy == "ignored":
            return Tri.NO
        return self.release_matches(policy.removeprefix("refused").strip(), self.dialect.package)

    def release_has(self, name: str) -> bool:
        """Return whether the installed release certainly has a name."""
        return all(self.release_matches(row.versions, row.package) is Tri.YES for row in self.rows(name)[:1])

    # --- conditions ---------------------------------------------------------------------------------

    def may_apply(self, when: Mapping[str, Any], bounds: str, package: str) -> bool:
        """Return whether settings certainly are as `when` states, and the release may be within bounds."""
        return self._all_match(when) is Tri.YES and self.release_matches(bounds, package) is not Tri.NO

    def undecided_by(self, when: Mapping[str, Any]) -> Setting | None:
        """Return the setting, known only at run time, that decides whether settings are as `when` states."""
        if self._all_match(when) is not Tri.MAYBE:
            return None
        found = (self.settings.get(name) or self.open_section(name) for name in when)
        return next((each for each in found if each is not None and isinstance(each.value, Unknown)), None)

    def open_section(self, name: str) -> Setting | None:
        """Return the section around a name of which it is not known what a script writes there, or None."""
        parts = name.split(".") if self.document.written_as else ()
        around = (self.settings.get(".".join(parts[:count])) for count in range(1, len(parts)))
        return next((each for each in around if each is not None and isinstance(each.value, Unknown)), None)

    def _may_be_added(self, name: str) -> str:
        """Return why a file may have a setting that could not be read in it, or ""."""
        if name in self.settings or not self.typed:
            return ""
        section = self.open_section(name)
        if section is not None and isinstance(section.value, Unknown):
            return section.value.why
        return self.document.incomplete

    def _all_match(self, when: Mapping[str, Any]) -> Tri:
        return min((self._matches(name, expected) for name, expected in when.items()), default=Tri.YES)

    def _matches(self, name: str, expected: Any) -> Tri:
        """Return whether a setting is as stated; MAYBE if it is "auto" or known only at run time."""
        if isinstance(expected, list):
            return max(self._matches(name, alternative) for alternative in expected)
        if expected in ("given", "present", "absent"):
            return self._matches_given(name, expected)
        if name in (PROGRAM, COMMAND, LAUNCHED_BY):
            return Tri.of(self._is_started_by(name, str(expected)))
        if name in (FORM, CODE):
            source = self.document.source
            calls = source.calls if source is not None else ()
            return Tri.of(expected in calls if name == CODE else self.document.form == expected)
        value = self._started() if name == STARTED else self._value_or_default(name)
        if isinstance(value, Unknown) or (value == "auto" and expected != "auto"):
            return Tri.MAYBE
        return Tri.of(_satisfies(value, expected))

    def _is_started_by(self, name: str, expected: str) -> bool:
        """Return whether a word that starts the program contains a text, or its last words are these."""
        if name == LAUNCHED_BY:
            return self.document.launcher == expected and not self._may_start_processes()
        if name == PROGRAM:
            return any(expected in word for word in self.document.program)
        words = expected.split()
        return [word.rpartition("/")[2] for word in self.document.program[-len(words) :]] == words

    def _started(self) -> SettingValue:
        """Return how many processes the launcher starts."""
        return self.document.processes or Unknown("the launcher does not say how many processes it starts")

    def _may_start_processes(self) -> bool:
        """Return whether the program may start processes, or expects to be one of several.

        That is not known of a program without marks of a trainer, unless its code names one.
        """
        source = self.document.source
        if source is None:
            return self.dialect.name == ARGUMENTS
        packages = source.packages | source.outside | source.unresolved
        if "ray" in packages or (self.dialect.name == ARGUMENTS and not packages & _HAVE_TRAINERS):
            return True
        return any(call.rpartition(".")[2] in _STARTS_PROCESSES for call in source.calls)

    def _matches_given(self, name: str, expected: str) -> Tri:
        """Return whether a setting is given, or has a value; MAYBE if a program computes it."""
        setting = self.settings.get(name)
        may_lack = setting is not None and (self.typed or setting.perhaps)
        if may_lack and setting is not None and isinstance(setting.value, Unknown):
            return Tri.MAYBE
        if self._may_be_added(name):
            return Tri.MAYBE
        if expected == "given":
            return Tri.of(setting is not None)
        return Tri.of(self._is_given(name) == (expected == "present"))

    def _is_given(self, name: str) -> bool:
        """Return whether a setting has a value; null and an empty section do not count.

        Nor does an empty text in a file; on a command line it may stand for a variable.
        """
        setting = self.settings.get(name)
        empty = (None, Section(), "") if self.typed else (None, Section())
        return setting is not None and setting.value not in empty

    def _value_or_default(self, name: str) -> SettingValue:
        setting = self.settings.get(name)
        if setting is not None and setting.value is not None:
            return setting.value
        if why := self._may_be_added(name):
            return Unknown(why)
        rows = self.dialect.rows.get(name, ())
        return next((row.default for row in rows if row.default is not None), None)

    # --- values -------------------------------------------------------------------------------------

    def problem(self, row: DialectRow, value: SettingValue) -> tuple[str, Severity]:
        """Return what is wrong with a value, or "", and how severe it is. `merge` handles "auto"."""
        takes_null = row.null or not self.typed or row.under not in self.dialect.unknown
        if isinstance(value, Unknown) or (value is None and takes_null) or value == "auto":
            return "", Severity.NOTE
        if self._in_yaml and row.kind == "word" and isinstance(value, bool):
            value = spelled(value)  # YAML 1.1 reads `no` as false, although a word was meant
        wrong = misfit(row, value, as_text=not self.typed or self.dialect.spelled)
        if wrong and (tolerated := self._conversion(row, value)):
            return f"{wrong}; {tolerated}", Severity.WARNING
        return wrong, Severity.ERROR

    def _conversion(self, row: DialectRow, value: SettingValue) -> str:
        """Return which programs convert a value of the wrong kind, or "" if none does."""
        convertible = row.kind in CONVERTED and value != ""
        if not convertible or misfit(row, bool_as_number(value, row), as_text=True):
            return ""
        if self.dialect.unknown.get(row.under, "ignored") != "ignored":
            # Sections that refuse unknown names are read by pydantic, which reads "3" as 3 and true as 1.
            return f"{self.dialect.package} converts it, others that read this file do not"
        return "a text in YAML 1.1, which not every program converts" if self._in_yaml else ""  # such as 1e-4

    @property
    def _in_yaml(self) -> bool:
        return self.document.form == "yaml"


def bool_as_number(value: SettingValue, row: DialectRow) -> SettingValue:
    """Return true as 1 and false as 0 if the row expects a number."""
    expects_number = row.kind not in ("flag", "word", "switch", "any")
    return int(value) if isinstance(value, bool) and expects_number else value


def location(setting: Setting) -> str:
    """Return the place of a setting, as the source of a fact."""
    line = f":{setting.name_place.line}" if setting.name_place.line else ""
    return f"{setting.name_place.file}{line}: {setting.name}"


def _satisfies(value: SettingValue, expected: Any) -> bool:
    """Return whether a value equals what is expected, or meets its comparison (`>=2`, `!=none`)."""
    operator = next(
        (sign for sign in _COMPARISONS if isinstance(expected, str) and expected.startswith(sign)), ""
    )
    bound = as_number(expected.removeprefix(operator)) if operator else None
    if bound is not None:
        number = as_number(value)
        return number is not None and bool(_COMPARISONS[operator](number, bound))
    if operator == "!=":
        return bool(spelled(value) != expected.removeprefix("!="))
    return same(value, expected) or (isinstance(value, str) and _spells(value, expected))


def _spells(text: str, expected: Any) -> bool:
    """Return whether a text spells a value."""
    if isinstance(expected, bool):
        return spelled(text) in (TRUE if expected else FALSE)
    return spelled(text) == spelled(expected)


def is_named(family: Family, name: str) -> bool:
    """Return whether a name in a program's code affects the fact of a family."""
    if any(word in name for word in family.code):
        return True
    return any(word in name for word in family.words) and not any(word in name for word in family.beside)
