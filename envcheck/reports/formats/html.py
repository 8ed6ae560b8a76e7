"""The report as one HTML file that asks nobody: a picture of the stack, the findings, and all that was read.

Everything is in the page before a script runs; the script only filters. Styles and script are admitted
by their digests, so that nothing else could run or be drawn even if it came in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from envcheck.core.facts import (
    Absent,
    Fact,
    Known,
    Reading,
    Unknown,
    is_package_version_key,
    package_key,
    package_name,
)
from envcheck.core.findings import Diagnostic, Evidence, Finding, Plan, Report, Verdict
from envcheck.core.i18n import Language, width
from envcheck.core.rules import Severity
from envcheck.core.sanitize import inline
from envcheck.reports.formats.text import (
    MARKS,
    STACK,
    Detail,
    Heading,
    because_parts,
    categories,
    count_text,
    details,
    heading,
    phrases,
    plan_details,
    plan_table,
    plan_title,
    quoted_line,
    remark_details,
    waits,
)
from envcheck.reports.render import place_of, reading

SUFFIXES = (".html", ".htm")

_FEW = 4  # findings that are shown unfolded
_MOST_ROWS = 600  # of a table: a page stays small, JSON has all

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def text(words: str) -> str:
    """Text of the page or of a quoted attribute."""
    return inline(words).translate(_ENTITIES)


def render(report: Report) -> str:
    """The page."""
    return "\n".join(_page(report)) + "\n"


def _page(report: Report) -> Iterator[str]:
    lang = report.language
    yield "<!DOCTYPE html>"
    yield f'<html lang="{text(lang.name)}">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src {_digest(_STYLE)}; script-src {_digest(_SCRIPT)}; base-uri 'none'; form-action 'none'\">"
    )
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{text(_verdict(report))} · envcheck</title>"
    yield f"<style>{_STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield from _header(report)
    yield "<main>"
    yield from _picture(report)
    yield from _overview(report)
    yield from _findings(report)
    if report.plan is not None and not report.nothing_to_judge:
        yield from _plan(report.plan, report)
    yield from _waiting(report)
    yield from _everything(report)
    yield "</main>"
    known = lang.say("matrix {}, {} known failures", report.matrix.updated, len(report.matrix.rules))
    digest = text(report.matrix.digest[:19])
    yield f"<footer>envcheck {text(report.version)} · {text(known)} · <code>{digest}</code></footer>"
    yield f"<script>{_SCRIPT}</script>"
    yield "</body>"
    yield "</html>"


def _digest(part: str) -> str:
    """A source expression of a content security policy that admits this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


# --- at a glance ------------------------------------------------------------------------------------


def _verdict(report: Report) -> str:
    lang, judgement = report.language, report.judgement
    if report.nothing_to_judge:
        return lang.told(report.nothing_to_judge)
    counts = [
        lang.say(f"{{}} {each.value}{'s' if count > 1 else ''}", count)
        for each in Severity
        if (count := judgement.tally(Verdict.BROKEN, each) + _remarks(report, each))
    ]
    undecided = judgement.tally(Verdict.UNDECIDED)
    open_ = [lang.say("{} undecided", undecided)] if undecided else []
    return ", ".join((*(counts or [lang.say("Nothing known is broken")]), *open_))


def _remarks(report: Report, severity: Severity) -> int:
    return sum(each.severity is severity for each in report.diagnostics)


def _state(report: Report) -> str:
    """The worst there is: error, warning, note, unknown, none (nothing to judge) or ok."""
    if report.nothing_to_judge:
        return "none"
    marks = [heading(each, report.language).mark for each in report.judgement.findings]
    marks += [each.severity.value for each in report.diagnostics]
    return min(marks, key=_RANK.index, default="ok")


_RANK = ("error", "warning", "unknown", "note", "none", "ok")


def _header(report: Report) -> Iterator[str]:
    lang, state = report.language, _state(report)
    yield f'<header class="{state}">'
    yield f'<p class="brand">envcheck{_target(report)}</p>'
    verdict = _verdict(report)
    yield f'<h1><span class="mark" aria-hidden="true">{MARKS[state]}</span> {text(verdict)}</h1>'
    yield f'<p class="subject">{text(lang.say("judged"))} <code>{text(lang.told(report.subject))}</code></p>'
    for origin in report.matrix.origins:
        laid = lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings)
        yield f'<p class="subject">{text(laid)}</p>'
    yield f'<p class="count">{text(count_text(report))}</p>'
    yield "</header>"


def _target(report: Report) -> str:
    return f' <span class="target">{text(report.target.name)}</span>' if report.target else ""


