"""The report of `envcheck explain`, as text and as JSON. Pure.

It gives the first cause of a failure, the known failures that match the log, and whether each of them applies
to this environment. `model` holds what is reported, `text` and `json_tree` write it; they may use the other
modules of `reports`, and know nothing of how a log is read.
"""

from __future__ import annotations

from envcheck.reports.explanation.json_tree import tree
from envcheck.reports.explanation.model import (
    FAILED,
    NOTHING,
    UNEXPLAINED,
    Explanation,
    MissingAnswer,
    RefusedAnswer,
)
from envcheck.reports.explanation.text import render
from envcheck.reports.explanation.wording import event_text, frame_text

__all__ = [
    "FAILED",
    "NOTHING",
    "UNEXPLAINED",
    "Explanation",
    "MissingAnswer",
    "RefusedAnswer",
    "event_text",
    "frame_text",
    "render",
    "tree",
]
