"""Judge an environment as a gate: for every machine it must run on, against its lock, by a policy.

What was judged is written into the image as a manifest; `gate --runtime` compares each start with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envcheck import __version__
from envcheck.commands import declared_machine, examine, judging, loading, user_settings
from envcheck.commands.examine import ExamineRequest
from envcheck.core.decoding import decode_text
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, family, package_name
from envcheck.core.findings import Evidence, Finding, Report
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.core.sanitize import inline
from envcheck.core.suggestions import suggestion
from envcheck.host.environment import build_date, environment_variable, today
from envcheck.host.files import read_file, replace_file, write_file
from envcheck.host.machine import Host
from envcheck.policy import decision as policy_decision
from envcheck.policy import image_manifest
from envcheck.policy.decision import Decision, DeclaredMachine, Policy, Settings
from envcheck.policy.generated_findings import generated_finding
from envcheck.policy.merged_report import merge_reports
from envcheck.rules import derive, judge
from envcheck.rules.requirements import check_requirements

INTERPRETERS = ("/usr/local/bin/python3", "/usr/bin/python3", "/opt/conda/bin/python3")
"""Where to look for the Python of an unpacked root if `--python` names none."""

NO_MANIFEST = "none"
"""The value of `--manifest` and ENVCHECK_MANIFEST that means: write no manifest."""


class GateOptions(NamedTuple):
    """Options of the gate alone; for None and empty values, the settings decide.

    Attributes:
        machines: names of declared machines to judge for.
        lock: the file that the environment was installed from, to report drift from it.
        verify_s: seconds that comparing files with their RECORD may take; None means no comparison.
        manifest: where to write the manifest, or `none`.
        root: the folder of an unpacked image to judge.
        fail_on: the lowest severity that shuts the gate.
        undecided: `pass` ignores undecided rules, `warn` lists them, `fail` shuts the gate.
        strict: take warnings and undecided rules as failures, unless the two options above are given.
        only, skip: rules, or prefixes of rule ids, to judge by or to leave out.
    """

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
    """Result of a gate: the report, the decision, and the manifest's data as `tree`."""

    report: Report
    decision: Decision
    tree: dict[str, Any]


def judge_image(
    request: ExamineRequest, options: GateOptions, host: Host, language: Language = ENGLISH
) -> GateOutcome:
    """Judge an environment for its machines under the policy.

    Raises:
        EnvcheckError: as `examine.examine`; also if the settings, a lock or a machine is wrong.
    """
    settings = user_settings.read_settings() or Settings()
    request = user_settings.with_settings(request, settings)
    if options.root:
        host = _unpacked_image(options.root)
        request = request._replace(python=request.python or _python_of_image(host, options.root))
    all_probes, keys = examine.probes_and_vocabulary(request)
    matrix = loading.load_matrix(keys, request.overlays)
    target = loading.find_target(request.target, matrix)
    policy = combine_policy(options, settings, matrix)
    machines = declared_machines(options.machines, request, settings, matrix)
    subject, read, diagnostics = examine.take_inventory(request, host, all_probes, matrix, keys)

    lock = options.lock or settings.lock
    generated = _lock_drift(lock, read, matrix) if lock else []
    if options.verify_s is not None:
        generated += _changed_files(request, host, options.verify_s)
    report = report_for_machines(machines, subject, read, matrix, target)
    if request.expect_gpus and machines:
        raise InputError("--expect-gpus", "counts the GPUs of this machine, and machines are declared")
    report = examine.expect_gpus(report, request)
    report = report._replace(
        judgement=judging.add_findings(report.judgement, generated),
        language=language.without(matrix.overlaid()),
    )
    report = policy_decision.apply_policy(report, diagnostics, policy)
    decision = policy_decision.decide(report, policy)
    return GateOutcome(report, decision, _manifest_tree(report, read, machines, decision, policy))


# --- the policy -------------------------------------------------------------------------------------


