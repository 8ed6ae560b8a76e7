"""Findings and diagnostics line by line, and the closing counts, in the user's language, for all formats.

SARIF prints these texts too, so their English is part of a published format. This module uses named tuples
because it is on the start-up path of `doctor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envcheck.core.errors import Place
from envcheck.core.facts import Absent, Fact, Known, Unknown, package_name
from envcheck.core.findings import (
    Diagnostic,
    Evidence,
    Finding,
    Question,
    Report,
    Verbosity,
    Verdict,
    Waiting,
)
from envcheck.core.i18n import Language, width
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Fix, Severity
from envcheck.core.sanitize import inline
from envcheck.core.training_facts import KEYS as TRAINING
from envcheck.reports.findings import place_of
from envcheck.reports.overview import training_phrase
from envcheck.reports.phrases import fact_text, fix_commands
from envcheck.rules.conditional import later_release_avoids, rests_on_a_gap
from envcheck.rules.fix_words import fix_text, value_text


class Detail(NamedTuple):
    """A line under a finding or a plan: its label, its text, its kind, and the address in the text, if any.

    Kinds: only, because, here, note, why, fix, command, known, set, brings, left, at, advice. The label is
    empty if the line before has the same one.
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
    """Return the first line of a finding: `✗ error: it breaks`."""
    undecided = finding.verdict is Verdict.UNDECIDED
    word = "undecided" if undecided else finding.severity.value
    mark = "unknown" if undecided else finding.severity.value
    return Heading(mark, lang.word(word), lang.title(finding.rule.id, finding.rule.title))


def details(finding: Finding, report: Report) -> Iterator[Detail]:
    """Yield all details of a finding: fixes, GPUs concerned, evidence, reason and sources."""
    lang, rule = report.language, finding.rule
    for number, fix in enumerate(finding.fixes):
        yield from _fix(lang.say("or" if number else "fix"), fix, finding, report)
    yield from _without_fix(finding, lang)
    yield from _devices(finding, lang)
    for number, evidence in enumerate(finding.evidence):
        label = lang.say("because") if number == 0 else ""
        yield Detail(label, evidence_text(evidence, lang), "because")
    yield from _note(finding, lang)
    if rule.why:
        yield Detail(lang.say("why"), lang.why(rule.id, rule.why), "why")
    yield from _useless_fixes(finding, lang)
    yield from _sources(finding, lang)


def brief_details(finding: Finding, report: Report) -> Iterator[Detail]:
    """Yield the details that a person acts on: the first fix, the others in one line, and what was found."""
    lang = report.language
    for fix in finding.fixes[:1]:
        yield from _fix(lang.say("fix"), fix, finding, report)
    others = [fix_text(fix, lang) for fix in finding.fixes[1:]]
    if others:
        yield Detail(lang.say("or"), lang.say("; ").join(others), "fix")
    yield from _without_fix(finding, lang)
    yield from _devices(finding, lang)
    place = place_of(finding, report)
    if place is not None and report.question is not Question.CHECK:  # `check` prints the place first
        yield Detail(lang.say("at"), str(place), "at")
    # Which code a training runs follows from its trainer, which is shown too; a title names requirements.
    implied = ("training.", "train.runs_", "requirement.")
    facts = [each for each in finding.evidence if not each.fact.key.startswith(implied)]
    found = [_brief_evidence(evidence, report) for evidence in facts]
    if found:
        sentences = any(each.fact.key == "listing" for each in facts)
        joint = lang.say("; ") if sentences else lang.say(", ")
        yield Detail(lang.say("here"), joint.join(dict.fromkeys(found)), "here")
    yield from _note(finding, lang, place.file if place is not None else "")


def _devices(finding: Finding, lang: Language) -> Iterator[Detail]:
    if finding.devices:
        devices = "GPU " + ", ".join(str(device) for device in finding.devices)
        yield Detail(lang.say("only"), devices, "only")


def _note(finding: Finding, lang: Language, shown_file: str = "") -> Iterator[Detail]:
    """Yield the note of a finding, without the name of the file that its place shows already."""
    known = ("file", " ", shown_file)
    parts = [part for part in finding.note.split("; ") if part and part.partition(" ") != known]
    if parts:
        yield Detail(lang.say("note"), "; ".join(map(lang.translate, parts)), "note")


