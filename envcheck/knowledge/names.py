"""Names that some releases of a package have and others lack, from compat/names/. Pure.

A file `peft.txt` says in its first lines which releases were read. Below the line of a module,
`[peft.tuners.lora]`, each line holds the releases that have the names in it: `0.2.0..0.9.0 LoraModel`. A line
without a name is about the module. A name without a line is in all releases that have its module, or in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from envcheck.core.facts import Tri
from envcheck.core.rules import Span
from envcheck.core.versions import compare
from envcheck.knowledge.atlas import format_spans, parse_spans

_HEAD = """\
# Which releases of {package} have names that others lack; what no line names is in all or in none.
# Written by tools/refresh_names.py; the form is described in envcheck/knowledge/names.py.
# read: {first} to {last}
"""


class NameRow(NamedTuple):
    """A name of a module, or a module if the name is empty, and the releases that have it."""

    module: str
    name: str
    spans: tuple[Span, ...]


def names_text(package: str, rows: Iterable[NameRow], releases: Sequence[str]) -> str:
    """Return the text of one package's file."""
    lines = [_HEAD.format(package=package, first=releases[0], last=releases[-1])]
    ordered = sorted(rows, key=lambda row: (row.module, format_spans(row.spans), row.name))
    for module, of_module in groupby(ordered, key=lambda row: row.module):
        lines.append(f"[{module}]\n")
        for spans, alike in groupby(of_module, key=lambda row: format_spans(row.spans)):
            names = [row.name for row in alike]
            if "" in names:
                lines.append(f"{spans.replace(' ', '')}\n")
            if any(names):
                lines.append(f"{spans.replace(' ', '')} {' '.join(filter(None, names))}\n")
    return "".join(lines)


def releases_that_have(text: str, module: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield dotted paths from a package's file, each with the releases that have it, in words.

    The module comes first, if it is not in all releases; then the name. An empty `name` selects the module
    alone.
    """
    ends = read_ends(text)
    section = f"\n[{module}]\n"
    at = text.find(section)
    if at < 0:
        return
    body = text[at + len(section) :]
    for line in body[: body.find("\n[") if "\n[" in body else len(body)].splitlines():
        spans, *names = line.split()
        if not names or name in names:
            path = f"{module}.{name}" if names else module
            yield path, spans_in_words(parse_spans(spans), ends)


def release_has(text: str, module: str, name: str, version: str) -> bool:
    """Return whether a package's file says that this release has a name of a module, which others lack.

    A file that names minors does not say it of each patch release of the first and the last minor of a span.
    """
    ends = read_ends(text)
    section = f"\n[{module}]\n"
    at = text.find(section)
    body = text[at + len(section) :] if at >= 0 else ""
    for line in body.partition("\n[")[0].splitlines():
        spans, *names = line.split()
        if name in names:
            return is_in_spans(version, parse_spans(spans), ends)
    return False


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


def modules_that_define(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of a package's file that only some releases give a name, with those in words."""
    ends = read_ends(text)
    module = ""
    for line in text.splitlines():
        if line.startswith("["):
            module = line[1:-1]
        elif not line.startswith("#"):
            spans, *names = line.split()
            if name in names:
                yield f"{module}.{name}", spans_in_words(parse_spans(spans), ends)


def read_ends(text: str) -> Span:
    """Return the first and the last release that were read, from the head of a file."""
    line = text[text.index("# read: ") : text.index("\n", text.index("# read: "))]
    first, _, last = line.removeprefix("# read: ").partition(" to ")
    return first, last


def is_of_minors(text: str) -> bool:
    """Return whether a package's file names minors, of each of which the last release was read."""
    return all(end.count(".") == 1 for end in read_ends(text))


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
