"""Decide from findings and a policy whether the gate opens, and why.

`doctor` uses the default policy for its exit code, so the values here are NamedTuples: they are defined
faster than dataclasses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from envcheck.core.facts import Fact, Known
from envcheck.core.findings import (
    UNREADABLE,
    Diagnostic,
    Evidence,
    Finding,
    Judgement,
    Report,
    Verdict,
    worst_first,
)
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Severity
from envcheck.rules.atlas import without_repetitions

UNDECIDED = ("pass", "warn", "fail")

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Waiver(NamedTuple):
    """A person's exception with a date and a reason: after the day `until` (ISO) the rule counts again."""

    rule: str
    reason: str
    until: str
    place: str  # file:line


class DeclaredMachine(NamedTuple):
    """Machine an image will run on: its driver, GPUs and platform; empty if not declared."""

    name: str
    driver: str = ""
    gpus: tuple[str, ...] = ()
    platform: str = ""


class Settings(NamedTuple):
    """Values of a settings file; the options of a command override them."""

    file: str = ""
    matrix: tuple[str, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    threshold: Severity | None = None
    undecided: str = ""
    target: str = ""
    train: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    lock: str = ""
    skip: tuple[str, ...] = ()
    severity: Mapping[str, Severity] = _NOTHING
    waivers: tuple[Waiver, ...] = ()
    machine: Mapping[str, DeclaredMachine] = _NOTHING


class Policy(NamedTuple):
    """What shuts the gate: broken rules from `fail_on` up, and undecided ones if `undecided` is `fail`.

    `severity` replaces that of a rule. `only` and `skip` name rules, or groups of generated ones (`lock:`).
    `today` (ISO) is the day that waivers are compared with.
    """

    fail_on: Severity = Severity.ERROR
    undecided: str = "warn"
    severity: Mapping[str, Severity] = _NOTHING
    waivers: tuple[Waiver, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    today: str = ""


class Decision(NamedTuple):
    """Exit code and the reasons.

    The code is 0 if the gate is open, 1 if findings or diagnostics of a configuration shut it, 2 if a
    configuration could not be read (the rest was judged, but there may be more to find), and 3 if there was
    nothing to judge.

    `waived` are findings that a waiver keeps from counting, `remarks` the undecided ones that may pass.
    """

    code: int
    reasons: tuple[str, ...]
    waived: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


# --- apply a policy to a report ---------------------------------------------------------------------


def apply_policy(report: Report, diagnostics: Sequence[Diagnostic], policy: Policy) -> Report:
    """Return the report under a policy, with these diagnostics of configurations.

    Severities are the policy's, skipped rules are left out, and the report records what is waived and what
    fails, for formats that show the difference. To a policy, a diagnostic with the code `unknown-key` is the
    rule `remark:unknown-key`; one that could not read its input is never left out.
    """
    judgement = _judgement_under(report.judgement, policy, diagnostics)
    kept = worst_first(
        diagnostic._replace(severity=_severity(_diagnostic_id(diagnostic), diagnostic.severity, policy))
        for diagnostic in diagnostics
        if diagnostic.code == UNREADABLE or _selected(_diagnostic_id(diagnostic), policy)
    )
    ids = [finding.rule.id for finding in judgement.findings]
    ids += [_diagnostic_id(diagnostic) for diagnostic in kept if diagnostic.code != UNREADABLE]
    return report._replace(
        judgement=judgement,
        diagnostics=kept,
        fail_on=policy.fail_on,
        undecided_fails=policy.undecided == "fail",
        undecided_ignored=policy.undecided == "pass",
        waived=frozenset(rule_id for rule_id in ids if _is_waived(rule_id, policy)),
    )


def _diagnostic_id(diagnostic: Diagnostic) -> str:
    return f"remark:{diagnostic.code}"


def _judgement_under(judgement: Judgement, policy: Policy, diagnostics: Sequence[Diagnostic]) -> Judgement:
    """Return the judgement under a policy, with findings about waivers that are expired or unused.

    A finding that is waived stays, with the waiver as its note. If a rule replaced a finding of the atlas and
    `only` does not name the rule, that finding comes back. It does not if `skip` names the rule.
    """
    judgement = _with_rows_of_unselected_rules(judgement, policy)
    findings = (*judgement.findings, *_dead_waivers(judgement, policy, diagnostics))
    selected = [_finding_under(found, policy) for found in findings if _selected(found.rule.id, policy)]
    waiting = tuple(rule for rule in judgement.waiting if _selected(rule.rule.id, policy))
    conditional = (_finding_under(found, policy) for found in judgement.conditional)
    return judgement._replace(
        findings=worst_first(selected),
        waiting=waiting,
        conditional=tuple(found for found in conditional if _selected(found.rule.id, policy)),
    )


def _with_rows_of_unselected_rules(judgement: Judgement, policy: Policy) -> Judgement:
    if not judgement.repeated or not policy.only:
        return judgement
    selected = [finding for finding in judgement.findings if _selected(finding.rule.id, policy)]
    every = (*selected, *judgement.repeated)
    count = judgement.applied + len(judgement.repeated)
    return without_repetitions(judgement._replace(findings=every, applied=count, repeated=()))


def _finding_under(finding: Finding, policy: Policy) -> Finding:
    """Return the finding with the policy's severity, and with its waivers as notes."""
    rule_id = finding.rule.id
    notes = [finding.note] if finding.note else []
    for waiver in policy.waivers:
        if _names(waiver.rule, rule_id):
            state = "waived until" if waiver.until >= policy.today else "no longer waived since"
            notes.append(f"{state} {waiver.until}: {waiver.reason} ({waiver.place})")
    severity = _severity(rule_id, finding.severity, policy)
    return finding._replace(severity=severity, note="; ".join(notes))


def _severity(rule_id: str, severity: Severity, policy: Policy) -> Severity:
    """Return the severity that the policy sets for a rule, the last one if several; else the rule's own."""
    overrides = [override for name, override in policy.severity.items() if _names(name, rule_id)]
    return overrides[-1] if overrides else severity


def _selected(rule_id: str, policy: Policy) -> bool:
    """Return whether `only` and `skip` leave a rule in."""
    if policy.only and not any(_names(name, rule_id) for name in policy.only):
        return False
    return not any(_names(name, rule_id) for name in policy.skip)


def _names(name: str, rule_id: str) -> bool:
    """Return whether a name in a policy is that of a rule, or of its group (`lock:`)."""
    return name == rule_id or (name.endswith(":") and rule_id.startswith(name))


def _is_waived(rule_id: str, policy: Policy) -> bool:
    return any(waiver.until >= policy.today and _names(waiver.rule, rule_id) for waiver in policy.waivers)


def _dead_waivers(
    judgement: Judgement, policy: Policy, diagnostics: Sequence[Diagnostic]
) -> Iterator[Finding]:
    open_rules = {finding.rule.id for finding in judgement.findings}
    open_rules |= {rule.rule.id for rule in judgement.waiting}
    open_rules |= {_diagnostic_id(diagnostic) for diagnostic in diagnostics}
    for waiver in policy.waivers:
        if waiver.until < policy.today:
            yield _waiver_finding("expired", f"a waiver of {waiver.rule} has expired", waiver)
        elif not any(_names(waiver.rule, rule_id) for rule_id in open_rules):
            yield _waiver_finding("unused", f"a waiver of {waiver.rule} matches nothing here", waiver)


def _waiver_finding(what: str, title: str, waiver: Waiver) -> Finding:
    from envcheck.policy.generated_findings import generated_finding  # doctor has no waivers

    return generated_finding(
        f"waiver:{what}",
        Severity.WARNING,
        title,
        [Evidence(Fact("waiver.until", Known(waiver.until), waiver.place))],
        group="policy",
        note=waiver.reason,
    )


def unknown_rules(names: Collection[str], known: Collection[str]) -> list[str]:
    """Return the names that are not known rules; those of generated rules have a colon and are accepted."""
    return [name for name in names if ":" not in name and name not in known]


# --- the decision -----------------------------------------------------------------------------------


def decide(report: Report, policy: Policy) -> Decision:
    """Return whether this environment may pass, with the reasons."""
    reasons: list[str] = []
    waived: list[str] = []
    may_pass: list[str] = []
    lines = {_Effect.SHUTS: reasons, _Effect.WAIVED: waived, _Effect.MAY_PASS: may_pass}
    for reported in report.reported:
        if isinstance(reported, Diagnostic):
            effect, line = _diagnostic_effect(reported, policy), _diagnostic_line(reported, report)
        else:
            effect, line = _finding_effect(reported, policy), _finding_line(reported, report)
        if effect in lines:
            lines[effect].append(line)
    texts = tuple(reasons), tuple(waived), tuple(may_pass)
    if any(diagnostic.code == UNREADABLE for diagnostic in report.diagnostics):
        return Decision(2, *texts)
    if reasons:
        return Decision(1, *texts)
    if report.nothing_to_judge:
        return Decision(3, (report.language.translate(report.nothing_to_judge),))
    return Decision(0, *texts)


class _Effect(Enum):
    """What a finding or diagnostic does to the gate."""

    NONE = 0
    SHUTS = 1
    WAIVED = 2
    MAY_PASS = 3


def _diagnostic_effect(diagnostic: Diagnostic, policy: Policy) -> _Effect:
    if diagnostic.severity.rank < policy.fail_on.rank:
        return _Effect.NONE
    # What could not be read cannot be waived: its content is unknown.
    waived = diagnostic.code != UNREADABLE and _is_waived(_diagnostic_id(diagnostic), policy)
    return _Effect.WAIVED if waived else _Effect.SHUTS


def _finding_effect(finding: Finding, policy: Policy) -> _Effect:
    if _is_waived(finding.rule.id, policy):
        return _Effect.WAIVED
    if finding.verdict is not Verdict.UNDECIDED:
        return _Effect.SHUTS if finding.severity.rank >= policy.fail_on.rank else _Effect.NONE
    by_setting = {"fail": _Effect.SHUTS, "warn": _Effect.MAY_PASS}
    return by_setting.get(policy.undecided, _Effect.NONE)


def _diagnostic_line(diagnostic: Diagnostic, report: Report) -> str:
    severity = report.language.word(diagnostic.severity.value)
    return f"{severity} {diagnostic.code} ({diagnostic.places[0]})"


def _finding_line(finding: Finding, report: Report) -> str:
    state = "undecided" if finding.verdict is Verdict.UNDECIDED else finding.severity.value
    return f"{report.language.word(state)} {finding.rule.id}"
