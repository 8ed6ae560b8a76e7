"""Measure the time and memory of `fleet` for a cluster: `python benchmarks/fleet.py [NODES…]`.

For each size (default: 1000, 5000, 10000), a separate process writes the facts of a random cluster with
planted faults (`tests/support/fleets.py`) into a temporary folder. The command reads them, and its report is
compared with the planted faults. Two more variants are measured: the same nodes without faults, and the facts
of one node under many names. Times are elapsed and CPU seconds of all processes; F is `python -c pass`.
"""

from __future__ import annotations

import itertools
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


class CommandRun(NamedTuple):
    """Elapsed seconds, CPU seconds, peak memory in MiB, and the output of a command."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    out: str


def write(kind: str, nodes: int, file: Path) -> None:
    """Write a cluster to a file; runs in a separate process so that its memory is freed."""
    from tests.support.fleets import cluster, node

    if kind == "planted":
        made = cluster(nodes, SEED)
        lines = made.lines
        planted = {
            "odd": {key: sorted(fault.nodes) for key, fault in made.differences.items()},
            "broken": len(made.broken),
            "twice": len(made.twice),
        }
        file.with_suffix(".planted").write_text(json.dumps(planted))
    elif kind == "alike":
        lines = cluster(nodes, SEED, faults=0).lines
    else:
        lines = [json.dumps(node(f"gpu{number:05d}")) for number in range(nodes)]
    file.write_text("\n".join(lines) + "\n")


def run(*command: str) -> CommandRun:
    """Run a command to its end and measure it.

    This process must stay small: a child's peak starts at the size of its parent.
    """
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None  # noqa: S101
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    return CommandRun(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out)


def _verdict(tree: dict[str, Any], planted_file: Path) -> str:
    """Return whether the report names exactly the planted faults, with their nodes."""
    from envcheck.fleet.hostlist import unfold

    planted = json.loads(planted_file.read_text())
    odd = {each["key"]: sorted(unfold(each["odd"])) for each in tree["differences"]}
    same = (odd, len(tree["refused"]), len(tree["twice"])) == (
        planted["odd"],
        planted["broken"],
        planted["twice"],
    )
    return "all found, none invented" if same else "WRONG"


def main(sizes: list[int]) -> None:
    """Measure each size and variant and print one row for each."""
    floor = min(run(sys.executable, "-c", "pass").cpu_s for _ in range(5))
    print("| nodes | what | MB | seconds | CPU seconds | x F | peak MiB | planted faults |")
    print("| --: | --- | --: | --: | --: | --: | --: | --- |")
    with tempfile.TemporaryDirectory() as name:
        for nodes, kind in itertools.product(sizes, ("planted", "alike", "one node's facts")):
            ran = _measure(nodes, kind, Path(name) / "facts.jsonl", floor)
            if nodes == max(sizes) and (ran.cpu_s > MOST_S or ran.peak_mib > MOST_MIB):
                print(f"over the budget: {MOST_S} s, {MOST_MIB} MiB")


def _measure(nodes: int, kind: str, file: Path, floor: float) -> CommandRun:
    """Write one variant of a cluster, run the command on it, print its row; `floor` is F in CPU seconds."""
    subprocess.run([sys.executable, __file__, "--write", kind, str(nodes), str(file)], check=True)
    ran = run(sys.executable, "-m", "envcheck", "fleet", str(file), "--json")
    verdict = _verdict(json.loads(ran.out), file.with_suffix(".planted")) if kind == "planted" else ""
    size = f"{file.stat().st_size / 1e6:.0f}"
    figures = (f"{ran.wall_s:.1f}", f"{ran.cpu_s:.1f}", f"{ran.cpu_s / floor:.0f}", f"{ran.peak_mib:.0f}")
    print(f"| {nodes} | {kind} | {size} | {' | '.join(figures)} | {verdict} |", flush=True)
    return ran


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main([int(each) for each in sys.argv[1:]] or [1000, 5000, 10000])
