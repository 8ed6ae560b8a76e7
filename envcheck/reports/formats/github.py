"""Annotations for a GitHub workflow; the step's summary gets the Markdown beside.

A line is `::error file=…,line=…,title=…::message`, and what would end a field or a line is written out
as GitHub's own toolkit does (actions/toolkit, packages/core/src/command.ts).
"""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.errors import Place
from envcheck.core.findings import Diagnostic, Finding, Report
from envcheck.core.sanitize import inline
from envcheck.reports.formats import markdown
from envcheck.reports.formats.text import count_text, details, heading, line, remark_details
from envcheck.reports.render import place_of

BESIDE = {"GITHUB_STEP_SUMMARY": markdown.render}

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice", "unknown": "warning"}
_SAID = frozenset({"only", "because", "note", "fix", "command"})  # an annotation is read in a margin


def render(report: Report) -> str:
    """One annotation a finding, then the count."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    for each in report.reported:
        yield _on_configuration(each, report) if isinstance(each, Diagnostic) else _annotation(each, report)
    if report.nothing_to_judge:
        yield f"::warning title=envcheck::{_message(report.language.told(report.nothing_to_judge))}"
    yield inline(count_text(report))


def _on_configuration(remark: Diagnostic, report: Report) -> str:
    lang, severity = report.language, remark.severity.value
    lines = [f"{lang.word(severity)}: {lang.told(remark.text)}", *map(line, remark_details(remark, lang))]
    place = remark.places[0] if remark.places else None
    return _command(severity, place, remark.code, lines)


def _annotation(finding: Finding, report: Report) -> str:
    mark, word, title = heading(finding, report.language)
    said = [line(each) for each in details(finding, report) if each.kind in _SAID]
    place = place_of(finding, report)
    return _command(mark, place, finding.rule.id, [f"{word}: {title}", *said])


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
