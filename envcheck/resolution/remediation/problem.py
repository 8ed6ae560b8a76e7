"""The input of a remediation: the inventory, the knowledge, and the level at which it must pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from envcheck.core.facts import Inventory
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.knowledge.generated_rules import target_rules
from envcheck.rules import derive
from envcheck.rules.rule_index import RuleIndex


class RemediationProblem:
    """An inventory as read, the matrix, the target if there is one, and what must be repaired.

    `level` is the lowest severity to repair. With `strict`, everything that a lock must satisfy is repaired
    too: conflicts between the packages' requirements, and rules that only some GPUs break. With
    `admitted_only`, a package is changed only to a release that the requirements of all packages admit.
    """

    def __init__(
        self,
        *,
        read: Inventory,
        known: Matrix,
        target: Target | None,
        level: Severity,
        strict: bool = False,
        admitted_only: bool = False,
    ) -> None:
        """Take the input; nothing is computed yet."""
        self.read, self.known, self.target, self.level = read, known, target, level
        self.strict, self.admitted_only = strict, admitted_only

    def with_condition(self, *, admitted_only: bool) -> RemediationProblem:
        """Return the problem with or without the condition on releases that `admitted_only` states."""
        return RemediationProblem(
            read=self.read,
            known=self.known,
            target=self.target,
            level=self.level,
            strict=self.strict,
            admitted_only=admitted_only,
        )

    @cached_property
    def start(self) -> Inventory:
        """Return the inventory before any change, with the facts that follow from it."""
        return derive.derive(self.read, self.known)

    @cached_property
    def rules(self) -> RuleIndex:
        """Return all rules, those of the target included, by the facts that they concern."""
        return RuleIndex((*self.known.rules, *target_rules(self.target)))

    @cached_property
    def measured_good(self) -> tuple[Mapping[str, str], ...]:
        """Return the package versions of each run of the target that trained."""
        if self.target is None:
            return ()
        return tuple(
            cell.pkg for cell in self.known.cells if cell.outcome == "ok" and cell.target == self.target.name
        )

    @cached_property
    def settable(self) -> frozenset[str]:
        """Keys of the facts that any fix sets, and of the target's training settings."""
        in_fixes = {key for rule in self.known.rules for fix in rule.fixes for key, _ in fix.set}
        return frozenset(in_fixes.union(self.target.train if self.target is not None else ()))
