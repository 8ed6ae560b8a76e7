"""Check a diagnosis against the judged environment: what cannot apply there, what is there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envcheck.commands.explain import library_answers
from envcheck.commands.explain.known import ExplainKnowledge
from envcheck.core.findings import Finding, Report
from envcheck.core.rules import Rule
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import missing_names
from envcheck.logs.diagnosis import Diagnosis
from envcheck.logs.environment_match import EnvironmentMatch, match_environment, probable_findings
from envcheck.logs.events import Log
from envcheck.logs.installed import installed_already
from envcheck.logs.pip_offers import PipOffer, pip_offer
from envcheck.rules import conditional


def without_contradicted(
    diagnosis: Diagnosis, log: Log, report: Report, tables: Mapping[str, Any]
) -> Diagnosis:
    """Return the diagnosis; if no known failure with the text of the cause can apply here, without them.

    They stay among the matches, and what else is known of the text then says what failed. A rule on the very
    name that is missing stays, because then the environment is not the one of the log.
    """
    cause = diagnosis.cause
    if cause is None or cause.match is None:
        return diagnosis
    home = log.events.index(cause.event)
    if library_answers.stated_package_that_takes(cause.event, report.inventory):
        refuted = [one for one in diagnosis.matches if one.event == home and not one.signature.rule]
        if cause.match in refuted:
            others = tuple(match for match in diagnosis.matches if match not in refuted)
            return log_diagnosis.without_match(diagnosis._replace(matches=others))
    alike = [match.signature.rule for match in diagnosis.matches if match.event == home]
    rules = [report.matrix.rule(rule) if rule else None for rule in alike]
    if any(rule is None or match_here(rule, report).answer != "no" for rule in rules):
        return diagnosis
    missing = missing_names.missing_name(cause.event, tables)
    if missing is not None and any(rule in rules for rule in missing_names.rules_on(missing, report.matrix)):
        return diagnosis
    return log_diagnosis.without_match(diagnosis)


def with_offer(
    diagnosis: Diagnosis, log: Log, log_text: str, report: Report, tables: Mapping[str, Any]
) -> tuple[Diagnosis, PipOffer | None]:
    """Return why pip did not find a release, if its message says so, and the diagnosis without guesses on it.

    The text has many causes. A known one of them stays if it certainly applies to the judged environment.
    """
    cause = diagnosis.cause
    if cause is None:
        return diagnosis, None
    labels: dict[str, set[str]] = {}
    for row in tables.get("variant", ()):
        labels.setdefault(row["torch"], set()).add(row["tag"])
    offer = pip_offer(cause.event.text, log_text, labels)
    if offer is None or not offer.explains:
        return diagnosis, None
    home = log.events.index(cause.event)
    certain = [
        match
        for match in diagnosis.matches
        if match_here(report.matrix.rule(match.signature.rule or ""), report).answer == "yes"
    ]
    if cause.match in certain:
        return diagnosis, None
    others = tuple(match for match in diagnosis.matches if match.event != home or match in certain)
    return log_diagnosis.without_match(diagnosis._replace(matches=others)), offer


def match_here(rule: Rule | None, report: Report) -> EnvironmentMatch:
    """Return whether a known failure applies to the judged environment, and if that is open, how likely."""
    here = match_environment(rule, report.inventory, report.judgement)
    if rule is None or here.answer != "unknown":
        return here
    habits = report.matrix.tables.habits
    return here._replace(likelihood=conditional.rule_likelihood(rule, report.inventory, habits))


def without_fulfilled(diagnosis: Diagnosis, report: Report) -> Diagnosis:
    """Return the diagnosis; if what the cause asks to be installed is installed, its kind is open."""
    cause = diagnosis.cause
    if cause is None or cause.match is not None or cause.kind != "missing" or cause.told is None:
        return diagnosis
    fulfilled = installed_already(cause.told.message, report.inventory)
    return diagnosis._replace(cause=cause._replace(kind="open")) if fulfilled else diagnosis


def with_probable(
    diagnosis: Diagnosis, report: Report, known: ExplainKnowledge
) -> tuple[Diagnosis, tuple[Finding, ...]]:
    """Return the broken errors that are probably the cause; the diagnosis then calls it one of versions."""
    cause = diagnosis.cause
    if cause is None or cause.match is not None or cause.kind not in ("unknown", "version"):
        return diagnosis, ()
    tables = known.tree["tables"]
    distributions = missing_names.distributions_by_module(tables)
    packages = missing_names.packages_in(cause.event, distributions)
    probable = probable_findings(cause, report.judgement.findings, packages)
    return diagnosis._replace(cause=cause._replace(kind="version")) if probable else diagnosis, probable
