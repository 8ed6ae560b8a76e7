"""The report in Markdown, to paste into an issue: the overview, and each finding folded away.

What comes from outside stands in code spans and code blocks, where nothing acts; prose is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from envcheck.core.findings import Diagnostic, Finding, Plan, Report
from envcheck.core.sanitize import inline
from envcheck.reports.formats.text import (
    MARKS,
    Detail,
    categories,
    count_text,
    details,
    heading,
    plan_details,
    plan_table,
    plan_title,
    quoted_line,
    remark_details,
    waits,
)
from envcheck.reports.render import fails

SUFFIXES = (".md", ".markdown")

_EMOJI_OR_ADDRESS = re.compile(r":(?=\S)")
# Line feeds are gone, so lists and headings cannot begin.
_ACTIVE = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>~|!$^{}&"})
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_IN_CODE = frozenset({"because", "set"})


def render(report: Report) -> str:
    """The report as Markdown, with the folding that GitHub and GitLab know."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    lang = report.language
    known = lang.say("matrix {}, {} known failures", report.matrix.updated, len(report.matrix.rules))
    yield f"**envcheck {prose(report.version)}** ({prose(known)})"
    yield ""
    yield f"{prose(lang.say('judged'))} {code(lang.told(report.subject))}"
    for origin in report.matrix.origins:
        yield ""
        yield prose(lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings))
    yield ""
    for name, text, mark in categories(report):
        sign = MARKS[mark].replace("-", "\\-")  # or it would begin a list
        yield f"- {sign} **{prose(name)}** {code(text)}"
    if report.nothing_to_judge:
        yield ""
        yield f"**{prose(lang.told(report.nothing_to_judge))}**"
    for each in report.reported:
        yield ""
        yield from _remark(each, report) if isinstance(each, Diagnostic) else _finding(each, report)
    lead, nearest = waits(report)
    if lead:
        yield ""
        yield prose(lead)
        yield ""
        yield from (f"- {code(rule)}" for rule in nearest)
    yield ""
    yield f"**{prose(count_text(report))}**"
    if report.plan is not None and not report.nothing_to_judge:
        yield ""
        yield from _plan(report.plan, report)


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    mark, word, title = heading(finding, report.language)
    opened = " open" if fails(finding, report) else ""
    yield f"<details{opened}><summary>{MARKS[mark]} <b>{markup(word)}</b>: {markup(title)}</summary>"
    yield ""
    yield code(finding.rule.id)
    yield ""
    yield from _listed(details(finding, report))
    yield ""
    yield "</details>"


def _remark(remark: Diagnostic, report: Report) -> Iterator[str]:
    lang, severity = report.language, remark.severity.value
    opened = " open" if fails(remark, report) else ""
    word, title = markup(lang.word(severity)), markup(lang.told(remark.text))
    yield f"<details{opened}><summary>{MARKS[severity]} <b>{word}</b>: {title}</summary>"
    yield ""
    yield code(remark.code)
    yield ""
    for place in remark.places:
        yield f"- {code(str(place))}"
        if line := quoted_line(place):
            yield from block(line, "")
    yield from _listed(remark_details(remark, lang))
    yield ""
    yield "</details>"


def _plan(plan: Plan, report: Report) -> Iterator[str]:
    yield f"**{prose(plan_title(plan, report.language))}**"
    yield ""
    heads, *rows = plan_table(plan, report.language) or [()]
    for row in rows:
        name, now, then, *asked = row
        more = ", ".join(
            f"{prose(head)} {code(cell)}" for head, cell in zip(heads[3:], asked, strict=True) if cell
        )
        yield f"- {code(name)}: {code(now)} → {code(then)}{f' ({more})' if more else ''}"
    if rows:
        yield ""
    yield from _listed(plan_details(plan, report))


def _listed(found: Iterator[Detail]) -> Iterator[str]:
    """Details as a list, commands as blocks to copy."""
    for command, group in groupby(found, lambda each: each.kind == "command"):
        if command:
            yield from block("\n".join(inline(each.text) for each in group), "sh")
            continue
        for label, text, kind, url in group:
            lead = f"**{prose(label)}** " if label else ""
            if url:
                before, _, after = text.partition(url)
                said = f"{prose(before)}{link(url)}{prose(after)}"
            elif kind == "fix":
                way, bracket, cost = text.partition(" (")
                said = f"{code(way)}{prose(bracket + cost)}"
            else:
                said = code(text) if kind in _IN_CODE else prose(text)
            yield f"- {lead}{said}"


# --- escaping ---------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Text that is read as it stands: no markup, no link, nobody mentioned."""
    escaped = inline(text).translate(_ACTIVE).replace("www.", "www\\.")
    return _apart(_EMOJI_OR_ADDRESS.sub(r"\\:", escaped))


def markup(text: str) -> str:
    """The same where HTML stands."""
    return _apart(inline(text).translate(_ENTITIES))


def _apart(text: str) -> str:
    # GitHub looks for people and issues in what was rendered; a comment between the signs is not seen.
    return text.replace("@", "@<!-- -->").replace("#", "#<!-- -->")


def code(text: str) -> str:
    """A code span, whatever backticks the text has."""
    text = inline(text)
    if not text.strip():
        return ""
    fence = _fence(text, 1)
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{space}{text}{space}{fence}"


def block(text: str, language: str) -> Iterator[str]:
    """A code block, whatever backticks the text has."""
    fence = _fence(text, 3)
    yield from ("", f"{fence}{language}", *text.split("\n"), fence, "")


def _fence(text: str, least: int) -> str:
    runs = ("".join(run) for sign, run in groupby(text) if sign == "`")
    return "`" * max((least, *(len(run) + 1 for run in runs)))


def link(url: str) -> str:
    """An address to click, if it is one of the web and has nothing odd; else as it stands."""
    plain = url.startswith(("https://", "http://")) and not set(url) & set(" <>\"'`\\\n\t")
    return f"<{url}>" if plain and url.isascii() else code(url)
