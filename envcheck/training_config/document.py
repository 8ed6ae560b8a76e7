"""What a training configuration says, before anyone asks what it means: settings, each with its places.

A reader (`readers/`) turns a text into documents; a dialect (`dialects`) says what their names mean.
"""

from typing import NamedTuple, TypeAlias

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.core.findings import Diagnostic


class Section(NamedTuple):
    """The value of a setting that holds others: the names right inside it."""

    names: tuple[str, ...] = ()


Scalar: TypeAlias = bool | int | float | str | None
Said: TypeAlias = Scalar | tuple[Scalar | Section, ...] | Section | Unknown


class Setting(NamedTuple):
    """One thing that is said.

    `name` is dotted (`zero_optimization.offload_optimizer.device`, `datasets.0.path`); a key that has a dot
    of its own is quoted in it. Command lines spell names without their dashes and with `_`. A value is text
    there; in JSON and YAML it has the type that the file gives it. Unknown is what only a shell knows.
    """

    name: str
    value: Said
    named: Place  # the name
    place: Place  # the value; where it has none (a bare flag) the name


class Document(NamedTuple):
    """What one text says, or one launch in it.

    A name that stands twice is there as the later one says, as every program reads it; `twice` has both.
    `liberties` are what the text does beyond its form (a comment in JSON), the first of each kind.
    `open_end` says why more may be given than can be read here; empty if this is all. `written` are names of
    files that the text itself holds, which need not be looked for; `remarks` what its reader noticed.
    """

    file: str
    form: str  # json, yaml, arguments
    settings: tuple[Setting, ...]
    program: tuple[str, ...] = ()  # words of a command before its arguments: torchrun, finetune.py
    launch: int = 0  # documents of one launch belong together, several launches are alternatives
    dialect: str = ""  # only where the reader knows it
    twice: tuple[tuple[str, Place, Place], ...] = ()
    liberties: tuple[tuple[str, Place], ...] = ()
    open_end: str = ""
    written: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()

    def names(self) -> frozenset[str]:
        """Every name that is said."""
        return frozenset(setting.name for setting in self.settings)


class Reference(NamedTuple):
    """Another configuration that a setting names, and the dialect it has to be of.

    `unknown` says why its name cannot be read; `path` is empty then.
    """

    path: str
    place: Place
    dialect: str
    launch: int = 0
    unknown: str = ""
