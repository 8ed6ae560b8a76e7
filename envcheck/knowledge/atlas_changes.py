"""Say in words what changed between two states of the atlas, for the review of a refresh."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from envcheck.core.rules import Atlas, AtlasRow
from envcheck.knowledge.atlas import format_spans, spans_of
from envcheck.rules.atlas import in_spans

_Key = tuple[str, str, str, str, str]
_Cells = frozenset[tuple[str, str]]


class PairToRun(NamedTuple):
    """Two releases at a bound that changed: running them shows whether the code was read correctly."""

    package: str
    release: str
    partner: str
    partner_release: str
    fails: bool  # as the atlas predicts


def atlas_changes(before: Atlas, after: Atlas) -> Iterator[str]:
    """Yield a line for each new release, and for each thing that releases newly lack or no longer lack."""
    for package, releases in sorted(after.releases.items()):
        new = [release for release in releases if release not in before.releases.get(package, ())]
        if new:
            yield f"new: {package} {format_spans(spans_of(new, releases))}"
    old, now = _cells_by_key(before), _cells_by_key(after)
    for key in sorted(old.keys() | now.keys()):
        added = now.get(key, frozenset()) - old.get(key, frozenset())
        removed = old.get(key, frozenset()) - now.get(key, frozenset())
        if added:
            yield f"{_words(key, added, after)}: now fails"
        if removed:
            yield f"{_words(key, removed, before)}: no longer expected to fail"


def pairs_to_run(before: Atlas, after: Atlas) -> list[PairToRun]:
    """Return, for each key that changed, one pair of releases inside and one just outside the new bound."""
    old = _cells_by_key(before)
    found: dict[PairToRun, None] = {}
    for key, cells in _cells_by_key(after).items():
        added = cells - old.get(key, frozenset())
        if not added:
            continue
        package, partner, *_ = key
        asking, lacking = max(added, key=lambda cell: _place(cell, package, partner, after))
        found[PairToRun(package, asking, partner, lacking, fails=True)] = None
        for neighbour in _neighbours(lacking, after.releases.get(partner, ())):
            if not any((asking, neighbour) in each for each in _of_pair(after, package, partner)):
                found[PairToRun(package, asking, partner, neighbour, fails=False)] = None
                break
    return list(found)


def _words(key: _Key, cells: _Cells, atlas: Atlas) -> str:
    package, partner, _, entry, needs = key
    asking = {release for release, _ in cells}
    lacking = {release for _, release in cells}
    who_lacks = f"{partner} {format_spans(spans_of(lacking, atlas.releases.get(partner, ())))}"
    who_asks = f"{package} {format_spans(spans_of(asking, atlas.releases.get(package, ())))}"
    return f"{who_lacks} lacks {needs}, which `{entry}` of {who_asks} needs"


def _cells_by_key(atlas: Atlas) -> dict[_Key, _Cells]:
    found: dict[_Key, _Cells] = {}
    for row in (row for partners in atlas.rows.values() for name in partners for row in partners[name]):
        key = (row.package, row.partner, row.kind, row.entry, row.needs)
        found[key] = found.get(key, frozenset()) | _cells(row, atlas)
    return found


def _of_pair(atlas: Atlas, package: str, partner: str) -> list[_Cells]:
    return [_cells(row, atlas) for row in atlas.rows.get(package, {}).get(partner, ())]


def _cells(row: AtlasRow, atlas: Atlas) -> _Cells:
    asking = [each for each in atlas.releases.get(row.package, ()) if in_spans(each, row.releases)]
    lacking = [each for each in atlas.releases.get(row.partner, ()) if in_spans(each, row.lacking)]
    return frozenset(product(asking, lacking))


def _place(cell: tuple[str, str], package: str, partner: str, atlas: Atlas) -> tuple[int, int]:
    return atlas.releases[package].index(cell[0]), atlas.releases[partner].index(cell[1])


def _neighbours(release: str, every: tuple[str, ...]) -> Iterator[str]:
    """Yield the releases of the partner from nearest to farthest, newer ones first."""
    at = every.index(release)
    for distance in range(1, len(every)):
        yield from (every[place] for place in (at + distance, at - distance) if 0 <= place < len(every))
