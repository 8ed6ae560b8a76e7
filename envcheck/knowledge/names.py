"""Public names of a package's modules and the releases that have them, from compat/names/. Pure.

A file `peft.txt` says in its first lines which releases were read, and which names its modules import from
elsewhere. A line `[peft.tuners.lora] 0.3.0..` begins a module; the releases that have it are left out if all
do. Below it, `= LoraModel` holds the names that are there in each of these releases, `0.3.0..0.9.0 is_bnb`
the names that some of them have, and `? name` names of which that is not known. After the releases of a
module, `?` says that it may have more names than are listed, and `~` that its releases are not known. Of a
package, `+ Any` holds the names that its own file imports from elsewhere; of other modules, the list in the
first lines counts.

Modules and names that begin with `_`, and modules in `UNLISTED`, are not in the file, except modules of
`LISTED_PRIVATE`. A file without the line of imported names, such as that of Python, lists only what differs
between releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from envcheck.core.rules import Span
from envcheck.knowledge.release_spans import (
    is_in_spans,
    open_spans,
    parse_open_spans,
    read_ends,
    spans_in_words,
)

_HEAD = """\
# Which releases of {package} have which public names.
# Written by tools/refresh_names.py; the form is described in envcheck/knowledge/names.py.
# read: {first} to {last}
"""
_IMPORTED = "# imported: "

UNLISTED = frozenset(
    {
        *("tests", "test", "testing", "testing_utils", "test_utils", "benchmark", "benchmarks", "examples"),
        *("scripts", "conftest", "f2py", "distutils", "third_party"),
    }
)
"""Parts of the paths of modules that are not in the files, because nobody imports them in a training."""

UNLISTED_PREFIXES = ("_", "dummy_", "convert_", "modular_", "test_")
"""Beginnings of parts of the paths of modules that are not in the files either."""

LISTED_PRIVATE = (
    *("torch._dynamo", "torch._six", "torch.distributed._composable", "torch.distributed._shard"),
    *("torch.distributed._tensor", "torch.utils._pytree"),
)
"""Private modules that are in the files all the same, with what is below them: other packages import them."""

_OPEN, _UNSURE, _ALWAYS, _ELSEWHERE = "?", "~", "=", "+"


class NameRow(NamedTuple):
    """Names of a module that the same releases have.

    `spans` is None if it is not known of every release. Names that are there whenever the module is have the
    spans of the module.
    """

    spans: tuple[Span, ...] | None
    names: tuple[str, ...]


class ModuleNames(NamedTuple):
    """A module, the releases that have it (None if that is not known), and its names.

    `is_open` says that it may have more names than are listed. `imported` are the names that it imports from
    elsewhere in some release, if it is a package.
    """

    module: str
    spans: tuple[Span, ...] | None
    rows: tuple[NameRow, ...] = ()
    is_open: bool = False
    imported: tuple[str, ...] | None = None


class InReleases(Enum):
    """Which of the releases that have a module have a name, or which releases have a module."""

    SOME = "some"
    EVERY = "every"
    NONE = "none"
    UNKNOWN = "unknown"


class Presence(NamedTuple):
    """Hold the releases that have something, where the answer is SOME or EVERY.

    `ends` are the first and the last release that were read. `is_module` says that the name is a module below
    the one that was asked about: an attribute of this name is there once something has imported it.
    """

    answer: InReleases
    spans: tuple[Span, ...] = ()
    ends: Span = ("", "")
    is_module: bool = False

    @property
    def words(self) -> str:
        """Return the releases in words."""
        return spans_in_words(self.spans, self.ends)

    def includes(self, version: str) -> bool:
        """Return whether a release certainly has it."""
        return is_in_spans(version, self.spans, self.ends)


UNKNOWN = Presence(InReleases.UNKNOWN)


def is_listed(module: str) -> bool:
    """Return whether modules with this path are listed if a release has them."""
    private = next((each for each in LISTED_PRIVATE if f"{module}.".startswith(f"{each}.")), "")
    parts = module.removeprefix(private).removeprefix(".").split(".")
    return not any(part in UNLISTED or part.startswith(UNLISTED_PREFIXES) for part in parts)


# --- rows → text ------------------------------------------------------------------------------------


def names_text(
    package: str,
    modules: Iterable[ModuleNames],
    releases: Sequence[str],
    imported: Iterable[str] | None = None,
) -> str:
    """Return the text of one package's file.

    `imported` are the names that its modules import from elsewhere, None if only differences are listed.
    """
    last = releases[-1]
    lines = [_HEAD.format(package=package, first=releases[0], last=last)]
    if imported is not None:
        lines.append(f"{_IMPORTED}{' '.join(sorted(imported))}\n")
    whole = ((releases[0], last),)
    for module in sorted(modules):
        spans = _UNSURE if module.spans is None else open_spans(module.spans, last)
        head = (f"[{module.module}]", "" if module.spans == whole else spans, _OPEN * module.is_open)
        lines.append(f"{' '.join(filter(None, head))}\n")
        for row in sorted(module.rows, key=lambda row: _order(row, module)):
            having = _OPEN if row.spans is None else open_spans(row.spans, last)
            mark = _ALWAYS if row.spans == module.spans else having
            lines.append(f"{mark} {' '.join(sorted(row.names))}\n")
        if module.imported is not None:
            lines.append(f"{' '.join((_ELSEWHERE, *sorted(module.imported)))}\n")
    return "".join(lines)


def _order(row: NameRow, module: ModuleNames) -> tuple[bool, bool, tuple[Span, ...]]:
    return row.spans is None, row.spans != module.spans, row.spans or ()


# --- text → presence --------------------------------------------------------------------------------


def presence(text: str, module: str, name: str = "") -> Presence:
    """Return which releases have a name of a module, or the module if the name is empty.

    Of a name, the releases that have its module are meant: Python found that before it looked for the name.
    """
    ends = read_ends(text)
    section = _section(text, module, ends)
    if section is None:
        missing = not name and _lacks_module(text, module, ends)
        return Presence(InReleases.NONE, (), ends) if missing else UNKNOWN
    if section.spans is None:
        return UNKNOWN
    return _of_name(text, section, name, ends) if name else _of_module(text, section.spans, ends)


def _of_module(text: str, spans: tuple[Span, ...], ends: Span) -> Presence:
    """Return which releases have a listed module; a file of differences does not say that all have it."""
    if spans != (ends,):
        return Presence(InReleases.SOME, spans, ends)
    return Presence(InReleases.EVERY, spans, ends) if _is_complete(text) else UNKNOWN


def _of_name(text: str, section: ModuleNames, name: str, ends: Span) -> Presence:
    """Return which releases have a name of a listed module, which may be a module itself."""
    row = next((row for row in section.rows if name in row.names), None)
    below = None if row is not None else _section(text, f"{section.module}.{name}", ends)
    spans = row.spans if row is not None else below.spans if below is not None else None
    if spans is not None:
        every = spans == section.spans
        return Presence(InReleases.EVERY if every else InReleases.SOME, spans, ends, below is not None)
    closed = row is None and below is None and not section.is_open and _is_complete(text)
    imported = _imported(text) if closed and section.imported is None else section.imported
    if closed and is_listed(name) and name not in (imported or ()):
        return Presence(InReleases.NONE, (), ends)
    return UNKNOWN


def is_offered_in_some_cases(text: str, module: str, name: str) -> bool:
    """Return whether a module takes a name from a module below it, in cases that its file does not tell.

    Mostly it does so only if an optional package can be imported.
    """
    section = _section(text, module, read_ends(text)) if text else None
    unsure = section is not None and any(row.spans is None and name in row.names for row in section.rows)
    return unsure and any(each.startswith(f"{module}.") for each, _ in modules_with(text, name))


def _lacks_module(text: str, module: str, ends: Span) -> bool:
    """Return whether no release has a module: the one above it is listed with all that is below it."""
    above, parent = None, module
    while above is None:
        parent, _, part = parent.rpartition(".")
        if not parent or not _is_complete(text) or not is_listed(part):
            return False
        above = _section(text, parent, ends)
    return above.spans is not None and not above.is_open


def modules_that_define(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of a package's file that only some releases give a name, with those in words."""
    ends = read_ends(text)
    for module, spans in modules_with(text, name):
        if spans != (ends,):
            yield f"{module}.{name}", spans_in_words(spans, ends)


