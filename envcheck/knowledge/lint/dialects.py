"""Compare the dialects with the vocabulary: the fact that a setting states must be one of the training.

The rows about several settings may also state derived facts (`train.runs_trainer`), which `rules.derive`
declares. A setting states its value as it stands in a file, and only facts of the training can take that.
"""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_toml
from envcheck.core.training_facts import KEYS
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject


def _facts_of_settings(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield the `[[setting]]` rows of dialects whose key is not a fact of the training."""
    for name, text in subject.texts.items():
        if not name.startswith("dialects/") or not name.endswith(".toml"):
            continue
        try:
            rows = parse_toml(text, name).get("setting", [])
        except InputError as error:
            yield LintProblem("toml", name, 1, "", error.problem)
            continue
        for row in rows:
            key = row.get("key", "")
            if key and key not in KEYS:
                message = f"key: expected a fact of the training; found {key!r}"
                yield LintProblem("dialect", name, _line_of(text, key), str(row["names"][0]), message)


def _line_of(text: str, key: str) -> int:
    """Return the number of the first line that names the key."""
    return next((number for number, line in enumerate(text.splitlines(), 1) if f'"{key}"' in line), 1)


CHECKS = (_facts_of_settings,)
