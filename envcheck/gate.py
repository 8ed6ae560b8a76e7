"""Findings and a policy → open or shut, and why. Pure; `doctor`'s exit code is the default policy's."""

from __future__ import annotations

from typing import NamedTuple

from envcheck.model import UNREADABLE, Report, Severity, Verdict


class Policy(NamedTuple):
    """What shuts the gate: broken rules from `fail_on` up, and undecided ones if `undecided_fails`."""

    fail_on: Severity = Severity.ERROR
    undecided_fails: bool = False


class Decision(NamedTuple):
    """The exit code and the reasons.

    0 open, 1 shut by findings or by remarks on a configuration, 2 a configuration could not be read (the
    rest was judged, but what was found is not all), 3 nothing was there to judge.
    """

    code: int
    reasons: tuple[str, ...]


def decide(report: Report, policy: Policy) -> Decision:
    """Whether this environment may pass."""
    lang = report.language
    reasons = tuple(
        f"{lang.word(finding.severity.value)} {finding.rule.id}"
        if finding.verdict is Verdict.BROKEN
        else f"{lang.word('undecided')} {finding.rule.id}"
        for finding in report.judgement.findings
        if (finding.verdict is Verdict.BROKEN and finding.severity.rank >= policy.fail_on.rank)
        or (finding.verdict is Verdict.UNDECIDED and policy.undecided_fails)
    )
    remarks = tuple(
        f"{lang.word(remark.severity.value)} {remark.code} ({remark.places[0]})"
        for remark in report.remarks
        if remark.severity.rank >= policy.fail_on.rank
    )
    if any(remark.code == UNREADABLE for remark in report.remarks):
        return Decision(2, (*remarks, *reasons))
    if remarks or reasons:
        return Decision(1, (*remarks, *reasons))
    if report.nothing_to_judge:
        return Decision(3, (lang.told(report.nothing_to_judge),))
    return Decision(0, ())
