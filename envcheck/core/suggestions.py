"""Suggest the right spelling of a misspelt name, for error messages."""

from __future__ import annotations

from collections.abc import Collection

_WORTH_LISTING = 20
"""More names than this do not help in one line."""


def suggestion(word: str, known: Collection[str], *, list_all: bool = True) -> str:
    """Return `; did you mean 'x'?` for the known name closest to a misspelt word.

    Without a close name, return `; known are a, b, c`, or an empty string if there are too many names to list
    or `list_all` is False.
    """
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    if not list_all or len(known) > _WORTH_LISTING:
        return ""
    return f"; known are {', '.join(sorted(known))}"
