"""Messages that published libraries raise, from compat/raised/, and which of them a log's message is. Pure.

A file `peft.txt` says in its first lines which releases were read. Below the line of a file and a function,
`[peft/config.py PeftConfigMixin.from_pretrained]`, each line is one message, with tabs between its parts: the
releases that raise it, the exception, the condition above, and the template, in which `{}` stands for a
value and `…` at the end for what was cut off. A span without an end, `0.4.0..`, reaches the newest release
that was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from envcheck.core.rules import Span
from envcheck.core.versions import order
from envcheck.knowledge.release_spans import open_spans, parse_open_spans, read_ends, spans_in_words

_HEAD = """\
# Messages that {package} raises; the form is described in envcheck/knowledge/raised.py.
# Written by tools/refresh_messages.py.
# read: {first} to {last}
"""
_PLACE = "{}"
_CUT = "…"
_PARTS = 4

CHECKS = {
    "_p_assert": "AssertionError",
    "_assert": "AssertionError",
    "_check": "RuntimeError",
    "_check_value": "ValueError",
    "_check_type": "TypeError",
    "_check_index": "IndexError",
    "_check_not_implemented": "NotImplementedError",
}
"""Functions of torch that raise the text in their second argument unless the first one holds, and what.

Others write a function of such a name for a check of their own, whose second argument is no text.
"""

_LEAST_LETTERS = 18
"""Letters that the fixed parts of a template share with a message."""

_LEAST_IN_FILE = 8
"""Letters that are enough if the message comes from the file whose template it is."""

_PYTHONS_OWN = frozenset(
    {
        "list index out of range",
        "string index out of range",
        "tuple index out of range",
        "pop from empty list",
    }
    | {"dictionary changed size during iteration", "generator already executing", "index out of range"}
)
"""Messages of Python itself, which libraries raise as well."""

_VALUES = re.compile(r"\[.*\]|\{.*\}|(?<!\w)'[^']*'(?!\w)|\S*[/\\]\S*")
"""A list, a dictionary, a quoted word or a path in a message, which is a value however long it is."""

_MOST_TOLD = 2000  # characters; the patterns take the square of the length

_CERTAIN_LETTERS = 40
"""Letters with which the fixed parts of a template identify it, however long the values are."""


class RaisedRow(NamedTuple):
    """Message that some releases of a package raise; `spans` are those releases.

    `condition` is the nearest one above the `raise`: `if x`, `unless x`, `on ImportError`, or empty.
    """

    package: str
    file: str
    function: str
    spans: tuple[Span, ...]
    exception: str
    condition: str
    template: str

    @property
    def is_check(self) -> bool:
        """Return whether a condition stands above it that is not another exception."""
        return bool(self.condition) and not self.condition.startswith("on ")


class FoundRaise(NamedTuple):
    """Hold the row that a log's message is, and its releases; `gone` says that the newest one lacks it.

    `ends` are the first and the last release that were read. `moved` says that the log's release, which is
    then none of these, raises it in another file.
    """

    row: RaisedRow
    releases: str
    gone: bool
    ends: Span
    moved: bool = False


# --- rows → text ------------------------------------------------------------------------------------


def raised_text(package: str, rows: Iterable[RaisedRow], releases: Sequence[str]) -> str:
    """Return the text of one package's file."""
    lines = [_HEAD.format(package=package, first=releases[0], last=releases[-1])]
    ordered = sorted(rows, key=lambda row: (row.file, row.function, row.template, row.exception))
    for (file, function), of_function in groupby(ordered, key=lambda row: (row.file, row.function)):
        lines.append(f"[{f'{file} {function}'.rstrip()}]\n")
        for row in of_function:
            parts = (open_spans(row.spans, releases[-1]), row.exception, row.condition, row.template)
            lines.append("\t".join(parts) + "\n")
    return "".join(lines)


# --- text → rows ------------------------------------------------------------------------------------


def find_raised(
    texts: Mapping[str, str], exception: str, message: str, place: str = ""
) -> tuple[FoundRaise, ...]:
    """Return the rows that a message is, those with the most text in common first.

    `texts` maps packages to the texts of their files; `exception` is the name of the exception's class.
    `place` is the file of the innermost frame: a row of that file needs little text in common.
    """
    name = exception.rpartition(".")[2]
    line = " ".join(message.split("\n", 1)[0].split())
    if _is_pythons_own(line):
        return ()
    return (
        _best(texts, name, line, _shared_letters)
        or (_best(texts, name, line, _letters_in_file, place) if place else ())
        or _best(texts, name, line, _retyped_letters)
    )


