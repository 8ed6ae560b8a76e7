"""Spans of releases in the tables of `explain`: as text, in words, and whether a release is in one. Pure.

A span names its first and its last release. In a file, a span that reaches the newest release that was read
has no end: `0.16.0..`. A file names the releases that were read in a line `# read: 0.1.0 to 1.16.0`.
"""

from __future__ import annotations

from collections.abc import Iterable

from envcheck.core.facts import Tri
from envcheck.core.rules import Span
from envcheck.core.versions import compare

# --- text ⇄ spans -----------------------------------------------------------------------------------


def open_spans(spans: Iterable[Span], last: str) -> str:
    """Return spans as text; those that reach the newest release have no end."""
    return ",".join(
        f"{first}.." if end == last else first if first == end else f"{first}..{end}" for first, end in spans
    )


def parse_open_spans(text: str, last: str) -> tuple[Span, ...]:
    """Return the spans of a text that `open_spans` wrote."""
    spans = []
    for part in text.split(","):
        first, dots, end = part.partition("..")
        spans.append((first, end or last if dots else first))
    return tuple(spans)


def read_ends(text: str) -> Span:
    """Return the first and the last release that were read, from the head of a file."""
    line = text[text.index("# read: ") : text.index("\n", text.index("# read: "))]
    first, _, last = line.removeprefix("# read: ").partition(" to ")
    return first, last


def spans_in_words(spans: tuple[Span, ...], ends: Span) -> str:
    """Return spans in words: `from 4.49.0 on`, `up to 4.57.6`, `4.41.0 to 4.51.3`."""
    parts = []
    for first, last in spans:
        if (first, last) == ends:
            parts.append(f"{first} to {last}")
        elif last == ends[1]:
            parts.append(f"from {first} on")
        elif first == ends[0]:
            parts.append(f"up to {last}")
        else:
            parts.append(first if first == last else f"{first} to {last}")
    return ", ".join(parts)


# --- a release and spans ----------------------------------------------------------------------------


def is_in_spans(version: str, spans: Iterable[Span], ends: Span) -> bool:
    """Return whether a release is certainly in one of the spans of a file that was read from end to end."""
    of_minors = all(end.count(".") == 1 for end in ends)
    is_in = _is_inside if of_minors else _is_within
    return any(is_in(version, span, ends) for span in spans)


def _is_inside(version: str, span: Span, ends: Span) -> bool:
    """Return whether the minor of a release is in a span of minors, and not at an end where it changed."""
    first, last = span
    minor = ".".join(version.split(".")[:2])
    after = compare(minor, ">" if first != ends[0] else ">=", first) is Tri.YES
    return after and (last == ends[1] or compare(minor, "<", last) is Tri.YES)


def _is_within(version: str, span: Span, ends: Span) -> bool:
    """Return whether a release is in a span."""
    first, last = span
    after = compare(version, ">=", first) is Tri.YES
    return after and (last == ends[1] or compare(version, "<=", last) is Tri.YES)
