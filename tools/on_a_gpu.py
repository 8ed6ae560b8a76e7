"""Run all checks that need a GPU: `python tools/on_a_gpu.py --python ENV --out FOLDER`.

Run it on a machine with a GPU. It compares what the probes read with nvidia-smi, field by field. It runs the
self-tests of levels 1 to 3 in ENV. For each DeepSpeed in `--deepspeeds FOLDER` (created with `pip install
--no-deps --target FOLDER/deepspeed-0.14.2 deepspeed==0.14.2`) it runs level 2 of `zero3-lora-offload` and
writes cells. Afterwards, the folder of `--out` contains facts.json, fields.txt, level-N.json, cells.toml and
times.txt. No network is needed; envcheck is imported from this checkout. The exit status is 1 if a field
differs or a self-test failed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess  # noqa: TID251 - a tool for curators, run by hand
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envcheck import probes
from envcheck.commands import examine, loading
from envcheck.commands.measured_cells import cell_toml
from envcheck.core.facts import Inventory, Value
from envcheck.core.versions import base_release
from envcheck.host.machine import Host

ROOT = Path(__file__).resolve().parent.parent

FIELDS = {
    "driver_version": "driver.version",
    "name": "gpu.name",
    "memory.total": "gpu.memory_mib",
    "compute_cap": "gpu.compute_capability",
    "compute_mode": "gpu.compute_mode",
    "mig.mode.current": "gpu.mig",
    "mig.mode.pending": "gpu.mig_pending",
}
"""Columns of `nvidia-smi --query-gpu` and the facts that must have the same value."""

PACKAGES = ("torch", "deepspeed", "transformers", "peft", "accelerate")

DEADLINE_S = 540


def parse_smi(text: str) -> list[dict[str, str]]:
    """Parse the rows of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`, by column."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    return [dict(zip(FIELDS, row, strict=True)) for row in rows]


def differences(smi: Sequence[Mapping[str, str]], read: Inventory) -> Iterator[tuple[str, bool]]:
    """Yield a line for each field of each GPU, and whether nvidia-smi and the probes agree."""
    yield f"GPUs: nvidia-smi {len(smi)}, envcheck {len(read.devices)}", len(smi) == len(read.devices)
    for number, row in enumerate(smi[: len(read.devices)]):
        for column, key in FIELDS.items():
            ours, theirs = read.known(key, number), row[column]
            yield f"GPU {number} {column}: nvidia-smi {theirs!r}, envcheck {ours!r}", _agree(theirs, ours)


def _agree(theirs: str, ours: Value | None) -> bool:
    if theirs in ("[N/A]", "N/A", "[Not Supported]"):
        return ours in (None, False, "")
    if isinstance(ours, bool):
        return ours == (theirs == "Enabled")
    spelt = theirs.lower().replace("exclusive_process", "exclusive-process")
    return str(ours).lower().replace("_", "-") == spelt.replace("_", "-")


def cells_of(proof: Mapping[str, Any], pkg: Mapping[str, str], gpu: str) -> str:
    """Return the cells of a level-2 run for compat/matrix.toml: one per test, with its rule if it has one."""
    ran = [each for each in proof["outcomes"] if each["level"] > 1 and each["result"] in ("pass", "fail")]
    return "".join(
        cell_toml(
            {
                "target": "zero3-lora-offload",
                "outcome": "ok" if each["result"] == "pass" else "fails",
                **({"rule": each["rule"]} if each["rule"] else {}),
                **({"signature": each["why"]} if each["result"] == "fail" else {}),
                "pkg": pkg,
                "train": each["train"],
                "device": gpu,
                "ranks": each["ranks"],
                "seconds": each["seconds"],
                "date": dt.datetime.now(tz=dt.UTC).date(),
                "test": each["digest"],
                "tests": [f"{each['test']}/{each['variant']}"],
            }
        )
        for each in ran
    )


def main() -> int:
    """Run all checks and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", required=True, help="environment with torch, DeepSpeed, PEFT")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--deepspeeds", type=Path, help="folder that contains deepspeed-VERSION folders")
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu"), help="cpu tests this script itself"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    good = [_fields(options), *(_level(options, level) for level in (1, 2, 3)), _deepspeeds(options)]
    return 0 if all(good) else 1


def _envcheck(options: argparse.Namespace, *arguments: str, path: str = "") -> tuple[int, str, str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), path)))}  # noqa: TID251
    begun = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "envcheck", *arguments, "--python", options.python],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environ,
    )
    seconds = time.monotonic() - begun
    line = f"{seconds:7.1f} s  exit {ran.returncode}  envcheck {' '.join(arguments)} {Path(path).name}"
    print(line, flush=True)
    with (options.out / "times.txt").open("a") as times:
        times.write(line.rstrip() + "\n")
    return ran.returncode, ran.stdout, ran.stderr


def _fields(options: argparse.Namespace) -> bool:
    _, out, err = _envcheck(options, "facts")
    (options.out / "facts.json").write_text(out or err)
    try:
        smi = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"nvidia-smi: {error}")
        return bool(options.device == "cpu")
    found = list(differences(parse_smi(smi.stdout), _inventory(options)))
    text = "".join(f"{'same  ' if same else 'DIFFER'}  {line}\n" for line, same in found)
    (options.out / "fields.txt").write_text(text)
    print(text, end="")
    return all(same for _, same in found)


def _level(options: argparse.Namespace, level: int) -> bool:
    arguments = ("selftest", "--level", str(level), "--device", options.device, "--json")
    code, out, err = _envcheck(options, *arguments)
    (options.out / f"level-{level}.json").write_text(out or err)
    for each in json.loads(out)["outcomes"] if out else []:
        if each["result"] in ("fail", "unknown"):
            print(f"    {each['result']} {each['test']}/{each['variant']}: {each['why']}")
    return bool(code == 0)


def _deepspeeds(options: argparse.Namespace) -> bool:
    """Run each DeepSpeed release and write its cells; print and leave out a release that cannot be run.

    Passing and failing are both valid results, because the releases lie on both sides of a bound.
    """
    for folder in sorted(options.deepspeeds.glob("deepspeed-*")) if options.deepspeeds else []:
        target = ("--target", "zero3-lora-offload", "--level", "2", "--device", options.device, "--json")
        _, out, err = _envcheck(options, "selftest", *target, path=str(folder))
        if not out:
            print(f"    {folder.name}: {err.strip()}")
            continue
        read = _inventory(options)
        pkg = {
            name: base_release(str(read.known(f"pkg.{name}")))
            for name in PACKAGES
            if read.known(f"pkg.{name}")
        }
        pkg["deepspeed"] = folder.name.partition("-")[2]
        gpu = str(read.known("gpu.name", 0)) if read.devices else options.device
        with (options.out / "cells.toml").open("a") as cells:
            cells.write(cells_of(json.loads(out), pkg, gpu))
    return True


def _inventory(options: argparse.Namespace) -> Inventory:
    found = probes.every_probe()
    words = loading.vocabulary(found)
    request = examine.ExamineRequest(python=options.python)
    return examine.take_inventory(request, Host(), found, loading.load_matrix(words), words)[1]


if __name__ == "__main__":
    sys.exit(main())
