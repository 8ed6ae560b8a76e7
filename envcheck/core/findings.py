"""Results: findings of the judge, diagnostics on configurations, plans, and the report that formats render.

Everything here is a frozen value. These classes are named tuples because they are on the start-up path; see
`envcheck.core.facts`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TypeVar

from envcheck.core.errors import Place
from envcheck.core.facts import EMPTY_MAPPING, Fact, Inventory, Value
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Cell, Fix, Matrix, Rule, Severity, Target, When


class Verdict(enum.Enum):
    """Result of judging one rule."""

    BROKEN = "broken"
    UNDECIDED = "undecided"  # it needs a fact that could not be read
    WAITING = "waiting"  # it needs a fact that was not given
    PASSED = "held"  # the name in JSON output
    CONDITIONAL = "conditional"  # these versions fail in some trainings, and none was given


class Evidence(NamedTuple):
    """A fact that a verdict rests on, the device it belongs to, if any, and a note on how it was compared."""

    fact: Fact
    device: int | None = None
    note: str = ""


class Finding(NamedTuple):
    """A rule that is broken or undecided, the evidence, and the fixes that were tried and passed."""

    rule: Rule
    verdict: Verdict
    severity: Severity
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...] = ()
    devices: tuple[int, ...] = ()  # the GPUs that break the rule, if not all do
    note: str = ""
    place: Place | None = None  # in the user's own files, if it was found before reports were merged
    conditions: When = ()  # of a conditional finding: its undecided clauses

    @property
    def decided(self) -> bool:
        """Return whether the rule is broken; the severity of any other finding is only a possibility."""
        return self.verdict is Verdict.BROKEN


class Waiting(NamedTuple):
    """A rule that needs facts that were not given: what it waits for, and its undecided clauses."""

    rule: Rule
    reason: str  # "training", "GPU", or a fact family
    open: When


class Judgement(NamedTuple):
    """Results of judging a set of rules: findings, worst first, and the other outcomes."""

    findings: tuple[Finding, ...]
    waiting: tuple[Waiting, ...]
    passed: int  # decided rules whose forbidden combination is not present
    applied: int  # decided rules: passed and broken
    conditional: tuple[Finding, ...] = ()  # waiting rules that the versions here may break
    repeated: tuple[Finding, ...] = ()  # left out, because a hand-written rule covers them

    def tally(self, verdict: Verdict, severity: Severity | None = None) -> int:
        """Return the number of findings with this verdict, and this severity if one is given."""
        return sum(
            finding.verdict is verdict and severity in (None, finding.severity) for finding in self.findings
        )


class Measured(NamedTuple):
    """Measured combination that is nearest to what is installed, and where the two differ.

    `differences` are (package, installed version or "not installed", measured version). If there are none,
    this exact combination was measured.
    """

    cell: Cell
    differences: tuple[tuple[str, str, str], ...]


class Move(NamedTuple):
    """One change of a plan: to a package, a training fact, a setting, or by an administrator.

    `before` is None if the thing is absent or unknown, `after` if the release of a companion is unknown.
    """

    key: str
    before: Value | None
    after: Value | None
    bound: str  # the bound to satisfy: `>=0.19.3`; `after` is the first release in it
    rules: tuple[Rule, ...]  # the rules that are broken without this move
    cost: str = ""
    proposed_by: Rule | None = None  # the rule whose fix this is; `cost` is that of the fix
    leader: str = ""  # the package it moves with; empty for an independent move
    install: str = ""  # the requirement to install: `deepspeed==0.19.3`
    unchecked: str = ""  # what was not checked of this release; empty if it is known to install
    administrator: bool = False  # an installer or a configuration cannot make this change


class Unresolved(NamedTuple):
    """A broken rule that no change of packages or configuration fixes, and why."""

    rule: Rule
    why: str


class Plan(NamedTuple):
    """Smallest set of moves after which the judge passes, and the rules that no move fixes.

    `brings` are rules below `level` that only the moves break. `proved` states what the search proved:
    `smallest`; `fewest` (no plan has fewer moves, but one with as many may be smaller); or nothing.
    """

    moves: tuple[Move, ...]
    unresolved: tuple[Unresolved, ...]
    level: Severity
    brings: tuple[Rule, ...] = ()
    added: tuple[str, ...] = ()  # packages that are not installed and that an installer will add
    proved: str = "smallest"
    states: int = 0  # candidate states that the search judged


UNREADABLE = "unreadable"
"""The code of a diagnostic on an input that could not be read, so that the judgement is incomplete."""


class Diagnostic(NamedTuple):
    """A mistake in a configuration, whatever the environment: a misspelt key, a contradiction.

    `code` is the kind of mistake (`unknown-key`). `places` are all places involved, the main one first.
    `source` cites the program code that shows what is correct.
    """

    severity: Severity
    code: str
    text: str
    places: tuple[Place, ...]
    advice: str = ""
    source: str = ""


Reported = TypeVar("Reported", bound=Finding | Diagnostic)


def worst_first(found: Iterable[Reported]) -> tuple[Reported, ...]:
    """Sort by severity, undecided findings last; equals keep their order."""
    return tuple(sorted(found, key=_badness))


def _badness(item: Finding | Diagnostic) -> tuple[bool, int]:
    return isinstance(item, Finding) and item.verdict is Verdict.UNDECIDED, -item.severity.rank


class Question(enum.Enum):
    """Question that a report answers, one for each command."""

    DOCTOR = "doctor"  # will it train?
    CHECK = "check"  # may these files be installed?
    GATE = "gate"  # may this image or node be used?


class Verbosity(enum.Enum):
    """How much a text report says."""

    VERDICT = "verdict"  # the first line alone
    USUAL = "usual"
    ALL = "all"  # also reasons, sources and counts


JUDGED_TOGETHER = "judged for the "
"""Beginning of the reason why a fact is unknown if the files or machines of one report differ in it."""


class Report(NamedTuple):
    """What a format renders: what was examined, the facts, and the results.

    `places` are places in the user's files, by the key of the fact that was read there. `nothing_to_judge` is
    the reason why no rule could be judged; empty otherwise.
    """

    version: str
    subject: str  # the environment, as the first line names it
    inventory: Inventory
    judgement: Judgement
    matrix: Matrix
    target: Target | None = None
    measured: Measured | None = None
    nothing_to_judge: str = ""
    plan: Plan | None = None  # only if it was requested
    language: Language = ENGLISH  # of the formats that people read
    fail_on: Severity = Severity.ERROR  # the lowest severity that fails
    undecided_fails: bool = False
    undecided_ignored: bool = False
    waived: frozenset[str] = frozenset()  # rule ids and `remark:code`, which do not fail
    places: Mapping[str, Place] = EMPTY_MAPPING
    diagnostics: tuple[Diagnostic, ...] = ()  # mistakes in the training configurations, worst first
    question: Question = Question.DOCTOR  # the first line answers it
    verbosity: Verbosity = Verbosity.USUAL
    newer: Mapping[str, str] = EMPTY_MAPPING  # installed releases that are newer than the atlas

    @property
    def reported(self) -> tuple[Finding | Diagnostic, ...]:
        """Diagnostics and findings together, worst first; of the same severity, diagnostics first."""
        return worst_first((*self.diagnostics, *self.judgement.findings))
