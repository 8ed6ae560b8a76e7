"""What one Python file binds, offers, imports and reads when it is imported, as plain values.

`python_file.py` makes a summary from the text of one file and looks at no other file. A summary therefore
depends on the content alone, and is kept by its digest: an unchanged file of a patch release costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

FORMAT = 4
"""Raise this when the meaning of a summary changes: digests of the old form then match no longer."""

Guards: TypeAlias = tuple[str, ...]
"""The tests around a line, as Python expressions that are all true when it runs; outermost first."""


class UseKind(StrEnum):
    """How a line uses another module when the file is imported."""

    IMPORT = "import"
    FROM = "from"
    MEMBER = "member"
    """As FROM, where only the module may be missing: a `try` around it expects that."""
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True)
class Use:
    """One import, or one dotted name that is read, while the file is imported.

    Attributes:
        kind: `import a.b`, `from a.b import name` (FROM or MEMBER), or the attribute `a.b.name`.
        level: leading dots of a relative import; 0 for an absolute one.
        module: the dotted module; for an attribute the whole chain, beginning with its root's module.
        name: the imported name; `*` for all; empty unless the kind is FROM or MEMBER.
        guards: the tests that are true when the line runs.
        line: counted from 1.

    """

    kind: UseKind
    level: int
    module: str
    name: str
    guards: Guards
    line: int


@dataclass(frozen=True, slots=True)
class ImportOrigin:
    """Where a name comes from: a name of a module, or the module itself if `name` is empty."""

    level: int
    module: str
    name: str = ""
    guards: Guards = ()


OWN_NAME = "{__name__}"
"""Stands for the dotted path of the file itself in a `ModuleAlias`."""


@dataclass(frozen=True, slots=True)
class ModuleAlias:
    """An old name under which a file serves a module.

    Attributes:
        alias: the old name, which may begin with `{__name__}`; `*` stands for a part that cannot be read.
        target: the module that it stands for, with leading dots if the path is relative; empty if unknown.
        hooked: an import hook serves it, so a file of that name counts first.

    """

    alias: str
    target: str
    hooked: bool = False


@dataclass(frozen=True, slots=True)
class ModuleRefusal:
    """A `raise` that runs while the file is imported, if its guards are true; `text` is what it raises."""

    text: str
    guards: Guards
    line: int


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A call by name while the file is imported, `require_version("x>=1")`; `text` is the call as written."""

    text: str
    guards: Guards
    line: int


@dataclass(frozen=True, slots=True)
class ModuleRegistration:
    """A call such as `AutoConfig.register("bert", BertConfig)` while the file is imported.

    Attributes:
        owner: what registers, as written: `AutoConfig`, `CONFIG_MAPPING`.
        key: the first argument, as written.
        guards: the tests that are true when the line runs.
        line: counted from 1.

    """

    owner: str
    key: str
    guards: Guards
    line: int


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A loop over package names that checks the requirement of each in a table, while the file is imported.

    Attributes:
        package: one of the names.
        table: the name of the table, as the file knows it.
        guards: the tests that are true when this package is checked.
        line: of the call, counted from 1.

    """

    package: str
    table: str
    guards: Guards
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """One Python file.

    Attributes:
        bindings: names bound at module level, each with the guards of the ways in which it is bound; one way
            without guards means that it is always bound.
        imports: local names that an import binds, and what they stand for.
        rebound: imported names that an assignment binds too, for example where the import fails.
        lazy: names that a table or `__getattr__` offers without importing them first.
        lazy_stars: modules all of whose public names are offered in this way.
        scans: every `__all__` below this package is offered (`define_import_structure`).
        stars: `from module import *`.
        exports: the names in `__all__`, or None without one.
        exports_open: `__all__` is also filled by calls, so that it may hold more.
        answers: None without a module-level `__getattr__`; otherwise the words that it may answer to. A file
            that puts an object in its own place, or changes the class of its module, counts too.
        refused: names that its `__getattr__` refuses, or `module:name` if it makes one for other modules.
        refused_by: imported tables whose keys are refused.
        past: the keys of tables of names that are gone, by the name of the table.
        computed: names are made in ways that cannot be read, such as `globals().update(...)`.
        registers: words in code that puts modules into `sys.modules` under names that cannot be read, or that
            adds an import hook.
        aliases: old names under which the file serves modules.
        uses: what is imported or read on import, in order.
        refusals: what is raised on import.
        calls: calls by name on import, with no argument or constants alone.
        called: functions and classes that are called on import, by name; `text` is the name alone.
        registrations: what is registered on import, unless the call allows or expects that it is there.
        model_types: the texts that classes bind to `model_type`, by class.
        checks: requirements of a table that are checked on import.
        tables: dictionaries of requirement texts by package name.
        script: the statements that decide guards (constants, predicates), as reduced source.
        error: why the file could not be read; empty if it could.

    """

    bindings: Mapping[str, tuple[Guards, ...]] = field(default_factory=dict)
    imports: Mapping[str, ImportOrigin] = field(default_factory=dict)
    rebound: frozenset[str] = frozenset()
    lazy: Mapping[str, ImportOrigin] = field(default_factory=dict)
    lazy_stars: tuple[ImportOrigin, ...] = ()
    scans: bool = False
    stars: tuple[ImportOrigin, ...] = ()
    exports: tuple[str, ...] | None = None
    exports_open: bool = False
    answers: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()
    refused_by: tuple[str, ...] = ()
    past: Mapping[str, frozenset[str]] = field(default_factory=dict)
    computed: bool = False
    registers: frozenset[str] = frozenset()
    aliases: tuple[ModuleAlias, ...] = ()
    uses: tuple[Use, ...] = ()
    refusals: tuple[ModuleRefusal, ...] = ()
    calls: tuple[ModuleCall, ...] = ()
    called: tuple[ModuleCall, ...] = ()
    registrations: tuple[ModuleRegistration, ...] = ()
    model_types: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[TableCheck, ...] = ()
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    script: str = ""
    error: str = ""
