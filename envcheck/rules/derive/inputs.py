"""Read the inputs of derived facts, and add what was derived where nothing gave the fact."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Unknown


def missing_input(inventory: Inventory, *keys: str, device: int | None = None) -> Reading | None:
    """Return the first reading of these inputs that is not Known, as the derived reading; None if all are."""
    for key in keys:
        reading = inventory.reading(key, device)
        match reading:
            case Known():
                continue
            case Absent():
                return reading
            case Unknown(why, asked):
                return Unknown(f"{key}: {why}", asked)
    return None


def with_derived(inventory: Inventory, derived: Iterable[Fact]) -> Inventory:
    """Add derived facts, except where a probe, a file or an option provided the fact."""
    added = {fact.key: fact for fact in derived if is_not_given(inventory.reading(fact.key))}
    return inventory._replace(facts={**inventory.facts, **added}) if added else inventory


def is_not_given(reading: Reading) -> bool:
    """Return whether a reading says that nothing was given to read the fact from."""
    return isinstance(reading, Unknown) and not reading.asked


def text_of(inventory: Inventory, key: str, device: int | None = None) -> str:
    """Return the value of a fact that is known, as text."""
    return str(inventory.known(key, device))


def with_device_facts(inventory: Inventory, facts_of: Callable[[int], Iterable[Fact]]) -> Inventory:
    """Add facts to each GPU by its number, except those that were given."""
    devices = []
    for number, device in enumerate(inventory.devices):
        derived = {
            fact.key: fact for fact in facts_of(number) if is_not_given(inventory.reading(fact.key, number))
        }
        devices.append({**device, **derived})
    return inventory._replace(devices=tuple(devices))
