"""The knowledge that a log is explained with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from envcheck import probes
from envcheck.commands import loading
from envcheck.core.facts import Vocabulary
from envcheck.core.rules import Matrix
from envcheck.knowledge.log_signatures import Signature, compile_signatures
from envcheck.logs.line_format import LogPatterns, log_patterns


class ExplainKnowledge(NamedTuple):
    """Knowledge that a log is explained with; `tree` is all of compat/."""

    all_probes: tuple[probes.Probe, ...]
    keys: Vocabulary
    matrix: Matrix
    tree: Mapping[str, Any]


@cache
def every_signature() -> tuple[Signature, ...]:
    """Return the signatures of compat's cases, which are read once for all logs that a process explains."""
    return compile_signatures(loading.read_only_tree()["case"], loading.needed_texts())


@cache
def patterns() -> LogPatterns:
    """Return the patterns by which the lines of a log are read."""
    return log_patterns(loading.read_only_tree()["tables"], loading.needed_texts())
