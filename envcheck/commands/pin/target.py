"""What a lock must serve: the machine, Python and platform, the target, and the user's own requirements."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck.commands import examine, loading
from envcheck.commands.judging import atlas_rules
from envcheck.core.decoding import decode_text
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Known, normalised, package_key
from envcheck.core.rules import Matrix, Rule, Severity, Target, UserRequirement
from envcheck.host.files import argument_name, read_argument, read_file
from envcheck.host.machine import Host
from envcheck.knowledge.generated_rules import requirement_rules, target_rules
from envcheck.rules import derive, judge
from envcheck.rules.requirements import check_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from envcheck.commands.examine import ExamineRequest
    from envcheck.commands.pin.options import PinOptions
    from envcheck.core.findings import Judgement
    from envcheck.resolution.user_requirements import RequirementWithExtras  # loads `packaging`

MACHINE = frozenset({"host", "driver", "gpus", "cuda", "env"})
"""Families of facts that describe where a lock will run; installed packages do not matter to it."""

_NOT_FOR_LOCKS = frozenset(
    {"cuda.runtime", "driver.error", "driver.library", "driver.libcuda", "cuda.compat_on_path"}
    | {"driver.passed_over", "gpus.on_bus", "gpus.selection", "gpus.xids"}
)
"""Facts about what is installed, and about present faults of the machine.

A lock ignores such faults: no choice of versions repairs them, and they may be gone when it is used.
"""

_OF_A_GPU = frozenset(
    {"gpu.name", "gpu.compute_capability", "gpu.kind", "gpu.memory_mib", "gpu.mig", "gpu.visible"}
)
"""Facts about each GPU that a lock depends on; its present state, such as free memory, is left out."""

GLIBC = "2.28"
"""The glibc assumed if the machine's is unknown: the oldest for torch's wheels since torch 2.7."""


# `__eq__` and `__repr__` are not used; building them would take 0.3 ms of every start.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class LockTarget:
    """Where the lock will run, and for what.

    Attributes:
        machine: facts about the machine, without packages.
        python: a version such as `3.11`.
        platform: such as `linux-x86_64`.
        glibc: the oldest C library to serve.
        requirements: the user's own requirements.
        extras: the user's requirements that name extras (`trl[peft]`), which only a backend completes.
        until: an ISO date; nothing uploaded after that day is taken. Empty is no limit.
        newest: try new releases before measured ones.
        by_address: requirements that name an address instead of a release; the lock leaves them out.
        allow_source: packages that may be built from source.
    """

    machine: Inventory
    python: str
    platform: str
    glibc: str
    target: Target
    matrix: Matrix
    requirements: tuple[UserRequirement, ...] = ()
    extras: tuple[str, ...] = ()
    until: str = ""
    newest: bool = False
    by_address: tuple[RequirementWithExtras, ...] = ()
    allow_source: tuple[str, ...] = ()

    @property
    def until_by(self) -> str:
        """Return the option that sets `until`, for messages."""
        return f"--exclude-newer {self.until}" if self.until else ""

    @property
    def driver_known(self) -> bool:
        """Return whether a driver was probed or declared."""
        return self.machine.known("driver.version") is not None

    @property
    def no_gpu(self) -> bool:
        """Return whether it was declared that there is no GPU; a probe that found none does not count."""
        count = self.machine.fact("gpus.count")
        return count.value == 0 and count.source.startswith("declared")


def find_target(
    request: ExamineRequest, host: Host, python_version: str | None, options: PinOptions
) -> tuple[LockTarget, Inventory]:
    """Return what the lock must serve, and all facts that were read, installed packages included.

    Raises:
        InputError: an option, a requirement file or the declared machine is wrong.
        ExamineError: the environment cannot be examined.
    """
    _refuse_platform(request.platform, request.glibc)
    all_probes, keys = examine.probes_and_vocabulary(request)
    matrix = loading.load_matrix(keys, request.overlays)
    target = loading.find_target(request.target, matrix)
    if target is None:
        known = ", ".join(matrix.targets)
        raise InputError(
            "--target", f"expected a training recipe (`envcheck target` describes them): {known}"
        )
    if python_version is not None and not options.keep:
        # A lock needs only the environment's Python version, and that was given.
        all_probes = tuple(probe for probe in all_probes if probe.name != "python_env")
    subject, read, _ = examine.take_inventory(request, host, all_probes, matrix, keys)
    python = _python_series(python_version, read)
    system, arch = read.known("host.os") or "linux", read.known("host.arch") or "x86_64"
    goal = LockTarget(
        machine=_machine_facts(read, python),
        python=python,
        platform=f"{system}-{arch}",
        glibc=str(read.known("host.glibc") or GLIBC),
        target=target,
        matrix=matrix,
        until=options.until,
        newest=options.prefer == "newest",
    )
    requirements = _user_requirements(options, goal, read, subject)
    releases = [each for each in requirements if not each.by_address]
    goal = replace(
        goal,
        requirements=(*(each.bare for each in releases), *target_bounds(target)),
        extras=tuple(each.requirement for each in releases if each.extras),
        by_address=tuple(each for each in requirements if each.by_address),
        allow_source=tuple(dict.fromkeys(map(normalised, options.allow_source))),
    )
    return goal, read


def target_bounds(target: Target) -> tuple[UserRequirement, ...]:
    """Return a target's bounds as requirements on its packages, which apply only if these are needed."""
    origin = f"target {target.name}"
    return tuple(
        UserRequirement(name, bound, origin, wanted=False, by_target=True)
        for name, bound in target.bounds.items()
    )


