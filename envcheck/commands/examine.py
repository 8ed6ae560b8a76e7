"""Examine an environment: read its facts, derive what follows from them, judge them, return a report.

`examine` is that flow. The other commands use its parts: `take_inventory` reads, `report_on` derives and
judges, and the functions at the end load the knowledge that both need.

`envcheck doctor` imports this module, so whatever only some commands need is imported inside functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcheck import __version__, probes
from envcheck.core import facts_file, i18n, training_facts, versions
from envcheck.core.errors import ExamineError, InputError, Place
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Key,
    Kind,
    Known,
    Value,
    Vocabulary,
    installed_versions,
    is_package_version_key,
    package_key,
)
from envcheck.core.findings import (
    UNREADABLE,
    Diagnostic,
    Finding,
    Judgement,
    Measured,
    Plan,
    Report,
    Verdict,
    worst_first,
)
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Atlas, Builds, Cell, Fix, Matrix, Rule, Severity, Target
from envcheck.core.suggestions import suggestion
from envcheck.host.environment import own_python
from envcheck.host.files import name_exists, read_file, same_file
from envcheck.host.machine import Host
from envcheck.host.package_files import shipped_text, source_texts
from envcheck.knowledge.compiled import thaw_matrix, thaw_vocabulary
from envcheck.knowledge.generated_rules import metadata_rules, requirement_rules, selftest_rules, target_rules
from envcheck.rules import derive, judge
from envcheck.rules.atlas import broken_rows, judged_versions, keys_of, newer_releases, without_repetitions
from envcheck.rules.changed_inventory import ChangedInventory
from envcheck.rules.changes import changed_keys
from envcheck.rules.clauses import format_value
from envcheck.rules.conditional import conditional_findings, failing_under_any_trainer
from envcheck.rules.fixes import requirement_fixes, with_passing_fixes
from envcheck.rules.requirements import RequirementCheck, check_requirements, installed_requirements
from envcheck.rules.rule_index import RuleIndex

if TYPE_CHECKING:
    from envcheck.policy.decision import Settings


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
        subject, inventory = ", ".join(files), read_facts_files(files, keys)
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


def _parse(text: str, file: str) -> Any:
    from envcheck.core import parsing

    return parsing.parse_toml(text, file)


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
    if plan is not None or _needs_plan(judgement.findings):
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


def _needs_plan(findings: Sequence[Finding]) -> bool:
    """Return whether `--fix` may advise another change than the first fix of a finding.

    It cannot if there is one error, with one fix that changes one thing.
    """
    errors = [each for each in findings if each.decided and each.rule.severity is Severity.ERROR]
    if any(fix.conflict for each in errors for fix in each.fixes):
        return True
    if len(errors) > 1:
        return any(each.rule.fixes or each.rule.group == "target" for each in errors)
    return any(
        len(each.fixes) > 1 or any(len(fix.set) > 1 for fix in each.fixes)
        if each.fixes
        else each.rule.fixes or each.rule.group == "target"
        for each in errors
    )


def judge_inventory(
    inventory: Inventory,
    matrix: Matrix,
    target: Target | None,
    requirements: RequirementCheck | None = None,
) -> Judgement:
    """Judge an inventory by the rules of `compat/` and those generated from target, metadata and atlas."""
    requirements = requirements or check_requirements(inventory)
    rules = [
        *matrix.rules,
        *_atlas_rules(inventory, matrix),
        *target_rules(target),
        *requirement_rules(requirements.unmet),
        *metadata_rules(requirements.unreadable),
        *selftest_rules(inventory.facts),
    ]
    judgement = without_repetitions(judge.judge(inventory, rules))
    judgement = _with_runs_beside_metadata(judgement, inventory, matrix)
    met = requirements.met
    return judgement._replace(passed=judgement.passed + met, applied=judgement.applied + met)


def with_requirements(read: Inventory) -> Inventory:
    """Return the inventory with published requirements if it is a list of versions, not an environment."""
    if any(key.endswith(".requires") for key in read.facts):
        return read
    from envcheck.commands.published_requirements import with_published_requirements

    return with_published_requirements(read)


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


def _with_runs_beside_metadata(judgement: Judgement, inventory: Inventory, matrix: Matrix) -> Judgement:
    """Add a note to each violated requirement whose two releases were nevertheless measured training."""
    findings = tuple(
        finding._replace(note=note)
        if finding.rule.group == "requires-dist" and (note := _run_beside(finding.rule.id, inventory, matrix))
        else finding
        for finding in judgement.findings
    )
    return judgement._replace(findings=findings)


def _run_beside(rule_id: str, inventory: Inventory, matrix: Matrix) -> str:
    _, *names = rule_id.split(":")
    installed = {name: inventory.known(package_key(name)) for name in names}
    if None in installed.values():
        return ""
    for cell in matrix.cells:
        if cell.outcome == "ok" and all(
            versions.base_release(str(version)) == versions.base_release(cell.pkg.get(name, ""))
            for name, version in installed.items()
        ):
            return f"these two trained together nevertheless: {cell.target}, {cell.device}, {cell.date}"
    return ""


def _atlas_rules(inventory: Inventory, matrix: Matrix, *, worded: bool = True) -> Sequence[Rule]:
    """Return a rule for each pair of incompatible packages here; with texts and fixes if `worded`."""
    installed = installed_versions(inventory)
    if len(installed) < 2:  # noqa: PLR2004 - no two packages, nothing to compare
        return ()
    atlas = matrix.atlas()
    if not any(broken_rows(atlas, judged_versions(atlas, installed))):
        return ()
    from envcheck.knowledge import atlas_rules  # most environments fit

    rules = atlas_rules.rules_here if worded else atlas_rules.unworded_rules_here
    by_conda = inventory.known("packages.from_conda")
    return tuple(rules(atlas, installed, by_conda if isinstance(by_conda, tuple) else ()))


def with_atlas_rules(matrix: Matrix, inventory: Inventory) -> Matrix:
    """Return the matrix with the atlas's rules on all releases of the installed packages."""
    from envcheck.knowledge import atlas_rules

    generated = atlas_rules.rules_of(matrix.atlas(), installed_versions(inventory))
    return matrix._replace(rules=(*matrix.rules, *generated))


