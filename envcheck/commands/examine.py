"""Examine an environment: read its facts, derive what follows from them, judge them, return a report.

`examine` is that flow. The other commands use its parts: `take_inventory` reads, `report_on` derives and
judges. The knowledge comes from `loading`, the judgement from `judging`, the fixes from `tried_fixes`.

`envcheck doctor` imports this module, so whatever only some commands need is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envcheck import __version__, probes
from envcheck.commands.judging import add_findings, judge_inventory, with_requirements
from envcheck.commands.loading import find_target, known_vocabulary, load_matrix, vocabulary
from envcheck.commands.tried_fixes import add_fixes, needs_plan, plan_change
from envcheck.core import facts_file, versions
from envcheck.core.errors import ExamineError, InputError, Place
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Known,
    Vocabulary,
    installed_versions,
    is_package_version_key,
    package_key,
)
from envcheck.core.findings import UNREADABLE, Diagnostic, Finding, Judgement, Measured, Report
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Cell, Matrix, Severity, Target
from envcheck.host.environment import own_python
from envcheck.host.files import argument_name, is_file, read_file, same_file
from envcheck.host.machine import Host
from envcheck.rules import derive
from envcheck.rules.atlas import newer_releases
from envcheck.rules.clauses import format_value
from envcheck.rules.conditional import conditional_findings, failing_under_any_trainer
from envcheck.rules.requirements import RequirementCheck


class ExamineRequest(NamedTuple):
    """What to examine: an environment or a facts file, for a target, a training and perhaps another machine.

    Attributes:
        python: the environment, as `--python` names it; None takes the active one.
        static: read package metadata only; do not start the environment's interpreter.
        facts, more_facts: facts files, or outputs of known tools, to read instead of probing.
        train: configuration files, and arguments given in place of a file.
        driver, gpus, platform, glibc: the declared machine; each replaces what was probed.
        deadline_s: seconds that one probe may take.
        overlays: the files of `--matrix`.
        expect_gpus: how many GPUs of this machine must be usable; 0 expects none.
    """

    python: str | None = None
    static: bool = False
    facts: str | None = None
    target: str | None = None
    train: tuple[str, ...] = ()
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    deadline_s: float = 10.0
    overlays: tuple[str, ...] = ()
    platform: str | None = None
    glibc: str | None = None
    expect_gpus: int = 0
    more_facts: tuple[str, ...] = ()


# --- the flow ---------------------------------------------------------------------------------------


def examine(request: ExamineRequest, host: Host, fix_from: Severity | None = None) -> Report:
    """Read the facts, derive, judge, and return the report that `doctor` shows.

    With `fix_from`, the report also holds the smallest change after which no rule of that severity or
    worse is broken.

    Raises:
        EnvcheckError: as `take_inventory` and `load_matrix`; ExamineError if there is no rule to judge by.
    """
    all_probes, keys = probes_and_vocabulary(request)
    matrix = load_matrix(keys, request.overlays)
    target = find_target(request.target, matrix)
    subject, inventory, diagnostics = take_inventory(request, host, all_probes, matrix, keys)
    report = report_on(subject, inventory, matrix, target, fix_from)
    report = expect_gpus(report, request)
    return report._replace(diagnostics=diagnostics, places=locate_facts(report.judgement, request.facts))


def examine_two(request: ExamineRequest, sides: tuple[str, str], host: Host) -> tuple[Report, Report]:
    """Examine two facts files; `-` stands for the environment and the machine that the request names.

    Raises:
        EnvcheckError: as `examine`.
    """
    one, other = (request if side == "-" else request._replace(facts=side) for side in sides)
    return examine(one, host), examine(other, host)


def inventory_report(request: ExamineRequest, host: Host) -> dict[str, Any]:
    """Return the inventory as a facts file: what `envcheck facts` prints and `--facts` reads back.

    Raises:
        InputError: as `take_inventory`; also if a part of a configuration could not be read, because
            the facts file would look complete.
    """
    return inventory_and_diagnostics(request, host)[0]


def inventory_and_diagnostics(
    request: ExamineRequest, host: Host
) -> tuple[dict[str, Any], tuple[Diagnostic, ...]]:
    """Return the inventory as a facts file, and the diagnostics on training configurations.

    Raises:
        InputError: as `inventory_report`.
    """
    all_probes, keys = probes_and_vocabulary(request)
    matrix = load_matrix(keys, request.overlays)
    _, inventory, diagnostics = take_inventory(request, host, all_probes, matrix, keys)
    refuse_unreadable(diagnostics)
    return {"envcheck": __version__, **facts_file.dump(inventory)}, diagnostics


def refuse_unreadable(diagnostics: Sequence[Diagnostic]) -> None:
    """Raise InputError if a configuration could not be read."""
    for diagnostic in diagnostics:
        if diagnostic.code == UNREADABLE:
            raise InputError(diagnostic.places[0], diagnostic.text)


# --- read -------------------------------------------------------------------------------------------


def take_inventory(
    request: ExamineRequest, host: Host, all_probes: Sequence[probes.Probe], matrix: Matrix, keys: Vocabulary
) -> tuple[str, Inventory, tuple[Diagnostic, ...]]:
    """Return the name of what is examined, every fact read or given, and diagnostics on configurations.

    Raises:
        InputError: a file or an argument is wrong.
        ExamineError: the environment cannot be examined at all.
    """
    if request.facts is not None:
        from envcheck.commands.facts_files import read_facts_files

        files = (request.facts, *request.more_facts)
        subject, inventory = ", ".join(map(argument_name, files)), read_facts_files(files, keys)
    else:
        environment = environment_to_read(request, host)
        inventory = probes.survey(host, environment, all_probes)
        subject = f"{environment.python} ({environment.named_by})"
    return (subject, *complete_inventory(inventory, request, matrix))


FOUND = "in this folder, read and not run"
"""The origin of an environment that was found, not named by the user.

