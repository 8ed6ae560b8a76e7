"""Find the methods with which releases of a package replace those of a base, and which its calls do not fit.

`Trainer` calls `self.compute_loss(model, inputs, num_items_in_batch=...)`: a subclass whose `compute_loss`
does not take that argument fails in its first step. The call must be one that every training reaches, and
the methods on the way to it must be those of the base, or must pass on to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from envcheck.atlas.called import SelfCall
from envcheck.atlas.code_pair import is_candidate, is_trustworthy
from envcheck.atlas.code_summary import Parameters
from envcheck.atlas.conditions import Surroundings, decide
from envcheck.atlas.definitions import OwnClass
from envcheck.atlas.entries import distribution_of, elsewhere
from envcheck.atlas.entry_calls import EntryCalls, definitions, entry_calls
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.overriding import (
    OverridingClass,
    OverridingMethod,
    overriding_classes,
)
from envcheck.atlas.reader import PackageReader
from envcheck.core.facts import Tri
from envcheck.core.versions import satisfies


@dataclass(frozen=True, slots=True)
class _Misfit:
    """Call of a user after which the base passes a method what it does not take."""

    entry: str
    method: str
    surplus: str


def find_override_gaps(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return the methods that releases of a partner call in a way that a package's releases do not take."""
    return OverridePair(package, partner).gaps()


@dataclass
class OverridePair:
    """Compare releases of a package with those of a partner, from whose classes its own derive.

    Attributes:
        package: the readers of the package with the classes.
        partner: the readers of the package with their bases.

    """

    package: PackageReader
    partner: PackageReader
    _calls: dict[tuple[str, str], EntryCalls | None] = field(default_factory=dict)

    def gaps(self) -> list[CodeGap]:
        """Return the calls that do not fit."""
        found: dict[tuple[str, str], dict[tuple[str, ...], dict[str, str]]] = {}
        for version in self.package.by_version:
            for owner in overriders(self.package)[version]:
                whole = self._down_to_the_partner(version, owner)
                if whole is not None:
                    self._compare(version, whole.base, partial(_same, whole), found)
        return self._rows(found)

    def _rows(
        self, found: Mapping[tuple[str, str], Mapping[tuple[str, ...], Mapping[str, str]]]
    ) -> list[CodeGap]:
        return [
            CodeGap(
                kind=GapKind.OVERRIDE,
                package=self.package.name,
                releases=tuple(places),
                entry=entry,
                partner=self.partner.name,
                lacking=lacking,
                needs=needs,
                places=tuple(places.values()),
            )
            for (entry, needs), rows in found.items()
            for lacking, places in rows.items()
        ]

    def _compare(
        self,
        version: str,
        base: str,
        owner_beside: Callable[[str], OverridingClass | None],
        found: dict[tuple[str, str], dict[tuple[str, ...], dict[str, str]]],
    ) -> None:
        """Add what does not fit between one class and the partner's releases.

        `owner_beside` returns what the class is beside a release of the partner.
        """
        answers: dict[_Misfit, dict[str, str]] = {}
        known = {release: calls for release in self.partner.by_version if (calls := self._of(release, base))}
        for release, calls in known.items():
            owner = owner_beside(release)
            for misfit, place in _misfits(owner, calls, self._beside(release)) if owner else ():
                answers.setdefault(misfit, {})[release] = place
        for misfit, failing in answers.items():
            otherwise = {
                release
                for each, releases in answers.items()
                if (each.entry, each.method) == (misfit.entry, misfit.method)
                for release in releases
            }
            told = [
                OfferAnswer.NO
                if each in failing
                else (OfferAnswer.UNKNOWN if each in otherwise else _fits(misfit, known.get(each)))
                for each in self.partner.by_version
                if not is_candidate(each)
            ]
            if is_trustworthy(told):
                key = misfit.entry, f"{base}.{misfit.method}({misfit.surplus})"
                rows = found.setdefault(key, {}).setdefault(tuple(failing), {})
                rows[version] = next(iter(failing.values()))

    def _down_to_the_partner(self, version: str, owner: OverridingClass) -> OverridingClass | None:
        """Return the class with all that it has before a base of the partner; None if it has no such base.

        The base may lie behind one of a third package: a DPO trainer of LLaMA-Factory replaces methods of
        trl's, which is a Trainer of transformers. Then all releases of the third that the package admits
        have to agree on the base, and a method that one of them replaces counts as replaced.
        """
        between = distribution_of(owner.base)
        if between == self.partner.name:
            return owner
        third = self.package.others.get(between)
        if third is None or third is self.package or self.partner.name not in _packages_of_bases(third):
            return None
        window = self.package.window(version).get(between, "")
        admitted = [
            each
            for each in third.by_version
            if not is_candidate(each) and (not window or satisfies(each, window, unknown=Tri.NO) is Tri.YES)
        ]
        bases = [_class_of(third, each, owner.base) for each in admitted]
        first = bases[0] if bases else None
        if first is None or distribution_of(first.base) != self.partner.name:
            return None
        if any(each is None or each.base != first.base for each in bases):
            return None
        return replace(owner, base=first.base, methods=tuple(_joined(owner, bases)))

    def _of(self, release: str, base: str) -> EntryCalls | None:
        """Return how the base of a release calls its own methods; None if it is no class that users call."""
        if (release, base) not in self._calls:
            owner = definitions(self.partner, release).path(base)
            name = (owner.module, owner.code.name) if isinstance(owner, OwnClass) else None
            every = (each for each in entry_calls(self.partner)[release] if each.owner == name)
            self._calls[release, base] = next(every, None)
        return self._calls[release, base]

    def _beside(self, release: str) -> Surroundings:
        return Surroundings(
            versions={self.partner.name: release},
            windows=self.partner.window(release),
            absent=elsewhere() - {self.partner.name},
        )


