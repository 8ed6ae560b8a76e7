"""Checks of cases: their rules, facts and signatures, and whether each error rule has enough cases."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.knowledge import log_signatures
from envcheck.knowledge.lint.log_patterns import begins_with_repetition
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintCase, LintSubject

_EXPECTATIONS = ("broken", "fine", "undecided", "signature")
_DECIDED_BY_A_RULE = ("broken", "undecided")
"""Expectations for which a case has to name the rule."""


def _cases(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield cases with a missing, unknown or withdrawn rule, an unknown expectation, or unreadable facts."""
    rules = {row.get("id") for row, _ in subject.rule_rows}
    withdrawn = {row.get("id") for row, _ in subject.rule_rows if "withdrawn" in row}
    for case in subject.cases:
        place, expect, rule = case.place, case.row.get("expect"), case.row.get("rule")
        if rule and rule not in rules:
            message = f"expected the id of a rule; found {rule!r}"
            yield LintProblem("case-rule", place.file, place.at("rule"), case.id, message)
        if rule in withdrawn and expect in _DECIDED_BY_A_RULE:
            message = f"expected a rule that can be {expect}; found {rule!r}, which is withdrawn"
            yield LintProblem("case-rule", place.file, place.at("rule"), case.id, message)
        if expect not in _EXPECTATIONS:
            message = f"expect: expected one of {', '.join(_EXPECTATIONS)}; found {expect!r}"
            yield LintProblem("case", place.file, place.at("expect"), case.id, message)
        if expect in _DECIDED_BY_A_RULE and not rule:
            message = f"expected the rule that is {expect}; found none"
            yield LintProblem("case-rule", place.file, place.line, case.id, message)
        if isinstance(case.facts, InputError):
            yield LintProblem("case", place.file, place.at("facts"), case.id, str(case.facts))


def _signatures(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield signatures that no log could match, or that every log matches."""
    words = [str(row.get("word", "")) for row in subject.tree["tables"].get("trigger", [])]
    for case in subject.cases:
        place = case.place
        known = ", ".join(log_signatures.KINDS)
        if case.row.get("kind", "version") not in log_signatures.KINDS:
            message = f"kind: expected one of {known}; found {case.row['kind']!r}"
            yield LintProblem("case", place.file, place.at("kind"), case.id, message)
        if case.row.get("signature") and not case.row.keys() & {"rule", "kind"}:
            message = f"kind: expected one of {known} in a signature without a rule; found none"
            yield LintProblem("case", place.file, place.at("signature"), case.id, message)
        for message in _signature_problems(case, words):
            yield LintProblem("signature", place.file, place.at("signature"), case.id, message)
        for message in _bound_problems(case.row.get("releases", {})):
            yield LintProblem("case", place.file, place.at("releases"), case.id, message)


def _bound_problems(releases: Any) -> Iterator[str]:
    """Yield the bounds of a signature that are no specifiers of versions."""
    for package, bound in releases.items() if isinstance(releases, dict) else [("", releases)]:
        try:
            parsed = versions.parse_specifier(bound) if isinstance(bound, str) else ()
        except ValueError:
            parsed = ()
        if not parsed:
            expected = 'a package and its bound, such as transformers = ">=5"'
            yield f"releases: expected {expected}; found {package} {bound!r}"


def _signature_problems(case: LintCase, words: Sequence[str]) -> Iterator[str]:
    patterns: Any = case.row.get("signature", [])
    if not isinstance(patterns, list) or not all(isinstance(each, str) and each for each in patterns):
        yield f"signature: expected a list of patterns; found {patterns!r}"
        return
    for pattern in patterns:
        try:
            matches_empty = re.compile(pattern).search("") is not None
        except re.error as error:
            yield f"signature: expected a regular expression; found {pattern!r}: {error}"
        else:
            if matches_empty:
                yield f"signature: expected a pattern; found {pattern!r}, which matches any text"
            if begins_with_repetition(pattern):
                expected = "a pattern that begins with a text or with \\b"
                yield f"signature: expected {expected}; found {pattern!r}"
    if patterns and not any(log_signatures.needs_word(pattern, words) for pattern in patterns):
        yield (
            "signature: expected a pattern that needs one of the words for which logs are searched "
            f"({', '.join(words)}); found none"
        )


def _missing_cases(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield error rules without a case that breaks them, or without a similar case that does not."""
    expected = defaultdict(set)
    for case in subject.cases:
        expected[case.row.get("rule")].add(case.row.get("expect"))
    for rule in subject.error_rules:
        for expect, meaning in (("broken", "comes out broken"), ("fine", "is a near miss")):
            if expect not in expected[rule.id]:
                message = f"expected a case that {meaning} (expect = {expect!r}); found none"
                yield subject.rule_problem("case-missing", rule, message)


CHECKS = (_cases, _signatures, _missing_cases)
