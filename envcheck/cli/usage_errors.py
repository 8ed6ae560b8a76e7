"""Answers to a wrong command line: what is wrong, and the option that a misplaced word belongs to."""

from __future__ import annotations

import re
import shlex
from typing import Any

from envcheck import dependency_files
from envcheck.cli import completion
from envcheck.core.errors import EnvcheckError

_EXTRA = re.compile(r"unexpected extra arguments?(?:\(s\))? \((\S+)\)")
_TRAINING = re.compile(r".*\.(?:sh|py|ya?ml|json|toml|sbatch|slurm|ipynb)")


def describe(error: Any) -> str:
    """Return one line on an error of click: its message, and how the word is given that is not expected."""
    message = " ".join(str(error.format_message()).split())  # click lists choices line by line
    word = _EXTRA.search(message)
    meant = _meant_by(word[1], error.ctx) if word is not None and error.ctx is not None else ""
    if word is None or not meant:
        return f"{message} (--help shows the options)"
    return f"{message}; did you mean {meant} {shlex.quote(word[1])}?"


def _meant_by(word: str, context: Any) -> str:
    """Return the option of a command, or the other command, that takes such a word, or an empty text."""
    options = {name for parameter in context.command.params for name in parameter.opts}
    if _is_target(word):
        return "--target" if "--target" in options else ""
    name = word.rpartition("/")[2]
    kinds = [each.kind for each in dependency_files.every_format() if each.is_usual(name)]
    if kinds:
        return (
            "--requirement"
            if kinds == ["requirements.txt"] and "--requirement" in options
            else "envcheck check"
        )
    return "--train" if _TRAINING.fullmatch(word) and "--train" in options else ""


def _is_target(word: str) -> bool:
    try:
        return word in completion.targets(word)
    except EnvcheckError:  # the answer to a wrong command line does not need the knowledge
        return False
