"""Checks of the patterns in tables with which the lines of a log are read: none may be slow on a long one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject

_REPETITION = re.compile(r"(\(\?[a-zA-Z]+\)|\((\?:)?)*(\\[a-zA-Z]|\.|\[[^\]]*\])[+*]")
_OF_ANYTHING = re.compile(r"(\(\?[a-zA-Z]+\)|\((\?:)?)*\.[+*]")

_SEARCHED = (
    ("exception_meaning", "source"),
    ("exception_meaning", "file"),
    ("exception_meaning", "through"),
    ("failure_message", "pattern"),
    ("caught", "pattern"),
)
"""Tables and their keys whose patterns may match anywhere in a text."""

_MATCHED = (("exception_meaning", "pattern"), ("general_meaning", "pattern"), ("failure_line", "pattern"))
"""Tables and their keys whose patterns match at the beginning of a text."""


def begins_with_repetition(pattern: str) -> bool:
    """Return whether a pattern begins with a part of any length.

    A search tries it at every character of a long word: the time grows with the square.
    """
    return _REPETITION.match(pattern) is not None


def _slow_patterns(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield patterns that a search tries anew at each character, and matched ones that read whole lines."""
    at_a_word = r"a pattern that begins with a text, with \b or with (?<!\S)"
    bounded = "a pattern whose first part has a bound, such as .{0,200}"
    for tables, is_slow, expected in (
        (_SEARCHED, begins_with_repetition, at_a_word),
        (_MATCHED, _OF_ANYTHING.match, bounded),
    ):
        for table, key in tables:
            for number, row in enumerate(subject.tree["tables"].get(table, [])):
                if is_slow(pattern := str(row.get(key, ""))):
                    place = subject.places.row(table, number)
                    message = f"{key}: expected {expected}; found {pattern!r}"
                    yield LintProblem("slow-pattern", place.file, place.at(key), "", message)


CHECKS = (_slow_patterns,)
