"""Compare `pin` with uv alone on random wishes: a target, a machine and packages of the user's own.

`python benchmarks/wishes.py [COUNT [SEED [RESULTS]]]` (default: 200, 1) uses the user's package index. With
RESULTS, a file of tab-separated rows, wishes with a row there are not repeated, and new rows are
appended; to repeat a wish, delete its row. For each wish it compares up to three answers: pin's; uv's for
the same packages without any bound from the rules, and whether the rules accept it; and, if pin finds
nothing, uv's within the bounds from the rules. uv gets no release that is newer than the tables, because
the rules know nothing of those. The answers disagree in two ways:

    lost        pin finds no lock, and uv finds one that the rules accept;
    unproven    pin finds no lock and does not name what clashes, and uv finds something within the
                bounds that the rules still refuse.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from envcheck import resolver_backends as backends
from envcheck.commands import atlas_tables, declared_machine, loading
from envcheck.commands.pin import search, unpinned
from envcheck.commands.pin.completion import Completer
from envcheck.commands.pin.target import GLIBC, LockTarget, target_bounds
from envcheck.core import versions
from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.rules import Matrix, UserRequirement
from envcheck.host.machine import Host
from envcheck.resolution import resolver
from envcheck.resolution.resolver import SearchProblem

PACKAGES = (
    *("vllm", "sglang", "unsloth", "flash-attn", "deepspeed", "xformers", "liger-kernel", "torchao"),
    *("bitsandbytes", "trl", "llamafactory", "axolotl", "ms-swift", "lightning", "diffusers"),
    "sentence-transformers",
)

MACHINES = (
    ("525.60.13", "A100 80GB", "2.28"),
    ("535.104.05", "V100", "2.31"),
    ("550.54.15", "A100 80GB", "2.35"),
    ("570.86.15", "RTX 5090", "2.39"),
    ("580.95.05", "H100", "2.35"),
    ("580.95.05", "B200", "2.39"),
)

PYTHONS = ("3.10", "3.11", "3.12", "3.13")


class Wish(NamedTuple):
    """A request to `pin`, with its name."""

    name: str
    goal: LockTarget


class Comparison(NamedTuple):
    """The answers to one wish: `lock`, `none`, `refused` or `fails`; how they disagree; pin's error message.

    `bounded` is `-` if pin found a lock, `disagreement` is `agreed` if the answers agree.
    """

    wish: str
    pin: str
    uv: str
    bounded: str
    disagreement: str
    why: str


def wishes(count: int, seed: int) -> Iterator[Wish]:
    """Yield random wishes; the same seed gives the same ones for the same tables."""
    draw = random.Random(seed)  # noqa: S311 - a sample
    known = loading.knowledge()
    for _ in range(count):
        target = draw.choice([*known.targets])
        driver, gpu, glibc = draw.choice(MACHINES)
        python = draw.choice(PYTHONS)
        names = draw.sample(PACKAGES, draw.choice((1, 1, 2)))
        asked = tuple(UserRequirement(name, _bound(draw, name), "--with") for name in names)
        label = [target, f"py{python}", driver, gpu, *(f"{each.package}{each.specifier}" for each in asked)]
        yield Wish(" ".join(label), _goal(known, target, python, driver, gpu, glibc, asked))


def _bound(draw: random.Random, name: str) -> str:
    """Return no bound, a floor, a ceiling or an exact pin on one of the newer half of the releases."""
    releases = atlas_tables.release_table().versions(name)
    release = draw.choice(releases[len(releases) // 2 :])
    return draw.choice(("", "", f">={release}", f"<{release}", f"=={release}"))


def _goal(
    known: Matrix,
    target: str,
    python: str,
    driver: str,
    gpu: str,
    glibc: str,
    asked: Sequence[UserRequirement],
) -> LockTarget:
    values = {
        "python.version": f"{python}.0",
        "host.os": "linux",
        "host.arch": "x86_64",
        "driver.version": driver,
    }
    facts = {key: Fact(key, Known(value), "declared") for key, value in values.items()}
    name = declared_machine.declared_gpu(gpu, known)[1]
    machine = Inventory(facts, ({"gpu.name": Fact("gpu.name", Known(name), "declared")},))
    return LockTarget(
        machine=machine,
        python=python,
        platform="linux-x86_64",
        glibc=glibc or GLIBC,
        target=known.targets[target],
        matrix=known,
        requirements=(*asked, *target_bounds(known.targets[target])),
    )


def compare(wish: Wish, host: Host, selected: backends.BackendSelection) -> Comparison:
    """Return the three answers to a wish, and whether they disagree."""
    problem = search.search_problem(wish.goal)
    completer = Completer(host, selected, wish.goal.matrix, [])
    try:
        search.resolve_lock(wish.goal, host, "", [])
        pin, why = "lock", ""
    except NoSolutionError as error:
        pin, why = "none", str(error)
    except ExamineError as error:
        pin, why = "fails", str(error)
    uv = _answer_of_uv(wish.goal, problem, completer)
    bounded = _bounded_answer(wish.goal, problem, completer) if pin != "lock" else "-"
    disagreement = "agreed"
    if pin != "lock" and "lock" in (uv, bounded):
        disagreement = "lost"
    elif pin == "none" and bounded == "refused" and "these requirements conflict" not in why:
        disagreement = "unproven"
    return Comparison(wish.name, pin, uv, bounded, disagreement, why)


def _answer_of_uv(goal: LockTarget, problem: SearchProblem, completer: Completer) -> str:
    """Return `lock` if uv alone finds releases that the rules accept, `refused` if the rules do not."""
    asked = tuple(f"{each.package}{each.specifier}" for each in goal.requirements if each.specifier)
    request = replace(unpinned.open_request(goal, problem, ()), constraints=(*asked, *_known(problem)))
    try:
        pins = completer.complete(request)
    except NoSolutionError:
        return "none"
    except ExamineError:
        return "fails"
    closure = {pin.name: pin.version for pin in pins}
    changed = unpinned.changed_facts(problem, closure)
    stack = [name for name in resolver.wanted_packages(problem) if name in closure]
    return "refused" if resolver.objections(problem, closure, changed, stack) else "lock"


def _known(problem: SearchProblem) -> Iterator[str]:
    """Yield a constraint for each package of the tables: the rules judge no release that came after them."""
    newest: dict[str, str] = {}
    for release in problem.releases:
        newest[release.package] = max(newest.get(release.package, "0"), release.version, key=versions.order)
    yield from (f"{name}<={version}" for name, version in newest.items())


def _bounded_answer(goal: LockTarget, problem: SearchProblem, completer: Completer) -> str:
    """Return the same for uv within the bounds from the rules; each objection adds a bound."""
    try:
        found = unpinned.choose_unpinned(goal, problem, completer)
    except ExamineError:
        return "fails"
    return "refused" if found is None else "none" if isinstance(found, unpinned.Unsolvable) else "lock"


def _earlier_rows(results: Path | None) -> dict[tuple[str, str], list[str]]:
    """Return the rows of the results file by seed and number; no file has none."""
    if results is None or not results.exists():
        return {}
    rows = [line.split("\t") for line in results.read_text(encoding="utf-8").splitlines()]
    return {(row[0], row[1]): row for row in rows}


def main(count: int, seed: int, results: Path | None) -> None:
    """Print each disagreement and the number of each combination of answers."""
    host = Host()
    selected = backends.select_backends(host, backends.every_backend(), "uv")
    earlier = _earlier_rows(results)
    counts: Counter[str] = Counter()
    for number, wish in enumerate(wishes(count, seed), 1):
        row = earlier.get((str(seed), str(number)))
        if row is None:
            began = time.monotonic()
            found = compare(wish, host, selected)
            took = f"{time.monotonic() - began:.1f}"
            row = [str(seed), str(number), took, *(" ".join(each.split()) for each in found)]
            print("  ".join(row[1:-1]), flush=True)
            if found.why and (found.disagreement != "agreed" or found.pin == "fails"):
                print(f"      {found.why[:600]}", flush=True)
            if results is not None:
                with results.open("a", encoding="utf-8") as rows:
                    rows.write("\t".join(row) + "\n")
        _, pin, uv, bounded, disagreement, _ = row[3:]
        counts[f"pin {pin}, uv alone {uv}, uv within the rules' bounds {bounded}"] += 1
        counts[disagreement] += 1
    for what, times in counts.most_common():
        print(f"{times:4} {what}")


if __name__ == "__main__":
    arguments = [*sys.argv[1:], *("200", "1", "")[len(sys.argv) - 1 :]]
    main(int(arguments[0]), int(arguments[1]), Path(arguments[-1]) if arguments[-1] else None)
