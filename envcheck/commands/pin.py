"""The use case of `pin`: a shipped lock that fits this machine, or one resolved for it.

Nothing is printed that the judge objects to, wherever it came from.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envcheck import __version__, probes
from envcheck.commands import examine
from envcheck.core import versions
from envcheck.core.errors import ExamineError, InputError, NoSolutionError
from envcheck.core.facts import Fact, Inventory, Known, Tri, Value, normalised, package_key
from envcheck.core.findings import Verdict
from envcheck.core.rules import Matrix, Severity, Target, UserRequirement
from envcheck.host import machine as host
from envcheck.host.machine import Host
from envcheck.knowledge import load as matrix
from envcheck.lock import model as lock
from envcheck.rules import derive, judge

if TYPE_CHECKING:  # a shipped lock needs none of them
    from envcheck import resolver_backends as backends
    from envcheck.resolution.resolver import Objection, Reason, Release, SearchProblem
    from envcheck.resolution.user_requirements import RequirementWithExtras
    from envcheck.resolver_backends.extra_indexes import Shelf

MACHINE = frozenset({"host", "driver", "gpus", "cuda", "env"})
"""Families that say where a lock will run; what is installed there now does not matter to it."""

_NOT_FOR_LOCKS = frozenset(
    {"cuda.runtime", "driver.error", "driver.library", "driver.libcuda", "cuda.compat_on_path"}
    | {"driver.passed_over", "gpus.on_bus", "gpus.selection", "gpus.xids"}
)
"""What is installed, and what is amiss with the machine now: no version mends it, and a lock outlives it."""

_OF_A_GPU = frozenset(
    {"gpu.name", "gpu.compute_capability", "gpu.kind", "gpu.memory_mib", "gpu.mig", "gpu.visible"}
)
"""What a lock asks of each GPU; how it is today is no matter of versions either."""

ROUNDS = 5
"""How often an objection to a completed lock sends the search back."""

GLIBC = "2.28"
"""The C library a lock serves where the machine's is not known: the floor of torch's wheels since 2.7."""


ADDRESSES_S = 120.0
"""Seconds to read the pages of all pinned packages, for a format that names addresses."""


class LockTarget(NamedTuple):
    """Where the lock will run and for what: the machine's facts, Python `3.11`, platform, glibc.

    `wishes` are the user's own requirements, `extras` those that name extras (`trl[peft]`), which only an
    engine completes. `newest` tries new releases before measured ones.
    """

    machine: Inventory
    python: str
    platform: str
    glibc: str
    target: Target
    known: Matrix
    wishes: tuple[UserRequirement, ...] = ()
    until: str = ""  # an ISO date: nothing published later is taken, as `until_by` asks
    until_by: str = ""
    extras: tuple[str, ...] = ()
    newest: bool = False
    read: Inventory = Inventory()  # all that was read, what is installed too

    @property
    def driver_known(self) -> bool:
        """Whether a driver was probed or declared."""
        return self.machine.known("driver.version") is not None

    @property
    def no_gpu(self) -> bool:
        """Whether there is none where it will run, because that was said: not having found one is no word."""
        count = self.machine.fact("gpus.count")
        return count.value == 0 and count.source.startswith("declared")


class PinOptions(NamedTuple):
    """What the user asks of a lock besides a machine and a target.

    `files` are requirement files, `besides` requirements; `keep` names installed packages that stay and
    `models` model types that must be known. `until` is an ISO date; `prefer` is `measured` or
    `newest`. `engine` is an engine's name, `both` to compare them, or empty. `written` names the
    format, `output` the file it is for (empty: standard output); `own_index` lets addresses on the
    user's own index be written.
    """

    files: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    until: str = ""
    prefer: str = "measured"
    engine: str = ""
    written: str = "requirements"
    output: str = ""
    own_index: bool = False


PLAIN = PinOptions()


def pin(
    question: examine.ExamineRequest,
    machine: Host,
    python_version: str | None,
    *,
    resolve: bool,
    offline: bool,
    order: PinOptions = PLAIN,
    from_current: bool = False,
) -> tuple[str, list[str]]:
    """The lock's text, and remarks for the user.

    Raises:
        InputError: an option is wrong.
        NoSolutionError: nothing shipped fits and resolving is forbidden or finds nothing.
        ExamineError: the engine failed.
    """
    if order != PLAIN or (resolve and offline):
        _refuse_nonsense(order, resolve=resolve, offline=offline)
    if from_current and (offline or python_version is not None):
        clash = "--offline" if offline else "--python-version"
        raise InputError(clash, "not with --from-current, which resolves anew for the Python that is here")
    place = _place(question, machine, python_version, order)
    refused: list[str] = []
    if not (resolve or from_current):
        fitting = _shipped(place, refused)
        if fitting is not None:
            text, remarks = _served(*fitting, place)
            if order.written != "requirements":
                text = _written(lock.parse_requirements(text, fitting[0], verify=False), machine, order)
            return text, remarks
    if offline:
        why = (
            "; ".join(refused)
            or f"none is shipped for {place.target.name} on Python {place.python}, {place.platform}"
        )
        raise NoSolutionError(f"no shipped lock fits ({why}), and --offline forbids resolving one")
    found: list[str] = []
    with host.signals_raise():
        if from_current:
            resolved, refused = _near_lock(place, machine, order.engine, found)
        else:
            resolved = resolved_lock(place, machine, order.engine, found)
        text = _written(resolved, machine, order)
    remarks = [*refused, *found, *resolved.notes, f"resolved for {_where(place)}"]
    floor = _needed(resolved, "driver.version")
    if place.no_gpu:
        remarks.append(_on_cpu(resolved.pins))
    elif floor and not place.driver_known:
        remarks.append(f"no driver is known: the lock needs {floor} or newer")
    return text, remarks


def _refuse_nonsense(order: PinOptions, *, resolve: bool, offline: bool) -> None:
    """What is wrong with the options whatever the machine is, before anything is read. Raises InputError."""
    from envcheck.lock import formats

    if order.prefer not in ("measured", "newest"):
        raise InputError("--prefer", f"expected one of measured, newest, found {order.prefer!r}")
    newest = order.prefer == "newest"
    if offline and (resolve or order.engine or newest):
        other = "--resolve" if resolve else "--engine" if order.engine else "--prefer newest"
        raise InputError("--offline", f"{other} needs a package index: name one of the two")
    if order.engine:
        from envcheck import resolver_backends as backends

        backends.choose_named(backends.every_backend(), order.engine)
    chosen = formats.named(order.written)
    if order.own_index and not chosen.WANTS_ADDRESSES:
        raise InputError("--show-index", f"--format {order.written} holds no address; pylock does")
    if offline and chosen.WANTS_ADDRESSES:
        raise InputError("--offline", f"--format {order.written} holds addresses, which only an index knows")
    if order.until:
        from envcheck.resolution import user_requirements

        user_requirements.day(order.until)
    if order.output:
        _refuse_output(order)


def _refuse_output(order: PinOptions) -> None:
    import re

    from envcheck.lock import formats

    if order.output.endswith("/"):
        raise InputError(f"-o {order.output}", "expected a file, found a folder")
    path, chosen = Path(order.output), formats.named(order.written)
    if not re.fullmatch(chosen.FILES, path.name):
        raise InputError(f"-o {order.output}", chosen.WHY_FILES)
    if any(host.same_file(path, Path(file)) for file in order.files):
        raise InputError(f"-o {order.output}", "is read with -r: the lock would take its place")
    host.replaceable(path)


def _written(made: lock.Lock, machine: Host, order: PinOptions) -> str:
    """The lock in the format asked for; one that holds addresses reads them from the index."""
    from envcheck.lock import formats

    chosen = formats.named(order.written)
    if not chosen.WANTS_ADDRESSES:
        return chosen.render(made, formats.NONE)
    from envcheck.resolver_backends import index

    hashes = {each.name: [file.sha256 for file in each.artifacts] for each in made.pins if not each.url}
    return chosen.render(made, index.file_addresses(machine, hashes, ADDRESSES_S, own=order.own_index))


def _place(
    question: examine.ExamineRequest, machine: Host, python_version: str | None, order: PinOptions
) -> LockTarget:
    if question.platform is not None or question.glibc is not None:
        from envcheck.lock import wheels  # to look at what was typed: not needed where nothing was

        wheels.platform_tags(question.platform or "linux-x86_64", question.glibc or GLIBC)
    found = probes.every_probe()
    words = examine.vocabulary(found)
    known = examine.load_matrix(words, question.overlays, errors_only=True)
    target = examine.find_target(question.target, known)
    if python_version is not None and not order.keep:
        # What is installed does not matter to a lock; only its Python does, and that was given.
        found = tuple(probe for probe in found if probe.name != "python_env")
    if target is None:
        raise InputError("--target", f"pin needs a target; known are {', '.join(known.targets)}")
    subject, read, _ = examine.take_inventory(question, machine, found, known, words)
    python = python_version or ".".join(str(read.known("python.version")).split(".")[:2])
    major, _, minor = python.partition(".")
    if not (python.isascii() and major.isdecimal() and minor.isdecimal()):
        raise InputError("--python-version", f"expected a version such as 3.11, found {python!r}")
    kept = {
        key: fact
        for key, fact in read.facts.items()
        if key.partition(".")[0] in MACHINE and key not in _NOT_FOR_LOCKS
    }
    devices = tuple(
        {key: fact for key, fact in device.items() if key in _OF_A_GPU} for device in read.devices
    )
    kept["python.version"] = Fact("python.version", Known(f"{python}.0"), "the lock's Python")
    system, arch = read.known("host.os") or "linux", read.known("host.arch") or "x86_64"
    place = LockTarget(
        machine=Inventory(kept, devices, read.complete & MACHINE),
        python=python,
        platform=f"{system}-{arch}",
        glibc=str(read.known("host.glibc") or GLIBC),
        target=target,
        known=known,
        read=read,
    )
    if order == PLAIN:
        return place
    asked = _asked(order, read, subject, place)
    return place._replace(
        wishes=tuple(each.wish for each in asked),
        extras=tuple(each.requirement for each in asked if each.extras),
        until=order.until,
        until_by=f"--exclude-newer {order.until}",
        newest=order.prefer == "newest",
    )


def _asked(
    order: PinOptions, read: Inventory, subject: str, place: LockTarget
) -> tuple[RequirementWithExtras, ...]:
    """All requirements of the user's own. Raises InputError with file and line, or the option."""
    from envcheck.resolution import user_requirements

    where = place.python, place.platform
    found = [each for file in order.files for each in user_requirements.read(file, _text_of, *where)]
    found += [each for text in order.besides if (each := user_requirements.read_one(text, "--with", *where))]
    found += [
        user_requirements.kept(name, read.fact(package_key(normalised(name))).reading, subject)
        for name in order.keep
    ]
    models = place.known.tables.get("model", [])
    found += [each for name in order.models if (each := user_requirements.for_model(name, models))]
    return tuple(found)


