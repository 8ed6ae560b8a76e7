"""Conditional findings: rules whose version clauses match and that wait only for training facts.

They list known failures of the installed versions before a training configuration is given. They do not
change the exit code. `failing_under_any_trainer` turns those that any Trainer would hit into warnings. The
likelihood is used only for sorting. It comes from the share of public training configurations that set what a
condition asks for (compat/tables/habits.toml).
"""

from collections.abc import Iterable, Iterator, Mapping

from envcheck.core.facts import Absent, Fact, Inventory, Kind, Known, Tri, Value, family
from envcheck.core.findings import Finding, Judgement, Verdict, Waiting
from envcheck.core.rules import Clause, Comparison, Rule, Severity, When
from envcheck.core.training_facts import KEYS
from envcheck.rules.clauses import evaluate, referenced_keys
from envcheck.rules.derive import KEYS as DERIVED
from envcheck.rules.judge import evidence_of

_NARROW = frozenset({"==", "<"})
"""Operators of bounds that a later release leaves, so that another version avoids the failure."""

_UNSEEN = 0.001  # least share of a condition, for values that no configuration sets
_EVEN = 0.5  # assumed share for a clause that compares two facts
_ANY_VERSION = 0.5  # weight of a rule that every later version breaks too
_HARM = {Severity.ERROR: 1.0, Severity.WARNING: 0.3, Severity.NOTE: 0.1}
"""Weight of a severity: a warning that one training in ten meets matters more than an error that one in a
thousand meets."""

_OF_ANY_TRAINER = frozenset(
    {"train.trainer", "train.runs_trainer", "train.runs_trainer_import", "train.runs_training_arguments"}
)
"""The facts that are met by whoever trains with transformers' Trainer, or with one derived from it."""

Habits = Mapping[str, Mapping[str, float]]
"""The share of configurations that set a value, by fact and value."""


def conditional_findings(judgement: Judgement, inventory: Inventory, habits: Habits) -> tuple[Finding, ...]:
    """Return the conditional findings of a judgement, those with the greatest expected harm first.

    The expected harm is the likelihood times the weight of the severity.
    """
    ranked: list[tuple[float, Finding]] = []
    for waiting in judgement.waiting:
        table = _table_that_versions_match(waiting)
        if not table:
            continue
        narrow = any(_is_narrow(clause, waiting.rule) for clause in table)
        likelihood = _likelihood(waiting, habits) * (1.0 if narrow else _ANY_VERSION)
        evidence = tuple(evidence_of(table, inventory, None))
        severity = waiting.rule.severity
        finding = Finding(waiting.rule, Verdict.CONDITIONAL, severity, evidence, conditions=waiting.open)
        ranked.append((likelihood * _HARM[severity], finding))
    ranked.sort(key=lambda row: -row[0])
    return tuple(finding for _, finding in ranked)


def later_release_avoids(finding: Finding) -> bool:
    """Return whether a conditional finding is about these versions; if not, it is about settings alone."""
    matched = _matched_clauses(finding.rule, finding.conditions)
    return any(_is_narrow(clause, finding.rule) for clause in matched)


