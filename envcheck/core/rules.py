"""Knowledge as values: rules with their clauses and fixes, targets, measured cells, defaults, the matrix.

A *rule* forbids a combination of facts. A *clause* is a condition on one fact. A *fix* sets facts so that the
rule is no longer broken. The *matrix* is all knowledge of `compat/`.

Everything here is a frozen value. These classes are named tuples because they are on the start-up path; see
`envcheck.core.facts`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from envcheck.core.facts import EMPTY_MAPPING, Kind, Value, is_package_version_key
from envcheck.core.records import NamedTuple
from envcheck.core.tables import Tables


class Severity(enum.Enum):
    """How bad a broken rule or a diagnostic is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Return the position in the order note (0), warning (1), error (2)."""
        return ("note", "warning", "error").index(self.value)


class Basis(enum.Enum):
    """Evidence for a rule, strongest first; a bound claims no more than its evidence shows."""

    MEASURED = "measured"  # run by this project, or read from the published archive
    SOURCE = "source"  # read from the code of the named versions
    RELEASE_NOTE = "release-note"
    METADATA = "metadata"
    ISSUE = "issue"  # public reports only


class Source(NamedTuple):
    """Source of a statement: its URL, its kind, and the ISO date it was last checked."""

    url: str
    kind: str
    checked: str


class Ref(NamedTuple):
    """A reference to another fact, as the operand of a comparison: `{cuda.minimum_driver}`."""

    key: str


class Comparison(NamedTuple):
    """One test of a reading: an operator and its operand.

    The operators are `==` `!=` `>=` `<`, `present`, `absent`, and in package metadata all of PEP 440.
    """

    op: str
    operand: str | int | bool | Ref


PRESENT = Comparison("present", True)


ABSENT = Comparison("absent", True)


class Clause(NamedTuple):
    """A condition on one fact: any of several alternatives, each of which is an "and" of comparisons."""

    key: str
    kind: Kind
    any_of: tuple[tuple[Comparison, ...], ...]
    raw: str  # as the rule file spells it, for reports


When: TypeAlias = tuple[Clause, ...]
"""A table of clauses, all of which must match."""


UNINSTALLED = "absent"
"""The value that a fix gives to a package that has to be uninstalled, spelt as in a clause."""


def uninstalls(key: str, value: Value | None) -> bool:
    """Return whether a change uninstalls a package, instead of installing a release or setting a value."""
    return value == UNINSTALLED and is_package_version_key(key)


class Fix(NamedTuple):
    """Hold a fix of a broken rule: the facts to set (`pkg.deepspeed` to `>=0.19.3`), and what it costs.

    A package that is set to `absent` has to be uninstalled.

    The lower bound of a version is a real release: it is the one that is tried before the fix is shown, and
    the one that suggested commands install. `tried` holds the values that the judge has passed. `conflict`
    says which installed package excludes one of them in its metadata, and has to change too.
    """

    set: tuple[tuple[str, str | int | bool], ...]
    cost: str = ""
    tried: tuple[tuple[str, Value], ...] = ()
    conflict: str = ""


class NoFix(NamedTuple):
    """A change that is often recommended but leaves the rule broken: why, and the URL that shows it."""

    set: tuple[tuple[str, str | int | bool], ...]
    why: str
    source: str


class Rule(NamedTuple):
    """A forbidden combination: broken if a table of `when` matches and `require`, if any, does not."""

    id: str
    severity: Severity
    basis: Basis
    title: str
    when: tuple[When, ...]
    require: When = ()
    fixes: tuple[Fix, ...] = ()
    sources: tuple[Source, ...] = ()
    why: str = ""
    group: str = ""  # its file, or "requires-dist" if it was generated from a package's metadata
    no_fixes: tuple[NoFix, ...] = ()
    repeats: str = ""  # the error rule beside which it says nothing new about the same packages
    no_cure: tuple[str, ...] = ()  # keys of packages whose releases outside the bounds fail in another form


class Requirement(NamedTuple):
    """One `Requires-Dist` line that applies: the package, the package it requires, and the bounds."""

    package: str
    requires: str
    specifier: str
    source: str


class UserRequirement(NamedTuple):
    """Hold a bound on a lock: package, PEP 440 specifier (empty for any version), and its origin.

    `origin` is where the user finds it: `--with trl`, `requirements.txt line 3`. If `wanted` is False, it
    bounds the package only if something else requires it (a constraint). `by_target` says that the target
    bounds it, which no user can change.
    """

    package: str
    specifier: str
    origin: str
    wanted: bool = True
    by_target: bool = False


class Target(NamedTuple):
    """A training recipe: its packages, the training facts it implies, and those that `pin` may change.

    `extras` are requirements such as `trl[vllm]`, which a lock has to satisfy as well. `conflicts` names
    packages that must not be in the environment, and why. `server` is the target of a second environment, in
    which a server of this recipe runs. `extends` is the target that the row was built on. `bounds` are
    specifiers by package, for requirements that the metadata lacks. `lacks` says by Python (`3.13`) or
    architecture (`aarch64`) why no lock exists for it.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    train: Mapping[str, str | int | bool]
    free: tuple[str, ...] = ()
    build: tuple[str, ...] = ()  # packages that exist only as sdists, which an installer must build
    note: str = ""
    group: str = ""
    purpose: str = ""  # `for` in matrix.toml: what someone trains with it, in one line
    extras: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = EMPTY_MAPPING
    server: str = ""
    extends: str = ""
    bounds: Mapping[str, str] = EMPTY_MAPPING
    lacks: Mapping[str, str] = EMPTY_MAPPING

    def why_none(self, python: str, architecture: str) -> str:
        """Return why no lock exists for this Python or this machine; empty if none is known."""
        return self.lacks.get(python) or self.lacks.get(architecture, "")