def _text_of(file: str, named_in: str) -> tuple[str, str]:
    """A requirement file's name and text; it lies beside the one that names it. Raises InputError."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(named_in), file))
    return path, host.read_file(Path(path)).decode("utf-8", "replace")


def _where(place: LockTarget) -> str:
    driver = place.machine.known("driver.version")
    names = [
        str(
            place.machine.known("gpu.name", each)
            or f"GPU {place.machine.known('gpu.compute_capability', each)}"
        )
        for each in range(len(place.machine.devices))
    ]
    parts = [f"Python {place.python}", place.platform]
    parts += [f"driver {driver}"] if driver else []
    parts += sorted(set(names)) or (["no GPU"] if place.no_gpu else [])
    return ", ".join(parts)


# --- what the judge says of versions ----------------------------------------------------------------


def violated_rules(place: LockTarget, pkg: Iterable[Fact], *, complete: bool) -> list[str]:
    """Ids of what these packages break on that machine under that target; none if nothing.

    Rules of error level object, and so does metadata: a lock does not contradict what its own
    packages declare.
    """
    train = [
        Fact(key, Known(value), f"target {place.target.name}") for key, value in place.target.train.items()
    ]
    inventory = place.machine.with_facts([*train, *pkg])
    if complete:
        inventory = replace(inventory, complete=inventory.complete | {"pkg"})
    settled = derive.derive(inventory, place.known)
    # Rules below error level have no say here, so they are not asked.
    errors = [
        rule
        for rule in (*place.known.rules, *matrix.target_rules(place.target))
        if rule.severity is Severity.ERROR
    ]
    judgement = judge.judge(settled, [*errors, *matrix.requirement_rules(derive.unmet(settled)[0])])
    return [finding.rule.id for finding in judgement.findings if judge.forbids_lock(finding)]


def _pkg_facts(choice: Mapping[str, str]) -> list[Fact]:
    return [Fact(package_key(name), Known(version), "the lock") for name, version in choice.items()]


# --- shipped locks ----------------------------------------------------------------------------------


def _shipped(place: LockTarget, refused: list[str]) -> tuple[str, str, lock.Lock] | None:
    """The shipped lock that suits the machine best: its name, its text, what it pins.

    The newest torch where the driver is known, the lowest driver floor where it is not. Why others
    were refused before it is added to `refused`.
    """
    stem = f"{place.target.name}-py{place.python.replace('.', '')}-driver"
    texts = host.source_texts("lockfiles", ".txt", stem)
    # Named by their driver floor, and a newer torch never has a lower one: this order is by both. Behind
    # them come those with a torch that is older than it need be (`…-driver525-torch24`).
    by_floor = sorted(texts, reverse=place.driver_known or place.no_gpu)
    for name in sorted(by_floor, key=lambda name: "-" in name.removeprefix(stem)):
        shipped = lock.parse_requirements(texts[name], name, verify=False)
        reasons = _unfit(shipped, place)
        if not reasons:
            return name, texts[name], shipped
        refused.append(f"{name}: {', '.join(reasons)}")
    return None


def _unfit(shipped: lock.Lock, place: LockTarget) -> list[str]:
    if (shipped.python, shipped.platform) != (place.python, place.platform):
        return [f"is for Python {shipped.python} on {shipped.platform}"]
    reasons = []
    if place.until and shipped.date > place.until:
        reasons.append(f"was locked on {shipped.date}, {place.until_by}")
    if place.newest:
        reasons.append("--prefer newest asks for a search")
    if place.wishes:
        from envcheck.resolution import user_requirements

        reasons += user_requirements.unmet(place.wishes, place.extras, shipped.pins)
    glibc = str(place.machine.known("host.glibc") or "")
    if glibc and shipped.glibc and versions.compare(glibc, "<", shipped.glibc) is Tri.YES:
        reasons.append(f"needs glibc {shipped.glibc}, here {glibc}")
    driver, floor = place.machine.known("driver.version"), _needed(shipped, "driver.version")
    if driver and floor and versions.compare(str(driver), "<", floor) is Tri.YES:
        return [*reasons, f"needs driver {floor}, here {driver}"]
    choice = {each.name: each.version for each in shipped.pins}
    return reasons + violated_rules(place, _pkg_facts(choice), complete=True)


def _driver_window(place: LockTarget, floor: str) -> tuple[str, list[str]]:
    """The oldest driver for a lock on these GPUs, and a note where newer branches no longer drive them.

    A GPU may need a newer driver than the build for it does: the rules are asked with each branch.
    """
    if not place.machine.devices:
        return floor, []
    branches = sorted(
        (str(row["branch"]) for row in place.known.tables.get("branch", [])), key=versions.order
    )
    tried = [floor, *(each for each in branches if versions.compare(each, ">", floor) is Tri.YES)]
    concerned = [
        rule
        for rule in place.known.rules
        if rule.severity is Severity.ERROR
        and any(clause.key == "driver.version" for table in rule.when for clause in table)
    ]

    def driven(branch: str) -> bool:
        fact = Fact("driver.version", Known(branch), "asked")
        settled = derive.derive(place.machine.with_facts([fact]), place.known)
        found = judge.judge(settled, concerned).findings
        return not any(finding.verdict is Verdict.BROKEN for finding in found)

    fitting = [each for each in tried if driven(each)]
    if not fitting:
        return floor, []
    later = tried[tried.index(fitting[-1]) + 1 :]
    notes = [f"drivers from branch {later[0]} on no longer drive a GPU of this machine"] if later else []
    return fitting[0], notes


def _needed(of: lock.Lock, key: str) -> str:
    return next((value for name, _, value in of.needs if name == key), "")


def _served(name: str, text: str, chosen: lock.Lock, place: LockTarget) -> tuple[str, list[str]]:
    """A shipped lock's text as this machine needs it, and remarks."""
    floor = _needed(chosen, "driver.version")
    told = f"{name}, locked on {chosen.date}, judged by matrix {place.known.updated}"
    if place.no_gpu:
        return text, [f"{told}; for {_where(place)}", _on_cpu(chosen.pins)]
    if place.driver_known:
        return text, [f"{told}; fits {_where(place)}"]
    needed, notes = _driver_window(place, floor)
    if needed != floor or notes:  # the same lock for other GPUs is not told what these need
        rest = tuple(each for each in chosen.needs if each[0] != "driver.version")
        needs = (*rest, ("driver.version", ">=", needed))
        text = lock.render_requirements(replace(chosen, needs=needs, notes=(*chosen.notes, *notes)))
    why = "no driver is known, so this is the lowest floor"
    return text, [f"{told}; for {_where(place)}; {why}: {needed} or newer", *notes]


