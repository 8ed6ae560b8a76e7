"""Install shipped locks and train their targets: `python tools/prove_locks.py NAME…`.

Each lock is installed into a separate environment (5 GB with CUDA packages, removed afterwards) by the
commands in its header. Then `pip check` must pass, and `envcheck selftest --target T --level 2 --ranks 2`
runs in that environment. The result is written to lockfiles/manifest.toml, which lists a lock as proven only
as long as its pins are those that were tested. An interpreter of the lock's Python version must be on PATH.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess  # noqa: TID251 - a tool for curators, run by hand
import sys
import tempfile
from pathlib import Path
from typing import Any

from ship_locks import FOLDER, read_manifest, write_manifest

from envcheck.lock.model import Lock
from envcheck.lock.parse import parse_requirements

INSTALL_S = 1800
TRAIN_S = 1800


def prove(name: str) -> dict[str, Any]:
    """Install and test a lock; return date, device, ranks, and the numbers of tests by result.

    Raises:
        RuntimeError: it does not install, or its tests could not be run.
    """
    text = (FOLDER / name).read_text(encoding="utf-8")
    parsed = parse_requirements(text, name)
    with tempfile.TemporaryDirectory(prefix="envcheck-lock-") as folder:
        python = _installed(text, parsed, Path(folder))
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "envcheck", "selftest", "--target", parsed.target, "--level", "2"),
                *("--ranks", "2", "--json", "--python", python),
            ],
            capture_output=True,
            text=True,
            timeout=TRAIN_S,
            check=False,
            cwd=FOLDER.parent,
        )
    if not ran.stdout:
        raise RuntimeError(f"{name}: {ran.stderr.strip()[-500:]}")
    proof = json.loads(ran.stdout)
    for each in proof["outcomes"]:
        if each["result"] in ("fail", "unknown"):
            print(f"    {each['result']} {each['test']}/{each['variant']}: {each['why']}")
    return {
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "device": proof["device"].partition(" ")[0],
        "ranks": 2,
        **{key: proof["summary"][key] for key in ("pass", "fail", "unknown")},
    }


def _installed(text: str, parsed: Lock, folder: Path) -> str:
    """Create an environment with the commands in the lock's header; return its interpreter."""
    base = shutil.which(f"python{parsed.python}")
    if base is None:
        raise RuntimeError(f"no python{parsed.python} on PATH")
    env = folder / "env"
    _run([base, "-m", "venv", str(env)], folder)
    (folder / "requirements.txt").write_text(text, encoding="utf-8")
    for command in re.findall(r"^#   (.+)$", text, re.MULTILINE):
        _run(["bash", "-euo", "pipefail", "-c", command], folder, env)
    python = str(env / "bin/python")
    _run([python, "-m", "pip", "check"], folder)
    return python


def _run(command: list[str], folder: Path, env: Path | None = None) -> None:
    environ = dict(os.environ)  # noqa: TID251
    if env is not None:
        environ["PATH"] = f"{env / 'bin'}{os.pathsep}{environ['PATH']}"
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_S, check=False, cwd=folder, env=environ
    )
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)[:80]}: {(ran.stderr or ran.stdout).strip()[-800:]}")


def main(names: list[str]) -> int:
    """Test the named locks; return 1 if one of them does not install or train."""
    status = 0
    for name in names:
        rows = read_manifest()
        row = next((each for each in rows if each["name"] == name), None)
        if row is None:
            print(f"{name}: not in lockfiles/manifest.toml")
            return 2
        try:
            row["proven"] = prove(name)
        except RuntimeError as error:
            print(error)
            status = 1
            continue
        status = status or int(row["proven"]["fail"] > 0)
        write_manifest(rows)
        print(f"{name}: {row['proven']}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
