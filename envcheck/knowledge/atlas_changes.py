"""Say in words what changed between two states of the atlas, for the review of a refresh.

A new release is expected to behave like the release before it: what continues is counted, and what differs is
described.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from envcheck.core.rules import Atlas, Span
from envcheck.knowledge.atlas import format_spans, spans_of, spelled_need
from envcheck.rules.atlas import in_spans, is_broken

_Key = tuple[str, str, str, str, str]
"""Package, partner, kind, entry and what is needed."""

_Failing = Mapping[str, frozenset[str]]
"""For each release that asks, the releases of the partner that lack it."""

_NONE: frozenset[str] = frozenset()
_SEVERAL = 3


class PairToRun(NamedTuple):
    """Two releases at a bound that changed: running them shows whether the code was read correctly."""

    package: str
    release: str
    partner: str
    partner_release: str
    fails: bool  # as the atlas predicts


def atlas_changes(before: Atlas, after: Atlas) -> Iterator[str]:
    """Yield a line for each package with new releases, and for each pair that fails against expectation.

    What counts is which releases of two packages fail together, not for how many reasons they do.
    """
    expected, now = _expected(before, after), _failing_by_key(after)
    for package, releases in sorted(after.releases.items()):
        new = [release for release in releases if release not in before.releases.get(package, ())]
        if new:
            known = sum(_continues(key, now[key], expected.get(key, {}), package, {*new}) for key in now)
            yield f"new: {package} {format_spans(spans_of(new, releases))}{_known_failures(known)}"
    failing, foreseen = _failing_by_pair(now), _failing_by_pair(expected)
    silent = _silent(before, after, foreseen, failing)
    for (package, release), count in silent.items():
        yield f"{package} {release} asks nothing of the {count} packages of the release before: was it read?"
    for pair in sorted(failing.keys() | foreseen.keys()):
        added = _difference(failing.get(pair, {}), foreseen.get(pair, {}))
        gone = _difference(foreseen.get(pair, {}), failing.get(pair, {}))
        removed = {asking: lacking for asking, lacking in gone.items() if (pair[0], asking) not in silent}
        for changed, reasons, words in (
            (added, now, "now fails"),
            (removed, expected, "no longer expected to fail"),
        ):
            if changed:
                keys = _reasons(pair, changed, reasons)
                yield f"{_words(keys, changed, after)}: {words}"


def pairs_to_run(before: Atlas, after: Atlas) -> list[PairToRun]:
    """Return one pair of releases on each side of every bound between two packages that changed."""
    expected, now = _expected(before, after), _failing_by_key(after)
    failing, foreseen = _failing_by_pair(now), _failing_by_pair(expected)
    silent = _silent(before, after, foreseen, failing)
    found: dict[PairToRun, None] = {}
    for pair in (*failing, *(pair for pair in foreseen if pair not in failing)):
        added = _difference(failing.get(pair, {}), foreseen.get(pair, {}))
        removed = _difference(foreseen.get(pair, {}), failing.get(pair, {}))
        for changed, fails in ((added, True), (removed, False)):
            asking = [each for each in changed if (pair[0], each) not in silent]
            if asking:
                newest = max(asking, key=after.releases[pair[0]].index)
                found.update(dict.fromkeys(_at_a_bound(pair, newest, changed[newest], after, fails=fails)))
    return list(found)


def _at_a_bound(
    pair: tuple[str, str], asking: str, changed: frozenset[str], atlas: Atlas, *, fails: bool
) -> Iterator[PairToRun]:
    """Yield the newest of the partner's changed releases, and the nearest release that behaves otherwise."""
    package, partner = pair
    newest = max(changed, key=atlas.releases[partner].index)
    yield PairToRun(package, asking, partner, newest, fails=fails)
    rows = atlas.rows.get(package, {}).get(partner, ())
    for neighbour in _neighbours(newest, atlas.releases[partner]):
        if any(is_broken(row, asking, neighbour) for row in rows) != fails:
            yield PairToRun(package, asking, partner, neighbour, fails=not fails)
            break


def _known_failures(count: int) -> str:
    if not count:
        return ""
    return f" ({count} known failure{'s' if count > 1 else ''} of the release before, too)"


def _continues(key: _Key, now: _Failing, expected: _Failing, package: str, new: set[str]) -> bool:
    """Return whether new releases of a package fail as the release before did."""
    asking_package, partner, *_ = key
    if package == asking_package:
        return any(now[asking] & expected.get(asking, _NONE) for asking in now.keys() & new)
    return package == partner and any(now[asking] & expected.get(asking, _NONE) & new for asking in now)


def _expected(before: Atlas, after: Atlas) -> dict[_Key, _Failing]:
    """Return what fails among the releases of `after` if each new one behaves like the release before it."""
    stands_for = {
        package: _known_before(before.releases.get(package, ()), releases)
        for package, releases in after.releases.items()
    }

    @cache  # most needs are lacking from the same releases
    def lacking_now(partner: str, lacking: frozenset[str]) -> frozenset[str]:
        return frozenset(each for each, known in stands_for.get(partner, {}).items() if known in lacking)

    found: dict[_Key, _Failing] = {}
    for key, failing in _failing_by_key(before).items():
        package, partner, *_ = key
        found[key] = {
            asking: lacking_now(partner, failing[known])
            for asking, known in stands_for.get(package, {}).items()
            if known in failing
        }
    return found