def _on_cpu(pins: Iterable[lock.Pin]) -> str:
    torch = next((each.version for each in pins if each.name == "torch"), "")
    return (
        "no GPU is declared: the driver a lock names does not matter there, and torch's CUDA build runs on "
        f"the CPU; a smaller one: uv pip install --torch-backend cpu torch=={torch}"
    )


# --- resolving --------------------------------------------------------------------------------------


def resolved_lock(
    place: LockTarget,
    machine: Host,
    engine: str = "",
    remarks: list[str] | None = None,
    *,
    further: bool = True,
) -> lock.Lock:
    """A lock made now: the search, an engine, and the judge's word on the whole.

    An objection to a completed lock binds what is tried next: an engine is told the rule's own bound on
    a package of its choosing, and where that cannot be met, the search refuses the stacks that break
    it. Where only a torch for another CUDA fits, it is taken from a `further` index of the user's.
    Where two engines are asked, what they differ in is added to `remarks`.

    Raises:
        NoSolutionError: no versions fit, or every completed lock was objected to.
        ExamineError: no engine is installed, or it failed.
    """
    from envcheck import resolver_backends as backends  # a shipped lock needs none

    remarks = [] if remarks is None else remarks
    asking = backends.asking(machine, backends.every_backend(), engine)
    found = _searched(place, machine, problem_of(place), asking, remarks)
    if isinstance(found, lock.Lock):
        return found
    why: list[str] = []
    other = _other_build(found.problem)
    if other and further:
        made = _with_other_build(place, machine, found.problem, other["torch"], asking, remarks, why)
        if made is not None:
            return made
    raise NoSolutionError(_no_lock(place, found, other, why))


