"""A fleet's report as text and as JSON, its nodes in ranges: pure. What it is given was cleaned already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envcheck.core.findings import Evidence, Verdict
from envcheck.core.i18n import wrapped
from envcheck.core.rules import Severity
from envcheck.core.sanitize import inline
from envcheck.fleet import hostlist
from envcheck.fleet.compare import FleetFinding, FleetReport, NodeDifference, NodeVariant, Some
from envcheck.reports.phrases import fix_text, value_text

SCHEMA_VERSION = 1

_WIDE = 100  # columns of a line that is broken
_LONGEST = 160  # characters of a list of nodes in a report for people; JSON has all of it
_LISTED = 6  # values, variants, records of a kind
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "-"}


def folded(names: Iterable[str], limit: int = _LONGEST) -> str:
    """The names as a hostlist, the first of them if that is long."""
    text = hostlist.fold(names)
    if len(text) <= limit:
        return text
    short = text[:limit].rpartition(",")[0]
    return f"{short},…]" if short.count("[") > short.count("]") else f"{short},…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- for people -------------------------------------------------------------------------------------


def render(report: FleetReport) -> str:
    """The report as text."""
    return "".join(f"{inline(line).rstrip()}\n" for line in _lines(report))


def _lines(report: FleetReport) -> Iterator[str]:
    yield f"envcheck {report.version}  matrix {report.updated}, {report.rules} known failures"
    judged = _count(len(report.nodes), "node")
    if report.expected is not None and report.expected != len(report.nodes):
        judged = f"{len(report.nodes)} of {_count(report.expected, 'node')} expected"
    where = f", {folded(report.nodes)}" if report.nodes else ""
    yield f"judged  {judged}{where}; to the judge {_count(report.machines, 'machine')}"
    for remark in report.remarks:
        place = f"{remark.places[0]}: " if remark.places else ""
        yield ""
        yield f"{_MARKS[remark.severity]} {remark.severity.value}: {place}{remark.text} [{remark.code}]"
    for difference in report.differences:
        yield ""
        yield from _difference(difference)
    for found in report.findings:
        yield ""
        yield from _finding(found, len(report.nodes))
    yield from _roll(report)
    if number := report.waiting.get("training"):
        yield ""
        yield f"{_count(number, 'known failure')} depend on the training configuration (--target or --train)"
    yield ""
    yield f"{report.verdict}: {'; '.join(reasons(report))}"


def _difference(each: NodeDifference) -> Iterator[str]:
    word = f"{_MARKS[each.severity]} {each.severity.value}: {each.name}"
    if len(each.values) > 1:
        standing = {"tie": ", a tie", "none": ", no majority"}.get(each.standing, "")
        shown_values = each.values[: _LISTED if len(each.values) > _LISTED + 1 else _LISTED + 1]
        said = [
            f"{value.value} on {_on(value, whole=number == 0 and each.standing == 'majority')}"
            for number, value in enumerate(shown_values)
        ]
        if len(shown_values) < len(each.values):
            rest = [name for value in each.values[_LISTED:] for name in value.nodes]
            said.append(f"{len(each.values) - _LISTED} other values on {_count(len(rest), 'node')}")
        separator = ":" if standing else ""
        yield f"{word}{standing}{separator} {', '.join(said)} [{each.key}]"
        for value in shown_values[1:]:
            if value.parts:
                more = f", and {len(value.parts) - _LISTED} more" if len(value.parts) > _LISTED else ""
                yield from _field(folded(value.nodes, 24), f"{', '.join(value.parts[:_LISTED])}{more}")
    else:
        yield f"{word} is not known everywhere [{each.key}]"
    for some in each.unread:
        yield from _field("unread", f"{folded(some.nodes)}: {some.value}")
    yield from _field("why", each.why)


def _on(value: Some, *, whole: bool) -> str:
    """How many nodes in the majority, and which ones are odd."""
    return _count(len(value.nodes), "node") if whole else folded(value.nodes)


def _finding(found: FleetFinding, of: int) -> Iterator[str]:
    finding = found.finding
    rule = finding.rule
    if finding.verdict is Verdict.UNDECIDED:
        yield f"? undecided: {rule.title} [{rule.id}]"
    else:
        yield f"{_MARKS[finding.severity]} {finding.severity.value}: {rule.title} [{rule.id}]"
    number = len(found.nodes)
    all_of_them = f"all {of} nodes" if of > 1 else "this node"
    on = all_of_them if number == of else f"{folded(found.nodes)} ({_count(number, 'node')})"
    yield from _field("on", on)
    for variant in found.variants[:_LISTED]:
        yield from _field("because", _because(variant, of, alone=len(found.variants) == 1))
    if len(found.variants) > _LISTED:
        yield from _field("", f"and {_count(len(found.variants) - _LISTED, 'other combination')} of facts")
    for fix in finding.fixes:
        yield from _field("fix", f"{fix_text(fix)} ({fix.cost})" if fix.cost else fix_text(fix))
    for source in rule.sources[:1]:
        yield f"    {'known':<8}{rule.basis.value}: {source.url} (checked {source.checked})"


def _because(variant: NodeVariant, of: int, *, alone: bool) -> str:
    said = ", ".join(f"{each.fact.key} = {_value(each)}" for each in variant.because)
    on_gpus = f" (GPU {', '.join(map(str, variant.devices))})" if variant.devices else ""
    note = f"; {variant.note}" if variant.note else ""
    if alone:
        return f"{said}{on_gpus}{note}"
    number = len(variant.nodes)
    return f"{said}{on_gpus}{note} on {_count(number, 'node') if 2 * number > of else folded(variant.nodes)}"


def _value(each: Evidence) -> str:
    return "not known" if each.fact.value is None else value_text(each.fact.value)


def _field(name: str, text: str) -> Iterator[str]:
    lead = f"{name:<8}" if len(name) < 8 else f"{name} "  # noqa: PLR2004 - the width of the column
    for number, line in enumerate(wrapped(text, _WIDE)):
        yield f"    {lead if number == 0 else ' ' * 8}{line}"


def _roll(report: FleetReport) -> Iterator[str]:
    """Who is not judged, and which records are not what they should be."""
    lines: list[str] = []
    by_why: dict[str, list[str]] = {}
    for each in report.missing:
        by_why.setdefault(each.why, []).append(each.name)
    for why, names in by_why.items():
        named = [name for name in names if name]
        lines.append(f"missing  {f'{folded(named)}: ' if named else ''}{why}")
    lines += [f"nothing  {folded(each.nodes)}: {each.value}" for each in report.nothing]
    lines += _listed("record", [f"{each.where}: {each.problem}" for each in report.refused])
    lines += _listed(
        "twice",
        [
            f"{each.name}: {each.first} and {each.last}"
            + (", which say the same" if each.same else ", which differ; the later counts")
            for each in report.twice
        ],
    )
    lines += _listed("late", list(report.late))
    lines += _listed("stale", list(report.stale))
    lines += _listed("left out", list(report.left_out))
    if lines:
        yield ""
        yield from lines


def _listed(word: str, said: Sequence[str]) -> list[str]:
    """One line each: of a thousand broken records every one is named, for each is another file or line."""
    return [f"{word:<8} {each}" for each in said]


def reasons(report: FleetReport) -> tuple[str, ...]:
    """What the verdict rests on, in words."""
    level = report.fail_on.rank
    broken = [
        each
        for each in report.findings
        if each.finding.verdict is Verdict.BROKEN and each.finding.severity.rank >= level
    ]
    apart = [each for each in report.differences if each.severity.rank >= level and len(each.values) > 1]
    unread = [each for each in report.differences if each.severity is Severity.ERROR and each.unread]
    said = []
    if broken:
        on = {name for each in broken for name in each.nodes}
        said.append(f"{_count(len(broken), 'known failure')} on {_count(len(on), 'node')}")
    if apart:
        said.append(f"nodes differ in {', '.join(each.name for each in apart)}")
    said += [each.text for each in report.remarks if each.severity.rank >= level]
    if unread:
        said.append(f"{', '.join(each.name for each in unread)} could not be read everywhere")
    if report.missing:
        said.append(f"{_count(len(report.missing), 'report')} missing")
    if report.refused:
        said.append(f"{_count(len(report.refused), 'record')} could not be read")
    if report.nothing:
        without = sum(len(each.nodes) for each in report.nothing)
        said.append(f"nothing to judge on {_count(without, 'node')}")
    if not report.nodes:
        said.append("no node was judged")
    if not said:
        said.append(f"nothing known speaks against it on {_count(len(report.nodes), 'node')}")
    return tuple(said)


# --- for programs -----------------------------------------------------------------------------------


def tree(report: FleetReport) -> dict[str, Any]:
    """The report as JSON: docs/reference/fleet-json.md."""
    return {
        "schema_version": SCHEMA_VERSION,
        "envcheck": report.version,
        "matrix": report.updated,
        "verdict": report.verdict,
        "reasons": list(reasons(report)),
        "exit_code": report.code,
        **_some(report.nodes),
        "expected": report.expected,
        "machines": report.machines,
        "differences": [_difference_tree(each) for each in report.differences],
        "findings": [_finding_tree(each) for each in report.findings],
        "nothing_to_judge": [{"why": each.value, **_some(each.nodes)} for each in report.nothing],
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
            for each in report.remarks
        ],
    }


def _some(names: Sequence[str]) -> dict[str, Any]:
    return {"count": len(names), "nodes": hostlist.fold(names)}


def _difference_tree(each: NodeDifference) -> dict[str, Any]:
    return {
        "key": each.key,
        "name": each.name,
        "severity": each.severity.value,
        "standing": each.standing,
        "why": each.why,
        "source": each.source,
        "odd": hostlist.fold(each.odd) if len(each.values) > 1 else "",
        "values": [
            {"value": value.value, **_some(value.nodes), "parts": list(value.parts)} for value in each.values
        ],
        "unread": [{"why": some.value, **_some(some.nodes)} for some in each.unread],
    }


def _finding_tree(each: FleetFinding) -> dict[str, Any]:
    rule = each.finding.rule
    return {
        "rule": rule.id,
        "severity": each.finding.severity.value,
        "verdict": each.finding.verdict.value,
        "title": rule.title,
        "why": rule.why,
        **_some(each.nodes),
        "variants": [
            {
                "because": [
                    {
                        "key": one.fact.key,
                        "value": list(value) if isinstance(value := one.fact.value, tuple) else value,
                        "gpu": one.device,
                        "source": one.fact.source,
                    }
                    for one in variant.because
                ],
                "gpus": list(variant.devices),
                "note": variant.note,
                **_some(variant.nodes),
            }
            for variant in each.variants
        ],
        "fix": [
            {"text": fix_text(fix), "set": dict(fix.set), "cost": fix.cost} for fix in each.finding.fixes
        ],
        "sources": [
            {"url": source.url, "kind": source.kind, "checked": source.checked} for source in rule.sources
        ],
    }