def combine_policy(options: GateOptions, settings: Settings, matrix: Matrix) -> Policy:
    """Return the policy of the settings, overridden by the options that are given.

    Raises:
        InputError: `--only`, `--skip` or the settings name a rule that does not exist.
    """
    _refuse_unknown_rules(options, settings, [rule.id for rule in matrix.rules])
    fail_on = Severity.WARNING if options.strict else settings.threshold or Severity.ERROR
    undecided = "fail" if options.strict else settings.undecided or "warn"
    return Policy(
        fail_on=options.fail_on or fail_on,
        undecided=options.undecided or undecided,
        severity=settings.severity,
        waivers=settings.waivers,
        only=options.only,
        skip=(*options.skip, *settings.skip),
        today=today(),
    )


def _refuse_unknown_rules(options: GateOptions, settings: Settings, rule_ids: list[str]) -> None:
    named: tuple[tuple[str, Sequence[str]], ...] = (
        ("--only", options.only),
        ("--skip", options.skip),
        (f"{settings.file}: skip", settings.skip),
        (f"{settings.file}: severity", tuple(settings.severity)),
    )
    for named_by, rules in named:
        for rule in policy_decision.unknown_rules(rules, rule_ids):
            raise InputError(named_by, f"no such rule {rule!r}{suggestion(rule, rule_ids)}")


# --- machines ---------------------------------------------------------------------------------------


def declared_machines(
    names: Sequence[str], request: ExamineRequest, settings: Settings, matrix: Matrix
) -> tuple[DeclaredMachine, ...]:
    """Return the machines to judge for: those named, else those that the settings require.

    If the request declares a driver or GPUs, or names a facts file, the settings' machines are ignored.

    Raises:
        InputError: no machine of that name is declared; names the nearest.
        SettingsError: an overlay's declaration of it is wrong.
    """
    if names and (request.driver or request.gpus):
        raise InputError("--machine", "declares the driver and the GPUs; remove --driver and --gpu")
    if not names and not (request.driver or request.gpus or request.facts):
        names = settings.machines
    declared: dict[str, DeclaredMachine | Mapping[str, Any]] = {**matrix.machines, **settings.machine}
    machines = []
    for name in dict.fromkeys(names):
        if name not in declared:
            raise InputError(f"machine {name}", f"no such machine{suggestion(name, list(declared))}")
        row = declared[name]
        machines.append(row if isinstance(row, DeclaredMachine) else _machine(name, row, matrix))
    return tuple(machines)


def _machine(name: str, row: Mapping[str, Any], matrix: Matrix) -> DeclaredMachine:
    if matrix.origins:  # the row may come from an overlay, which nothing has validated yet
        from envcheck.policy import settings

        return settings.parse_machine(name, row, "[machine]")
    return DeclaredMachine(name, row["driver"], (row["gpu"],))


def report_for_machines(
    machines: Sequence[DeclaredMachine], subject: str, read: Inventory, matrix: Matrix, target: Target | None
) -> Report:
    """Return one report on an environment for all machines, or for the probed one if none is declared."""
    if not machines:
        return examine.report_on(subject, read, matrix, target)
    parts = []
    read = judging.with_requirements(read)
    requirements = check_requirements(read)  # the result is the same on every machine
    for declared in machines:
        moved = on_machine(read, declared, matrix)
        report = examine.report_on(subject, moved, matrix, target, requirements=requirements)
        judgement = judging.add_findings(report.judgement, _platform_mismatch(read, moved, declared))
        parts.append((declared.name, report._replace(judgement=judgement)))
    names = ", ".join(name for name, _ in parts)
    noun = "machine" if len(parts) == 1 else "machines"
    return merge_reports(parts, "machine")._replace(subject=f"{subject}, for the {noun} {names}")


def on_machine(read: Inventory, declared: DeclaredMachine, matrix: Matrix) -> Inventory:
    """Return the environment's facts on a declared machine, without any fact of the probed one.

    Raises:
        InputError: the driver or a GPU of the machine is wrong.
    """
    moved = read._replace(
        facts={key: fact for key, fact in read.facts.items() if not _describes_builder(key)},
        devices=(),
        complete=read.complete - {"driver", "gpu", "gpus"},
        unread={key: why for key, why in read.unread.items() if not _describes_builder(key)},
    )
    try:
        moved = declared_machine.declare_machine(
            moved, matrix, driver=declared.driver or None, gpus=declared.gpus
        )
    except InputError as error:
        raise InputError(f"machine {declared.name}", error.problem) from None
    source = f"machine {declared.name}"
    facts = [
        fact._replace(source=source)
        for fact in moved.facts.values()
        if fact.source.startswith("declared by --")
    ]
    devices = tuple(
        {key: fact._replace(source=source) for key, fact in device.items()} for device in moved.devices
    )
    return moved.with_facts(facts)._replace(devices=devices)