class _Dead(NamedTuple):
    """A search that found nothing: the reasons, and what became of the last completed lock."""

    problem: SearchProblem
    reasons: frozenset[Reason]
    last: str


def _searched(
    place: LockTarget,
    machine: Host,
    problem: SearchProblem,
    asking: backends.Asking,
    remarks: list[str],
    shelves: Sequence[Shelf] = (),
) -> lock.Lock | _Dead:
    """The rounds of `resolved_lock`; torch is taken from these shelves if there are any."""
    from envcheck import resolver_backends as backends
    from envcheck.resolution import resolver

    told: list[resolver.Objection] = []  # what an engine was asked to mend with bounds of its own
    last, dead = "", None
    for _ in range(ROUNDS):
        answer = resolver.solve(problem)
        if answer.versions is None:
            dead = dead or (problem, answer.reasons)
            if not any(each.wide for each in problem.objections):
                break
            # Another stack may bring other packages along: only what was seen to break stays refused.
            narrow = tuple(each._replace(wide=False) for each in problem.objections)
            problem = problem._replace(objections=narrow)
            continue
        choice = dict(answer.versions)
        wanted = _wanted(place, choice, resolver.built(problem, choice), told)
        wanted = _with_torch(machine, wanted, shelves)
        try:
            pins = asking.complete(machine, wanted, remarks)
            pins = _with_companions(machine, wanted, asking, remarks, shelves, place, pins)
        except NoSolutionError as error:
            last = str(error)
            offered, lacking = _offered(problem, place, wanted, machine)
            if lacking:
                problem, last = problem._replace(releases=offered), "; ".join(lacking)
                remarks += lacking
                continue
            if isinstance(error, backends.YankedError):
                # No package of the search, so the engine has to choose another one of it.
                place = place._replace(wishes=(*place.wishes, _without(error)))
                continue
            refused = told or [resolver.Objection("", tuple(choice.items()), words=last)]
            problem, told = problem._replace(objections=(*problem.objections, *refused)), []
            continue
        closure = {each.name: each.version for each in pins}
        found = resolver.objections(problem, closure, answer.changed, choice)
        if not found:
            return _locked(place, pins, wanted.build, answer.changed)
        last = f"the completed lock was objected to: {found[0].words} ({found[0].rule})"
        asked = {each.rule for each in told}
        mended = [each for each in found if each.bounds and each.rule not in asked]
        refused = [each for each in found if each not in mended]
        told = [*told, *mended]
        problem = problem._replace(objections=(*problem.objections, *refused))
    if dead is not None:
        return _Dead(*dead, last)
    raise NoSolutionError(f"no lock after {ROUNDS} rounds; {last}")


