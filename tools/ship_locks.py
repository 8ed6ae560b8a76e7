"""Write the shipped locks: `python tools/ship_locks.py DATE` (ISO), with the engine the tests trust.

Each family is a set of versions that was run (the cells of its target) and the machines its builds serve.
"""

from __future__ import annotations

import sys
from pathlib import Path

from envcheck import __version__
from envcheck.engines import Wanted, choose, every_engine
from envcheck.host import Host
from envcheck.lock import Lock, build_needs, render_requirements

BUILD = ("deepspeed",)
MEASURED = "2026-11-21"  # the day each of these locks was installed and run; not the day of writing
GLIBC = "2.28"  # torch's own wheels ask for it
TRAIN = (("train.adapter", "lora"), ("train.parallel", "deepspeed"), ("train.zero_stage", "3"))
COMMON = {"deepspeed": "0.19.8", "peft": "0.21.2", "accelerate": "1.15.0"}
FAMILIES = {
    # CUDA 12.8 builds: any driver of the 12.x family, Volta to Blackwell.
    "driver525": (
        {"torch": "2.10.0", "transformers": "4.57.6", **COMMON},
        (
            ("cuda.runtime", "=", "12.8"),
            ("driver.version", ">=", "525.60.13"),
            ("gpu.architectures", "=", "sm_70,sm_75,sm_80,sm_86,sm_90,sm_100,sm_120"),
        ),
    ),
    # CUDA 13.0 builds: Turing and later.
    "driver580": (
        {"torch": "2.13.0", "transformers": "5.23.0", **COMMON},
        (
            ("cuda.runtime", "=", "13.0"),
            ("driver.version", ">=", "580.65.06"),
            ("gpu.architectures", "=", "sm_75,sm_80,sm_86,sm_90,sm_100,sm_120"),
        ),
    ),
}


def main(date: str, folder: Path) -> None:
    """Make every family for every Python, into `folder`."""
    host = Host()
    engine = choose(host, every_engine())
    for family, (pins, needs) in FAMILIES.items():
        for python in ("3.11", "3.12"):
            wanted = Wanted(pins, build_needs(BUILD), python, glibc=GLIBC, build=BUILD)
            lock = Lock(
                target="zero3-lora",
                python=python,
                platform=wanted.platform,
                pins=engine.complete(host, wanted),
                glibc=GLIBC,
                needs=needs,
                train=TRAIN,
                build=BUILD,
                date=date,
                notes=(
                    f"installed by these commands and trained two steps on two CPU processes, {MEASURED}",
                ),
                maker=__version__,
            )
            name = f"zero3-lora-py{python.replace('.', '')}-{family}.txt"
            (folder / name).write_text(render_requirements(lock), encoding="utf-8")
            print(f"{name}: {len(lock.pins)} packages")


if __name__ == "__main__":
    main(sys.argv[1], Path(__file__).parent.parent / "lockfiles")
