"""Values of settings: how they are spelled, which number they are, whether two are the same. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.document import Said, Scalar, Section

TRUE = frozenset({"", "true", "1", "yes", "on", "t", "y"})
FALSE = frozenset({"false", "0", "no", "off", "f", "n"})
SILENT = frozenset({"auto", "null", "none", ""})
"""Texts that leave a setting open."""

_LONGEST = 60  # characters of a value that a message quotes


def spelled(value: Said) -> str:
    """A value as a command line would have it, in lower case; objects are left out of a list."""
    if value is None:
        return "null"
    if isinstance(value, tuple) and not isinstance(value, Section):
        return ",".join(spelled(each) for each in value if not isinstance(each, Section))
    return "" if isinstance(value, Section | Unknown) else str(value).lower()


def shown(value: Said) -> str:
    """A value as a message quotes it."""
    if isinstance(value, Section):
        return "an object"
    if isinstance(value, Unknown):
        return value.why
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value[:8]))}{', …' if len(value) > 8 else ''}]"  # noqa: PLR2004 - a line
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    return spelled(value)[:_LONGEST]


def as_number(value: Said, *, as_text: bool = True) -> int | float | None:
    """The number that a value is, or that it spells; None if it is none, or too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value if abs(value) < _ENORMOUS or value != value else float("inf")  # noqa: PLR0124 - NaN
    if not as_text or "_" in value:
        return None
    try:
        return float(value)
    except ValueError:
        return None


_ENORMOUS = 10**300


def same(value: Said, word: Said) -> bool:
    """Whether two values are the same: 1 is 1.0 and not true."""
    if isinstance(value, bool) or isinstance(word, bool):
        return value is word
    numbers = as_number(value, as_text=False), as_number(word, as_text=False)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1]
    return type(value) is type(word) and value == word


def either(words: Sequence[Scalar]) -> str:
    """Values as an enumeration: `none, cpu or nvme`."""
    *most, last = [spelled(word) for word in words]
    return f"{', '.join(most)} or {last}" if most else last
