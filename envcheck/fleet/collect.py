"""The collection of records: each is parsed, assigned to a machine and a profile, and discarded. Pure.

Memory grows with the number of names and with what differs between nodes, not with the size of the records.
Each distinct machine is judged once, when its first record arrives.
"""

from __future__ import annotations

import enum
import hashlib
import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from envcheck.core import facts_file
from envcheck.core.errors import InputError
from envcheck.core.facts import Inventory, Vocabulary
from envcheck.core.findings import Judgement
from envcheck.core.rules import Matrix
from envcheck.fleet.comparisons import FactComparison
from envcheck.fleet.grouping import judge_view, machine_key, side_of
from envcheck.fleet.profiles import Profile, profile_of, sort_key
from envcheck.fleet.records import MOST_GPUS, NodeRecord, RefusedRecord, parse_record, take_name

MOST_COMPARED = 1000
"""Largest number of facts compared in a fleet: each is compared on every node, and a record may hold any
number of environment variables."""

_MOST_REMEMBERED = 4096
"""Largest number of keys whose relevance is remembered; environment variables can have any name."""


class Judged(NamedTuple):
    """Judgement of a machine; `nothing` gives the reason if there was nothing to judge.

    `trains` says whether any training setting is known, from options or from the record.
    """

    judgement: Judgement
    nothing: str = ""
    trains: bool = False


class RepeatedRecord(NamedTuple):
    """A node with two records: the places of both, and whether they are equal. The later one counts."""

    name: str
    first: str
    last: str
    same: bool


Judge: TypeAlias = Callable[[str, Inventory], Judged]
"""Judge one machine; the text says where its record came from."""


class _NodeState(NamedTuple):
    where: str
    machine: int
    profile: int


class _Relevance(enum.Enum):
    """How much of a fact matters to the judge and to the comparison of nodes."""

    NONE = "none"
    SIDE = "the side of each bound that its number lies on"
    VALUE = "its value"


_Number: TypeAlias = tuple[dict[str, Any], str, int]
"""A number that was replaced in a record: its table, its key, and its original value."""