def _fix(label: str, fix: Fix, finding: Finding, report: Report) -> Iterator[Detail]:
    """Yield a fix with its cost, followed by its commands."""
    lang, rule = report.language, finding.rule
    cost = lang.cost(rule.id, [each.cost for each in rule.fixes], fix.cost)
    stated = [each for each in (cost, lang.translate(fix.conflict)) if each]
    cost = f" ({lang.say('; ').join(stated)})" if stated else ""
    yield Detail(label, f"{fix_text(fix, lang)}{cost}", "fix")
    if settings := [found for key, _ in fix.set if (found := _setting(key, report))]:
        yield Detail("", lang.say("; ").join(dict.fromkeys(settings)), "fix")
    if report.question is Question.CHECK:
        return  # nothing is installed yet, so the user edits the files
    for command in fix_commands(fix, report):
        yield Detail("", command, "command")


def _setting(key: str, report: Report) -> str:
    """Return the user's own name and place of a setting that states a fact; empty if none does."""
    place, _, name = report.inventory.fact(key).source.rpartition(": ")
    if not key.startswith("train.") or not place.rpartition(":")[2].isdecimal():
        return ""
    return report.language.say("{} is {} in {}", key, name, place)


def _without_fix(finding: Finding, lang: Language) -> Iterator[Detail]:
    """Yield a sentence if fixes are known and none of them helps here."""
    if finding.rule.fixes and not finding.fixes and finding.decided:
        no_fix = lang.say("none of the known fixes passes the judge here on its own")
        yield Detail(lang.say("fix"), no_fix, "fix")


def _useless_fixes(finding: Finding, lang: Language) -> Iterator[Detail]:
    """Yield the changes that are known not to help, each with the reason."""
    rule = finding.rule
    reasons = [each.why for each in rule.no_fixes]
    for useless in rule.no_fixes:
        changes = fix_text(Fix(useless.set), lang)
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
    note = f"; {lang.translate(evidence.note)}" if evidence.note else ""
    return f"{name} {state}{f' ({source})' if source else ''}{note}"


def evidence_parts(evidence: Evidence, lang: Language) -> tuple[str, str, str]:
    """Return a fact of the evidence in three parts: its name, its state, and its source."""
    fact = evidence.fact
    name = fact.key if evidence.device is None else fact.key.replace("gpu.", f"gpu[{evidence.device}].", 1)
    return name, _state(fact, lang), lang.translate(fact.source)


def _brief_evidence(evidence: Evidence, report: Report) -> str:
    """Return a fact of the evidence in short: `torch 2.6.0`, `ZeRO-3`, `driver.version 535.104.05`."""
    key, value, lang = evidence.fact.key, evidence.fact.value, report.language
    name = package_name(key)
    if isinstance(evidence.fact.reading, Unknown) and key == "listing":
        return f"{evidence.fact.source}: {lang.translate(evidence.fact.reading.why)}"
    if value is None:
        state = _state(evidence.fact, lang)
        return f"{name} {state}"
    if key in TRAINING:
        return training_phrase(key, value_text(value), lang)
    if key == "gpu.in_torch_build" and (evidence.device or 0) < len(report.inventory.devices):
        gpu = fact_text(report.inventory, "gpu.name", evidence.device) or f"GPU {evidence.device}"
        capability = fact_text(report.inventory, "gpu.compute_capability", evidence.device)
        torch = fact_text(report.inventory, "pkg.torch")
        label = lang.say("compute capability")
        return lang.say(", ").join((gpu, f"{label} {capability}", f"torch {torch}"))
    if evidence.device is not None:
        name = key.replace("gpu.", f"gpu[{evidence.device}].", 1)
    return f"{name} {value_text(value)}"


def _state(fact: Fact, lang: Language) -> str:
    match fact.reading:
        case Known(value):
            return f"= {value_text(value)}"
        case Absent():
            return lang.say("is absent")
        case Unknown(why, _):
            return lang.say("is not known: {}", lang.translate(why))


# --- diagnostics of configurations ------------------------------------------------------------------


def diagnostic_details(diagnostic: Diagnostic, lang: Language) -> Iterator[Detail]:
    """Yield what to do about a diagnostic, and the source code that proves it."""
    if diagnostic.advice:
        yield Detail(lang.say("fix"), lang.translate(diagnostic.advice), "advice")
    if diagnostic.source:
        yield Detail(lang.say("known"), diagnostic.source, "known", diagnostic.source)


def quotation(place: Place) -> tuple[tuple[str, str, str], ...]:
    """Return the quoted line and its underline, each as (line number, text, underline); empty if unknown."""
    if not place.excerpt:
        return ()
    # Sanitise here: an escape is wider than the character that it replaces and would shift the underline.
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


