"""What several formats need to know about a finding: whether it fails the run, and its place in a file."""

from __future__ import annotations

from envcheck.core.errors import Place
from envcheck.core.facts import Fact
from envcheck.core.findings import Diagnostic, Finding, Report, Verdict
from envcheck.rules import derive


def fails(finding: Finding | Diagnostic, report: Report) -> bool:
    """Return whether a finding, or a diagnostic of a configuration, makes the exit code 1."""
    if is_waived(finding, report):
        return False
    if isinstance(finding, Diagnostic):
        return finding.severity.rank >= report.fail_on.rank
    if finding.verdict is Verdict.UNDECIDED:
        return report.undecided_fails
    return finding.severity.rank >= report.fail_on.rank


def is_waived(finding: Finding | Diagnostic, report: Report) -> bool:
    """Return whether a finding or a diagnostic does not count because of a waiver."""
    name = f"remark:{finding.code}" if isinstance(finding, Diagnostic) else finding.rule.id
    return name in report.waived


def place_of(finding: Finding, report: Report) -> Place | None:
    """Return the place in the user's own files at which to show a finding, or None.

    It is the place where the first fix has to be made. Without one, it is the last fact of the evidence that
    was read from such a file. A derived fact is followed to the facts from which it was derived: a driver
    that is too old leads to the line that asks for torch.
    """
    if finding.place is not None:
        return finding.place
    facts = {evidence.fact.key: evidence.fact for evidence in finding.evidence}
    to_visit = [key for fix in finding.fixes for key, _ in fix.set] + list(reversed(facts))
    visited = set[str]()
    while to_visit:
        key = to_visit.pop(0)
        if key not in visited:
            visited.add(key)
            fact = facts.get(key) or report.inventory.fact(key)
            place = report.places.get(key) or _place_in_source(fact)
            if place is not None:
                return place
            to_visit += derive.FOLLOWS_FROM.get(key, ())
    return None


def _place_in_source(fact: Fact) -> Place | None:
    """Return the place that a fact's source names, or None.

    Such sources are `requirements.txt:2:1` and `ds.json:5: zero_optimization.stage`.
    """
    file, *numbers = fact.source.partition(": ")[0].rsplit(":", 2)
    if len(numbers) == 2 and not numbers[0].isdecimal():  # noqa: PLR2004 - a colon in the file name
        file, numbers = f"{file}:{numbers[0]}", numbers[1:]
    if not file or file.startswith("--") or not numbers or not all(map(str.isdecimal, numbers)):
        return None
    line, column = (*map(int, numbers), 0)[:2]
    return Place(file, line, column)
