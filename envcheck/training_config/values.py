"""Values of settings: how they are spelled, which numbers they spell, whether two are equal. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.document import Scalar, Section, SettingValue

TRUE = frozenset({"", "true", "1", "yes", "on", "t", "y"})
FALSE = frozenset({"false", "0", "no", "off", "f", "n"})
UNDECIDED = frozenset({"auto", "null", "none", ""})
"""Texts that leave a setting undecided."""

_MAX_SHOWN = 60  # characters of a value that a message quotes


def spelled(value: SettingValue) -> str:
    """Return a value as on a command line, in lower case; objects are left out of a list."""
    if value is None:
        return "null"
    if isinstance(value, tuple) and not isinstance(value, Section):
        return ",".join(spelled(item) for item in value if not isinstance(item, Section))
    return "" if isinstance(value, Section | Unknown) else str(value).lower()


def shown(value: SettingValue) -> str:
    """Return a value as a message quotes it."""
    if isinstance(value, Section):
        return "an object"
    if isinstance(value, Unknown):
        return value.why
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value[:8]))}{', …' if len(value) > 8 else ''}]"  # noqa: PLR2004 - a line
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…")
    return spelled(value)[:_MAX_SHOWN]


def as_number(value: SettingValue, *, as_text: bool = True) -> int | float | None:
    """Return the number that a value is or spells, or None; one too large for a float becomes infinity.

    Without `as_text` a text is never a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value if abs(value) < _MAX_FLOAT or value != value else float("inf")  # noqa: PLR0124 - NaN
    if not as_text or "_" in value:
        return None
    try:
        return float(value)
    except ValueError:
        return None


_MAX_FLOAT = 10**300


def compact(number: float) -> int | float:
    """Return a whole number as an integer; others, infinity and NaN stay as they are."""
    return int(number) if math.isfinite(number) and number == int(number) else number


def same(value: SettingValue, other: SettingValue) -> bool:
    """Return whether two values are the same: 1 equals 1.0 but not true."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    numbers = as_number(value, as_text=False), as_number(other, as_text=False)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1]
    return type(value) is type(other) and value == other


def alternatives(values: Sequence[Scalar]) -> str:
    """Return values as an enumeration: `none, cpu or nvme`."""
    *most, last = [spelled(value) for value in values]
    return f"{', '.join(most)} or {last}" if most else last
