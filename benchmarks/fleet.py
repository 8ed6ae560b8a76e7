"""How long `fleet` takes for a cluster, and how much memory: `python benchmarks/fleet.py [NODES…]`.

For each size (1000, 5000, 10000) a process of its own writes a cluster by a seed, with faults planted
(`tests/support/fleets.py`), into a scratch folder; then the command reads it and what it says is compared
with what was planted. Beside it: the same nodes, all alike, and one node's facts as often, under as many
names. Seconds are of the clock and of the CPU, all processes together; F is `python -c pass`.
"""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - a benchmark is a user
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

SEED = 11
MOST_S, MOST_MIB = 5.0, 300


class Took(NamedTuple):
    """Seconds of the clock, CPU seconds, peak memory in MiB, and what was printed."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    out: str


def write(kind: str, nodes: int, file: Path) -> None:
    """A cluster into a file; called in a process of its own, which takes its memory along when it ends."""
    from tests.support.fleets import cluster, node

    if kind == "planted":
        made = cluster(nodes, SEED)
        lines = made.lines
        said = {
            "odd": {key: sorted(fault.nodes) for key, fault in made.differences.items()},
            "broken": len(made.broken),
            "twice": len(made.twice),
        }
        file.with_suffix(".planted").write_text(json.dumps(said))
    elif kind == "alike":
        lines = cluster(nodes, SEED, faults=0).lines
    else:
        lines = [json.dumps(node(f"gpu{number:05d}")) for number in range(nodes)]
    file.write_text("\n".join(lines) + "\n")


def run(*command: str) -> Took:
    """Run a command to its end; of a small process the peak is the command's own."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None  # noqa: S101
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    return Took(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out)


def _right(tree: dict[str, Any], planted: Path) -> str:
    """Whether the report names all that was planted, with its nodes, and nothing else."""
    from envcheck.fleet.hostlist import unfold

    said = json.loads(planted.read_text())
    odd = {each["key"]: sorted(unfold(each["odd"])) for each in tree["differences"]}
    same = (odd, len(tree["refused"]), len(tree["twice"])) == (said["odd"], said["broken"], said["twice"])
    return "all found, none invented" if same else "WRONG"


def main(sizes: list[int]) -> None:
    """Write, read, print a row each."""
    floor = min(run(sys.executable, "-c", "pass").cpu_s for _ in range(5))
    print("| nodes | what | MB | seconds | CPU seconds | x F | peak MiB | planted faults |")
    print("| --: | --- | --: | --: | --: | --: | --: | --- |")
    with tempfile.TemporaryDirectory() as name:
        for nodes in sizes:
            for kind in ("planted", "alike", "one node's facts"):
                file = Path(name) / "facts.jsonl"
                subprocess.run([sys.executable, __file__, "--write", kind, str(nodes), str(file)], check=True)
                took = run(sys.executable, "-m", "envcheck", "fleet", str(file), "--json")
                right = (
                    _right(json.loads(took.out), file.with_suffix(".planted")) if kind == "planted" else ""
                )
                size = file.stat().st_size / 1e6
                row = (
                    f"{took.wall_s:.1f}",
                    f"{took.cpu_s:.1f}",
                    f"{took.cpu_s / floor:.0f}",
                    f"{took.peak_mib:.0f}",
                )
                print(f"| {nodes} | {kind} | {size:.0f} | {' | '.join(row)} | {right} |", flush=True)
                if nodes == max(sizes) and (took.cpu_s > MOST_S or took.peak_mib > MOST_MIB):
                    print(f"over the budget: {MOST_S} s, {MOST_MIB} MiB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main([int(each) for each in sys.argv[1:]] or [1000, 5000, 10000])
