"""Filters of text in a pipe, such as `tr` and `wc`, with which scripts count devices. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

_MAX_TEXT = 10_000  # characters that a filter is applied to
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_SETS = {"[:space:]": " \t\n\r", "[:blank:]": " \t", "[:digit:]": "0123456789"}
_PATTERNS = re.compile(r"\.|\[0-9\]|\[\^,\]\+|\^|[\w-]+|,")
"""Regular expressions that grep reads as Python does."""

_FIELDS = re.compile(r"\s*\{\s*print\s+NF;?\s*\}\s*")


def printed(words: Sequence[str]) -> str | None:
    """Return the text that `echo` or `printf` prints; None for any other command."""
    name, *rest = words
    if name == "echo":
        newline = "" if rest[:1] == ["-n"] else "\n"
        return " ".join(rest[1:] if not newline else rest) + newline if rest[:1] != ["-e"] else None
    if name == "printf" and len(rest) > 1 and rest[0] in ("%s", "%s\\n"):
        return "".join(rest[0].replace("%s", each).replace("\\n", "\n") for each in rest[1:])
    return None


def filtered(text: str, words: Sequence[str]) -> str | None:
    """Return the output of a filter for a text; None if the filter or one of its options is not known."""
    name, *arguments = words
    known = _FILTERS.get(name)
    return known(text, arguments) if known is not None and len(text) <= _MAX_TEXT else None


def _tr(text: str, arguments: Sequence[str]) -> str | None:
    deletes = arguments[:1] == ["-d"]
    sets = [_characters(each) for each in (arguments[1:] if deletes else arguments)]
    if deletes and len(sets) == 1 and sets[0]:
        return "".join(each for each in text if each not in sets[0])
    if len(sets) != 2 or not (sets[0] and sets[1]):  # noqa: PLR2004 - what to replace, and by what
        return None
    last = sets[1][-1]
    pairs = dict(zip(sets[0], sets[1] + last * len(sets[0]), strict=False))
    return "".join(pairs.get(each, each) for each in text)


def _characters(text: str) -> str:
    """Return the characters of a set of `tr`; "" for a range or a class that is not known."""
    text = _SETS.get(text, _ESCAPES.get(text, text))
    return "" if re.search(r".-.|\[:|\\.", text) else text


def _wc(text: str, arguments: Sequence[str]) -> str | None:
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
    return f"{counts[arguments[0]]}\n" if len(arguments) == 1 and arguments[0] in counts else None


def _grep(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `grep -c PATTERN`, which counts lines, and `grep -o PATTERN`, which prints what matches."""
    if len(arguments) != 2 or not _PATTERNS.fullmatch(arguments[1]):  # noqa: PLR2004 - option and pattern
        return None
    option, pattern = arguments
    if option in ("-o", "-oE", "-Eo"):
        if pattern.endswith("+") and option == "-o":  # not a repetition in a basic expression
            return None
        return "".join(f"{found.group()}\n" for found in re.finditer(pattern, text) if found.group())
    lines = text.removesuffix("\n").split("\n") if text else []
    if option != "-c" or pattern.endswith("+"):
        return None
    return f"{sum(re.search(pattern, line) is not None for line in lines)}\n"


def _awk(text: str, arguments: Sequence[str]) -> str | None:
    """Follow `awk -F, '{print NF}'`, which counts the fields of each line."""
    separator = "".join(arguments[:-1]).removeprefix("-F")
    if not arguments or len(separator) != 1 or separator == " " or not _FIELDS.fullmatch(arguments[-1]):
        return None
    return "".join(f"{len(line.split(separator)) if line else 0}\n" for line in text.splitlines())


_FILTERS: Mapping[str, Callable[[str, Sequence[str]], str | None]] = {
    "tr": _tr,
    "wc": _wc,
    "grep": _grep,
    "awk": _awk,
}
