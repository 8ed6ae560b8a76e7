"""The lower bound of the search: the least number of moves of any answer that a state can lead to."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.facts import family, is_package_version_key, package_key
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Rule
from envcheck.resolution.remediation.cost import ADMINISTRATOR, Cost, CostModel
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.state import RemediationState
from envcheck.rules import derive
from envcheck.rules.changes import RESOLVED_SUFFIXES
from envcheck.rules.clauses import keys_in, referenced_keys

_CHANGEABLE = frozenset({"pkg", "train", "env"})
"""Families of facts that an installer or a configuration can change."""


_OF_ALL_PACKAGES = frozenset(
    {
        "packages.without_wheel",
        "packages.withdrawn",
        "torch.packages_of_another_release",
        "torch.packages_of_another_build",
        "torch.flash_attn_of_another_build",
        "torch.causal_conv1d_of_another_build",
        "torch.mamba_ssm_of_another_build",
    }
)
"""Derived facts that may follow from any package."""


class LowerBound(NamedTuple):
    """A lower bound on any answer that a state can lead to.

    `administrator` is the least number of moves that only an administrator can make, `moves` the least number
    of all moves. `cost` is the cost of the state itself.
    """

    administrator: int
    moves: int
    cost: Cost

    @property
    def least(self) -> tuple[int, int]:
        """Return the administrator's moves and all moves, in the order in which costs are compared."""
        return self.administrator, self.moves


class BoundModel:
    """Computes lower bounds; `derive.FOLLOWS_FROM` gives the facts from which a derived fact follows."""

    def __init__(self, problem: RemediationProblem, costs: CostModel) -> None:
        self.problem, self.costs = problem, costs
        self._scopes: dict[str, frozenset[str]] = {}

    def bound(self, state: RemediationState) -> LowerBound:
        """Return the lower bound on every answer that a state can lead to."""
        cost = self.costs.cost(state.changes)
        return LowerBound(
            administrator=max(cost.administrator, self._needs_administrator(state)),
            moves=cost.moves + self._moves_needed(state),
            cost=cost,
        )

    def _moves_needed(self, state: RemediationState) -> int:
        """Return the least number of further moves: unresolved rules without a move that share no fact."""
        taken = set(state.changes)
        number = 0
        for scope in sorted((self._scope(finding.rule) for finding in state.unresolved), key=len):
            if taken.isdisjoint(scope):
                taken |= scope
                number += 1
        return number

    def _needs_administrator(self, state: RemediationState) -> bool:
        """Return whether an unresolved rule depends only on facts that an administrator has to change."""
        return any(
            not any(family(key) in _CHANGEABLE for key in scope)
            and any(family(key) in ADMINISTRATOR for key in scope)
            for scope in (self._scope(finding.rule) for finding in state.unresolved)
        )

    def _scope(self, rule: Rule) -> frozenset[str]:
        """Return every fact that a move may set and that can affect this rule, however indirectly."""
        # Not cached for metadata: two requirements of one package on another have the same id but different
        # bounds.
        if rule.id not in self._scopes or rule.group == "requires-dist":
            keys = keys_in(rule)
            found: set[str] = set()
            while keys:
                key = keys.pop()
                found.add(key)
                keys |= set(self.affecting(key)) - found
            self._scopes[rule.id] = frozenset(
                key for key in found if key.startswith("pkg.") or key in self.problem.settable
            )
        return self._scopes[rule.id]

    def affecting(self, key: str) -> Iterator[str]:
        """Yield the keys of the facts from which this fact follows directly."""
        known = self.problem.known
        yield from derive.FOLLOWS_FROM.get(key, ())
        if key.endswith(RESOLVED_SUFFIXES):
            yield "pkg.torch"
        elif key == "gpu.packages_without_code":
            yield from (
                fact
                for fact in self.problem.read.facts
                if fact.startswith("pkg.") and fact.endswith(derive.ARCHITECTURES_SUFFIX)
            )
        elif key in _OF_ALL_PACKAGES:
            yield from filter(is_package_version_key, self.problem.read.facts)
            yield from map(package_key, self.costs.choices.listed.packages)
            yield from (name for rule in known.rules for fix in rule.fixes for name, _ in fix.set)
        if family(key) in ("pkg", "build"):
            name = key.split(".")[1]
            yield package_key(name)
            yield from (package_key(leader) for leader, others in known.moves_with.items() if name in others)
        for default in known.defaults:
            if default.key == key:
                for clause in default.when:
                    yield from (clause.key, *referenced_keys(clause))
