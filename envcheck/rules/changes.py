"""An inventory after a proposed change, before anything is derived from it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.core.facts import (
    Absent,
    Fact,
    Facts,
    Inventory,
    Known,
    Unknown,
    Value,
    package_key,
    package_name,
)
from envcheck.core.rules import Matrix, uninstalls

DRIVER_FACTS = frozenset(
    {"cuda.driver", "driver.library", "driver.libcuda", "driver.error", "driver.passed_over"}
)
"""Facts read from the installed driver, which are unknown for any other driver."""

RESOLVED_SUFFIXES = (".unresolved", ".resolved")
"""Suffixes of keys (`pkg.xformers.resolved`) whose values depend on a package's files and on torch's."""


def apply_changes(read: Inventory, changes: Sequence[tuple[str, Value]], matrix: Matrix) -> Inventory:
    """Return the inventory as read, after some changes: facts that the changes make stale are forgotten.

    A package that changes loses its build facts and its requirements. The versions of packages that move
    with it (torchvision with torch) become unknown.
    """
    facts = read.facts
    for key, value in changes:
        name = package_name(key)
        if name == "torch":
            facts = _forget_symbols_of_torch(facts)
        if name != key:
            facts = _forget_packages(facts, read, name, matrix.moves_with.get(name, ()))
        elif key == "driver.version":
            facts = {k: fact for k, fact in facts.items() if k not in DRIVER_FACTS}
        reading = Absent() if uninstalls(key, value) else Known(value)
        facts = {**facts, key: Fact(key, reading, "proposed")}
    return read._replace(facts=facts)


def changed_keys(before: Inventory, after: Inventory) -> Iterator[str]:
    """Yield the keys of the facts whose readings differ; both inventories have the same number of GPUs."""
    pairs = [(before.facts, after.facts), *zip(before.devices, after.devices, strict=True)]
    for old_facts, new_facts in pairs:
        for key in old_facts.keys() | new_facts.keys():
            old, new = old_facts.get(key), new_facts.get(key)
            if old is not new and (old is None or new is None or old.reading != new.reading):
                yield key


def _forget_symbols_of_torch(facts: Facts) -> Facts:
    """Forget what was read of compiled packages beside torch: the symbols it lacks, or that it lacks none.

    Another torch defines other symbols.
    """
    unread = Unknown("read beside another torch", asked=False)
    return {
        key: Fact(key, unread) if key.endswith(RESOLVED_SUFFIXES) else fact for key, fact in facts.items()
    }


def _forget_packages(facts: Facts, read: Inventory, name: str, companions: Sequence[str]) -> Facts:
    """Forget the details of a package and its companions, and which release of a companion is installed."""
    details = tuple(f"{kind}.{package}." for package in (name, *companions) for kind in ("pkg", "build"))
    kept = {key: fact for key, fact in facts.items() if not key.startswith(details)}
    moved = Unknown(f"moves with {name}", asked=False)
    for key in map(package_key, companions):
        if key != package_key(name) and isinstance(read.fact(key).reading, Known):
            kept[key] = Fact(key, moved)
    return kept
