"""The first line of a report: the answer to the question of the command, in the user's language.

This module uses a named tuple because it is on the start-up path of `doctor`.
"""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core.facts import Absent
from envcheck.core.findings import UNREADABLE, Diagnostic, Finding, Question, Report
from envcheck.core.i18n import Language
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Severity
from envcheck.reports.findings import fails, is_waived
from envcheck.rules.conditional import later_release_avoids


class Headline(NamedTuple):
    """Answer, and its mark (a key of `MARKS`)."""

    text: str
    mark: str


class _Words(NamedTuple):
    """Wording of a command's possible answers."""

    no: str
    perhaps_not: str
    yes: str


_WORDS = {
    Question.DOCTOR: _Words("Will not train", "May not train", ""),
    Question.GATE: _Words("gate shut", "gate shut", "gate open"),
    Question.CHECK: _Words("Failed", "Failed", "Passed"),
}


def headline(report: Report) -> Headline:
    """Return the answer to the question of the report's command."""
    lang, words = report.language, _WORDS[report.question]
    counted = [each for each in report.reported if not is_waived(each, report)]
    failing = [each for each in counted if fails(each, report)]
    unread = [each for each in report.diagnostics if each.code == UNREADABLE]
    if unread and all(each in unread for each in failing):
        return Headline(lang.say("Cannot say: {}", lang.translate(unread[0].text)), "unknown")
    if failing:
        return _failure(failing, counted, report)
    if report.nothing_to_judge:
        return Headline(lang.say("Cannot say: {}", lang.translate(report.nothing_to_judge)), "unknown")
    text, mark = _pass(counted, report)
    if words.yes:
        text = lang.say("{}: {}", lang.word(words.yes), text[:1].lower() + text[1:])
    waived = len(report.waived)
    if waived:
        text = lang.say("{}; {} waived", text, waived)
    return Headline(text, mark)


def _failure(
    failing: Sequence[Finding | Diagnostic], counted: Sequence[Finding | Diagnostic], report: Report
) -> Headline:
    lang, words = report.language, _WORDS[report.question]
    decided = [each for each in failing if isinstance(each, Diagnostic) or each.decided]
    if not decided:
        text = lang.say("{}: {}", lang.word(words.no), _undecided(failing, report))
        return Headline(text, "unknown")
    errors = any(each.severity is Severity.ERROR for each in decided)
    verdict = lang.word(words.no if errors else words.perhaps_not)
    counts, title = _counts(counted, lang), _title(decided[0], lang)
    if report.nothing_to_judge and isinstance(report.inventory.fact("pkg.torch").reading, Absent):
        title = lang.say("No torch in this environment")
    return Headline(lang.say("{}: {}. {}", verdict, counts, title), decided[0].severity.value)


def _pass(counted: Sequence[Finding | Diagnostic], report: Report) -> Headline:
    """Return the headline of a report in which nothing fails."""
    lang = report.language
    decided = [each for each in counted if isinstance(each, Diagnostic) or each.decided]
    undecided = [each for each in counted if each not in decided]
    worst = next((each for each in decided if each.severity is not Severity.NOTE), None)
    if worst is not None:
        text = lang.say("No known error, but {}. {}", _counts(decided, lang), _title(worst, lang))
        return Headline(text, worst.severity.value)
    if undecided and not report.undecided_ignored:
        text = lang.say("No known problem, but {}", _undecided(undecided, report))
        return Headline(text, "unknown")
    if report.measured is not None and not report.measured.differences:
        cell = report.measured.cell
        device = "CPU" if cell.device == "cpu" else cell.device
        trained = lang.say("this combination trained {} on {} ({})", cell.target, cell.date, device)
        return Headline(lang.say("No known problem; {}", trained), "ok")
    if any(key.startswith("train.") for key in report.inventory.facts):
        return Headline(lang.say("No known problem"), "ok")
    return Headline(_before_training(report), "ok")


def _before_training(report: Report) -> str:
    """Return the headline if nothing is known to fail and no training configuration was given."""
    lang, conditional = report.language, report.judgement.conditional
    errors = sum(each.severity is Severity.ERROR and later_release_avoids(each) for each in conditional)
    if errors == 0:
        return lang.say("No known problem so far; no training configuration was given")
    if errors == 1:
        return lang.say("No known problem so far; 1 known failure of these versions depends on how you train")
    text = "No known problem so far; {} known failures of these versions depend on how you train"
    return lang.say(text, errors)


def _undecided(undecided: Sequence[Finding | Diagnostic], report: Report) -> str:
    lang, count = report.language, len(undecided)
    title = _title(undecided[0], lang)
    if count == 1:
        return lang.say("1 check could not be decided. Possible problem: {}", title)
    return lang.say("{} checks could not be decided. Possible problem: {}", count, title)


def _counts(found: Sequence[Finding | Diagnostic], lang: Language) -> str:
    """Return the number of findings of each severity: `1 error, 2 warnings`."""
    decided = [each for each in found if isinstance(each, Diagnostic) or each.decided]
    counts = ((each.value, sum(one.severity is each for one in decided)) for each in Severity)
    return lang.say(", ").join(
        lang.say(f"{{}} {name}{'s' if count > 1 else ''}", count) for name, count in counts if count
    )


def _title(found: Finding | Diagnostic, lang: Language) -> str:
    if isinstance(found, Diagnostic):
        place = f"{found.places[0]}: " if found.places else ""
        return f"{place}{lang.translate(found.text)}"
    return lang.title(found.rule.id, found.rule.title)
