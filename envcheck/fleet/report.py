"""A fleet's report as JSON, with nodes as host lists. Pure; its input is already sanitised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from envcheck.core.i18n import counted
from envcheck.fleet import hostlist
from envcheck.fleet.differences import NodeDifference
from envcheck.fleet.summary import FleetFinding, FleetReport
from envcheck.rules.fix_words import fix_text

SCHEMA_VERSION = 1


def tree(report: FleetReport) -> dict[str, Any]:
    """Return the tree of the JSON report, which docs/reference/fleet-json.md describes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "envcheck": report.version,
        "matrix": report.updated,
        "verdict": report.verdict,
        "reasons": list(reasons(report)),
        "exit_code": report.code,
        **_nodes(report.nodes),
        "expected": report.expected,
        "machines": report.machines,
        "differences": [_difference_tree(each) for each in report.differences],
        "findings": [_finding_tree(each) for each in report.findings],
        "nothing_to_judge": [{"why": each.value, **_nodes(each.nodes)} for each in report.nothing],
        "waiting": [{"reason": reason, "count": number} for reason, number in report.waiting.items()],
        "missing": [{"node": each.name or None, "why": each.why} for each in report.missing],
        "refused": [
            {"where": each.where, "problem": each.problem, "node": each.name or None}
            for each in report.refused
        ],
        "twice": [
            {"node": each.name, "first": each.first, "last": each.last, "same": each.same}
            for each in report.twice
        ],
        "late": list(report.late),
        "stale": list(report.stale),
        "left_out": list(report.left_out),
        "remarks": [
            {
                "code": each.code,
                "severity": each.severity.value,
                "text": each.text,
                "places": [str(place) for place in each.places],
            }
            for each in report.diagnostics
        ],
    }


def _nodes(names: Sequence[str]) -> dict[str, Any]:
    return {"count": len(names), "nodes": hostlist.fold(names)}


def _difference_tree(difference: NodeDifference) -> dict[str, Any]:
    return {
        "key": difference.key,
        "name": difference.name,
        "severity": difference.severity.value,
        "standing": difference.standing,
        "why": difference.why,
        "source": difference.source,
        "odd": hostlist.fold(difference.odd) if len(difference.values) > 1 else "",
        "values": [
            {"value": value.value, **_nodes(value.nodes), "parts": list(value.parts)}
            for value in difference.values
        ],
        "unread": [{"why": unread.value, **_nodes(unread.nodes)} for unread in difference.unread],
    }


def _finding_tree(found: FleetFinding) -> dict[str, Any]:
    rule = found.finding.rule
    return {
        "rule": rule.id,
        "severity": found.finding.severity.value,
        "verdict": found.finding.verdict.value,
        "title": rule.title,
        "why": rule.why,
        **_nodes(found.nodes),
        "variants": [
            {
                "because": [
                    {
                        "key": evidence.fact.key,
                        "value": list(value) if isinstance(value := evidence.fact.value, tuple) else value,
                        "gpu": evidence.device,
                        "source": evidence.fact.source,
                    }
                    for evidence in variant.because
                ],
                "gpus": list(variant.devices),
                "note": variant.note,
                **_nodes(variant.nodes),
            }
            for variant in found.variants
        ],
        "fix": [
            {"text": fix_text(fix), "set": dict(fix.set), "cost": fix.cost} for fix in found.finding.fixes
        ],
        "sources": [
            {"url": source.url, "kind": source.kind, "checked": source.checked} for source in rule.sources
        ],
    }


def reasons(report: FleetReport) -> tuple[str, ...]:
    """Return the reasons for the verdict: failures first, then what is not known."""
    found = (*_failures(report), *_unknowns(report))
    return found or (f"no known problem on {counted(len(report.nodes), 'node')}",)


def _failures(report: FleetReport) -> Iterator[str]:
    """Yield the reasons not to start a job: everything at or above the severity that fails."""
    problems = report.problems(report.fail_on)
    if problems.broken:
        nodes = {name for each in problems.broken for name in each.nodes}
        yield f"{counted(len(problems.broken), 'known failure')} on {counted(len(nodes), 'node')}"
    if problems.different:
        yield f"nodes differ in {', '.join(each.name for each in problems.different)}"
    yield from (each.text for each in problems.diagnostics)


def _unknowns(report: FleetReport) -> Iterator[str]:
    """Yield the reasons why it cannot be decided whether a job may start."""
    if report.unread:
        yield f"{', '.join(each.name for each in report.unread)} could not be read everywhere"
    if report.missing:
        yield f"{counted(len(report.missing), 'report')} missing"
    if report.refused:
        yield f"{counted(len(report.refused), 'record')} could not be read"
    if report.nothing:
        count = sum(len(each.nodes) for each in report.nothing)
        yield f"nothing to judge on {counted(count, 'node')}"
    if not report.nodes:
        yield "no node was judged"
