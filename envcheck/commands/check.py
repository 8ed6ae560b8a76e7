"""Judge dependency files before anything is installed, and name the line that causes each finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck import dependency_files
from envcheck.commands import (
    check_inputs,
    edits,
    examine,
    gate,
    judging,
    loading,
    ranges,
    tried_fixes,
    user_settings,
)
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.planned_fixes import with_planned_fixes
from envcheck.commands.published_requirements import (
    CUDA_LIBRARIES,
    is_implied,
    with_published_requirements,
)
from envcheck.core.decoding import UTF_16_MARKS
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Known, Unknown
from envcheck.core.findings import Evidence, Finding, Plan, Report, Verdict, worst_first
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.core.sanitize import inline
from envcheck.dependency_files import DependencyList, ListedPackage
from envcheck.host.files import read_file
from envcheck.policy import decision
from envcheck.policy.decision import Decision, DeclaredMachine, Settings
from envcheck.policy.generated_findings import generated_finding
from envcheck.policy.merged_report import merge_reports
from envcheck.reports.findings import place_of

_USUAL_PYTHON = "3.11"
"""The Python whose requirements are read of a list that names none."""


class Checked(NamedTuple):
    """Result of a check.

    `report` covers all files. `lines` holds one line for every finding. `remarks` has one line for each
    dependency that was not judged; `summary` has one line for all of them that share a file and a reason.
    `patches` are the edits of the files that fix their errors.
    """

    report: Report
    decision: Decision
    lines: tuple[str, ...]
    remarks: tuple[str, ...]
    patches: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()


class _Context(NamedTuple):
    """Input that is the same for every file; `python` is a version such as `3.11`, or empty."""

    request: ExamineRequest
    machines: tuple[DeclaredMachine, ...]
    matrix: Matrix
    target: Target | None
    python: str


def check(
    files: Sequence[str],
    request: ExamineRequest,
    options: gate.GateOptions,
    language: Language = ENGLISH,
    python: str = "",
) -> Checked:
    """Judge every file by itself, and every stage of a Dockerfile.

    `python` is the version that the files will be installed for, such as `3.11`.

    Raises:
        InputError: a file's name does not show its kind, or the file has a mistake; names the place.
        EnvcheckError: as `gate.judge_image`.
    """
    settings = user_settings.read_settings() or Settings()
    request = user_settings.with_settings(request, settings)
    if python and not _is_python_version(python):
        raise InputError("--python-version", f"expected a version such as 3.11, found {python!r}")
    matrix = loading.load_matrix(loading.known_vocabulary(), request.overlays)
    target = loading.find_target(request.target, matrix)
    policy = gate.combine_policy(options, settings, matrix)
    machines = gate.declared_machines(options.machines, request, settings, matrix)
    context = _Context(request, machines, matrix, target, python)

    lists = _read_files(files, context)
    judged = [_judge_list(dependencies, context) for dependencies in lists]
    parts = [(one.name, report) for one, (report, _) in zip(lists, judged, strict=True)]
    diagnostics = tuple(dict.fromkeys(found for _, part in parts for found in part.diagnostics))
    report = merge_reports(parts, "file")._replace(
        subject=", ".join(dependencies.name for dependencies in lists),
        language=language.without(matrix.overlaid()),
    )
    report = decision.apply_policy(report, diagnostics, policy)
    lines = tuple(_line(finding, report) for finding in report.judgement.findings)
    not_judged = [line for dependencies in lists for line in _not_judged(dependencies, python)]
    decided = decision.decide(report, policy)
    failing = zip(lists, judged, strict=True) if decided.code else ()
    found = [patch for one, (part, plan) in failing for patch in _patches(one, part, plan)]
    remarks = tuple(
        dict.fromkeys(f"{line.place}: {line.name} is not judged: {line.why}" for line in not_judged)
    )
    summary = tuple(_summary(not_judged))
    return Checked(report, decided, lines, remarks, tuple(dict.fromkeys(found)), summary)


def _plan(report: Report, read: Inventory, context: _Context) -> Plan | None:
    """Return the change that fixes a list's errors; None if there is none, or for several machines."""
    errors = [
        one
        for one in report.judgement.findings
        if one.decided and one.severity is Severity.ERROR and (one.fixes or one.rule.group == "requires-dist")
    ]
    if not errors or len(context.machines) > 1:
        return None
    strict = any(one.rule.group == "requires-dist" for one in errors)
    if strict and any(_on_cuda_library(one) for one in report.judgement.findings):
        return None  # the tables do not say which of them another torch requires
    read = judging.with_requirements(read)
    for machine in context.machines:
        read = gate.on_machine(read, machine, context.matrix)
    return tried_fixes.plan_change(read, context.matrix, context.target, Severity.ERROR, strict=strict)