Anybody may have written its start-up files, so its interpreter is not started.
"""


def environment_to_read(request: ExamineRequest, host: Host) -> probes.ProbeRequest:
    """Return the environment to examine; if it was found, not named, nothing of it is run."""
    path, named_by = which_environment(request.python, host)
    return probes.ProbeRequest(path, named_by, request.static or named_by == FOUND, request.deadline_s)


def environment_to_run(python: str | None, host: Host) -> tuple[Path, str]:
    """Return the environment whose interpreter is to be started, and what named it.

    Raises:
        InputError: it was found, not named, and is not the one that runs envcheck.
    """
    path, named_by = which_environment(python, host)
    if named_by == FOUND and not same_file(path / "bin", Path(own_python()).parent):
        raise InputError(str(path), f"not run, because you did not name it; use --python {path}")
    return path, named_by


def which_environment(python: str | None, host: Host) -> tuple[Path, str]:
    """Return the environment to examine and what named it.

    `--python` comes first, then VIRTUAL_ENV, CONDA_PREFIX, ./.venv and envcheck's own environment. If both
    variables are set, the environment that PATH lists first wins, because a shell starts its `python`.
    """
    if python is not None:
        return Path(python), "named by --python"
    if variable := _active_environment(host):
        return Path(host.environ[variable]), f"named by {variable}"
    if Path(".venv/pyvenv.cfg").is_file():
        return Path(".venv"), FOUND
    return Path(own_python()), "envcheck's own; name another with --python"


def _active_environment(host: Host) -> str:
    """Return the variable that names the active environment; empty if none does."""
    active = [variable for variable in ("VIRTUAL_ENV", "CONDA_PREFIX") if host.environ.get(variable)]
    if len(active) <= 1:
        return active[0] if active else ""
    variables = {f"{host.environ[variable]}/bin": variable for variable in reversed(active)}
    on_path = (variables[folder] for folder in host.environ.get("PATH", "").split(":") if folder in variables)
    return next(on_path, active[0])


def read_facts(file: str, keys: Vocabulary) -> Inventory:
    """Read the inventory in a facts file, or in the output of a known tool.

    Raises:
        InputError: the file cannot be read or has a mistake; with its place.
    """
    from envcheck.commands.facts_files import read_facts_file  # most starts read no facts file

    return read_facts_file(file, keys)


def complete_inventory(
    inventory: Inventory, request: ExamineRequest, matrix: Matrix
) -> tuple[Inventory, tuple[Diagnostic, ...]]:
    """Add the declared machine and the facts about training; also return diagnostics on configurations.

    Raises:
        InputError: an argument or a configuration is wrong.
    """
    inventory = _with_declared_machine(inventory, request, matrix)
    implied = _facts_of_target(find_target(request.target, matrix))
    configured, diagnostics = _read_configurations(request.train, matrix, installed_versions(inventory))
    # A target only fills gaps: the training facts of a facts file are the user's own configuration.
    gaps = [fact for fact in implied if fact.key not in inventory.facts]
    return inventory.with_facts([*gaps, *configured]), diagnostics


def _with_declared_machine(inventory: Inventory, request: ExamineRequest, matrix: Matrix) -> Inventory:
    if not request.gpus and request.driver is request.platform is request.glibc is None:
        return inventory
    from envcheck.commands.declared_machine import declare_machine  # most starts declare nothing

    return declare_machine(
        inventory,
        matrix,
        platform=request.platform,
        glibc=request.glibc,
        driver=request.driver,
        gpus=request.gpus,
    )


def _facts_of_target(target: Target | None) -> list[Fact]:
    if target is None:
        return []
    return [Fact(key, Known(value), f"target {target.name}") for key, value in target.train.items()]


def _read_configurations(
    named: Sequence[str], matrix: Matrix, installed: Mapping[str, str]
) -> tuple[tuple[Fact, ...], tuple[Diagnostic, ...]]:
    if not named:
        return (), ()
    from envcheck.commands import training_files  # most starts name no configuration

    read = training_files.configured(named, matrix.tables.get("argument", []), installed)
    return read.facts, read.remarks


# --- derive, judge, report --------------------------------------------------------------------------


def report_on(
    subject: str,
    read: Inventory,
    matrix: Matrix,
    target: Target | None,
    fix_from: Severity | None = None,
    requirements: RequirementCheck | None = None,
) -> Report:
    """Derive what follows from an inventory, judge the result, and return the report.

    `read` is the inventory before anything is derived. `requirements` is the result of
    `check_requirements`, if the caller has it.

    Raises:
        ExamineError: there is no rule to judge by.
    """
    read = with_requirements(read)
    inventory = derive.derive(read, matrix)
    if not matrix.rules:
        raise ExamineError("cannot judge this environment: compat/ has no rules")
    judgement = judge_inventory(inventory, matrix, target, requirements)
    sure, conditional = failing_under_any_trainer(
        conditional_findings(judgement, inventory, matrix.tables.habits)
    )
    judgement = add_findings(judgement._replace(conditional=conditional), sure)
    judgement = add_findings(judgement, _implied_findings(read, judgement, matrix, target))
    judgement = add_fixes(judgement, read, inventory, matrix, target)
    judgement = add_findings(judgement, _missing_releases(read))
    plan = None if fix_from is None else plan_change(read, matrix, target, fix_from)
    if plan is not None or needs_plan(judgement.findings):
        from envcheck.commands.planned_fixes import with_planned_fixes  # few reports need a plan

        judgement = with_planned_fixes(judgement, plan or plan_change(read, matrix, target, Severity.ERROR))
    return Report(
        version=__version__,
        subject=subject,
        inventory=inventory,
        judgement=judgement,
        matrix=matrix,
        target=target,
        measured=nearest_cell(inventory, matrix, target),
        nothing_to_judge=_nothing_to_judge(inventory),
        plan=plan,
        newer=_newer_releases(inventory, matrix),
    )


def _newer_releases(inventory: Inventory, matrix: Matrix) -> Mapping[str, str]:
    """Return the installed releases that were published after the atlas was read, by package."""
    installed = installed_versions(inventory)
    if len(installed) < 2:  # noqa: PLR2004 - judging did not load the atlas
        return {}
    return newer_releases(matrix.atlas(), installed)


def _implied_findings(
    read: Inventory, judgement: Judgement, matrix: Matrix, target: Target | None
) -> Sequence[Finding]:
    """Return the findings that follow if a list of versions is installed with what its releases pin."""
    if "pkg" in read.complete or not installed_versions(read):
        return ()
    from envcheck.commands import published_requirements

    implied = published_requirements.implied_releases(read)
    if not implied:
        return ()
    installed = published_requirements.with_implied_releases(read, implied)
    after = judge_inventory(derive.derive(with_requirements(installed), matrix), matrix, target)
    return published_requirements.implied_findings(judgement, after, implied)


def _missing_releases(read: Inventory) -> Sequence[Finding]:
    """Return findings on requirements of a list that no release can meet; none for an environment."""
    if "pkg" in read.complete or len(installed_versions(read)) < 2:  # noqa: PLR2004 - no two packages
        return ()
    from envcheck.commands.published_requirements import missing_releases

    return missing_releases(read)


def nearest_cell(inventory: Inventory, matrix: Matrix, target: Target | None) -> Measured | None:
    """Return the combination measured as good for the target that differs least from this inventory."""
    if target is None:
        return None
    good = [cell for cell in matrix.cells if cell.target == target.name and cell.outcome == "ok"]
    measured = [Measured(cell, tuple(_differences(cell, target, inventory))) for cell in good]

    def nearness(candidate: Measured) -> tuple[int, str, Any]:
        # Among equally near cells the later date wins, then the newer torch.
        torch = candidate.cell.pkg.get("torch", "")
        return -len(candidate.differences), candidate.cell.date, versions.order(torch)

    return max(measured, key=nearness, default=None)


def _differences(cell: Cell, target: Target, inventory: Inventory) -> Iterator[tuple[str, str, str]]:
    """Yield each difference as (name, value here, value in the cell).

    Packages are compared by base release; of the training facts, only known ones are compared.
    """
    for name, measured in cell.pkg.items():
        installed = inventory.known(package_key(name))
        if installed is None or versions.base_release(str(installed)) != versions.base_release(measured):
            yield name, str(installed) if installed is not None else "not installed", measured
    for key, value in {**target.train, **cell.train}.items():
        given = inventory.known(key)
        if given is not None and given != value:
            yield key.removeprefix("train."), format_value(given), format_value(value)


def _nothing_to_judge(inventory: Inventory) -> str:
    torch = inventory.fact("pkg.torch")
    if isinstance(torch.reading, Absent):
        return "no torch in this environment"
    if "pkg" not in inventory.complete | inventory.unread.keys() and not any(
        is_package_version_key(key) for key in inventory.facts
    ):
        return "the facts name no packages"
    return ""


def expect_gpus(report: Report, request: ExamineRequest) -> Report:
    """Add a finding if fewer GPUs are usable here than `--expect-gpus` names.

    Raises:
        InputError: a driver or GPUs are declared, so the report is not about the GPUs of this machine.
    """
    if not request.expect_gpus:
        return report
    if request.gpus or request.driver:
        raise InputError("--expect-gpus", "counts the GPUs of this machine; remove --driver and --gpu")
    from envcheck.policy.generated_findings import missing_gpus

    finding = missing_gpus(report.inventory, request.expect_gpus)
    if finding is None:
        return report
    return report._replace(judgement=add_findings(report.judgement, [finding]))


def locate_facts(judgement: Judgement, facts_file_name: str | None) -> dict[str, Place]:
    """Return where the facts file sets the facts in the findings' evidence, by the facts' keys."""
    if not facts_file_name or not judgement.findings or not is_file(Path(facts_file_name)):
        return {}  # a pipe cannot be read again
    from envcheck.core import toml_locations

    evidence = [item.fact for finding in judgement.findings for item in finding.evidence]
    keys = {fact.key for fact in evidence if fact.source == facts_file_name}
    text = read_file(Path(facts_file_name)).decode("utf-8", "replace")
    return {key: Place(facts_file_name, *toml_locations.locate_fact(text, key)) for key in sorted(keys)}


def probes_and_vocabulary(request: ExamineRequest) -> tuple[Sequence[probes.Probe], Vocabulary]:
    """Return every probe, or none if facts files are read instead, and the vocabulary of all of them."""
    if request.facts is not None:
        return (), known_vocabulary()
    all_probes = probes.every_probe()
    return all_probes, vocabulary(all_probes)
