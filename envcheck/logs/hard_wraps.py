"""Lines that a terminal broke at its width and padded with spaces, in what was copied from it. Pure.

tmux, screen and some terminals copy the screen as it is: each row is as long as the terminal is wide, and a
line that did not fit goes on in the next row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

LONGEST_COPY = 1 << 20
"""Bytes of the longest text that may be such a copy: a screen and what it scrolled, not a file."""

_WIDTHS = range(60, 500)
_LEAST_PADDED = 3  # rows that have to end in several spaces
_SHARE_PADDED = 0.2
_MAY_BEGIN_A_LINE = re.compile(r"\s|\[|\(|File ")
_BEGINS_A_LINE = re.compile(
    r"\[rank\d|Traceback \(|\s+File \"|\[?\d{4}-\d\d-\d\d|\[?(?:INFO|DEBUG|WARNING|ERROR|CRITICAL)\b"
)


def unfolded(data: bytes) -> bytes:
    """Return a text with its broken lines joined, if a terminal broke them, else the text itself.

    What a line was joined with becomes an empty line, so that the other lines keep their numbers.
    """
    rows = data.decode("utf-8", "surrogateescape").split("\n")
    if joined_panes := _without_other_pane(rows):
        return "\n".join(joined_panes).encode("utf-8", "surrogateescape")
    width = max(map(len, rows))
    if width not in _WIDTHS or not _is_copy(rows, width):
        return data
    joined: list[str] = []
    whole = 0  # where the line that is open begins
    for number, row in enumerate(rows):
        if number and _goes_on(rows[number - 1], row, width):
            joined[whole] += row
            joined.append("")
        else:
            whole = number
            joined.append(row)
    return "\n".join(joined).encode("utf-8", "surrogateescape")


_BLANKS = re.compile(r"(?<=\S) {20,}(?=\S)")
_LEAST_BROKEN = 2  # lines that have to be broken at the same column
_NARROWEST = 40  # columns of a pane; the first column of a table may be as wide as a narrower one


def _without_other_pane(rows: Sequence[str]) -> list[str]:
    """Return the lines of a terminal's left pane without the blanks of the pane beside it, or nothing.

    A line that did not fit into the pane goes on one width of the whole screen later, in the same line of the
    copy: `site-packages/tr`, blanks, `l/trainer`.
    """
    broken = [(row, found) for row in rows if (found := _BLANKS.search(row))]
    screens = Counter(found.end() for _, found in broken)
    screen, lines = screens.most_common(1)[0] if screens else (0, 0)
    if lines < _LEAST_BROKEN or screen not in _WIDTHS:
        return []
    pane = max(found.start() for _, found in broken if found.end() == screen)
    at_screen = (row for row, found in broken if found.end() == screen)
    of_pane = {row for row in at_screen if _is_of_pane(row, pane, screen)}
    if len(of_pane) < _LEAST_BROKEN or pane < _NARROWEST:
        return []
    return ["".join(part[:pane] for part in _parts(row, screen)) if row in of_pane else row for row in rows]


def _is_of_pane(row: str, pane: int, screen: int) -> bool:
    """Return whether every part of a line fills the pane but the last, and leaves the other pane blank."""
    parts = _parts(row, screen)
    full = all(len(part[:pane].rstrip()) >= pane - 1 for part in parts[:-1])
    return full and not any(part[pane:].strip() for part in parts)


def _parts(row: str, size: int) -> list[str]:
    return [row[at : at + size] for at in range(0, len(row), size)]


def _is_copy(rows: Sequence[str], width: int) -> bool:
    padded = sum(len(row) == width and row.endswith("  ") for row in rows)
    return padded >= max(_LEAST_PADDED, _SHARE_PADDED * sum(map(bool, rows)))


def _goes_on(row: str, following: str, width: int) -> bool:
    """Return whether a row is full; one that ends in a single space may be as long as its line."""
    if len(row) != width or row.endswith("  ") or not following.strip():
        return False
    begins = _BEGINS_A_LINE.match(following) is not None
    return not (begins or (row.endswith(" ") and _MAY_BEGIN_A_LINE.match(following)))
