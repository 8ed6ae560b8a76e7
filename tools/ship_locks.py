"""Write the shipped locks and their manifest: `python tools/ship_locks.py [NAME…]`.

Each lock is the result of `pin --resolve` for a machine of which only a driver of this family is known, with
the oldest C library that torch's wheels support. If a combination of target, Python and driver has no
solution, no lock is written and the reason is printed. lockfiles/manifest.toml records for each lock what it
is for, the digest of its pins, and the result of `tools/prove_locks.py`; that result is dropped when the pins
change.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from envcheck.commands import examine
from envcheck.commands.measured_cells import toml_value
from envcheck.commands.pin.search import resolve_lock
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.rules import UserRequirement
from envcheck.host.machine import Host
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements

FOLDER = Path(__file__).resolve().parent.parent / "lockfiles"
PYTHONS = ("3.10", "3.11", "3.12")
DRIVERS = {"driver525": "525.60.13", "driver580": "580.65.06"}

_HEAD = """\
# The shipped locks. Written by tools/ship_locks.py; `proven` by tools/prove_locks.py: installed with hashes
# into an empty environment, then `envcheck selftest --target … --level 2`. Others were resolved and judged.
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
    """A lock to ship, if it has a solution; `torch` is a bound for users who cannot upgrade."""

    name: str
    target: str
    python: str
    driver: str
    torch: str = ""


OLDER = (
    ShippedLock("zero3-lora-py311-driver525-torch24.txt", "zero3-lora", "3.11", "525.60.13", ">=2.4,<2.5"),
)
"""Additional locks, served if the user's own requirements (`--with`, `--keep`) need them."""


def locks_to_ship(targets: Iterable[str]) -> Iterator[ShippedLock]:
    """Yield every lock to ship."""
    for target in targets:
        for python in PYTHONS:
            for family, driver in DRIVERS.items():
                name = f"{target}-py{python.replace('.', '')}-{family}.txt"
                yield ShippedLock(name, target, python, driver)
    yield from OLDER


def row_of(name: str, text: str, before: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest's row for a lock; a test result stays as long as the pins stay the same."""
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
    proven = [each["proven"] for each in same if "proven" in each]
    return {**row, "proven": proven[0]} if proven else row


def main(names: list[str]) -> None:
    """Write every lock, or only the named ones, and the manifest of all."""
    known = examine.knowledge()
    for name, target, python, driver, torch in locks_to_ship(known.targets):
        if names and name not in names:
            continue
        facts = {
            "driver.version": Fact("driver.version", Known(driver), "declared"),
            "python.version": Fact("python.version", Known(f"{python}.0"), "declared"),
        }
        place = LockTarget(
            machine=Inventory(facts),
            python=python,
            platform="linux-x86_64",
            glibc=GLIBC,
            target=known.targets[target],
            matrix=known,
        )
        if torch:
            place = replace(place, requirements=(UserRequirement("torch", torch, name, wanted=True),))
        try:
            made = resolve_lock(place, Host(), "", [], extra_indexes=False)
        except NoSolutionError as error:
            (FOLDER / name).unlink(missing_ok=True)
            print(f"{name}: none\n{error}", flush=True)
            continue
        (FOLDER / name).write_text(render_requirements(made), encoding="utf-8")
        print(f"{name}: {len(made.pins)} packages", flush=True)
    before = read_manifest()
    shipped = sorted(FOLDER.glob("*.txt"))
    write_manifest(row_of(each.name, each.read_text(encoding="utf-8"), before) for each in shipped)


if __name__ == "__main__":
    main(sys.argv[1:])
