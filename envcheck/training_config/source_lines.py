"""Lines of a source text: offsets to places, and the source line that a message quotes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from envcheck.core.errors import Place
from envcheck.core.findings import Diagnostic

_MAX_EXCERPT = 200  # characters of a line that are shown
_BEFORE_PLACE = 40  # of these, characters before the place if the line is longer


class SourceLines:
    """Offsets at which the lines of a text begin."""

    def __init__(self, text: str, file: str) -> None:
        """Index the text; `file` is the name that places get."""
        self.text, self.file = text, file
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def number(self, offset: int) -> int:
        """Return the number of the line, from 1, that holds an offset."""
        return bisect_right(self._starts, offset)

    def place(self, start: int, end: int) -> Place:
        """Return the place of `text[start:end]`, cut at the end of its first line."""
        line = self.number(start)
        begin = self._starts[line - 1]
        line_end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return Place(self.file, line, start - begin + 1, max(1, min(end, line_end) - start))


def with_excerpts(diagnostics: Iterable[Diagnostic], texts: dict[str, str]) -> list[Diagnostic]:
    """Return the diagnostics with the source line of each place; `texts` maps file names to contents."""
    lines = {file: text.split("\n") for file, text in texts.items()}

    def with_line(place: Place) -> Place:
        if not 0 < place.line <= len(lines.get(place.file, ())):
            return place
        line = lines[place.file][place.line - 1].rstrip("\r")
        cut = max(0, place.column - 1 - _BEFORE_PLACE) if len(line) > _MAX_EXCERPT else 0
        return place._replace(excerpt=line[cut : cut + _MAX_EXCERPT], cut=cut)

    return [
        diagnostic._replace(places=tuple(map(with_line, diagnostic.places))) for diagnostic in diagnostics
    ]
