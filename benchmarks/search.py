"""Measure pin's search: every target on many machines and Pythons, over the whole release table.

`python benchmarks/search.py [MOST]` prints the slowest MOST searches (default: 12) in CPU seconds, with the
number of judged choices and the result. If nothing fits, the proof is timed too. It needs no network and
takes some minutes.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envcheck.commands import declared_machine, loading
from envcheck.commands.pin.search import search_problem
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.rules import Matrix, UserRequirement
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

REQUIREMENTS = (
    (),
    (UserRequirement("torch", ">=2.12", "a benchmark"), UserRequirement("transformers", "<5", "a benchmark")),
    (UserRequirement("trl", "", "a benchmark"), UserRequirement("peft", "<0.15", "a benchmark")),
)


class SearchRun(NamedTuple):
    """One search; seconds are CPU time."""

    search_s: float
    proof_s: float
    nodes: int
    what: str
    found: str


def problems() -> Iterator[tuple[str, resolver.SearchProblem]]:
    """Yield each combination of target, Python, machine and user requirements, with its name."""
    known = loading.knowledge()
    first = next(iter(known.targets.values()))
    problem = search_problem(
        LockTarget(
            machine=Inventory(),
            python="3.11",
            platform="linux-x86_64",
            glibc=GLIBC,
            target=first,
            matrix=known,
        )
    )
    for target, python, declared, requirements in itertools.product(
        known.targets.values(), PYTHONS, MACHINES, REQUIREMENTS
    ):
        driver, *gpus = declared or ("",)
        name = [target.name, f"py{python}", driver or "any driver", *gpus]
        name += [f"{requirement.package}{requirement.specifier}" for requirement in requirements]
        machine = _machine(python, driver, gpus, known)
        yield (
            " ".join(name),
            problem._replace(target=target, python=python, machine=machine, requirements=requirements),
        )


def _machine(python: str, driver: str, gpus: Sequence[str], known: Matrix) -> Inventory:
    values = {"python.version": f"{python}.0", "host.os": "linux", "host.arch": "x86_64"}
    values |= {"driver.version": driver} if driver else {}
    facts = {key: Fact(key, Known(value), "benchmark") for key, value in values.items()}
    names = [declared_machine.declared_gpu(gpu, known)[1] for gpu in gpus]
    devices = tuple({"gpu.name": Fact("gpu.name", Known(name), "benchmark")} for name in names)
    return Inventory(facts, devices)


def measured() -> Iterator[SearchRun]:
    """Run each search once."""
    for what, problem in problems():
        began = time.process_time()
        answer = resolver.solve(problem)
        searched = time.process_time()
        if answer.versions is None and not problem.requirements:
            conflicts.prove(problem, answer.reasons)
        found = " ".join(f"{name}={version}" for name, version in (answer.versions or {}).items())
        took = searched - began
        yield SearchRun(took, time.process_time() - searched, answer.nodes, what, found or "nothing fits")


def main(most: int) -> None:
    """Print the slowest searches and the slowest proofs."""
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
