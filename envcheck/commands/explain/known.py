"""The knowledge that a log is explained with."""

from __future__ import annotations

from typing import Any, NamedTuple

from envcheck import probes
from envcheck.core.facts import (
    Vocabulary,
)
from envcheck.core.rules import Matrix


class ExplainKnowledge(NamedTuple):
    """Knowledge that a log is explained with; `tree` is all of compat/."""

    all_probes: tuple[probes.Probe, ...]
    keys: Vocabulary
    matrix: Matrix
    tree: dict[str, Any]
