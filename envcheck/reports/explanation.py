"""The report of `envcheck explain`: the first cause, what is known of it, whether that holds here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import Fact
from envcheck.core.findings import Report
from envcheck.core.rules import Fix, Rule
from envcheck.core.sanitize import hide_secrets, inline
from envcheck.knowledge.log_signatures import KINDS
from envcheck.logs.diagnosis import Cause, Diagnosis, Fit, Match, own_code
from envcheck.logs.events import Frame, Log
from envcheck.reports.formats.json import remark_tree
from envcheck.reports.render import fix_commands, fix_text, moved_with, remark_line

SCHEMA_VERSION = 1

NOTHING, FAILED, UNEXPLAINED = 0, 1, 3
"""Exit codes: no failure in the log; one that is explained; one that nothing known explains."""

_SHORT, _LONG = 160, 400  # characters of one line of a log that are shown
_LISTED = 6


class Explanation(NamedTuple):
    """A log, what it comes to, and how that fits an environment.

    `subject` says in words what was judged; `report` holds its inventory and the knowledge. `fits` are by
    case. `notes` say what of the log could not be read. `printed` are facts taken from the log itself.
    """

    name: str
    log: Log
    diagnosis: Diagnosis
    subject: str
    report: Report
    fits: Mapping[str, Fit]
    notes: tuple[str, ...] = ()
    printed: tuple[Fact, ...] = ()

    @property
    def code(self) -> int:
        """The exit code."""
        if not self.diagnosis.failed:
            return NOTHING
        cause = self.diagnosis.cause
        return FAILED if cause and cause.kind != "unknown" else UNEXPLAINED


# --- for people ---------------------------------------------------------------------------------------


def render(each: Explanation) -> str:
    """The report as text."""
    return "".join(f"{inline(line)}\n" for line in _lines(each))


def _lines(each: Explanation) -> Iterator[str]:
    diagnosis = each.diagnosis
    yield f"envcheck {each.report.version}  {each.name}: {_size(each.log)}"
    yield f"judged  {each.subject}"
    for note in each.notes:
        yield f"note    {note}"
    for remark in each.report.diagnostics:
        yield f"remark  {remark_line(remark)}"
    yield ""
    if not diagnosis.failed:
        yield "No failure found in this log." if not each.notes else "No failure found in what was read."
    elif diagnosis.cause is None:
        yield "Only what follows from a failure elsewhere: the log of the rank that failed first says why."
    else:
        yield from _cause(diagnosis.cause, each)
    if diagnosis.cause is None:
        yield from _known([match for match in diagnosis.matches if _tells(match)], each)
    yield from _others(each)
    if diagnosis.failed and each.code == UNEXPLAINED:
        yield ""
        if any(map(_tells, diagnosis.matches)):
            yield "What is known above may lie behind the failure."
        yield "No known failure reads like this; envcheck doctor judges environment and configuration."


def _size(log: Log) -> str:
    size = f"{log.size / 1e6:.1f} MB" if log.size >= 1e6 else f"{log.size / 1e3:.1f} kB"  # noqa: PLR2004
    return f"{log.lines} line{'s' * (log.lines != 1)}, {size}"


def _cause(cause: Cause, each: Explanation) -> Iterator[str]:
    yield f"✗ first cause  {_where(cause, each.log)}: {said(cause)}"
    raised = cause.event.exceptions
    if cause.place:
        yield f"    raised  {place(cause.place)}"
    if len(raised) > 1:
        yield f"    became  {' → '.join(dict.fromkeys(_bare(one.name) for one in raised[1:]))}"
    if cause.event.times > max(1, len(cause.event.ranks)):
        yield f"    again   {cause.event.times} times, last in line {cause.event.again}"
    yield f"    kind    {_kind(cause)}"
    home = each.log.events.index(cause.event)
    yield from _known([match for match in each.diagnosis.matches if match.event == home], each)
    if cause.match is None and each.diagnosis.partial:
        yield from _resembling(each)


def _kind(cause: Cause) -> str:
    if cause.kind == "code" and cause.match is None:
        return "raised by a line of your own code"
    if cause.kind != "unknown":
        return KINDS[cause.kind]
    if cause.event.what == "ended":
        return "not known: what the process said before it ended is not here"
    return "not known"


def _known(matches: Sequence[Match], each: Explanation) -> Iterator[str]:
    """What is known of the matches; several cases of one rule are one."""
    shown: set[str] = set()
    for match in sorted(matches, key=lambda one: (_RANKED[_fit(one, each).answer], -one.score, one.lines)):
        name = match.signature.rule or match.signature.case
        if name in shown:
            continue
        shown.add(name)
        yield from _match(match, each)


_RANKED = {"yes": 0, "text": 1, "unknown": 1, "no": 2}  # where nothing decides, the text does


def _fit(match: Match, each: Explanation) -> Fit:
    return each.fits.get(match.signature.case, Fit("text"))


def _match(match: Match, each: Explanation) -> Iterator[str]:
    rule = each.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    fit = _fit(match, each)
    title = rule.title if rule else match.signature.title
    lines = ", ".join(map(str, match.lines[:_LISTED]))
    yield ""
    yield f"  known  {title} [{rule.id if rule else match.signature.case}]"
    yield f"    text    line {lines} (score {match.score:.2f})"
    if fit.answer == "text":
        yield "    here    known by its text; nothing about the environment decides it"
        yield f"    advice  {match.signature.advice}"
        yield from (f"    source  {source['url']}" for source in match.signature.sources[:2])
        return
    yield f"    here    {_here(fit)}"
    if rule is None or fit.answer == "no":
        return
    if rule.why:
        yield f"    why     {rule.why}"
    yield from _ways_out(rule, fit, each)
    yield from (f"    no fix  {fix_text(Fix(vain.set))} ({vain.why})" for vain in rule.no_fixes)
    yield from (f"    source  {rule.basis.value}: {source.url}" for source in rule.sources[:2])


def _here(fit: Fit) -> str:
    because = "; ".join(fit.because)
    if fit.answer == "yes":
        return f"yes: {because}"
    if fit.answer == "no":
        return f"no: {because}. The log reads like it, but it is not so here: its ways out do not apply"
    return f"cannot tell: {because or 'what it depends on'} not known (--facts, --python, --train, --target)"


def _ways_out(rule: Rule, fit: Fit, each: Explanation) -> Iterator[str]:
    if not fit.fixes:
        tried = (
            "none of the known ways out helps here" if fit.answer == "yes" else "depends on what is missing"
        )
        yield f"    fix     {tried if rule.fixes else 'none known'}"
    moved = moved_with(each.report)
    for fix in fit.fixes:
        cost = f" ({fix.cost})" if fix.cost else ""
        untried = "" if fit.answer == "yes" else "if it is so here: "
        yield f"    fix     {untried}{fix_text(fix)}{cost}"
        for command in fix_commands(fix, moved, each.report.inventory):
            yield f"            $ {command}"


def _resembling(each: Explanation) -> Iterator[str]:
    names = dict.fromkeys(one.signature.rule or one.signature.case for one in each.diagnosis.partial)
    listed = ", ".join([*names][:_LISTED])
    yield f"    near    a part of what these say is here, not all: {listed} (envcheck rule ID)"


def _others(each: Explanation) -> Iterator[str]:
    diagnosis = each.diagnosis
    for title, causes in (
        ("follows from it", diagnosis.consequences),
        ("the run went on after", diagnosis.survived),
        ("apart from it", diagnosis.apart),
    ):
        if causes:
            yield ""
            yield f"{title}:"
            yield from (f"  {_where(one, each.log)}: {_brief(one)}" for one in causes[:_LISTED])
            if len(causes) > _LISTED:
                yield f"  and {len(causes) - _LISTED} more"
    home = each.log.events.index(diagnosis.cause.event) if diagnosis.cause else -1
    told = {one.event.first for one in (*diagnosis.consequences, *diagnosis.survived, *diagnosis.apart)}
    rest = [
        match
        for match in diagnosis.matches
        if match.event != home and each.log.events[match.event].first not in told and _tells(match)
    ]
    if rest and diagnosis.cause:
        yield ""
        yield "known, but said elsewhere in the log:"
        for match in rest[:_LISTED]:
            answer = {
                "yes": "it is so here",
                "no": "not so here",
                "unknown": "cannot tell whether it is so here",
            }
            fit = answer.get(_fit(match, each).answer, "by its text")
            name = match.signature.rule or match.signature.case
            yield f"  line {match.lines[0]}: {match.signature.title} [{name}]; {fit}"


def _tells(match: Match) -> bool:
    return match.signature.kind != "consequence"


def _where(cause: Cause, each: Log) -> str:
    ranks = cause.event.ranks
    who = "" if not ranks else f"rank {ranks[0]}, " if len(ranks) == 1 else f"ranks {_several(ranks)}, "
    first, last = cause.event.first, cause.event.last
    if first > each.lines:
        return f"{who}the end"
    return f"{who}line {first}" if first == last else f"{who}lines {first}-{last}"


def _several(ranks: Sequence[str]) -> str:
    more = f" and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else ""
    return ", ".join(ranks[:_LISTED]) + more


def said(cause: Cause, limit: int = _LONG) -> str:
    """What an event says, in one line: the exception raised first, or the line that was recognised."""
    event = cause.event
    if event.exceptions:
        first = event.exceptions[0]
        text = f"{first.name}: {first.message}" if first.message else first.name
    elif event.what == "raised":
        text = "a traceback without its end"
    elif event.what == "ended":
        text = " ".join(event.text.split("\n")[0].split())
    elif cause.match:
        texts = dict(zip(event.numbers, event.text.split("\n"), strict=False))
        text = texts.get(cause.match.lines[0], event.text.split("\n")[0]).strip()
    else:
        text = event.text.strip().split("\n")[0]
    text = hide_secrets(text[: 10 * limit])  # a secret that is shown lies in there as a whole
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _brief(cause: Cause) -> str:
    known = f" ({cause.match.signature.title})" if cause.match else ""
    return f"{said(cause, _SHORT)}{known}"


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def place(frame: Frame) -> str:
    """A frame as people say it, from a library's own folder on: `transformers/trainer.py:12 in train`."""
    file = frame.file
    for folder in ("site-packages/", "dist-packages/"):
        file = file.rpartition(folder)[2]
    if file == frame.file and own_code(frame):
        file = file.rpartition("/")[2]
    return f"{file}:{frame.line}" + (f" in {frame.name}" if frame.name else "")


