"""A mistake in compat/, and the text that lists several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envcheck.core.i18n import counted


class LintProblem(NamedTuple):
    """One mistake: its place, the id it concerns, what was expected and found. Notes do not fail lint."""

    kind: str
    file: str
    line: int
    id: str
    message: str
    note: bool = False


def render_problems(problems: Sequence[LintProblem], folder: str = "compat") -> str:
    """Return the problems, one a line, and their count."""
    lines = [
        f"{folder}/{problem.file}:{problem.line}: {'note' if problem.note else 'error'}: "
        f"{f'{problem.id}: ' if problem.id else ''}{problem.message} [{problem.kind}]\n"
        for problem in problems
    ]
    errors = sum(not problem.note for problem in problems)
    return "".join(lines) + f"{counted(errors, 'error')}, {counted(len(problems) - errors, 'note')}\n"