def waiting_text(waiting: Waiting, lang: Language) -> str:
    """Return what a rule waits for and its open conditions: `training: if you train with ZeRO-3`."""
    from envcheck.reports.conditions import conditions_text  # only JUnit lists every waiting rule

    if all(clause.key.startswith("train.") for clause in waiting.open):
        return f"{lang.word(waiting.reason)}: {conditions_text(waiting.open, waiting.rule.require, lang)}"
    clauses = " + ".join(f"{clause.key} {lang.alternatives(clause.raw)}" for clause in waiting.open)
    return f"{lang.word(waiting.reason)}: {clauses}"


def not_judged_line(report: Report) -> str:
    """Return one line: how much was judged, what was not, and which option would supply the missing facts."""
    lang = report.language
    counts = Counter(_need(each, report) for each in report.judgement.waiting)
    parts = [_not_judged(need, counts[need], report) for need in _NEEDS if counts[need]]
    passed = passed_text(report)
    if not parts:
        return lang.say("{}.", passed)
    return lang.say("{}. Not judged: {}.", passed, lang.say("; ").join(parts))


_NEEDS = ("training", "packages", "GPU", "machine")


def _need(waiting: Waiting, report: Report) -> str:
    """Return what a waiting rule needs: one of `_NEEDS`."""
    if waiting.reason in ("training", "packages"):
        return waiting.reason
    return "GPU" if waiting.reason == "GPU" and not report.inventory.devices else "machine"


def _not_judged(need: str, count: int, report: Report) -> str:
    lang = report.language
    checks = lang.say("{} check", 1) if count == 1 else lang.say("{} checks", count)
    if need == "training":
        given = any(key.startswith("train.") for key in report.inventory.facts)
        what = "--train FILE" if given else "--target NAME, --train FILE"
        return lang.say("{} on how you train (give {})", checks, what)
    if need == "GPU":
        known = report.inventory.known("driver.version") is not None
        what = "--gpu NAME" if known else "--gpu NAME, --driver VERSION"
        return lang.say("{} on the GPU (declare it: {})", checks, what)
    if need == "packages":
        return lang.say("{} on packages that are not given", checks)
    return lang.say("{} possible only on the real machine", checks)


def way_out(report: Report) -> str:
    """Return what to do if nothing could be judged: name another environment or make one; else return ""."""
    if not report.nothing_to_judge or report.question is Question.CHECK:
        return ""
    if not isinstance(report.inventory.fact("pkg.torch").reading, Absent):
        return report.language.say("add the packages, such as what `pip list` prints: --facts FILE")
    if report.target is None:
        return report.language.say(
            "name the environment that trains (--python PATH), or make one: envcheck pin"
        )
    name = report.target.name
    return report.language.say(
        "name the environment that trains (--python PATH), or make one: envcheck pin --target {}", name
    )


# --- conditional findings ---------------------------------------------------------------------------

_SHOWN, _SHOWN_BESIDE_FINDINGS = 6, 2
"""How many conditional errors and warnings are named; all of them, and notes, with `--verbose`."""

_OUTCOMES = dict(zip(Severity, ("fails", "may go wrong", "worth knowing"), strict=True))


class ConditionalRow(NamedTuple):
    """A conditional finding in words: `fails if you train with ZeRO-3`, the title, and the rule's id."""

    when: str
    title: str
    rule: str


def conditional_rows(report: Report) -> tuple[list[ConditionalRow], str]:
    """Return the conditional findings to show, the greatest harm first, and a text that counts the others.

    Without `--verbose`, only those are shown that a later release or a missing package would avoid. The text
    is empty if there are no others, or if nothing is shown.
    """
    found = report.judgement.conditional
    every = report.verbosity is Verbosity.ALL
    most = _SHOWN_BESIDE_FINDINGS if any(each.decided for each in report.judgement.findings) else _SHOWN
    if every:
        listed = list(found)
    else:
        serious = [each for each in found if each.severity is not Severity.NOTE]
        listed = [each for each in serious if later_release_avoids(each) or rests_on_a_gap(each)][:most]
    if not listed:
        return [], ""
    from envcheck.reports.conditions import finding_conditions  # not every report has one

    lang = report.language
    rows = []
    for each in listed:
        outcome = lang.word(_OUTCOMES[each.severity])
        when = lang.say("{} {}", outcome, finding_conditions(each, lang, every=every))
        rows.append(ConditionalRow(when, lang.title(each.rule.id, each.rule.title), each.rule.id))
    more = len(found) - len(listed)
    return rows, lang.say("{} more, less severe or less likely", more) if more else ""


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
