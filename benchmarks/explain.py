"""How fast `explain` reads a log of 1 GB, and in how much memory, beside grep; what `run` costs.

`python benchmarks/explain.py [MB]` writes a log of so many MB (1000) into a scratch folder: progress bars,
losses, DeepSpeed's and logging's lines of eight ranks, a warning now and then, and a real failure at the end.
Seconds are CPU time of the whole process, which says what one core does even where others share it.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess  # noqa: TID251 - a benchmark is a user
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck.commands import examine

ROOT = Path(__file__).parent.parent
FAILURE = ROOT / "tests/data/logs/real/killed.log"
ENVCHECK = (sys.executable, "-m", "envcheck")
_RUNS = 3


class Took(NamedTuple):
    """CPU seconds of a process, its peak memory in MiB."""

    cpu_s: float
    peak_mib: float


def lines(chance: random.Random) -> list[Callable[[], str]]:
    """Kinds of lines, the frequent ones several times."""
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
    """A log of at least so many bytes."""
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


def took(command: Sequence[str]) -> Took:
    """The best of some runs of a process."""
    runs = []
    for _ in range(_RUNS):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,  # into /dev/null, grep stops at the first line it finds
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "LC_ALL": "C", "PYTHONPATH": str(ROOT)},  # noqa: TID251 - a user's environment
        )
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while process.stdout.read(1 << 20):
            pass
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        runs.append(_used(usage))
    return min(runs)


def _used(usage: resource.struct_rusage) -> Took:
    return Took(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main(megabytes: int) -> None:
    """Print a line a figure."""
    words = [str(row["word"]) for row in examine.source_tree()["tables"]["trigger"]]
    with tempfile.TemporaryDirectory() as folder:
        log, facts = Path(folder) / "train.log", Path(folder) / "facts.toml"
        write_log(log, megabytes * 1_000_000)
        facts.write_text('complete = ["pkg"]\npkg = { torch = "2.6.0" }\n')
        size = log.stat().st_size / 1e6
        rows = {
            "explain": took([*ENVCHECK, "explain", str(log), "--facts", str(facts)]),
            "start alone": took([*ENVCHECK, "explain", str(FAILURE), "--facts", str(facts)]),
            "cat": took(["cat", str(log)]),
            "grep -c -i -E of the same words": took(
                ["grep", "-a", "-c", "-i", "-E", "|".join(words), str(log)]
            ),
            "run -- cat": took([*ENVCHECK, "run", "--", "cat", str(log)]),
        }
    print(f"{size:.0f} MB, {len(words)} words; best of {_RUNS}, CPU seconds of the whole process")
    for name, row in rows.items():
        speed = f"{size / row.cpu_s:8.0f} MB/s" if name != "start alone" else " " * 13
        peak = f"{row.peak_mib:7.0f} MiB" if name == "explain" else ""
        print(f"{name:<34} {row.cpu_s:7.2f} s {speed} {peak}".rstrip())
    grep = rows["grep -c -i -E of the same words"].cpu_s
    print(f"explain takes {rows['explain'].cpu_s / grep:.2f} times what grep does")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
