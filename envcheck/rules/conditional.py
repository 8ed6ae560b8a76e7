"""Conditional findings: waiting rules whose version clauses match and that lack only training facts.

They say what the installed versions are known to fail at before a training configuration is given. They never
change an exit code; what any Trainer fails at is a warning (`failing_under_any_trainer`). The likelihood only
sorts them: it is the share of the known recipes that meet a condition; a recipe that leaves the fact open
counts with the share of its values that meet it.
"""

from collections.abc import Iterable, Iterator

from envcheck.core.facts import Fact, Inventory, Kind, Known, Tri, family, package_key
from envcheck.core.findings import Finding, Judgement, Verdict, Waiting
from envcheck.core.rules import Clause, Comparison, Rule, Severity, Target, When
from envcheck.core.training_facts import KEYS
from envcheck.rules.clauses import evaluate, referenced_keys
from envcheck.rules.judge import evidence_of

_NARROW = frozenset({"==", "<"})
"""Operators of bounds that a later release leaves, so that another version avoids the failure."""

_ONE_OF_MANY = 0.1  # likelihood of one value where the vocabulary is open
_EVEN = 0.5
_UNUSUAL = 0.05  # of a value that a recipe excludes
_ANY_VERSION = 0.5  # weight of a rule that every later version breaks too


def conditional_findings(
    judgement: Judgement, inventory: Inventory, targets: Iterable[Target]
) -> tuple[Finding, ...]:
    """Return the conditional findings of a judgement: worst severity first, then the most likely."""
    known = tuple(targets)
    possible = [target for target in known if _has_packages(inventory, target)]
    recipes = [
        Inventory({key: Fact(key, Known(value), target.name) for key, value in target.train.items()})
        for target in possible or known
    ]
    ranked: list[tuple[int, float, Finding]] = []
    for waiting in judgement.waiting:
        table = _table_that_versions_match(waiting)
        if not table:
            continue
        likelihood = 1.0 if any(map(_is_narrow, table)) else _ANY_VERSION
        for clause in waiting.open:
            usual = _likelihood(clause, recipes)
            likelihood *= usual if clause not in waiting.rule.require else 1 - usual
        evidence = tuple(evidence_of(table, inventory, None))
        severity = waiting.rule.severity
        finding = Finding(waiting.rule, Verdict.CONDITIONAL, severity, evidence, conditions=waiting.open)
        ranked.append((-severity.rank, -likelihood, finding))
    ranked.sort(key=lambda row: row[:2])
    return tuple(finding for _, _, finding in ranked)


def failing_under_any_trainer(
    conditional: Iterable[Finding],
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that need no more than a Trainer to be broken, as warnings, and the others.

    Their errors wait only to be told that transformers' Trainer or one made from it trains, and only a rare
    setting that the rule exempts avoids them. Such an environment is not fit to train, whatever else is
    unknown; as it may be there for inference, that is a warning. Of two about the same packages, the one that
    somebody wrote counts.
    """
    found = list(conditional)
    sure = [each for each in found if each.severity is Severity.ERROR and _waits_for_trainer(each)]
    told: set[frozenset[str]] = set()
    promoted = []
    for finding in sorted(sure, key=lambda each: each.rule.id.startswith("atlas:")):
        packages = frozenset(item.fact.key for item in finding.evidence)
        if packages not in told:
            promoted.append(finding._replace(verdict=Verdict.BROKEN, severity=Severity.WARNING))
        told.add(packages)
    return tuple(promoted), tuple(each for each in found if each not in sure)


def _waits_for_trainer(finding: Finding) -> bool:
    """Return whether only the trainer is open in the finding's table."""
    required = [clause for clause in finding.conditions if clause not in finding.rule.require]
    return bool(required) and all(clause.key == "train.trainer" for clause in required)


def _has_packages(inventory: Inventory, target: Target) -> bool:
    """Return whether an environment has all packages of a recipe, and so may be meant for it."""
    return all(inventory.known(package_key(name)) is not None for name in target.packages)


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
    """Return the clauses of the rule's table that has these open clauses, without them."""
    for table in rule.when:
        if all(clause in table or clause in rule.require for clause in open_clauses):
            return tuple(clause for clause in table if clause not in open_clauses)
    return ()


def _is_bound(clause: Clause) -> bool:
    return clause.kind is Kind.VERSION and any(
        test.op not in ("present", "absent") for test in _tests(clause)
    )


def _is_narrow(clause: Clause) -> bool:
    return clause.kind is Kind.VERSION and any(test.op in _NARROW for test in _tests(clause))


def _tests(clause: Clause) -> Iterator[Comparison]:
    return (test for alternative in clause.any_of for test in alternative)


def _likelihood(clause: Clause, recipes: list[Inventory]) -> float:
    """Return the share of the recipes that meet a condition, from 0 to 1."""
    unsaid = _share_of_values(clause)
    shares = {Tri.YES: 1.0, Tri.MAYBE: unsaid, Tri.NO: min(unsaid, _UNUSUAL)}
    return sum(shares[evaluate(clause, recipe)] for recipe in recipes) / len(recipes) if recipes else unsaid


def _share_of_values(clause: Clause) -> float:
    """Return the share of a fact's possible values that meet a condition."""
    declared = KEYS.get(clause.key)
    tests = list(_tests(clause))
    equal = sum(test.op == "==" for test in tests)
    if declared is None or declared.kind is Kind.FLAG or not equal:
        return 1 - _ONE_OF_MANY if any(test.op == "!=" for test in tests) else _EVEN
    return min(1.0, equal / len(declared.words)) if declared.words else _ONE_OF_MANY
