"""Interpret predicates of other packages by their names, where their code is not available."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envcheck.atlas.conditions import Compared, Condition, Installed
from envcheck.atlas.entries import distribution_of
from envcheck.core.versions import parse

_AVAILABLE = re.compile(r"_?is_(\w+?)_available")
_PACKAGE_AVAILABLE = re.compile(r"_?(is_)?(package|module)_available")
_AT_LEAST = re.compile(
    r"_?is_(\w+?)_(?:greater_or_equal|version_at_least|at_least)(?:_than)?|(\w+?)_version_at_least"
)
_BELOW = re.compile(r"_?is_(\w+?)_less_than")
_FLAG_AT_LEAST = re.compile(r"_?is_(\w+?)_(?:greater_or_equal_than|greater_or_equal|at_least)_(\d+)_(\d+)")
_FLAG_BELOW = re.compile(r"_?is_(\w+?)_less_than_(\d+)_(\d+)")


def named_predicate(path: str, arguments: Sequence[object]) -> Condition | None:
    """Return what `is_peft_available("0.5")` states; None for an unknown form."""
    name = path.rsplit(".", 1)[-1]
    given = [each for each in arguments if isinstance(each, str) and parse(each)]
    if _PACKAGE_AVAILABLE.fullmatch(name) and arguments and isinstance(arguments[0], str):
        return Installed(distribution_of(arguments[0]))
    if (found := _AVAILABLE.fullmatch(name)) and (given or not arguments):
        return Installed(distribution_of(found[1]), tuple(given[:1]))
    if (found := _AT_LEAST.fullmatch(name)) and given:
        return Compared(distribution_of(found[1] or found[2]), ">=", given[0])
    if (found := _BELOW.fullmatch(name)) and given:
        return Compared(distribution_of(found[1]), "<", given[0])
    return None


def named_flag(path: str) -> Condition | None:
    """Return what a constant such as `is_torch_less_than_2_4` states; None for an unknown form."""
    name = path.rsplit(".", 1)[-1]
    if found := _FLAG_AT_LEAST.fullmatch(name):
        return Compared(distribution_of(found[1]), ">=", f"{found[2]}.{found[3]}")
    if found := _FLAG_BELOW.fullmatch(name):
        return Compared(distribution_of(found[1]), "<", f"{found[2]}.{found[3]}")
    return None
