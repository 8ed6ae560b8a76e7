"""Find the names that releases of a package import and releases of a partner do not have.

A verdict needs certainty on every step: the line is reached beside that very release, and the release lacks
the name for sure. Two filters guard against the reader's own blindness: a name that no release offers, and a
hole (offered, lacking, offered again), unless the module is plain in every release: transformers 4.57 has no
`PytorchGELUTanh`, which came back in 5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envcheck.atlas.conditions import Surroundings, decide
from envcheck.atlas.demands import Demand, Demanded, DemandKind
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.reader import PackageReader, surroundings
from envcheck.core.facts import Tri


def find_missing_names(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return what releases of a package import from a partner and releases of the partner do not have."""
    return _Pair(package, partner).gaps()


@dataclass
class _Pair:
    package: PackageReader
    partner: PackageReader
    _table: dict[Demanded, Mapping[str, OfferAnswer]] = field(default_factory=dict)
    _beside: dict[tuple[str, str], Surroundings] = field(default_factory=dict)

    def gaps(self) -> list[CodeGap]:
        rows: dict[tuple[Demanded, str, tuple[str, ...]], dict[str, str]] = {}
        for version in self.package.by_version:
            for what, demands in self._wanted(version).items():
                for entry, lacking, place in self._lacks(version, what, demands):
                    rows.setdefault((what, entry, lacking), {}).setdefault(version, place)
        return [
            CodeGap(
                kind=GapKind.NAME,
                package=self.package.name,
                releases=tuple(asking),
                entry=entry,
                partner=self.partner.name,
                lacking=lacking,
                needs=what.path,
                places=tuple(asking.values()),
            )
            for (what, entry, lacking), asking in rows.items()
        ]

    def _wanted(self, version: str) -> Mapping[Demanded, Sequence[Demand]]:
        wanted: dict[Demanded, list[Demand]] = {}
        for demand in self.package.demands(version):
            if demand.what.partner == self.partner.name:
                wanted.setdefault(demand.what, []).append(demand)
        return wanted

    def _lacks(
        self, version: str, what: Demanded, demands: Sequence[Demand]
    ) -> Iterable[tuple[str, tuple[str, ...], str]]:
        """Yield for each entry the partner's releases that lack what it asks for, with the line that asks.

        An entry adds nothing where an earlier one fails already: `from peft import X` after `import peft`.
        """
        lacking = [each for each, offer in self._offered(what).items() if offer is OfferAnswer.NO]
        blamed: set[str] = set()
        for entry in dict.fromkeys(demand.entry for demand in demands):
            asking = [each for each in demands if each.entry == entry]
            failing: dict[str, str] = {}
            for release in lacking:
                beside = self._surroundings(version, release)
                reached = (each for each in asking if decide(each.condition, beside) is Tri.YES)
                if (first := next(reached, None)) is not None:
                    failing[release] = first.place
            if set(failing) - blamed:
                yield entry, tuple(failing), next(iter(failing.values()))
            blamed |= set(failing)

    def _offered(self, what: Demanded) -> Mapping[str, OfferAnswer]:
        """Return which releases of the partner offer it; empty if the answers cannot be trusted."""
        if what not in self._table:
            answers = {version: self._offer(version, what) for version in self.partner.by_version}
            sure = trustworthy(list(answers.values()), holes=self._is_plain(what))
            self._table[what] = answers if sure else {}
        return self._table[what]

    def _is_plain(self, what: Demanded) -> bool:
        """Return whether what is asked for is a name of a module that is plain wherever it is there."""
        if what.kind is not DemandKind.NAME:
            return False
        offers = (self.partner.offers(version) for version in self.partner.by_version)
        return all(each.plainly(what.module) for each in offers if each.modules.form(what.module) is not None)

    def _offer(self, version: str, what: Demanded) -> OfferAnswer:
        offers = self.partner.offers(version)
        match what.kind:
            case DemandKind.MODULE:
                return offers.module(what.module)
            case DemandKind.NAME:
                return offers.name(what.module, what.name)
            case DemandKind.ATTRIBUTE:
                return offers.attribute(what.path)

    def _surroundings(self, version: str, release: str) -> Surroundings:
        key = (version, release)
        if key not in self._beside:
            self._beside[key] = surroundings(self.package, version, self.partner, release)
        return self._beside[key]


def trustworthy(answers: Sequence[OfferAnswer], *, holes: bool = False) -> bool:
    """Return whether the answers of a partner's releases, oldest first, show that the reader sees the name.

    Some release must offer it, and none in C. What is offered, lacking and offered again is taken for a form
    that the reader does not know, unless `holes` are believed.
    """
    if OfferAnswer.YES not in answers or OfferAnswer.STUB in answers or OfferAnswer.NO not in answers:
        return False
    if holes:
        return True
    known = [each is OfferAnswer.YES for each in answers if each is not OfferAnswer.UNKNOWN]
    runs = [each for index, each in enumerate(known) if index == 0 or known[index - 1] != each]
    return [True, False, True] not in [runs[start : start + 3] for start in range(len(runs))]