class Fleet:
    """Records taken so far.

    `judged` holds the judgement of each distinct machine and `profiles` each distinct profile. `nodes` gives
    the index of a node's machine and profile in these, by the node's name.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        known: Matrix,
        comparisons: Sequence[FactComparison],
        complete: Callable[[Inventory], Inventory],
        judge: Judge,
    ) -> None:
        """Take the knowledge; `complete` adds the facts common to all nodes, `judge` judges a machine."""
        self._vocabulary, self._comparisons = vocabulary, comparisons
        self._complete, self._judge = complete, judge
        self._view = judge_view(known)
        self._by_digest: dict[bytes, tuple[int, int]] = {}
        self._machines: dict[Any, int] = {}
        self._profiles: dict[Any, int] = {}
        self._relevances: dict[str, _Relevance] = {}
        self._keys: set[str] = set()
        self.judged: list[Judged] = []
        self.profiles: list[Profile] = []
        self.nodes: dict[str, _NodeState] = {}
        self.refused: list[RefusedRecord] = []
        self.twice: list[RepeatedRecord] = []

    def take(self, record: NodeRecord, called: str = "") -> None:
        """Add one node; a record that cannot be read is added to `refused`.

        `called` is the node's name if it is known already; it takes precedence over the name in the record.
        """
        name = called
        try:
            tree = parse_record(record.text, record.where)
            name = take_name(tree, record)
            name = called or name
            machine, profile = self._numbers(tree, record)
        except InputError as error:
            self.refused.append(RefusedRecord(error.where, error.problem, name))
            return
        before = self.nodes.get(name)
        node = _NodeState(record.where, machine, profile)
        if before is not None:
            self.twice.append(RepeatedRecord(name, before.where, record.where, before[1:] == node[1:]))
        self.nodes[name] = node

    def _numbers(self, tree: dict[str, Any], record: NodeRecord) -> tuple[int, int]:
        """Return the number of the machine and the number of the profile that a record describes."""
        for name in ("sources", "envcheck"):
            tree.pop(name, None)
        replaced = self._reduce(tree, record.where)
        # Records that are equal once reduced describe the same machine, so for most nodes the digest is all
        # that has to be computed.
        try:
            digest = hashlib.blake2b(marshal.dumps(tree, 2), digest_size=16).digest()
        except ValueError:  # a TOML date cannot be marshalled
            raise InputError(record.where, "expected texts, whole numbers, true and false alone") from None
        found = self._by_digest.get(digest)
        if found is None:
            for table, key, number in replaced:
                table[key] = number
            found = self._by_digest[digest] = self._add_new(tree, record)
        return found

    def _reduce(self, tree: dict[str, Any], where: str) -> list[_Number]:
        """Remove from a record what matters neither to the judge nor to the comparison.

        If only the side of its bounds matters for a number, replace it by that side. Return the replaced
        numbers, so that they can be restored.
        """
        replaced: list[_Number] = []
        for name, table in _tables(tree):
            for key in list(table):
                relevance = self._relevance(f"{name}.{key}")
                if relevance is _Relevance.NONE:
                    _check_value(table[key], f"{where}: {name}.{key}")
                    del table[key]
                elif relevance is _Relevance.SIDE and type(table[key]) is int:
                    replaced.append((table, key, table[key]))
                    table[key] = side_of(self._view.bounds[f"{name}.{key}"], table[key])
        return replaced

    def _relevance(self, key: str) -> _Relevance:
        """Return how much of a fact matters; an unknown key counts in full, so that it is refused later."""
        found = self._relevances.get(key)
        if found is None:
            found = self._new_relevance(key)
            if len(self._relevances) < _MOST_REMEMBERED:
                self._relevances[key] = found
        return found

    def _new_relevance(self, key: str) -> _Relevance:
        row = next((row for row in self._comparisons if row.covers(key)), None)
        if (row is not None and row.differ is not None) or self._vocabulary.get(key) is None:
            return _Relevance.VALUE
        if not self._view.sees(key):
            return _Relevance.NONE
        is_in_pair = any(key in pair for pair in self._view.pairs)
        return _Relevance.SIDE if key in self._view.bounds and not is_in_pair else _Relevance.VALUE

    def _add_new(self, tree: Mapping[str, Any], record: NodeRecord) -> tuple[int, int]:
        """Return the machine and profile numbers of a new kind of record; judge its machine if it is new."""
        rows = tree.get("gpu", [])
        if isinstance(rows, list) and len(rows) > MOST_GPUS:
            raise InputError(record.where, f"{len(rows)} GPUs: more than {MOST_GPUS} in one node")
        inventory = self._complete(facts_file.load(tree, record.where, self._vocabulary))
        profile = profile_of(inventory, self._comparisons)
        keys = self._keys | profile.values.keys()
        if len(keys) > MOST_COMPARED:
            more = "variables than are compared: with those before more than"
            raise InputError(record.where, f"brings more {more} {MOST_COMPARED}")
        self._keys = keys
        return self._machine_number(inventory, record.where), self._profile_number(profile)

    def _machine_number(self, inventory: Inventory, where: str) -> int:
        key = machine_key(inventory, self._view)
        number = self._machines.get(key)
        if number is None:
            self.judged.append(self._judge(where, inventory))
            number = self._machines[key] = len(self.judged) - 1
        return number

    def _profile_number(self, profile: Profile) -> int:
        values = tuple(sorted((key, sort_key(value)) for key, value in profile.values.items()))
        number = self._profiles.get((values, profile.complete))
        if number is None:
            self.profiles.append(profile)
            number = self._profiles[values, profile.complete] = len(self.profiles) - 1
        return number


def _tables(tree: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables of a record whose facts may not matter; each GPU is a separate table."""
    gpus = tree["gpu"] if isinstance(tree.get("gpu"), list) else []
    tables = [
        *((name, tree.get(name)) for name in ("host", "env", "python")),
        *(("gpu", gpu) for gpu in gpus),
    ]
    for name, table in tables:
        if isinstance(table, dict):
            yield name, table


def _check_value(raw: Any, where: str) -> None:
    """Check that this can be the value of a fact; records are checked even where they do not matter.

    Raises:
        InputError: the value is a table, a float or null.
    """
    if isinstance(raw, (dict, float)) or raw is None:
        raise InputError(where, f"expected a value, found {type(raw).__name__}")