def add_fixes(
    judgement: Judgement, read: Inventory, inventory: Inventory, matrix: Matrix, target: Target | None
) -> Judgement:
    """Try the fixes of each broken finding's rule, and give the finding those that work here."""
    # A fix is refused only if it breaks a rule at error level, so only those rules are judged again.
    all_rules = (*matrix.rules, *target_rules(target))
    errors = RuleIndex(rule for rule in all_rules if rule.severity is Severity.ERROR)
    error_ids = {rule.id for rule in errors.rules}

    asked = cache(lambda: tuple(installed_requirements(inventory)))
    trial = ChangedInventory(read, matrix)

    @cache
    def judged_by_errors(changes: tuple[tuple[str, Value], ...]) -> tuple[Inventory, Judgement]:
        changed = trial.after(changes)
        concerned = errors.concerned(changed_keys(inventory, changed))
        unconcerned = error_ids.difference(rule.id for rule in concerned)
        unchanged = tuple(finding for finding in judgement.findings if finding.rule.id in unconcerned)
        after = judge.judge(changed, [*concerned, *_atlas_rules(changed, matrix, worded=False)])
        after = after._replace(findings=(*unchanged, *after.findings))
        return changed, without_repetitions(after)  # as in the judgement that it is compared with

    def with_fixes(finding: Finding) -> Finding:
        def attempt(changes: Sequence[tuple[str, Value]]) -> Judgement:
            changed, after = judged_by_errors(tuple(changes))  # many findings try the same fix
            if finding.rule.severity is Severity.ERROR:
                return after
            own = judge.judge(changed, [finding.rule])
            return after._replace(findings=(*after.findings, *own.findings))

        found = with_passing_fixes(finding, judgement, inventory, attempt)
        if any(is_package_version_key(key) for fix in found.fixes for key, _ in fix.tried):
            from envcheck.commands.excluded_fixes import without_excluded  # most reports have no such fix

            found = without_excluded(found, judgement, inventory, matrix, attempt, asked())
        return found if len(found.fixes) <= 1 else _smallest_fix_first(found, inventory)

    findings = tuple(
        with_fixes(finding) if finding.verdict is Verdict.BROKEN and finding.rule.fixes else finding
        for finding in _with_stated_fixes(judgement, inventory, matrix)
    )
    return judgement._replace(findings=findings)