OUTCOMES = ("ok", "fails", "imports", "not-installable")
"""Outcomes of a cell: it trained; training failed; it was only imported; no installer can install it."""


class Cell(NamedTuple):
    """A measured combination of versions: known to work, or known to fail because of `rule`."""

    target: str
    outcome: str  # in OUTCOMES
    pkg: Mapping[str, str]
    device: str
    date: str
    test: str
    rule: str = ""
    train: Mapping[str, str | int | bool] = EMPTY_MAPPING


class Default(NamedTuple):
    """Value of a fact that was not given, if `when` matches; the first matching row applies.

    With `replaces`, it is the value of a fact that was given as this one, if `when` certainly matches.
    """

    key: str
    value: str | int | bool
    when: When
    source: str
    replaces: str | int | bool | None = None


Span: TypeAlias = tuple[str, str]
"""The first and the last of consecutive releases."""


class AtlasRow(NamedTuple):
    """Names that some releases of a package need from a partner, and the partner releases that lack them.

    `kind` is `name`, `keyword`, `guard` or `binary` (see `envcheck.atlas.gaps`). `entry` is the user's action
    that runs the code: `import peft`. `needs` is what the code needs: `transformers.cache_utils.HybridCache`.
    `releases` are those of the package, `lacking` those of the partner. For each span of `releases`, `places`
    has the file and line in the newest release of the span.
    """

    package: str
    partner: str
    kind: str
    entry: str
    needs: str
    releases: tuple[Span, ...]
    lacking: tuple[Span, ...]
    places: tuple[str, ...]


class Atlas(NamedTuple):
    """Hold the needs of published releases: rows by the package that needs it, then by its partner.

    `releases` holds every release that was read, oldest first, by package; other releases get no verdict.
    `optional` names the entries whose failure is a warning, because few users reach them. `trainers` has, by
    package, the values of `train.trainer` under which its classes are called (`trl.SFTTrainer(...)`), and
    `called_if` the fact that must be true for it; `imported_if` the fact that must not be false for its
    imports. `methods` has, by package and part of an entry, the values of `train.method` under which that
    entry is called; `entry_imported_if` has, by package and part of an import, the fact that is true
    if a training makes that import. `unused_with` has, by package, the plugins beside which its compiled
    modules are not loaded. `provided_by` has, by module that Python dropped or name of a package, who brings
    it: `setuptools`, `unsloth>=2025.11.6`.
    """

    rows: Mapping[str, Mapping[str, tuple[AtlasRow, ...]]] = EMPTY_MAPPING
    releases: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
    optional: frozenset[str] = frozenset()
    read: str = ""  # ISO date of the harvest
    trainers: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
    called_if: Mapping[str, str] = EMPTY_MAPPING
    imported_if: Mapping[str, str] = EMPTY_MAPPING
    methods: Mapping[str, Mapping[str, tuple[str, ...]]] = EMPTY_MAPPING
    entry_imported_if: Mapping[str, Mapping[str, str]] = EMPTY_MAPPING
    unused_with: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
    provided_by: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING


class Origin(NamedTuple):
    """A user's file laid over the shipped knowledge (an overlay), what named it, and what it contains."""

    name: str
    named_by: str
    brings: str


Builds: TypeAlias = Mapping[str, tuple[str, ...]]
"""What the wheels of a release were built for; `knowledge/release_metadata.py` lists the keys."""


def no_build(package: str, version: str) -> Builds | None:  # noqa: ARG001 - nothing is known of any release
    """Return None: without the table of releases, no build is known."""
    return None


class Matrix(NamedTuple):
    """All knowledge of `compat/`, and of the overlays.

    `known_through` has the newest release of each package that this knowledge covers. `moves_with` has, by
    package, those whose versions follow its version. `updated` is an ISO date.
    """

    rules: tuple[Rule, ...]
    targets: Mapping[str, Target]
    cells: tuple[Cell, ...]
    defaults: tuple[Default, ...]
    tables: Tables
    known_through: Mapping[str, str]
    moves_with: Mapping[str, tuple[str, ...]]
    updated: str
    digest: str
    machines: Mapping[str, Mapping[str, Any]] = EMPTY_MAPPING
    origins: tuple[Origin, ...] = ()  # overlays, in the order in which they were applied
    atlas: Callable[[], Atlas] = Atlas  # returns the atlas, which is read when it is first needed
    builds: Callable[[str, str], Builds | None] = no_build  # takes a package and a version

    def rule(self, rule_id: str) -> Rule | None:
        """Return the rule with this id, or None."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def overlaid(self) -> frozenset[str]:
        """Return the ids of the rules that come from overlays.

        A translation or a note on a shipped rule with the same id does not apply to them.
        """
        files = {origin.name for origin in self.origins}
        return frozenset(rule.id for rule in self.rules if rule.group in files)
