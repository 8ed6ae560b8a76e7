"""Inventories that break a rule: made from the rule's own clauses, or taken from its cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Tri, is_device_key
from envcheck.core.rules import Clause, Ref, Rule, When
from envcheck.knowledge.lint.subject import LintSubject
from envcheck.rules import clause_algebra

_MADE_FROM_RULE = "made from the rule"
_MADE_UP = "made up"


def breaking_examples(subject: LintSubject, rule: Rule) -> Iterator[Inventory]:
    """Yield inventories in which the judge finds this rule broken."""
    for table in rule.when:
        made = _make_example(subject, table, rule.require)
        if made is not None and rule.id in subject.broken_rules(made, [rule]):
            yield made
    for _, facts in subject.broken_cases.get(rule.id, []):
        if rule.id in subject.broken_rules(facts, [rule]):
            yield facts


def _make_example(subject: LintSubject, table: When, require: When) -> Inventory | None:
    """Return facts that satisfy every clause of a table and fail `require`; None if no sample does.

    Packages get a release that exists, if the tables list any. The newest is tried first, because users see
    the fix that helps the newest affected version.
    """
    facts: dict[str, Fact] = {}
    for clause in table:
        required = [other for other in require if other.key == clause.key]
        reading = _satisfying(subject, clause, required, facts)
        if reading is None:
            return None
        facts[clause.key] = Fact(clause.key, reading, _MADE_FROM_RULE)
    for clause in require:
        if clause.key in facts:
            _fail_comparison(clause, facts)
            continue
        reading = _failing(subject, clause, facts)
        if reading is None:
            return None
        facts[clause.key] = Fact(clause.key, reading, _MADE_FROM_RULE)
    device = {key: fact for key, fact in facts.items() if is_device_key(key)}
    machine = {key: fact for key, fact in facts.items() if not is_device_key(key)}
    return Inventory(machine, (device,) if device else ())


def _satisfying(
    subject: LintSubject, clause: Clause, required: Sequence[Clause], facts: dict[str, Fact]
) -> Reading | None:
    """Return a reading that satisfies a clause and none of the required ones."""
    if _compares_facts(clause):
        return _version_beside(clause, facts, satisfied=True)
    for reading in _candidates(subject, clause):
        fulfils = any(clause_algebra.answer(other, reading) is Tri.YES for other in required)
        if clause_algebra.answer(clause, reading) is Tri.YES and not fulfils:
            return reading
    return None


def _failing(subject: LintSubject, clause: Clause, facts: dict[str, Fact]) -> Reading | None:
    """Return a reading that does not satisfy a clause; Absent only if the clause is `present`."""
    if _compares_facts(clause):
        return _version_beside(clause, facts, satisfied=False)
    may_be_absent = any(test.op == "present" for tests in clause.any_of for test in tests)
    for reading in _candidates(subject, clause):
        usable = may_be_absent or isinstance(reading, Known)
        if clause_algebra.answer(clause, reading) is Tri.NO and usable:
            return reading
    return None


def _compares_facts(clause: Clause) -> bool:
    return any(isinstance(test.operand, Ref) for tests in clause.any_of for test in tests)


def _candidates(subject: LintSubject, clause: Clause) -> Iterator[Reading]:
    """Yield readings to try: the releases that exist, newest first; samples around the bounds; Absent."""
    yield from (Known(release) for release in reversed(subject.releases_of(clause.key)))
    samples = clause_algebra.sample_readings([clause], subject.declared(clause.key))
    yield from (reading for reading in samples if not isinstance(reading, Absent))
    yield Absent()


def _version_beside(clause: Clause, facts: dict[str, Fact], *, satisfied: bool) -> Reading | None:
    """Return a version that compares with another fact as asked; add the other fact if it is missing."""
    for test in clause.any_of[0]:
        if not isinstance(test.operand, Ref):
            continue
        other = facts.setdefault(test.operand.key, Fact(test.operand.key, Known("500.0"), _MADE_UP))
        for version in (str(other.value), "1.0", "9000.0"):
            if (versions.compare(version, test.op, str(other.value)) is Tri.YES) is satisfied:
                return Known(version)
    return None


def _fail_comparison(clause: Clause, facts: dict[str, Fact]) -> None:
    """Add the facts with which a requirement compares, so that the present version fails it."""
    current = str(facts[clause.key].value)
    for test in clause.any_of[0]:
        if not isinstance(test.operand, Ref) or test.operand.key in facts:
            continue
        for version in ("500.0", "0.1"):
            if versions.compare(current, test.op, version) is Tri.NO:
                facts[test.operand.key] = Fact(test.operand.key, Known(version), _MADE_UP)
                break
