"""requirements.txt with a hash for every file: what pip installs with `--require-hashes`, and uv as well."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.lock.model import Lock, render_requirements

WANTS_ADDRESSES = False
FILES, WHY_FILES = r".*", ""


def render(lock: Lock, addresses: Mapping[str, str]) -> str:
    """The lock as `lock.render_requirements` writes it."""
    del addresses
    return render_requirements(lock)
