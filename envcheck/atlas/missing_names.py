"""Find the names that releases of a package import and releases of a partner do not have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from envcheck.atlas.class_attributes import class_attribute
from envcheck.atlas.code_pair import CodePair
from envcheck.atlas.demands import Demand, Demanded, DemandKind
from envcheck.atlas.entry_calls import definitions, entry_calls
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.import_calls import import_calls
from envcheck.atlas.instance_members import object_attribute
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.reader import PackageReader


def find_missing_names(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return what releases of a package import from a partner and releases of the partner do not have."""
    return _NamePair(package, partner).gaps()


def late_demands(package: PackageReader, version: str) -> list[Demand]:
    """Return what functions of a release use of other packages: those called on import, or by users."""
    by_users = [demand for calls in entry_calls(package)[version] for demand in calls.imports]
    return [*import_calls(package, version), *by_users]


@dataclass
class _NamePair(CodePair[Demanded]):
    """Names that are imported or read when a release is imported, or when what users call runs."""

    kind = GapKind.NAME

    def lines(self, version: str) -> Iterable[Demand]:
        return (*self.package.demands(version), *late_demands(self.package, version))

    def offer(self, version: str, what: Demanded) -> OfferAnswer:
        offers = self.partner.offers(version)
        match what.kind:
            case DemandKind.MODULE:
                return offers.module(what.module)
            case DemandKind.NAME:
                return offers.name(what.module, what.name)
            case DemandKind.MEMBER:
                return object_attribute(definitions(self.partner, version), what.module, what.name)
            case DemandKind.ATTRIBUTE:
                answer = offers.attribute(what.text)
                if answer is not OfferAnswer.YES:
                    return answer
                return class_attribute(definitions(self.partner, version), what.text)

    def may_come_back(self, what: Demanded) -> bool:
        if what.kind is not DemandKind.NAME:
            return False
        offers = (self.partner.offers(version) for version in self.partner.by_version)
        return all(each.plainly(what.module) for each in offers if each.modules.form(what.module) is not None)