def modules_with(text: str, name: str) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """Yield the modules that have a name, each with the releases that are known to have it there."""
    ends = read_ends(text)
    at = text.find(name)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        line = text[start:end]
        if not line.startswith(("#", "[", _OPEN, _ELSEWHERE)) and name in line.split()[1:]:
            module = text[text.rfind("\n[", 0, start) + 2 : text.find("]", text.rfind("\n[", 0, start))]
            section = _section(text, module, ends)
            for row in section.rows if section is not None else ():
                if name in row.names and row.spans:
                    yield module, row.spans
        at = text.find(name, end) if end >= 0 else -1


def spelt_in(text: str, module: str, name: str) -> str:
    """Return a name of a module that differs from `name` in upper and lower case alone, or an empty text."""
    section = _section(text, module, read_ends(text)) if text else None
    listed = (each for row in section.rows if row.spans for each in row.names) if section is not None else ()
    return next((each for each in listed if each.lower() == name.lower() and each != name), "")


def _section(text: str, module: str, ends: Span) -> ModuleNames | None:
    """Return what a package's file says of a module; None if it does not list it."""
    at = max(text.find(f"\n[{module}]\n"), text.find(f"\n[{module}] "))
    if at < 0:
        return None
    head, _, body = text[at + 1 :].partition("\n")
    flags = head.partition("] ")[2].split()
    body = body.partition("\n[")[0] if not body.startswith("[") else ""
    if _UNSURE in flags:
        return ModuleNames(module, None, is_open=True)
    named = [flag for flag in flags if flag != _OPEN]
    spans = parse_open_spans(named[0], ends[1]) if named else (ends,)
    rows = [line.split() for line in body.splitlines()]
    return ModuleNames(
        module,
        spans,
        tuple(
            NameRow(_spans(mark, spans, ends), tuple(names)) for mark, *names in rows if mark != _ELSEWHERE
        ),
        _OPEN in flags,
        next((tuple(names) for mark, *names in rows if mark == _ELSEWHERE), None),
    )


def _spans(mark: str, of_module: tuple[Span, ...], ends: Span) -> tuple[Span, ...] | None:
    if mark == _OPEN:
        return None
    return of_module if mark == _ALWAYS else parse_open_spans(mark, ends[1])


def _is_complete(text: str) -> bool:
    """Return whether a file lists all public names, not only those that differ between releases."""
    return f"\n{_IMPORTED.rstrip()}" in text[:1000]


def _imported(text: str) -> frozenset[str]:
    """Return the names that a package's modules import from elsewhere, which each of them may have."""
    at = text.index(f"\n{_IMPORTED.rstrip()}")
    return frozenset(text[at : text.find("\n", at + 1)].split()[2:])


def names_by_spans(
    having: Mapping[str, tuple[Span, ...] | None],
) -> tuple[NameRow, ...]:
    """Return rows that join the names that the same releases have; None are those that are not known.

    A name that no release has is left out.
    """
    listed = ((name, spans) for name, spans in having.items() if spans != ())
    ordered = sorted(listed, key=lambda each: (each[1] is None, each[1] or (), each[0]))
    return tuple(
        NameRow(spans, tuple(name for name, _ in alike))
        for spans, alike in groupby(ordered, key=lambda each: each[1])
    )
