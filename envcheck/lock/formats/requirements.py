"""requirements.txt with a hash for every file: pip installs it with `--require-hashes`, and so does uv."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.lock.model import Lock
from envcheck.lock.render import render_requirements

WANTS_ADDRESSES = False
FILES, WHY_FILES = r".*", ""


def render(lock: Lock, addresses: Mapping[str, str]) -> str:
    """Return the lock as `lock.render.render_requirements` writes it."""
    del addresses
    return render_requirements(lock)
