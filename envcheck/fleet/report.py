"""A fleet's report as text and as JSON, with nodes as host lists. Pure; its input is already sanitised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envcheck.core.findings import Evidence, Verbosity, Verdict
from envcheck.core.i18n import counted, wrap
from envcheck.core.rules import Severity
from envcheck.core.sanitize import inline
from envcheck.fleet import hostlist
from envcheck.fleet.collect import RepeatedRecord
from envcheck.fleet.differences import NodeDifference, NodesWithValue
from envcheck.fleet.summary import FleetFinding, FleetReport, NodeVariant
from envcheck.reports.phrases import fix_text, value_text

SCHEMA_VERSION = 1

_WRAP_AT = 100  # columns
_LONGEST_LIST = 160  # characters shown of a host list in the text; JSON has all of it
_LISTED = 6  # values shown of a difference, and variants shown of a finding
_PROBLEMS = 5  # records shown with a problem of one kind
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "-"}


# --- text -------------------------------------------------------------------------------------------


def render(report: FleetReport, verbosity: Verbosity = Verbosity.USUAL) -> str:
    """Return the report as text: the answer, the findings with their fixes, and what was judged."""
    return "".join(f"{inline(line).rstrip()}\n" for line in _lines(report, verbosity))


def _lines(report: FleetReport, verbosity: Verbosity) -> Iterator[str]:
    every = verbosity is Verbosity.ALL
    answer = report.verdict[:1].upper() + report.verdict[1:]
    yield f"{answer}: {'; '.join(reasons(report))}"
    if verbosity is Verbosity.VERDICT:
        return
    for diagnostic in report.diagnostics:
        place = f"{diagnostic.places[0]}: " if diagnostic.places else ""
        mark, severity = _MARKS[diagnostic.severity], diagnostic.severity.value
        yield ""
        yield f"{mark} {severity}: {place}{diagnostic.text} [{diagnostic.code}]"
    for difference in report.differences:
        yield ""
        yield from _difference(difference, every=every)
    for finding in report.findings:
        yield ""
        yield from _finding(finding, len(report.nodes), every=every)
    if record_lines := [*_missing(report), *_record_problems(report)]:
        yield ""
        yield from record_lines
    yield ""
    yield from _head(report)
    if number := report.waiting.get("training"):
        checks = counted(number, "check")
        give = "give --target NAME or --train FILE"
        yield f"Not judged: {checks} for lack of a training configuration ({give})."


def _head(report: FleetReport) -> Iterator[str]:
    judged = counted(len(report.nodes), "node")
    if report.expected is not None and report.expected != len(report.nodes):
        judged = f"{len(report.nodes)} of {counted(report.expected, 'node')} expected"
    where = f", {folded(report.nodes)}" if report.nodes else ""
    known = f"envcheck {report.version}, matrix {report.updated}, {report.rules} known failures"
    yield f"judged  {judged}{where}; {counted(report.machines, 'distinct machine')}  {known}"


def folded(names: Iterable[str], limit: int = _LONGEST_LIST) -> str:
    """Return the names as a host list; beyond `limit` characters, only the first names and an ellipsis."""
    text = hostlist.fold(names)
    if len(text) <= limit:
        return text
    short = text[:limit].rpartition(",")[0]
    return f"{short},…]" if short.count("[") > short.count("]") else f"{short},…"


# --- differences ------------------------------------------------------------------------------------


def _difference(difference: NodeDifference, *, every: bool) -> Iterator[str]:
    title = f"{_MARKS[difference.severity]} {difference.severity.value}: {difference.name}"
    if len(difference.values) > 1:
        yield from _values(title, difference)
    else:
        yield f"{title} is not known everywhere [{difference.key}]"
    for unread in difference.unread:
        yield from _field("unread", f"{folded(unread.nodes)}: {unread.value}")
    if every:
        yield from _field("why", difference.why)


def _values(title: str, difference: NodeDifference) -> Iterator[str]:
    """Yield the values with their nodes, and the packages in which each differs from the most common one."""
    standing = {"tie": ", a tie", "none": ", no majority"}.get(difference.standing, "")
    # If there is only one value more than the limit, list it too: a line that counts it would be as long.
    listed = difference.values[: _LISTED if len(difference.values) > _LISTED + 1 else _LISTED + 1]
    texts = [
        f"{value.value} on {_on(value, whole=number == 0 and difference.standing == 'majority')}"
        for number, value in enumerate(listed)
    ]
    if len(listed) < len(difference.values):
        rest = [name for value in difference.values[_LISTED:] for name in value.nodes]
        texts.append(f"{len(difference.values) - _LISTED} other values on {counted(len(rest), 'node')}")
    separator = ":" if standing else ""
    yield f"{title}{standing}{separator} {', '.join(texts)} [{difference.key}]"
    for value in listed[1:]:
        if value.parts:
            more = f", and {len(value.parts) - _LISTED} more" if len(value.parts) > _LISTED else ""
            yield from _field(folded(value.nodes, 24), f"{', '.join(value.parts[:_LISTED])}{more}")


def _on(value: NodesWithValue, *, whole: bool) -> str:
    """Return the number of nodes that have the majority's value, or the names of the nodes with another."""
    return counted(len(value.nodes), "node") if whole else folded(value.nodes)


# --- findings ---------------------------------------------------------------------------------------


