"""The nouns of envcheck: facts and what is known of them, rules over facts, and what judging gives.

Everything here is a frozen value. Nothing here reads, writes, or knows what time it is. Most are named
tuples: making one costs a ninth of a frozen dataclass, and start-up is the product. For the same reason
annotations are not postponed here: a named tuple compiles each one that is a text.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from envcheck.core.i18n import ENGLISH, Language

# --- places and errors ------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where something stands: line and column from 1, in characters; line 0 is the file as a whole.

    `excerpt` is the line it stands on, or the part of a long line that begins after `cut` characters.
    """

    file: str
    line: int = 0
    column: int = 0
    length: int = 1
    excerpt: str = ""
    cut: int = 0

    def __str__(self) -> str:
        """`ds.json:7:23`."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class EnvcheckError(Exception):
    """Something the user can mend; `cli` prints it as one line and exits with `code`."""

    code = 2


class InputError(EnvcheckError):
    """Unreadable or malformed input; says the file, the position and what was expected."""

    def __init__(self, where: str | Place, problem: str) -> None:
        """Join the place (`file`, `file:line:column` or `file: key.path`) with what is wrong there."""
        super().__init__(f"{where}: {problem}")
        self.place = Place(where) if isinstance(where, str) else where
        self.where = str(where)
        self.problem = problem


class ExamineError(EnvcheckError):
    """The environment could not be examined at all: neither a pass nor a bad machine."""

    code = 3


class NoSolutionError(EnvcheckError):
    """No versions satisfy the target on this machine."""

    code = 4


# --- three-valued logic -----------------------------------------------------------------------------


class Tri(enum.IntEnum):
    """No < maybe < yes: "and" is `min`, "or" is `max`, and a maybe never hides a no or a yes."""

    NO = 0
    MAYBE = 1
    YES = 2

    @staticmethod
    def of(answer: bool) -> "Tri":
        """A decided answer."""
        return Tri.YES if answer else Tri.NO

    def negated(self) -> "Tri":
        """Not: maybe stays maybe."""
        return Tri(2 - self)


# --- readings and facts -----------------------------------------------------------------------------

_NOTHING: Mapping[str, Any] = MappingProxyType({})

Value: TypeAlias = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """It was read, and this is what it is."""

    value: Value


@dataclass(frozen=True, slots=True)
class Absent:
    """It was looked for and is not there."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It could not be read, and why; or nobody gave it (`asked` is False), which is nobody's fault."""

    why: str
    asked: bool = True


Reading: TypeAlias = Known | Absent | Unknown

NOT_GIVEN = Unknown("not given", asked=False)


class Kind(enum.Enum):
    """What values a fact may take, and so which comparisons a rule may make with it."""

    VERSION = "version"  # a string that `versions` compares
    NUMBER = "number"  # a whole number
    WORD = "word"
    FLAG = "flag"
    WORDS = "words"  # a list of words; a rule asks whether one of them is there


class Key(NamedTuple):
    """What a fact's name means: its kind, its unit in words, its closed set of words if it has one.

    `phrases` say a value as people do (`{"3": "ZeRO-3"}`), for sentences such as "if ZeRO-3 and …";
    `"*"` is for every other value, which takes the place of its `{}`.
    """

    kind: Kind
    help: str
    words: tuple[str, ...] = ()
    phrases: Mapping[str, str] = _NOTHING


class Fact(NamedTuple):
    """One thing read, or not, and where: a file, an API, a command, a table."""

    key: str
    reading: Reading
    source: str = ""

    @property
    def value(self) -> Value | None:
        """The value if it is known, else None."""
        return self.reading.value if isinstance(self.reading, Known) else None


def family(key: str) -> str:
    """The part before the first dot: `pkg` of `pkg.torch`."""
    return key.partition(".")[0]


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 spells it: `flash-attn` of `Flash_Attn`."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def of_device(key: str) -> bool:
    """Whether a key belongs to one GPU (`gpu.memory_mib`) and not to the machine (`gpus.count`)."""
    return key.startswith("gpu.")


class Vocabulary:
    """The closed set of keys. `pkg.*` admits any distribution, `pkg.*.editable` a detail of any."""

    def __init__(self, keys: Mapping[str, Key]) -> None:
        """Take the declared keys, patterns with `*` in the second place included."""
        self.keys = MappingProxyType(dict(keys))

    def get(self, key: str) -> Key | None:
        """What the key means, or None if nobody declared it."""
        found = self.keys.get(key)
        if found is not None:
            return found
        head, dot, rest = key.partition(".")
        name, dot2, detail = rest.partition(".")
        return self.keys.get(f"{head}.*{dot2}{detail}") if dot and name else None

    def nearest(self, key: str) -> str | None:
        """The declared key most like a misspelt one."""
        from difflib import get_close_matches

        head, _, rest = key.partition(".")
        name, _, _ = rest.partition(".")
        candidates = [known.replace("*", name, 1) if name else known for known in self.keys]
        # A wrong family with a right rest ("driverr.version") is nearer than anything else.
        close = get_close_matches(key, candidates, n=1, cutoff=0.6)
        return close[0] if close and head else None


