"""The content of a training configuration, without its meaning: settings, each with its places.

A reader (`readers/`) turns a text into documents; a dialect (`dialects`) knows what their names mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.records import NamedTuple


class Section(NamedTuple):
    """Value of a setting that contains other settings: the names directly inside it."""

    names: tuple[str, ...] = ()


ANY_OTHER = ""
"""The name under which an environment has the reason why any other variable may be set, if there is one."""

Scalar: TypeAlias = bool | int | float | str | None
SettingValue: TypeAlias = Scalar | tuple[Scalar | Section, ...] | Section | Unknown


class Setting(NamedTuple):
    """A name and its value, with their places.

    `name` is dotted (`zero_optimization.offload_optimizer.device`, `datasets.0.path`); a key that contains a
    dot is quoted in it. For command lines the name has no leading dashes and has `_` instead of `-`, and the
    value is text; in JSON and YAML the value has the type that the file gives it. A value that is known only
    at run time is Unknown. A bare flag has no value, so `place` is that of its name. On a command line,
    `more` are the words after the value: further values if the option takes a list, else other arguments.
    `perhaps` says that the option may not be given at all.
    """

    name: str
    value: SettingValue
    name_place: Place
    place: Place  # of the value
    more: tuple[Scalar | Unknown, ...] = ()
    perhaps: bool = False


class ProgramSource(NamedTuple):
    """Hold the names in the code of a program and its project's modules; `file` is the program's own file.

    `unresolved` are the packages, other than the standard library, that the code imports and that were not
    read. `options` are the options of the program that have a literal default, with that default.
    `calls` are the dotted names of what the code calls and imports, `packages` all packages that it imports.
    `reached` are the names in the code that the program reaches with its arguments, or None if that is not
    known. `seen` are those found before following the program came to an end, or failed. `outside` are the
    packages that the code imports, used or not, apart from the standard library and its own modules.
    `read_options` are the names of the options and other items that the program reads, or None if that is
    not known. `bodies` are those of `reached` that only name functions of the program whose bodies are part
    of it. `own_loop` says that following it reached a step of training and no trainer of a library. `unused`
    are options that decide nothing.
    """

    file: str
    names: frozenset[str]
    unresolved: frozenset[str]
    options: Mapping[str, bool | int | float | str | None]
    calls: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    reached: frozenset[str] | None = None
    seen: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()
    read_options: frozenset[str] | None = None
    bodies: frozenset[str] = frozenset()
    own_classes: frozenset[str] = frozenset()
    of_libraries: frozenset[str] = frozenset()
    own_loop: bool = False
    unused: frozenset[str] = frozenset()


class Document(NamedTuple):
    """Settings of one text, or of one launch in it.

    If a name is given twice, the later setting applies, as in every program; `repeated` has the name, the
    first place and the later place. `deviations` are the first of each kind of syntax beyond the form (a
    comment in JSON). `incomplete` gives the reason if there may be more settings than could be read, else it
    is empty. `written_files` names the files that the text itself writes, which need not exist yet.
    `diagnostics` are those of the reader. Of a `partial` document only known values are used: nothing follows
    from a missing or unknown setting, unless it is `whole`: then what the program does by default applies.
    `launcher` is what starts the processes of a program of Python (`none` if it is started directly); empty
    for other programs. `processes` is the number of processes that a launcher starts, 0 if it is not known.
    `written_as` is the name of the file of which a script writes or changes the text, in which a section may
    be unknown. `unreadable_files` are the written files whose text is not known, each with the reason.
    `environment` are the facts on the variables (`env.NCCL_P2P_DISABLE`) that the text gives the program.
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
    written_as: str = ""
    unreadable_files: tuple[tuple[str, str], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    source: ProgramSource | None = None  # the code of the launched program, if it could be read
    read_by: ProgramSource | None = None  # of a configuration file: the code of the program that is given it
    folder: str = ""  # the current folder of the launch, if its script has changed it
    partial: bool = False
    whole: bool = False
    launcher: str = ""
    processes: int = 0
    environment: tuple[Fact, ...] = ()

    def names(self) -> frozenset[str]:
        """Return the names of all settings."""
        return frozenset(setting.name for setting in self.settings)


class Reference(NamedTuple):
    """Another configuration that a setting names, and the dialect it is expected to have.

    If the name of the configuration is not known, `unknown` gives the reason and `path` is empty. If in
    addition `optional` is true, there may be no configuration at all.
    """

    path: str
    place: Place
    dialect: str
    launch: int = 0
    unknown: str = ""
    optional: bool = False
