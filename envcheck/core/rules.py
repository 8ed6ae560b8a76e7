"""What the matrix holds: rules with their clauses and fixes, targets, measured cells, defaults.

Everything here is a frozen value. These classes are named tuples because they are on the start-up path; see
`envcheck.core.facts`.
"""

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from envcheck.core.facts import EMPTY_MAPPING, Kind, Value


class Severity(enum.Enum):
    """How bad it is if the combination is there."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for a note, 2 for an error."""
        return ("note", "warning", "error").index(self.value)


class Basis(enum.Enum):
    """How a statement is known, strongest first. A bound never claims more than this."""

    MEASURED = "measured"  # run here, or read out of the published archive
    SOURCE = "source"  # read from the code of the named versions
    RELEASE_NOTE = "release-note"
    METADATA = "metadata"
    ISSUE = "issue"  # public reports only


class Source(NamedTuple):
    """Where a statement comes from and when it was last checked (ISO date)."""

    url: str
    kind: str
    checked: str


class Ref(NamedTuple):
    """Another fact's value as the operand of a comparison: `{cuda.minimum_driver}`."""

    key: str


class Comparison(NamedTuple):
    """One test of a reading: `==` `!=` `>=` `<` (and, in package metadata, the rest of PEP 440)."""

    op: str
    operand: str | int | bool | Ref


PRESENT = Comparison("present", True)


ABSENT = Comparison("absent", True)


class Clause(NamedTuple):
    """What one fact must be: any of several alternatives, each a conjunction of comparisons."""

    key: str
    kind: Kind
    any_of: tuple[tuple[Comparison, ...], ...]
    raw: str  # as written, for people


When: TypeAlias = tuple[Clause, ...]


class Fix(NamedTuple):
    """A way out: the facts to set (`pkg.deepspeed` → `>=0.19.3`), and what it costs.

    The lower bound of each version is a release that exists: the one tried before advising, and the one
    that commands install (`tried`, once the judge has passed it).
    """

    set: tuple[tuple[str, str | int | bool], ...]
    cost: str = ""
    tried: tuple[tuple[str, Value], ...] = ()


class NoFix(NamedTuple):
    """A change that is often advised against a rule and leaves it broken, why, and who found that (a URL)."""

    set: tuple[tuple[str, str | int | bool], ...]
    why: str
    source: str


class Rule(NamedTuple):
    """A forbidden combination: some table of `when` holds and, if there is one, `require` does not."""

    id: str
    severity: Severity
    basis: Basis
    title: str
    when: tuple[When, ...]
    require: When = ()
    fixes: tuple[Fix, ...] = ()
    sources: tuple[Source, ...] = ()
    why: str = ""
    group: str = ""  # the file it came from, or "requires-dist" for a generated one
    no_fixes: tuple[NoFix, ...] = ()


class Requirement(NamedTuple):
    """One `Requires-Dist` line that binds here: package, what it requires, within which bounds."""

    package: str
    requires: str
    specifier: str
    source: str


class UserRequirement(NamedTuple):
    """A bound that somebody puts on a lock: package, PEP 440 specifier (empty: any version), and who asks.

    `origin` is what a person would look up: `--with trl`, `requirements.txt line 3`. One that is not
    `wanted` binds the package only if something else brings it.
    """

    package: str
    specifier: str
    origin: str
    wanted: bool = True


class Target(NamedTuple):
    """A recipe: packages wanted, the training facts it implies, and which of them pin may change."""

    name: str
    title: str
    packages: tuple[str, ...]
    train: Mapping[str, str | int | bool]
    free: tuple[str, ...] = ()
    build: tuple[str, ...] = ()  # packages that exist as sdists only and must be built on install
    note: str = ""


OUTCOMES = ("ok", "fails", "imports", "not-installable")
"""It trained, it did not, it was imported and no more, no installer can bring it together."""


class Cell(NamedTuple):
    """A combination that was run: known good, or known bad by `rule`."""

    target: str
    outcome: str  # one of OUTCOMES
    pkg: Mapping[str, str]
    device: str
    date: str
    test: str
    rule: str = ""
    train: Mapping[str, str | int | bool] = EMPTY_MAPPING


class Default(NamedTuple):
    """A value a fact has when nobody gave it and `when` holds; rows are tried in order."""

    key: str
    value: str | int | bool
    when: When
    source: str


class Origin(NamedTuple):
    """A file of the user's own that was laid over the shipped knowledge, what named it, what it brought."""

    name: str
    named_by: str
    brings: str


class Matrix(NamedTuple):
    """Everything known. `tables` are rows by table name: torch, variant, family, toolkit, gpu, …."""

    rules: tuple[Rule, ...]
    targets: Mapping[str, Target]
    cells: tuple[Cell, ...]
    defaults: tuple[Default, ...]
    tables: Mapping[str, list[dict[str, Any]]]
    known_through: Mapping[str, str]
    moves_with: Mapping[str, tuple[str, ...]]
    updated: str
    digest: str
    machines: Mapping[str, Mapping[str, Any]] = EMPTY_MAPPING
    origins: tuple[Origin, ...] = ()  # overlays, in the order they were laid

    def rule(self, rule_id: str) -> Rule | None:
        """The rule with this id, or None."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def overlaid(self) -> frozenset[str]:
        """Ids of the rules that an overlay brought: what is said of a shipped namesake is not of them."""
        files = {origin.name for origin in self.origins}
        return frozenset(rule.id for rule in self.rules if rule.group in files)
