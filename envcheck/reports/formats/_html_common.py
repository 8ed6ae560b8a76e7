"""Helpers that the parts of the HTML page share: escaping, and the order of marks."""

from __future__ import annotations

from envcheck.core.sanitize import inline

MARK_ORDER = ("error", "warning", "unknown", "note", "none", "ok")
"""Marks (see `overview.MARKS`), worst first."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escape(text: str) -> str:
    """Escape text for the page, or for a quoted attribute."""
    return inline(text).translate(_ENTITIES)