# --- for machines -------------------------------------------------------------------------------------


def tree(each: Explanation) -> dict[str, Any]:
    """The report as JSON; `matches` best first, `lines` are those of the texts."""
    diagnosis = each.diagnosis
    return {
        "schema_version": SCHEMA_VERSION,
        "envcheck": each.report.version,
        "log": {
            "name": each.name,
            "lines": each.log.lines,
            "bytes": each.log.size,
            "notes": list(each.notes),
        },
        "subject": each.subject,
        "remarks": [remark_tree(one) for one in each.report.diagnostics],
        "failed": diagnosis.failed,
        "cause": _cause_tree(diagnosis.cause) if diagnosis.cause else None,
        "consequences": [_cause_tree(one) for one in diagnosis.consequences],
        "survived": [_cause_tree(one) for one in diagnosis.survived],
        "apart": [_cause_tree(one) for one in diagnosis.apart],
        "matches": [_match_tree(one, each) for one in diagnosis.matches],
        "resembles": [_match_tree(one, each) for one in diagnosis.partial],
        "facts_from_log": [
            {"key": fact.key, "value": fact.value, "source": fact.source}
            | {"why": getattr(fact.reading, "why", "")}
            for fact in each.printed
        ],
        "exit_code": each.code,
    }


def _cause_tree(cause: Cause) -> dict[str, Any]:
    event = cause.event
    return {
        "kind": cause.kind,
        "what": event.what,
        "said": said(cause),
        "ranks": list(event.ranks),
        "lines": [event.first, event.last],
        "times": event.times,
        "last_line": event.again,
        "exceptions": [
            {"name": one.name, "message": hide_secrets(one.message)}
            | ({"place": place(one.place)} if one.place else {"place": None})
            for one in event.exceptions
        ],
        "exit_code": event.code,
        "root": event.root,
        "case": cause.match.signature.case if cause.match else None,
        "rule": (cause.match.signature.rule or None) if cause.match else None,
    }


