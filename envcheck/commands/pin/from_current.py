"""Resolve a lock that changes as little as possible of what is installed."""

from __future__ import annotations

from dataclasses import replace

from envcheck.commands import loading
from envcheck.commands.pin import search
from envcheck.commands.pin.target import LockTarget
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import Inventory
from envcheck.host.machine import Host
from envcheck.lock import model as lock
from envcheck.reports.formats import text
from envcheck.resolution import from_current
from envcheck.resolution.remediation.releases import Releases


def resolve_near(
    goal: LockTarget, installed: Inventory, host: Host, engine: str, notes: list[str], *, rejected: list[str]
) -> tuple[lock.Lock, str]:
    """Return the lock closest to what is installed, and the text that lists the changes.

    The lock also meets the user's own requirements. Remarks of the search are added to
    `notes`, and the versions that it tried in vain to `rejected`.

    Raises:
        NoSolutionError: changing versions alone does not make the environment pass, or no lock is close.
    """
    rows = loading.published_releases()
    releases = Releases(goal.matrix, rows, str(installed.known("python.version")))
    near = from_current.keep_environment(installed, goal.machine, goal.target, goal.matrix, releases)
    moves = text.plan_page(near.plan, goal.matrix, goal.target, near.read)
    remaining = [each.rule.id for each in near.plan.unresolved]
    remaining += [rule.id for move in near.plan.moves if move.administrator for rule in move.rules]
    if remaining:
        raise NoSolutionError(
            f"no lock close to the installed versions: other versions do not fix "
            f"{', '.join(remaining)}\n{moves}"
        )
    keep_all = replace(goal, requirements=(*goal.requirements, *near.closure))
    try:
        return search.resolve_lock(
            keep_all, host, engine, notes, rejected=rejected, extra_indexes=False
        ), moves
    except NoSolutionError:
        # Keep only the versions of the stack itself: its dependencies may have to change.
        keep_stack = replace(goal, requirements=(*goal.requirements, *near.stack))
        return search.resolve_lock(keep_stack, host, engine, notes, rejected=rejected), moves
