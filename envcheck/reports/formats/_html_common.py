"""Helpers that the parts of the HTML page share: escaping, and the order of marks."""

from __future__ import annotations

from envcheck.core.sanitize import inline

MARK_ORDER = ("error", "warning", "unknown", "note", "none", "ok")
"""Marks (see `overview.MARKS`), worst first."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escape(text: str) -> str:
    """Escape text for the page, or for a quoted attribute."""
    return inline(text).translate(_ENTITIES)


def with_code(text: str) -> str:
    """Escape text for the page, and show as code what stands between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner
        return escape(text)
    return "".join(
        f"<code>{escape(part)}</code>" if number % 2 else escape(part) for number, part in enumerate(parts)
    )
