"""Write the shipped locks: `python tools/ship_locks.py`.

Each is what `pin --resolve` gives for a machine that has nothing but a driver of this family, on the
oldest C library that torch's wheels ask for.
"""

from __future__ import annotations

from pathlib import Path

from envcheck import app, lock, pinning
from envcheck.host import Host
from envcheck.model import Fact, Inventory, Known

TARGETS = ("zero3-lora",)
PYTHONS = ("3.11", "3.12")
DRIVERS = {"driver525": "525.60.13", "driver580": "580.65.06"}


def main(folder: Path) -> None:
    """Make every lock into `folder`."""
    known = app.knowledge()
    for target in TARGETS:
        for python in PYTHONS:
            for family, driver in DRIVERS.items():
                facts = {
                    "driver.version": Fact("driver.version", Known(driver), "declared"),
                    "python.version": Fact("python.version", Known(f"{python}.0"), "declared"),
                }
                place = pinning.Place(
                    Inventory(facts), python, "linux-x86_64", pinning.GLIBC, known.targets[target], known
                )
                made = pinning.resolved_lock(place, Host())
                name = f"{target}-py{python.replace('.', '')}-{family}.txt"
                (folder / name).write_text(lock.render_requirements(made), encoding="utf-8")
                print(f"{name}: {len(made.pins)} packages")


if __name__ == "__main__":
    main(Path(__file__).parent.parent / "lockfiles")