def failing_under_any_trainer(
    conditional: Iterable[Finding],
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return two tuples: errors that any Trainer would hit, as broken warnings, and the other findings.

    The first wait only for the fact that transformers' Trainer, or a trainer derived from it, runs; only a
    rare setting that the rule exempts avoids them. Such an environment cannot train. It may serve for
    inference alone, so the finding is a warning. Findings that rest on a missing package are not promoted,
    because inference does not need accelerate, for example. Of several findings on the same packages, that of
    a written rule is kept.
    """
    found = list(conditional)
    sure = [
        each
        for each in found
        if each.severity is Severity.ERROR and _waits_for_trainer(each) and not rests_on_a_gap(each)
    ]
    told: set[frozenset[str]] = set()
    promoted = []
    for finding in sorted(sure, key=lambda each: each.rule.id.startswith("atlas:")):
        packages = frozenset(item.fact.key for item in finding.evidence)
        if packages not in told:
            promoted.append(finding._replace(verdict=Verdict.BROKEN, severity=Severity.WARNING))
        told.add(packages)
    return tuple(promoted), tuple(each for each in found if each not in sure)


def rests_on_a_gap(finding: Finding) -> bool:
    """Return whether a package that is not installed is part of the evidence."""
    return any(isinstance(item.fact.reading, Absent) for item in finding.evidence)


def _waits_for_trainer(finding: Finding) -> bool:
    """Return whether only the trainer is open in the finding's table."""
    required = [clause for clause in finding.conditions if clause not in finding.rule.require]
    return bool(required) and all(clause.key in _OF_ANY_TRAINER for clause in required)


def _table_that_versions_match(waiting: Waiting) -> When:
    """Return the matched clauses if they bound a version and only training facts are open, else ()."""
    if waiting.reason != "training":
        return ()
    for clause in waiting.open:
        if family(clause.key) != "train" or any(family(key) != "train" for key in referenced_keys(clause)):
            return ()
    matched = _matched_clauses(waiting.rule, waiting.open)
    return matched if any(map(_is_bound, matched)) else ()


def _matched_clauses(rule: Rule, open_clauses: When) -> When:
    """Return the rest of the rule's table that contains these open clauses; empty if none does."""
    # Key and text tell clauses apart; comparing all their fields would take a tenth of a start.
    wanted = {(clause.key, clause.raw) for clause in open_clauses}
    required = {(clause.key, clause.raw) for clause in rule.require}
    for table in rule.when:
        if wanted <= required | {(clause.key, clause.raw) for clause in table}:
            return tuple(clause for clause in table if (clause.key, clause.raw) not in wanted)
    return ()


def _is_bound(clause: Clause) -> bool:
    return clause.kind is Kind.VERSION and any(
        test.op not in ("present", "absent") for test in _tests(clause)
    )


def _is_narrow(clause: Clause, rule: Rule) -> bool:
    """Return whether a later release leaves a bound, and the rule does not say that this cures nothing."""
    if clause.key in rule.no_cure or clause.kind is not Kind.VERSION:
        return False
    return any(test.op in _NARROW for test in _tests(clause))


def _tests(clause: Clause) -> Iterator[Comparison]:
    return (test for alternative in clause.any_of for test in alternative)


def _likelihood(waiting: Waiting, habits: Habits) -> float:
    """Return how likely a training meets all open conditions, from 0 to 1.

    Conditions go together (an FSDP option is set where FSDP is), so a product would be far too small. As in
    query planners, the rarest counts in full and each further one with half the weight of the one before.
    """
    required = waiting.rule.require
    return _combined(
        1 - _share(clause, habits) if clause in required else _share(clause, habits)
        for clause in waiting.open
    )


def rule_likelihood(rule: Rule, inventory: Inventory, habits: Habits) -> float:
    """Return how likely a training meets the training clauses of a rule that are open, from 0 to 1.

    Clauses on versions and on the machine do not count, because no share of them is known.
    """
    tables = [
        table for table in rule.when if all(evaluate(clause, inventory) is not Tri.NO for clause in table)
    ]
    open_clauses = [
        [
            clause
            for clause in table
            if family(clause.key) == "train" and evaluate(clause, inventory) is not Tri.YES
        ]
        for table in tables
    ]
    return max(
        (_combined(_share(clause, habits) for clause in clauses) for clauses in open_clauses), default=0.0
    )


def _combined(shares: Iterable[float]) -> float:
    likelihood = 1.0
    for place, share in enumerate(sorted(shares)):
        likelihood *= max(share, _UNSEEN) ** (0.5**place)
    return likelihood


def _share(clause: Clause, habits: Habits) -> float:
    """Return the share of configurations that meet a condition."""
    shares = {Tri.YES: 1.0, Tri.MAYBE: _EVEN, Tri.NO: 0.0}
    met = 0.0
    given = 0.0
    for text, share in habits.get(clause.key, {}).items():
        fact = Fact(clause.key, Known(_value(clause.key, text)), "")
        met += share * shares[evaluate(clause, Inventory({clause.key: fact}))]
        given += share
    is_absent = any(test.op == "absent" for test in _tests(clause))
    return min(1.0, met + (1 - given) * is_absent)


def _value(key: str, text: str) -> Value:
    declared = KEYS.get(key) or DERIVED.get(key)
    if declared is not None and declared.kind is Kind.FLAG:
        return text == "true"
    return int(text) if declared is not None and declared.kind is Kind.NUMBER else text