_ANSWERS = {"yes": "yes", "no": "no", "unknown": "cannot tell", "text": None}


def _match_tree(match: Match, each: Explanation) -> dict[str, Any]:
    rule = each.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    fit = _fit(match, each)
    home = each.diagnosis.cause and each.log.events[match.event] is each.diagnosis.cause.event
    return {
        "rule": match.signature.rule or None,
        "case": match.signature.case,
        "title": rule.title if rule else match.signature.title,
        "kind": match.signature.kind,
        "score": match.score,
        "of_the_cause": bool(home),
        "fits_here": _ANSWERS[fit.answer],
        "because": list(fit.because),
        "lines": list(match.lines),
        "fix": [] if fit.answer == "no" else [_fix_tree(fix, fit, each) for fix in fit.fixes],
        "no_fix": [{"set": dict(vain.set), "why": vain.why} for vain in rule.no_fixes] if rule else [],
        "advice": match.signature.advice or None,
        "sources": _sources(match, rule),
    }


def _fix_tree(fix: Fix, fit: Fit, each: Explanation) -> dict[str, Any]:
    return {
        "text": fix_text(fix),
        "set": dict(fix.set),
        "cost": fix.cost,
        "tried": fit.answer == "yes",
        "commands": list(fix_commands(fix, moved_with(each.report), each.report.inventory)),
    }


def _sources(match: Match, rule: Rule | None) -> list[dict[str, str]]:
    if rule is not None:
        return [{"url": one.url, "kind": one.kind, "checked": one.checked} for one in rule.sources]
    return [{**one} for one in match.signature.sources]