def _offered(
    problem: SearchProblem, place: LockTarget, wanted: backends.CompletionRequest, machine: Host
) -> tuple[tuple[Release, ...], list[str]]:
    """The releases of the tables less those of pinned packages that the index lacks or withdrew.

    And, in words, which of the pins are among them.

    Raises:
        NoSolutionError: nothing on the index is what the user asks for by name.
    """
    from envcheck.resolution import user_requirements
    from envcheck.resolver_backends import availability

    outside = [each for each in place.wishes if each.wanted and each.package not in wanted.pins]
    found = availability.offers(machine, wanted, [each.package for each in outside])
    for each in outside:
        there = found[each.package]
        if not any(user_requirements.admits(each, str(version)) for version in there.usable - there.yanked):
            raise NoSolutionError(
                f"{each.origin} asks for {each.package}{each.specifier}, and your index has none for Python "
                f"{place.python} on {place.platform}: {availability.shown(there)}"
            )
    kept: list[Release] = []
    for release in problem.releases:
        offer, version = found.get(release.package), versions.parse(release.version)
        if offer is None or version in offer.usable - offer.yanked:
            kept.append(release)
        elif version in offer.yanked:
            kept.append(release._replace(yanked=True))
    lacking = []
    for name, version_wanted in wanted.pins.items():
        if wanted.gives(name):
            continue
        version = versions.parse(version_wanted)
        if version not in found[name].usable:
            lacking.append(f"your index has no usable {name} {version}: {availability.shown(found[name])}")
        elif version in found[name].yanked:
            lacking.append(f"your index has withdrawn {name} {version}")
    return tuple(kept), lacking


