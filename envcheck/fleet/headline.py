"""The first line of a fleet's report: whether a job may start, and if not, on which nodes and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envcheck.core.findings import Diagnostic
from envcheck.core.i18n import Language
from envcheck.core.rules import Severity
from envcheck.fleet import hostlist
from envcheck.fleet.differences import NodeDifference
from envcheck.fleet.summary import FleetReport

_LONGEST_LIST = 160  # characters shown of a host list in the text; JSON has all of it
_IN_HEADLINE = 40  # the same, in the first line


def headline(report: FleetReport, lang: Language) -> str:
    """Return the answer, then the reasons: failures first, then what is not known."""
    problems = [*_problems(report, report.fail_on, lang), *_unknowns(report, lang)]
    if problems:
        answer = "Do not start: {}" if report.code == 1 else "Cannot say: {}"
        return lang.say(answer, lang.say("; ").join(problems))
    return lang.say("Can start: {}", _sound(report, lang))


def _sound(report: FleetReport, lang: Language) -> str:
    """Return what is known of nodes on which a job may start: nothing, or problems below the threshold."""
    nodes = counted_nodes(len(report.nodes), lang)
    lesser = list(_problems(report, Severity.WARNING, lang))
    if not lesser:
        return lang.say("no known problem on {}", nodes)
    return lang.say("no known error on {}, but {}", nodes, lang.say("; ").join(lesser))


def _problems(report: FleetReport, threshold: Severity, lang: Language) -> Iterator[str]:
    """Yield what is at or above a severity: findings, differences, and mistakes in the configuration."""
    problems = report.problems(threshold)
    if problems.broken:
        names = {name for each in problems.broken for name in each.nodes}
        ordered = [name for name in report.nodes if name in names]
        first = problems.broken[0].finding.rule
        counts = _counts([each.finding.severity for each in problems.broken], lang)
        title = lang.title(first.id, first.title)
        yield lang.say("{} on {}: {}", counts, _nodes_of(ordered, report, lang), title)
    if problems.different:
        yield _differing(problems.different, lang)
    yield from (_remark(each, lang) for each in problems.diagnostics)


def _differing(different: Sequence[NodeDifference], lang: Language) -> str:
    """Return what is not equal, with the values if it is one thing, else with the nodes to look at."""
    names = lang.say(", ").join(lang.word(each.name) for each in different)
    first = different[0]
    if len(different) == 1 and not any(value.parts for value in first.values) and len(first.values) <= 3:  # noqa: PLR2004 - more would not be read
        values = [
            lang.say("{} on {}", lang.word(value.value), folded(value.nodes, _IN_HEADLINE))
            for value in reversed(first.values)
        ]
        return lang.say("nodes differ in {}: {}", names, lang.say(", ").join(values))
    if all(each.standing == "majority" for each in different):
        odd = dict.fromkeys(name for each in different for name in each.odd)
        return lang.say("nodes differ in {}: {}", names, folded(odd, _IN_HEADLINE))
    return lang.say("nodes differ in {}", names)


def _nodes_of(names: Sequence[str], report: FleetReport, lang: Language) -> str:
    """Return which nodes: all, or their names."""
    if len(names) == len(report.nodes) > 1:
        return lang.say("all {} nodes", len(names))
    return folded(names, _IN_HEADLINE)


def _remark(diagnostic: Diagnostic, lang: Language) -> str:
    place = f"{diagnostic.places[0]}: " if diagnostic.places else ""
    return f"{place}{lang.translate(diagnostic.text)}"


def _counts(severities: Sequence[Severity], lang: Language) -> str:
    """Return the number of each severity: `1 error, 2 warnings`."""
    counts = ((each.value, severities.count(each)) for each in Severity)
    return lang.say(", ").join(
        lang.say(f"{{}} {name}{'s' if count > 1 else ''}", count) for name, count in counts if count
    )


def _unknowns(report: FleetReport, lang: Language) -> Iterator[str]:
    """Yield the reasons why it cannot be decided whether a job may start."""
    if report.unread:
        names = lang.say(", ").join(lang.word(each.name) for each in report.unread)
        yield lang.say("{} could not be read everywhere", names)
    if report.missing:
        yield _missing(report, lang)
    if count := len(report.refused):
        yield (
            lang.say("{} record could not be read", 1)
            if count == 1
            else lang.say("{} records could not be read", count)
        )
    if report.nothing:
        count = sum(len(each.nodes) for each in report.nothing)
        yield lang.say("nothing to judge on {}", counted_nodes(count, lang))
    if not report.nodes:
        yield lang.say("no node was judged")


def _missing(report: FleetReport, lang: Language) -> str:
    """Return how many expected nodes have not reported, and their names if they are known."""
    names = [each.name for each in report.missing if each.name]
    if report.expected is not None and not names:
        lacking = report.expected - len(report.nodes) - len(report.refused)
        return lang.say("{} of {} nodes did not report", lacking, report.expected)
    return lang.say("no report from {}", folded(names, _IN_HEADLINE))


# --- words that the rest of the text uses too -------------------------------------------------------


def counted_nodes(count: int, lang: Language) -> str:
    """Return `1 node` or `3 nodes`."""
    return lang.say("{} node", 1) if count == 1 else lang.say("{} nodes", count)


def counted_checks(count: int, lang: Language) -> str:
    """Return `1 check` or `3 checks`."""
    return lang.say("{} check", 1) if count == 1 else lang.say("{} checks", count)


def folded(names: Iterable[str], limit: int = _LONGEST_LIST) -> str:
    """Return the names as a host list; beyond `limit` characters, only the first names and an ellipsis."""
    text = hostlist.fold(names)
    if len(text) <= limit:
        return text
    short = text[:limit].rpartition(",")[0]
    return f"{short},…]" if short.count("[") > short.count("]") else f"{short},…"
