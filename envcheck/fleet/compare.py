"""Many inventories → one report: what each breaks, what is not alike, and whether a job may start. Pure.

A record is a facts file of one node. Nodes that look the same to the judge are one machine, judged once. What
they should have alike, and how bad it is if they have not, is said in compat/tables/fleet.toml. Records are
taken one by one and forgotten: memory grows with names and with what differs, not with what was read.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from envcheck.core import facts_file
from envcheck.core.errors import InputError
from envcheck.core.facts import (
    Absent,
    Facts,
    Inventory,
    Kind,
    Known,
    Reading,
    Unknown,
    Value,
    Vocabulary,
    family,
    is_device_key,
    is_package_detail_key,
)
from envcheck.core.findings import Diagnostic, Evidence, Finding, Judgement, Verdict
from envcheck.core.rules import Clause, Matrix, Ref, Severity
from envcheck.rules.clauses import referenced_keys

LARGEST_RECORD = 4 * 1024 * 1024
"""Bytes of one node's facts; one with six hundred packages has a fiftieth of it."""

MOST_GPUS = 1024
MOST_COMPARED = 1000
"""Facts that are compared in a whole fleet: each costs a look at every node, and variables have any name."""

LONGEST_NAME = 253
"""Characters of a node's name, as of a host's in the DNS."""

NAME = "host.name"


class NodeRecord(NamedTuple):
    """The facts of a node as they came, where from (`facts.jsonl:17`), and its name if it says none."""

    where: str
    text: str
    name: str


# --- what should be alike ---------------------------------------------------------------------------


class Alike(NamedTuple):
    """A row of the table: what it is if nodes differ in these facts (None: nothing), and why."""

    key: str
    name: str
    differ: Severity | None
    why: str
    source: str
    gpus: str = ""  # of several GPUs: `each` value once, or the `least`
    within: float = 0.0
    together: bool = False
    follows: str = ""

    def covers(self, key: str) -> bool:
        """Whether the row speaks of a fact."""
        return key.startswith(self.key[:-1]) if self.key.endswith("*") else key == self.key


def alike(rows: Iterable[Mapping[str, Any]], may_differ: Sequence[str] = ()) -> tuple[Alike, ...]:
    """The rows of the table; those that `may_differ` names, by key or name, are notes at most.

    Raises:
        InputError: it names what no row speaks of.
    """
    read = [
        Alike(
            row["key"],
            row.get("name", ""),
            None if row["differ"] == "nothing" else Severity(row["differ"]),
            row["why"],
            row["source"],
            row.get("gpus", ""),
            row.get("within", 0.0),
            row.get("together", False),
            row.get("follows", ""),
        )
        for row in rows
    ]
    named = {word for row in read for word in (row.key, row.name)}
    apart = []
    for said in may_differ:
        if said not in named:
            wider = next((row for row in read if row.covers(said)), None)
            if wider is None:
                raise InputError(f"--may-differ {said}", "nothing of that key or name is compared")
            apart.append(wider._replace(key=said, name="", differ=Severity.NOTE, together=False))
    told = (
        row._replace(differ=Severity.NOTE) if row.differ and {row.key, row.name} & {*may_differ} else row
        for row in read
    )
    return (*apart, *told)


# --- what the judge sees ----------------------------------------------------------------------------

_DERIVED_FROM = frozenset({"host.os", "host.arch"})
_PASSING = frozenset({"gpu.memory_free_mib", "python.origin", "gpus.models"})


class View(NamedTuple):
    """Which facts the judge can tell machines apart by, and where a number begins to mean another thing."""

    asked: frozenset[str]
    bounds: Mapping[str, tuple[int, ...]]
    pairs: tuple[tuple[str, str], ...]  # numbers of the machine that rules compare with one another

    def sees(self, key: str) -> bool:
        """Whether the judge can tell two machines apart by this fact.

        Of the machine itself and its variables only what rules ask for; packages and GPUs by all there is.
        """
        if key in self.asked:
            return True
        return family(key) not in ("host", "env") and key not in _PASSING