def _overview(report: Report) -> Iterator[str]:
    lang = report.language
    yield f'<section class="overview" aria-label="{text(lang.say("What was read"))}"><dl>'
    for name, said, mark in categories(report):
        sign = f'<span class="mark {mark}" aria-hidden="true">{MARKS[mark]}</span>'
        yield f"<div><dt>{sign}{text(name)}</dt><dd>{text(said)}</dd></div>"
    yield "</dl></section>"


# --- the picture ------------------------------------------------------------------------------------


class _HtmlNode(NamedTuple):
    """A part of the stack: its name, lines that say what is here, and whether anything is known of it."""

    name: str
    lines: tuple[str, ...]
    known: bool


class _Break(NamedTuple):
    """Two parts that do not go together (or one that is wrong by itself), as the worst finding says."""

    one: int
    other: int
    mark: str
    anchor: str  # of the first and so the worst
    said: tuple[str, ...]


_PARTS = ("driver", "cuda", "torch", "gpu", "libraries", "training")
_MOST_LINES = 8
_LINE = 21  # columns that a box has room for


def _part(key: str) -> str:
    """The part of the stack that a fact is about; empty if it is none of them."""
    head, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    if head in ("driver", "train"):
        return {"train": "training"}.get(head, head)
    if key in ("cuda.driver", "cuda.compat"):
        return "driver"
    if head in ("gpu", "gpus"):
        return "gpu"
    if head in ("pkg", "build"):
        return "torch" if name == "torch" else "libraries"
    return "cuda" if head == "cuda" else ""