def _best(
    texts: Mapping[str, str], exception: str, line: str, shared: Callable[[str, str], int], place: str = ""
) -> tuple[FoundRaise, ...]:
    """Return the rows of an exception with the most letters in common with a line, by `shared`.

    If a place is given, only rows of that file count.
    """
    found = []
    for package, text in texts.items():
        for header, parts, ends in _lines(text):
            fits = len(parts) == _PARTS and parts[1] == exception
            if place and not place.endswith(f"/{header.partition(' ')[0]}"):
                continue
            if fits and (letters := shared(parts[3], line)):
                found.append((letters, _row(package, header, parts, ends)))
    found.sort(key=lambda one: -one[0])
    best = found[0][0] if found else 0
    return tuple(
        _with_other_wordings(row, [other for _, other in found]) for letters, row in found if letters == best
    )


def _with_other_wordings(chosen: FoundRaise, others: Sequence[FoundRaise]) -> FoundRaise:
    """Return a row with the releases in which the same check raises the message from another template.

    The message `CUDA binary not found` may be of a release that has `CUDA`, or of one that has `{}`.
    """
    row = chosen.row
    same = [
        other
        for other in others
        if other.row._replace(template="", spans=()) == row._replace(template="", spans=())
    ]
    if len(same) == 1:
        return chosen
    spans = tuple(
        sorted({span for other in same for span in other.row.spans}, key=lambda span: order(span[0]))
    )
    return chosen._replace(
        row=row._replace(spans=spans),
        releases=spans_in_words(spans, chosen.ends),
        gone=all(other.gone for other in same),
    )


def is_certain(row: RaisedRow) -> bool:
    """Return whether the fixed parts of a row's template are long enough to be of this library alone."""
    return sum(character.isalpha() for character in row.template.replace(_PLACE, "")) >= _CERTAIN_LETTERS


def _is_pythons_own(line: str) -> bool:
    """Return whether Python raises this message itself, so that it says nothing of a library's check."""
    return line in _PYTHONS_OWN or "object has no attribute '" in line or "got an unexpected keyword" in line


def _lines(text: str) -> Iterator[tuple[str, list[str], Span]]:
    """Yield each line of a file as the header above it, its parts, and the first and last release read."""
    if not text:
        return
    ends = read_ends(text)
    header = ""
    for line in text.splitlines():
        if line.startswith("["):
            header = line[1:-1]
        elif not line.startswith("#"):
            yield header, line.split("\t"), ends


def _row(package: str, header: str, parts: list[str], ends: Span) -> FoundRaise:
    file, _, function = header.partition(" ")
    spans = parse_open_spans(parts[0], ends[1])
    row = RaisedRow(package, file, function, spans, *parts[1:])
    return FoundRaise(row, spans_in_words(spans, ends), gone=spans[-1][1] != ends[1], ends=ends)


def _shared_letters(template: str, message: str) -> int:
    """Return how many letters of a message are fixed in its template; 0 if that does not identify it."""
    letters = _fixed_letters(template, message)
    if template.endswith(_CUT) and _PLACE not in template:
        message = message[: len(template)]  # what the file leaves out cannot be compared
    if letters >= _CERTAIN_LETTERS:
        return letters
    return letters if letters >= _LEAST_LETTERS and 2 * letters >= _told(message) else 0


@lru_cache(maxsize=256)
def _told(message: str) -> int:
    """Return how many letters a message has outside its values: thousands of templates ask it of one."""
    return sum(character.isalpha() for character in _VALUES.sub("", message[:_MOST_TOLD]))


def _letters_in_file(template: str, message: str) -> int:
    """Return the same as `_shared_letters` for a message of a known file, where fewer letters identify it."""
    letters = _fixed_letters(template, message)
    return letters if letters >= _LEAST_IN_FILE else 0


def _fixed_letters(template: str, message: str) -> int:
    """Return how many letters of a message are fixed in its template; 0 if it is not of this template.

    The fixed parts are searched from left to right, each behind the one before, which takes linear time.
    """
    whole = not template.endswith((_CUT, ":"))
    fixed = template.removesuffix(_CUT).split(_PLACE)
    if not message.startswith(fixed[0]):
        return 0
    at = len(fixed[0])
    for part in fixed[1:]:
        begin = message.find(part, at)
        if begin < 0:
            return _letters_of_cut(fixed, message)
        at = begin + len(part)
    if whole and not message.endswith(fixed[-1]):
        return 0
    return sum(character.isalpha() for part in fixed for character in part)


def _retyped_letters(template: str, message: str) -> int:
    """Return the letters in common if spaces, signs and case do not count, as in a message typed by hand."""
    fixed = [_bare(part) for part in template.removesuffix(_CUT).split(_PLACE)]
    bare = _bare(message)
    return _letters_of_cut(fixed, bare) if bare.startswith(fixed[0]) else 0


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def _letters_of_cut(fixed: Sequence[str], message: str) -> int:
    """Return the letters in common with a message that was cut off inside a value; 0 if they are too few."""
    at = letters = 0
    for part in fixed:
        begin = message.find(part, at)
        if begin < 0:
            break
        at = begin + len(part)
        letters += sum(character.isalpha() for character in part)
    return letters if letters >= _CERTAIN_LETTERS else 0
