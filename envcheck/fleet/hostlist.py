r"""Convert node names to and from Slurm's host list notation: `gpu[001-128,131]`, with zero padding. Pure.

`unfold(fold(names))` returns the names sorted and without duplicates. Any name survives, because a character
that has a meaning in the notation or is not printable is written as an escape (`\x5b`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

MOST = 1_000_000
"""Largest number of names that one text may stand for; `n[0-999999999]` is a mistake or an attack."""

_LONGEST_NUMBER = 9  # digits; a longer number is an identifier and not a counter
_SPECIAL = frozenset("\\[],")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class _Name(NamedTuple):
    """A name in three parts: before, at and after its counter; `digits` is empty if it has no counter."""

    before: str
    digits: str
    after: str


@lru_cache(maxsize=1 << 15)
def _split(name: str) -> _Name:
    """Split a name at the last number of its first label: `gpu`, `017`, `.cluster2.example`."""
    label = name.partition(".")[0]
    runs = list(re.finditer("[0-9]+", label))
    if not runs or len(runs[-1][0]) > _LONGEST_NUMBER:
        return _Name(_escaped(name), "", "")
    start, end = runs[-1].span()
    return _Name(_escaped(name[:start]), name[start:end], _escaped(name[end:]))


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return "".join(
        letter if letter.isprintable() and letter not in _SPECIAL and letter != " " else _escape(ord(letter))
        for letter in text
    )


def _escape(code: int) -> str:
    if code <= 0xFF:  # noqa: PLR2004 - two digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four digits


def fold(names: Iterable[str]) -> str:
    """Return the names as one host list, sorted and without duplicates."""
    groups: dict[tuple[str, str], set[str]] = {}
    for name in set(names):
        before, digits, after = _split(name)
        groups.setdefault((before, after), set()).add(digits)
    return ",".join(_group(*around, groups[around]) for around in sorted(groups))


def _group(before: str, after: str, numbers: set[str]) -> str:
    if len(numbers) == 1:
        return f"{before}{next(iter(numbers))}{after}"
    return f"{before}[{','.join(_ranges(numbers))}]{after}"


def _ranges(numbers: set[str]) -> Iterator[str]:
    """Yield ranges such as `001-128` and `131`, so that counting up from the first number gives the rest."""
    padded = {len(digits) for digits in numbers if digits[0] == "0" and len(digits) > 1}
    # If a number of the same width is padded, 100 follows 099; otherwise it follows 99.
    ordered = sorted(numbers, key=lambda digits: (len(digits) if len(digits) in padded else 0, int(digits)))
    first = last = ordered[0]
    for digits in ordered[1:]:
        if digits != str(int(last) + 1).zfill(len(first)):
            yield first if first == last else f"{first}-{last}"
            first = digits
        last = digits
    yield first if first == last else f"{first}-{last}"


def unfold(text: str) -> list[str]:
    """Return the names that a host list stands for, in the order of the text.

    Several brackets in one name give every combination.

    Raises:
        ValueError: the text is not a host list, or stands for more than `MOST` names.
    """
    names: list[str] = []
    for part in _parts(text):
        choices: list[list[str]] = []
        end = 0
        for bracket in _BRACKET.finditer(part):
            choices += [[_literal(part[end : bracket.start()])], list(_numbers(bracket[1]))]
            end = bracket.end()
        choices.append([_literal(part[end:])])
        count = 1
        for each in choices:
            count *= len(each)
        if len(names) + count > MOST:
            raise ValueError(f"stands for more than {MOST} nodes")
        names += ("".join(each) for each in product(*choices))
    return names


def _parts(text: str) -> Iterator[str]:
    """Split the text at the commas outside brackets."""
    start = depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError("a bracket too many")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError("a bracket without its end")
    yield text[start:]


def _literal(text: str) -> str:
    plain = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), text)
    if "\\" in _ESCAPE.sub("", text):
        raise ValueError("a backslash that escapes nothing")
    return plain


def _numbers(inner: str) -> Iterator[str]:
    for each in inner.split(","):
        found = _RANGE.fullmatch(each)
        if found is None:
            raise ValueError(f"expected a number or a range such as 001-128, found {each!r}")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise ValueError(f"{each} counts down")
        if int(last) - int(first) >= MOST:
            raise ValueError(f"stands for more than {MOST} nodes")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
