"""Findings and diagnostics line by line, and the closing counts, in the user's language, for all formats.

SARIF prints these texts too, so their English is part of a published format. On the start-up path of
`doctor`, hence the named tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.errors import Place
from envcheck.core.facts import Absent, Fact, Known, Unknown
from envcheck.core.findings import Diagnostic, Evidence, Finding, Report, Verdict, Waiting
from envcheck.core.i18n import Language, width
from envcheck.core.rules import Clause, Fix, Severity, When
from envcheck.core.sanitize import inline
from envcheck.core.training_facts import KEYS as TRAINING
from envcheck.reports.overview import training_phrase
from envcheck.reports.phrases import fix_commands, fix_text, installed_companions, value_text


class Detail(NamedTuple):
    """A line under a finding or a plan: its label, its text, its kind, and the address in the text, if any.

    Kinds: only, because, note, why, fix, command, known, set, brings, left, at, advice. The label is empty if
    it would repeat that of the line before.
    """

    label: str
    text: str
    kind: str
    url: str = ""


def detail_line(detail: Detail) -> str:
    """Return a detail as one line: `fix: deepspeed >=0.19.3`; indented if it has no label."""
    return inline(f"{detail.label}: {detail.text}" if detail.label else f"  {detail.text}")


# --- findings ---------------------------------------------------------------------------------------


class Heading(NamedTuple):
    """A finding's first line: its mark (a key of `MARKS`), its severity in words, and its title."""

    mark: str
    word: str
    title: str


def heading(finding: Finding, lang: Language) -> Heading:
    """Return how a finding begins: `✗ error: it breaks`."""
    undecided = finding.verdict is Verdict.UNDECIDED
    word = "undecided" if undecided else finding.severity.value
    mark = "unknown" if undecided else finding.severity.value
    return Heading(mark, lang.word(word), lang.title(finding.rule.id, finding.rule.title))


def details(finding: Finding, report: Report) -> Iterator[Detail]:
    """Yield the GPUs concerned, the evidence, the reason, the fixes, and the sources of a finding."""
    lang, rule = report.language, finding.rule
    if finding.devices:
        devices = "GPU " + ", ".join(str(device) for device in finding.devices)
        yield Detail(lang.say("only"), devices, "only")
    for number, evidence in enumerate(finding.evidence):
        label = lang.say("because") if number == 0 else ""
        yield Detail(label, evidence_text(evidence, lang), "because")
    if finding.note:
        yield Detail(lang.say("note"), "; ".join(map(lang.told, finding.note.split("; "))), "note")
    if rule.why:
        yield Detail(lang.say("why"), lang.why(rule.id, rule.why), "why")
    yield from _fixes(finding, report)
    yield from _useless_fixes(finding, lang)
    yield from _sources(finding, lang)


def _fixes(finding: Finding, report: Report) -> Iterator[Detail]:
    """Yield each fix with its cost, followed by its commands."""
    lang, rule = report.language, finding.rule
    companions = installed_companions(report)
    for fix in finding.fixes:
        cost = lang.cost(rule.id, [each.cost for each in rule.fixes], fix.cost)
        cost = f" ({cost})" if cost else ""
        yield Detail(lang.say("fix"), f"{fix_text(fix, lang.say(' and '))}{cost}", "fix")
        for command in fix_commands(fix, companions, report.inventory):
            yield Detail("", command, "command")
    if rule.fixes and not finding.fixes and finding.verdict is not Verdict.UNDECIDED:
        no_fix = lang.say("none of the known ways out passes the judge here by itself")
        yield Detail(lang.say("fix"), no_fix, "fix")


def _useless_fixes(finding: Finding, lang: Language) -> Iterator[Detail]:
    """Yield the changes that are known not to help, with the reason of each."""
    rule = finding.rule
    reasons = [each.why for each in rule.no_fixes]
    for useless in rule.no_fixes:
        changes = fix_text(Fix(useless.set), lang.say(" and "))
        text = f"{changes} ({lang.no_fix(rule.id, reasons, useless.why)})"
        yield Detail(lang.say("no fix"), text, "fix")


def _sources(finding: Finding, lang: Language) -> Iterator[Detail]:
    """Yield the sources of the rule; the first line says whether it was measured, read in code, and so on."""
    for number, source in enumerate(finding.rule.sources):
        basis = f"{lang.word(finding.rule.basis.value)}: " if number == 0 else ""
        checked = lang.say(" (checked {})", source.checked) if source.checked else ""
        label = lang.say("known") if number == 0 else ""
        yield Detail(label, f"{basis}{source.url}{checked}", "known", source.url)


# --- evidence ---------------------------------------------------------------------------------------


def evidence_text(evidence: Evidence, lang: Language) -> str:
    """Return a fact of the evidence with its source: `pkg.torch = 2.6.0 (torch-2.6.0.dist-info)`."""
    name, state, source = evidence_parts(evidence, lang)
    note = f"; {lang.told(evidence.note)}" if evidence.note else ""
    return f"{name} {state}{f' ({source})' if source else ''}{note}"


def evidence_parts(evidence: Evidence, lang: Language) -> tuple[str, str, str]:
    """Return a fact of the evidence in three parts: its name, its state, and its source."""
    fact = evidence.fact
    name = fact.key if evidence.device is None else fact.key.replace("gpu.", f"gpu[{evidence.device}].", 1)
    return name, _state(fact, lang), lang.told(fact.source)


def _state(fact: Fact, lang: Language) -> str:
    match fact.reading:
        case Known(value):
            return f"= {value_text(value)}"
        case Absent():
            return lang.say("is absent")
        case Unknown(why, _):
            return lang.say("is not known: {}", lang.told(why))


