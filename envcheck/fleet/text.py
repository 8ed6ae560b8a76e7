"""A fleet's report as text, in the user's language: the answer, the findings with their fixes, the nodes.

Pure; its input is already sanitised. `headline` is the first line, `report` is the same report as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envcheck.core.findings import Evidence, Finding, Verbosity, Verdict
from envcheck.core.i18n import ENGLISH, Language, pad, width, wrap
from envcheck.core.rules import Severity
from envcheck.core.sanitize import inline
from envcheck.fleet import hostlist
from envcheck.fleet.collect import RepeatedRecord
from envcheck.fleet.differences import NodeDifference, NodesWithValue
from envcheck.fleet.headline import counted_checks, counted_nodes, folded, headline
from envcheck.fleet.summary import FleetFinding, FleetReport, NodeVariant
from envcheck.rules.fix_words import fix_text, value_text

_WRAP_AT = 100  # columns
_LISTED = 6  # values shown of a difference, and variants shown of a finding
_PROBLEMS = 5  # records shown with a problem of one kind
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "·"}


def render(report: FleetReport, verbosity: Verbosity = Verbosity.USUAL, language: Language = ENGLISH) -> str:
    """Return the report as text: the answer, the findings with their fixes, and what was judged."""
    return "".join(f"{inline(line).rstrip()}\n" for line in _TextWriter(report, language).lines(verbosity))


class _TextWriter:
    """Writes one report in one language."""

    def __init__(self, report: FleetReport, language: Language) -> None:
        self.report, self.lang = report, language

    def lines(self, verbosity: Verbosity) -> Iterator[str]:
        """Yield the lines of the report."""
        every, report = verbosity is Verbosity.ALL, self.report
        yield headline(report, self.lang)
        if verbosity is Verbosity.VERDICT:
            return
        for diagnostic in report.diagnostics:
            place = f"{diagnostic.places[0]}: " if diagnostic.places else ""
            yield ""
            text = self.lang.translate(diagnostic.text)
            yield self._heading(diagnostic.severity, f"{place}{text}", diagnostic.code)
        for one in self._worst_first():
            yield ""
            if isinstance(one, NodeDifference):
                yield from self._difference(one, every=every)
            else:
                yield from self._finding(one, every=every)
        if record_lines := [*self._missing(), *self._record_problems()]:
            yield ""
            yield from record_lines
        yield ""
        yield from self._head()
        if number := report.waiting.get("training"):
            checks = counted_checks(number, self.lang)
            what = "--train FILE" if report.trains else "--target NAME, --train FILE"
            text = self.lang.say("{} on how you train (give {})", checks, what)
            yield self.lang.say("Not judged: {}.", text)

    def _worst_first(self) -> list[NodeDifference | FleetFinding]:
        """Return differences and findings, the most severe first and what is undecided last."""

        def order(one: NodeDifference | FleetFinding) -> tuple[bool, int]:
            if isinstance(one, NodeDifference):
                return False, -one.severity.rank
            return one.finding.verdict is not Verdict.BROKEN, -one.finding.severity.rank

        return sorted((*self.report.differences, *self.report.findings), key=order)

    def _heading(self, severity: Severity, title: str, name: str) -> str:
        return f"{_MARKS[severity]} {self.lang.word(severity.value)}: {title} [{name}]"

    def _head(self) -> Iterator[str]:
        report, say = self.report, self.lang.say
        judged = counted_nodes(len(report.nodes), self.lang)
        if report.expected is not None and report.expected != len(report.nodes):
            judged = say("{} of {} nodes", len(report.nodes), report.expected)
        where = f", {folded(report.nodes)}" if report.nodes else ""
        kinds = (
            say("{} kind of machine", 1)
            if report.machines == 1
            else say("{} kinds of machine", report.machines)
        )
        known = say("matrix {}, {} known failures", report.updated, report.rules)
        yield f"{say('judged')}  {judged}{where}{say('; ')}{kinds}  envcheck {report.version}, {known}"

    # --- differences

    def _difference(self, difference: NodeDifference, *, every: bool) -> Iterator[str]:
        name = self.lang.word(difference.name)
        if len(difference.values) > 1:
            title = self._values(name, difference)
        else:
            title = self.lang.say("{} is not known everywhere", name)
        yield self._heading(difference.severity, title, difference.key)
        if fix := difference_fix(difference, self.lang):
            yield from self._field(self.lang.say("fix"), fix)
        for value in difference.values[1 : self._shown(difference)]:
            if value.parts:
                more = len(value.parts) - _LISTED
                parts = ", ".join(value.parts[:_LISTED])
                text = self.lang.say("{}, and {} more", parts, more) if more > 0 else parts
                yield from self._field(folded(value.nodes, 24), text)
        for unread in difference.unread:
            text = f"{folded(unread.nodes)}: {self.lang.translate(unread.value)}"
            yield from self._field(self.lang.say("unread"), text)
        if every:
            yield from self._field(self.lang.say("why"), self.lang.translate(difference.why))

    @staticmethod
    def _shown(difference: NodeDifference) -> int:
        """Return how many values are listed; one more than the limit is: its count would be as long."""
        return _LISTED if len(difference.values) > _LISTED + 1 else _LISTED + 1

    def _values(self, name: str, difference: NodeDifference) -> str:
        """Return the values with their nodes."""
        say = self.lang.say
        listed = difference.values[: self._shown(difference)]
        whole = difference.standing == "majority"
        if any(value.parts for value in difference.values):
            # Digests say nothing to a person: the packages in which they differ follow on lines of their own.
            groups = [self._on(value, whole=whole and number == 0) for number, value in enumerate(listed)]
            return say("{} are not the same: {}", name, say(", ").join(groups))
        texts = [
            say("{} on {}", self.lang.word(value.value), self._on(value, whole=whole and number == 0))
            for number, value in enumerate(listed)
        ]
        if rest := [node for value in difference.values[len(listed) :] for node in value.nodes]:
            more = len(difference.values) - len(listed)
            texts.append(say("{} other values on {}", more, counted_nodes(len(rest), self.lang)))
        values = say(", ").join(texts)
        if difference.standing == "tie":
            return say("{}, a tie: {}", name, values)
        return (
            say("{}, no majority: {}", name, values) if difference.standing == "none" else f"{name} {values}"
        )

    def _on(self, value: NodesWithValue, *, whole: bool) -> str:
        """Return the number of nodes that have the majority's value, or the names of those with another."""
        return counted_nodes(len(value.nodes), self.lang) if whole else folded(value.nodes)

    # --- findings

    def _finding(self, found: FleetFinding, *, every: bool) -> Iterator[str]:
        """Yield the lines of a finding."""
        finding, total = found.finding, len(self.report.nodes)
        rule, say = finding.rule, self.lang.say
        title = self.lang.title(rule.id, rule.title)
        if finding.verdict is Verdict.UNDECIDED:
            yield f"? {self.lang.word('undecided')}: {title} [{rule.id}]"
        else:
            yield self._heading(finding.severity, title, rule.id)
        yield from self._fixes(found)
        count = len(found.nodes)
        if count == total:
            on = say("all {} nodes", total) if total > 1 else say("this node")
        else:
            on = f"{folded(found.nodes)} ({counted_nodes(count, self.lang)})"
        yield from self._field(say("on"), on)
        for variant in found.variants[:_LISTED]:
            yield from self._field(say("because"), self._evidence(variant, alone=len(found.variants) == 1))
        if (more := len(found.variants) - _LISTED) > 0:
            yield from self._field("", say("and {} more combinations of facts", more))
        for source in rule.sources[:1] if every else ():
            basis, checked = self.lang.word(rule.basis.value), say(" (checked {})", source.checked)
            yield f"    {pad(say('known'), 8)}{basis}: {source.url}{checked}"

    def _fixes(self, found: FleetFinding) -> Iterator[str]:
        """Yield what the other nodes have, if that is why they pass, and the fixes of the rule."""
        say, finding = self.lang.say, found.finding
        texts = [self._fix_text(finding, number) for number in range(len(finding.fixes))]
        if found.elsewhere:
            others = counted_nodes(len(self.report.nodes) - len(found.nodes), self.lang)
            values = say(", ").join(f"{name} {value}" for name, value in found.elsewhere)
            texts.insert(0, say("{}, as on {} without this failure", values, others))
        for number, text in enumerate(texts):
            yield from self._field(say("or") if number else say("fix"), text)

    def _fix_text(self, finding: Finding, number: int) -> str:
        fix, costs = finding.fixes[number], [each.cost for each in finding.rule.fixes]
        cost = self.lang.cost(finding.rule.id, costs, fix.cost)
        text = fix_text(fix, self.lang)
        return f"{text} ({cost})" if cost else text

    def _evidence(self, variant: NodeVariant, *, alone: bool) -> str:
        """Return the facts of a variant, and its nodes unless it is the only variant."""
        say, total = self.lang.say, len(self.report.nodes)
        facts = ", ".join(f"{each.fact.key} = {self._value(each)}" for each in variant.because)
        on_gpus = f" (GPU {', '.join(map(str, variant.devices))})" if variant.devices else ""
        note = f"; {self.lang.translate(variant.note)}" if variant.note else ""
        text = f"{facts}{on_gpus}{note}"
        if alone:
            return text
        count = len(variant.nodes)
        nodes = counted_nodes(count, self.lang) if 2 * count > total else folded(variant.nodes)
        return say("{} on {}", text, nodes)

    def _value(self, evidence: Evidence) -> str:
        return self.lang.say("not known") if evidence.fact.value is None else value_text(evidence.fact.value)

    def _field(self, name: str, text: str) -> Iterator[str]:
        """Yield a label and its text, wrapped with a hanging indent."""
        lead = pad(name, 8) if width(name) < 8 else f"{name} "  # noqa: PLR2004 - the width of the column
        for number, line in enumerate(wrap(text, _WRAP_AT)):
            yield f"    {lead if number == 0 else ' ' * 8}{line}"

    # --- nodes that are missing, and records with problems

    def _missing(self) -> Iterator[str]:
        """Yield the nodes that were not judged, by the reason."""
        by_reason: dict[str, list[str]] = {}
        for each in self.report.missing:
            by_reason.setdefault(each.why, []).append(each.name)
        for why, names in by_reason.items():
            known = [name for name in names if name]
            text = self.lang.translate(why)
            if known:
                text = self.lang.say("{}: {}", folded(known), text)
            yield f"{self.lang.say('missing')}  {text}"
        for nothing in self.report.nothing:
            text = f"{folded(nothing.nodes)}: {self.lang.translate(nothing.value)}"
            yield f"{self.lang.say('nothing')}  {text}"

    def _record_problems(self) -> Iterator[str]:
        """Yield the first problems of each kind, and how many more there are; JSON has all of them."""
        report, say, translate = self.report, self.lang.say, self.lang.translate
        refused = [f"{each.where}: {translate(each.problem)}" for each in report.refused]
        yield from self._first(say("record"), refused)
        yield from self._first(say("twice"), [self._repetition(each) for each in report.twice])
        yield from self._first(say("late"), report.late)
        yield from self._first(say("stale"), report.stale)
        yield from self._first(say("left out"), report.left_out)

    def _first(self, label: str, texts: Sequence[str]) -> Iterator[str]:
        # If there is only one text more than the limit, list it too: a line that counts it would be as long.
        listed = texts[: _PROBLEMS if len(texts) > _PROBLEMS + 1 else _PROBLEMS + 1]
        yield from (f"{pad(label, 8)} {text}" for text in listed)
        if len(listed) < len(texts):
            yield f"{pad(label, 8)} {self.lang.say('and {} more', len(texts) - len(listed))}"

    def _repetition(self, twice: RepeatedRecord) -> str:
        if twice.same:
            return self.lang.say("{}: {} and {}, which are equal", twice.name, twice.first, twice.last)
        return self.lang.say(
            "{}: {} and {}, which differ; the later counts", twice.name, twice.first, twice.last
        )


def difference_fix(difference: NodeDifference, lang: Language) -> str:
    """Return how to make the odd nodes equal to the majority; empty without a majority or a known way."""
    if difference.standing != "majority" or len(difference.values) == 1:
        return ""
    value, template = difference.values[0].value, difference.fix
    if value == difference.absent:
        value, template = difference.name, difference.fix_if_absent
    nodes: Iterable[str] = (name for each in difference.values[1:] for name in each.nodes)
    return lang.word(template).format(hostlist.fold(nodes), value, difference.name)
