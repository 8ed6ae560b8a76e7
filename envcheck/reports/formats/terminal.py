"""The text report in colour, for a terminal; the only module that needs rich."""

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


def render(report: Report) -> str:
    """The report with terminal colours; everything in it is cleaned first, for the codes must stay."""
    columns = shutil.get_terminal_size().columns
    out = StringIO()
    console = Console(
        file=out, force_terminal=True, highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    for line in lines(report):
        for part in _wrapped(line, columns):
            # Text objects, never markup: a package called [link=…] is a name here.
            console.print(Text.assemble(*((inline(text), _STYLES.get(style, "")) for text, style in part)))
    return out.getvalue()


def _wrapped(line: Line, columns: int) -> list[Line]:
    """A long detail over several lines, hanging under its beginning; commands stay whole, to be pasted."""
    if (
        len(line) != len(("label", "text"))
        or not line[0].text.startswith("    ")
        or line[1].text.startswith("$ ")
    ):
        return [line]
    label, detail = line
    room = max(columns - width(label.text), _NARROWEST)
    blank = Span(" " * width(label.text), label.style)
    return [
        (label if number == 0 else blank, Span(piece, detail.style))
        for number, piece in enumerate(wrap(detail.text, room))
    ]