_FACTS_OF_IMAGE = frozenset(
    {"host.os", "host.arch", "host.glibc", "cuda.compat", "cuda.compat_on_path", "cuda.toolkit", "host.tegra"}
)
"""Facts about hardware and host that belong to the image: they hold wherever it runs."""


def _describes_builder(key: str) -> bool:
    """Return whether a fact describes the machine that builds the image, not the one that will run it."""
    return family(key) in judge.HARDWARE | {"host"} and key not in _FACTS_OF_IMAGE


def _platform_mismatch(read: Inventory, moved: Inventory, declared: DeclaredMachine) -> list[Finding]:
    """Return an error if the machine, or the only processor that its GPUs come with, is not the image's."""
    arch, of_gpus = read.fact("host.arch"), moved.fact("host.arch")
    required = declared.platform.partition("-")[2]
    if not isinstance(arch.reading, Known) or arch.value in (None, required or of_gpus.value):
        return []
    platform = Fact("machine.platform", Known(declared.platform), f"machine {declared.name}")
    evidence = [Evidence(arch), Evidence(platform if required else of_gpus)]
    title = f"the environment is one for {arch.value}, the machine has another processor"
    return [generated_finding("machine:platform", Severity.ERROR, title, evidence, group="machine")]


# --- an unpacked root -------------------------------------------------------------------------------


def _unpacked_image(root: str) -> Host:
    folder = Path(root)
    if not folder.is_dir():
        raise InputError("--root", f"{root}: expected the folder of an unpacked image")
    if folder.resolve() == Path("/"):
        raise InputError("--root", "/ is this machine; remove --root")
    return Host(folder.resolve(), {})


def _python_of_image(host: Host, root: str) -> str:
    found = next((path for path in INTERPRETERS if host.exists(path)), None)
    if found is None:
        raise InputError("--root", f"{root}: no {', no '.join(INTERPRETERS)} in it; name one with --python")
    return found


# --- the lock and the installed files ---------------------------------------------------------------


def _lock_drift(file: str, read: Inventory, matrix: Matrix) -> list[Finding]:
    """Compare what is installed with a lock.

    Raises:
        InputError: the file is not a lock, or was changed after envcheck wrote it.
    """
    from envcheck import dependency_files
    from envcheck.core import versions  # most gates have no lock
    from envcheck.policy import lock_drift

    text = read_file(Path(file)).decode("utf-8", "replace")
    python = ".".join(str(read.known("python.version") or "").split(".")[:2])
    arch = str(read.known("host.arch") or "x86_64")
    context = dependency_files.ReadingContext(read_beside, matrix.tables, python, arch)
    lists = dependency_files.read(text, file, context)
    if "# envcheck: digest=" in text:  # the lock states its own digest, so check that it is unchanged
        from envcheck.lock.parse import parse_requirements

        labels = [label for line in lists[0].lines if (label := versions.local_label(line.version))]
        parse_requirements(text, file, labels)
    if len(lists) != 1 or not lists[0].lines:
        raise InputError(file, "expected a lock: name==version lines, or a pylock.toml")
    return list(lock_drift.findings(lists[0], read, matrix))


def read_beside(name: str, named_by: str) -> tuple[str, str]:
    """Return the full name and the text of a file, relative to the file that names it.

    Raises:
        InputError: it does not exist, or cannot be read.
    """
    path = Path(named_by).parent / name if named_by else Path(name)
    return str(path), decode_text(read_file(path))


def _changed_files(request: ExamineRequest, host: Host, seconds: float) -> list[Finding]:
    from envcheck.commands import record_check

    if request.facts is not None:
        raise InputError("--verify-files", "a facts file has no installed files to compare; remove --facts")
    return record_check.verify(host, examine.environment_to_read(request, host), seconds)


