"""The text report in colour, for a terminal; the only module that needs rich."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.text import Text

from envcheck.clean import clean
from envcheck.model import Report
from envcheck.reports.text import lines

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


def render(report: Report) -> str:
    """The report with terminal colours; everything in it is cleaned first, for the codes must stay."""
    out = StringIO()
    console = Console(
        file=out, force_terminal=True, highlight=False, markup=False, emoji=False, soft_wrap=True
    )
    for line in lines(report):
        # Text objects, never markup: a package called [link=…] is a name here.
        console.print(Text.assemble(*((clean(span.text), _STYLES.get(span.style, "")) for span in line)))
    return out.getvalue()
