"""Running envcheck as a user does: another process, its output and its exit code."""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - tests are users
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 60


class Outcome(NamedTuple):
    """What the user sees."""

    code: int
    out: str
    err: str


def envcheck(*arguments: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Outcome:
    """Run `envcheck` with these arguments and these environment variables added."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}  # noqa: TID251
    checkout = str(Path(__file__).parent.parent)
    ran = subprocess.run(
        [sys.executable, "-m", "envcheck", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=cwd or checkout,
        env={**inherited, "PYTHONPATH": checkout, **(environ or {})},
        check=False,
    )
    return Outcome(ran.returncode, ran.stdout, ran.stderr)