def view(known: Matrix) -> View:
    """What the rules and defaults ask for."""
    clauses = [
        *(clause for rule in known.rules for table in (*rule.when, rule.require) for clause in table),
        *(clause for default in known.defaults for clause in default.when),
    ]
    asked = {key for clause in clauses for key in (clause.key, *referenced_keys(clause))}
    bounds: dict[str, set[int]] = {}
    pairs = {(clause.key, key) for clause in clauses for key in referenced_keys(clause)}
    among = {pair for pair in pairs if {family(key) for key in pair} == {"host"}}
    compared = {key for pair in pairs - among for key in pair}
    for clause in clauses:
        if clause.kind is Kind.NUMBER and family(clause.key) in ("host", "gpu"):
            bounds.setdefault(clause.key, set()).update(_operands(clause))
    for key in (key for pair in among for key in pair):
        bounds.setdefault(key, set())
    return View(
        frozenset(asked) | _DERIVED_FROM,
        {key: tuple(sorted(each)) for key, each in bounds.items() if key not in compared},
        tuple(sorted(among)),
    )


def _operands(clause: Clause) -> Iterator[int]:
    for test in (test for tests in clause.any_of for test in tests):
        if not isinstance(test.operand, Ref) and not isinstance(test.operand, bool):
            yield int(test.operand)


def _seen(inventory: Inventory, by: View) -> Any:
    """What the judge sees of an inventory, to be compared and hashed."""

    def reading(key: str, read: Reading) -> Any:
        if isinstance(read, Known) and key in by.bounds and isinstance(read.value, int):
            return _side(by.bounds[key], read.value)
        return read

    def read(facts: Facts) -> Any:
        return tuple(sorted((key, reading(key, fact.reading)) for key, fact in facts.items() if by.sees(key)))

    return (
        read(inventory.facts),
        tuple(_order_of(inventory, pair) for pair in by.pairs),
        tuple(read(device) for device in inventory.devices),
        inventory.complete,
        tuple(sorted((key, why) for key, why in inventory.unread.items() if by.sees(key))),
    )


def _side(bounds: Sequence[int], number: int) -> tuple[int, bool]:
    """Where a number lies among bounds, and whether on one."""
    return bisect_left(bounds, number), number in bounds


def _order_of(inventory: Inventory, pair: tuple[str, str]) -> int | None:
    """Which of two numbers is the greater, as -1, 0 or 1; None if one is not known."""
    one, other = (inventory.fact(key).value for key in pair)
    return (one > other) - (one < other) if isinstance(one, int) and isinstance(other, int) else None


# --- what is compared -------------------------------------------------------------------------------

Said: TypeAlias = str | int | Unknown | None
"""What a node says of one thing: text or number, None if it is not there, or why it is not known."""


class Profile(NamedTuple):
    """What is compared of a node: each key's value, and the packages behind a digest."""

    values: Mapping[str, Said]
    complete: frozenset[str]
    parts: Mapping[str, Mapping[str, str]]

    def said(self, key: str) -> Said:
        """The value under a key; of a family that was read to the end, what is missing is not there."""
        if key in self.values:
            return self.values[key]
        return None if family(key) in self.complete else Unknown("not given", asked=False)


def _profile(inventory: Inventory, rows: Sequence[Alike]) -> Profile:
    values: dict[str, Said] = {}
    parts: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.key.endswith("*"):
            continue
        values[row.key] = (
            _of_gpus(inventory, row) if is_device_key(row.key) else _read(_fact(inventory, row.key))
        )
    patterns = [row for row in rows if row.key.endswith("*")]
    for key, fact in inventory.facts.items():
        if key in values or is_package_detail_key(key):
            continue
        by = next((row for row in patterns if row.covers(key)), None)
        if by is None or by.differ is None:
            continue
        if not by.together:
            values[key] = _read(fact.reading)
        elif isinstance(fact.reading, Known):
            parts.setdefault(by.key, {})[key.partition(".")[2]] = _text(fact.value)
    for row in patterns:
        if row.together:
            values[row.key] = _digest(inventory, row, parts.get(row.key, {}))
    return Profile({k: v for k, v in values.items() if not _ungiven(v)}, inventory.complete, parts)


def _ungiven(said: Said) -> bool:
    return isinstance(said, Unknown) and not said.asked


