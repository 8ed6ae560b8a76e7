"""The report as plain text: the answer in one line, the findings, the machine, and what was not judged.

`lines` yields each line as spans with a style. `render` joins them without styles; `terminal` colours them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.core.errors import Place
from envcheck.core.facts import Inventory
from envcheck.core.findings import Diagnostic, Finding, Judgement, Plan, Question, Report, Verbosity
from envcheck.core.i18n import Language, pad, width
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Matrix, Target
from envcheck.core.sanitize import inline
from envcheck.reports.details import (
    Detail,
    brief_details,
    conditional_rows,
    count_text,
    details,
    diagnostic_details,
    heading,
    not_judged_line,
    quotation,
    way_out,
)
from envcheck.reports.findings import place_of
from envcheck.reports.headline import headline
from envcheck.reports.overview import MARKS, categories, category, training_facts

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
    """Yield the report line by line: the answer, the findings, then what was judged and what was not."""
    answer = headline(report)
    yield (Span(answer.text, answer.mark),)
    if report.verbosity is Verbosity.VERDICT:
        return
    if advice := way_out(report):
        yield _detail(Detail(report.language.say("fix"), advice, "fix"))
    for each in report.reported:
        yield ()
        yield from _diagnostic(each, report) if isinstance(each, Diagnostic) else _finding(each, report)
    yield from _conditional(report)
    if report.plan is not None and not report.nothing_to_judge:
        yield ()
        yield from _plan(report.plan, report)
    yield ()
    yield from _judged(report)
    yield from _not_known_yet(report)
    yield from _overview(report)
    if report.verbosity is Verbosity.ALL:
        yield from _training_facts(report)
    yield ()
    yield (Span(not_judged_line(report), "dim"),)
    if report.verbosity is Verbosity.ALL:
        yield (Span(count_text(report), "dim"),)


def _judged(report: Report) -> Iterator[Line]:
    lang = report.language
    known = lang.say("matrix {}, {} known failures", report.matrix.updated, len(report.matrix.rules))
    for origin in report.matrix.origins:
        overlay = lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings)
        yield (Span(overlay, "dim"),)
    yield (
        Span(lang.say("judged"), "dim"),
        Span(f"  {lang.translate(report.subject)}"),
        Span("  envcheck ", "dim"),
        Span(f"{report.version}, {known}", "dim"),
    )


def _not_known_yet(report: Report) -> Iterator[Line]:
    """Yield a line that dates the knowledge if an installed release is newer than all releases known."""
    if not report.newer:
        return
    read = report.matrix.atlas().read
    named = ", ".join(f"{package} {version}" for package, version in sorted(report.newer.items()))
    text = report.language.say("published releases were read on {}; newer, and not known: {}", read, named)
    yield (Span(text, "dim"),)


def _overview(report: Report) -> Iterator[Line]:
    for name, text, mark in categories(report):
        if mark == "none" and text == report.language.say("not given"):
            continue
        label = Span(f" {pad(name, 9)}", "title")
        yield (Span(f"[{MARKS[mark]}]", mark), label, Span(text))


def _training_facts(report: Report) -> Iterator[Line]:
    """Yield each fact of the training configuration with the file and line that states it."""
    for name, value, source in training_facts(report.inventory):
        yield (Span(f"    {pad(name, 24)} "), Span(f"{value}  "), Span(source, "dim"))


def _diagnostic(diagnostic: Diagnostic, report: Report) -> Iterator[Line]:
    lang, style = report.language, diagnostic.severity.value
    place = diagnostic.places[0] if diagnostic.places and report.question is Question.CHECK else None
    yield (
        _first_span(style, lang.word(style), place),
        Span(lang.translate(diagnostic.text), "title"),
        Span(f" [{diagnostic.code}]", "dim"),
    )
    about = list(diagnostic_details(diagnostic, lang))
    yield from (_detail(each) for each in about if each.kind == "advice")
    for number, each in enumerate(diagnostic.places):
        yield _detail(Detail(lang.say("at") if number == 0 else "", str(each), "at"))
        for gutter, code, mark in quotation(each):
            yield (Span(f"    {gutter} | ", "dim"), Span(code), Span(mark, style))
    if report.verbosity is Verbosity.ALL:
        yield from (_detail(each) for each in about if each.kind != "advice")


def _finding(finding: Finding, report: Report) -> Iterator[Line]:
    mark, word, title = heading(finding, report.language)
    place = place_of(finding, report) or Place(report.subject) if report.question is Question.CHECK else None
    yield (
        _first_span(mark, word, place),
        Span(title, "title"),
        Span(f" [{finding.rule.id}]{_category_suffix(finding, report.language)}", "dim"),
    )
    every = report.verbosity is Verbosity.ALL
    yield from map(_detail, (details if every else brief_details)(finding, report))


def _first_span(mark: str, word: str, place: Place | None) -> Span:
    """Return the start of a finding: its mark, or its place in a compiler's style, which editors detect."""
    return Span(f"{MARKS[mark]} {word}: " if place is None else f"{place}: {word}: ", mark)


def _category_suffix(finding: Finding, lang: Language) -> str:
    """Return the category, such as ` (GPU)`, if no change of packages or configuration fixes a finding."""
    name = category(finding)
    return "" if name in ("Packages", "Training") else f" ({lang.word(name)})"


def _detail(detail: Detail) -> Line:
    prompt = "$ " if detail.kind == "command" else ""
    return (Span(f"    {pad(detail.label, 8)}", "dim"), Span(f"{prompt}{detail.text}"))


# --- conditional findings ---------------------------------------------------------------------------


def _conditional(report: Report) -> Iterator[Line]:
    rows, more = conditional_rows(report)
    if not rows:
        return
    lang = report.language
    yield ()
    yield (Span(lang.say("Known to fail here, depending on how you train"), "title"),)
    for row in rows:
        yield (Span("    "), Span(f"{row.when}:"))
        yield (Span("        "), Span(f"{row.title} [{row.rule}]"))
    if more:
        yield (Span("    "), Span(f"{more} (-v)"))


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