def _without(yanked: backends.YankedError) -> UserRequirement:
    return UserRequirement(yanked.name, f"!={yanked.version}", str(yanked), wanted=False)


def _near_lock(
    place: LockTarget, machine: Host, engine: str, found: list[str]
) -> tuple[lock.Lock, list[str]]:
    """A lock as near as can be to what is installed, and what moves; the user's own wishes hold as well.

    Raises:
        NoSolutionError: no change of versions alone makes the environment pass, or no lock is that near.
    """
    from envcheck.reports.formats import text
    from envcheck.resolution import from_current, remediation

    rows = examine.source_tree()["tables"].get("release", [])
    listed = remediation.releases(place.known, rows, str(place.read.known("python.version")))
    near = from_current.near(place.read, place.machine, place.target, place.known, listed)
    told = text.plan_page(near.plan, place.known, place.target, near.read)
    stuck = [each.rule.id for each in near.plan.unmended]
    stuck += [rule.id for move in near.plan.moves if move.administrator for rule in move.rules]
    if stuck:
        raise NoSolutionError(
            f"no lock near what is installed: versions do not mend {', '.join(stuck)}\n{told}"
        )
    try:
        near_all = place._replace(wishes=(*place.wishes, *near.closure))
        return resolved_lock(near_all, machine, engine, found, further=False), [told]
    except NoSolutionError:
        # What the stack brought along may have to move; the stack itself need not.
        near_stack = place._replace(wishes=(*place.wishes, *near.stack))
        return resolved_lock(near_stack, machine, engine, found), [told]