def _refuse_platform(platform: str | None, glibc: str | None) -> None:
    """Raise InputError if `--platform` or `--glibc` is wrong."""
    if platform is None and glibc is None:
        return
    from envcheck.lock import wheels  # only needed to check what the user typed

    wheels.platform_tags(platform or "linux-x86_64", glibc or GLIBC)


def _python_series(python_version: str | None, read: Inventory) -> str:
    """Return the lock's Python as `3.11`: the given one, else that of the environment."""
    python = python_version or ".".join(str(read.known("python.version")).split(".")[:2])
    major, _, minor = python.partition(".")
    if not (python.isascii() and major.isdecimal() and minor.isdecimal()):
        raise InputError("--python-version", f"expected a version such as 3.11, found {python!r}")
    return python


def _machine_facts(read: Inventory, python: str) -> Inventory:
    """Return the facts that decide which versions run on the machine, and the lock's Python."""
    facts = {
        key: fact
        for key, fact in read.facts.items()
        if key.partition(".")[0] in MACHINE and key not in _NOT_FOR_LOCKS
    }
    facts["python.version"] = Fact("python.version", Known(f"{python}.0"), "the lock's Python")
    devices = tuple(
        {key: fact for key, fact in device.items() if key in _OF_A_GPU} for device in read.devices
    )
    return Inventory(facts, devices, read.complete & MACHINE)


def _user_requirements(
    options: PinOptions, goal: LockTarget, read: Inventory, subject: str
) -> tuple[RequirementWithExtras, ...]:
    """Read all requirements of the user.

    Raises:
        InputError: one cannot be read or locked; names the file and line, or the option.
    """
    if not (options.files or options.besides or options.keep or options.models):
        return ()
    from envcheck.resolution import user_requirements

    where = goal.python, goal.platform
    found = [
        requirement
        for file in options.files
        for requirement in user_requirements.read_requirements_file(file, _read_beside, *where)
    ]
    given = (user_requirements.parse_requirement(text, "--with", *where) for text in options.besides)
    found += filter(None, given)
    for name in options.keep:
        installed = read.fact(package_key(normalised(name))).reading
        found.append(user_requirements.requirement_to_keep(name, installed, subject))
    models = goal.matrix.tables.get("model", [])
    found += filter(None, (user_requirements.requirement_for_model(name, models) for name in options.models))
    return tuple(found)


def _read_beside(file: str, named_in: str) -> tuple[str, str]:
    """Return a requirement file's path and text; the name is relative to the file that names it, if any.

    Raises:
        InputError: it cannot be read.
    """
    path = posixpath.normpath(posixpath.join(posixpath.dirname(named_in), file))
    read = read_file(Path(path)) if named_in else read_argument(path)
    return path if named_in else argument_name(path), decode_text(read)


def describe(goal: LockTarget) -> str:
    """Describe where the lock will run: `Python 3.11, linux-x86_64, driver 550.54.15, NVIDIA A100`."""
    driver = goal.machine.known("driver.version")
    gpus = {_gpu_name(goal.machine, device) for device in range(len(goal.machine.devices))}
    parts = [f"Python {goal.python}", goal.platform]
    parts += [f"driver {driver}"] if driver else []
    parts += sorted(gpus) or (["no GPU"] if goal.no_gpu else [])
    return ", ".join(parts)


def _gpu_name(inventory: Inventory, device: int) -> str:
    name = inventory.known("gpu.name", device)
    return str(name or f"GPU {inventory.known('gpu.compute_capability', device)}")


# --- what the judge says about versions -------------------------------------------------------------


def violated_rules(goal: LockTarget, packages: Iterable[Fact], *, complete: bool) -> list[Rule]:
    """Return the rules at error level that these packages break on the goal's machine with its target.

    A lock does not contradict what its packages require. `complete` says that no other package will be
    installed.
    """
    judgement = judged(goal, packages, Severity.ERROR, complete=complete)
    return [finding.rule for finding in judgement.findings if judge.forbids_lock(finding)]


def judged(
    goal: LockTarget,
    packages: Iterable[Fact],
    severity: Severity,
    *,
    complete: bool,
    atlas: bool = False,
) -> Judgement:
    """Judge packages on the goal's machine with its target by the rules of a severity.

    At error level, the packages' own metadata counts too. Without `atlas`, the atlas is not used, because
    loading it would slow down every `pin`; a test checks the shipped locks against it.
    """
    train = [
        Fact(key, Known(value), f"target {goal.target.name}") for key, value in goal.target.train.items()
    ]
    inventory = goal.machine.with_facts([*train, *packages])
    if complete:
        inventory = inventory._replace(complete=inventory.complete | {"pkg"})
    derived = derive.derive(inventory, goal.matrix)
    rules = [rule for rule in (*goal.matrix.rules, *target_rules(goal.target)) if rule.severity is severity]
    if severity is Severity.ERROR:
        rules += requirement_rules(check_requirements(derived).unmet)
    if atlas:
        rules += [rule for rule in atlas_rules(derived, goal.matrix) if rule.severity is severity]
    return judge.judge(derived, rules)


def package_facts(pins: Mapping[str, str]) -> list[Fact]:
    """Return the facts of an environment that holds these versions, by package."""
    return [Fact(package_key(name), Known(version), "the lock") for name, version in pins.items()]
