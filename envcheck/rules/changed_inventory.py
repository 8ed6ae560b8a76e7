"""Inventories after proposed changes, with what follows from each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from envcheck.core.facts import Fact, Inventory, Value
from envcheck.core.rules import Matrix
from envcheck.rules.changes import apply_changes
from envcheck.rules.derive import derive, derive_machine, derive_training


class ChangedInventory:
    """One inventory as read, to which changes are applied.

    Half of all proposals change the training alone, and no fact of the machine depends on it. What follows
    from the machine is then derived once for all of them.
    """

    def __init__(self, read: Inventory, matrix: Matrix) -> None:
        """Take the inventory before anything is derived from it."""
        self.read, self.matrix = read, matrix

    @cached_property
    def _of_machine(self) -> Inventory:
        return derive_machine(self.read, self.matrix)

    def after(self, changes: Sequence[tuple[str, Value]], facts: Iterable[Fact] = ()) -> Inventory:
        """Return the inventory after changes and with further facts, and with all that follows from them."""
        added = tuple(facts)
        if not added and all(key.startswith("train.") for key, _ in changes):
            return derive_training(apply_changes(self._of_machine, changes, self.matrix), self.matrix)
        return derive(apply_changes(self.read, changes, self.matrix).with_facts(added), self.matrix)