def _patches(dependencies: DependencyList, report: Report, plan: Plan | None) -> Iterator[str]:
    """Yield the edits of a list's files that a plan requires, and those that end conflicts of ranges."""
    changes = {move.key: move.after for move in plan.moves if move.after is not None} if plan else {}
    for finding in report.judgement.findings:
        if finding.rule.group == "listing" and finding.fixes and not changes.keys() & _keys(finding):
            changes |= dict(finding.fixes[0].tried)
    found = edits.edits_of(dependencies, changes)
    contents = {edit.file: read_file(Path(edit.file)) for edit in found}
    texts = {
        file: data.decode("utf-8", "replace")
        for file, data in contents.items()
        if not data.startswith(UTF_16_MARKS)  # `patch` cannot edit it
    }
    yield from edits.patches(found, texts)


def _keys(finding: Finding) -> set[str]:
    """Return the packages that the fixes of a finding change."""
    return {key for fix in finding.fixes for key, _ in fix.tried}


def _is_python_version(text: str) -> bool:
    major, _, minor = text.partition(".")
    return major == "3" and minor.isascii() and minor.isdecimal()


def _read_files(files: Sequence[str], context: _Context) -> list[DependencyList]:
    reading = dependency_files.ReadingContext(gate.read_beside, context.matrix.tables, context.python)
    return [
        found
        for where, text, file_name in check_inputs.read_inputs(files)
        for found in dependency_files.read(text, where, reading, file_name)
    ]


def _judge_list(dependencies: DependencyList, context: _Context) -> tuple[Report, Plan | None]:
    """Return the report on a list, and the change that fixes its errors.

    Findings show the fix from that change, so that the report and the file's patch agree.
    """
    read = dependency_files.inventory(dependencies)
    if context.python and read.known("python.version") is None:
        read = read.with_facts([Fact("python.version", Known(context.python), "--python-version")])
    elif dependencies.pythons and _USUAL_PYTHON not in dependencies.pythons:
        read = with_published_requirements(read, dependencies.pythons[0])
    read, diagnostics = examine.complete_inventory(read, context.request, context.matrix)
    found = ranges.read_ranges(dependencies, str(read.known("python.version") or ""))
    read = ranges.with_choice(read, found) if found else read

    def judged(inventory: Inventory) -> Report:
        return gate.report_for_machines(
            context.machines, dependencies.name, inventory, context.matrix, context.target
        )

    report = _with_refused_as_errors(judged(read), dependencies)
    plan = _plan(report, read, context)
    if plan is not None:
        report = report._replace(judgement=with_planned_fixes(report.judgement, plan))
    generated = _not_read(dependencies)
    if found is not None:
        report = ranges.explain_ranges(report, found, read, judged)
        generated += ranges.conflict_findings(found, dependencies, read, judged)
    report = report._replace(judgement=judging.add_findings(report.judgement, generated))
    report = _with_overruled_as_notes(report, dependencies.overridden)
    # A file without torch is judged too: it may install two packages that cannot work together.
    return _with_places(report._replace(nothing_to_judge="", diagnostics=diagnostics)), plan