# --- the manifest -----------------------------------------------------------------------------------


def _manifest_tree(
    report: Report, read: Inventory, machines: Sequence[DeclaredMachine], decision: Decision, policy: Policy
) -> dict[str, Any]:
    """Return what was judged, in the format that `envcheck.policy.image_manifest` describes."""
    # The builder's driver and GPUs are removed, so that the manifest holds only what the image needs.
    image = derive.derive(on_machine(read, DeclaredMachine(""), report.matrix), report.matrix)
    system, arch = image.known("host.os"), image.known("host.arch")
    needs, unknown = _needs_of_image(image)
    return {
        "schema_version": image_manifest.SCHEMA_VERSION,
        "envcheck": __version__,
        "date": build_date(),
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
        "train": _training_facts(report.inventory),
        "python": image.known("python.version"),
        "platform": f"{system}-{arch}" if system and arch else None,
        "packages": _packages(read),
        "cuda": needs["cuda"],
        "minimum_driver": needs["minimum_driver"],
        "cuda_compat": image.known("cuda.compat"),
        "architectures": needs["architectures"],
        "unknown": unknown,
        "machines": [
            {"name": declared.name, "driver": declared.driver, "gpus": list(declared.gpus)}
            for declared in machines
        ],
    }


_NEEDS = {
    "cuda": "cuda.runtime",
    "minimum_driver": "cuda.minimum_driver",
    "architectures": "build.torch.architectures",
}
"""The image's needs that each start is compared with, by name in the manifest, and their facts."""


def _needs_of_image(image: Inventory) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the image's needs, and for each unknown need why it is unknown."""
    needs: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, key in _NEEDS.items():
        fact = image.fact(key)
        if isinstance(fact.reading, Unknown):
            unknown[name] = fact.reading.why
        needs[name] = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    if isinstance(image.fact("cuda.runtime").reading, Absent):
        needs["cuda"] = image_manifest.NO_CUDA
    return needs, unknown


def _training_facts(inventory: Inventory) -> dict[str, Any]:
    train = {
        fact.key.removeprefix("train."): fact.value
        for fact in inventory.facts.values()
        if fact.key.startswith("train.") and isinstance(fact.value, str | int)
    }
    return dict(sorted(train.items()))


def _packages(read: Inventory) -> dict[str, str]:
    installed = (
        (package_name(key), str(fact.value))
        for key, fact in read.facts.items()
        if key.startswith("pkg.") and key.count(".") == 1 and isinstance(fact.reading, Known)
    )
    return dict(sorted(installed))


def write_manifest(
    outcome: GateOutcome,
    request: ExamineRequest,
    options: GateOptions,
    host: Host,
    print_note: Callable[[str], None],
) -> None:
    """Write the manifest where `--manifest` or ENVCHECK_MANIFEST names a place, else into the image.

    Unless a place is named, nothing is written outside a container.

    Raises:
        InputError: it cannot be written to the place that the user named.
        ExamineError: the disk is full.
    """
    from envcheck.probes.driver import in_container

    text = json.dumps(outcome.tree, indent=2) + "\n"
    if named := options.manifest or environment_variable(image_manifest.VARIABLE):
        if named != NO_MANIFEST:
            replace_file(Path(named), text)
            print_note(f"manifest written to {inline(named)}")
        return
    if request.facts is not None or options.root or not in_container(host):
        return
    try:
        write_file(Path(image_manifest.PATH), text)
        print_note(f"manifest written into the container: {image_manifest.PATH} (--no-manifest writes none)")
    except InputError as error:
        print_note(f"no manifest: {error} (--manifest names another place, or none)")


def dockerfile_lines(manifest: dict[str, Any]) -> list[str]:
    """Return lines for the Dockerfile: labels for registries, and what NVIDIA's container toolkit reads."""
    labels = [f"LABEL {key}={json.dumps(value)}" for key, value in image_manifest.labels(manifest).items()]
    require = image_manifest.require_cuda(manifest)
    return [*labels, *([f'ENV NVIDIA_REQUIRE_CUDA="{require}"'] if require else [])]
