"""What a training configuration says, before its meaning is known: settings, each with its places.

A reader (`readers/`) turns a text into documents; a dialect (`dialects`) knows what their names mean.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.core.findings import Diagnostic


class Section(NamedTuple):
    """The value of a setting that contains other settings: the names directly inside it."""

    names: tuple[str, ...] = ()


Scalar: TypeAlias = bool | int | float | str | None
SettingValue: TypeAlias = Scalar | tuple[Scalar | Section, ...] | Section | Unknown


class Setting(NamedTuple):
    """A name and its value, with their places.

    `name` is dotted (`zero_optimization.offload_optimizer.device`, `datasets.0.path`); a key that contains a
    dot is quoted in it. For command lines the name has no leading dashes and `_` for `-`, and the value is
    text; in JSON and YAML the value has the type that the file gives it. Unknown stands for a value that only
    a shell knows. A bare flag has no value, so `place` is that of its name.
    """

    name: str
    value: SettingValue
    name_place: Place
    place: Place  # of the value


class ProgramSource(NamedTuple):
    """What the code of a program and of its project's modules names.

    `unresolved` are the packages that it imports and that are not part of its project. `options` are those of
    the program that have a literal default; `calls` the dotted names of what the code calls and imports.
    """

    file: str
    names: frozenset[str]
    unresolved: frozenset[str]
    options: Mapping[str, bool | int | float | str | None]
    calls: frozenset[str] = frozenset()


class Document(NamedTuple):
    """The settings of one text, or of one launch in it.

    If a name is given twice, the later setting counts, as every program reads it; `repeated` has the name,
    the first place and the later place. `deviations` are what the text contains beyond its form (a comment in
    JSON), the first of each kind. If more may be given than could be read, `incomplete` says why; it is empty
    if this is all. `written_files` names the files that the text itself writes, which need not exist yet.
    `diagnostics` are those of the reader. Of a `partial` document only what it certainly states counts; what
    it lacks, and what only a run would tell, says nothing.
    """

    file: str
    form: str  # json, yaml, arguments
    settings: tuple[Setting, ...]
    program: tuple[str, ...] = ()  # words of a command before its arguments: torchrun, finetune.py
    launch: int = 0  # documents of one launch belong together; several launches are alternatives
    dialect: str = ""  # only where the reader knows it
    repeated: tuple[tuple[str, Place, Place], ...] = ()
    deviations: tuple[tuple[str, Place], ...] = ()
    incomplete: str = ""
    written_files: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    source: ProgramSource | None = None  # of the program that is launched, if it could be read
    folder: str = ""  # where the launch is started, if its script has changed there
    partial: bool = False

    def names(self) -> frozenset[str]:
        """Return the names of all settings."""
        return frozenset(setting.name for setting in self.settings)


class Reference(NamedTuple):
    """Another configuration that a setting names, and the dialect it is expected to have.

    If its name cannot be read, `unknown` says why and `path` is empty; it may then name none at all if it is
    `optional`.
    """

    path: str
    place: Place
    dialect: str
    launch: int = 0
    unknown: str = ""
    optional: bool = False
