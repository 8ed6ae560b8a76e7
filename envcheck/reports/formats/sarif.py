"""The report as SARIF 2.1.0 (an OASIS standard): one result for each finding, at its line if that is known.

Section numbers refer to the standard with errata 01.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from envcheck.core.errors import Place
from envcheck.core.findings import Diagnostic, Evidence, Finding, Report, Verdict
from envcheck.core.rules import Rule
from envcheck.core.sanitize import inline
from envcheck.reports.details import detail_line, details, diagnostic_details, heading
from envcheck.reports.findings import place_of
from envcheck.reports.formats.markdown import link, prose

SUFFIXES = (".sarif", ".sarif.json")

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ENVIRONMENT = "ENVIRONMENT"  # the base of the paths of installed files
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def render(report: Report) -> str:
    """Return the SARIF text; ASCII only."""
    return json.dumps(_log(report), indent=2) + "\n"


def _log(report: Report) -> dict[str, Any]:
    findings = report.judgement.findings
    rules = {finding.rule.id: finding.rule for finding in findings}
    codes = dict.fromkeys(diagnostic.code for diagnostic in report.diagnostics)
    ids = [*rules, *(f"configuration/{code}" for code in codes)]
    driver = {
        "name": "envcheck",
        "version": report.version,
        "rules": [
            *(_rule(rule, report) for rule in rules.values()),
            *({"id": f"configuration/{code}", "name": code} for code in codes),
        ],
        "properties": {"matrix": report.matrix.updated, "digest": report.matrix.digest},
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ENVIRONMENT: {"description": {"text": _message(report.subject)}}},
        "automationDetails": {"id": "envcheck/"},
        "invocations": [
            {
                "executionSuccessful": not report.nothing_to_judge,
                "toolExecutionNotifications": _notifications(report),
            }
        ],
        "results": [
            _diagnostic(each, ids.index(f"configuration/{each.code}"), report)
            if isinstance(each, Diagnostic)
            else _result(each, ids.index(each.rule.id), report)
            for each in report.reported
        ],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _notifications(report: Report) -> list[dict[str, Any]]:
    if not report.nothing_to_judge:
        return []
    return [{"level": "error", "message": {"text": _message(report.nothing_to_judge)}}]


def _rule(rule: Rule, report: Report) -> dict[str, Any]:
    title = report.language.title(rule.id, rule.title)
    why = report.language.why(rule.id, rule.why)
    web = [source.url for source in rule.sources if source.url.startswith(("https://", "http://"))]
    sources = "\n".join(f"- {link(source.url)}" for source in rule.sources)
    return {
        "id": rule.id,
        "shortDescription": {"text": _message(title)},
        "fullDescription": {"text": _message(why or title)},
        "help": {
            "text": _message("\n".join((why or title, *(source.url for source in rule.sources)))),
            "markdown": f"{prose(why or title)}\n\n{sources}\n",
        },
        **({"helpUri": _uri(web[0], ":?=&#%")} if web else {}),
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"basis": rule.basis.value, "tags": [rule.group]},
    }


def _result(finding: Finding, index: int, report: Report) -> dict[str, Any]:
    _, word, title = heading(finding, report.language)
    lines = [inline(title), *map(detail_line, details(finding, report))]
    undecided = finding.verdict is Verdict.UNDECIDED
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        # 3.27.9: a result that could not be decided is `open` and has no level.
        "kind": "open" if undecided else "fail",
        "level": "none" if undecided else finding.severity.value,
        "message": {"text": _message("\n".join(lines))},
        "locations": [_location(finding, report)],
        "partialFingerprints": {"rule/v1": finding.rule.id},
        "properties": {"verdict": word, "because": [_fact_name(each) for each in finding.evidence]},
    }


def _diagnostic(diagnostic: Diagnostic, index: int, report: Report) -> dict[str, Any]:
    lang = report.language
    lines = [inline(lang.translate(diagnostic.text)), *map(detail_line, diagnostic_details(diagnostic, lang))]
    first, *others = [_physical(place) for place in diagnostic.places] or [{}]
    return {
        "ruleId": f"configuration/{diagnostic.code}",
        "ruleIndex": index,
        "kind": "fail",
        "level": diagnostic.severity.value,
        "message": {"text": _message("\n".join(lines))},
        "locations": [{"physicalLocation": first}] if first else [],
        "relatedLocations": [
            {"id": number, "physicalLocation": each} for number, each in enumerate(others, 1)
        ],
        "partialFingerprints": {"rule/v1": f"{diagnostic.code}: {diagnostic.text}"},
    }


def _fact_name(evidence: Evidence) -> str:
    key = evidence.fact.key
    return key if evidence.device is None else key.replace("gpu.", f"gpu[{evidence.device}].", 1)


def _location(finding: Finding, report: Report) -> dict[str, Any]:
    """Return the facts by name, with the line of the user's own file, or else an installed package's file."""
    logical = [
        {"fullyQualifiedName": _message(_fact_name(each)), "kind": "resource"} for each in finding.evidence
    ] or [{"fullyQualifiedName": finding.rule.id, "kind": "resource"}]
    found: dict[str, Any] = {"logicalLocations": _distinct(logical)}
    place = place_of(finding, report)
    if place is not None:
        found["physicalLocation"] = _physical(place)
    else:
        installed = [each.fact.source for each in finding.evidence if each.fact.source.endswith(".dist-info")]
        if installed:
            artifact = {"uri": f"{_uri(installed[0])}/METADATA", "uriBaseId": _ENVIRONMENT}
            found["physicalLocation"] = {"artifactLocation": artifact}
    return found


def _physical(place: Place) -> dict[str, Any]:
    end = place.column + place.length if place.column else 0
    region = {"startLine": place.line, "startColumn": place.column, "endColumn": end}
    known = {name: number for name, number in region.items() if number}
    uri = f"file://{_uri(place.file)}" if place.file.startswith("/") else _uri(place.file)
    return {"artifactLocation": {"uri": uri}, **({"region": known} if place.line else {})}


def _distinct(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [row for number, row in enumerate(rows) if row not in rows[:number]]


def _message(text: str) -> str:
    """Escape a plain text message so that it has no placeholder (3.11.5) or embedded link (3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _uri(text: str, more: str = "") -> str:
    """Return a path as a URI reference (RFC 3986); reserved characters not in `more` become %XX."""
    allowed = _UNRESERVED | frozenset(more.encode())
    return "".join(
        chr(byte) if byte in allowed else f"%{byte:02X}" for byte in text.encode("utf-8", "replace")
    )
