"""What a release asks of other packages when one of its entries is imported.

The imports of an entry are followed through the release's own modules. Each import and each attribute of
another package on the way is a demand: the line that uses it, and the conditions under which it is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from envcheck.atlas.conditions import (
    ALWAYS,
    NEVER,
    PYTHON,
    UNREADABLE,
    AllOf,
    Condition,
    Surroundings,
    all_of,
    decide,
)
from envcheck.atlas.entries import PackageEntry, devices, distribution_of, elsewhere
from envcheck.atlas.offers import ReleaseOffers, Way
from envcheck.atlas.python_names import is_of_python, lacking_in
from envcheck.atlas.release_modules import ModuleForm
from envcheck.atlas.summary import Use, UseKind
from envcheck.core.facts import Tri

_DEEPEST = 10
_MOST_WAYS = 3
"""The number of independent ways to import a module whose conditions are kept."""


_BACKENDS = (
    ("modeling_tf_", "tf"),
    ("modeling_flax_", "flax"),
    ("modeling_", "torch"),
    ("generation_", "torch"),
    ("image_processing_", "vision"),
    ("video_processing_", "torchvision"),
)
"""Prefixes of file names for which `define_import_structure` needs a backend, and the backend."""


class DemandKind(StrEnum):
    """Form in which code uses something of another package."""

    MODULE = "module"
    NAME = "name"
    ATTRIBUTE = "attribute"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Demanded:
    """Something used of a package: a module, a name imported from a module, or an attribute that is read.

    Of a MEMBER, an attribute of an object, `module` is the path of the object's class.
    """

    kind: DemandKind
    module: str
    name: str = ""

    @property
    def text(self) -> str:
        """Return the dotted path of what is used."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def partner(self) -> str:
        """Return the package that has to offer it."""
        return PYTHON if is_of_python(self.module) else distribution_of(self.module)


@dataclass(frozen=True, slots=True)
class Demand:
    """One line that asks another package for something.

    Attributes:
        what: what is used.
        entry: what a user does that runs the line.
        condition: when the line is reached.
        place: file and line, `peft/tuners/lora/model.py:27`.

    """

    what: Demanded
    entry: str
    condition: Condition
    place: str


@dataclass(frozen=True, slots=True)
class EntryReading:
    """What one entry of a release does.

    Attributes:
        action: what a user does, `import peft`.
        demands: what is used of other packages.
        modules: the release's own modules that are imported, with the condition of each way to them.

    """

    action: str
    demands: tuple[Demand, ...]
    modules: tuple[tuple[str, Condition], ...]


@dataclass(order=True)
class _Visit:
    """A module to read, the least conditional first."""

    weight: int
    number: int
    module: str = field(compare=False)
    conditions: frozenset[Condition] = field(compare=False)


