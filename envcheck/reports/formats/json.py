"""The report as JSON: one object. Within a `schema_version`, fields are added but never removed."""

from __future__ import annotations

import json
from typing import Any

from envcheck.core import facts_file
from envcheck.core.errors import Place
from envcheck.core.facts import Known
from envcheck.core.findings import Diagnostic, Evidence, Finding, Plan, Report, Verdict
from envcheck.core.i18n import ENGLISH
from envcheck.core.rules import Severity
from envcheck.reports.findings import place_of
from envcheck.reports.headline import headline
from envcheck.reports.phrases import fix_commands
from envcheck.rules.fix_words import fix_text
from envcheck.rules.judge import area

SCHEMA_VERSION = 1
SUFFIXES = (".json",)


def render(report: Report) -> str:
    """Return the JSON text; ASCII only, so that nothing in it can control a terminal."""
    return json.dumps(_tree(report), indent=2) + "\n"


def _tree(report: Report) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "answer": headline(report._replace(language=ENGLISH)).text,
        "envcheck": report.version,
        "matrix": {
            "updated": report.matrix.updated,
            "digest": report.matrix.digest,
            "overlays": [origin._asdict() for origin in report.matrix.origins],
        },
        "subject": report.subject,
        "target": report.target.name if report.target else None,
        "measured": _measured(report),
        "nothing_to_judge": report.nothing_to_judge or None,
        "facts": facts_file.dump(report.inventory),
        "remarks": [diagnostic_tree(each) for each in report.diagnostics],
        "findings": [
            _finding(each, report) for each in (*report.judgement.findings, *report.judgement.conditional)
        ],
        "waiting": [
            {
                "rule": each.rule.id,
                "for": each.reason,
                "open": [{"key": clause.key, "is": clause.raw} for clause in each.open],
            }
            for each in report.judgement.waiting
        ],
        "summary": _summary(report),
        **({"fix": _plan(report.plan, report)} if report.plan is not None else {}),
    }


def _plan(plan: Plan, report: Report) -> dict[str, Any]:
    """Return the smallest change; `proved` is null or `fewest` if the search was cut short: see `Plan`."""
    from envcheck.reports.plan_steps import (  # few reports have a plan
        configuration_changes,
        move_name,
        plan_commands,
        plan_notes,
    )

    return {
        "level": plan.level.value,
        "moves": [
            {
                "what": move_name(move),
                "key": move.key,
                "now": list(move.before) if isinstance(move.before, tuple) else move.before,
                "then": list(move.after) if isinstance(move.after, tuple) else move.after,
                "bound": move.bound,
                "rules": [rule.id for rule in move.rules],
                "cost": move.cost,
                "moves_with": move.leader or None,
                "unchecked": move.unchecked,
                "administrator": move.administrator,
            }
            for move in plan.moves
        ],
        "commands": list(plan_commands(plan, report)),
        "configuration": [
            {"set": line, "now_from": source, "argument": argument}
            for line, source, argument in configuration_changes(plan, report)
        ],
        "notes": list(plan_notes(plan, report)),
        "not_mended": [{"rule": each.rule.id, "why": each.why} for each in plan.unresolved],
        "adds": list(plan.added),
        "brings": [rule.id for rule in plan.brings],
        "proved": plan.proved or None,
    }


def _measured(report: Report) -> dict[str, Any] | None:
    """Return the nearest measured combination; if it has no differences, exactly this one was run."""
    if report.measured is None:
        return None
    cell = report.measured.cell
    return {
        "target": cell.target,
        "date": cell.date,
        "device": cell.device,
        "pkg": dict(cell.pkg),
        "differences": [
            {"package": name, "here": here, "there": there}
            for name, here, there in report.measured.differences
        ],
    }


def _summary(report: Report) -> dict[str, Any]:
    judgement = report.judgement
    waiting: dict[str, int] = {}
    for each in judgement.waiting:
        waiting[each.reason] = waiting.get(each.reason, 0) + 1
    return {
        "rules_held": judgement.passed + len(judgement.findings) + len(judgement.waiting),
        "rules_applied": judgement.applied,
        "broken": {each.value: judgement.tally(Verdict.BROKEN, each) for each in Severity},
        "undecided": judgement.tally(Verdict.UNDECIDED),
        "waiting": waiting,
    }


def diagnostic_tree(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic of a configuration; line 0 stands for the file as a whole."""
    places = [_place(each) for each in diagnostic.places]
    return {
        "severity": diagnostic.severity.value,
        "code": diagnostic.code,
        "text": diagnostic.text,
        "places": places,
        "advice": diagnostic.advice,
        "source": diagnostic.source,
    }


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    place = place_of(finding, report) if finding.decided else finding.place
    return {
        "rule": finding.rule.id,
        "severity": finding.severity.value if finding.decided else "none",
        "would_be": finding.severity.value,
        "verdict": finding.verdict.value,
        "if": _conditions(finding),
        "area": area(finding.rule, finding.evidence),
        "title": finding.rule.title,
        "why": finding.rule.why,
        "basis": finding.rule.basis.value,
        "from": finding.rule.group,
        "note": finding.note,
        "place": None if place is None else _place(place),
        "devices": list(finding.devices),
        "because": [_evidence(each, report) for each in finding.evidence],
        "fix": [
            {
                "text": fix_text(fix),
                "set": dict(fix.set),
                "cost": "; ".join(each for each in (fix.cost, fix.conflict) if each),
                "commands": list(fix_commands(fix, report)),
            }
            for fix in finding.fixes
        ],
        "no_fix": [
            {"set": dict(useless.set), "why": useless.why, "source": useless.source}
            for useless in finding.rule.no_fixes
        ],
        "sources": [
            {"url": source.url, "kind": source.kind, "checked": source.checked}
            for source in finding.rule.sources
        ],
    }


def _conditions(finding: Finding) -> dict[str, Any] | None:
    """Return the conditions under which a conditional finding applies; None for any other finding."""
    if not finding.conditions:
        return None
    from envcheck.reports.conditions import finding_conditions  # not every report has one

    return {
        "text": finding_conditions(finding, ENGLISH, every=True),
        "open": [{"key": clause.key, "is": clause.raw} for clause in finding.conditions],
    }


def _evidence(evidence: Evidence, report: Report) -> dict[str, Any]:
    reading = evidence.fact.reading
    value: Any = None
    if isinstance(reading, Known):
        value = list(reading.value) if isinstance(reading.value, tuple) else reading.value
    place = report.places.get(evidence.fact.key)
    return {
        "key": evidence.fact.key,
        "value": value,
        "state": type(reading).__name__.lower(),
        "why": getattr(reading, "why", ""),
        "source": evidence.fact.source,
        "device": evidence.device,
        "note": evidence.note,
        "place": None if place is None else _place(place),
    }


def _place(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "column": place.column, "length": place.length}
