"""The gate: an environment judged for every machine it must run on, against its lock and a policy.

What it judged is written into the image as a manifest, against which `gate --runtime` holds each start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from envcheck import __version__, probes
from envcheck.commands import examine
from envcheck.commands.examine import ExamineRequest
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, family, package_name
from envcheck.core.findings import Evidence, Finding, Report
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.core.sanitize import inline
from envcheck.host import machine as host
from envcheck.host.machine import Host
from envcheck.knowledge.rule_pages import nearest
from envcheck.policy import decision as policy_decision
from envcheck.policy import image_manifest
from envcheck.policy.decision import Decision, Machine, Policy, Settings
from envcheck.rules import derive, judge

INTERPRETERS = ("/usr/local/bin/python3", "/usr/bin/python3", "/opt/conda/bin/python3")
"""Where an unpacked root's own Python is looked for if nobody named one."""

NO_MANIFEST = "none"


class GateOptions(NamedTuple):
    """What the command line says of the gate; None and empty are left to the settings."""

    machines: tuple[str, ...] = ()
    lock: str = ""
    verify_s: float | None = None
    manifest: str = ""
    root: str = ""
    fail_on: Severity | None = None
    undecided: str = ""
    strict: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


class GateOutcome(NamedTuple):
    """What the gate came to, and what it tells besides the report."""

    report: Report
    decision: Decision
    tree: dict[str, Any]


def judge_image(
    question: ExamineRequest, wanted: GateOptions, machine: Host, spoken: Language = ENGLISH
) -> GateOutcome:
    """Judge an environment for its machines under the policy.

    Raises:
        EnvcheckError: as `app.examine`; the settings, a lock or a machine is wrong.
    """
    said = examine.read_settings() or Settings()
    question = _settled(question, said)
    if wanted.root:
        machine = _unpacked(wanted.root)
        question = question._replace(python=question.python or _python_of(machine, wanted.root))
    found = probes.every_probe()
    words = examine.vocabulary(found)
    known = examine.load_matrix(words, question.overlays)
    target = examine.find_target(question.target, known)
    policy = combine_policy(wanted, said, known)
    declared = declared_machines(wanted.machines, question, said, known)
    subject, read, remarks = examine.take_inventory(question, machine, found, known, words)
    lock = wanted.lock or said.lock
    more = _drift(lock, read, known) if lock else []
    if wanted.verify_s is not None:
        more += _verified(question, machine, wanted.verify_s)
    report = report_for_machines(declared, subject, read, known, target)
    if question.expect_gpus and declared:
        raise InputError("--expect-gpus", "counts the GPUs of this machine, and machines are declared")
    report = examine.expect_gpus(report, question)
    report = report._replace(judgement=examine.add_findings(report.judgement, more))
    report = policy_decision.held(report._replace(language=spoken.without(known.overlaid())), remarks, policy)
    decision = policy_decision.decide(report, policy)
    tree = manifest_tree(report, read, declared, decision, policy)
    return GateOutcome(report, decision, tree)


def _settled(question: ExamineRequest, said: Settings) -> ExamineRequest:
    """The question with what the settings say where the command line says nothing."""
    return question._replace(
        target=question.target or said.target or None, train=question.train or said.train
    )


# --- the policy -------------------------------------------------------------------------------------


def combine_policy(wanted: GateOptions, said: Settings, known: Matrix) -> Policy:
    """The policy of the command line and the settings; an option that is given wins.

    Raises:
        InputError: `--only`, `--skip` or the settings name a rule that is not there.
    """
    ids = [rule.id for rule in known.rules]
    named = [("--only", wanted.only), ("--skip", wanted.skip), (f"{said.file}: skip", said.skip)]
    for where, words in [*named, (f"{said.file}: severity", tuple(said.severity))]:
        for word in policy_decision.unknown_rules(words, ids):
            raise InputError(where, f"no such rule {word!r}{nearest(word, ids)}")
    fail_on = Severity.WARNING if wanted.strict else said.threshold or Severity.ERROR
    undecided = "fail" if wanted.strict else said.undecided or "warn"
    return Policy(
        fail_on=wanted.fail_on or fail_on,
        undecided=wanted.undecided or undecided,
        severity=said.severity,
        waivers=said.waivers,
        only=wanted.only,
        skip=(*wanted.skip, *said.skip),
        today=host.today(),
    )


# --- machines ---------------------------------------------------------------------------------------


def declared_machines(
    names: Sequence[str], question: ExamineRequest, said: Settings, known: Matrix
) -> tuple[Machine, ...]:
    """The machines to judge for: those named, else those the settings require, unless one is declared.

    Raises:
        InputError: no machine of that name is declared; names the nearest.
        SettingsError: an overlay declares it in a way that cannot be read.
    """
    if names and (question.driver or question.gpus):
        raise InputError("--machine", "declares the driver and the GPUs; leave out --driver and --gpu")
    if not names and not (question.driver or question.gpus or question.facts):
        names = said.machines
    everyone: dict[str, Machine | Mapping[str, Any]] = {**known.machines, **said.machine}
    found = []
    for name in dict.fromkeys(names):
        if name not in everyone:
            where = f"machine {name}"
            raise InputError(where, f"no such machine{nearest(name, list(everyone))}")
        raw = everyone[name]
        found.append(raw if isinstance(raw, Machine) else _machine(name, raw, known))
    return tuple(found)


