"""Write the shipped locks and their manifest: `python tools/ship_locks.py [--missing] [PATTERN…]`.

Each lock is the result of `pin --resolve` for a machine of which only the driver's family is known, with the
oldest C library that torch's wheels support. A pattern such as `zero3-*/py312-*` selects locks by name;
`--missing` skips locks that exist. If a combination of target, Python, driver and machine has no solution, or
the index cannot be read, no lock is written and the reason is printed. A lock that exists is never removed:
the tool says that it stays and exits with 1, and a person decides.

Driver families are chosen so that their locks differ: torch for CUDA 12 runs on drivers from 525 on, and thus
also on 535, 550 and 570; torch for CUDA 13 needs 580. If the measured combination is for the older driver,
the newest releases are tried for the newer one. If they do not need a newer driver either, one lock serves
both.

lockfiles/manifest.toml records for each lock what it is for, the digest of its pins, and the result of
`tools/prove_locks.py`; that result is dropped when the pins change.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from envcheck.commands import loading
from envcheck.commands.measured_cells import toml_value
from envcheck.commands.pin.search import resolve_lock
from envcheck.commands.pin.shipped import ARM, driver_floor
from envcheck.commands.pin.target import GLIBC, LockTarget, target_bounds
from envcheck.commands.pin.writing import how_tried, once_installed
from envcheck.core import versions
from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.core.facts import EMPTY_MAPPING, Fact, Inventory, Known, Tri
from envcheck.core.rules import Matrix, UserRequirement
from envcheck.host.machine import Host
from envcheck.lock.install import BUILDS
from envcheck.lock.model import Lock
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements

FOLDER = Path(__file__).resolve().parent.parent / "lockfiles"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
DRIVERS = {"driver525": "525.60.13", "driver580": "580.65.06"}
GLIBCS = {"x86_64": (GLIBC, "2.31"), ARM: (GLIBC, "2.34")}
"""C libraries to resolve for; llguidance, which vLLM needs, has wheels from 2.31 on (Ubuntu 20.04).

Machines with aarch64 and a driver from 580 on (GH200, GB10, Thor) come with Ubuntu 22.04 or RHEL 9 or newer.
"""
ARM_PYTHONS = ("3.11", "3.12")
"""Pythons of the locks for aarch64: those of the images that its machines come with."""

OLDER_PYTHONS = ("3.11", "3.12")
"""Pythons of the locks with older releases."""

TRAINED, INSTALLED, UNPACKED = "trained", "installed", "unpacked"

_HEAD = """\
# The shipped locks. Written by tools/ship_locks.py; `proven` and `proof` by tools/prove_locks.py.
# "trained": installed with hashes into an empty environment, and the target's self-tests trained in it.
# "installed": installed so, `pip check` passed, and the packages were imported as far as a machine without
# a GPU lets them. Packages in `without_kernels` were built without their compiled code, which takes nvcc; an
# empty module took its place, so the Python code that imports them was imported, and none of it was run.
# "unpacked": the files were fetched with hashes and unpacked, the requirements in their metadata hold, no
# rule refuses them, and their compiled code is for the lock's machine. Nothing was run: the lock is for
# another kind of machine, or only other locks of its target were installed so far. `left_out` are packages
# whose build compiles code.
# Others were resolved and judged.
"""


def pins_digest(text: str) -> str:
    """Return the sha256 of what a lock installs, which is its lines without the header."""
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    return "sha256:" + hashlib.sha256("\n".join(pins).encode()).hexdigest()


def read_manifest(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the rows of the manifest; an empty list if there is no manifest yet."""
    path = folder / "manifest.toml"
    rows: list[dict[str, Any]] = (
        tomllib.loads(path.read_text(encoding="utf-8"))["lock"] if path.exists() else []
    )
    return rows


def write_manifest(rows: Iterable[Mapping[str, Any]], folder: Path = FOLDER) -> None:
    """Write the rows of the manifest, sorted by name."""
    text = _HEAD
    for row in sorted(rows, key=lambda row: str(row["name"])):
        text += "\n[[lock]]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in row.items())
    (folder / "manifest.toml").write_text(text, encoding="utf-8")


