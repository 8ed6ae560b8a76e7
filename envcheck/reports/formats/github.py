"""Annotations for a GitHub workflow; the Markdown report is appended to the step's summary.

A line is `::error file=…,line=…,title=…::message`. Characters that would end a field or a line are escaped as
GitHub's own toolkit does it (actions/toolkit, packages/core/src/command.ts).
"""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.errors import Place
from envcheck.core.findings import Diagnostic, Finding, Report, Verbosity
from envcheck.core.sanitize import inline
from envcheck.reports.details import detail_line, details, diagnostic_details, heading, not_judged_line
from envcheck.reports.findings import place_of
from envcheck.reports.formats import markdown
from envcheck.reports.headline import headline

BESIDE = {"GITHUB_STEP_SUMMARY": markdown.render}

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice", "unknown": "warning"}
_SHOWN_KINDS = frozenset({"only", "because", "note", "fix", "command"})  # annotations have little room


def render(report: Report) -> str:
    """Return the answer, then one annotation for each finding."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield inline(headline(report).text)
    if report.verbosity is Verbosity.VERDICT:
        return
    for each in report.reported:
        yield _diagnostic(each, report) if isinstance(each, Diagnostic) else _finding(each, report)
    if report.nothing_to_judge:
        yield f"::warning title=envcheck::{_message(report.language.translate(report.nothing_to_judge))}"
    yield inline(not_judged_line(report))


def _diagnostic(diagnostic: Diagnostic, report: Report) -> str:
    lang, severity = report.language, diagnostic.severity.value
    lines = [
        f"{lang.word(severity)}: {lang.translate(diagnostic.text)}",
        *map(detail_line, diagnostic_details(diagnostic, lang)),
    ]
    place = diagnostic.places[0] if diagnostic.places else None
    return _command(severity, place, diagnostic.code, lines)


def _finding(finding: Finding, report: Report) -> str:
    mark, word, title = heading(finding, report.language)
    lines = [detail_line(each) for each in details(finding, report) if each.kind in _SHOWN_KINDS]
    return _command(mark, place_of(finding, report), finding.rule.id, [f"{word}: {title}", *lines])


def _command(mark: str, place: Place | None, name: str, lines: list[str]) -> str:
    fields: dict[str, str | int] = {}
    if place is not None:
        fields = {"file": place.file, "line": place.line, "col": place.column}
    fields["title"] = f"envcheck: {name}"
    named = ",".join(f"{key}={_field(str(value))}" for key, value in fields.items() if value)
    return f"::{_COMMANDS[mark]} {named}::{_message(chr(10).join(map(inline, lines)))}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _field(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
