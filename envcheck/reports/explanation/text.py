"""The explanation of a log as text: the answer in one line, then the reasons. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.findings import Verbosity
from envcheck.core.sanitize import inline
from envcheck.logs.clashes import OFFERS, excluding_pair, what_is_asked
from envcheck.logs.diagnosis import Cause
from envcheck.logs.events import Log
from envcheck.reports.explanation.cause import cause_lines, consequence_lines, requirements_of_installer
from envcheck.reports.explanation.known import (
    brief_text,
    known_headline,
    known_lines,
    lines_on_versions,
    match_here,
    may_be_the_cause,
    names_a_cause,
    of_the_cause,
    ranked,
    title_of_match,
)
from envcheck.reports.explanation.missing import missing_sentence
from envcheck.reports.explanation.model import UNEXPLAINED, Explanation
from envcheck.reports.explanation.offers import offer_sentence
from envcheck.reports.explanation.waiting import waiting_sentence
from envcheck.reports.explanation.wording import LISTED, SHORT, event_text, place_in_log, with_version
from envcheck.reports.library_answer import is_stated
from envcheck.reports.phrases import diagnostic_line


def render(explanation: Explanation, verbosity: Verbosity = Verbosity.USUAL) -> str:
    """Return the report as text: the answer in one line, then the reasons; `verbosity` sets the detail."""
    lines = [_headline(explanation)]
    if verbosity is not Verbosity.VERDICT:
        lines += _lines(explanation, in_full=verbosity is Verbosity.ALL)
    return "".join(f"{inline(line)}\n" for line in lines)


def _headline(explanation: Explanation) -> str:
    """Return the answer: the known failure that the log shows, what failed, or that nothing failed."""
    diagnosis = explanation.diagnosis
    cause = diagnosis.cause
    if not diagnosis.failed:
        return _headline_without_failure(explanation)
    if cause is None:
        first = event_text(diagnosis.consequences[0], SHORT)
        apart = waiting_sentence(explanation.waiting)
        return f"Failed: {apart}" if apart else f"Failed elsewhere; {_ONLY_CONSEQUENCES}: {first}"
    known = ranked(of_the_cause(cause, explanation), explanation)
    if known and cause.match is not None:
        return known_headline(known, cause, explanation)
    if said := _what_was_not_there(cause, explanation):
        return f"Failed: {said}"
    unknown = "" if explanation.code != UNEXPLAINED else ", cause not known"
    unknown = _SEVERAL if cause.kind == "open" else unknown
    return f"Failed{unknown}: {event_text(cause, SHORT)}{_who_has_attribute(explanation)}"


_SEVERAL = "; several causes have this text"
_ONLY_CONSEQUENCES = "this log contains only consequences"


def _what_was_not_there(cause: Cause, explanation: Explanation) -> str:
    """Return the release, name, index or requirement that was not found; empty if that is not the cause."""
    if explanation.offer is not None:
        return offer_sentence(explanation.offer)
    if explanation.missing is not None:
        return missing_sentence(explanation.missing, explanation)
    if cause.match is None and (form := cause.event.form) is not None and form.telling:
        return form.means
    return _requirement_at_fault(cause) if cause.match is None else ""


def _requirement_at_fault(cause: Cause) -> str:
    """Return the first requirement that an installer could not meet, which says more than its first line."""
    absent, clashing = requirements_of_installer(cause)
    if absent:
        return f"no release or wheel of {absent[0]} is offered"
    if not clashing or clashing[0].startswith("asked for"):
        return ""
    if (pair := excluding_pair(clashing)) is not None:
        return "; ".join(pair)
    asked = [each for each in clashing[1:] if what_is_asked(each) != what_is_asked(clashing[0])]
    against = next((each for each in asked if _asks_of_the_same(clashing[0], each)), "")
    offers = (each for each in clashing if each.startswith(OFFERS))
    offered = next((each for each in offers if _asks_of_the_same(clashing[0], each)), "")
    return "; ".join(filter(None, (clashing[0], against, offered)))


def _asks_of_the_same(requirement: str, other: str) -> bool:
    """Return whether two of an installer's requirements bound the same package."""
    one, two = (re.match(r"[\w.-]+", what_is_asked(each)) for each in (requirement, other))
    return (
        one is not None and two is not None and one[0] == two[0] and re.search(r"[<=>~!]", other) is not None
    )


def _headline_without_failure(explanation: Explanation) -> str:
    if explanation.empty:
        return "The log is empty, which says neither that the run failed nor that it ended well."
    if explanation.diagnosis.remarked:
        return _remark(explanation)
    if explanation.diagnosis.survived:
        return "No failure ended this run: after those below, it trained to its end."
    return f"No failure found in {'what was read' if explanation.notes else 'this log'}."


