"""Attributes that libraries set only in some places, and keywords that they pass, from compat/given/. Pure.

A class need not define what an exception reports as missing: a library sets it on objects of another one, or
on its own only under a condition. A file `unsloth.txt` says in its first lines which releases were read.
Below the line of a file and a function, `[unsloth/models/llama.py FastLlamaModel.from_pretrained]`, each line
has tabs between its parts: the releases, `self` if the object is one of the function's class, the condition
above, and the attributes. Below `[keywords]`, each line holds the releases that pass the keywords in it to
some function; one that all releases pass has no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from envcheck.core.rules import Span
from envcheck.core.versions import order
from envcheck.knowledge.release_spans import (
    is_in_spans,
    open_spans,
    parse_open_spans,
    read_ends,
    spans_in_words,
)

_HEAD = """\
# Attributes that {package} sets only in some places, and keywords that only some releases pass.
# Written by tools/refresh_messages.py; the form is described in envcheck/knowledge/given.py.
# read: {first} to {last}
"""
_KEYWORDS = "keywords"
OPTIONAL = "<names>"
"""What stands for the function above names that a file imports only under a condition."""

_CLASS = "<class "
_OWN = "self"
_PARTS = 4


class GivenRow(NamedTuple):
    """Attributes that one function of some releases sets under one condition, which may be empty.

    `own` says that the object is one of the function's class.
    """

    file: str
    function: str
    spans: tuple[Span, ...]
    own: bool
    condition: str
    names: tuple[str, ...]


class ClassWith(NamedTuple):
    """Class that has an attribute: package, its releases in words, and the class."""

    package: str
    releases: str
    name: str


class KeywordRow(NamedTuple):
    """Keywords that some releases pass to some function."""

    spans: tuple[Span, ...]
    names: tuple[str, ...]


class SetAttribute(NamedTuple):
    """Place that sets an attribute: package, its releases in words, file, function, and the condition above.

    `own` says that the object is one of the function's class. `since` says that the first releases that were
    read do not set it.
    """

    package: str
    releases: str
    file: str
    function: str
    condition: str
    own: bool
    since: bool = False


class PassedKeyword(NamedTuple):
    """Package whose code passes a keyword, and its releases that do, in words."""

    package: str
    releases: str


# --- rows → text ------------------------------------------------------------------------------------


def given_text(
    package: str, rows: Iterable[GivenRow], keywords: Iterable[KeywordRow], releases: Sequence[str]
) -> str:
    """Return the text of one package's file."""
    lines = [_HEAD.format(package=package, first=releases[0], last=releases[-1])]
    ordered = sorted(rows, key=lambda row: (row.file, row.function, row.names))
    for (file, function), of_function in groupby(ordered, key=lambda row: (row.file, row.function)):
        lines.append(f"[{file} {function}]\n")
        for row in of_function:
            own = _OWN if row.own else ""
            parts = (open_spans(row.spans, releases[-1]), own, row.condition, " ".join(row.names))
            lines.append("\t".join(parts) + "\n")
    lines.append(f"[{_KEYWORDS}]\n")
    lines += [
        f"{open_spans(row.spans, releases[-1])} {' '.join(row.names)}\n"
        for row in sorted(keywords, key=lambda row: row.names)
    ]
    return "".join(lines)


# --- text → rows ------------------------------------------------------------------------------------


def places_that_set(
    texts: Mapping[str, str], classes: Sequence[str], attribute: str
) -> tuple[SetAttribute, ...]:
    """Return the places that set an attribute on an object of one of the classes.

    Places in the classes themselves come first; without any, those that set it on an object of another
    class, whatever that is.
    """
    found = [
        place
        for package, text in texts.items()
        for place in _places(package, text, attribute)
        if not place.function.startswith("<")
    ]
    own = [place for place in found if place.own and place.function.partition(".")[0] in classes]
    return tuple(own or (place for place in found if not place.own))


