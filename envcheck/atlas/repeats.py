"""Leave out gaps that only repeat what another gap says of the same module.

`from transformers.modeling_layers import A, B` fails for one reason beside a release without this module, and
a table with one row for each name would be a third longer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envcheck.atlas.gaps import CodeGap, GapKind

_LINE = re.compile(r":(\d+)$")


def without_repeats(gaps: Sequence[CodeGap]) -> list[CodeGap]:
    """Return the gaps without names of which another gap says at least as much.

    Such a gap has the same entry, and its name is in the same module, or is that module. It asks in at least
    the same releases, and at least the same releases of the partner lack it. Of equals, the one whose line
    comes first stays, because Python names it.
    """
    kept: list[CodeGap] = []
    for gap in sorted(gaps, key=_order):
        if not any(_says(other, gap) for other in kept):
            kept.append(gap)
    chosen = set(map(id, kept))
    return [gap for gap in gaps if id(gap) in chosen]


def _order(gap: CodeGap) -> tuple[int, str, int]:
    """Return a sort key: what concerns most pairs of releases first, then the first line of a file."""
    place = gap.places[-1]
    line = _LINE.search(place)
    return (
        -len(gap.releases) * len(gap.lacking),
        place.rpartition(":")[0],
        int(line[1]) if line else 0,
    )


def _says(one: CodeGap, gap: CodeGap) -> bool:
    return (
        one.kind is gap.kind is GapKind.NAME
        and (one.entry, one.partner) == (gap.entry, gap.partner)
        and _module(gap.needs) in (_module(one.needs), one.needs)
        and set(gap.releases) <= set(one.releases)
        and set(gap.lacking) <= set(one.lacking)
    )


def _module(path: str) -> str:
    return path.rpartition(".")[0]
