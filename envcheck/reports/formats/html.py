"""The report as one self-contained HTML file: a picture of the stack, the findings, and all facts.

The page loads nothing, and is complete before its script runs; the script only filters findings. The content
security policy admits the style sheet and the script by their digests, so injected ones would not take
effect.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator

from envcheck.core.facts import Fact, Known, package_name
from envcheck.core.findings import Diagnostic, Evidence, Finding, Plan, Report, Verbosity
from envcheck.core.i18n import Language
from envcheck.reports.details import (
    ConditionalRow,
    Detail,
    Heading,
    conditional_rows,
    details,
    diagnostic_details,
    evidence_parts,
    heading,
    not_judged_line,
    quoted_line,
    way_out,
)
from envcheck.reports.findings import place_of
from envcheck.reports.formats._html_assets import SCRIPT, STYLE
from envcheck.reports.formats._html_common import MARK_ORDER, escape, with_code
from envcheck.reports.formats._html_picture import picture
from envcheck.reports.headline import headline
from envcheck.reports.overview import MARKS, categories
from envcheck.reports.plan_text import plan_details, plan_table, plan_title

SUFFIXES = (".html", ".htm")

_FEW = 4  # up to this many findings are all unfolded; of more, only the first is
_MOST_ROWS = 600  # rows of a table, so that the page stays small; JSON has all


def render(report: Report) -> str:
    """Return the page."""
    return "\n".join(_page(report)) + "\n"


def _page(report: Report) -> Iterator[str]:
    lang = report.language
    yield "<!DOCTYPE html>"
    yield f'<html lang="{escape(lang.name)}">'
    yield from _head(report)
    yield "<body>"
    yield from _header(report)
    yield "<main>"
    yield from _findings(report)
    yield from _conditional(report)
    if report.plan is not None and not report.nothing_to_judge:
        yield from _plan(report.plan, report)
    yield from _machine(report)
    yield from _all_facts(report)
    yield "</main>"
    known = lang.say("matrix {}, {} known failures", report.matrix.updated, len(report.matrix.rules))
    digest = escape(report.matrix.digest[:19])
    yield f"<footer>envcheck {escape(report.version)} · {escape(known)} · <code>{digest}</code></footer>"
    yield f"<script>{SCRIPT}</script>"
    yield "</body>"
    yield "</html>"


def _head(report: Report) -> Iterator[str]:
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src {_digest(STYLE)}; script-src {_digest(SCRIPT)}; base-uri 'none'; form-action 'none'\">"
    )
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{escape(headline(report).text)} · envcheck</title>"
    yield f"<style>{STYLE}</style>"
    yield "</head>"


def _digest(part: str) -> str:
    """Return a source expression of a content security policy that admits only this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


# --- at a glance ------------------------------------------------------------------------------------


def _header(report: Report) -> Iterator[str]:
    lang, (answer, state) = report.language, headline(report)
    judged, subject = escape(lang.say("judged")), escape(lang.translate(report.subject))
    yield f'<header class="{state}">'
    yield f'<p class="brand">envcheck{_target(report)}</p>'
    sign = f'<span class="mark" aria-hidden="true">{MARKS[state]}</span>'
    yield f"<h1>{sign} <span>{with_code(answer)}</span></h1>"
    yield f'<p class="subject">{judged} <code>{subject}</code></p>'
    if advice := way_out(report):
        yield f'<p class="subject">{escape(advice)}</p>'
    for origin in report.matrix.origins:
        overlay = lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings)
        yield f'<p class="subject">{escape(overlay)}</p>'
    yield "</header>"


def _target(report: Report) -> str:
    return f' <span class="target">{escape(report.target.name)}</span>' if report.target else ""


def _machine(report: Report) -> Iterator[str]:
    """Yield the picture of the stack, the overview of what was read, and what was not judged."""
    title = escape(report.language.say("What was read"))
    yield f'<section aria-labelledby="machine"><h2 id="machine">{title}</h2>'
    yield from picture(report)
    yield from _overview(report)
    yield f'<p class="waiting">{escape(not_judged_line(report))}</p></section>'


def _overview(report: Report) -> Iterator[str]:
    yield '<div class="overview"><dl>'
    for name, text, mark in categories(report):
        sign = f'<span class="mark {mark}" aria-hidden="true">{MARKS[mark]}</span>'
        yield f"<div><dt>{sign}{escape(name)}</dt><dd>{escape(text)}</dd></div>"
    yield "</dl></div>"