def _nodes(report: Report) -> list[_HtmlNode]:
    lang, inventory = report.language, report.inventory

    def known(*said: str) -> tuple[str, ...]:
        return tuple(each for each in said if each)

    def labelled(label: str, key: str) -> str:
        value = reading(inventory, key)
        return f"{label} {value}" if value else ""

    kinds: dict[tuple[str, ...], int] = {}
    for device in range(len(inventory.devices)):
        memory = inventory.known("gpu.memory_mib", device)
        capability = reading(inventory, "gpu.compute_capability", device)
        kind = known(
            reading(inventory, "gpu.name", device).removeprefix("NVIDIA ") or f"GPU {device}",
            f"{memory / 1024:.0f} GiB" if isinstance(memory, int) else "",
            f"sm {capability}" if capability else "",
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    gpus = [line for kind, count in kinds.items() for line in _counted(kind, count)]
    wanted = (*STACK, *(report.target.packages if report.target else ()))
    libraries = [labelled(name, package_key(name)) for name in dict.fromkeys(wanted) if name != "torch"]
    torch = reading(inventory, "pkg.torch")
    cpu = torch and isinstance(inventory.fact("cuda.runtime").reading, Absent)
    driver = lang.word("Driver")
    parts = (
        (driver, "driver.version", (reading(inventory, "driver.version"), labelled("CUDA ≤", "cuda.driver"))),
        (
            "CUDA",
            "cuda.runtime",
            (
                reading(inventory, "cuda.runtime") or (lang.say("CPU build") if cpu else ""),
                labelled(f"{driver} ≥", "cuda.minimum_driver"),
            ),
        ),
        ("torch", "pkg.torch", (torch, labelled("Python", "python.version"))),
        ("GPU", "gpus.count", tuple(gpus)),
        (lang.say("Libraries"), "pkg", tuple(libraries)),
        (lang.word("Training"), "train", phrases(inventory, lang)),
    )
    return [
        _HtmlNode(
            name,
            known(*(lines if any(lines[:1]) else (_missing(inventory.fact(key).reading, lang), *lines))),
            any(lines[:1]),
        )
        for name, key, lines in parts
    ]


def _missing(found: Reading, lang: Language) -> str:
    """Why a box is empty, in a word or two; the overview below says it in full."""
    if isinstance(found, Unknown) and found.asked:
        return lang.say("not known")
    return lang.say("not given") if isinstance(found, Unknown) else lang.say("none here")


def _counted(kind: Sequence[str], count: int) -> Iterator[str]:
    first, *rest = kind
    yield f"{count} x {first}" if count > 1 else first
    yield from rest


def _breaks(report: Report) -> list[_Break]:
    """What the findings say of the parts: each path goes through the parts a finding's facts are about."""
    lang = report.language
    found: dict[tuple[int, int], _Break] = {}
    for anchor, mark, title, parts in _blamed(report):
        touched = sorted(_PARTS.index(each) for each in parts)
        for pair in list(pairwise(touched)) or [(place, place) for place in touched]:
            before = found.get(pair, _Break(*pair, mark, anchor, ()))
            worst = min(mark, before.mark, key=_RANK.index)
            anchor_ = before.anchor if worst == before.mark else anchor
            said = (*before.said, f"{lang.word(_WORDS[mark])}: {title}")
            found[pair] = _Break(*pair, worst, anchor_, said)
    return sorted(found.values(), key=lambda each: (each.one, each.other))


_WORDS = {"error": "error", "warning": "warning", "note": "note", "unknown": "undecided"}


def _blamed(report: Report) -> Iterator[tuple[str, str, str, set[str]]]:
    """Remarks and findings: the anchor of each, its mark, its title, and the parts it is about."""
    lang = report.language
    for number, told in enumerate(report.reported, 1):
        if isinstance(told, Diagnostic):
            yield f"f{number}", told.severity.value, lang.told(told.text), {"training"}
        else:
            mark, _, title = heading(told, lang)
            yield f"f{number}", mark, title, {_part(each.fact.key) for each in told.evidence} - {""}


def _picture(report: Report) -> Iterator[str]:
    lang = report.language
    nodes, breaks = _nodes(report), _breaks(report)
    said = [
        f"{' + '.join(dict.fromkeys((nodes[each.one].name, nodes[each.other].name)))}: {'; '.join(each.said)}"
        for each in breaks
    ]
    label = lang.say("Driver, CUDA, torch, GPU, libraries and training, and what does not go together")
    yield "<figure>"
    for drawing in (_Wide(nodes), _Tall(nodes)):
        yield from drawing.svg(breaks, said, label)
    key = lang.say("A solid line: nothing known stands against it. Dotted: an end is not known.")
    yield f"<figcaption>{text(key)}"
    if said:
        yield '<ul class="unseen">' + "".join(f"<li>{text(each)}</li>" for each in said) + "</ul>"
    yield "</figcaption></figure>"


class _Drawing:
    """The stack as boxes in a line; each drawing says where boxes lie and how lines run between them."""

    name = ""
    width = height = 0

    def __init__(self, nodes: Sequence[_HtmlNode]) -> None:
        """Take the parts, first to last."""
        self.nodes = nodes
        self.cut = [_cut(node.lines) for node in nodes]

    def box(self, place: int) -> tuple[int, int, int, int]:
        """Left, top, width and height of a box."""
        raise NotImplementedError

    def near(self, one: int) -> tuple[str, int, int]:
        """The line from a box to the next, and its middle."""
        raise NotImplementedError

    def far(self, one: int, other: int) -> tuple[str, int, int]:
        """The arc between two boxes that are not neighbours, and its summit."""
        raise NotImplementedError

    def svg(self, breaks: Sequence[_Break], said: Sequence[str], label: str) -> Iterator[str]:
        """The drawing."""
        broken = {(each.one, each.other): each for each in breaks}
        alone = {each.one: each.mark for each in breaks if each.one == each.other}
        box = f"0 0 {self.width} {self.height}"
        yield f'<svg class="{self.name}" viewBox="{box}" role="group" aria-label="{text(label)}">'
        for place in range(len(self.nodes) - 1):
            if (place, place + 1) not in broken:
                path, _, _ = self.near(place)
                ends = self.nodes[place].known and self.nodes[place + 1].known
                yield f'<path class="{"link" if ends else "link open"}" d="{path}"/>'
        for each in breaks:
            if each.one != each.other:
                path, _, _ = self._line(each)
                yield f'<path class="link {each.mark}" d="{path}"/>'
        for place, node in enumerate(self.nodes):
            yield from self._box(place, node, alone.get(place, ""))
        for each, words in zip(breaks, said, strict=True):
            _, x, y = self._line(each)
            yield (
                f'<a href="#{each.anchor}" class="{each.mark}"><title>{text(words)}</title>'
                f'<circle cx="{x}" cy="{y}" r="11"/>'
                f'<text x="{x}" y="{y + 5}" class="sign">{MARKS[each.mark]}</text></a>'
            )
        yield "</svg>"

    def _line(self, each: _Break) -> tuple[str, int, int]:
        if each.one == each.other:
            left, top, width, _ = self.box(each.one)
            return "", left + width - 4, top + 4
        return self.near(each.one) if each.other == each.one + 1 else self.far(each.one, each.other)

    def _box(self, place: int, node: _HtmlNode, mark: str) -> Iterator[str]:
        left, top, width, height = self.box(place)
        kind = " ".join(filter(None, ("node", mark, "" if node.known else "open")))
        yield f'<g class="{kind}">'
        yield f"<title>{text(': '.join(filter(None, (node.name, ', '.join(node.lines)))))}</title>"
        yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="9"/>'
        yield f'<text x="{left + 12}" y="{top + 24}" class="name">{text(node.name)}</text>'
        for number, line in enumerate(self.cut[place]):
            yield f'<text x="{left + 12}" y="{top + 45 + 18 * number}">{text(line)}</text>'
        yield "</g>"


def _cut(lines: Sequence[str]) -> list[str]:
    """As many lines as a box has room for, each as long."""
    more = len(lines) - _MOST_LINES
    return [_short(line) for line in (lines if more <= 0 else [*lines[: _MOST_LINES - 1], f"+ {more + 1}"])]


def _short(line: str) -> str:
    if width(line) <= _LINE:
        return line
    while width(line) >= _LINE:
        line = line[:-1]
    return f"{line}…"


def _tallest(cut: Iterable[Sequence[str]]) -> int:
    return 40 + 18 * max(1, *map(len, cut))


class _Wide(_Drawing):
    """A row, arcs below it."""

    name = "wide"
    wide, gap = 166, 40

    def __init__(self, nodes: Sequence[_HtmlNode]) -> None:
        super().__init__(nodes)
        self.tall = _tallest(self.cut)
        self.width = len(nodes) * (self.wide + self.gap) - self.gap + 24
        self.height = self.tall + 24

    def svg(self, breaks: Sequence[_Break], said: Sequence[str], label: str) -> Iterator[str]:
        deepest = max((each.other - each.one for each in breaks), default=0)
        self.height = self.tall + 24 + (0 if deepest < 2 else 6 + 26 * deepest)  # noqa: PLR2004 - an arc
        yield from super().svg(breaks, said, label)

    def box(self, place: int) -> tuple[int, int, int, int]:
        return 12 + place * (self.wide + self.gap), 12, self.wide, self.tall

    def near(self, one: int) -> tuple[str, int, int]:
        right = 12 + one * (self.wide + self.gap) + self.wide
        return f"M{right} 31h{self.gap}", right + self.gap // 2, 31

    def far(self, one: int, other: int) -> tuple[str, int, int]:
        start, end = (12 + each * (self.wide + self.gap) + self.wide // 2 for each in (one, other))
        start, end = start + 16, end - 16
        top, deep = 12 + self.tall, 34 * (other - one)
        path = f"M{start} {top}C{start} {top + deep} {end} {top + deep} {end} {top}"
        return path, (start + end) // 2, top + deep * 3 // 4


class _Tall(_Drawing):
    """A column, arcs to its right."""

    name = "tall"
    wide, gap = 206, 34

    def __init__(self, nodes: Sequence[_HtmlNode]) -> None:
        super().__init__(nodes)
        tops = [12]
        for lines in self.cut:
            tops.append(tops[-1] + _tallest([lines]) + self.gap)
        self.tops = tops
        self.width, self.height = self.wide + 24 + 90, tops[-1] - self.gap + 12

    def box(self, place: int) -> tuple[int, int, int, int]:
        return 12, self.tops[place], self.wide, self.tops[place + 1] - self.tops[place] - self.gap

    def near(self, one: int) -> tuple[str, int, int]:
        bottom = self.tops[one + 1] - self.gap
        return f"M44 {bottom}v{self.gap}", 44, bottom + self.gap // 2

    def far(self, one: int, other: int) -> tuple[str, int, int]:
        start, end = (self.tops[each] + 30 for each in (one, other))
        right, deep = 12 + self.wide, 24 * (other - one)
        path = f"M{right} {start}C{right + deep} {start} {right + deep} {end} {right} {end}"
        return path, right + deep * 3 // 4, (start + end) // 2


# --- findings ---------------------------------------------------------------------------------------


def _findings(report: Report) -> Iterator[str]:
    lang = report.language
    yield f'<section aria-labelledby="findings"><h2 id="findings">{text(lang.say("Findings"))}</h2>'
    marks = [
        Heading(each.severity.value, lang.word(each.severity.value), "")
        if isinstance(each, Diagnostic)
        else heading(each, lang)
        for each in report.reported
    ]
    if len(marks) > 1:
        yield f'<form id="filter" hidden role="search" aria-label="{text(lang.say("Filter"))}">'
        yield (
            f'<input type="search" name="q" placeholder="{text(lang.say("Filter"))}" '
            f'aria-label="{text(lang.say("Filter"))}" autocomplete="off">'
        )
        for mark in _RANK:
            words = [each.word for each in marks if each.mark == mark]
            if words:
                yield (
                    f'<label class="{mark}"><input type="checkbox" name="mark" value="{mark}" checked>'
                    f"{MARKS[mark]} {text(words[0])} {len(words)}</label>"
                )
        yield '<output id="left" aria-live="polite"></output></form>'
    if not marks:
        yield f'<p class="fine {_state(report)}">{text(_nothing(report))}</p>'
    for number, told in enumerate(report.reported, 1):
        opened = number == 1 or len(marks) <= _FEW
        if isinstance(told, Diagnostic):
            yield from _remark(number, told, report, opened=opened)
        else:
            yield from _finding(number, told, report, opened=opened)
    yield "</section>"


def _nothing(report: Report) -> str:
    lang = report.language
    if report.nothing_to_judge:
        return lang.told(report.nothing_to_judge)
    return lang.say("{} rules held", report.judgement.passed)


def _finding(number: int, finding: Finding, report: Report, *, opened: bool) -> Iterator[str]:
    mark, word, title = heading(finding, report.language)
    yield f'<article id="f{number}" class="{mark}" data-mark="{mark}">'
    yield f"<details{' open' if opened else ''}><summary>"
    yield f'<span class="pill"><span aria-hidden="true">{MARKS[mark]}</span> {text(word)}</span>'
    yield f"<h3>{text(title)}</h3></summary>"
    place = place_of(finding, report)
    codes = [f"<code>{text(str(each))}</code>" for each in (finding.rule.id, place) if each]
    yield f'<p class="id">{" · ".join(codes)}</p>'
    yield from _because(finding, report)
    yield from _listed(each for each in details(finding, report) if each.kind != "because")
    yield "</details></article>"


def _remark(number: int, remark: Diagnostic, report: Report, *, opened: bool) -> Iterator[str]:
    lang, mark = report.language, remark.severity.value
    yield f'<article id="f{number}" class="{mark}" data-mark="{mark}">'
    yield f"<details{' open' if opened else ''}><summary>"
    yield f'<span class="pill"><span aria-hidden="true">{MARKS[mark]}</span> {text(lang.word(mark))}</span>'
    yield f"<h3>{text(lang.told(remark.text))}</h3></summary>"
    yield f'<p class="id"><code>{text(remark.code)}</code></p>'
    for place in remark.places:
        rows = "\n".join(map(text, quoted_line(place).splitlines()))
        yield f'<div class="at"><code>{text(str(place))}</code>{f"<pre>{rows}</pre>" if rows else ""}</div>'
    yield from _listed(remark_details(remark, lang))
    yield "</details></article>"


def _because(finding: Finding, report: Report) -> Iterator[str]:
    if not finding.evidence:
        return
    lang = report.language
    yield f'<table class="because"><caption>{text(lang.say("because"))}</caption><tbody>'
    for each in finding.evidence:
        name, said, source = because_parts(each, lang)
        yield _table_row(name, said, source)
    yield "</tbody></table>"


def _listed(found: Iterable[Detail]) -> Iterator[str]:
    """Details as a list of terms, with the commands that belong to each."""
    opened = False
    for label, said, kind, url in found:
        if label or not opened:
            yield "</dd></div>" if opened else '<dl class="details">'
            yield f'<div class="{kind}"><dt>{text(label)}</dt><dd>'
            opened = True
        if kind == "command":
            yield f"<pre>{text(said)}</pre>"
        else:
            yield f"<p>{_linked(said, url)}</p>"
    if opened:
        yield "</dd></div></dl>"


def _linked(said: str, url: str) -> str:
    """The text with its address to click, if it is one of the web."""
    if not url.startswith(("https://", "http://")):
        return text(said)
    before, _, after = said.partition(url)
    return f'{text(before)}<a href="{text(url)}" rel="noreferrer noopener">{text(url)}</a>{text(after)}'


def _plan(plan: Plan, report: Report) -> Iterator[str]:
    title = plan_title(plan, report.language)
    yield f'<section aria-labelledby="plan"><h2 id="plan">{text(title)}</h2>'
    rows = plan_table(plan, report.language)
    if rows:
        yield '<div class="scroll"><table class="plan"><thead><tr>'
        yield "".join(f"<th scope=col>{text(cell)}</th>" for cell in rows[0]) + "</tr></thead><tbody>"
        for name, *cells in rows[1:]:
            data = "".join(f"<td>{text(each)}</td>" for each in cells)
            yield f"<tr><th scope=row>{text(name)}</th>{data}</tr>"
        yield "</tbody></table></div>"
    yield from _listed(plan_details(plan, report))
    yield "</section>"


def _waiting(report: Report) -> Iterator[str]:
    lead, nearest = waits(report)
    if lead:
        yield f'<section class="waiting"><p>{text(lead)}</p><ul>'
        yield from (f"<li>{text(each)}</li>" for each in nearest)
        yield "</ul></section>"


# --- all that was read ------------------------------------------------------------------------------


def _everything(report: Report) -> Iterator[str]:
    lang, inventory = report.language, report.inventory
    read = inventory.facts
    packages = [read[key] for key in read if is_package_version_key(key)]
    facts = [(key, read[key]) for key in read if not key.startswith(("pkg.", "build."))]
    facts += [
        (fact.key.replace("gpu.", f"gpu[{number}].", 1), fact)
        for number, device in enumerate(inventory.devices)
        for fact in device.values()
    ]
    named = [(package_name(fact.key), fact) for fact in packages if isinstance(fact.reading, Known)]
    for title, rows in ((lang.say("All packages"), named), (lang.say("All other facts"), facts)):
        if rows:
            count = f'<span class="dim">{len(rows)}</span>'
            yield f'<details class="all"><summary>{text(title)} {count}</summary>'
            yield '<div class="scroll"><table><tbody>'
            yield from (_row(name, fact, lang) for name, fact in rows[:_MOST_ROWS])
            yield "</tbody></table></div>"
            if len(rows) > _MOST_ROWS:
                yield f'<p class="dim">+ {len(rows) - _MOST_ROWS} (--format json)</p>'
            yield "</details>"


def _row(name: str, fact: Fact, lang: Language) -> str:
    _, state, source = because_parts(Evidence(fact), lang)
    return _table_row(name, state.removeprefix("= "), source)


def _table_row(name: str, said: str, source: str) -> str:
    where = f"<td class=source>{text(source)}</td>"
    return f"<tr><th scope=row>{text(name)}</th><td>{text(said)}</td>{where}</tr>"


_STYLE = """
:root { --page:#fbfaf7; --ink:#1d2126; --dim:#5d646e; --line:#dcd9d0; --panel:#fff; --code:#f3f1eb;
  --link:#1a5fb4; --error:#b3261e; --warning:#96590a; --unknown:#6a4bb0; --note:#1a6f8f; --ok:#2a7449;
  --none:#5d646e; --error-bg:#fcefec; --warning-bg:#fbf3e2; --unknown-bg:#f3effb; --note-bg:#eaf4f8;
  --ok-bg:#ebf5ee; --none-bg:#f1f0ec; --on:#fff; }
@media (prefers-color-scheme: dark) {
  :root { --page:#15171b; --ink:#e7e6e3; --dim:#a3a9b2; --line:#353941; --panel:#1d2025; --code:#262a31;
    --link:#8ab8f5; --error:#f2857b; --warning:#efb45c; --unknown:#b9a2f2; --note:#7cc4e0; --ok:#79c99a;
    --none:#a3a9b2; --error-bg:#361e1c; --warning-bg:#33270f; --unknown-bg:#272040; --note-bg:#152c37;
    --ok-bg:#162c20; --none-bg:#24272d; --on:#15171b; }
}
* { box-sizing:border-box; }
html { scroll-padding-top:16px; -webkit-text-size-adjust:100%; }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui,sans-serif; }
header, main, footer { max-width:1240px; margin:0 auto; padding:0 24px; }
.error { --tone:var(--error); --tint:var(--error-bg); }
.warning { --tone:var(--warning); --tint:var(--warning-bg); }
.unknown { --tone:var(--unknown); --tint:var(--unknown-bg); }
.note { --tone:var(--note); --tint:var(--note-bg); }
.ok { --tone:var(--ok); --tint:var(--ok-bg); }
.none { --tone:var(--none); --tint:var(--none-bg); }
header { padding-top:26px; padding-bottom:4px; }
.brand { margin:0 0 6px; color:var(--dim); font-size:.86rem; letter-spacing:.02em; }
.target { border:1px solid var(--line); border-radius:99px; padding:1px 9px; margin-left:6px; }
h1 { display:flex; gap:12px; align-items:center; margin:0; font-size:clamp(1.35rem,3.4vw,1.95rem);
  line-height:1.2; letter-spacing:-.015em; text-wrap:balance; }
h1 .mark { flex:none; display:grid; place-items:center; width:1.55em; height:1.55em; border-radius:50%;
  background:var(--tone); color:var(--on); font-size:.72em; }
.subject, .count { margin:8px 0 0; color:var(--dim); overflow-wrap:anywhere; }
.count { font-size:.9rem; margin-top:3px; }
code, pre, th, .because td, .all td { font-family:ui-monospace,monospace; font-size:.84em; }
code { overflow-wrap:anywhere; }
a { color:var(--link); overflow-wrap:anywhere; }
:focus-visible { outline:3px solid var(--link); outline-offset:2px; border-radius:4px; }
h2 { font-size:1.12rem; margin:34px 0 12px; letter-spacing:-.01em; }
figure { margin:20px 0 0; }
figcaption { color:var(--dim); font-size:.8rem; margin-top:2px; }
svg { display:block; width:100%; height:auto; }
svg.tall { display:none; max-width:380px; margin:0 auto; }
svg text { font:12.5px system-ui,sans-serif; fill:var(--ink); }
svg .name { font:600 14px system-ui,sans-serif; }
.node rect { fill:var(--panel); stroke:var(--line); stroke-width:1.5; }
.node.open rect { fill:none; stroke-dasharray:4 4; }
.node.open .name { fill:var(--dim); }
.node.error rect, .node.warning rect, .node.unknown rect, .node.note rect { stroke:var(--tone);
  stroke-width:2; fill:var(--tint); }
.link { fill:none; stroke:var(--dim); stroke-width:2; }
.link.open { stroke:var(--line); stroke-dasharray:2 5; stroke-linecap:round; }
.link.error, .link.warning, .link.unknown, .link.note { stroke:var(--tone); stroke-width:2.5;
  stroke-dasharray:7 5; }
svg a circle { fill:var(--tone); stroke:var(--page); stroke-width:2.5; }
svg a .sign { fill:var(--on); font:700 13px system-ui,sans-serif; text-anchor:middle; }
svg a:hover circle, svg a:focus-visible circle { stroke:var(--ink); }
.unseen { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%);
  white-space:nowrap; margin:0; padding:0; }
.overview dl { margin:18px 0 0; border:1px solid var(--line); border-radius:10px; background:var(--panel);
  overflow:hidden; }
.overview dl > div { display:grid; grid-template-columns:150px minmax(0,1fr); border-top:1px solid
  var(--line); }
.overview dl > div:first-child { border-top:0; }
.overview dt { padding:8px 12px 8px 14px; font-weight:600; font-size:.92rem; }
.overview dd { margin:0; padding:8px 14px 8px 0; font-size:.92rem; overflow-wrap:anywhere; }
.overview .mark { display:inline-block; width:1.5em; color:var(--tone); font-weight:700; }
#filter { display:flex; flex-wrap:wrap; gap:8px; align-items:center; margin:0 0 14px; }
#filter[hidden] { display:none; }
#filter input[type=search] { font:inherit; color:inherit; background:var(--panel); border:1px solid
  var(--line); border-radius:8px; padding:7px 11px; min-height:38px; flex:1 1 220px; max-width:340px; }
#filter label { display:inline-flex; gap:6px; align-items:center; min-height:38px; padding:0 12px;
  border:1px solid var(--line); border-radius:99px; color:var(--tone); background:var(--panel);
  font-size:.88rem; cursor:pointer; }
#filter label input { accent-color:var(--tone); margin:0; }
#left { color:var(--dim); font-size:.88rem; }
article { border:1px solid var(--line); border-left:4px solid var(--tone); border-radius:10px;
  background:var(--panel); margin:0 0 10px; }
article[hidden] { display:none; }
article:target { box-shadow:0 0 0 3px var(--tone); }
article summary { padding:12px 18px; list-style:none; position:relative; padding-right:40px;
  font-weight:400; }
article summary::-webkit-details-marker { display:none; }
article summary::after { content:""; position:absolute; right:18px; top:18px; width:8px; height:8px;
  border:solid var(--dim); border-width:0 2px 2px 0; rotate:45deg; }
article details[open] > summary::after { rotate:225deg; top:22px; }
article details > :not(summary) { margin-left:18px; margin-right:18px; }
article details[open] { padding-bottom:14px; }
article h3 { display:inline; font-size:1.03rem; line-height:1.45; overflow-wrap:anywhere; }
.pill { display:inline-block; background:var(--tint); color:var(--tone); border-radius:99px; padding:1px
  10px; font-size:.8rem; font-weight:600; margin-right:6px; white-space:nowrap; }
.id { margin-block:-4px 0; color:var(--dim); font-size:.9rem; }
table { border-collapse:collapse; }
caption { text-align:left; }
.because { width:calc(100% - 36px); margin-block:12px 4px; background:var(--code); border-radius:8px; }
.because caption, .details dt { color:var(--dim); font-size:.82rem; padding:0 0 3px; font-weight:400; }
.because th, .because td { text-align:left; font-weight:400; padding:3px 12px; vertical-align:top;
  overflow-wrap:anywhere; }
.because tr:first-child > * { padding-top:9px; }
.because tr:last-child > * { padding-bottom:9px; }
.because th { width:30%; }
.because td:nth-child(2) { width:30%; font-weight:600; }
.source { color:var(--dim); }
.details { margin-block:10px 0; }
.at { margin-block:8px 0; color:var(--dim); }
.at pre { white-space:pre; color:var(--ink); }
.details > div { display:grid; grid-template-columns:74px minmax(0,1fr); gap:2px 10px; padding:4px 0; }
.details dt { padding-top:2px; }
.details dd { margin:0; min-width:0; }
.details p { margin:0; overflow-wrap:anywhere; }
.details .known p { font-size:.86rem; color:var(--dim); }
.details .why p { max-width:86ch; }
pre { margin:5px 0 3px; background:var(--code); border-radius:8px; padding:8px 12px; overflow-x:auto;
  white-space:pre-wrap; overflow-wrap:anywhere; user-select:all; }
.fine { border:1px solid var(--line); border-left:4px solid var(--tone); border-radius:10px;
  background:var(--panel); margin:0; padding:12px 18px; }
.waiting { color:var(--dim); font-size:.9rem; margin-top:22px; overflow-wrap:anywhere; }
.waiting p { margin:0; }
.waiting ul { margin:4px 0 0; padding-left:20px; }
.all { margin:14px 0 0; border:1px solid var(--line); border-radius:10px; background:var(--panel); }
.all + .all { margin-top:10px; }
.all[open] > summary { border-bottom:1px solid var(--line); }
summary { cursor:pointer; padding:10px 16px; font-weight:600; }
.dim { color:var(--dim); font-weight:400; }
.all > p { padding:0 16px; }
.scroll { overflow-x:auto; }
.all table, .plan { width:100%; }
.all th, .all td { text-align:left; font-weight:400; padding:4px 16px; border-top:1px solid var(--line);
  vertical-align:top; overflow-wrap:anywhere; }
.all tr:first-child > * { border-top:0; }
.plan { border:1px solid var(--line); background:var(--panel); }
.plan th, .plan td { text-align:left; padding:7px 12px; border-top:1px solid var(--line);
  vertical-align:top; font-size:.88rem; }
.plan thead th { color:var(--dim); font:inherit; font-size:.82rem; border-top:0; }
footer { color:var(--dim); font-size:.8rem; padding-top:26px; padding-bottom:34px; overflow-wrap:anywhere;
  }
@media (max-width:820px) {
  header, main, footer { padding-left:16px; padding-right:16px; }
  svg.wide { display:none; }
  svg.tall { display:block; }
  .overview dl > div { grid-template-columns:1fr; }
  .overview dt { padding-bottom:0; }
  .overview dd { padding:0 14px 9px calc(14px + 1.5em); }
  .because, .because tbody, .because tr, .because th, .because td, .because caption { display:block;
    width:auto !important; }
  .because th { padding-bottom:0; }
  .because tr > * { padding-top:0 !important; padding-bottom:0 !important; }
  .because tr { padding:7px 0; }
  .details > div { grid-template-columns:1fr; }
}
@media (prefers-reduced-motion: no-preference) {
  html { scroll-behavior:smooth; }
}
@media print {
  :root { --page:#fff; --ink:#000; --dim:#444; --line:#bbb; --panel:#fff; --code:#f4f4f4; --link:#000;
    --error:#a3150e; --warning:#7a4600; --unknown:#51348f; --note:#0b5570; --ok:#1c5c37; --none:#444;
    --error-bg:#fdf1ef; --warning-bg:#fcf5e6; --unknown-bg:#f5f1fc; --note-bg:#eef6f9; --ok-bg:#eff7f1;
    --none-bg:#f4f4f4; --on:#fff; }
  body { font-size:11px; -webkit-print-color-adjust:exact; print-color-adjust:exact; }
  header, main, footer { max-width:none; padding:0; }
  #filter, .all { display:none !important; }
  svg.wide { display:block; }
  svg.tall { display:none; }
  article, figure, .overview { break-inside:avoid; }
  article { box-shadow:none !important; }
  a { text-decoration:none; }
  article details::details-content { content-visibility:visible; display:block; }
  article summary::after { display:none; }
}
"""

_SCRIPT = """
"use strict";
(() => {
  const form = document.getElementById("filter");
  if (!form) return;
  const articles = [...document.querySelectorAll("article")], left = document.getElementById("left");
  const words = articles.map((each) => each.textContent.toLowerCase());
  const apply = () => {
    const asked = form.q.value.toLowerCase().split(/\\s+/).filter(Boolean);
    const marks = new Set([...form.querySelectorAll("[name=mark]:checked")].map((each) => each.value));
    let shown = 0;
    articles.forEach((each, i) => {
      each.hidden = !marks.has(each.dataset.mark) || !asked.every((word) => words[i].includes(word));
      shown += !each.hidden;
    });
    left.textContent = shown === articles.length ? "" : `${shown} / ${articles.length}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A link of the picture leads to a finding that may be filtered away.
  addEventListener("hashchange", () => {
    const wanted = document.getElementById(location.hash.slice(1));
    if (wanted && wanted.hidden) { form.reset(); apply(); wanted.scrollIntoView(); }
  });
  form.hidden = false;
  apply();
})();
"""
