"""What judging produces: findings, diagnostics, plans, and the report that a format renders.

Everything here is a frozen value. These classes are named tuples because they are on the start-up path; see
`envcheck.core.facts`.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from envcheck.core.errors import Place
from envcheck.core.facts import EMPTY_MAPPING, Fact, Inventory, Value
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.rules import Cell, Fix, Matrix, Rule, Severity, Target, When


class Verdict(enum.Enum):
    """What became of one rule."""

    BROKEN = "broken"
    UNDECIDED = "undecided"  # it asks for something that was looked for and could not be read
    WAITING = "waiting"  # it asks for something nobody gave
    PASSED = "held"  # the JSON name


class Evidence(NamedTuple):
    """A fact that made a rule hold, with the device it belongs to, if any."""

    fact: Fact
    device: int | None = None
    note: str = ""


class Finding(NamedTuple):
    """A rule that is broken or undecided here, why, and the ways out that were tried and judged fine."""

    rule: Rule
    verdict: Verdict
    severity: Severity
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...] = ()
    devices: tuple[int, ...] = ()  # the GPUs concerned, if only some are
    note: str = ""


class Waiting(NamedTuple):
    """A rule that could not be asked: the family it waits for, and the clauses left open."""

    rule: Rule
    reason: str  # "training", "GPU", or a fact family
    open: When


class Judgement(NamedTuple):
    """Findings, worst first, and what became of every other rule."""

    findings: tuple[Finding, ...]
    waiting: tuple[Waiting, ...]
    passed: int  # rules decided: the combination is not there
    applied: int  # rules decided either way

    def tally(self, verdict: Verdict, severity: Severity | None = None) -> int:
        """How many findings have this verdict (and severity)."""
        return sum(
            finding.verdict is verdict and severity in (None, finding.severity) for finding in self.findings
        )


class Measured(NamedTuple):
    """The measured combination nearest to what is installed, and where they differ.

    `differences` are (package, version here or "not installed", version there); none of them means
    that this very combination was run.
    """

    cell: Cell
    differences: tuple[tuple[str, str, str], ...]


class Move(NamedTuple):
    """One thing to change: a package, a training fact, a setting, or what an administrator must do.

    `before` is None for what is not there or not known, `after` for a companion whose release nobody knows.
    """

    key: str
    before: Value | None
    after: Value | None
    bound: str  # what was asked for: `>=0.19.3`; `after` is its first release
    rules: tuple[Rule, ...]  # what would be broken without this move
    cost: str = ""
    proposed_by: Rule | None = None  # whose `cost` this is
    leader: str = ""  # the package it moves with; empty for a move of its own
    install: str = ""  # what an installer is asked for: `deepspeed==0.19.3`
    unchecked: str = ""  # what nobody looked up of this release; empty if it is known to install here
    administrator: bool = False  # neither an installer nor a configuration changes it


class Unresolved(NamedTuple):
    """A broken rule that no change of packages or configuration mends, and why."""

    rule: Rule
    why: str


class Plan(NamedTuple):
    """The smallest change after which the judge passes, and what no change mends.

    `brings` are rules below `level` that are broken after it and were not before. `proved` says what
    was shown of it: `smallest`, `fewest` (no fewer moves will do, as few may be smaller), or nothing.
    """

    moves: tuple[Move, ...]
    unresolved: tuple[Unresolved, ...]
    level: Severity
    brings: tuple[Rule, ...] = ()
    added: tuple[str, ...] = ()  # packages that are not here and that an installer brings along
    proved: str = "smallest"
    states: int = 0  # judged


UNREADABLE = "unreadable"
"""The code of a remark on an input that could not be read: what was judged is not the whole."""


class Diagnostic(NamedTuple):
    """What is wrong with a configuration itself, whatever the environment: a misspelt key, a contradiction.

    `code` names the kind of mistake (`unknown-key`), `places` all that take part in it, the first foremost;
    `source` is the code of the program that says so.
    """

    severity: Severity
    code: str
    text: str
    places: tuple[Place, ...]
    advice: str = ""
    source: str = ""


Reported = TypeVar("Reported", bound=Finding | Diagnostic)


def worst_first(found: Iterable[Reported]) -> tuple[Reported, ...]:
    """What is wrong by severity, then what is undecided; equals in the order given."""
    return tuple(sorted(found, key=_badness))


def _badness(told: Finding | Diagnostic) -> tuple[bool, int]:
    return isinstance(told, Finding) and told.verdict is Verdict.UNDECIDED, -told.severity.rank


class Report(NamedTuple):
    """What a format renders: what was examined, what is known, what came out.

    `places` are those in the user's own files, by the key of the fact that was read there.
    """

    version: str
    subject: str  # the environment, as the first line names it
    inventory: Inventory
    judgement: Judgement
    matrix: Matrix
    target: Target | None = None
    measured: Measured | None = None
    nothing_to_judge: str = ""
    plan: Plan | None = None  # only where it was asked for
    language: Language = ENGLISH  # of the formats for people
    fail_on: Severity = Severity.ERROR  # the least severity that fails
    undecided_fails: bool = False
    waived: frozenset[str] = frozenset()  # ids of rules, and `remark:code`, that fail nothing
    places: Mapping[str, Place] = EMPTY_MAPPING
    diagnostics: tuple[Diagnostic, ...] = ()  # on the training configurations, worst first

    @property
    def reported(self) -> tuple[Finding | Diagnostic, ...]:
        """All that is to be told, worst first; at each severity what is wrong with a configuration leads."""
        return worst_first((*self.diagnostics, *self.judgement.findings))