def _machine(name: str, raw: Mapping[str, Any], known: Matrix) -> Machine:
    if known.origins:  # an overlay may have declared it
        from envcheck.policy import settings

        return settings.machine(name, raw, "[machine]")
    return Machine(name, raw["driver"], (raw["gpu"],))


def report_for_machines(
    declared: Sequence[Machine], subject: str, read: Inventory, known: Matrix, target: Target | None
) -> Report:
    """One report on an environment for every machine, or for the one it was read on."""
    if not declared:
        return examine.report_on(subject, read, known, target)
    parts = []
    for each in declared:
        there = on_machine(read, each, known)
        report = examine.report_on(subject, there, known, target)
        mismatch = _other_platform(read, each)
        parts.append((each.name, report._replace(judgement=examine.add_findings(report.judgement, mismatch))))
    names = ", ".join(name for name, _ in parts)
    noun = "machine" if len(parts) == 1 else "machines"
    return policy_decision.together(parts, "machine")._replace(subject=f"{subject}, for the {noun} {names}")


def on_machine(read: Inventory, declared: Machine, known: Matrix) -> Inventory:
    """The facts of an environment on another machine: nothing of the one that builds it stays."""
    kept = {key: fact for key, fact in read.facts.items() if not _of_the_builder(key)}
    there = replace(
        read,
        facts=kept,
        devices=(),
        complete=read.complete - {"driver", "gpu", "gpus"},
        unread={key: why for key, why in read.unread.items() if not _of_the_builder(key)},
    )
    asked = ExamineRequest(driver=declared.driver or None, gpus=declared.gpus)
    try:
        there = examine.declare_machine(there, asked, known)
    except InputError as error:
        raise InputError(f"machine {declared.name}", error.problem) from None
    source = f"machine {declared.name}"
    facts = [
        fact._replace(source=source)
        for fact in there.facts.values()
        if fact.source.startswith("declared by --")
    ]
    devices = tuple(
        {key: fact._replace(source=source) for key, fact in device.items()} for device in there.devices
    )
    return replace(there.with_facts(facts), devices=devices)


_OF_THE_IMAGE = frozenset(
    {"host.os", "host.arch", "host.glibc", "cuda.compat", "cuda.compat_on_path", "cuda.toolkit", "host.tegra"}
)


def _of_the_builder(key: str) -> bool:
    """Whether a fact is of the machine an image is built on, which is not the one it will run on."""
    return family(key) in judge.HARDWARE | {"host"} and key not in _OF_THE_IMAGE


def _other_platform(read: Inventory, declared: Machine) -> list[Finding]:
    arch, wanted = read.fact("host.arch"), declared.platform.partition("-")[2]
    if not wanted or not isinstance(arch.reading, Known) or arch.value == wanted:
        return []
    because = [
        Evidence(arch),
        Evidence(Fact("machine.platform", Known(declared.platform), f"machine {declared.name}")),
    ]
    title = f"the environment is one for {arch.value}, the machine has another processor"
    return [policy_decision.written("machine:platform", Severity.ERROR, title, because, group="machine")]


# --- an unpacked root -------------------------------------------------------------------------------


def _unpacked(root: str) -> Host:
    folder = Path(root)
    if not folder.is_dir():
        raise InputError("--root", f"{root}: expected the folder of an unpacked image")
    if folder.resolve() == Path("/"):
        raise InputError("--root", "/ is this machine; leave --root out")
    return Host(folder.resolve(), {})


def _python_of(machine: Host, root: str) -> str:
    found = next((path for path in INTERPRETERS if machine.exists(path)), None)
    if found is None:
        raise InputError("--root", f"{root}: no {', no '.join(INTERPRETERS)} in it; name one with --python")
    return found


# --- the lock ---------------------------------------------------------------------------------------


def _drift(file: str, read: Inventory, known: Matrix) -> list[Finding]:
    from envcheck import dependency_files
    from envcheck.core import versions  # most gates have no lock
    from envcheck.policy import lock_drift

    text = host.read_file(Path(file)).decode("utf-8", "replace")
    python = ".".join(str(read.known("python.version") or "").split(".")[:2])
    arch = str(read.known("host.arch") or "x86_64")
    sheets = dependency_files.read(
        text, file, dependency_files.ReadingContext(read_beside, known.tables, python, arch)
    )
    if "# envcheck: digest=" in text:  # it says of itself what it was when it was written
        from envcheck.lock import model as lock

        labels = [label for line in sheets[0].lines if (label := versions.local_label(line.version))]
        lock.parse_requirements(text, file, labels)
    if len(sheets) != 1 or not sheets[0].lines:
        raise InputError(file, "expected a lock: name==version lines, or a pylock.toml")
    return list(lock_drift.findings(sheets[0], read, known))


