"""What files say shall be installed, judged before anything is: the line that brings the trouble is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck import dependency_files, probes
from envcheck.commands import examine, gate
from envcheck.commands.examine import ExamineRequest
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Known, Unknown
from envcheck.core.findings import Evidence, Finding, Report, Verdict
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.core.sanitize import inline
from envcheck.host import machine as host
from envcheck.policy import decision
from envcheck.policy.decision import Decision, Machine, Settings
from envcheck.reports.findings import place_of


class Checked(NamedTuple):
    """One report on all files, the decision, a line for every finding, and what was not judged."""

    report: Report
    decision: Decision
    lines: tuple[str, ...]
    remarks: tuple[str, ...]


def check(
    files: Sequence[str],
    question: ExamineRequest,
    wanted: gate.GateOptions,
    spoken: Language = ENGLISH,
    python: str = "",
) -> Checked:
    """Judge every file by itself, and every stage of a Dockerfile.

    `python` is the Python it will be installed for, as `3.11`.

    Raises:
        InputError: no kind of file has that name, or it has a mistake; with file, line and column.
        EnvcheckError: as `gating.pass_`.
    """
    said = examine.settings_here() or Settings()
    question = question._replace(
        target=question.target or said.target or None, train=question.train or said.train
    )
    if python and not _is_python(python):
        raise InputError("--python-version", f"expected a version such as 3.11, found {python!r}")
    known = examine.load_matrix(examine.vocabulary(probes.every_probe()), question.overlays)
    target = examine.find_target(question.target, known)
    policy = gate.policy_of(wanted, said, known)
    declared = gate.machines(wanted.machines, question, said, known)
    asked = dependency_files.ReadingContext(gate.text_beside, known.tables, python)
    sheets = [sheet for file in dict.fromkeys(files) for sheet in _read(file, asked)]
    parts = [(sheet.name, _judged(sheet, python, question, declared, known, target)) for sheet in sheets]
    said_of_training = tuple(dict.fromkeys(remark for _, part in parts for remark in part.diagnostics))
    report = decision.together(parts, "file")._replace(
        subject=", ".join(sheet.name for sheet in sheets), language=spoken.without(known.overlaid())
    )
    report = decision.held(report, said_of_training, policy)
    lines = tuple(_line(finding, report) for finding in report.judgement.findings)
    remarks = tuple(dict.fromkeys(remark for sheet in sheets for remark in _remarks(sheet)))
    return Checked(report, decision.decide(report, policy), lines, remarks)


def _is_python(text: str) -> bool:
    major, _, minor = text.partition(".")
    return major == "3" and minor.isascii() and minor.isdecimal()


def _read(file: str, asked: dependency_files.ReadingContext) -> tuple[dependency_files.DependencyList, ...]:
    return dependency_files.read(host.read_file(Path(file)).decode("utf-8", "replace"), file, asked)


def _judged(
    sheet: dependency_files.DependencyList,
    python: str,
    question: ExamineRequest,
    declared: Sequence[Machine],
    known: Matrix,
    target: Target | None,
) -> Report:
    read = dependency_files.inventory(sheet)
    if python and read.known("python.version") is None:
        read = read.with_facts([Fact("python.version", Known(python), "--python-version")])
    read, remarks = examine.completed(read, question, known)
    report = gate.judged_for(declared, sheet.name, read, known, target)
    report = report._replace(judgement=examine.with_findings(report.judgement, _not_read(sheet)))
    # A file without torch may still bring two packages together that cannot be.
    return report._replace(nothing_to_judge="", diagnostics=remarks)


def _line(finding: Finding, report: Report) -> str:
    """A finding as compilers print one, so that editors and CI find the line."""
    word = "undecided" if finding.verdict is Verdict.UNDECIDED else finding.severity.value
    where = place_of(finding, report) or report.subject
    return inline(f"{where}: {word}: {finding.rule.title} [{finding.rule.id}]")


def _not_read(sheet: dependency_files.DependencyList) -> list[Finding]:
    """What a file leads to that is not looked at, and might bring anything."""
    if not sheet.remarks:
        return []
    said = (remark.partition(": ") for remark in sheet.remarks)
    because = [Evidence(Fact("listing", Unknown(why), place)) for place, _, why in said]
    lines = "line leads" if len(because) == 1 else "lines lead"
    title = f"{len(because)} {lines} to what is not read"
    undecided = Verdict.UNDECIDED
    return [
        decision.written(
            "listing:not-read", Severity.WARNING, title, because, group="listing", verdict=undecided
        )
    ]


def _remarks(sheet: dependency_files.DependencyList) -> Iterator[str]:
    open_lines = [line for line in sheet.lines if not line.version]
    for line in open_lines:
        yield f"{line.place}: {line.name} is not judged: {line.why}"