def _with_stated_fixes(judgement: Judgement, inventory: Inventory, matrix: Matrix) -> Iterator[Finding]:
    """Yield the findings; rules without fixes get those that a requirement or the atlas states.

    A package that others move with, such as torch, is not changed for a requirement alone, and one that is
    not installed has no release to change.
    """
    requirements = cache(lambda: tuple(installed_requirements(inventory)))

    def fixes_of(finding: Finding) -> tuple[Fix, ...]:
        required = finding.rule.id.rpartition(":")[2]
        if finding.rule.fixes or finding.rule.group != "requires-dist" or required in matrix.moves_with:
            return finding.rule.fixes
        known = inventory.known(package_key(required)) is not None
        return requirement_fixes(finding, inventory, requirements()) if known else ()

    for finding in judgement.findings:
        fixes: tuple[Fix, ...] = ()
        if finding.verdict is Verdict.BROKEN and not finding.rule.fixes:
            same = [each for each in judgement.repeated if keys_of(each) == keys_of(finding)]
            fixes = tuple(fix for each in (finding, *same) for fix in fixes_of(each))
        yield finding._replace(rule=finding.rule._replace(fixes=fixes)) if fixes else finding


def _smallest_fix_first(finding: Finding, inventory: Inventory) -> Finding:
    """Sort the fixes as `--fix` compares changes, so that both recommend the same one."""
    from envcheck.resolution.remediation.moves import move_size  # few findings have several fixes

    def size(fix: Fix) -> tuple[bool, int, int, bool]:
        moves = [move_size(key, inventory.known(key), value, fix.cost) for key, value in fix.tried]
        administrator = any(key.startswith("driver.") for key, _ in fix.tried)
        packages = sum(key.startswith("pkg.") for key, _ in fix.tried)
        count = packages + (packages < len(moves))  # the settings of one fix count as one
        return administrator, count, sum(move.size for move in moves), any(m.downwards for m in moves)

    fixes = sorted(finding.fixes, key=size)
    if finding.rule.group in ("atlas", "requires-dist"):
        # They state the nearest release on each side; if a package has a nearby one, nobody goes far back.
        nearest: dict[tuple[str, ...], Fix] = {}
        for fix in fixes:
            nearest.setdefault(tuple(key for key, _ in fix.set), fix)
        fixes = list(nearest.values())
    return finding._replace(fixes=tuple(fixes))


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
        return "no torch in this environment: nothing to judge there"
    if "pkg" not in inventory.complete | inventory.unread.keys() and not any(
        is_package_version_key(key) for key in inventory.facts
    ):
        return "the facts name no packages"
    return ""


def plan_change(
    read: Inventory, matrix: Matrix, target: Target | None, level: Severity, *, strict: bool = False
) -> Plan:
    """Search the smallest change after which nothing of this severity or worse is broken.

    With `strict`, the packages' requirements on one another have to be met as well.
    """
    from envcheck.resolution.remediation.plan import plan_remediation
    from envcheck.resolution.remediation.problem import RemediationProblem
    from envcheck.resolution.remediation.releases import Releases

    rows = _release_rows(read, matrix)
    python = read.known("python.version")
    releases = Releases(matrix, rows, None if python is None else str(python))
    known = with_atlas_rules(matrix, read)
    problem = RemediationProblem(read=read, known=known, target=target, level=level, strict=strict)
    return plan_remediation(problem, releases)


def _release_rows(read: Inventory, matrix: Matrix) -> list[Mapping[str, Any]]:
    """Return the releases in the tables, and the atlas's releases for other installed packages."""
    rows: list[Mapping[str, Any]] = [*(matrix.tables.get("release") or published_releases())]
    listed = {row["package"] for row in rows}.union(*matrix.moves_with.values(), matrix.moves_with)
    from envcheck.commands.atlas_tables import release_rows

    return [*rows, *release_rows(sorted(installed_versions(read).keys() - listed))]


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


def add_findings(judgement: Judgement, generated: Sequence[Finding]) -> Judgement:
    """Return the judgement with generated findings (lock drift, file hashes, missing GPUs) added."""
    broken = sum(finding.verdict is Verdict.BROKEN for finding in generated)
    return judgement._replace(
        findings=worst_first([*judgement.findings, *generated]), applied=judgement.applied + broken
    )


