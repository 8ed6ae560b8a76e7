"""Warnings that remain beside a lock: what its training does badly on this machine, with these versions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envcheck.commands.pin.target import LockTarget, judged, package_facts
from envcheck.core.rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envcheck.core.rules import Rule
    from envcheck.lock.model import Lock

_MOST = 3
"""Maximum number of warnings that are written out."""


def warnings_on(made: Lock, goal: LockTarget) -> list[str]:
    """Return a note for each rule at warning level that a lock breaks on the goal's machine.

    A training fact that was chosen differently from the target is left out, so no rule about it is decided.
    """
    kept = {key: value for key, value in goal.target.train.items() if (key, str(value).lower()) in made.train}
    goal = replace(goal, target=goal.target._replace(train=kept))
    packages = package_facts({pin.name: pin.version for pin in made.pins})
    judgement = judged(goal, packages, Severity.WARNING, complete=True)
    broken = list(dict.fromkeys(finding.rule for finding in judgement.findings if finding.decided))
    notes = [f"warning: {rule.title} ({rule.id}); {_advice(rule)}" for rule in broken[:_MOST]]
    if len(broken) > _MOST:
        notes.append(
            f"{len(broken) - _MOST} more warnings: `envcheck doctor` lists them once it is installed"
        )
    return notes


def _advice(rule: Rule) -> str:
    """Return the first fix that changes nothing but the training, else where the rule is explained."""
    for words in _trainings(rule):
        return f"train with {words} instead"
    return f"see envcheck rule {rule.id}"


def _trainings(rule: Rule) -> Iterator[str]:
    for fix in rule.fixes:
        if all(key.startswith("train.") for key, _ in fix.set):
            yield ", ".join(f"{key} = {str(value).lower()}" for key, value in fix.set)
