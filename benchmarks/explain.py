"""Measure the speed and memory of `explain` on a log of 1 GB, compared with grep, and the cost of `run`.

`python benchmarks/explain.py [MB]` writes a log of that size (default: 1000 MB) into a temporary folder:
progress bars, losses, lines of DeepSpeed and logging from eight ranks, an occasional warning, and a real
failure at the end. Times are CPU seconds of the whole process, which are comparable even if other processes
share the core.
"""

from __future__ import annotations

import os
import random
import subprocess  # noqa: TID251 - a benchmark is a user
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck.commands import loading

ROOT = Path(__file__).parent.parent
FAILURE = ROOT / "tests/data/logs/real/killed.log"
ENVCHECK = (sys.executable, "-m", "envcheck")
_RUNS = 3


class Usage(NamedTuple):
    """CPU seconds of a process and its peak memory in MiB."""

    cpu_s: float
    peak_mib: float


def lines(chance: random.Random) -> list[Callable[[], str]]:
    """Return generators of log lines; frequent kinds of lines have several."""
    number, whole = chance.random, chance.randrange
    return [
        lambda: f"{{'loss': {number():.4f}, 'grad_norm': {number():.6f}, 'learning_rate': {number():.8e}}}\n",
        lambda: (
            f"\r {whole(100)}%|{'█' * whole(20)}| {whole(9999)}/10000 [12:34<1:23:45,  {number():.2f}it/s]"
        ),
        lambda: (
            f"\r {whole(100)}%|{'█' * whole(20)}| {whole(9999)}/10000 [12:34<1:23:45,  {number():.2f}s/it]"
        ),
        lambda: (
            f"[2026-11-21 10:{whole(60):02},{whole(999):03}] [INFO] [logging.py:128:log_dist] [Rank 0] "
            f"step={whole(9999)}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]\n"
        ),
        lambda: (
            f"[rank{whole(8)}]: INFO:root:MA {number():.1f} GB  Max 17 GB  CA 18.1 GB  {number():.2f} s\n"
        ),
    ]


def write_log(path: Path, size: int) -> None:
    """Write a log of at least `size` bytes."""
    chance = random.Random(3)  # noqa: S311 - the same log each time
    kinds = lines(chance)
    warning = (
        "/opt/env/torch/utils/checkpoint.py:{}: UserWarning: None of the inputs have requires_grad=True.\n"
    )
    block = "".join(
        warning.format(chance.randrange(500)) if chance.random() < 0.001 else chance.choice(kinds)()  # noqa: PLR2004
        for _ in range(100_000)
    ).encode()
    with path.open("wb") as log:
        while log.tell() < size:
            log.write(block)
        log.write(FAILURE.read_bytes())


def measure(command: Sequence[str]) -> Usage:
    """Return the best of several runs of a command."""
    runs = []
    for _ in range(_RUNS):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,  # with /dev/null as output, grep would stop at the first match
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "LC_ALL": "C", "PYTHONPATH": str(ROOT)},  # noqa: TID251 - a user's environment
        )
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while process.stdout.read(1 << 20):
            pass
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        runs.append(Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    return min(runs)


def main(megabytes: int) -> None:
    """Print one line per command."""
    words = [str(row["word"]) for row in loading.source_tree()["tables"]["trigger"]]
    with tempfile.TemporaryDirectory() as folder:
        log, facts = Path(folder) / "train.log", Path(folder) / "facts.toml"
        write_log(log, megabytes * 1_000_000)
        facts.write_text('complete = ["pkg"]\npkg = { torch = "2.6.0" }\n')
        size = log.stat().st_size / 1e6
        rows = {
            "explain": measure([*ENVCHECK, "explain", str(log), "--facts", str(facts)]),
            "start-up only": measure([*ENVCHECK, "explain", str(FAILURE), "--facts", str(facts)]),
            "cat": measure(["cat", str(log)]),
            "grep -c -i -E of the same words": measure(
                ["grep", "-a", "-c", "-i", "-E", "|".join(words), str(log)]
            ),
            "run -- cat": measure([*ENVCHECK, "run", "--", "cat", str(log)]),
        }
    print(f"{size:.0f} MB, {len(words)} words; best of {_RUNS}, CPU seconds of the whole process")
    for name, row in rows.items():
        speed = f"{size / row.cpu_s:8.0f} MB/s" if name != "start-up only" else " " * 13
        peak = f"{row.peak_mib:7.0f} MiB" if name == "explain" else ""
        print(f"{name:<34} {row.cpu_s:7.2f} s {speed} {peak}".rstrip())
    grep = rows["grep -c -i -E of the same words"].cpu_s
    print(f"explain takes {rows['explain'].cpu_s / grep:.2f} times what grep does")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
