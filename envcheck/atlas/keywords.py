"""Find the keyword arguments that releases of a package pass and releases of a partner do not accept.

The call must run whatever the user sets, and the signature of the called function must be in the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from envcheck.atlas.called import KeywordDemand, KeywordUse
from envcheck.atlas.code_pair import CodePair
from envcheck.atlas.definitions import Definitions
from envcheck.atlas.entry_calls import definitions, entry_calls
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.reader import PackageReader


def find_keyword_gaps(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return the keywords that releases of a package pass and releases of a partner do not accept."""
    return _KeywordPair(package, partner).gaps()


@dataclass
class _KeywordPair(CodePair[KeywordUse]):
    """Keyword arguments that are passed when an entry is called."""

    kind = GapKind.KEYWORD

    _definitions: dict[str, Definitions] = field(default_factory=dict)
    _accepted: dict[tuple[str, str, str], frozenset[str] | None] = field(default_factory=dict)

    def lines(self, version: str) -> Iterable[KeywordDemand]:
        return [each for calls in entry_calls(self.package)[version] for each in calls.arguments]

    def offer(self, version: str, what: KeywordUse) -> OfferAnswer:
        if not what.keyword:
            return self._takes(version, what)
        key = (version, what.path, what.method)
        if key not in self._accepted:
            self._accepted[key] = self._code(version).accepts(what.path, what.method)
        accepted = self._accepted[key]
        if accepted is None:
            return OfferAnswer.UNKNOWN
        return OfferAnswer.YES if what.keyword in accepted else OfferAnswer.NO

    def _takes(self, version: str, what: KeywordUse) -> OfferAnswer:
        """Return whether a method of a release takes this number of positional arguments."""
        parameters = self._code(version).parameters(what.path, what.method)
        if parameters is None:
            return OfferAnswer.UNKNOWN
        enough = parameters.any_position or what.positional <= len(parameters.positional)
        return OfferAnswer.YES if enough else OfferAnswer.NO

    def _code(self, version: str) -> Definitions:
        if version not in self._definitions:
            self._definitions[version] = definitions(self.partner, version)
        return self._definitions[version]