def _same(owner: OverridingClass, _release: str) -> OverridingClass:
    return owner


@lru_cache(maxsize=64)
def _packages_of_bases(package: PackageReader) -> frozenset[str]:
    """Return the packages from which classes of a package derive, in any of its releases."""
    return frozenset(distribution_of(each.base) for found in overriders(package).values() for each in found)


def _class_of(package: PackageReader, version: str, path: str) -> OverridingClass | None:
    return next((each for each in overriders(package)[version] if each.entry.path == path), None)


def _joined(owner: OverridingClass, bases: Iterable[OverridingClass | None]) -> Iterator[OverridingMethod]:
    """Yield the methods of a class and of its base, of which several releases are possible.

    The parameters of a method that only the base has are unknown. A method passes on if all of them do.
    """
    found: dict[str, list[OverridingMethod]] = {each.name: [each] for each in owner.methods}
    own = {*found}
    for base in bases:
        for method in base.methods if base else ():
            found.setdefault(method.name, []).append(method)
    for name, methods in found.items():
        yield replace(
            methods[0],
            parameters=methods[0].parameters if name in own else None,
            passes_on=all(each.passes_on for each in methods),
            reaches=frozenset().union(*(each.reaches for each in methods)),
        )


@lru_cache(maxsize=128)
def overriders(package: PackageReader) -> Mapping[str, tuple[OverridingClass, ...]]:
    """Return the classes of each release that replace methods of other packages; cached across partners."""
    return {
        version: package.reading(
            "overrides",
            version,
            partial(_read_overriders, package, version),
        )
        for version in package.by_version
    }


def _read_overriders(package: PackageReader, version: str) -> tuple[OverridingClass, ...]:
    return tuple(overriding_classes(definitions(package, version), package.name))


def _fits(misfit: _Misfit, base: EntryCalls | None) -> OfferAnswer:
    """Return whether a release without a misfit surely has none: its calls of the method were all read."""
    if base is None:
        return OfferAnswer.UNKNOWN
    called = any(misfit.method in methods for methods in base.reaches.values())
    read = any(call.method == misfit.method for call in base.self_calls)
    return OfferAnswer.UNKNOWN if called and not read else OfferAnswer.YES


def _misfits(owner: OverridingClass, base: EntryCalls, beside: Surroundings) -> Iterator[tuple[_Misfit, str]]:
    """Yield what the base passes to a method and the class's own method does not take, with its place."""
    own = {each.name: each for each in owner.methods}
    reached = _reached(owner, base, own)
    for call in base.self_calls:
        method = own.get(call.method)
        if method is None or method.parameters is None or call.through[0] not in reached:
            continue
        stopped = any(name in own and not own[name].passes_on for name in call.through)
        surplus = list(_surplus(method.parameters, call))
        if surplus and not stopped and decide(call.condition, beside) is Tri.YES:
            entry = f"{owner.entry.path}.{call.action}(...)" if call.action else f"{owner.entry.path}(...)"
            yield _Misfit(entry, call.method, ", ".join(surplus)), method.place


def _surplus(parameters: Parameters, call: SelfCall) -> Iterator[str]:
    """Yield what a call passes and a method does not take: keywords, and a number of arguments."""
    if not parameters.any_name:
        yield from (f"{keyword}=" for keyword in call.keywords if keyword not in parameters.named)
    if not parameters.any_position and call.positional > len(parameters.positional):
        yield f"{call.positional} argument{'s' * (call.positional > 1)}"


def _reached(owner: OverridingClass, base: EntryCalls, own: Mapping[str, OverridingMethod]) -> frozenset[str]:
    """Return the methods that the constructor, or a method that the user calls, may reach."""
    found: set[str] = set()
    waiting = ["__init__", "__post_init__", *owner.entry.methods.values()]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        mine = own.get(name)
        if mine is not None:
            waiting += mine.reaches
        if mine is None or name in mine.reaches:
            waiting += base.reaches.get(name, ())
    return frozenset(found)
