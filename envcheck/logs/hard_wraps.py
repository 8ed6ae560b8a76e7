"""Lines that a terminal broke at its width and padded with spaces, in what was copied from it. Pure.

tmux, screen and some terminals copy the screen as it is: each row is as long as the terminal is wide, and a
line that did not fit goes on in the next row.
"""

from __future__ import annotations

import re
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


def _is_copy(rows: Sequence[str], width: int) -> bool:
    padded = sum(len(row) == width and row.endswith("  ") for row in rows)
    return padded >= max(_LEAST_PADDED, _SHARE_PADDED * sum(map(bool, rows)))


def _goes_on(row: str, following: str, width: int) -> bool:
    """Return whether a row is full; one that ends in a single space may be as long as its line."""
    if len(row) != width or row.endswith("  ") or not following.strip():
        return False
    begins = _BEGINS_A_LINE.match(following) is not None
    return not (begins or (row.endswith(" ") and _MAY_BEGIN_A_LINE.match(following)))
