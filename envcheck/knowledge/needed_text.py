"""Texts that a regular expression needs: what stands in everything that it matches.

A signature is tried on megabytes of log. To look for a plain text takes a hundredth of the time of a pattern,
and most patterns need one that the log does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Needed: TypeAlias = Sequence[str]
"""Texts in folded case, one of which stands in every match."""

NeededOfPatterns: TypeAlias = Mapping[str, Sequence[Needed]]
"""What patterns need, by their source: the wheel has it, because to read it takes half of explain's time."""


def _shortest(needed: Needed) -> int:
    return min(map(len, needed))


def needed_texts(pattern: str, worth: Callable[[Needed], int] = _shortest) -> list[Needed]:
    """Return what a pattern needs: at least one text of each tuple, whatever the case of its letters.

    Of each alternative, the need of most `worth` is taken. Needs may be left out, because optional parts,
    lookarounds and character classes count as needing nothing.
    """
    return [] if _VERBOSE.search(pattern) else list(_Reader(pattern, worth).alternatives())


_WITH_PATTERNS = ("exception_meaning", "general_meaning")
"""Tables of compat/ with a pattern for each of hundreds of messages."""


def freeze_needed(tree: Mapping[str, Any]) -> dict[str, list[Needed]]:
    """Return what the signatures and the patterns of messages in a tree of compat/ need."""
    signatures: Iterable[str] = (text for case in tree["case"] for text in case.get("signature", ()))
    messages = (
        row["pattern"]
        for table in _WITH_PATTERNS
        for row in tree["tables"].get(table, ())
        if "pattern" in row
    )
    return {pattern: needed_texts(pattern) for pattern in (*signatures, *messages)}


def may_match(needed: Sequence[Needed], folded: str) -> bool:
    """Return False if a text, after `str.casefold`, lacks something that every match contains."""
    return all(any(text in folded for text in texts) for texts in needed)


_VERBOSE = re.compile(r"\(\?[a-wyz]*x[a-z]*[:)]")
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_GROUP = re.compile(r"\((?:\?(?:P<\w+>|[a-zA-Z-]*:)|(?!\?))")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_CODED = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\d{1,3})")
"""A character by its number, or a reference to a group: its digits are not text."""

_OPTIONAL = re.compile(r"[?*]|\{0?(?:,\d*)?\}")
_REPEATED = re.compile(r"\+|\{\d+(?:,\d*)?\}")


class _Reader:
    """Read a regular expression from left to right, one group inside another."""

    def __init__(self, pattern: str, worth: Callable[[Needed], int]) -> None:
        self._pattern = pattern
        self._worth = worth
        self._at = 0

    def alternatives(self) -> Iterator[Needed]:
        """Read to the end of a group, and yield what every one of its alternatives needs."""
        found = [self._sequence()]
        while self._next == "|":
            self._at += 1
            found.append(self._sequence())
        if len(found) == 1:
            yield from found[0]
        elif all(found):
            yield tuple(text for needs in found for text in max(needs, key=self._worth))

    def _sequence(self) -> list[Needed]:
        """Read to the next `|` or to the end of the group, and return what is needed up to there."""
        found: list[Needed] = []
        run = ""
        while self._next not in ("", "|", ")"):
            literal, needs = self._part()
            if self._passes(_OPTIONAL):
                found += _of_run(run)
                run = ""
            elif self._passes(_REPEATED) or not literal:
                found += [*_of_run(run + literal), *needs]
                run = ""
            else:
                run += literal
        return [*found, *_of_run(run)]

    def _part(self) -> tuple[str, list[Needed]]:
        """Read one part, and return the character that it stands for, or what the group needs."""
        if self._next == "(":
            return "", self._group()
        if self._passes(_CLASS) or self._passes(_CODED):
            return "", []
        escaped = self._next == "\\"
        self._at += escaped
        char = self._next
        self._at += 1
        return "" if (char.isalnum() if escaped else char in ".^$") else char, []

    def _group(self) -> list[Needed]:
        if self._passes(_FLAGS):
            return []
        has_text = self._passes(_GROUP)
        self._at += 0 if has_text else len("(?")  # a lookaround, a comment or a reference
        needs = list(self.alternatives())
        self._at += len(")")
        return needs if has_text else []

    @property
    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _passes(self, form: re.Pattern[str]) -> bool:
        """Step over a form if it stands here, with the `?` that makes a quantifier lazy."""
        hit = form.match(self._pattern, self._at)
        if hit is None:
            return False
        lazy = form in (_OPTIONAL, _REPEATED) and self._pattern.startswith(("?", "+"), hit.end())
        self._at = hit.end() + lazy
        return True


def _of_run(run: str) -> list[Needed]:
    return [(run.casefold(),)] if run else []