def _no_lock(place: LockTarget, dead: _Dead, other: Mapping[str, str], why: Sequence[str]) -> str:
    """What clashes and what would help, for people; `other` holds a torch that no lock has, and `why` not."""
    from envcheck.resolution import conflicts

    found = conflicts.prove(dead.problem, dead.reasons)
    lines = [f"no versions for {place.target.name} fit {_where(place)}; these clash:"]
    lines += [f"  - {reason}" for reason in found.clash]
    lines += [f"  the last one tried: {dead.last}"] if dead.last else []
    ways = [*([_by_hand(other, why)] if other else []), *found.ways]
    lines += ["ways out, each tried:" if ways else "no single change that was tried helps"]
    lines += [f"  - {way}" for way in ways]
    return "\n".join(lines)


def _other_build(problem: SearchProblem) -> Mapping[str, str]:
    """The versions with a torch for another CUDA that would fit where no plain one does; none if nothing."""
    from envcheck.resolution import resolver

    try:
        chosen = resolver.solve(resolver.with_variants(problem)).versions
    except NoSolutionError:
        chosen = None  # the search gave up
    return chosen if chosen is not None and "torch" in chosen else {}


COMPILED_FOR_TORCH = ("torchaudio", "torchvision", "torchao", "xformers")
"""Packages whose wheels on the default index are compiled for the CUDA of the torch that is there."""


def _with_other_build(
    place: LockTarget,
    machine: Host,
    problem: SearchProblem,
    version: str,
    asking: backends.Asking,
    remarks: list[str],
    why: list[str],
) -> lock.Lock | None:
    """A lock with a torch for another CUDA from a further index of the user's, else `why` not.

    All other packages are the default index's, and the engine sees no other.
    """
    from envcheck.resolution import resolver
    from envcheck.resolver_backends import extra_indexes

    wanted = _wanted(place, {}, (), ())
    told: list[str] = []
    try:
        shelves = extra_indexes.shelves(machine, "torch", wanted)
        why += filter(None, (extra_indexes.why_not(shelf, version, wanted) for shelf in shelves))
        offered = {each for shelf in shelves for each in shelf.pins}
        if not offered:
            return None
        found = _searched(place, machine, resolver.with_variants(problem, offered), asking, told, shelves)
    except (NoSolutionError, ExamineError) as error:
        why.append(f"no lock with such a build: {error}")
        return None
    if isinstance(found, lock.Lock):
        remarks += told
        return found
    why += [f"no lock with such a build: {found.last}"] if found.last else []
    return None


def _with_torch(
    machine: Host, wanted: backends.CompletionRequest, shelves: Sequence[Shelf]
) -> backends.CompletionRequest:
    """The same with the torch that one of the shelves has."""
    if not shelves:
        return wanted
    from envcheck.resolver_backends import extra_indexes

    version = wanted.pins["torch"]
    shelf = next(each for each in shelves if version in each.pins)
    return replace(wanted, given=(extra_indexes.given(machine, shelf, "torch", version),))


def _with_companions(
    machine: Host,
    wanted: backends.CompletionRequest,
    asking: backends.Asking,
    remarks: list[str],
    shelves: Sequence[Shelf],
    place: LockTarget,
    pins: tuple[lock.Pin, ...],
) -> tuple[lock.Pin, ...]:
    """The same with all that is compiled for torch's CUDA from where torch was taken."""
    if not shelves:
        return pins
    from envcheck.resolver_backends import extra_indexes

    shelf = next(each for each in shelves if wanted.pins["torch"] in each.pins)
    release, _, tag = wanted.pins["torch"].partition("+")
    row = next(each for each in place.known.tables["torch"] if each["version"] == release)
    while stray := [each for each in pins if each.name in COMPILED_FOR_TORCH and not each.url]:
        built = [
            extra_indexes.companion(
                machine, shelf, each.name, f"{row.get(each.name, each.version)}+{tag}", wanted
            )
            for each in stray
        ]
        wanted = replace(wanted, given=(*wanted.given, *built))
        pins = asking.complete(machine, wanted, remarks)
    return pins