def _with_refused_as_errors(report: Report, dependencies: DependencyList) -> Report:
    """Return the report with errors where an installer refuses the pins, or brings the package that fails.

    In an environment both are warnings: two pins that exclude each other may work, and the release that a pin
    requires may have been replaced. The libraries of CUDA are left out: which of them a torch requires
    depends on the index that it comes from.
    """
    if not dependencies.fresh or dependencies.whole:
        return report
    pinned = {line.name for line in dependencies.lines if line.version and "+" not in line.version}

    def refused(finding: Finding) -> bool:
        names = finding.rule.id.split(":")[1:]
        return (
            finding.rule.group == "requires-dist"
            and finding.decided
            and pinned.issuperset(names)
            and not _on_cuda_library(finding)
        )

    def raised(finding: Finding) -> Finding:
        if refused(finding):
            note = "pip and uv refuse to install these two together"
            return finding._replace(severity=Severity.ERROR, note=note)
        implied = finding.decided and is_implied(finding)
        return finding._replace(severity=Severity.ERROR) if implied else finding

    findings, repeated = (
        tuple(map(raised, found)) for found in (report.judgement.findings, report.judgement.repeated)
    )
    judgement = report.judgement._replace(findings=worst_first(findings), repeated=repeated)
    return report._replace(judgement=judgement)


def _on_cuda_library(finding: Finding) -> bool:
    """Return whether a finding is about the version of a library of CUDA that a package requires."""
    required = finding.rule.id.rpartition(":")[2]
    return finding.rule.group == "requires-dist" and required.startswith(CUDA_LIBRARIES)


def _with_overruled_as_notes(report: Report, overridden: frozenset[str]) -> Report:
    """Return the report with findings lowered to notes where the file overrides the requirement."""
    if not overridden:
        return report
    findings = tuple(
        one._replace(severity=Severity.NOTE, note="the file itself overrides this requirement")
        if one.rule.group == "requires-dist" and one.rule.id.rpartition(":")[2] in overridden
        else one
        for one in report.judgement.findings
    )
    return report._replace(judgement=report.judgement._replace(findings=findings))


def _with_places(report: Report) -> Report:
    """Store in each finding its place, which cannot be derived any more once reports are merged."""
    findings = tuple(one._replace(place=place_of(one, report)) for one in report.judgement.findings)
    return report._replace(judgement=report.judgement._replace(findings=findings))


def _line(finding: Finding, report: Report) -> str:
    """Format a finding as compilers do, so that editors and CI find the line."""
    severity = "undecided" if finding.verdict is Verdict.UNDECIDED else finding.severity.value
    place = place_of(finding, report) or report.subject
    return inline(f"{place}: {severity}: {finding.rule.title} [{finding.rule.id}]")


def _not_read(dependencies: DependencyList) -> list[Finding]:
    """Return an undecided finding for lines that refer to something unread; it may add any package."""
    if not dependencies.remarks:
        return []
    parts = (remark.partition(": ") for remark in dependencies.remarks)
    evidence = [Evidence(Fact("listing", Unknown(why), place)) for place, _, why in parts]
    lines = "line refers" if len(evidence) == 1 else "lines refer"
    title = f"{len(evidence)} {lines} to something that is not read"
    return [
        generated_finding(
            "listing:not-read",
            Severity.WARNING,
            title,
            evidence,
            group="listing",
            verdict=Verdict.UNDECIDED,
        )
    ]


def _not_judged(dependencies: DependencyList, python: str) -> Iterator[ListedPackage]:
    """Yield the packages of a list that were not judged, because their version is not known."""
    found = ranges.read_ranges(dependencies, python)
    judged = {*found.choice.chosen, *(one.package for one in found.choice.conflicts)} if found else set()
    for line in dependencies.lines:
        if not line.version and line.name not in judged:
            yield line


def _summary(packages: Sequence[ListedPackage]) -> Iterator[str]:
    """Yield one line for the packages of a file that are not judged for the same reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in packages:
        names = groups.setdefault((one.place.partition(":")[0], one.why), [])
        names += [one.name] if one.name not in names else []
    for (file, why), names in groups.items():
        yield f"{file}: not judged, because {why}: {', '.join(names)}"
