"""Compare a cause with an environment: are the conditions of its known failure met there? Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from envcheck.core.facts import Inventory, Tri, Unknown, package_key
from envcheck.core.findings import Evidence, Finding, Judgement, Verdict
from envcheck.core.rules import Fix, Rule, Severity
from envcheck.logs.diagnosis import Cause
from envcheck.rules.clauses import evaluate, format_value
from envcheck.rules.fixes import bind_fix

_IDENTIFIER = re.compile(r"\b(?=\w{8,})[a-z]*_\w+\b")
"""A name of code in a message: `num_items_in_batch`."""

_COMMON = frozenset(
    {"from_pretrained", "state_dict", "load_state_dict", "requires_grad", "device_map", "train_batch_size"}
    | {"gradient_checkpointing", "gradient_clipping", "save_pretrained", "torch_dtype"}
)
"""Names that say nothing about which failure a message is of."""


def probable_findings(
    cause: Cause, findings: Iterable[Finding], packages: frozenset[str]
) -> tuple[Finding, ...]:
    """Return the broken errors of an environment that are probably the cause, if no signature matched it.

    Such a rule is about a package that the traceback goes through, and names what the message names.
    """
    said = " ".join(raised.message for raised in cause.event.exceptions)
    names = {*_IDENTIFIER.findall(said)} - _COMMON
    keys = {package_key(package) for package in packages}
    return tuple(
        found
        for found in findings
        if found.verdict is Verdict.BROKEN
        and found.severity is Severity.ERROR
        and keys & {clause.key for table in found.rule.when for clause in table}
        and names & {*_IDENTIFIER.findall(f"{found.rule.title} {found.rule.why}")}
    )


def releases_met(rule: Rule, inventory: Inventory) -> int:
    """Return how many releases meet the best of a rule's tables; -1 if each table has one that does not."""
    counts = [-1]
    for table in rule.when:
        answers = [evaluate(clause, inventory) for clause in table if clause.key.startswith("pkg.")]
        if Tri.NO not in answers:
            counts.append(answers.count(Tri.YES))
    return max(counts)


class EnvironmentMatch(NamedTuple):
    """Say whether the conditions of a match are met in an environment.

    `answer` is `yes`, `no`, `unknown`, or `text` for a case without conditions. `because` has facts in words:
    those that meet the conditions (yes), that do not (no), or that are missing (unknown). `fixes` passed the
    judge for yes, and are untried for unknown. `likelihood` orders the unknown ones: how often trainings set
    what the rule waits for.
    """

    answer: str
    because: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    finding: Finding | None = None
    likelihood: float = 1.0


def match_environment(rule: Rule | None, inventory: Inventory, judgement: Judgement) -> EnvironmentMatch:
    """Return whether a rule is broken in an environment; the judgement must have fixes."""
    if rule is None:
        return EnvironmentMatch("text")
    finding = next((found for found in judgement.findings if found.rule.id == rule.id), None)
    if finding is not None and finding.verdict is Verdict.BROKEN:
        return EnvironmentMatch("yes", _met_conditions(finding), finding.fixes, finding)
    device = next(iter(inventory.visible_devices()), None)
    untried = tuple(bound for fix in rule.fixes if (bound := bind_fix(fix, inventory, device)))
    if finding is not None:
        return EnvironmentMatch("unknown", tuple(map(_unread, finding.evidence)), untried, finding)
    waiting = next((entry for entry in judgement.waiting if entry.rule.id == rule.id), None)
    if waiting is not None:
        return EnvironmentMatch(
            "unknown", tuple(dict.fromkeys(clause.key for clause in waiting.open)), untried
        )
    return EnvironmentMatch("no", _unmet_conditions(rule, inventory, device))


def _met_conditions(finding: Finding) -> tuple[str, ...]:
    """Return the facts that broke a rule, in words."""
    facts = [evidence.fact for evidence in finding.evidence]
    return tuple(f"{fact.key} = {format_value(fact.value)}" for fact in facts if fact.value is not None)


def _unmet_conditions(rule: Rule, inventory: Inventory, device: int | None) -> tuple[str, ...]:
    """Return why a rule is not broken: the unmet clauses of its closest table, else its requirements."""
    unmet = [
        [clause for clause in table if evaluate(clause, inventory, device) is Tri.NO] for table in rule.when
    ]
    reasons = [
        f"{clause.key} is {_shown_fact(clause.key, inventory, device)}, not {clause.raw}"
        for clause in min(unmet, key=len)
    ]
    required = [f"{clause.key} is {_shown_fact(clause.key, inventory, device)}" for clause in rule.require]
    return tuple(reasons or required)


def _unread(evidence: Evidence) -> str:
    """Return a missing fact with the reason why it could not be read."""
    why = evidence.fact.reading.why if isinstance(evidence.fact.reading, Unknown) else ""
    return f"{evidence.fact.key} ({why})" if why else evidence.fact.key


def _shown_fact(key: str, inventory: Inventory, device: int | None) -> str:
    value = inventory.fact(key, device).value
    return "absent" if value is None else format_value(value)