def sets_only_in_some_cases(text: str, classes: Sequence[str], attribute: str, version: str) -> bool:
    """Return whether a release has places that set an attribute of a class's own, each under a condition."""
    ends = read_ends(text)
    rows = [
        condition
        for function, spans, own, condition in _rows_with(text, attribute)
        if own
        and function.partition(".")[0] in classes
        and is_in_spans(version, parse_open_spans(spans, ends[1]), ends)
    ]
    return bool(rows) and all(rows)


def methods_that_set(text: str, file: str, attribute: str) -> tuple[SetAttribute, ...]:
    """Return the methods in a file of a package that always set an attribute of their own object."""
    return tuple(
        place
        for place in _places("", text, attribute)
        if place.own and not place.condition and file.endswith(place.file)
    )


def class_header(name: str, bases: Sequence[str]) -> str:
    """Return what stands for the function above the attributes of a class."""
    return f"{_CLASS}{name} {' '.join(bases)}>"


def classes_with(texts: Mapping[str, str], owner: str, attribute: str) -> tuple[ClassWith, ...]:
    """Return the classes that have an attribute and are derived from a class, or beside it from its base."""
    found = []
    for package, text in texts.items():
        own = re.search(rf" {_CLASS}{re.escape(owner)} ([^>]+)>\]\n", text)
        bases = {owner, *(own[1].split() if own else ())}
        for place in _places(package, text, attribute):
            if place.function.startswith(_CLASS):
                name, *above = place.function[len(_CLASS) : -1].split()
                if name != owner and bases & {*above}:
                    found.append(ClassWith(package, place.releases, name))
    return tuple(found)


def optional_name(text: str, file: str, name: str) -> SetAttribute | None:
    """Return the condition under which a file of a package imports a name; None if it always does."""
    rows = (place for place in _places("", text, name) if place.function == OPTIONAL)
    return next((place for place in rows if file.endswith(place.file)), None)


def _rows_with(text: str, attribute: str) -> Iterator[tuple[str, str, bool, str]]:
    """Yield function, releases, whether the object is its own, and condition of each row with a name."""
    for _, function, parts in _lines_with(text, attribute):
        yield function, parts[0], parts[1] == _OWN, parts[2]


def _places(package: str, text: str, attribute: str) -> Iterator[SetAttribute]:
    for file, function, parts in _lines_with(text, attribute):
        own = parts[1] == _OWN
        since = _is_later(parts[0], text)
        yield SetAttribute(package, _words(parts[0], text), file, function, parts[2], own, since)


def _lines_with(text: str, attribute: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield file, function and the parts of each row that names an attribute."""
    for match in re.finditer(rf"[\t ]{re.escape(attribute)}(?=[ \n])", text):
        begin = text.rfind("\n", 0, match.start()) + 1
        head = text.rfind("\n[", 0, begin) + 2
        file, _, function = text[head : text.index("]\n", head)].partition(" ")
        parts = text[begin : text.find("\n", begin)].split("\t")
        if file != _KEYWORDS and len(parts) == _PARTS and attribute in parts[3].split():
            yield file, function, parts


def packages_that_pass(texts: Mapping[str, str], keyword: str) -> tuple[PassedKeyword, ...]:
    """Return the packages of which only some releases pass a keyword."""
    found = []
    for package, text in texts.items():
        section = text[text.find(f"\n[{_KEYWORDS}]\n") + 1 :]
        match = re.search(rf"\n(\S+)(?: \w+)*? {re.escape(keyword)}(?=[ \n])", section)
        if match:
            found.append(PassedKeyword(package, _words(match[1], text)))
    return tuple(found)


def _is_later(spans: str, text: str) -> bool:
    """Return whether releases in the file's text lie before all of the spans."""
    ends = read_ends(text)
    return all(order(first) > order(ends[0]) for first, _ in parse_open_spans(spans, ends[1]))


def _words(spans: str, text: str) -> str:
    ends = read_ends(text)
    return spans_in_words(parse_open_spans(spans, ends[1]), ends)
