"""The text report in colour, for a terminal; the only module that imports rich."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
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

_NARROWEST = 40  # columns a line gets even on a narrower terminal


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
    """Wrap a long line with a hanging indent; commands stay on one line so that they can be pasted."""
    text = "".join(span.text for span in line)
    if width(text) <= columns or (line and line[-1].text.startswith("$ ")):
        return [line]
    lead = _hanging_lead(line)
    indent = width("".join(span.text for span in lead)) if lead else 2
    rest = line[len(lead) :]
    pieces = wrap("".join(span.text for span in rest), max(columns - indent, _NARROWEST))
    wrapped: list[Line] = []
    for number, piece in enumerate(_styled(pieces, rest)):
        before = lead if number == 0 else (Span(" " * indent),) if lead or number else ()
        wrapped.append((*before, *piece))
    return wrapped


def _hanging_lead(line: Line) -> Line:
    """Return the spans that stay alone in their columns: a detail's label, or a category's mark and name."""
    first = line[0].text
    if first.startswith("    "):
        return line[:1]
    return line[:2] if first.startswith("[") else ()


def _styled(pieces: Sequence[str], spans: Sequence[Span]) -> Iterator[Line]:
    """Yield wrapped pieces of a text with the styles that its spans had; wrapping drops only blanks."""
    characters = [(character, span.style) for span in spans for character in span.text]
    at = 0
    for piece in pieces:
        found: list[Span] = []
        for character in piece:
            while at < len(characters) - 1 and characters[at][0] != character:
                at += 1
            style = characters[at][1] if at < len(characters) else ""
            at += 1
            if found and found[-1].style == style:
                found[-1] = Span(found[-1].text + character, style)
            else:
                found.append(Span(character, style))
        yield found
