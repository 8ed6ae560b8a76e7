"""Configurations that a program in the text of a launch script writes, as `python - <<EOF` does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.simple_commands import UNKNOWN_PART
from envcheck.training_config.launch_scripts.structure_edits import Edit
from envcheck.training_config.launch_scripts.values import Fragment, Value, unknown
from envcheck.training_config.readers import Beside

_NAME = "written_in_a_script.py"
"""The name of the program; no file has it."""

_WRITES = pattern(r"\.(?:safe_)?dump\(|open\([^)]{0,200},\s*[\"'][wax]|write_text\(")
_CONFIGURATION = pattern(r"[\"']([\w./-]+\.(?:json|ya?ml))[\"']")
_WHY = "a program of the script writes it, and its content is computed"


def written_by(
    text: str, words: Sequence[str], environment: Mapping[str, Any], beside: Beside, at: int
) -> dict[str, Value]:
    """Return the configurations that a program writes, by name, each as the text that it has afterwards.

    `words` are its arguments, `environment` the variables that the script gives it, `at` is its offset.
    """
    if not _WRITES.search(text):
        return {}
    from envcheck.training_config.programs.parsers import given_in
    from envcheck.training_config.readers._program_source import follow_program

    def beside_program(name: str) -> str | None:
        return text if name == _NAME else beside(name)

    followed = follow_program(_NAME, "", beside_program, given_in(words), environment)
    if followed is None:
        return {}
    found: dict[str, Value] = {
        path: (Fragment(content, at),) if isinstance(content, str) else tuple(_fragments(content, at))
        for path, content in followed.written.items()
    }
    names = followed.rewritten
    if "write_text(" in text or followed.incomplete not in ("", "no training is reached"):
        names |= {each.removeprefix("./") for each in _CONFIGURATION.findall(text)}
    return {**dict.fromkeys(names, unknown(at, "?", _WHY)), **found}


def _fragments(value: Any, at: int) -> Iterator[Fragment]:
    """Yield a value as JSON, in which what is not known is unknown."""
    from envcheck.training_config.programs.values import Record, has_further, is_known, is_list

    if isinstance(value, Record):
        yield Fragment("{", at)
        for number, (name, item) in enumerate(value.items.items()):
            yield Fragment(f"{', ' if number else ''}{json.dumps(str(name))}: ", at)
            yield from _fragments(item, at)
        yield Fragment("}", at)
        if value.rest:
            yield Fragment("", at, edit=Edit("", Unknown(value.rest)))
    elif is_list(value) and not has_further(value):
        yield Fragment("[", at)
        for number, item in enumerate(value):
            yield Fragment(", " if number else "", at)
            yield from _fragments(item, at)
        yield Fragment("]", at)
    elif is_known(value) and not is_list(value) and UNKNOWN_PART not in str(value):
        yield Fragment(json.dumps(value), at)
    else:
        yield from unknown(at, "?", value.why if isinstance(value, Unknown) else _WHY)
