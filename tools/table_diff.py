"""Propose the new text of a table as a diff, or write it. Shared by the tools that refresh tables."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

_NEWEST_READ = re.compile(r"(?<=newest release that was read, )\d[\w.]*\w")


def read_up_to(text: str, newest: str) -> str:
    """Return a table whose comment names `newest` as the newest release that was read."""
    return _NEWEST_READ.sub(newest, text)


def propose(table: Path, before: str, after: str, *, write: bool, context: int = 1) -> int:
    """Print the diff between two texts of a table, with lines of context, and write the second one if asked.

    Returns the exit code: 0 if nothing differs or the text was written, 1 if a diff was only printed.
    """
    sys.stdout.writelines(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{table.name}",
            f"b/{table.name}",
            n=context,
        )
    )
    if after == before:
        return 0
    if write:
        table.write_text(after, "utf-8")
    return int(not write)
