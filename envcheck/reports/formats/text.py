"""The report as plain text: a line for each category, then the findings, the counts, and a plan if any.

`lines` yields each line as spans with a style. `render` joins them without styles; `terminal` colours them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envcheck.core.facts import Inventory
from envcheck.core.findings import Diagnostic, Finding, Judgement, Plan, Report
from envcheck.core.i18n import Language, pad, width
from envcheck.core.rules import Matrix, Target
from envcheck.core.sanitize import inline
from envcheck.reports.details import (
    Detail,
    count_text,
    details,
    diagnostic_details,
    heading,
    quotation,
    waiting_lines,
)
from envcheck.reports.overview import MARKS, categories, category

SUFFIXES = (".txt", ".text", ".log")


class Span(NamedTuple):
    """A piece of text and its style: ok, warning, error, note, unknown, none, title, dim, or empty."""

    text: str
    style: str = ""


Line = Sequence[Span]


def render(report: Report) -> str:
    """Return the report as plain text."""
    return "".join(_plain(line) + "\n" for line in lines(report))


def _plain(line: Line) -> str:
    return "".join(inline(span.text) for span in line).rstrip()


def lines(report: Report) -> Iterator[Line]:
    """Yield the report line by line."""
    yield from _head(report)
    yield ()
    yield from _overview(report)
    if report.nothing_to_judge:
        yield ()
        yield (Span(report.language.told(report.nothing_to_judge), "warning"),)
    for each in report.reported:
        yield ()
        yield from (
            _diagnostic(each, report.language) if isinstance(each, Diagnostic) else _finding(each, report)
        )
    yield ()
    yield from _waiting(report)
    yield (Span(count_text(report), "title"),)
    if report.plan is not None and not report.nothing_to_judge:
        yield ()
        yield from _plan(report.plan, report)


def _head(report: Report) -> Iterator[Line]:
    lang = report.language
    known = lang.say("matrix {}, {} known failures", report.matrix.updated, len(report.matrix.rules))
    yield (Span(f"envcheck {report.version}", "title"), Span(f"  {known}", "dim"))
    for origin in report.matrix.origins:
        overlay = lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings)
        yield (Span(overlay, "dim"),)
    yield (Span(lang.say("judged"), "dim"), Span(f"  {lang.told(report.subject)}"))


def _overview(report: Report) -> Iterator[Line]:
    for name, text, mark in categories(report):
        label = Span(f" {pad(name, 9)}", "title")
        yield (Span(f"[{MARKS[mark]}]", mark), label, Span(text))


def _diagnostic(diagnostic: Diagnostic, lang: Language) -> Iterator[Line]:
    style = diagnostic.severity.value
    yield (
        Span(f"{MARKS[style]} {lang.word(style)}: ", style),
        Span(lang.told(diagnostic.text), "title"),
        Span(f" [{diagnostic.code}]", "dim"),
    )
    for number, place in enumerate(diagnostic.places):
        yield _detail(Detail(lang.say("at") if number == 0 else "", str(place), "at"))
        for gutter, code, mark in quotation(place):
            yield (Span(f"    {gutter} | ", "dim"), Span(code), Span(mark, style))
    yield from map(_detail, diagnostic_details(diagnostic, lang))


def _finding(finding: Finding, report: Report) -> Iterator[Line]:
    mark, word, title = heading(finding, report.language)
    yield (
        Span(f"{MARKS[mark]} {word}: ", mark),
        Span(title, "title"),
        Span(f" [{finding.rule.id}]{_category_suffix(finding, report.language)}", "dim"),
    )
    yield from map(_detail, details(finding, report))


def _category_suffix(finding: Finding, lang: Language) -> str:
    """Return the category, such as ` (GPU)`, of a finding that no package or configuration change fixes."""
    name = category(finding)
    return "" if name in ("Packages", "Training") else f" ({lang.word(name)})"


def _detail(detail: Detail) -> Line:
    prompt = "$ " if detail.kind == "command" else ""
    return (Span(f"    {pad(detail.label, 8)}", "dim"), Span(f"{prompt}{detail.text}"))


def _waiting(report: Report) -> Iterator[Line]:
    sentence, nearest = waiting_lines(report)
    if sentence:
        yield (Span(sentence, "dim"),)
    for rule in nearest:
        yield (Span(f"    {rule}", "dim"),)


# --- the plan ---------------------------------------------------------------------------------------


def _plan(plan: Plan, report: Report, *, commands: bool = True) -> Iterator[Line]:
    from envcheck.reports.plan_text import plan_details, plan_table, plan_title  # few reports have a plan

    yield (Span(plan_title(plan, report.language), "title"),)
    rows = plan_table(plan, report.language)
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)][:-1]
    for number, row in enumerate(rows):
        cells = [pad(cell, columns) for cell, columns in zip(row[:-1], widths, strict=True)]
        yield (Span(f"    {'  '.join((*cells, row[-1]))}", "" if number else "dim"),)
    yield from map(_detail, plan_details(plan, report, commands=commands))


def plan_page(plan: Plan, known: Matrix, target: Target, inventory: Inventory) -> str:
    """Return only a plan's title, table and notes, without commands: what a lock would change."""
    no_judgement = Judgement((), (), 0, 0)
    report = Report("", "", inventory, no_judgement, known, target, plan=plan)
    return "\n".join(_plain(line) for line in _plan(plan, report, commands=False)).rstrip("\n")
