"""Read what runs in a release when users call its entries: one walk for each entry, kept for all readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache, partial
from weakref import WeakKeyDictionary

from envcheck.atlas.call_walk import CallWalk
from envcheck.atlas.called import ClassPatch, KeywordDemand, SelfCall
from envcheck.atlas.code_summary import SELF, SUPER, FileCode, FunctionCode
from envcheck.atlas.definitions import Definitions, OwnClass
from envcheck.atlas.demands import Demand
from envcheck.atlas.entries import calls_of, usual_tests
from envcheck.atlas.reader import PackageReader

_FILES: WeakKeyDictionary[PackageReader, MutableMapping[bytes, FileCode]] = WeakKeyDictionary()
"""The parsed files of each package, by digest; most files do not change from one release to the next."""


@dataclass(frozen=True, slots=True)
class EntryCalls:
    """Hold the code that runs when users call one entry of a release.

    Attributes:
        owner: module and name of the class; both are empty for a function.
        arguments: what is passed to other packages.
        imports: what is imported from other packages, and the names in their modules that are used.
        self_calls: how the object calls its own methods.
        reaches: the methods of the object that each method may call.
        patches: attributes of other packages' classes that are set.

    """

    owner: tuple[str, str]
    arguments: tuple[KeywordDemand, ...]
    imports: tuple[Demand, ...]
    self_calls: tuple[SelfCall, ...]
    reaches: Mapping[str, frozenset[str]]
    patches: tuple[ClassPatch, ...] = ()


def definitions(package: PackageReader, version: str) -> Definitions:
    """Return the definitions of a release; files that releases share are read once."""
    return Definitions(package.offers(version), _FILES.setdefault(package, {}))


@lru_cache(maxsize=8)
def entry_calls(package: PackageReader) -> Mapping[str, tuple[EntryCalls, ...]]:
    """Return what runs when users call the entries of each release; cached across partners."""
    return {
        version: package.reading("calls", version, partial(_read, package, version))
        for version in package.by_version
    }


def _read(package: PackageReader, version: str) -> tuple[EntryCalls, ...]:
    code = definitions(package, version)
    return tuple(_walked(code, CallWalk(code, entry, usual_tests())) for entry in calls_of(package.name))


def _walked(code: Definitions, walk: CallWalk) -> EntryCalls:
    definition = code.path(walk.entry.path)
    owner = definition if isinstance(definition, OwnClass) else None
    arguments = tuple(walk.read())
    reaches: dict[str, frozenset[str]] = {}
    for each in _methods(code, owner) if owner else ():
        reaches[each.name] = reaches.get(each.name, frozenset()) | own_methods_called(each)
    return EntryCalls(
        (owner.module, owner.code.name) if owner else ("", ""),
        arguments,
        (*walk.imports, *walk.attributes),
        tuple(walk.self_calls),
        reaches,
        tuple(walk.patches),
    )


def _methods(code: Definitions, owner: OwnClass) -> Iterator[FunctionCode]:
    for each in code.order(owner):
        if isinstance(each, OwnClass):
            for found in each.code.methods.values():
                yield from found


def own_methods_called(method: FunctionCode) -> frozenset[str]:
    """Return the methods of its object that a method may call; its own name if it calls the base's."""
    parts = [each.target.split(".") for each in method.calls]
    return frozenset(part[1] for part in parts if part[0] in (SELF, SUPER) and len(part) > 1)
