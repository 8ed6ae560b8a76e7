"""Symbols that some releases of torch define and others do not, from compat/symbols/torch.txt. Pure.

Below a line of releases, `2.3.0..2.7.1`, stand the symbols that these releases define: C++ names as the
compiler mangles them, and functions of the stable C interface. `tools/refresh_symbols.py` writes the file,
with those symbols alone that extensions use: of the namespaces c10, at and torch, without what is generated
for one device or one derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from envcheck.core.rules import Span
from envcheck.core.versions import order
from envcheck.knowledge.atlas import spans_of
from envcheck.knowledge.members import Membership
from envcheck.knowledge.release_spans import open_spans, parse_open_spans, read_ends, spans_in_words

_HEAD = """\
# Which releases of torch define symbols that others do not define.
# Written by tools/refresh_symbols.py; the form is described in envcheck/knowledge/torch_symbols.py.
# read: {first} to {last}
"""


def symbols_text(symbols: Mapping[str, Iterable[str]]) -> str:
    """Return the text of the file, from the symbols of each release in the order of versions."""
    releases = list(symbols)
    defining: dict[str, list[str]] = {}
    for release, names in symbols.items():
        for name in names:
            defining.setdefault(name, []).append(release)
    grouped: dict[tuple[Span, ...], list[str]] = {}
    for name, found in defining.items():
        if len(found) < len(releases):
            grouped.setdefault(spans_of(found, releases), []).append(name)
    lines = [_HEAD.format(first=releases[0], last=releases[-1])]
    for spans in sorted(grouped, key=_place):
        lines.append(f"{open_spans(spans, releases[-1])}\n")
        lines += [f"{name}\n" for name in sorted(grouped[spans])]
    return "".join(lines)


def _place(spans: Sequence[Span]) -> list[tuple[object, object]]:
    return [(order(first), order(last)) for first, last in spans]


def releases_that_define(text: str, symbol: str) -> Membership | None:
    """Return the releases of torch whose wheels define a symbol; None if all or none do, or if unknown.

    Of a build by a vendor, conda-forge or for the CPU it says nothing, so the result includes no version.
    """
    at = text.find(f"\n{symbol}\n") if symbol and not symbol[0].isdigit() else -1
    if at < 0:
        return None
    above = reversed(text[:at].splitlines())
    ends = read_ends(text)
    spans = parse_open_spans(next(line for line in above if line[:1].isdigit()), ends[1])
    return Membership("torch", symbol, spans_in_words(spans, ends), "")
