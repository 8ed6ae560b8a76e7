"""What `${NAME%ending}`, `${NAME//a/b}`, `${NAME,,}` and similar make of the text of a variable. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase, translate

_MOST_CHARACTERS = 500  # of a text that is edited, as patterns are tried at each place
_PART = re.compile(r":\s*(-?[0-9]{1,4})(?:\s*:\s*(-?[0-9]{1,4}))?")
_REPLACEMENT = re.compile(r"//?((?:\\.|[^/\\])+)(?:/(.*))?", re.DOTALL)


def edited(text: str, operation: str) -> str | None:
    """Return the text after an operation, such as `%.yaml`; None if the operation is not known."""
    if len(text) > _MOST_CHARACTERS:
        return None
    if operation in _CASES:
        return _CASES[operation](text)
    if operation.startswith(("%", "#")):
        return _without(text, operation)
    if found := _REPLACEMENT.fullmatch(operation):
        return _replaced(text, found.group(1), found.group(2) or "", every=operation.startswith("//"))
    return _part(text, operation)


def _without(text: str, operation: str) -> str:
    """Return the text without the shortest, or longest, beginning or end that matches a pattern."""
    sign = operation[0]
    longest = operation.startswith(sign * 2)
    pattern = operation.lstrip(sign)
    lengths = range(len(text), -1, -1) if longest else range(len(text) + 1)
    for length in lengths:
        cut = len(text) - length
        if fnmatchcase(text[cut:] if sign == "%" else text[:length], pattern):
            return text[:cut] if sign == "%" else text[length:]
    return text


def _replaced(text: str, pattern: str, by: str, *, every: bool) -> str | None:
    """Return the text with what matches a pattern replaced."""
    plain = pattern.replace("\\/", "/")
    if plain.startswith(("#", "%")) or "\\" in plain or "*" in plain:  # at one end; the longest match
        return None
    pattern = translate(plain).removesuffix(r"\Z").removesuffix(r"\z")
    return re.sub(pattern, lambda _: by, text, count=0 if every else 1)


def _part(text: str, operation: str) -> str | None:
    """Return `${NAME:offset:length}`."""
    found = _PART.fullmatch(operation)
    if found is None:
        return None
    start = int(found.group(1))
    if start < -len(text):
        return ""
    rest = text[start:]
    return rest if found.group(2) is None else rest[: int(found.group(2))]


_CASES: Mapping[str, Callable[[str], str]] = {
    ",,": str.lower, "^^": str.upper,
    ",": lambda text: text[:1].lower() + text[1:], "^": lambda text: text[:1].upper() + text[1:],
}  # fmt: skip