def _fact(inventory: Inventory, key: str) -> Reading:
    if key != "gpus.visible" or not inventory.devices:
        return inventory.fact(key).reading
    for device in inventory.devices:
        visible = device.get("gpu.visible")
        if visible is not None and isinstance(visible.reading, Unknown):
            return visible.reading
    return Known(len(inventory.visible_devices()))


def _of_gpus(inventory: Inventory, row: Alike) -> Said:
    read = [_read(inventory.fact(row.key, number).reading) for number in range(len(inventory.devices))]
    for each in read:
        if isinstance(each, Unknown):
            return each
    if not read:
        return Unknown("no GPU", asked=False)
    numbers = [each for each in read if isinstance(each, int)]
    if row.gpus == "least":
        return min(numbers) if len(numbers) == len(read) else None
    return " and ".join(dict.fromkeys("none" if each is None else str(each) for each in read))


def _read(reading: Reading) -> Said:
    match reading:
        case Known(value):
            return value if isinstance(value, int) and not isinstance(value, bool) else _text(value)
        case Absent():
            return None
        case _:
            return reading


def _text(value: Value | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _digest(inventory: Inventory, row: Alike, parts: Mapping[str, str]) -> Said:
    """One value for all of a family: packages by name and version, as a lock would pin them."""
    name = family(row.key)
    if name not in inventory.complete:
        why = inventory.unread.get(name)
        return Unknown("not given", asked=False) if why is None else Unknown(why)
    lines = "".join(f"{key}=={parts[key]}\n" for key in sorted(parts))
    return f"sha256:{hashlib.sha256(lines.encode('utf-8', 'replace')).hexdigest()[:12]}"


# --- taking records ---------------------------------------------------------------------------------


class RefusedRecord(NamedTuple):
    """A record that could not be read: where, what is wrong, and the node it names if that much was read."""

    where: str
    problem: str
    name: str = ""


class Twice(NamedTuple):
    """A name that came again: the earlier place, the later one, which counts, and whether they agree."""

    name: str
    first: str
    last: str
    same: bool


class Judged(NamedTuple):
    """What the judge says of a machine; `nothing` says why there is nothing to judge, if there is nothing."""

    judgement: Judgement
    nothing: str = ""


class _NodeState(NamedTuple):
    where: str
    machine: int
    profile: int


Examine: TypeAlias = Callable[[str, Inventory], Judged]


class Fleet:
    """Records as they come in, one after the other."""

    def __init__(
        self,
        words: Vocabulary,
        known: Matrix,
        rows: Sequence[Alike],
        complete: Callable[[Inventory], Inventory],
        examine: Examine,
    ) -> None:
        """Take the knowledge; `complete` adds what is said of all nodes, `examine` judges one machine."""
        self._words, self._rows = words, rows
        self._complete, self._examine = complete, examine
        self._view = view(known)
        self._texts: dict[bytes, tuple[int, int]] = {}
        self._machines: dict[Any, int] = {}
        self._profiles: dict[Any, int] = {}
        self._looked_at: dict[str, str] = {}
        self._keys: set[str] = set()
        self.judged: list[Judged] = []
        self.profiles: list[Profile] = []
        self.nodes: dict[str, _NodeState] = {}
        self.refused: list[RefusedRecord] = []
        self.twice: list[Twice] = []

    def take(self, record: NodeRecord, called: str = "") -> None:
        """Add one node, `called` so whatever it says; what is wrong with a record is kept as `refused`."""
        name = called
        try:
            tree = parsed(record.text, record.where)
            name = named(tree, record)
            name = called or name
            machine, profile = self._known(tree, record)
        except InputError as error:
            where, problem = error.where, error.problem
            self.refused.append(RefusedRecord(where, problem, name))
            return
        before = self.nodes.get(name)
        node = _NodeState(record.where, machine, profile)
        if before is not None:
            self.twice.append(Twice(name, before.where, record.where, before[1:] == node[1:]))
        self.nodes[name] = node

    def _known(self, tree: dict[str, Any], record: NodeRecord) -> tuple[int, int]:
        """The numbers of the machine and of the profile that a record shows."""
        for side in ("sources", "envcheck"):
            tree.pop(side, None)
        numbers = self._forget(tree, record.where)
        # Two records that hold the same in the same order show the same: of most nodes no more is asked.
        try:
            digest = hashlib.blake2b(marshal.dumps(tree, 2), digest_size=16).digest()
        except ValueError:  # a date of TOML
            raise InputError(record.where, "expected texts, whole numbers, true and false alone") from None
        found = self._texts.get(digest)
        if found is None:
            for table, key, number in numbers:
                table[key] = number
            found = self._texts[digest] = self._new(tree, record)
        return found

    def _forget(self, tree: dict[str, Any], where: str) -> list[tuple[dict[str, Any], str, int]]:
        """Take out of a record what neither the judge nor a comparison looks at.

        A number of which only the side of a bound counts gives way to that side, and is given back.
        """
        numbers: list[tuple[dict[str, Any], str, int]] = []
        gpus = tree["gpu"] if isinstance(tree.get("gpu"), list) else []
        tables = [(name, tree.get(name)) for name in ("host", "env", "python")] + [
            ("gpu", row) for row in gpus
        ]
        for name, table in tables:
            if not isinstance(table, dict):
                continue
            for key in list(table):
                counts = self._counts(f"{name}.{key}")
                if counts is _WHOLE:
                    continue
                if counts is _NOT:
                    _checked(table[key], f"{where}: {name}.{key}")
                    del table[key]
                elif type(table[key]) is int:
                    numbers.append((table, key, table[key]))
                    table[key] = _side(self._view.bounds[f"{name}.{key}"], table[key])
        return numbers

    def _counts(self, key: str) -> str:
        """How anybody looks at a fact; what is no fact at all is left in, to be refused."""
        found = self._looked_at.get(key)
        if found is None:
            row = next((row for row in self._rows if row.covers(key)), None)
            if (row is not None and row.differ is not None) or self._words.get(key) is None:
                found = _WHOLE
            elif not self._view.sees(key):
                found = _NOT
            else:
                among = any(key in pair for pair in self._view.pairs)
                found = _BY_SIDE if key in self._view.bounds and not among else _WHOLE
            if len(self._looked_at) < _MOST_KEYS:
                self._looked_at[key] = found
        return found

    def _new(self, tree: Mapping[str, Any], record: NodeRecord) -> tuple[int, int]:
        rows = tree.get("gpu", [])
        if isinstance(rows, list) and len(rows) > MOST_GPUS:
            raise InputError(record.where, f"{len(rows)} GPUs: more than {MOST_GPUS} in one node")
        inventory = self._complete(facts_file.load(tree, record.where, self._words))
        profile = _profile(inventory, self._rows)
        keys = self._keys | profile.values.keys()
        if len(keys) > MOST_COMPARED:
            more = "variables than are compared: with those before more than"
            raise InputError(record.where, f"brings more {more} {MOST_COMPARED}")
        self._keys = keys
        shown = (tuple(sorted((key, _order(said)) for key, said in profile.values.items())), profile.complete)
        seen = _seen(inventory, self._view)
        machine = self._machines.get(seen)
        if machine is None:
            self.judged.append(self._examine(record.where, inventory))
            machine = self._machines[seen] = len(self.judged) - 1
        number = self._profiles.get(shown)
        if number is None:
            self.profiles.append(profile)
            number = self._profiles[shown] = len(self.profiles) - 1
        return machine, number


_MOST_KEYS = 4096  # variables have any name
_NOT, _BY_SIDE, _WHOLE = "not", "by the side of a bound", "whole"


def _order(said: Said) -> tuple[str, str]:
    return type(said).__name__, said.why if isinstance(said, Unknown) else str(said)


def _checked(raw: Any, where: str) -> None:
    """What nobody looks at has to be a value all the same: a file is not half right."""
    if isinstance(raw, (dict, float)) or raw is None:
        raise InputError(where, f"expected a value, found {type(raw).__name__}")


_HEADER = re.compile(r"""\[{1,2}[\w."'-]+\]{1,2}[ \t]*(?:\#|\r?\n|\Z)""")  # [host], [[gpu]]: TOML, no list


def parsed(text: str, where: str) -> dict[str, Any]:
    """The tree of one record, JSON or TOML by its content.

    Raises:
        InputError: it is neither, too long, or nested too deeply.
    """
    if len(text) > LARGEST_RECORD:
        raise InputError(where, f"longer than {LARGEST_RECORD} bytes")
    begun = text.lstrip("\ufeff \t\r\n")
    if begun[:1] == "{" or (begun[:1] == "[" and not _HEADER.match(begun)):
        return _json(text, where)
    import tomllib  # streams are JSON

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(where, f"neither JSON nor TOML: {error}") from None
    except RecursionError:
        raise InputError(where, "nested too deeply") from None


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        tree = json.loads(text.lstrip("\ufeff"), parse_constant=_no_number)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or "Unterminated" in error.msg
        why = "ends in the middle" if cut else f"{error.msg[:1].lower()}{error.msg[1:]}"
        at = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise InputError(where, f"not JSON: {why} ({at})") from None
    except RecursionError:
        raise InputError(where, "not JSON: nested too deeply") from None
    except ValueError as error:
        raise InputError(where, f"not JSON: {str(error).partition(';')[0]}") from None
    if not isinstance(tree, dict):
        raise InputError(where, f"expected a table of facts, found a {type(tree).__name__}")
    return tree


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def named(tree: dict[str, Any], record: NodeRecord) -> str:
    """The node's name: `host.name`, which is taken out, else that of the record.

    Raises:
        InputError: it is no name.
    """
    host = tree.get("host")
    name = host.pop("name", None) if isinstance(host, dict) else None
    if name is None:
        return record.name
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise InputError(f"{record.where}: {NAME}", f"expected a name of 1 to {LONGEST_NAME} characters")
    return name


# --- the report -------------------------------------------------------------------------------------


class Some(NamedTuple):
    """A value and the nodes that have it; `parts` says how it differs from the commonest."""

    value: str
    nodes: tuple[str, ...]
    parts: tuple[str, ...] = ()


class NodeDifference(NamedTuple):
    """What is not alike: its values, commonest first, and the nodes of which it is not known.

    `standing` says whether the first value is that of more than half (`majority`), of as many as the second
    (`tie`), or neither (`none`).
    """

    key: str
    name: str
    severity: Severity
    why: str
    source: str
    standing: str
    values: tuple[Some, ...]
    unread: tuple[Some, ...] = ()

    @property
    def odd(self) -> tuple[str, ...]:
        """The nodes that are in no majority."""
        others = self.values[1:] if self.standing == "majority" else self.values
        return tuple(name for each in others for name in each.nodes)


class NodeVariant(NamedTuple):
    """Why a finding holds on some of its nodes, and the GPUs it is about if these are not all."""

    because: tuple[Evidence, ...]
    devices: tuple[int, ...]
    note: str
    nodes: tuple[str, ...]


class FleetFinding(NamedTuple):
    """A finding once, with all the nodes it holds on; `finding` is that of the first variant."""

    finding: Finding
    nodes: tuple[str, ...]
    variants: tuple[NodeVariant, ...]


class Missing(NamedTuple):
    """A node, or a rank, that is not among the records, and why."""

    name: str
    why: str


class FleetReport(NamedTuple):
    """All that `fleet` says."""

    version: str
    updated: str
    rules: int
    nodes: tuple[str, ...]
    expected: int | None
    machines: int
    differences: tuple[NodeDifference, ...]
    findings: tuple[FleetFinding, ...]
    nothing: tuple[Some, ...]  # nodes without anything to judge, by the reason
    waiting: Mapping[str, int]  # rules that wait for what nobody gave, by that, on the commonest machine
    missing: tuple[Missing, ...] = ()
    refused: tuple[RefusedRecord, ...] = ()
    twice: tuple[Twice, ...] = ()
    late: tuple[str, ...] = ()  # records that came after the verdict
    stale: tuple[str, ...] = ()  # records of other jobs
    left_out: tuple[str, ...] = ()  # nodes that were not asked, and why
    remarks: tuple[Diagnostic, ...] = ()
    fail_on: Severity = Severity.ERROR

    @property
    def code(self) -> int:
        """The exit code: 0 it may start, 1 it may not, 3 nobody can tell."""
        level = self.fail_on.rank
        told = [each.severity for each in self.differences if len(each.values) > 1]
        told += [each.severity for each in self.remarks]
        told += [each.finding.severity for each in self.findings if each.finding.verdict is Verdict.BROKEN]
        if any(severity.rank >= level for severity in told):
            return 1
        unread = any(each.unread and each.severity is Severity.ERROR for each in self.differences)
        return 3 if unread or self.missing or self.refused or self.nothing or not self.nodes else 0

    @property
    def verdict(self) -> str:
        """The same in words."""
        return {0: "may start", 1: "may not start"}.get(self.code, "cannot tell")


class FleetContext(NamedTuple):
    """What the report says beside the records: who was expected, what came late, what is not of this job."""

    expected: tuple[str, ...] | int | None = None
    missing: tuple[Missing, ...] = ()
    late: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    fail_on: Severity = Severity.ERROR


def reported(
    fleet: Fleet, rows: Sequence[Alike], known: Matrix, version: str, setting: FleetContext
) -> FleetReport:
    """What the records come to."""
    by_machine: dict[int, list[str]] = {}
    by_profile: dict[int, list[str]] = {}
    for name, node in fleet.nodes.items():
        by_machine.setdefault(node.machine, []).append(name)
        by_profile.setdefault(node.profile, []).append(name)
    expected, missing = setting.expected, list(setting.missing)
    if isinstance(expected, tuple):
        here = {*fleet.nodes, *(name.partition(".")[0] for name in fleet.nodes)}
        here |= {each.name for each in missing} | {each.name for each in fleet.refused}
        missing += [Missing(name, "expected, and not there") for name in expected if name not in here]
        expected = len(expected)
    elif (
        isinstance(expected, int)
        and (lack := expected - len(fleet.nodes) - len(missing) - len(fleet.refused)) > 0
    ):
        missing.append(Missing("", f"{lack} of {expected} that are expected are not there"))
    return FleetReport(
        version,
        known.updated,
        len(known.rules),
        tuple(fleet.nodes),
        expected,
        len(by_machine),
        _differences(fleet.profiles, by_profile, rows),
        _findings(fleet.judged, by_machine),
        _nothing(fleet.judged, by_machine),
        _waiting(fleet.judged, by_machine),
        tuple(missing),
        tuple(fleet.refused),
        tuple(fleet.twice),
        setting.late,
        setting.stale,
        setting.left_out,
        setting.remarks,
        setting.fail_on,
    )


# --- findings, once ---------------------------------------------------------------------------------


def _findings(judged: Sequence[Judged], nodes: Mapping[int, list[str]]) -> tuple[FleetFinding, ...]:
    together: dict[tuple[str, Verdict, Severity], dict[Any, tuple[Finding, list[str]]]] = {}
    for machine, names in nodes.items():
        for finding in judged[machine].judgement.findings:
            variants = together.setdefault((finding.rule.id, finding.verdict, finding.severity), {})
            # Sources are paths of a node; the facts are what differs.
            shown = (
                tuple((*each.fact[:2], each.device, each.note) for each in finding.evidence),
                finding.devices,
            )
            variants.setdefault(shown, (finding, []))[1].extend(names)
    found = []
    for each in together.values():
        ordered = sorted(each.values(), key=lambda variant: -len(variant[1]))
        held = tuple(NodeVariant(one.evidence, one.devices, one.note, tuple(names)) for one, names in ordered)
        found.append(FleetFinding(ordered[0][0], tuple(name for one in held for name in one.nodes), held))
    found.sort(
        key=lambda each: (
            each.finding.verdict is not Verdict.BROKEN,
            -each.finding.severity.rank,
            -len(each.nodes),
            each.finding.rule.id,
        )
    )
    return tuple(found)


def _nothing(judged: Sequence[Judged], nodes: Mapping[int, list[str]]) -> tuple[Some, ...]:
    without: dict[str, list[str]] = {}
    for machine, names in nodes.items():
        if judged[machine].nothing:
            without.setdefault(judged[machine].nothing, []).extend(names)
    return tuple(Some(why, tuple(names)) for why, names in without.items())


def _waiting(judged: Sequence[Judged], nodes: Mapping[int, list[str]]) -> Mapping[str, int]:
    most = max(nodes, key=lambda machine: len(nodes[machine]), default=None)
    waiting = () if most is None else judged[most].judgement.waiting
    return Counter(each.reason for each in waiting)


# --- differences ------------------------------------------------------------------------------------


def _differences(
    profiles: Sequence[Profile], nodes: Mapping[int, list[str]], rows: Sequence[Alike]
) -> tuple[NodeDifference, ...]:
    found: dict[str, NodeDifference] = {}
    if len(nodes) > 1:
        here = {number: profiles[number] for number in nodes}
        patterns = [row for row in rows if row.key.endswith("*") and not row.together]
        plain = {row.key: row for row in rows if row not in patterns}
        matched = {
            key: next(row for row in patterns if row.covers(key))
            for key in sorted({key for each in here.values() for key in each.values} - plain.keys())
        }
        for key, row in (*plain.items(), *matched.items()):
            if row.differ is not None and (each := _difference(key, row, here, nodes)) is not None:
                found[key] = each
    followed = {row.key: row.follows for row in rows if row.follows}
    kept = [each for key, each in found.items() if not _only_follows(each, found.get(followed.get(key, "")))]
    kept.sort(key=lambda each: -each.severity.rank)
    return tuple(kept)


def _only_follows(one: NodeDifference, other: NodeDifference | None) -> bool:
    """Whether a difference parts the nodes as another does, which says it already."""
    if other is None:
        return False
    return {frozenset(each.nodes) for each in one.values} == {frozenset(each.nodes) for each in other.values}


def _difference(
    key: str, row: Alike, profiles: Mapping[int, Profile], nodes: Mapping[int, list[str]]
) -> NodeDifference | None:
    """What a key is on which nodes; None if it is alike wherever it is given."""
    values: dict[str | int | None, list[int]] = {}
    unread: dict[str, list[str]] = {}
    for number, profile in profiles.items():
        said = profile.said(key)
        if not isinstance(said, Unknown):
            values.setdefault(said, []).append(number)
        elif said.asked:
            unread.setdefault(said.why, []).extend(nodes[number])
    if not values or (len(values) == 1 and not unread):
        return None
    counted = {value: sum(len(nodes[number]) for number in numbers) for value, numbers in values.items()}
    if row.within:
        values = _within(values, counted, row.within)
    ordered = sorted(values.items(), key=lambda each: (-sum(len(nodes[n]) for n in each[1]), _order(each[0])))
    if len(ordered) == 1 and not unread:
        return None
    first = ordered[0][1][0]
    some = tuple(
        Some(
            _MISSING.get(family(key), "none") if value is None else str(value),
            tuple(name for number in numbers for name in nodes[number]),
            _parts(profiles[first].parts.get(key, {}), profiles[numbers[0]].parts.get(key, {}))
            if row.together
            else (),
        )
        for value, numbers in ordered
    )
    name = row.name or key.partition(".")[2]
    without = tuple(Some(why, tuple(names)) for why, names in unread.items())
    assert row.differ is not None  # noqa: S101 - rows that differ in nothing were passed over
    return NodeDifference(key, name, row.differ, row.why, row.source, _standing(some), some, without)


_MISSING = {"env": "not set", "pkg": "not installed", "train": "not given"}


def _within(
    values: Mapping[str | int | None, list[int]], counted: Mapping[str | int | None, int], share: float
) -> dict[str | int | None, list[int]]:
    """The values with each number that is as good as a commoner one counted there."""
    found: dict[str | int | None, list[int]] = {}
    for value in sorted(values, key=lambda each: (-counted[each], _order(each))):
        near = next(
            (
                other
                for other in found
                if isinstance(value, int) and isinstance(other, int) and abs(value - other) <= share * other
            ),
            value,
        )
        found.setdefault(near, []).extend(values[value])
    return found


def _standing(values: Sequence[Some]) -> str:
    counts = [len(each.nodes) for each in values]
    if len(counts) > 1 and counts[0] == counts[1]:
        return "tie"
    return "majority" if 2 * counts[0] > sum(counts) else "none"


def _parts(common: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """How the parts behind a digest differ from the commonest."""
    return tuple(
        f"{name} {other.get(name, 'not installed')} (not {common[name]})"
        if name in common
        else f"{name} {other[name]} (elsewhere not installed)"
        for name in sorted({*common, *other})
        if common.get(name) != other.get(name)
    )