Facts: TypeAlias = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All facts of one machine, one Python environment and one training configuration.

    `devices` holds the `gpu.*` facts of each GPU in the driver's order. `complete` names the families
    that were read to the end, so that a key missing from them is Absent; `unread` says why a family
    or a single key could not be read. A key in none of these was simply not given.
    """

    facts: Facts = field(default_factory=dict)
    devices: tuple[Facts, ...] = ()
    complete: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)

    def fact(self, key: str, device: int | None = None) -> Fact:
        """The fact under a key; of the given device if the key belongs to one. Never raises."""
        if device is not None and of_device(key):
            found = self.devices[device].get(key)
        else:
            found = self.facts.get(key)
        if found is not None:
            return found
        if (why := self.unread.get(key)) is not None:
            return Fact(key, Unknown(why))
        name = family(key)
        if name in self.complete:
            return Fact(key, Absent(), f"not among the {name} facts")
        if (why := self.unread.get(name)) is not None:
            return Fact(key, Unknown(why))
        return Fact(key, NOT_GIVEN)

    def known(self, key: str, device: int | None = None) -> Value | None:
        """The value under a key if it is known, else None."""
        return self.fact(key, device).value

    def with_facts(self, facts: Iterable[Fact]) -> "Inventory":
        """The same with these facts of the machine added or replaced."""
        return replace(self, facts={**self.facts, **{fact.key: fact for fact in facts}})

    def without(self, *keys: str) -> "Inventory":
        """The same as if these facts had never been read."""
        return replace(self, facts={key: fact for key, fact in self.facts.items() if key not in keys})

    def visible_devices(self) -> tuple[int, ...]:
        """Indices of the GPUs a process here can use: all that are not known to be hidden."""
        return tuple(
            index for index in range(len(self.devices)) if self.known("gpu.visible", index) is not False
        )

    @staticmethod
    def merged(parts: Sequence["Inventory"]) -> "Inventory":
        """One inventory of several; a later part's facts replace an earlier one's."""
        facts: dict[str, Fact] = {}
        unread: dict[str, str] = {}
        complete: frozenset[str] = frozenset()
        devices: tuple[Facts, ...] = ()
        for part in parts:
            facts.update(part.facts)
            unread.update(part.unread)
            complete |= part.complete
            devices = part.devices or devices
        return Inventory(facts, devices, complete, unread)


# --- knowledge --------------------------------------------------------------------------------------


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


class Wish(NamedTuple):
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
    train: Mapping[str, str | int | bool] = _NOTHING


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
    machines: Mapping[str, Mapping[str, Any]] = _NOTHING
    origins: tuple[Origin, ...] = ()  # overlays, in the order they were laid

    def rule(self, rule_id: str) -> Rule | None:
        """The rule with this id, or None."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def overlaid(self) -> frozenset[str]:
        """Ids of the rules that an overlay brought: what is said of a shipped namesake is not of them."""
        files = {origin.name for origin in self.origins}
        return frozenset(rule.id for rule in self.rules if rule.group in files)


# --- judgement --------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    """What became of one rule."""

    BROKEN = "broken"
    UNDECIDED = "undecided"  # it asks for something that was looked for and could not be read
    WAITING = "waiting"  # it asks for something nobody gave
    HELD = "held"


class Because(NamedTuple):
    """A fact that made a rule hold, with the device it belongs to, if any."""

    fact: Fact
    device: int | None = None
    note: str = ""


class Finding(NamedTuple):
    """A rule that is broken or undecided here, why, and the ways out that were tried and judged fine."""

    rule: Rule
    verdict: Verdict
    severity: Severity
    because: tuple[Because, ...]
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
    held: int  # rules decided: the combination is not there
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


class Unmended(NamedTuple):
    """A broken rule that no change of packages or configuration mends, and why."""

    rule: Rule
    why: str


class Plan(NamedTuple):
    """The smallest change after which the judge passes, and what no change mends.

    `brings` are rules below `level` that are broken after it and were not before. `proved` says what
    was shown of it: `smallest`, `fewest` (no fewer moves will do, as few may be smaller), or nothing.
    """

    moves: tuple[Move, ...]
    unmended: tuple[Unmended, ...]
    level: Severity
    brings: tuple[Rule, ...] = ()
    added: tuple[str, ...] = ()  # packages that are not here and that an installer brings along
    proved: str = "smallest"
    states: int = 0  # judged


UNREADABLE = "unreadable"
"""The code of a remark on an input that could not be read: what was judged is not the whole."""


class Remark(NamedTuple):
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


Told = TypeVar("Told", bound=Finding | Remark)


def worst_first(found: Iterable[Told]) -> tuple[Told, ...]:
    """What is wrong by severity, then what is undecided; equals in the order given."""
    return tuple(sorted(found, key=_badness))


def _badness(told: Finding | Remark) -> tuple[bool, int]:
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
    places: Mapping[str, Place] = _NOTHING
    remarks: tuple[Remark, ...] = ()  # on the training configurations, worst first

    @property
    def told(self) -> tuple[Finding | Remark, ...]:
        """All that is to be told, worst first; at each severity what is wrong with a configuration leads."""
        return worst_first((*self.remarks, *self.judgement.findings))
