"""What a lock should keep of an environment: the stack as it is, moved no further than it must be. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, package_key, package_name
from envcheck.core.findings import Move, Plan
from envcheck.core.rules import Matrix, Severity, Target, UserRequirement
from envcheck.resolution import remediation
from envcheck.rules.requirements import installed_requirements

ASKED_BY = "--from-current"


class Near(NamedTuple):
    """How near a lock can be: what moves, and the bounds that keep the rest.

    `stack` binds the target's packages and whatever else has to move, `closure` also what they brought.
    """

    plan: Plan
    read: Inventory  # the environment as a lock would have it
    stack: tuple[UserRequirement, ...]
    closure: tuple[UserRequirement, ...]


def near(
    read: Inventory, machine: Inventory, target: Target, known: Matrix, listed: remediation.Releases
) -> Near:
    """What to keep of the environment that was read, for a target on a machine.

    Only what the target's packages bring counts: a lock does not hold the rest. A release that no index has
    (a vendor's build, one for another Python) gives way to the nearest that is listed.
    """
    brought = _brought(read, target.packages)
    installed, replaced = {}, []
    for name in brought:
        before = str(read.known(package_key(name)))
        installed[name], *_ = before.partition("+")  # a lock names no build
        fit = listed.fit.get(name, ())
        if name in listed.every and fit and installed[name] not in fit:
            installed[name] = remediation.nearest_first(fit, name, before)[0]
            replaced.append(
                Move(
                    package_key(name),
                    before,
                    installed[name],
                    "",
                    (),
                    "the release that is here is not listed for this Python",
                    install=f"{name}=={installed[name]}",
                )
            )
    lockable = _lockable(read, machine, target, installed)
    plan = remediation.plan(lockable, known, target, listed, Severity.ERROR, strict=True)
    moved = {package_name(move.key): move for move in plan.moves if move.install}
    kept = {**installed, **{name: str(move.after) for name, move in moved.items() if move.after is not None}}
    first = (*target.packages, *(name for name in moved if name not in target.packages))
    stack = tuple(
        UserRequirement(name, f"=={kept[name]}", ASKED_BY, wanted=name in target.packages)
        for name in first
        if name in kept
    )
    # What torch brings is another thing once torch moves, or if its build here is not the one a lock holds.
    names = (*moved, *(package_name(move.key) for move in replaced))
    stale = [name for name in names if not listed.requires.get((name, kept[name]))]
    stale += [name for name in brought if versions.local_label(str(read.known(package_key(name))))]
    loose = set(_brought(read, stale)) - set(
        _brought(read, [name for name in brought if name not in stale], stale)
    )
    closure = tuple(
        UserRequirement(name, f"=={version}", ASKED_BY, wanted=False)
        for name, version in installed.items()
        if name not in first and name not in loose
    )
    told = (move._replace(before=read.known(move.key)) for move in plan.moves)
    moves = (*(move for move in replaced if package_name(move.key) not in moved), *told)
    return Near(plan._replace(moves=moves), lockable, stack, (*stack, *closure))


def _brought(read: Inventory, names: Iterable[str], but: Collection[str] = ()) -> tuple[str, ...]:
    """These packages and all they require, as far as they are installed, in that order; not through `but`."""
    asks: dict[str, list[str]] = {}
    for each in installed_requirements(read):
        asks.setdefault(each.package, []).append(each.requires)
    found: dict[str, None] = {}
    todo = list(names)
    while todo:
        name = todo.pop(0)
        if name not in found and name not in but and read.known(package_key(name)) is not None:
            found[name] = None
            todo += asks.get(name, [])
    return tuple(found)


def _lockable(read: Inventory, machine: Inventory, target: Target, installed: dict[str, str]) -> Inventory:
    facts = [Fact(key, Known(value), f"target {target.name}") for key, value in target.train.items()]
    facts += [Fact(package_key(name), Absent(), "") for name in target.packages if name not in installed]
    for name, version in installed.items():
        here = read.fact(package_key(name))
        facts.append(Fact(here.key, Known(version), here.source))
        requires = read.fact(package_key(name, "requires"))
        if isinstance(requires.reading, Known) and str(here.value).partition("+")[0] == version:
            facts.append(requires)
    python = read.fact("python.version")
    return replace(machine.with_facts([*facts, python]), complete=machine.complete - {"pkg"})
