"""Checks of proofs: releases on both sides of each bound of an error rule were opened, and those of fixes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import package_name
from envcheck.core.rules import Clause, Rule, Severity
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject
from envcheck.knowledge.proofs import bounds, records
from envcheck.knowledge.proofs.declaration import Proof, ReadCheck, RunCheck, read_proof
from envcheck.knowledge.proofs.records import ProofRecord

_PROVE = "run `envcheck matrix prove`"


def _proofs(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield missing proofs, mistakes in proofs, and what their records lack or refute."""
    try:
        known = records.read_records(subject.texts)
    except ValueError as error:
        yield LintProblem("proof", str(error).partition(":")[0], 1, "", str(error).partition(": ")[2])
        return
    loaded = {rule.id: rule for rule in subject.known.rules}
    for row, _ in subject.rule_rows:
        rule = loaded.get(row.get("id"))
        if rule is not None and row.get("file") == f"rules/{rule.group}.toml":
            for message in _messages(subject, rule, row, known.get(rule.id)):
                yield subject.rule_problem("proof", rule, message, subject.place_of(rule).at("proof"))


def _messages(
    subject: LintSubject, rule: Rule, row: Mapping[str, Any], record: ProofRecord | None
) -> Iterator[str]:
    if "proof" not in row:
        if rule.severity is Severity.ERROR and (packages := bounds.bounded_packages(rule)):
            yield f"expected a proof of the bounds on {', '.join(packages)}, or proof.none with the reason"
        return
    proof, problems = read_proof(row["proof"])
    yield from problems
    if problems or not (proof.reads or proof.runs):
        return
    if record is None or record.digest != records.proof_digest(row):
        state = "found none" if record is None else "found one of another text"
        yield f"expected a record of this proof; {state}; {_PROVE}"
        return
    for seen in records.contradictions(rule, proof, record.opened):
        yield f"{seen.name} ({seen.side}) contradicts the rule: {seen.seen}"
    yield from _unopened_bounds(subject, rule, proof, record)
    yield from _unopened_fixes(rule, proof, record)


def _unopened_bounds(subject: LintSubject, rule: Rule, proof: Proof, record: ProofRecord) -> Iterator[str]:
    for number, clause in bounds.version_clauses(rule):
        package = package_name(clause.key)
        if package in proof.unopened or _bounded_by_partner(proof, package, number):
            continue
        if not _is_checked(proof, package, number):
            yield f"expected a check of {package} {clause.raw}, or the reason under proof.unopened"
            continue
        for edge in bounds.edges(clause, subject.offered_releases_of(clause.key)):
            if not _is_opened(clause, edge, record):
                message = f"expected {package} {edge.inside} and {edge.outside} in the record of this proof"
                yield f"{message}; {_PROVE}"


def _is_checked(proof: Proof, package: str, number: int) -> bool:
    checks: list[ReadCheck | RunCheck] = [*proof.reads, *proof.runs]
    return any(check.package == package and (not check.when or number in check.when) for check in checks)


def _bounded_by_partner(proof: Proof, package: str, number: int) -> bool:
    """Return whether a check reads the bound on a package from the release of another one."""
    return any(check.partner == package and (not check.when or number in check.when) for check in proof.reads)


def _is_opened(clause: Clause, edge: bounds.Edge, record: ProofRecord) -> bool:
    """Return whether releases on both sides were opened that lie as near to the bound as the listed ones."""
    low, high = sorted((edge.inside, edge.outside), key=versions.order)
    near = [
        seen.version
        for seen in record.opened
        if seen.package == edge.package
        and seen.shows
        and versions.order(low) <= versions.order(seen.version) <= versions.order(high)
    ]
    return {bounds.matches(clause, version) for version in near} == {True, False}


def _unopened_fixes(rule: Rule, proof: Proof, record: ProofRecord) -> Iterator[str]:
    for number in range(1, len(rule.fixes) + 1):
        advised = [each for each in bounds.advised(rule, {}) if each.fix == number]
        opened = any(seen.side.removesuffix(records.RUN) == f"fix {number}" for seen in record.opened)
        if advised and not opened and not any(each.package in proof.unopened for each in advised):
            listed = " and ".join(f"{each.package} {each.version}" for each in advised)
            yield f"expected the fix {listed} in the record of this proof; {_PROVE}"


CHECKS = (_proofs,)
