"""The text report in colour, for a terminal; the only module that imports rich."""

from __future__ import annotations

import shutil
from io import StringIO

from rich.console import Console
from rich.text import Text

from envcheck.core.findings import Report
from envcheck.core.i18n import width, wrap
from envcheck.core.sanitize import inline
from envcheck.reports.formats.text import Line, Span, lines

_STYLES = {
    "ok": "green",
    "warning": "yellow",
    "error": "bold red",
    "note": "cyan",
    "unknown": "magenta",
    "none": "dim",
    "title": "bold",
    "dim": "dim",
}

_NARROWEST = 40  # columns a detail gets even on a narrower terminal
_DETAIL_SPANS = 2  # label and text


def render(report: Report) -> str:
    """Return the report with terminal colours.

    Each text is cleaned before it is coloured, because cleaning the result would remove the colour codes.
    """
    columns = shutil.get_terminal_size().columns
    out = StringIO()
    console = Console(
        file=out, force_terminal=True, highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    for line in lines(report):
        for part in _wrapped(line, columns):
            # Text objects are never parsed as markup, so a package named [link=…] is printed as it is.
            console.print(Text.assemble(*((inline(text), _STYLES.get(style, "")) for text, style in part)))
    return out.getvalue()


def _wrapped(line: Line, columns: int) -> list[Line]:
    """Wrap a long detail with a hanging indent; commands stay on one line so that they can be pasted."""
    is_detail = len(line) == _DETAIL_SPANS and line[0].text.startswith("    ")
    if not is_detail or line[1].text.startswith("$ "):
        return [line]
    label, detail = line
    room = max(columns - width(label.text), _NARROWEST)
    blank = Span(" " * width(label.text), label.style)
    return [
        (label if number == 0 else blank, Span(piece, detail.style))
        for number, piece in enumerate(wrap(detail.text, room))
    ]
