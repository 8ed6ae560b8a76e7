"""The shipped locks: find the one that fits a machine, explain why others do not, adapt its text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envcheck.commands.pin.drivers import driver_window
from envcheck.commands.pin.target import LockTarget, describe, package_facts, violated_rules
from envcheck.core import versions
from envcheck.core.facts import Tri
from envcheck.core.records import NamedTuple
from envcheck.host.package_files import source_texts
from envcheck.lock import model as lock
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable


_MOST_REASONS = 3
"""Maximum number of reasons that the message on an unfit lock names, to keep it on one line."""

ARM = "aarch64"
"""The architecture in a lock's file name; files without one are for x86_64."""


class ShippedLock(NamedTuple):
    """A shipped lock: the name of its file, its text, and the text parsed."""

    name: str
    text: str
    lock: lock.Lock


def find_lock(goal: LockTarget) -> tuple[ShippedLock | None, list[str]]:
    """Return the shipped lock that fits best, and why those tried before it do not fit.

    If the driver is known, the newest torch fits best, else the lowest driver floor.
    """
    refused: list[str] = []
    stem = f"py{goal.python.replace('.', '')}-driver"
    texts = source_texts(f"lockfiles/{goal.target.name}", ".txt", stem)
    # File names contain the driver floor, and a newer torch never has a lower floor. Sorting by name
    # therefore sorts by both. Locks with an older torch than their floor allows (`…-driver525-torch24`)
    # come last.
    by_floor = sorted(texts, reverse=goal.driver_known or goal.no_gpu)
    for file in sorted(by_floor, key=_is_further_lock):
        name = f"{goal.target.name}/{file}"
        candidate = parse_requirements(texts[file], name, verify=False)
        if (candidate.target, candidate.platform) != (goal.target.name, goal.platform):
            continue
        reasons = _why_unfit(candidate, goal)
        if not reasons:
            return ShippedLock(name, texts[file], candidate), refused
        more = [f"and {len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS else []
        refused.append(f"{name}: {', '.join([*reasons[:_MOST_REASONS], *more])}")
    return None, refused


def _is_further_lock(file: str) -> bool:
    """Return whether a file is an additional lock for its machine: `py311-driver525-torch24.txt`."""
    parts = file.removesuffix(".txt").split("-")
    return len([part for part in parts if part != ARM]) > len(("python", "driver"))


def _why_unfit(candidate: lock.Lock, goal: LockTarget) -> list[str]:
    """Return the reasons why a lock does not fit; it is judged only if the driver is new enough."""
    if (candidate.python, candidate.platform) != (goal.python, goal.platform):
        return [f"is for Python {candidate.python} on {candidate.platform}"]
    reasons = _why_not_asked_for(candidate, goal)
    glibc = str(goal.machine.known("host.glibc") or "")
    if glibc and candidate.glibc and versions.compare(glibc, "<", candidate.glibc) is Tri.YES:
        reasons.append(f"needs glibc {candidate.glibc}, here {glibc}")
    driver, floor = goal.machine.known("driver.version"), driver_floor(candidate)
    if driver and floor and versions.compare(str(driver), "<", floor) is Tri.YES:
        return [*reasons, f"needs driver {floor}, here {driver}"]
    pins = {pin.name: pin.version for pin in candidate.pins}
    broken = violated_rules(goal, package_facts(pins), complete=True)
    return reasons + [f"{rule.title} [{rule.id}]" for rule in broken]


def _why_not_asked_for(candidate: lock.Lock, goal: LockTarget) -> list[str]:
    """Return the ways in which a lock contradicts the user's own requirements and preferences."""
    reasons = []
    if goal.until and candidate.date > goal.until:
        reasons.append(f"was locked on {candidate.date}, {goal.until_by}")
    if goal.newest:
        reasons.append("--prefer newest requires a search")
    if goal.requirements:
        from envcheck.resolution import user_requirements

        reasons += user_requirements.unmet_requirements(goal.requirements, goal.extras, candidate.pins)
    return reasons


def driver_floor(of: lock.Lock) -> str:
    """Return the oldest driver that a lock needs; empty if it states none."""
    return next((value for key, _, value in of.needs if key == "driver.version"), "")


def adapt(fitting: ShippedLock, goal: LockTarget) -> tuple[str, list[str]]:
    """Return a shipped lock's text as this machine needs it, and notes for the user."""
    chosen = fitting.lock
    origin = f"{fitting.name}, locked on {chosen.date}, judged by matrix {goal.matrix.updated}"
    if goal.no_gpu:
        return fitting.text, [f"{origin}; for {describe(goal)}", note_on_cpu(chosen.pins)]
    if goal.driver_known:
        return fitting.text, [f"{origin}; fits {describe(goal)}"]
    text, floor = fitting.text, driver_floor(chosen)
    needed, notes = driver_window(goal, floor)
    if needed != floor or notes:  # these GPUs need another driver than the lock states
        others = tuple(need for need in chosen.needs if need[0] != "driver.version")
        needs = (*others, ("driver.version", ">=", needed))
        text = render_requirements(replace(chosen, needs=needs, notes=(*chosen.notes, *notes)))
    why = "no driver is known, so this is the lowest minimum"
    return text, [f"{origin}; for {describe(goal)}; {why}: {needed} or newer", *notes]


def note_on_cpu(pins: Iterable[lock.Pin]) -> str:
    """Return the note for a lock on a machine without GPUs."""
    without = "no GPU is declared: the minimum driver of the lock does not matter then"
    torch = next((pin.version for pin in pins if pin.name == "torch"), "")
    if not torch:
        return without
    return (
        f"{without}, and torch's CUDA build runs on the CPU; for a smaller build: "
        f"uv pip install --torch-backend cpu torch=={torch}"
    )