def _remark(explanation: Explanation) -> str:
    """Return what is said of a run that nothing ended, and whose loss was lost."""
    line = explanation.diagnosis.remarked[0].event.first
    vain = "while it stays so, nothing is learnt"
    return f"No failure found, but the loss is not a number (line {line}): {vain}."


def _remark_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the line that shows that a run goes on in vain, and what to do about it."""
    for cause in explanation.diagnosis.remarked[:1]:
        yield ""
        yield f"! remark  {place_in_log(cause, explanation.log)}: {event_text(cause)}"
        if cause.event.form is not None and cause.event.form.advice:
            yield f"    advice  {cause.event.form.advice}"


def _who_has_attribute(explanation: Explanation) -> str:
    """Return in brackets which releases have the attribute that is missing; empty if that is not known."""
    members = explanation.library.members if explanation.library else ()
    if not members or members[0].has.startswith("(") or members[0].derived:
        return ""
    has = members[0]
    if is_stated(has, explanation.report.inventory):
        return f" ({with_version(has.package, explanation.report)} has it: another release of it ran)"
    return f" ({has.package} has it: {has.releases})"


def _lines(explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield the lines after the headline; `in_full` adds reasons, scores and sources."""
    diagnosis = explanation.diagnosis
    if diagnosis.failed:
        if diagnosis.cause is None:
            yield ""
            yield from consequence_lines(explanation)
            known = [match for match in diagnosis.matches if names_a_cause(match)]
            yield from known_lines(known, explanation, in_full=in_full)
        else:
            yield from cause_lines(diagnosis.cause, explanation, in_full=in_full)
    yield from _remark_lines(explanation)
    yield from _others(explanation)
    if diagnosis.failed:
        yield from lines_on_versions(explanation)
    if (
        diagnosis.failed
        and explanation.code == UNEXPLAINED
        and not (diagnosis.cause and diagnosis.cause.match)
    ):
        yield from _where_to_look(explanation)
    yield ""
    yield f"judged  {explanation.subject}"
    yield f"log     {explanation.name}: {_size(explanation.log)}  envcheck {explanation.report.version}"
    for note in explanation.notes:
        yield f"note    {note}"
    if (platform := explanation.platform) is not None:
        yield f"log of  {platform.name} (line {platform.line}): not compared with failures of CUDA"
    for diagnostic in explanation.report.diagnostics:
        yield f"remark  {diagnostic_line(diagnostic)}"


def _where_to_look(explanation: Explanation) -> Iterator[str]:
    """Yield what to look at if the cause is not known."""
    yield ""
    if any(may_be_the_cause(match, explanation) for match in explanation.diagnosis.matches):
        yield "One of the known failures above may be the cause."
    if package := explanation.failed_in:
        yield f"The line that failed is in {package}: its newest release or its issues may know it."
    yield "No known failure matches; envcheck doctor judges environment and configuration."


def _size(log: Log) -> str:
    size = f"{log.size / 1e6:.1f} MB" if log.size >= 1e6 else f"{log.size / 1e3:.1f} kB"  # noqa: PLR2004
    return f"{log.lines} line{'s' * (log.lines != 1)}, {size}"


def _others(explanation: Explanation) -> Iterator[str]:
    diagnosis = explanation.diagnosis
    shown = 0 if diagnosis.cause else 1  # the first one is told above
    for title, causes in (
        ("consequences", diagnosis.consequences[shown:]),
        ("failures after which the run continued", diagnosis.survived),
        ("not known to belong to it", diagnosis.apart),
    ):
        if causes:
            yield ""
            yield f"{title}:"
            yield from (
                f"  {place_in_log(one, explanation.log)}: {brief_text(one, explanation)}"
                for one in causes[:LISTED]
            )
            if len(causes) > LISTED:
                yield f"  and {len(causes) - LISTED} more"
    cause_index = explanation.log.events.index(diagnosis.cause.event) if diagnosis.cause else -1
    listed = {one.event.first for one in (*diagnosis.consequences, *diagnosis.survived, *diagnosis.apart)}
    rest = [
        match
        for match in diagnosis.matches
        if match.event != cause_index
        and explanation.log.events[match.event].first not in listed
        and names_a_cause(match)
    ]
    if rest and diagnosis.cause:
        yield ""
        yield "known failures elsewhere in the log:"
        for match in rest[:LISTED]:
            answer = {
                "yes": "it applies here",
                "no": "does not apply here",
                "unknown": "unknown whether it applies here",
            }
            here = answer.get(match_here(match, explanation).answer, "by its text")
            name = match.signature.rule or match.signature.case
            yield f"  line {match.lines[0]}: {title_of_match(match, explanation)} [{name}]; {here}"
