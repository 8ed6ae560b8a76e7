"""Warnings that remain beside a lock: what its training does badly on this machine, with these versions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envcheck.commands.pin.target import LockTarget, judged, package_facts
from envcheck.core.facts import Fact, Known, package_key
from envcheck.core.rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envcheck.core.findings import Finding
    from envcheck.core.rules import Matrix, Rule
    from envcheck.lock.model import Lock

_MOST = 3
"""Maximum number of warnings that are written out."""


def warnings_on(made: Lock, goal: LockTarget, *, atlas: bool = False) -> list[str]:
    """Return a note for each rule at warning level that a lock breaks on the goal's machine.

    With `atlas`, the rules made from it are judged too. A training fact that was chosen differently from the
    target is left out, so no rule about it is decided. The target does not say what a package is for that
    the user added, so what is known of it on this GPU without any training counts too.
    """
    kept = {key: value for key, value in goal.target.train.items() if (key, str(value).lower()) in made.train}
    goal = replace(goal, target=goal.target._replace(train=kept))
    packages = package_facts({pin.name: pin.version for pin in made.pins})
    packages.append(Fact("packages.from_source", Known((*made.build,)), "the lock"))
    judgement = judged(goal, packages, Severity.WARNING, complete=True, atlas=atlas)
    findings = [*judgement.findings, *_of_added_packages(goal, packages)]
    broken = list(dict.fromkeys(finding.rule for finding in findings if finding.decided))
    notes = [f"warning: {rule.title} ({rule.id}); {_advice(rule, goal.matrix)}" for rule in broken[:_MOST]]
    if len(broken) > _MOST:
        notes.append(
            f"{len(broken) - _MOST} more warnings: `envcheck doctor` lists them once it is installed"
        )
    return notes


def _of_added_packages(goal: LockTarget, packages: list[Fact]) -> Iterator[Finding]:
    """Yield the warnings about the GPU and a package that the user added, for no training in particular."""
    added = {package_key(each.package) for each in goal.requirements if each.wanted}
    added -= {package_key(name) for name in goal.target.packages}
    if not (added and goal.machine.devices):
        return
    undescribed = replace(goal, target=goal.target._replace(train={}))
    for finding in judged(undescribed, packages, Severity.WARNING, complete=True).findings:
        keys = {item.fact.key for item in finding.evidence}
        if keys & added and any(key.startswith("gpu.") for key in keys):
            yield finding


def pre_release_notes(made: Lock, goal: LockTarget) -> Iterator[str]:
    """Yield a note for each package of the user that is a pre-release although their bound names none.

    A backend takes one only if no final release can be installed.
    """
    from envcheck.core import versions
    from envcheck.resolution.resolver.candidates import names_pre_release

    wanted = {each.package for each in goal.requirements if each.wanted}
    asked = {each.package for each in goal.requirements if names_pre_release(each)}
    for pin in made.pins:
        version = versions.parse(pin.version) if pin.name in wanted - asked else None
        if version is not None and version.is_prerelease:
            yield f"{pin.name} {pin.version} is a pre-release: no final release of it can be installed here"


def _advice(rule: Rule, known: Matrix) -> str:
    """Return the first fix that changes nothing but the training, else where the rule is explained."""
    for words in _trainings(rule):
        return f"train with {words} instead"
    if known.rule(rule.id) is None:  # made from the atlas for these releases
        return "`envcheck check` on this lock names the code and the fixes"
    return f"see envcheck rule {rule.id}"


def _trainings(rule: Rule) -> Iterator[str]:
    for fix in rule.fixes:
        if all(key.startswith("train.") for key, _ in fix.set):
            yield ", ".join(f"{key} = {str(value).lower()}" for key, value in fix.set)