def _by_hand(chosen: Mapping[str, str], why: Sequence[str]) -> str:
    """How to install a torch for another CUDA that is in no lock, and why it is in none if that was tried."""
    release, _, tag = chosen["torch"].partition("+")
    rest = ", ".join(f"{name} {version}" for name, version in chosen.items() if name != "torch")
    beside = f", with {rest}" if rest else ""
    told = f"torch {release}+{tag}, a build for another CUDA that the default index does not hold{beside}:"
    lines = [told, f"uv pip install --torch-backend {tag} torch=={release}", *why]
    return "\n      ".join(lines)


def _wanted(
    place: LockTarget, choice: Mapping[str, str], build: tuple[str, ...], told: Sequence[Objection]
) -> backends.CompletionRequest:
    """What an engine is asked for: the choice, wishes the tables know nothing of, bounds on the rest."""
    from envcheck import resolver_backends as backends

    outside = [wish for wish in place.wishes if wish.package not in choice]
    return backends.CompletionRequest(
        pins=choice,
        also=(
            *lock.build_needs(build),
            *(wish.package for wish in outside if wish.wanted),
            *place.extras,
        ),
        python=place.python,
        platform=place.platform,
        glibc=place.glibc,
        build=build,
        constraints=(
            *(f"{wish.package}{wish.specifier}" for wish in outside if wish.specifier),
            *(bound for each in told for bound in each.bounds),
        ),
        local=tuple(label for wish in place.wishes if (label := versions.local_label(wish.specifier[2:]))),
        until=place.until,
    )


def problem_of(place: LockTarget) -> SearchProblem:
    """What the search is asked: the place, and every release in the tables."""
    from envcheck.resolution import resolver

    rows: list[Mapping[str, Any]] = [
        *({**row, "package": "torch"} for row in place.known.tables.get("torch", [])),
        *examine.source_tree()["tables"].get("release", []),
    ]
    releases = tuple(
        resolver.Release(
            package=row["package"],
            version=row["version"],
            requires=tuple(f"{name}{bound}" for name, bound in row.get("requires", {}).items()),
            pythons=tuple(row.get("python", ())),
            requires_python=row.get("requires_python", ""),
            date=str(row.get("date", "")),
            yanked=bool(row.get("yanked")),
            sdist=row.get("kinds") == ["sdist"],
        )
        for row in rows
    )
    return resolver.SearchProblem(
        # The cells say what was measured, and are all that puts it before what is new.
        known=place.known._replace(cells=()) if place.newest else place.known,
        target=place.target,
        machine=place.machine,
        python=place.python,
        releases=releases,
        wishes=place.wishes,
        until=place.until,
        until_by=place.until_by,
    )


def _locked(
    place: LockTarget, pins: Sequence[lock.Pin], build: tuple[str, ...], changed: Mapping[str, Value]
) -> lock.Lock:
    import datetime as dt

    facts = _pkg_facts({each.name: each.version for each in pins})
    settled = derive.derive(place.machine.with_facts(facts), place.known)
    needs = []
    notes = [
        f"{key} = {_word(value)} was chosen with these versions: train with it, or make another lock"
        for key, value in changed.items()
    ]
    asked = [f"{each.package}{each.specifier}" for each in place.wishes if each.wanted]
    notes += [f"asked for besides the target: {', '.join(sorted({*asked, *place.extras}))}"] if asked else []
    notes += [f"nothing uploaded after {place.until}"] if place.until else []
    notes += [
        f"{each.name} {each.version} comes from the address in its line, not from the default index"
        for each in pins
        if each.url
    ]
    floor, built = settled.known("cuda.minimum_driver"), settled.known("build.torch.architectures")
    if isinstance(floor, str) and not place.no_gpu:
        needed, more = (floor, []) if place.driver_known else _driver_window(place, floor)
        needs.append(("driver.version", ">=", needed))
        notes += more
    if isinstance(built, tuple) and built and not place.no_gpu:
        needs.append(("gpu.architectures", "=", ",".join(built)))
    return lock.Lock(
        target=place.target.name,
        python=place.python,
        platform=place.platform,
        pins=tuple(pins),
        glibc=place.glibc,
        needs=tuple(needs),
        train=tuple((key, _word(value)) for key, value in {**place.target.train, **changed}.items()),
        build=build,
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        maker=__version__,
        matrix=place.known.digest,
        notes=tuple(notes),
    )


def _word(value: Value) -> str:
    return str(value).lower()