def locate_facts(judgement: Judgement, facts_file_name: str | None) -> dict[str, Place]:
    """Return where the facts file sets the facts in the findings' evidence, by the facts' keys."""
    if not facts_file_name or not judgement.findings:
        return {}
    from envcheck.core import toml_locations

    evidence = [item.fact for finding in judgement.findings for item in finding.evidence]
    keys = {fact.key for fact in evidence if fact.source == facts_file_name}
    text = read_file(Path(facts_file_name)).decode("utf-8", "replace")
    return {key: Place(facts_file_name, *toml_locations.locate_fact(text, key)) for key in sorted(keys)}


# --- knowledge --------------------------------------------------------------------------------------


def vocabulary(all_probes: Sequence[probes.Probe]) -> Vocabulary:
    """Return every key that a probe may yield, a reader may give, or deriving adds."""
    keys = {
        **training_facts.KEYS,
        "selftest.*": Key(Kind.WORD, "how a self-test ended", ("pass", "fail")),
        "host.name": Key(Kind.WORD, "name of the node; no probe reads it, `facts --name` and `fleet` add it"),
    }
    for probe in all_probes:
        keys.update(probe.yields)
    keys.update({key: meaning for key, meaning in derive.KEYS.items() if key not in keys})
    return Vocabulary(keys)


def known_vocabulary() -> Vocabulary:
    """Return the vocabulary of every probe, without importing the probes where the wheel has its keys."""
    shipped = shipped_text("vocabulary.json")
    return vocabulary(probes.every_probe()) if shipped is None else thaw_vocabulary(json.loads(shipped))


def probes_and_vocabulary(request: ExamineRequest) -> tuple[Sequence[probes.Probe], Vocabulary]:
    """Return every probe, or none if facts files are read instead, and the vocabulary of all of them."""
    if request.facts is not None:
        return (), known_vocabulary()
    all_probes = probes.every_probe()
    return all_probes, vocabulary(all_probes)


def knowledge(overlay_files: Sequence[str] = ()) -> Matrix:
    """Load the matrix with the vocabulary of every probe and these overlays."""
    return load_matrix(known_vocabulary(), overlay_files)


def load_matrix(keys: Vocabulary, overlay_files: Sequence[str] = (), *, errors_only: bool = False) -> Matrix:
    """Load the knowledge shipped with envcheck (JSON in a wheel, TOML in a checkout) and the user's overlays.

    `errors_only` may leave out rules below error level, which makes loading faster for `pin`.

    Raises:
        MatrixError: compat/ has mistakes; names all of them.
        InputError: an overlay is missing or wrong.
    """
    compiled = shipped_text("judging.json")
    overlays = overlay_texts(overlay_files)
    if compiled is not None and not overlays:
        return thaw_matrix(json.loads(compiled), errors_only=errors_only)._replace(
            atlas=load_atlas, builds=published_build
        )
    from envcheck.knowledge.overlay import build_with_overlays

    return build_with_overlays(source_tree(), overlays, keys)._replace(
        atlas=load_atlas, builds=published_build
    )


def published_build(package: str, version: str) -> Builds | None:
    """Return what the wheels of a release were built for; None if the atlas lacks the release."""
    from envcheck.commands import atlas_tables

    return atlas_tables.published_build(package, version)


@cache
def load_atlas() -> Atlas:
    """Load the atlas: JSON in a wheel, the files of compat/atlas/ in a checkout.

    Raises:
        MatrixError: a file of the checkout has a mistake.
    """
    index = shipped_text("atlas/index.json")
    if index is not None:
        from envcheck.knowledge.atlas import thaw_atlas

        return thaw_atlas(json.loads(index), _shipped_gaps)
    from envcheck.commands.atlas_tables import release_table
    from envcheck.knowledge.atlas import read_atlas

    table = release_table()
    releases = {package: table.versions(package, candidates=True) for package in table.packages()}
    return read_atlas(source_texts("compat/atlas", ".toml"), releases)


def _shipped_gaps(package: str) -> dict[str, Any]:
    gaps: dict[str, Any] = json.loads(shipped_text(f"atlas/{package}.json") or "{}")
    return gaps


