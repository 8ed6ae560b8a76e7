"""Print a lock for a target: a shipped one that fits this machine, or one resolved for it.

`pin` is the command. The steps from `--target NAME` to the lock's text:

    target.find_target   what the lock must serve: machine, Python, platform, the user's requirements
    shipped.find_lock    the shipped lock that fits, else
    search.resolve_lock  versions from the search, completed by a backend, approved by the judge
    writing.render       the text in the chosen format

No lock that breaks a rule at error level leaves this package. A shipped lock is printed without importing the
search, a backend or `packaging`. The package may import what `commands` may. It must not know how the text is
shown or saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcheck.commands.pin import shipped
from envcheck.commands.pin.options import PLAIN, PinOptions, refuse_contradictions
from envcheck.commands.pin.target import LockTarget, describe, find_target
from envcheck.commands.pin.warnings import pre_release_notes, warnings_on
from envcheck.core.errors import InputError, NoSolutionError
from envcheck.host.signals import raise_on_termination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envcheck.commands.examine import ExamineRequest
    from envcheck.core.facts import Inventory
    from envcheck.host.machine import Host
    from envcheck.lock.model import Lock

__all__ = ["PLAIN", "PinOptions", "pin"]


def pin(
    request: ExamineRequest,
    host: Host,
    python_version: str | None,
    *,
    resolve: bool,
    offline: bool,
    options: PinOptions = PLAIN,
    from_current: bool = False,
    with_rejected: bool = False,
) -> tuple[str, list[str]]:
    """Return the lock's text, and notes for the user.

    `resolve` ignores the shipped locks, `offline` forbids resolving, and `from_current` keeps the lock
    close to what is installed. With `with_rejected`, the notes end with what was tried and rejected, and why.

    Raises:
        InputError: an option is wrong.
        NoSolutionError: no shipped lock fits, and resolving is forbidden or finds no versions.
        ExamineError: the backend failed.
    """
    refuse_contradictions(options, resolve=resolve, offline=offline)
    if from_current and (offline or python_version is not None):
        option = "--offline" if offline else "--python-version"
        raise InputError(option, "not with --from-current, which resolves again for the installed Python")
    goal, read = find_target(request, host, python_version, options)
    refused: list[str] = []
    rejected: list[str] = []
    if not (resolve or from_current):
        fitting, refused = shipped.find_lock(goal)
        if fitting is not None:
            text, notes = _serve(fitting, goal, host, options, offline=offline)
            rejected += (f"rejected: {each}" for each in refused)
            return text, [*notes, *(rejected if with_rejected else ())]
    if offline:
        raise NoSolutionError(
            f"no shipped lock fits ({_why_none(goal, refused)}), and --offline forbids resolving a new one"
        )
    with raise_on_termination():
        text, notes = _resolve(goal, read if from_current else None, host, options, refused, rejected)
    return text, [*notes, *(rejected if with_rejected else ())]


def _why_none(goal: LockTarget, refused: Sequence[str]) -> str:
    none = f"none is shipped for {goal.target.name} on Python {goal.python}, {goal.platform}"
    return "; ".join(refused) or none


def _serve(
    fitting: shipped.ShippedLock, goal: LockTarget, host: Host, options: PinOptions, *, offline: bool
) -> tuple[str, list[str]]:
    """Return a shipped lock's text in the chosen format, and notes."""
    text, notes = shipped.adapt(fitting, goal)
    notes += warnings_on(fitting.lock, goal)
    if goal.by_address:
        notes += _notes_by_address(goal, fitting.lock)
    if options.written == "requirements":
        return text, notes
    from envcheck.lock.parse import parse_requirements

    adapted = parse_requirements(text, fitting.name, verify=False)
    return _written(adapted, goal, host, options, notes, offline=offline), notes


def _written(
    made: Lock, goal: LockTarget, host: Host, options: PinOptions, notes: list[str], *, offline: bool = False
) -> str:
    """Return a lock's text in the chosen format; groups hold the target's second environment too."""
    from envcheck.commands.pin import writing
    from envcheck.lock import formats

    if not formats.named(options.written).WANTS_GROUPS:
        return writing.render(made, options.written, host, own_index=options.own_index)
    from envcheck.commands.pin import groups

    server = groups.server_lock(goal, made, host, options.engine, offline=offline, notes=notes)
    return writing.render(
        made,
        options.written,
        host,
        own_index=options.own_index,
        requested=groups.requested(goal),
        server=server,
    )


def _resolve(
    goal: LockTarget,
    installed: Inventory | None,
    host: Host,
    options: PinOptions,
    refused: Sequence[str],
    rejected: list[str],
) -> tuple[str, list[str]]:
    """Return the text of a newly resolved lock, and notes; if `installed` is given, the lock is close to it.

    `refused` lists the shipped locks that did not fit, each with the reason. The versions that the search
    tried in vain are added to `rejected`.
    """
    from envcheck.commands.pin import search

    search_notes: list[str] = []
    if installed is None:
        first_notes = list(refused)
        resolved = search.resolve_lock(goal, host, options.engine, search_notes, rejected=rejected)
    else:
        from envcheck.commands.pin import from_current

        resolved, moves = from_current.resolve_near(
            goal, installed, host, options.engine, search_notes, rejected=rejected
        )
        first_notes = [moves]
    text = _written(resolved, goal, host, options, search_notes)
    notes = [*first_notes, *search_notes, *_notes_on(resolved, goal)]
    if goal.requirements:
        from envcheck.commands.pin import published_wheels

        notes += published_wheels.wheel_notes(goal, resolved, show_address=options.own_index)
    if goal.by_address:
        notes += _notes_by_address(goal, resolved)
    return text, notes


def _notes_by_address(goal: LockTarget, made: Lock) -> list[str]:
    from envcheck.resolution.user_requirements import describe_by_address

    return describe_by_address(goal.by_address, (pin.name for pin in made.pins))


def _was_measured(resolved: Lock, goal: LockTarget) -> bool:
    """Return whether the target was measured as good with these versions of its packages."""
    pins = {pin.name: pin.version for pin in resolved.pins}
    return any(
        cell.target == goal.target.name
        and cell.outcome == "ok"
        and all(pins.get(name) == cell.pkg.get(name) for name in goal.target.packages)
        for cell in goal.matrix.cells
    )


def _notes_on(resolved: Lock, goal: LockTarget) -> list[str]:
    notes = [*resolved.notes, f"resolved for {describe(goal)}"]
    if not _was_measured(resolved, goal):
        notes.append(
            "these versions were never run together: install the lock, then `envcheck selftest --target "
            f"{goal.target.name}` trains with them"
        )
    notes += [*pre_release_notes(resolved, goal), *warnings_on(resolved, goal, atlas=True)]
    floor = shipped.driver_floor(resolved)
    if goal.no_gpu:
        notes.append(shipped.note_on_cpu(resolved.pins))
    elif floor and not goal.driver_known:
        notes.append(f"no driver is known: the lock needs {floor} or newer")
    return notes
