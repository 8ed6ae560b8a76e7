"""How long pin's search takes: every target on many machines and Pythons, over the whole release table.

`python benchmarks/search.py [MOST]` prints the slowest MOST runs (12) in CPU seconds, with the choices
judged, and what was found; where nothing fits a machine, the proof is timed too. It needs no network, and
takes some minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.commands import declared_machine, examine
from envcheck.commands.pin.search import search_problem
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.rules import UserRequirement
from envcheck.resolution import conflicts, resolver

PYTHONS = ("3.9", "3.11", "3.12", "3.14")

MACHINES = (
    (),
    ("470.223.02",),
    ("525.60.13",),
    ("535.104.05", "V100"),
    ("550.54.15", "A100 80GB"),
    ("570.86.15", "RTX 5090"),
    ("580.95.05", "B200"),
    ("580.95.05", "GTX 1080 Ti"),
    ("580.95.05", "V100", "B200"),
    ("470.223.02", "K80"),
    ("390.157", "V100"),
)

WISHES = (
    (),
    (UserRequirement("torch", ">=2.12", "a benchmark"), UserRequirement("transformers", "<5", "a benchmark")),
    (UserRequirement("trl", "", "a benchmark"), UserRequirement("peft", "<0.15", "a benchmark")),
)


class Run(NamedTuple):
    """One search; seconds are CPU time."""

    search_s: float
    proof_s: float
    nodes: int
    what: str
    found: str


def problems() -> Iterator[tuple[str, resolver.SearchProblem]]:
    """Every target, machine, Python and wish, with what they are called."""
    known = examine.knowledge()
    first = next(iter(known.targets.values()))
    asked = search_problem(
        LockTarget(
            machine=Inventory(),
            python="3.11",
            platform="linux-x86_64",
            glibc=GLIBC,
            target=first,
            matrix=known,
        )
    )
    for target in known.targets.values():
        for python in PYTHONS:
            for driver, *gpus in ((*each,) if each else ("",) for each in MACHINES):
                said = {"python.version": f"{python}.0", "host.os": "linux", "host.arch": "x86_64"}
                said |= {"driver.version": driver} if driver else {}
                facts = {key: Fact(key, Known(value), "benchmark") for key, value in said.items()}
                names = [declared_machine.declared_gpu(gpu, known)[1] for gpu in gpus]
                devices = tuple({"gpu.name": Fact("gpu.name", Known(name), "benchmark")} for name in names)
                machine = Inventory(facts, devices)
                here = asked._replace(target=target, python=python, machine=machine)
                for wishes in WISHES:
                    words = [target.name, f"py{python}", driver or "any driver", *gpus]
                    words += [f"{wish.package}{wish.specifier}" for wish in wishes]
                    yield " ".join(words), here._replace(requirements=wishes)


def measured() -> Iterator[Run]:
    """Each search once."""
    for what, asked in problems():
        began = time.process_time()
        answer = resolver.solve(asked)
        searched = time.process_time()
        if answer.versions is None and not asked.requirements:
            conflicts.prove(asked, answer.reasons)
        found = " ".join(f"{name}={version}" for name, version in (answer.versions or {}).items())
        took = searched - began
        yield Run(took, time.process_time() - searched, answer.nodes, what, found or "nothing fits")


def main(most: int) -> None:
    """Print the slowest runs, by search and by proof."""
    runs = list(measured())
    nothing = sum(run.found == "nothing fits" for run in runs)
    print(
        f"{len(runs)} searches, {nothing} without a solution, {sum(run.nodes for run in runs)} choices judged"
    )
    for label, key in (("slowest searches", 0), ("slowest proofs", 1)):
        print(f"\n{label}: seconds of search, of proof, choices judged")
        for run in sorted(runs, key=lambda run: -run[key])[:most]:  # type: ignore[operator]
            print(f"{run.search_s:7.3f} {run.proof_s:7.3f} {run.nodes:6}  {run.what}: {run.found}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
