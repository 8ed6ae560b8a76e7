"""Compare self-tests with the least work they need: `python benchmarks/selftest.py PYTHON [RUNS]`.

PYTHON is an interpreter with torch. Each self-test alternates with its floor, such as `import torch`. Figures
are elapsed seconds, and CPU seconds from the kernel's accounting, of whole processes with their children. The
ratio is the median of the ratios of all runs. Budgets are printed beside the figures; nothing fails, because
timings on a shared machine are not reliable.
"""

from __future__ import annotations

import os
import statistics
import subprocess  # noqa: TID251 - a benchmark starts what it measures
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

IMPORT = ("-c", "import torch")

GATHER = """
import os
import torch.distributed as dist

dist.init_process_group("gloo")
found = [None] * dist.get_world_size()
dist.all_gather_object(found, {"rank": dist.get_rank()})
assert [each["rank"] for each in found] == list(range(dist.get_world_size()))
dist.destroy_process_group()
"""


class Pair(NamedTuple):
    """A self-test, its floor, and the allowed ratio of elapsed time."""

    name: str
    options: tuple[str, ...]
    floor: tuple[str, ...]
    budget: str


class Cost(NamedTuple):
    """Elapsed and CPU seconds of a process and its children."""

    wall: float
    cpu: float


def main(python: str, runs: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "gather.py")
        script.write_text(GATHER)
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
        pairs = [
            Pair("level 1", ("--level", "1"), IMPORT, "<= 1.5"),
            Pair("2 ranks, all-gather", ("--only", "all-gather", "--ranks", "2"), torchrun, "<= 1.3"),
        ]
        print(
            f"{'against its floor':<22} {'wall s':>14} {'ratio':>6} {'CPU s':>14} {'ratio':>6}  budget (wall)"
        )
        for pair in pairs:
            _report(pair, python, runs)


def _report(pair: Pair, python: str, runs: int) -> None:
    command = [sys.executable, "-m", "envcheck", "selftest", "--python", python, *pair.options]
    taken = [(_cost([python, *pair.floor]), _cost(command)) for _ in range(runs + 1)][
        1:
    ]  # one warms the cache
    figures = []
    for each in ("wall", "cpu"):
        floors, ours = ([getattr(cost, each) for cost in side] for side in zip(*taken, strict=True))
        ratio = statistics.median(one / floor for floor, one in zip(floors, ours, strict=True))
        figures.append(f"{statistics.median(floors):6.2f} {statistics.median(ours):7.2f} {ratio:6.2f}")
    print(f"{pair.name:<22} {figures[0]} {figures[1]}  {pair.budget}")


def _cost(command: list[str]) -> Cost:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: TID251
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd="/", env=environ)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begun
        if status:
            output.seek(0)
            sys.exit(
                f"{' '.join(command)}: status {status}\n{output.read().decode(errors='replace')[-2000:]}"
            )
    return Cost(wall, usage.ru_utime + usage.ru_stime)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 5)