def read_beside(name: str, named_by: str) -> tuple[str, str]:
    """A file's full name and its text, by its name and the file that names it.

    Raises:
        InputError: it is not there, or cannot be read.
    """
    path = Path(named_by).parent / name if named_by else Path(name)
    return str(path), host.read_file(path).decode("utf-8", "replace")


def _verified(question: ExamineRequest, machine: Host, seconds: float) -> list[Finding]:
    from envcheck.commands import record_check

    if question.facts is not None:
        raise InputError("--verify-files", "a facts file has no files; leave out --facts")
    path, named_by = examine.which_environment(question.python, machine)
    request = probes.ProbeRequest(path, named_by, question.static, question.deadline_s)
    return record_check.verify(machine, request, seconds)


# --- the manifest -----------------------------------------------------------------------------------


def manifest_tree(
    report: Report, read: Inventory, declared: Sequence[Machine], decision: Decision, policy: Policy
) -> dict[str, Any]:
    """What was judged, as `envcheck.policy.image_manifest` describes it."""
    plain = derive.derive(on_machine(read, Machine(""), report.matrix), report.matrix)
    unknown: dict[str, str] = {}

    def value(key: str) -> Any:
        fact = plain.fact(key)
        if isinstance(fact.reading, Unknown):
            unknown[_NAMES[key]] = fact.reading.why
        return list(fact.value) if isinstance(fact.value, tuple) else fact.value

    cuda = plain.fact("cuda.runtime").reading
    train = {
        fact.key.removeprefix("train."): fact.value
        for fact in report.inventory.facts.values()
        if fact.key.startswith("train.") and isinstance(fact.value, str | int)
    }
    system, arch = (plain.known(key) for key in ("host.os", "host.arch"))
    return {
        "schema_version": image_manifest.SCHEMA_VERSION,
        "envcheck": __version__,
        "date": host.built_on(),
        "matrix": {
            "updated": report.matrix.updated,
            "digest": report.matrix.digest,
            "overlays": [origin.name for origin in report.matrix.origins],
        },
        "gate": {
            "verdict": "open" if decision.code == 0 else "shut",
            "reasons": list(decision.reasons),
            "waived": list(decision.waived),
        },
        "undecided": policy.undecided,
        "target": report.target.name if report.target else None,
        "train": dict(sorted(train.items())),
        "python": plain.known("python.version"),
        "platform": f"{system}-{arch}" if system and arch else None,
        "packages": _packages(read),
        "cuda": image_manifest.NO_CUDA if isinstance(cuda, Absent) else value("cuda.runtime"),
        "minimum_driver": value("cuda.minimum_driver"),
        "cuda_compat": plain.known("cuda.compat"),
        "architectures": value("build.torch.architectures"),
        "unknown": unknown,
        "machines": [
            {"name": each.name, "driver": each.driver, "gpus": list(each.gpus)} for each in declared
        ],
    }


_NAMES = {
    "cuda.runtime": "cuda",
    "cuda.minimum_driver": "minimum_driver",
    "build.torch.architectures": "architectures",
}


def _packages(read: Inventory) -> dict[str, str]:
    found = (
        (package_name(key), str(fact.value))
        for key, fact in read.facts.items()
        if key.startswith("pkg.") and key.count(".") == 1 and isinstance(fact.reading, Known)
    )
    return dict(sorted(found))


def write_manifest(
    passed: GateOutcome,
    question: ExamineRequest,
    wanted: GateOptions,
    machine: Host,
    remark: Callable[[str], None],
) -> None:
    """Write the manifest: where `--manifest` or ENVCHECK_MANIFEST says, else into the image that is built.

    Raises:
        InputError: it cannot be written where the user named a place.
        ExamineError: the disk is full.
    """
    from envcheck.probes.driver import in_container

    text = json.dumps(passed.tree, indent=2) + "\n"
    if named := wanted.manifest or host.variable(image_manifest.VARIABLE):
        if named != NO_MANIFEST:
            host.replace_file(Path(named), text)
            remark(f"manifest written to {inline(named)}")
        return
    if question.facts is not None or wanted.root or not in_container(machine):
        return  # nothing is written on a machine that is no image, unless asked
    try:
        host.write_file(Path(image_manifest.PATH), text)
        remark(f"manifest written to {image_manifest.PATH}")
    except InputError as error:
        remark(f"no manifest: {error} (--manifest names another place, or none)")


def dockerfile_lines(tree: dict[str, Any]) -> list[str]:
    """What to put into the Dockerfile: labels for registries, and what NVIDIA's container toolkit reads."""
    found = [f"LABEL {key}={json.dumps(value)}" for key, value in image_manifest.labels(tree).items()]
    require = image_manifest.require_cuda(tree)
    return [*found, *([f'ENV NVIDIA_REQUIRE_CUDA="{require}"'] if require else [])]
