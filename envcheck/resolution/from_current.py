"""Decide what a lock keeps of an installed environment: the stack as it is, changed as little as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, package_key, package_name
from envcheck.core.findings import Move, Plan
from envcheck.core.rules import Matrix, Severity, Target, UserRequirement
from envcheck.resolution.remediation.plan import plan_remediation
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import Releases, nearest_first
from envcheck.rules.requirements import installed_requirements

ASKED_BY = "--from-current"


@dataclass(frozen=True, kw_only=True)
class KeptEnvironment:
    """What a lock keeps of an environment: the plan of what moves, and the bounds that keep the rest.

    `read` is the environment as a lock would have it. `stack` pins the target's packages and all others that
    have to move. `closure` also pins the packages that these require.
    """

    plan: Plan
    read: Inventory
    stack: tuple[UserRequirement, ...]
    closure: tuple[UserRequirement, ...]


def keep_environment(
    read: Inventory, machine: Inventory, target: Target, known: Matrix, listed: Releases
) -> KeptEnvironment:
    """Return what to keep of the environment that was read, for a target on a machine.

    Only the target's packages and what they require count, because a lock holds nothing else. A release that
    no index has (a vendor's build, one for another Python) is replaced by the nearest listed one.
    """
    required = _with_requirements(read, target.packages)
    installed, replaced = _listed_releases(read, required, listed)
    lockable = _as_lock_would_have_it(read, machine, target, installed)
    problem = RemediationProblem(read=lockable, known=known, target=target, level=Severity.ERROR, strict=True)
    plan = plan_remediation(problem, listed)
    moved = {package_name(move.key): move for move in plan.moves if move.install}
    kept = {**installed, **{name: str(move.after) for name, move in moved.items() if move.after is not None}}
    first = (*target.packages, *(name for name in moved if name not in target.packages))
    stack = tuple(
        UserRequirement(name, f"=={kept[name]}", ASKED_BY, wanted=name in target.packages)
        for name in first
        if name in kept
    )
    names = (*moved, *(package_name(move.key) for move in replaced))
    unknown = [name for name in names if not listed.requires(name, kept[name])]
    loose = _required_by_changed(read, required, unknown)
    closure = tuple(
        UserRequirement(name, f"=={version}", ASKED_BY, wanted=False)
        for name, version in installed.items()
        if name not in first and name not in loose
    )
    from_now = (move._replace(before=read.known(move.key)) for move in plan.moves)
    moves = (*(move for move in replaced if package_name(move.key) not in moved), *from_now)
    return KeptEnvironment(
        plan=plan._replace(moves=moves), read=lockable, stack=stack, closure=(*stack, *closure)
    )


def _listed_releases(
    read: Inventory, names: Iterable[str], listed: Releases
) -> tuple[dict[str, str], list[Move]]:
    """Return the releases of installed packages without their builds, and the moves to listed ones."""
    installed, replaced = {}, []
    for name in names:
        before = str(read.known(package_key(name)))
        installed[name], *_ = before.partition("+")  # the tables list releases without their build
        fit = listed.fit(name)
        if fit and installed[name] not in fit:
            installed[name] = nearest_first(fit, name, before)[0]
            replaced.append(
                Move(
                    package_key(name),
                    before,
                    installed[name],
                    "",
                    (),
                    "the installed release is not listed for this Python",
                    install=f"{name}=={installed[name]}",
                )
            )
    return installed, replaced


def _required_by_changed(read: Inventory, required: Collection[str], unknown: Iterable[str]) -> set[str]:
    """Return the packages that only changed packages require, so that their releases need not be kept.

    Packages in `unknown` count as changed, because no table lists their new requirements. So do packages
    installed in a build with a local label, because torch requires other packages in another build.
    """
    changed = [
        *unknown,
        *(name for name in required if versions.local_label(str(read.known(package_key(name))))),
    ]
    unchanged = [name for name in required if name not in changed]
    return set(_with_requirements(read, changed)) - set(_with_requirements(read, unchanged, but=changed))


def _with_requirements(read: Inventory, names: Iterable[str], but: Collection[str] = ()) -> tuple[str, ...]:
    """Return these packages and all that they require, breadth first.

    Packages in `but` and packages that are not installed are left out.
    """
    requires: dict[str, list[str]] = {}
    for requirement in installed_requirements(read):
        requires.setdefault(requirement.package, []).append(requirement.requires)
    found: dict[str, None] = {}
    queue = list(names)
    while queue:
        name = queue.pop(0)
        if name not in found and name not in but and read.known(package_key(name)) is not None:
            found[name] = None
            queue += requires.get(name, [])
    return tuple(found)


def _as_lock_would_have_it(
    read: Inventory, machine: Inventory, target: Target, installed: Mapping[str, str]
) -> Inventory:
    """Return the machine with the target's settings and these releases.

    The requirements that were read are kept for each package whose release stays the same.
    """
    facts = [Fact(key, Known(value), f"target {target.name}") for key, value in target.train.items()]
    facts += [Fact(package_key(name), Absent(), "") for name in target.packages if name not in installed]
    for name, version in installed.items():
        current = read.fact(package_key(name))
        facts.append(Fact(current.key, Known(version), current.source))
        requires = read.fact(package_key(name, "requires"))
        if isinstance(requires.reading, Known) and str(current.value).partition("+")[0] == version:
            facts.append(requires)
    python = read.fact("python.version")
    return machine.with_facts([*facts, python])._replace(complete=machine.complete - {"pkg"})
