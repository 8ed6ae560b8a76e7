"""A node's profile: the value of each fact that is compared between nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Unknown, family, is_device_key
from envcheck.fleet.comparisons import FactComparison
from envcheck.rules.fix_words import value_text

ProfileValue: TypeAlias = str | int | Unknown | None
"""Text or a number; None if the thing does not exist; Unknown with the reason if it could not be read."""


class Profile(NamedTuple):
    """Compared facts of a node: `values` by key, and in `parts` the packages behind each digest."""

    values: Mapping[str, ProfileValue]
    complete: frozenset[str]  # families whose facts were all read
    parts: Mapping[str, Mapping[str, str]]

    def value(self, key: str) -> ProfileValue:
        """Return the value of a key; a missing key is None if its family is complete, otherwise Unknown."""
        if key in self.values:
            return self.values[key]
        return None if family(key) in self.complete else Unknown("not given", asked=False)


def profile_of(inventory: Inventory, comparisons: Sequence[FactComparison]) -> Profile:
    """Return the profile of a node."""
    values: dict[str, ProfileValue] = {
        row.key: _of_gpus(inventory, row) if is_device_key(row.key) else _value(_reading(inventory, row.key))
        for row in comparisons
        if not row.is_pattern
    }
    patterns = [row for row in comparisons if row.is_pattern]
    parts: dict[str, dict[str, str]] = {}
    for key, fact in inventory.facts.items():
        if key in values or (key.startswith("pkg.") and key.count(".") > 1):
            continue
        _add_by_pattern(fact, patterns, values, parts)
    for row in patterns:
        if row.together:
            values[row.key] = _digest(inventory, row, parts.get(row.key, {}))
    given = {key: value for key, value in values.items() if not _is_not_given(value)}
    return Profile(given, inventory.complete, parts)


def _add_by_pattern(
    fact: Fact,
    patterns: Sequence[FactComparison],
    values: dict[str, ProfileValue],
    parts: dict[str, dict[str, str]],
) -> None:
    """Add a fact that a pattern covers to `values`, or to the `parts` of that pattern's digest."""
    row = next((row for row in patterns if row.covers(fact.key)), None)
    if row is None or row.differ is None:
        return
    if not row.together:
        values[fact.key] = _value(fact.reading)
    elif isinstance(fact.reading, Known):
        parts.setdefault(row.key, {})[fact.key.partition(".")[2]] = value_text(fact.reading.value)


def _is_not_given(value: ProfileValue) -> bool:
    return isinstance(value, Unknown) and not value.asked


def _reading(inventory: Inventory, key: str) -> Reading:
    """Return the reading of a fact; the number of visible GPUs is counted from the GPUs, if any are given."""
    if key != "gpus.visible" or not inventory.devices:
        return inventory.fact(key).reading
    for device in inventory.devices:
        visible = device.get("gpu.visible")
        if visible is not None and isinstance(visible.reading, Unknown):
            return visible.reading
    return Known(len(inventory.visible_devices()))


def _of_gpus(inventory: Inventory, row: FactComparison) -> ProfileValue:
    """Return one value for all GPUs of a node: the smallest number, or the distinct values joined."""
    values = [_value(inventory.fact(row.key, number).reading) for number in range(len(inventory.devices))]
    for value in values:
        if isinstance(value, Unknown):
            return value
    if not values:
        return Unknown("no GPU", asked=False)
    numbers = [value for value in values if isinstance(value, int)]
    if row.gpus == "least":
        return min(numbers) if len(numbers) == len(values) else None
    return " and ".join(dict.fromkeys("none" if value is None else str(value) for value in values))


def _value(reading: Reading) -> ProfileValue:
    match reading:
        case Known(value):
            return value if isinstance(value, int) and not isinstance(value, bool) else value_text(value)
        case Absent():
            return None
        case _:
            return reading


def _digest(inventory: Inventory, row: FactComparison, parts: Mapping[str, str]) -> ProfileValue:
    """Return one value for a whole family: a digest of package names and versions, as a lock pins them."""
    name = family(row.key)
    if name not in inventory.complete:
        why = inventory.unread.get(name)
        return Unknown("not given", asked=False) if why is None else Unknown(why)
    lines = "".join(f"{key}=={parts[key]}\n" for key in sorted(parts))
    return f"sha256:{hashlib.sha256(lines.encode('utf-8', 'replace')).hexdigest()[:12]}"


def sort_key(value: ProfileValue) -> tuple[str, str]:
    """Return a key that puts values of any type in one fixed order."""
    return type(value).__name__, value.why if isinstance(value, Unknown) else str(value)
