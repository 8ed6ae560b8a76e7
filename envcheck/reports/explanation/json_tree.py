"""The explanation of a log as the tree of its JSON report. Pure."""

from __future__ import annotations

from typing import Any

from envcheck.core.findings import Verbosity
from envcheck.core.rules import Fix, Rule
from envcheck.core.sanitize import hide_secrets
from envcheck.logs.clashes import clashing_requirements
from envcheck.logs.diagnosis import Cause, Match
from envcheck.logs.environment_match import EnvironmentMatch
from envcheck.logs.pip_offers import PipOffer
from envcheck.reports.explanation.known import match_here
from envcheck.reports.explanation.model import Explanation, MissingAnswer
from envcheck.reports.explanation.text import render
from envcheck.reports.explanation.wording import event_text, frame_text
from envcheck.reports.formats.json import diagnostic_tree
from envcheck.reports.library_answer import library_tree
from envcheck.reports.phrases import fix_commands
from envcheck.rules.fix_words import fix_text

SCHEMA_VERSION = 1


def tree(explanation: Explanation) -> dict[str, Any]:
    """Return the tree of the JSON report; `matches` has the best first, each with the lines of its texts."""
    diagnosis = explanation.diagnosis
    return {
        "schema_version": SCHEMA_VERSION,
        "envcheck": explanation.report.version,
        "log": {
            "name": explanation.name,
            "lines": explanation.log.lines,
            "bytes": explanation.log.size,
            "notes": list(explanation.notes),
        },
        "subject": explanation.subject,
        "platform": explanation.platform.name if explanation.platform else None,
        "missing": _missing_tree(explanation.missing) if explanation.missing else None,
        "probable": [found.rule.id for found in explanation.probable],
        "library": library_tree(explanation.library) if explanation.library else None,
        "offer": _offer_tree(explanation.offer) if explanation.offer else None,
        "waiting": [each._asdict() for each in explanation.waiting],
        "near_options": [each._asdict() for each in explanation.near],
        "remarks": [diagnostic_tree(one) for one in explanation.report.diagnostics],
        "failed": diagnosis.failed,
        "answer": _answer_tree(explanation),
        "cause": _cause_tree(diagnosis.cause) if diagnosis.cause else None,
        "consequences": [_cause_tree(one) for one in diagnosis.consequences],
        "survived": [_cause_tree(one) for one in diagnosis.survived],
        "apart": [_cause_tree(one) for one in diagnosis.apart],
        "remarked": [_cause_tree(one) for one in diagnosis.remarked],
        "matches": [_match_tree(one, explanation) for one in diagnosis.matches],
        "resembles": [_match_tree(one, explanation) for one in diagnosis.partial],
        "facts_from_log": [
            {"key": fact.key, "value": fact.value, "source": fact.source}
            | {"why": getattr(fact.reading, "why", "")}
            for fact in explanation.printed
        ],
        "exit_code": explanation.code,
    }


_LABEL = 8
"""Characters of a label and the spaces behind it, in a line of the text report."""

_MARGIN = "    "


def _answer_tree(explanation: Explanation) -> dict[str, Any]:
    """Return what the text report says: its first line, and each line below it by its label.

    So nothing that a person reads is missing for a program, whatever reading it comes from.
    """
    headline, *lines = render(explanation, Verbosity.ALL).splitlines()
    said: list[dict[str, str]] = []
    for line in lines:
        label = line.removeprefix(_MARGIN)[:_LABEL]
        if not line.startswith(_MARGIN):
            continue
        text = line[len(_MARGIN) + _LABEL :].strip()
        if label.strip():
            said.append({"label": label.strip(), "text": text})
        elif said:  # a line that goes on
            said[-1]["text"] += f" {text}"
    return {"headline": headline, "lines": said}


def _offer_tree(offer: PipOffer) -> dict[str, Any]:
    return {
        "package": offer.name,
        "version": offer.version,
        "offered": list(offer.offered),
        "position": offer.position.value,
        "label": offer.label or None,
        "labels": list(offer.labels),
        "required_by": offer.required_by or None,
    }


def _missing_tree(answer: MissingAnswer) -> dict[str, Any]:
    missing = answer.missing
    return {
        "kind": missing.kind,
        "name": missing.name,
        "module": missing.module,
        "lacks": missing.lacks or None,
        "asks": missing.asks or None,
        "rules": [rule.id for rule in answer.rules],
        "in_releases": answer.published.answer.value,
        "releases": answer.published.words or None,
        "elsewhere": list(answer.elsewhere),
    }


def _cause_tree(cause: Cause) -> dict[str, Any]:
    event = cause.event
    return {
        "kind": cause.kind,
        "what": "said" if event.what == "stated" else event.what,
        "said": event_text(cause),
        "ranks": list(event.ranks),
        "lines": [event.first, event.last],
        "times": event.times,
        "last_line": event.again,
        "exceptions": [
            {"name": one.name, "message": hide_secrets(one.message)}
            | ({"place": frame_text(one.place)} if one.place else {"place": None})
            for one in event.exceptions
        ],
        "exit_code": event.code,
        "clash": list(clashing_requirements(hide_secrets(event.text))) if event.form else [],
        "means": (event.form.means if event.form else "") or None,
        "advice": (event.form.advice if event.form else "") or None,
        "general": f"{event.general.means}. {event.general.advice}" if event.general else None,
        "place": frame_text(cause.place) if cause.place else None,
        "root": event.root,
        "case": cause.match.signature.case if cause.match else None,
        "rule": (cause.match.signature.rule or None) if cause.match else None,
    }


_ANSWERS = {"yes": "yes", "no": "no", "unknown": "cannot tell", "text": None}


def _match_tree(match: Match, explanation: Explanation) -> dict[str, Any]:
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    here = match_here(match, explanation)
    cause = explanation.diagnosis.cause
    is_of_the_cause = cause is not None and explanation.log.events[match.event] is cause.event
    return {
        "rule": match.signature.rule or None,
        "case": match.signature.case,
        "title": rule.title if rule else match.signature.title,
        "kind": match.signature.kind,
        "score": match.score,
        "of_the_cause": is_of_the_cause,
        "fits_here": _ANSWERS[here.answer],
        "because": list(here.because),
        "lines": list(match.lines),
        "fix": [] if here.answer == "no" else [_fix_tree(fix, here, explanation) for fix in here.fixes],
        "no_fix": [{"set": dict(useless.set), "why": useless.why} for useless in rule.no_fixes]
        if rule
        else [],
        "advice": match.signature.advice or None,
        "sources": _sources(match, rule),
    }


def _fix_tree(fix: Fix, here: EnvironmentMatch, explanation: Explanation) -> dict[str, Any]:
    return {
        "text": fix_text(fix),
        "set": dict(fix.set),
        "cost": fix.cost,
        "tried": here.answer == "yes",
        "commands": list(fix_commands(fix, explanation.report)),
    }


def _sources(match: Match, rule: Rule | None) -> list[dict[str, str]]:
    if rule is not None:
        return [{"url": one.url, "kind": one.kind, "checked": one.checked} for one in rule.sources]
    return [{**one} for one in match.signature.sources]
