"""The report as SARIF 2.1.0 (an OASIS standard): a result a finding, at its line where one is known.

Section numbers are those of the standard with errata 01.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from envcheck.core.errors import Place
from envcheck.core.findings import Diagnostic, Evidence, Finding, Report, Verdict
from envcheck.core.rules import Rule
from envcheck.core.sanitize import inline
from envcheck.reports.formats.markdown import link, prose
from envcheck.reports.formats.text import details, heading, line, remark_details
from envcheck.reports.render import place_of

SUFFIXES = (".sarif", ".sarif.json")

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ENVIRONMENT = "ENVIRONMENT"  # what the paths of installed files are relative to
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def render(report: Report) -> str:
    """The SARIF text; ASCII only."""
    return json.dumps(_log(report), indent=2) + "\n"


def _log(report: Report) -> dict[str, Any]:
    findings = report.judgement.findings
    rules = {finding.rule.id: finding.rule for finding in findings}
    codes = dict.fromkeys(remark.code for remark in report.diagnostics)
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
            _remark(each, ids.index(f"configuration/{each.code}"), report)
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
    lines = [inline(title), *map(line, details(finding, report))]
    undecided = finding.verdict is Verdict.UNDECIDED
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        # 3.27.9: what could not be decided is `open`, and has no level.
        "kind": "open" if undecided else "fail",
        "level": "none" if undecided else finding.severity.value,
        "message": {"text": _message("\n".join(lines))},
        "locations": [_location(finding, report)],
        "partialFingerprints": {"rule/v1": finding.rule.id},
        "properties": {"verdict": word, "because": [_named(each) for each in finding.evidence]},
    }


def _remark(remark: Diagnostic, index: int, report: Report) -> dict[str, Any]:
    lang = report.language
    lines = [inline(lang.told(remark.text)), *map(line, remark_details(remark, lang))]
    first, *others = [_physical(place) for place in remark.places] or [{}]
    return {
        "ruleId": f"configuration/{remark.code}",
        "ruleIndex": index,
        "kind": "fail",
        "level": remark.severity.value,
        "message": {"text": _message("\n".join(lines))},
        "locations": [{"physicalLocation": first}] if first else [],
        "relatedLocations": [
            {"id": number, "physicalLocation": each} for number, each in enumerate(others, 1)
        ],
        "partialFingerprints": {"rule/v1": f"{remark.code}: {remark.text}"},
    }


def _named(because: Evidence) -> str:
    key = because.fact.key
    return key if because.device is None else key.replace("gpu.", f"gpu[{because.device}].", 1)


def _location(finding: Finding, report: Report) -> dict[str, Any]:
    """The line of the user's own file, else the installed file; always the facts by their names."""
    logical = [
        {"fullyQualifiedName": _message(_named(each)), "kind": "resource"} for each in finding.evidence
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
    """A plain text message: no placeholder (3.11.5) and no embedded link (3.11.6) can stand in it."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _uri(text: str, more: str = "") -> str:
    """A path as a URI reference (RFC 3986): what may not stand there is written %XX."""
    allowed = _UNRESERVED | frozenset(more.encode())
    return "".join(
        chr(byte) if byte in allowed else f"%{byte:02X}" for byte in text.encode("utf-8", "replace")
    )
