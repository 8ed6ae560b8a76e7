"""Find the known rule that explains a failed self-test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from envcheck.commands import loading, tried_fixes
from envcheck.commands.selftest.environment import TestEnvironment
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.findings import Finding, Judgement, Verdict
from envcheck.core.rules import Severity
from envcheck.knowledge import log_signatures
from envcheck.rules import derive, judge
from envcheck.rules.fix_words import fix_text
from envcheck.selftest import outcome as selftest_outcome
from envcheck.selftest.declaration import SelftestVariant
from envcheck.selftest.outcome import Outcome


def with_rule(outcome: Outcome, prepared: TestEnvironment) -> Outcome:
    """Return a failed outcome with the rule that explains it, if there is one.

    Only rules that forbid this way of training here are considered. If a signature in a rule's cases matches
    the failure, the outcome is `sure`. Otherwise any such rule on training is named, but not as sure.
    """
    if outcome.result != selftest_outcome.FAIL:
        return outcome
    judgement, read, derived = broken_rules(outcome.variant, prepared)
    text = f"{outcome.why}\n{outcome.trace}"
    matching = [finding for finding in judgement.findings if _speaks(finding.rule.id, text)]
    found = matching or list(filter(concerns_training, judgement.findings))
    if not found:
        return outcome
    judgement = judgement._replace(findings=tuple(found))
    first = tried_fixes.add_fixes(judgement, read, derived, prepared.matrix, None).findings[0]
    ways_out = tuple(fix_text(fix) for fix in first.fixes)
    return outcome._replace(rule=first.rule.id, sure=bool(matching), ways_out=ways_out)


def broken_rules(
    variant: SelftestVariant, prepared: TestEnvironment
) -> tuple[Judgement, Inventory, Inventory]:
    """Judge a variant's way of training here by the rules at error level.

    Returns the broken findings, the facts as read, and the facts with what was derived from them.
    """
    source = f"self-test {variant.name}"
    train = [Fact(f"train.{key}", Known(value), source) for key, value in variant.train.items()]
    read = prepared.inventory.with_facts(train)
    derived = derive.derive(read, prepared.matrix)
    errors = [rule for rule in prepared.matrix.rules if rule.severity is Severity.ERROR]
    judgement = judge.judge(derived, errors)
    broken = tuple(each for each in judgement.findings if each.verdict is Verdict.BROKEN)
    return judgement._replace(findings=broken), read, derived


def concerns_training(finding: Finding) -> bool:
    """Return whether a finding rests on a fact about training."""
    return any(item.fact.key.startswith("train.") for item in finding.evidence)


def _speaks(rule_id: str, text: str) -> bool:
    return log_signatures.any_signature_matches(_signatures().get(rule_id, ()), text)


@cache
def _signatures() -> Mapping[str, Sequence[log_signatures.Signature]]:
    """Return the signatures in the cases of each rule, by the rule's id."""
    found: dict[str, list[log_signatures.Signature]] = {}
    for signature in log_signatures.compile_signatures(
        loading.read_only_tree()["case"], loading.needed_texts()
    ):
        found.setdefault(signature.rule, []).append(signature)
    return found