def source_tree() -> dict[str, Any]:
    """Load all of compat/ as one tree, with release rows and cases, which judging does not need.

    Each call returns a new tree, which the caller may change.
    """
    shipped = shipped_text("source.json")
    if shipped is None:
        tree: dict[str, Any] = json.loads(_tree_of_checkout())
    else:
        tree = json.loads(shipped)
        tree["tables"]["release"] = json.loads(shipped_text("release.json") or "[]")
    return tree


def published_releases() -> list[dict[str, Any]]:
    """Load the rows of the table `release`, which the wheel has in a file of their own."""
    shipped = shipped_text("release.json")
    rows: list[dict[str, Any]] = (
        source_tree()["tables"].get("release", []) if shipped is None else json.loads(shipped)
    )
    return rows


@cache
def _tree_of_checkout() -> str:
    """Gather the files of a checkout as one tree in JSON, which takes a second."""
    from envcheck.knowledge.load import gather_tree

    return json.dumps(gather_tree(source_texts("compat", ".toml", excluded=("lang", "atlas"))))


def overlay_texts(overlay_files: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the overlays as (file, what named it, text): those of the settings, then of `--matrix`.

    Raises:
        InputError: the settings or one of the files cannot be read, or the settings list trusted keys and
            none of them signed the file.
    """
    settings = read_settings()
    named = [(file, settings.file) for file in settings.matrix] if settings is not None else []
    named += [(file, "--matrix") for file in overlay_files]
    contents = [(file, named_by, read_file(Path(file))) for file, named_by in named]
    if settings is not None and settings.trusted_keys:
        from envcheck.commands.overlay_signatures import check_signature

        for file, _, content in contents:
            check_signature(file, content, settings.trusted_keys, settings.file)
    return [(file, named_by, content.decode("utf-8", "replace")) for file, named_by, content in contents]


def read_settings() -> Settings | None:
    """Read the settings of this folder: envcheck.toml, else `[tool.envcheck]` in pyproject.toml.

    Raises:
        InputError: the file cannot be read, or is not TOML.
        SettingsError: it has mistakes; names all of them.
    """
    return _settings_in("envcheck.toml") or _settings_in("pyproject.toml", required_text="envcheck")


def with_settings(request: ExamineRequest, settings: Settings | None) -> ExamineRequest:
    """Return the request; if it names no target or training, take those of the settings."""
    if settings is None:
        return request
    return request._replace(
        target=request.target or settings.target or None, train=request.train or settings.train
    )


def _settings_in(file: str, required_text: str = "") -> Settings | None:
    """Read one file's settings, or return None; a file without `required_text` is not parsed.

    Few pyproject.toml files mention envcheck, and loading a parser takes some milliseconds.
    """
    if not name_exists(Path(file)):  # a folder or a broken link of this name is an error, not skipped
        return None
    text = read_file(Path(file)).decode("utf-8", "replace")
    if required_text not in text:
        return None
    from envcheck.policy import settings

    return settings.read_settings(file, text)


def find_target(name: str | None, matrix: Matrix) -> Target | None:
    """Return the target of this name; None if no name is given.

    Raises:
        InputError: there is no such target; names similar ones.
    """
    if name is None:
        return None
    if name not in matrix.targets:
        raise InputError(f"target {name}", f"no such target{suggestion(name, list(matrix.targets))}")
    return matrix.targets[name]


def choose_language(option: str | None, host: Host) -> i18n.Language:
    """Return the language of `--lang`, else of ENVCHECK_LANG, else of the locale; English reads no file.

    Raises:
        InputError: `--lang` or ENVCHECK_LANG names a language that is not available.
    """
    name, named_by = i18n.choose_language(option, host.environ)
    if name == i18n.ENGLISH.name:
        return i18n.ENGLISH
    files = source_texts("compat/lang", "", f"{name}.") if name.isalpha() else {}
    for file, text in files.items():
        return i18n.parse_language(name, json.loads(text) if file.endswith(".json") else _parse(text, file))
    if not named_by:
        return i18n.ENGLISH
    available = {file.partition(".")[0] for file in source_texts("compat/lang", "")}
    raise InputError(named_by, f"no such language{suggestion(name, sorted(available | {i18n.ENGLISH.name}))}")
