"""Compare a rule with every stored release, and find where its lines stand outside the checked files.

A proof opens the releases next to a bound. This opens all of them, so that holes, early starts and lines that
moved to another file are seen too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from envcheck.core.rules import Rule
from envcheck.knowledge.proofs import bounds, checks
from envcheck.knowledge.proofs.checks import OpenedRelease
from envcheck.knowledge.proofs.declaration import Proof, ReadCheck
from envcheck.knowledge.proofs.records import SeenRelease, excused
from envcheck.knowledge.proofs.verification import compared, decisive_groups, look_for_all, partners_among

MIN_TRACE = 18
"""Characters of the shortest text that is searched for in all files; shorter ones stand everywhere."""

_NEAR = 25
"""Lines after a checked line within which an error message belongs to it."""


class SweepQuestion(NamedTuple):
    """What is asked of every release of one package for one rule.

    Attributes:
        rule: the rule.
        proof: its proof.
        package: the package that is opened.
        group: checks that must all be true, or a single check that bounds a partner; empty if the package is
            not read.
        texts: fixed texts of the logs of this failure.
    """

    rule: Rule
    proof: Proof
    package: str
    group: tuple[ReadCheck, ...]
    texts: tuple[str, ...] = ()

    @property
    def partner(self) -> str:
        """Return the package whose versions the check bounds; empty for checks that are true or false."""
        return self.group[0].partner if self.group else ""

    @property
    def tables(self) -> tuple[int, ...]:
        """Return the numbers of the `when` tables that the checks are for; empty for all of them."""
        return self.group[0].when if self.group else ()


class DisagreeingReleases(NamedTuple):
    """Consecutive releases of which the same was found, and what was seen in the first of them."""

    side: str
    versions: tuple[str, ...]
    seen: str


def questions(rule: Rule, proof: Proof, signatures: Iterable[str]) -> list[SweepQuestion]:
    """Return what to ask for a rule: one question for each group of checks of a package that the rule bounds.

    `signatures` are the expressions that recognise the failure in a log. Their fixed texts are searched for
    in every package that the rule bounds.
    """
    packages = bounds.bounded_packages(rule)
    texts = tuple(text for each in signatures if len(text := longest_literal(each)) >= MIN_TRACE)
    groups = [tuple(group) for group in decisive_groups(proof.reads)]
    groups += [(check,) for check in proof.reads if check.partner]
    read = [
        SweepQuestion(rule, proof, group[0].package, group)
        for group in groups
        if group[0].package in packages
    ]
    return read + [SweepQuestion(rule, proof, package, (), texts) for package in packages if texts]


def answer(
    question: SweepQuestion, version: str, release: OpenedRelease, releases: Mapping[str, Sequence[str]]
) -> SeenRelease:
    """Return whether one release agrees with the rule."""
    within = bounds.rule_matches(question.rule, question.package, version, question.tables)
    side = "inside" if within else "outside"
    if not question.group:
        return SeenRelease(question.package, version, side, True, "")
    check = question.group[0]
    if check.partner:
        specifier = checks.bound(check, release)
        among = partners_among(check, releases.get(check.partner, ()))
        return compared(question.rule, check, version, specifier, among, side)
    sight = look_for_all(question.group, release)
    agrees = sight.found is within
    if not within:  # another table of the rule may cover it, and a missing file shows nothing
        elsewhere = bounds.rule_matches(question.rule, question.package, version)
        agrees = agrees or elsewhere or not _has_files(question.group, release)
    return SeenRelease(question.package, version, side, agrees, sight.seen)


def _has_files(group: Sequence[ReadCheck], release: OpenedRelease) -> bool:
    """Return whether a release has one of the files of every check, and every module that has a name."""
    modules = [name.rpartition(".")[0] for check in group for name in check.lacks_names]
    return all(
        not check.files or any(release.text(name) is not None for name in check.files) for check in group
    ) and all(checks.module_text(module, release) is not None for module in modules)


def disagreements(question: SweepQuestion, seen: Sequence[SeenRelease]) -> list[DisagreeingReleases]:
    """Return the releases that contradict the rule, those that the proof excuses left out."""
    wrong = [not each.agrees and not excused(question.proof, each) for each in seen]
    marked = [(each.side if bad else "", each) for bad, each in zip(wrong, seen, strict=True)]
    spans = []
    for side, run in groupby(marked, key=lambda pair: pair[0]):
        found = [each for _, each in run]
        if side:
            spans.append(DisagreeingReleases(side, tuple(each.version for each in found), found[0].seen))
    return spans


# --- texts to search for in all files -----------------------------------------------------------------


def traces(question: SweepQuestion, release: OpenedRelease) -> dict[str, frozenset[str]]:
    """Return texts that show the mechanism, each with the files in which it shows nothing new.

    These are the fixed parts of the patterns, the error message next to them, and the texts of the logs. In
    `release` the checks are true.
    """
    found = dict.fromkeys(question.texts, frozenset[str]())
    for check in question.group:
        for expression in check.has:
            literal = longest_literal(expression)
            if len(literal) >= MIN_TRACE:
                found[literal] = frozenset() if check.scope else frozenset(check.files)
            for name in check.files:
                message = _message_near(release.text(name), expression)
                if len(message) >= MIN_TRACE:
                    found.setdefault(message, frozenset())
    return found


def longest_literal(expression: str) -> str:
    """Return the longest text that every match of a regular expression contains."""
    from re import _parser  # type: ignore[attr-defined]

    best = run = ""
    for operator, value in [*_parser.parse(expression)]:
        run = run + chr(value) if str(operator) == "LITERAL" and chr(value) != "\n" else ""
        best = max(best, run, key=len)
    return best.strip()


def _message_near(text: str | None, expression: str) -> str:
    """Return the fixed part of the first error message at or after a match; empty if there is none."""
    match = re.search(expression, text, re.MULTILINE) if text else None
    if match is None or text is None:
        return ""
    line = text.count("\n", 0, match.start()) + 1
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    raised = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and line - 2 <= node.lineno <= line + _NEAR
    ]
    if not raised:
        return ""
    nearest = min(raised, key=lambda node: node.lineno)
    source = ast.get_source_segment(text, nearest) or ""
    return max(_fixed_parts(source), key=len, default="")


def _fixed_parts(source: str) -> Iterator[str]:
    """Yield the fixed parts of the string literals in a statement, one source line at a time."""
    for literal in re.findall(r'"([^"\n]*)"' + r"|'([^'\n]*)'", source):
        for part in re.split(r"\{[^}]*\}|\\n", max(literal)):
            yield part.strip()


# --- words --------------------------------------------------------------------------------------------


def in_words(
    question: SweepQuestion, spans: Iterable[DisagreeingReleases], order: Sequence[str]
) -> list[str]:
    """Return one line for each disagreement."""
    words = {"inside": "too wide: not found in", "outside": "too narrow: found in"}
    if question.partner:
        words = {"inside": "another bound in", "outside": "bound outside in"}
    return [f"  {words[span.side]} {span_words(span.versions, order)}: {span.seen}" for span in spans]


def span_words(found: Sequence[str], order: Sequence[str]) -> str:
    """Return versions as ranges of consecutive releases, such as `1.0 to 1.3, 1.5`."""
    place = {version: number for number, version in enumerate(order)}
    runs: list[list[str]] = []
    for version in found:
        if runs and place[version] == place[runs[-1][-1]] + 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