def _known_before(known: Sequence[str], releases: Sequence[str]) -> dict[str, str]:
    """Return for each release itself if it was known, else the nearest older one; oldest releases first."""
    last = ""
    found: dict[str, str] = {}
    for release in releases:
        last = release if release in known else last
        found[release] = last
    return found


def _silent(
    before: Atlas,
    after: Atlas,
    foreseen: Mapping[tuple[str, str], _Failing],
    failing: Mapping[tuple[str, str], _Failing],
) -> dict[tuple[str, str], int]:
    """Return the new releases without any row, although the release before has rows on several packages.

    The reader probably does not understand how they import their modules. Values are numbers of packages.
    """
    found = {}
    for package, releases in sorted(after.releases.items()):
        for release in releases:
            if release in before.releases.get(package, ()):
                continue
            expected = [pair for pair in foreseen if pair[0] == package and release in foreseen[pair]]
            asks = any(pair[0] == package and release in failing[pair] for pair in failing)
            if len(expected) >= _SEVERAL and not asks:
                found[package, release] = len(expected)
    return found


def _failing_by_pair(by_key: Mapping[_Key, _Failing]) -> dict[tuple[str, str], _Failing]:
    found: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
    for (package, partner, *_), failing in by_key.items():
        of_pair = found.setdefault((package, partner), {})
        for asking, lacking in failing.items():
            of_pair[asking] = of_pair.get(asking, _NONE) | lacking
    return {**found}


def _reasons(pair: tuple[str, str], changed: _Failing, by_key: Mapping[_Key, _Failing]) -> list[_Key]:
    """Return what explains changed releases of a pair: what fails in most of them first."""

    def explained(key: _Key) -> int:
        return sum(len(by_key[key].get(asking, _NONE) & lacking) for asking, lacking in changed.items())

    keys = [key for key in by_key if key[:2] == pair and explained(key)]
    return sorted(keys, key=lambda key: (-explained(key), not key[3].startswith("import "), key))


_WORDS = {
    "name": "{lacks} lacks {what}, which `{entry}` of {asks} needs",
    "override": "{lacks} calls {what}, which `{entry}` of {asks} does not accept",
    "keyword": "{lacks} does not accept {what}, which `{entry}` of {asks} passes",
    "register": "{lacks} refuses {what}, which `{entry}` of {asks} calls",
    "guard": "{lacks} is not {what}, which `{entry}` of {asks} asks for",
    "binary": "{lacks} is not {what}, for which {asks} was compiled",
    "symbol": "{lacks} does not define {what}, which `{entry}` of {asks} needs",
}
"""What a kind of row says, in words."""


def _words(keys: Sequence[_Key], failing: _Failing, atlas: Atlas) -> str:
    package, partner, kind, entry, needs = keys[0]
    lacking = _NONE.union(*failing.values())
    who_lacks = f"{partner} {format_spans(spans_of(lacking, atlas.releases.get(partner, ())))}"
    who_asks = f"{package} {format_spans(spans_of(failing, atlas.releases.get(package, ())))}"
    others = len({key[4] for key in keys} - {needs})
    spelled = spelled_need(kind, needs)
    what = f"{spelled} and {others} more" if others else spelled
    template = _WORDS.get(kind, _WORDS["name"])
    return template.format(lacks=who_lacks, what=what, entry=entry, asks=who_asks)


def _difference(now: _Failing, then: _Failing) -> _Failing:
    more = ((asking, lacking - then.get(asking, _NONE)) for asking, lacking in now.items())
    return {asking: lacking for asking, lacking in more if lacking}


def _failing_by_key(atlas: Atlas) -> Mapping[_Key, _Failing]:
    within: dict[tuple[str, tuple[Span, ...]], frozenset[str]] = {}

    def releases(package: str, spans: tuple[Span, ...]) -> frozenset[str]:
        if (package, spans) not in within:  # most rows share their releases with others
            every = atlas.releases.get(package, ())
            within[package, spans] = frozenset(each for each in every if in_spans(each, spans))
        return within[package, spans]

    found: dict[_Key, dict[str, frozenset[str]]] = {}
    for row in (row for partners in atlas.rows.values() for name in partners for row in partners[name]):
        failing = found.setdefault((row.package, row.partner, row.kind, row.entry, row.needs), {})
        lacking = releases(row.partner, row.lacking)
        for asking in releases(row.package, row.releases) if lacking else ():
            failing[asking] = failing.get(asking, _NONE) | lacking
    return found


def _neighbours(release: str, every: tuple[str, ...]) -> Iterator[str]:
    """Yield the releases of the partner from nearest to farthest, newer ones first."""
    at = every.index(release)
    for distance in range(1, len(every)):
        yield from (every[place] for place in (at + distance, at - distance) if 0 <= place < len(every))