# --- diagnostics of configurations ------------------------------------------------------------------


def diagnostic_details(diagnostic: Diagnostic, lang: Language) -> Iterator[Detail]:
    """Yield what to do about a diagnostic, and the source code that proves it."""
    if diagnostic.advice:
        yield Detail(lang.say("fix"), lang.told(diagnostic.advice), "advice")
    if diagnostic.source:
        yield Detail(lang.say("known"), diagnostic.source, "known", diagnostic.source)


def quotation(place: Place) -> tuple[tuple[str, str, str], ...]:
    """Return the quoted line and its underline, each as (line number, text, underline); empty if unknown."""
    if not place.excerpt:
        return ()
    # Cleaned here, because an escape is wider than the character it replaces and would shift the underline.
    start = place.column - 1 - place.cut
    before, marked = place.excerpt[:start], place.excerpt[start:][: place.length]
    ellipsis = "…" if place.cut else ""
    line, indent = ellipsis + _one_line(place.excerpt), width(ellipsis + _one_line(before))
    underline = "^" * max(1, width(_one_line(marked)))
    number = str(place.line).rjust(7)
    return (number, line, ""), (" " * len(number), " " * indent, underline)


def quoted_line(place: Place) -> str:
    """Return the quotation as plain text; empty if the line is not known."""
    return "\n".join(f"{gutter} | {code}{mark}".rstrip() for gutter, code, mark in quotation(place))


def _one_line(code: str) -> str:
    return inline(code.replace("\t", " "))


# --- rules that wait for facts ----------------------------------------------------------------------

_CLOSEST = 3  # known failures named when no training configuration was given
_MOST_ALTERNATIVES = 3  # of a clause, that are written out


def waiting_lines(report: Report) -> tuple[str, tuple[str, ...]]:
    """Return a sentence on the rules that wait for a training configuration, and the nearest of them.

    Both are empty if no rule waits for one.
    """
    lang = report.language
    waiting = [each for each in report.judgement.waiting if each.reason == "training"]
    if not waiting:
        return "", ()
    errors = [each for each in waiting if each.rule.severity is Severity.ERROR]
    # A failure is near if most of its clauses match here already and only the training facts are missing.
    nearest = sorted(errors, key=lambda each: (-_matched(each), len(each.open)))[:_CLOSEST]
    depend = lang.say("{} known failures depend on the training configuration", len(waiting))
    if len(waiting) == 1:
        depend = lang.say("{} known failure depends on the training configuration", 1)
    ending = lang.say("; closest:") if nearest else ""
    sentence = f"{depend}{lang.say(' (--target or --train)')}{ending}"
    return sentence, tuple(
        lang.say("{}, if {}", each.rule.id, _conditions(each.open, lang)) for each in nearest
    )


def waiting_text(waiting: Waiting, lang: Language) -> str:
    """Return what a rule waits for and its open conditions: `training: if ZeRO-3 + LoRA`."""
    return f"{lang.word(waiting.reason)}: {_conditions(waiting.open, lang)}"


def _matched(waiting: Waiting) -> int:
    """Return how many clauses of the rule match here already."""
    return max(len(table) for table in waiting.rule.when) - len(waiting.open)


def _conditions(open_clauses: When, lang: Language) -> str:
    return " + ".join(
        training_phrase(clause.key, _abridged(clause), lang)
        if clause.key in TRAINING
        else f"{clause.key} {_abridged(clause)}"
        for clause in open_clauses
    )


def _abridged(clause: Clause) -> str:
    """Return the text of a clause without braces; of many alternatives only the first."""
    text = clause.raw.replace("{train.", "").replace("{", "").replace("}", "")
    return text if len(clause.any_of) <= _MOST_ALTERNATIVES else f"{text.strip().partition(' ')[0]} …"


# --- the counts -------------------------------------------------------------------------------------


def count_text(report: Report) -> str:
    """Return in one line how many rules are broken, undecided, waiting for facts, and passed."""
    judgement, lang = report.judgement, report.language
    broken = judgement.tally(Verdict.BROKEN)
    by_severity = [
        lang.say(f"{{}} {each.value}{'s' if count > 1 else ''}", count)
        for each in Severity
        if (count := judgement.tally(Verdict.BROKEN, each))
    ]
    parts = [lang.say("{} broken", broken) + (f" ({', '.join(by_severity)})" if broken else "")]
    if count := len(report.diagnostics):
        parts.append(
            lang.say("{} problem in the configuration", 1)
            if count == 1
            else lang.say("{} problems in the configuration", count)
        )
    parts.append(lang.say("{} undecided", judgement.tally(Verdict.UNDECIDED)))
    reasons = Counter(each.reason for each in judgement.waiting)
    parts += [_waiting_count(reason, count, lang) for reason, count in sorted(reasons.items())]
    parts.append(passed_text(report))
    return " · ".join(parts)


def _waiting_count(reason: str, count: int, lang: Language) -> str:
    if reason == "GPU":
        return lang.say("{} needs a GPU", 1) if count == 1 else lang.say("{} need a GPU", count)
    if count == 1:
        return lang.say("{} waits for {}", 1, lang.word(reason))
    return lang.say("{} wait for {}", count, lang.word(reason))


def passed_text(report: Report) -> str:
    """Return how many rules are decided and not broken.

    Most of them describe a combination that is not present, so "passed" alone would claim too much.
    """
    return report.language.say("{} checks passed or do not apply", report.judgement.passed)
