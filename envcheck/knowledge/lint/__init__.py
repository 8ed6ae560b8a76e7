"""Find every mistake in compat/ at once, each with file and line.

May import the other modules of knowledge, and rules. It must not read files or the clock: it takes the texts
of the files and today's date.

The loader's own errors come first; the other checks compare rules, cases, cells and tables with one another.
The judge itself evaluates the rules, so every check agrees with it on what a rule means. `subject` holds what
every check reads; each further module holds one family of checks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from envcheck.core.facts import Vocabulary
from envcheck.core.rules import Atlas
from envcheck.knowledge.lint import (
    atlas,
    cases,
    dialects,
    fixes,
    load_errors,
    log_patterns,
    measurements,
    proofs,
    rows,
    rules,
)
from envcheck.knowledge.lint.measurements import newer_releases
from envcheck.knowledge.lint.problems import LintProblem, render_problems
from envcheck.knowledge.lint.subject import LintSubject

__all__ = ["LintProblem", "lint", "newer_releases", "render_problems"]

NO_ATLAS = Atlas()

_CHECKS = (
    *load_errors.CHECKS,
    *rows.CHECKS,
    *cases.CHECKS,
    *rules.CHECKS,
    *fixes.CHECKS,
    *measurements.CHECKS,
    *proofs.CHECKS,
    *atlas.CHECKS,
    *dialects.CHECKS,
    *log_patterns.CHECKS,
)


def lint(
    texts: Mapping[str, str],
    vocabulary: Vocabulary,
    today: dt.date,
    newer: Mapping[str, Sequence[str]] | None = None,
    code: Atlas = NO_ATLAS,
) -> list[LintProblem]:
    """Return everything that is wrong, by file and line.

    `texts` are the files of compat/ by their names in it. `newer` are the releases on an index beyond
    `known_through`, by package. `code` is what the published releases ask of one another.
    """
    tree, readable, problems = load_errors.readable_files(texts)
    subject = LintSubject(tree, readable, vocabulary, today, code)
    for check in _CHECKS:
        problems += check(subject)
    problems += measurements.unknown_releases(subject, newer or {})
    return sorted(
        set(problems),
        key=lambda problem: (problem.file, problem.line, problem.note, problem.id, problem.message),
    )
