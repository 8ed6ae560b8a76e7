"""The drivers that a lock runs on with the GPUs of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcheck.core import versions
from envcheck.core.facts import Fact, Known, Tri
from envcheck.core.findings import Verdict
from envcheck.core.rules import Rule, Severity
from envcheck.rules import derive, judge

if TYPE_CHECKING:
    from envcheck.commands.pin.target import LockTarget


def driver_window(goal: LockTarget, floor: str) -> tuple[str, list[str]]:
    """Return the oldest driver for a lock on these GPUs, and notes if newer branches dropped a GPU.

    `floor` is the oldest driver that the lock's torch build runs on. A GPU may need a newer one, so the
    rules about drivers are judged with each driver branch. Without GPUs, or if no branch passes, the
    floor is returned.
    """
    if not goal.machine.devices:
        return floor, []
    drivers = _drivers_from(floor, goal)
    rules = _error_rules_on_drivers(goal)
    passing = [driver for driver in drivers if _passes(driver, goal, rules)]
    if not passing:
        return floor, []
    later = drivers[drivers.index(passing[-1]) + 1 :]
    notes = [f"drivers from branch {later[0]} on no longer drive a GPU of this machine"] if later else []
    return passing[0], notes


def _drivers_from(floor: str, goal: LockTarget) -> list[str]:
    """Return the floor and every newer driver branch, oldest first."""
    branches = sorted((row.branch for row in goal.matrix.tables.driver_branches), key=versions.order)
    return [floor, *(each for each in branches if versions.compare(each, ">", floor) is Tri.YES)]


def _error_rules_on_drivers(goal: LockTarget) -> list[Rule]:
    return [
        rule
        for rule in goal.matrix.rules
        if rule.severity is Severity.ERROR
        and any(clause.key == "driver.version" for table in rule.when for clause in table)
    ]


def _passes(driver: str, goal: LockTarget, rules: list[Rule]) -> bool:
    fact = Fact("driver.version", Known(driver), "asked")
    derived = derive.derive(goal.machine.with_facts([fact]), goal.matrix)
    findings = judge.judge(derived, rules).findings
    return not any(finding.verdict is Verdict.BROKEN for finding in findings)
