"""Find the keyword arguments that releases of a package pass and releases of a partner do not accept.

A verdict needs certainty on every step: the call runs whatever the user sets, and the signature of what is
called is written down. The two filters of `missing_names` guard against the reader's own blindness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakKeyDictionary

from envcheck.atlas.call_walk import CallWalk, KeywordDemand, KeywordUse
from envcheck.atlas.code_summary import FileCode
from envcheck.atlas.conditions import Surroundings, decide
from envcheck.atlas.definitions import Definitions
from envcheck.atlas.entries import calls_of
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.missing_names import trustworthy
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.reader import PackageReader, surroundings
from envcheck.core.facts import Tri

_FILES: WeakKeyDictionary[PackageReader, MutableMapping[bytes, FileCode]] = WeakKeyDictionary()
"""The files that were read of each package, by digest: most do not change from one release to the next."""


def find_keyword_gaps(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return the keywords that releases of a package pass and releases of a partner do not accept."""
    return _KeywordPair(package, partner).gaps()


@dataclass
class _KeywordPair:
    package: PackageReader
    partner: PackageReader
    _answers: dict[KeywordUse, Mapping[str, OfferAnswer]] = field(default_factory=dict)
    _definitions: dict[str, Definitions] = field(default_factory=dict)
    _accepted: dict[tuple[str, str, str], frozenset[str] | None] = field(default_factory=dict)
    _beside: dict[tuple[str, str], Surroundings] = field(default_factory=dict)

    def gaps(self) -> list[CodeGap]:
        rows: dict[tuple[KeywordUse, str, tuple[str, ...]], dict[str, str]] = {}
        for version, demands in keyword_demands(self.package):
            blamed: dict[KeywordUse, set[str]] = {}
            for (what, entry), asking in _by_entry(demands, self.partner.name).items():
                failing = self._failing(version, what, asking)
                before = blamed.setdefault(what, set())
                if set(failing) - before:
                    key = (what, entry, tuple(failing))
                    rows.setdefault(key, {}).setdefault(version, next(iter(failing.values())))
                before |= set(failing)
        return [
            CodeGap(
                kind=GapKind.KEYWORD,
                package=self.package.name,
                releases=tuple(asking),
                entry=entry,
                partner=self.partner.name,
                lacking=lacking,
                needs=what.text,
                places=tuple(asking.values()),
            )
            for (what, entry, lacking), asking in rows.items()
        ]

    def _failing(self, version: str, what: KeywordUse, asking: Sequence[KeywordDemand]) -> dict[str, str]:
        """Return the partner's releases that refuse a keyword, with the line that passes it."""
        failing: dict[str, str] = {}
        for release, offer in self._offered(what).items():
            if offer is OfferAnswer.NO:
                beside = self._surroundings(version, release)
                for each in asking:
                    if decide(each.condition, beside) is Tri.YES:
                        failing.setdefault(release, each.place)
        return failing

    def _offered(self, what: KeywordUse) -> Mapping[str, OfferAnswer]:
        if what not in self._answers:
            answers = {version: self._offer(version, what) for version in self.partner.by_version}
            self._answers[what] = answers if trustworthy(list(answers.values())) else {}
        return self._answers[what]

    def _offer(self, version: str, what: KeywordUse) -> OfferAnswer:
        key = (version, what.path, what.method)
        if key not in self._accepted:
            self._accepted[key] = self._code(version).accepts(what.path, what.method)
        accepted = self._accepted[key]
        if accepted is None:
            return OfferAnswer.UNKNOWN
        return OfferAnswer.YES if what.keyword in accepted else OfferAnswer.NO

    def _code(self, version: str) -> Definitions:
        if version not in self._definitions:
            self._definitions[version] = definitions(self.partner, version)
        return self._definitions[version]

    def _surroundings(self, version: str, release: str) -> Surroundings:
        key = (version, release)
        if key not in self._beside:
            self._beside[key] = surroundings(self.package, version, self.partner, release)
        return self._beside[key]


def definitions(package: PackageReader, version: str) -> Definitions:
    """Return the definitions of a release; files that releases share are read once."""
    return Definitions(package.offers(version), _FILES.setdefault(package, {}))


@lru_cache(maxsize=4)
def keyword_demands(package: PackageReader) -> tuple[tuple[str, tuple[KeywordDemand, ...]], ...]:
    """Return what the entries of each release pass to other packages; kept while partners are compared."""
    return tuple((version, tuple(_demands(package, version))) for version in package.by_version)


def _demands(package: PackageReader, version: str) -> Iterator[KeywordDemand]:
    code = definitions(package, version)
    for entry in calls_of(package.name):
        yield from CallWalk(code, entry).read()


def _by_entry(
    demands: Sequence[KeywordDemand], partner: str
) -> dict[tuple[KeywordUse, str], list[KeywordDemand]]:
    found: dict[tuple[KeywordUse, str], list[KeywordDemand]] = {}
    for demand in demands:
        if demand.what.partner == partner:
            found.setdefault((demand.what, demand.entry), []).append(demand)
    return found