@dataclass
class EntryWalk:
    """Follow the imports of one entry through its release."""

    offers: ReleaseOffers
    entry: PackageEntry
    _queue: list[_Visit] = field(default_factory=list)
    _ways: dict[str, list[frozenset[Condition]]] = field(default_factory=dict)
    _number: int = 0

    def read(self) -> EntryReading:
        """Return what the entry imports and asks for."""
        demands: list[Demand] = []
        modules: list[tuple[str, Condition]] = []
        for visit in self._visits():
            modules.append((visit.module, all_of(visit.conditions)))
            demands += self._read(visit)
        return EntryReading(self.entry.action, tuple(_least_conditional(demands)), tuple(modules))

    def _visits(self) -> Iterator[_Visit]:
        """Yield each module that is imported; what it imports is followed when the caller has read it."""
        self._push(self.entry.module, frozenset())
        for name in self.entry.names:
            self._take(self.entry.module, name, frozenset())
        while self._queue:
            visit = heapq.heappop(self._queue)
            ways = self._ways.setdefault(visit.module, [])
            if len(ways) < _MOST_WAYS and not any(way <= visit.conditions for way in ways):
                ways.append(visit.conditions)
                yield visit

    def _push(self, module: str, conditions: frozenset[Condition]) -> None:
        """Queue a module, and the packages above it, for reading."""
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            known = any(way <= conditions for way in self._ways.get(part, ()))
            if not known and self.offers.modules.form(part) is ModuleForm.SOURCE:
                self._number += 1
                heapq.heappush(self._queue, _Visit(len(conditions), self._number, part, conditions))

    def _take(self, module: str, name: str, conditions: frozenset[Condition]) -> None:
        """Queue what provides a name of an own module: the module behind a lazy name, or a submodule."""
        for _ in range(_DEEPEST):
            if self.offers.modules.form(module) is not ModuleForm.SOURCE:
                return
            found = self.offers.find(module, name)
            if found.way is Way.BOUND and self._binds_submodule(module, name):
                self._push(f"{module}.{name}", conditions)
            if found.way is Way.SUBMODULE:
                self._push(found.module, conditions)
            if found.way is not Way.LAZY or not found.module:
                return
            conditions |= self._lazy_conditions(module, name)
            if NEVER in conditions:
                return
            self._push(found.module, conditions)
            module, name = found.module, found.name

    def _binds_submodule(self, module: str, name: str) -> bool:
        """Return whether a module binds a name by importing its submodule: `from . import name`."""
        summary = self.offers.modules.summary(module)
        origin = summary.imports.get(name) if summary else None
        whole = f"{module}.{name}"
        if origin is None or self.offers.modules.form(whole) is not ModuleForm.SOURCE:
            return False
        target = self.offers.modules.absolute(module, origin)
        return whole == (f"{target}.{origin.name}" if origin.name else target)

    def _lazy_conditions(self, module: str, name: str) -> frozenset[Condition]:
        summary = self.offers.modules.summary(module)
        origin = summary.lazy.get(name) if summary else None
        if origin is None and summary is not None and summary.scans:
            return _open_conditions(self._backend(self.offers.find(module, name).module))
        return _open_conditions(self.offers.guards.together(origin.guards if origin else (), module))

    def _backend(self, module: str) -> Condition:
        """Return when a scanned name imports its module; without the module's backend it is a dummy.

        transformers takes the backend from the name of the file, or from a decorator in it.
        """
        modules = self.offers.modules
        file = module.rsplit(".", 1)[-1]
        backend = next((backend for start, backend in _BACKENDS if file.startswith(start)), "")
        if not backend:
            decorated = b"@requires(" in modules.release.files.read(modules.path(module))
            return UNREADABLE if decorated else ALWAYS
        predicate = f"{modules.tops[0]}.utils.import_utils.is_{backend}_available"
        return self.offers.guards.predicate(predicate) or UNREADABLE

    def _read(self, visit: _Visit) -> Iterator[Demand]:
        summary = self.offers.modules.summary(visit.module)
        for use in summary.uses if summary else ():
            conditions = _open_conditions(self.offers.guards.together(use.guards, visit.module))
            if NEVER in conditions:
                continue
            whole = visit.conditions | conditions
            target = self.offers.modules.resolve(visit.module, use.level, use.module)
            if self.offers.modules.owns(target):
                self._follow(use, target, whole)
            elif use.level == 0 and (not is_of_python(target) or lacking_in(target, use.name)):
                place = f"{self.offers.modules.path(visit.module)}:{use.line}"
                yield Demand(_demanded(use), self.entry.action, all_of(whole), place)

    def _follow(self, use: Use, target: str, conditions: frozenset[Condition]) -> None:
        if use.kind in (UseKind.ATTRIBUTE, UseKind.MEMBER):
            return  # what a module of a MEMBER imports may be missing too
        self._push(target, conditions)
        if use.kind is UseKind.FROM and use.name != "*":
            self._take(target, use.name, conditions)


def this_stack() -> Surroundings:
    """Return the surroundings when no other release is given: only packages assumed absent are known.

    A package for another device is left open, because code for it counts where it is installed.
    """
    return Surroundings(absent=elsewhere().difference(devices()))


@lru_cache(maxsize=65536)
def _open_conditions(condition: Condition) -> frozenset[Condition]:
    """Return the conditions that are still open, or only NEVER if they cannot be met on this stack."""
    if decide(condition, this_stack()) is Tri.NO:
        return frozenset({NEVER})
    parts = condition.of if isinstance(condition, AllOf) else (condition,)
    return frozenset(each for each in parts if decide(each, this_stack()) is not Tri.YES)


def _demanded(use: Use) -> Demanded:
    if use.kind is UseKind.ATTRIBUTE:
        module, _, name = use.module.rpartition(".")
        return Demanded(DemandKind.ATTRIBUTE, module, name)
    if use.kind in (UseKind.FROM, UseKind.MEMBER) and use.name != "*":
        return Demanded(DemandKind.NAME, use.module, use.name)
    return Demanded(DemandKind.MODULE, use.module)


def read_entries(offers: ReleaseOffers, entries: Sequence[PackageEntry]) -> tuple[EntryReading, ...]:
    """Return what each entry of a release imports; entries that the release does not have are left out."""
    return tuple(EntryWalk(offers, entry).read() for entry in entries if _has(offers, entry))


def _has(offers: ReleaseOffers, entry: PackageEntry) -> bool:
    if offers.modules.form(entry.module) is not ModuleForm.SOURCE:
        return False
    return not entry.names or offers.find(entry.module, entry.names[0]).way is not Way.MISSING


def _least_conditional(demands: Sequence[Demand]) -> list[Demand]:
    """Return one demand for each thing and condition; an unconditional one replaces the others."""
    first: dict[tuple[Demanded, Condition], Demand] = {}
    for each in demands:
        first.setdefault((each.what, each.condition), each)
    always = {what for what, condition in first if condition == ALWAYS}
    return [each for each in first.values() if each.condition == ALWAYS or each.what not in always]
