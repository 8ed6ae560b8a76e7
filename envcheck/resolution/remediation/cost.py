"""The cost of a state, by which states are compared. The package docstring explains the order."""

from __future__ import annotations

from bisect import bisect
from functools import cached_property
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import family, package_key, package_name
from envcheck.core.records import NamedTuple
from envcheck.core.rules import uninstalls
from envcheck.resolution.remediation.moves import Changes, Proposal, count_moves, move_size
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import ReleaseChoices

ADMINISTRATOR = frozenset({"driver"})
"""Families of facts that neither an installer nor a configuration can change."""


class Cost(NamedTuple):
    """Cost of a state. Costs are compared field by field, from the first one on."""

    administrator: int  # moves that only an administrator can make
    moves: int
    size: int
    downwards: int  # downgrades
    not_measured: int  # 0 if a measured run trained with this combination, else 1
    releases: int  # number of releases between the installed and the proposed ones
    place: int  # sum of the positions of the ways out in their rules' lists


class CostModel:
    """Computes the cost of changes to the inventory of one problem."""

    def __init__(self, problem: RemediationProblem, choices: ReleaseChoices) -> None:
        self.read, self.choices = problem.read, choices
        self._measured_good = problem.measured_good
        self._orders: dict[str, list[tuple[bool, Any]]] = {}

    def cost(self, changes: Changes) -> Cost:
        """Return the cost of these changes."""
        sizes = [
            move_size(key, self.read.known(key), proposal.value, proposal.cost)
            for key, proposal in changes.items()
        ]
        return Cost(
            administrator=sum(family(key) in ADMINISTRATOR for key in changes),
            moves=count_moves(changes),
            size=sum(size for size, _ in sizes),
            downwards=sum(downwards for _, downwards in sizes),
            not_measured=not self._measured(changes),
            releases=sum(self._releases_between(key, proposal) for key, proposal in changes.items()),
            place=sum(proposal.place for proposal in changes.values()),
        )

    def _measured(self, changes: Changes) -> bool:
        """Return whether a measured run of the target trained with the base releases after these changes."""
        bases = self._installed_bases | {
            package_name(key): versions.base_release(str(proposal.value)) for key, proposal in changes.items()
        }
        return any(all(bases[name] == base for name, base in run.items()) for run in self._measured_runs)

    @cached_property
    def _measured_runs(self) -> list[dict[str, str]]:
        """Return the base release of each package in each measured run of the target that trained."""
        return [
            {name: versions.base_release(version) for name, version in run.items()}
            for run in self._measured_good
        ]

    @cached_property
    def _installed_bases(self) -> dict[str, str]:
        """Return the installed base release of each package of a measured run; empty if it is not known."""
        names = {name for run in self._measured_runs for name in run}
        return {name: versions.base_release(str(self.read.known(package_key(name)) or "")) for name in names}

    def _releases_between(self, key: str, proposal: Proposal) -> int:
        """Return how many listed releases a move passes, including the proposed one."""
        name = package_name(key)
        fit = () if name == key or uninstalls(key, proposal.value) else self.choices.listed.fit(name)
        if not fit:
            return 0
        if name not in self._orders:
            self._orders[name] = [versions.order(version) for version in fit]
        orders = self._orders[name]
        start = self.read.known(key) or next(iter(self.choices.as_measured(name)), fit[-1])
        return abs(
            bisect(orders, versions.order(str(proposal.value))) - bisect(orders, versions.order(str(start)))
        )
