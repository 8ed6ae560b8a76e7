"""Constraints: `name==version` lines, to hold back what something else installs."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.lock.model import Lock, comments, introduction, labels, refuse_leaks, wheel_addresses

WANTS_ADDRESSES = False
FILES, WHY_FILES = r".*", ""


def render(lock: Lock, addresses: Mapping[str, str]) -> str:
    """The versions alone: without hashes nothing holds a file to what was locked, and the header says so."""
    del addresses
    header = (
        *introduction(lock),
        "",
        "Constraints, not a lock: versions without hashes. They install nothing by themselves; with this",
        "file as constraints.txt they hold back what you install:",
        "  python -m pip install -c constraints.txt PACKAGE",
        "",
    )
    text = comments(header) + "".join(f"{pin.requirement}\n" for pin in lock.pins)
    refuse_leaks(text, labels(lock), wheel_addresses(lock))
    return text