# --- findings ---------------------------------------------------------------------------------------


def _findings(report: Report) -> Iterator[str]:
    lang = report.language
    if not report.reported:
        return
    yield f'<section aria-labelledby="findings"><h2 id="findings">{escape(lang.say("Findings"))}</h2>'
    headings = [
        Heading(each.severity.value, lang.word(each.severity.value), "")
        if isinstance(each, Diagnostic)
        else heading(each, lang)
        for each in report.reported
    ]
    if len(headings) > 1:
        yield from _filter_form(headings, lang)
    for number, each in enumerate(report.reported, 1):
        unfolded = number == 1 or len(headings) <= _FEW
        if isinstance(each, Diagnostic):
            yield from _diagnostic(number, each, report, unfolded=unfolded)
        else:
            yield from _finding(number, each, report, unfolded=unfolded)
    yield "</section>"


def _filter_form(headings: Iterable[Heading], lang: Language) -> Iterator[str]:
    """Yield a search field and a check box for each severity that occurs; the script makes them visible."""
    label = escape(lang.say("Filter"))
    yield f'<form id="filter" hidden role="search" aria-label="{label}">'
    yield f'<input type="search" name="q" placeholder="{label}" aria-label="{label}" autocomplete="off">'
    for mark in MARK_ORDER:
        words = [each.word for each in headings if each.mark == mark]
        if words:
            yield (
                f'<label class="{mark}"><input type="checkbox" name="mark" value="{mark}" checked>'
                f"{MARKS[mark]} {escape(words[0])} {len(words)}</label>"
            )
    yield '<output id="left" aria-live="polite"></output></form>'


def _finding(number: int, finding: Finding, report: Report, *, unfolded: bool) -> Iterator[str]:
    mark, word, title = heading(finding, report.language)
    yield from _article_head(number, mark, word, title, unfolded=unfolded)
    place = place_of(finding, report)
    codes = [f"<code>{escape(str(each))}</code>" for each in (finding.rule.id, place) if each]
    yield f'<p class="id">{" · ".join(codes)}</p>'
    about = list(details(finding, report))
    evidence = [number for number, each in enumerate(about) if each.kind == "because"]
    yield from _listed(about[: evidence[0]] if evidence else about)
    yield from _evidence(finding, report)
    yield from _listed(about[evidence[-1] + 1 :] if evidence else ())
    yield "</details></article>"


def _diagnostic(number: int, diagnostic: Diagnostic, report: Report, *, unfolded: bool) -> Iterator[str]:
    lang, mark = report.language, diagnostic.severity.value
    yield from _article_head(
        number, mark, lang.word(mark), lang.translate(diagnostic.text), unfolded=unfolded
    )
    yield f'<p class="id"><code>{escape(diagnostic.code)}</code></p>'
    for place in diagnostic.places:
        rows = "\n".join(map(escape, quoted_line(place).splitlines()))
        excerpt = f"<pre>{rows}</pre>" if rows else ""
        yield f'<div class="at"><code>{escape(str(place))}</code>{excerpt}</div>'
    yield from _listed(diagnostic_details(diagnostic, lang))
    yield "</details></article>"


def _article_head(number: int, mark: str, word: str, title: str, *, unfolded: bool) -> Iterator[str]:
    """Yield the opening tags of a finding: an article with an anchor, and a `<details>` element in it."""
    yield f'<article id="f{number}" class="{mark}" data-mark="{mark}">'
    yield f"<details{' open' if unfolded else ''}><summary>"
    yield f'<span class="pill"><span aria-hidden="true">{MARKS[mark]}</span> {escape(word)}</span>'
    yield f"<h3>{with_code(title)}</h3></summary>"


def _evidence(finding: Finding, report: Report) -> Iterator[str]:
    if not finding.evidence:
        return
    lang = report.language
    yield f'<table class="because"><caption>{escape(lang.say("because"))}</caption><tbody>'
    for each in finding.evidence:
        name, state, source = evidence_parts(each, lang)
        yield _table_row(name, state, source)
    yield "</tbody></table>"


def _listed(found: Iterable[Detail]) -> Iterator[str]:
    """Yield details as a list of terms; a detail without a label, such as a command, joins the one before."""
    opened = False
    for label, text, kind, url in found:
        if label or not opened:
            yield "</dd></div>" if opened else '<dl class="details">'
            yield f'<div class="{kind}"><dt>{escape(label)}</dt><dd>'
            opened = True
        if kind == "command":
            yield f"<pre>{escape(text)}</pre>"
        else:
            yield f"<p>{_linked(text, url)}</p>"
    if opened:
        yield "</dd></div></dl>"