def _finding(found: FleetFinding, total: int, *, every: bool) -> Iterator[str]:
    """Yield the lines of a finding; `total` is the number of all nodes."""
    finding = found.finding
    rule = finding.rule
    if finding.verdict is Verdict.UNDECIDED:
        yield f"? undecided: {rule.title} [{rule.id}]"
    else:
        yield f"{_MARKS[finding.severity]} {finding.severity.value}: {rule.title} [{rule.id}]"
    for label, fix in zip(("fix", *["or"] * len(finding.fixes)), finding.fixes, strict=False):
        yield from _field(label, f"{fix_text(fix)} ({fix.cost})" if fix.cost else fix_text(fix))
    count = len(found.nodes)
    all_nodes = f"all {total} nodes" if total > 1 else "this node"
    on = all_nodes if count == total else f"{folded(found.nodes)} ({counted(count, 'node')})"
    yield from _field("on", on)
    for variant in found.variants[:_LISTED]:
        yield from _field("because", _evidence(variant, total, alone=len(found.variants) == 1))
    if len(found.variants) > _LISTED:
        yield from _field("", f"and {counted(len(found.variants) - _LISTED, 'other combination')} of facts")
    for source in rule.sources[:1] if every else ():
        yield f"    {'known':<8}{rule.basis.value}: {source.url} (checked {source.checked})"


def _evidence(variant: NodeVariant, total: int, *, alone: bool) -> str:
    """Return the facts of a variant, and its nodes unless it is the only variant."""
    facts = ", ".join(f"{each.fact.key} = {_value(each)}" for each in variant.because)
    on_gpus = f" (GPU {', '.join(map(str, variant.devices))})" if variant.devices else ""
    note = f"; {variant.note}" if variant.note else ""
    if alone:
        return f"{facts}{on_gpus}{note}"
    count = len(variant.nodes)
    return (
        f"{facts}{on_gpus}{note} on {counted(count, 'node') if 2 * count > total else folded(variant.nodes)}"
    )


def _value(evidence: Evidence) -> str:
    return "not known" if evidence.fact.value is None else value_text(evidence.fact.value)


def _field(name: str, text: str) -> Iterator[str]:
    """Yield a label and its text, wrapped with a hanging indent."""
    lead = f"{name:<8}" if len(name) < 8 else f"{name} "  # noqa: PLR2004 - the width of the column
    for number, line in enumerate(wrap(text, _WRAP_AT)):
        yield f"    {lead if number == 0 else ' ' * 8}{line}"


# --- nodes that are missing, and records with problems ----------------------------------------------


def _missing(report: FleetReport) -> Iterator[str]:
    """Yield the nodes that were not judged, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for each in report.missing:
        by_reason.setdefault(each.why, []).append(each.name)
    for why, names in by_reason.items():
        known = [name for name in names if name]
        yield f"missing  {f'{folded(known)}: ' if known else ''}{why}"
    for nothing in report.nothing:
        yield f"nothing  {folded(nothing.nodes)}: {nothing.value}"


def _record_problems(report: FleetReport) -> Iterator[str]:
    """Yield the first problems of each kind, and how many more there are; JSON has all of them."""
    yield from _first("record", [f"{each.where}: {each.problem}" for each in report.refused])
    yield from _first("twice", [_repetition(each) for each in report.twice])
    yield from _first("late", report.late)
    yield from _first("stale", report.stale)
    yield from _first("left out", report.left_out)


def _first(label: str, texts: Sequence[str]) -> Iterator[str]:
    # If there is only one text more than the limit, list it too: a line that counts it would be as long.
    listed = texts[: _PROBLEMS if len(texts) > _PROBLEMS + 1 else _PROBLEMS + 1]
    yield from (f"{label:<8} {text}" for text in listed)
    if len(listed) < len(texts):
        yield f"{label:<8} and {len(texts) - len(listed)} more"


def _repetition(twice: RepeatedRecord) -> str:
    ending = "which are equal" if twice.same else "which differ; the later counts"
    return f"{twice.name}: {twice.first} and {twice.last}, {ending}"


# --- the verdict ------------------------------------------------------------------------------------


def reasons(report: FleetReport) -> tuple[str, ...]:
    """Return the reasons for the verdict: failures first, then what is not known."""
    found = (*_failures(report), *_unknowns(report))
    return found or (f"no known problem on {counted(len(report.nodes), 'node')}",)


def _failures(report: FleetReport) -> Iterator[str]:
    """Yield the reasons not to start a job: everything at or above the severity that fails."""
    level = report.fail_on.rank
    broken = [
        each
        for each in report.findings
        if each.finding.verdict is Verdict.BROKEN and each.finding.severity.rank >= level
    ]
    if broken:
        nodes = {name for each in broken for name in each.nodes}
        yield f"{counted(len(broken), 'known failure')} on {counted(len(nodes), 'node')}"
    different = [each for each in report.differences if each.severity.rank >= level and len(each.values) > 1]
    if different:
        yield f"nodes differ in {', '.join(each.name for each in different)}"
    yield from (each.text for each in report.diagnostics if each.severity.rank >= level)


def _unknowns(report: FleetReport) -> Iterator[str]:
    """Yield the reasons why it cannot be decided whether a job may start."""
    unread = [each for each in report.differences if each.severity is Severity.ERROR and each.unread]
    if unread:
        yield f"{', '.join(each.name for each in unread)} could not be read everywhere"
    if report.missing:
        yield f"{counted(len(report.missing), 'report')} missing"
    if report.refused:
        yield f"{counted(len(report.refused), 'record')} could not be read"
    if report.nothing:
        count = sum(len(each.nodes) for each in report.nothing)
        yield f"nothing to judge on {counted(count, 'node')}"
    if not report.nodes:
        yield "no node was judged"


# --- JSON -------------------------------------------------------------------------------------------


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