class ShippedLock(NamedTuple):
    """A lock to ship, if it has a solution; `bounds` are further requirements, by package."""

    name: str
    target: str
    python: str
    family: str
    machine: str
    bounds: Mapping[str, str] = EMPTY_MAPPING


def locks_to_ship(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[ShippedLock]:
    """Yield every lock to ship for the rows `[target.NAME]`.

    `older` in a row is a second set of releases; where the usual lock has them, no second one is written.
    """
    for target, row in rows.items():
        for python in PYTHONS:
            series = f"py{python.replace('.', '')}"
            for family in DRIVERS:
                yield ShippedLock(f"{target}/{series}-{family}.txt", target, python, family, "x86_64")
            if python in ARM_PYTHONS:
                name = f"{target}/{series}-driver580-{ARM}.txt"
                yield ShippedLock(name, target, python, "driver580", ARM)
        if older := row.get("older"):
            label = "-".join(
                name + re.findall(r"[\d.]+", bound)[0].replace(".", "") for name, bound in older.items()
            )
            for python, family in product(OLDER_PYTHONS, DRIVERS):
                name = f"{target}/py{python.replace('.', '')}-{family}-{label}.txt"
                yield ShippedLock(name, target, python, family, "x86_64", older)


def usual_name(wanted: ShippedLock) -> str:
    """Return the name of the lock for the same place without further requirements."""
    return f"{wanted.target}/py{wanted.python.replace('.', '')}-{wanted.family}.txt"


def has_them(path: Path, bounds: Mapping[str, str]) -> bool:
    """Return whether a lock exists and has releases within the bounds, so that a second one adds nothing."""
    if not path.exists():
        return False
    pins = {each.name: each.version for each in parse_requirements(path.read_text("utf-8"), path.name).pins}
    return all(
        name in pins and versions.satisfies(pins[name], bound, unknown=Tri.NO) is Tri.YES
        for name, bound in bounds.items()
    )


def row_of(name: str, text: str, before: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest's row for a lock; keep the previous test result if the pins are the same."""
    parsed = parse_requirements(text, name)
    pins = {each.name: each.version for each in parsed.pins}
    row: dict[str, Any] = {
        "name": name,
        "target": parsed.target,
        "python": parsed.python,
        "platform": parsed.platform,
        "driver": next((value for key, _, value in parsed.needs if key == "driver.version"), ""),
        "torch": pins["torch"],
        "resolved": parsed.date,
        "pins": pins_digest(text),
    }
    same = [each for each in before if each["name"] == name and each["pins"] == row["pins"]]
    return {**row, **{key: same[0][key] for key in ("proven", "proof") if same and key in same[0]}}


def in_words(row: Mapping[str, Any]) -> str:
    """Return the sentence for the lock's header that states how it was tested."""
    proof = row["proof"]
    if row["proven"] == UNPACKED:
        left_out = proof.get("left_out", ())
        which = (
            f"{proof['packages']} packages, all but {', '.join(left_out)},"
            if left_out
            else f"all {proof['packages']} packages"
        )
        needing = ", ".join(name for name in left_out if name not in BUILDS)
        built = f"; {needing} is built on installation, which takes a compiler" if needing else ""
        others = ", ".join(name for name in left_out if name in BUILDS)
        built += f"; {others} is built on installation, with a compiler or without" if others else ""
        return (
            f"unpacked on {proof['date']}: {which} fetched with hashes, what they require is there, and "
            f"their {proof['libraries']} compiled files are for {row['platform']}{built}; nothing was run; "
            f"{once_installed(row['target'])}"
        )
    unused = proof.get("unused", ())
    without = f"; the kernels of {', '.join(unused)} do not load, and the target does not use them"
    if row["proven"] == TRAINED:
        words = (
            f"trained on {proof['date']}: installed with hashes, then {proof['pass']} self-tests passed "
            f"({proof['device']}, {proof['ranks']} ranks)"
        )
    else:
        words = (
            f"installed on {proof['date']}: pip check and {proof['pass']} self-tests passed; none trained as "
            "the target does"
        )
    if hollow := ", ".join(proof.get("without_kernels", ())):
        words += (
            f"; {hollow} was built without its kernels, which take nvcc, and imported with an empty module "
            f"in their place; {once_installed(row['target'])}"
        )
    return words + (without if unused else "")


def main(words: list[str]) -> int:
    """Write every lock, or only those that the patterns select, and the manifest of all.

    Returns 1 if a lock that exists could not be resolved again.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "patterns", nargs="*", default=["*"], metavar="PATTERN", help="names of locks to write"
    )
    parser.add_argument("--missing", action="store_true", help="skip locks that exist")
    given = parser.parse_args(words)
    known, rows = loading.knowledge(), loading.source_tree()["matrix"]["target"]
    status = 0
    for wanted in locks_to_ship(rows):
        exists = (FOLDER / wanted.name).exists()
        if not any(fnmatch(wanted.name, each) for each in given.patterns) or (exists and given.missing):
            continue
        if wanted.bounds and has_them(FOLDER / usual_name(wanted), wanted.bounds):
            print(f"{wanted.name}: {usual_name(wanted)} has these releases", flush=True)
            continue
        try:
            made = resolve(wanted, known)
        except (NoSolutionError, ExamineError) as error:
            print(f"{wanted.name}: none{'; the existing lock stays' if exists else ''}\n{error}", flush=True)
            status = status or int(exists)
            continue
        (FOLDER / wanted.name).parent.mkdir(exist_ok=True)
        (FOLDER / wanted.name).write_text(render_requirements(made), encoding="utf-8")
        print(f"{wanted.name}: {len(made.pins)} packages", flush=True)
    write_all_rows()
    return status


def write_all_rows() -> None:
    """Write the manifest of all existing locks, and update how each was tested in its header."""
    before, known = read_manifest(), loading.knowledge()
    names = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.txt"))
    rows = [row_of(name, (FOLDER / name).read_text(encoding="utf-8"), before) for name in names]
    for row in rows:
        path = FOLDER / row["name"]
        text = path.read_text(encoding="utf-8")
        lock = parse_requirements(text, row["name"])
        tried = in_words(row) if "proof" in row else how_tried(known.targets[lock.target], known, lock.pins)
        if tried != lock.proof:
            path.write_text(render_requirements(replace(lock, proof=tried)), encoding="utf-8")
    write_manifest(rows)


def resolve(wanted: ShippedLock, known: Matrix) -> Lock:
    """Resolve a lock for the oldest C library of GLIBCS that has one.

    Raises:
        NoSolutionError: there is no solution, or none that needs the family's driver.
    """
    *earlier, last = GLIBCS[wanted.machine]
    for glibc in earlier:
        try:
            return _resolve_for(wanted, known, glibc)
        except NoSolutionError as error:
            print(f"{wanted.name}: none for glibc {glibc}: {str(error)[:300]}", flush=True)
    return _resolve_for(wanted, known, last)


def _resolve_for(wanted: ShippedLock, known: Matrix, glibc: str) -> Lock:
    driver = DRIVERS[wanted.family]
    facts = {
        "driver.version": Fact("driver.version", Known(driver), "declared"),
        "python.version": Fact("python.version", Known(f"{wanted.python}.0"), "declared"),
        "host.arch": Fact("host.arch", Known(wanted.machine), "declared"),
        "host.os": Fact("host.os", Known("linux"), "declared"),
    }
    place = LockTarget(
        machine=Inventory(facts),
        python=wanted.python,
        platform=f"linux-{wanted.machine}",
        glibc=glibc,
        target=known.targets[wanted.target],
        matrix=known,
        requirements=(
            *(
                UserRequirement(name, bound, wanted.name, wanted=True)
                for name, bound in wanted.bounds.items()
            ),
            *target_bounds(known.targets[wanted.target]),
        ),
    )
    made = resolve_lock(place, Host(), "", [], extra_indexes=False)
    if driver_floor(made) != driver and wanted.family != min(DRIVERS):
        made = resolve_lock(replace(place, newest=True), Host(), "", [], extra_indexes=False)
        if driver_floor(made) != driver:
            pins = {pin.name: pin.version for pin in made.pins}
            raise NoSolutionError(
                f"even the newest releases (torch {pins['torch']}) need no driver from {driver}: "
                "the lock for the older driver serves this one too"
            )
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