def _linked(text: str, url: str) -> str:
    """Return the escaped text, with its address as a link if that is an http or https one."""
    if not url.startswith(("https://", "http://")):
        return with_code(text)
    before, _, after = text.partition(url)
    anchor = f'<a href="{escape(url)}" rel="noreferrer noopener">{escape(url)}</a>'
    return f"{escape(before)}{anchor}{escape(after)}"


# --- the plan, and what waits -----------------------------------------------------------------------


def _plan(plan: Plan, report: Report) -> Iterator[str]:
    title = plan_title(plan, report.language)
    yield f'<section aria-labelledby="plan"><h2 id="plan">{escape(title)}</h2>'
    rows = plan_table(plan, report.language)
    if rows:
        yield '<div class="scroll"><table class="plan"><thead><tr>'
        yield "".join(f"<th scope=col>{escape(cell)}</th>" for cell in rows[0]) + "</tr></thead><tbody>"
        for name, *cells in rows[1:]:
            data = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            yield f"<tr><th scope=row>{escape(name)}</th>{data}</tr>"
        yield "</tbody></table></div>"
    yield from _listed(plan_details(plan, report))
    yield "</section>"


def _conditional(report: Report) -> Iterator[str]:
    shown, more = conditional_rows(report)
    if not shown:
        return
    every, _ = conditional_rows(report._replace(verbosity=Verbosity.ALL))
    named = {row.rule for row in shown}
    title = report.language.say("Known to fail here, depending on how you train")
    yield f'<section aria-labelledby="conditional"><h2 id="conditional">{escape(title)}</h2>'
    yield from _conditional_list(shown)
    if more:
        yield f'<details class="all"><summary>{escape(more)}</summary>'
        yield from _conditional_list([row for row in every if row.rule not in named])
        yield "</details>"
    yield "</section>"


def _conditional_list(rows: Iterable[ConditionalRow]) -> Iterator[str]:
    yield '<ul class="conditional">'
    for row in rows:
        text = f'<span class="dim">{escape(row.when)}:</span> {with_code(row.title)}'
        yield f"<li>{text} <code>{escape(row.rule)}</code></li>"
    yield "</ul>"


# --- all facts --------------------------------------------------------------------------------------


def _all_facts(report: Report) -> Iterator[str]:
    lang = report.language
    for title, rows in (
        (lang.say("All packages"), _packages(report)),
        (lang.say("All other facts"), _other_facts(report)),
    ):
        if rows:
            count = f'<span class="dim">{len(rows)}</span>'
            yield f'<details class="all"><summary>{escape(title)} {count}</summary>'
            yield '<div class="scroll"><table><tbody>'
            yield from (_fact_row(name, fact, lang) for name, fact in rows[:_MOST_ROWS])
            yield "</tbody></table></div>"
            if len(rows) > _MOST_ROWS:
                yield f'<p class="dim">+ {len(rows) - _MOST_ROWS} (--format json)</p>'
            yield "</details>"


def _packages(report: Report) -> list[tuple[str, Fact]]:
    facts = report.inventory.facts
    packages = [facts[key] for key in facts if key.startswith("pkg.") and key.count(".") == 1]
    return [(package_name(fact.key), fact) for fact in packages if isinstance(fact.reading, Known)]


def _other_facts(report: Report) -> list[tuple[str, Fact]]:
    inventory = report.inventory
    facts = [(key, fact) for key, fact in inventory.facts.items() if not key.startswith(("pkg.", "build."))]
    of_gpus = [
        (fact.key.replace("gpu.", f"gpu[{number}].", 1), fact)
        for number, device in enumerate(inventory.devices)
        for fact in device.values()
    ]
    return facts + of_gpus


def _fact_row(name: str, fact: Fact, lang: Language) -> str:
    _, state, source = evidence_parts(Evidence(fact), lang)
    return _table_row(name, state.removeprefix("= "), source)


def _table_row(name: str, value: str, source: str) -> str:
    source_cell = f"<td class=source>{escape(source)}</td>"
    return f"<tr><th scope=row>{escape(name)}</th><td>{escape(value)}</td>{source_cell}</tr>"
