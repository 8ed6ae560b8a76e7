"""The fuzzers in their fast mode: 500 inputs that the seed decides. `fuzz_inputs.py` says how to run more."""

from __future__ import annotations

import subprocess  # noqa: TID251 - tests are users
import sys

from tests.support.paths import ROOT
from tests.support.running import installed, surroundings

SEED = "1"
PARTS = 2


def started(part: int) -> subprocess.Popen[str]:
    which = ("--count", "500", "--seed", SEED, "--part", f"{part}/{PARTS}")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.property.fuzz_inputs", *which],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=surroundings({"PYTHONPATH": f"{installed()}:{ROOT}"}),
    )


def test_500_hostile_inputs_end_as_documented() -> None:
    for process in [started(part) for part in range(PARTS)]:
        out, _ = process.communicate(timeout=900)
        assert process.returncode == 0, out


def test_what_the_fuzzer_mutates_is_accepted_before() -> None:
    """An input that fails at its first line tests nothing behind it."""
    process = subprocess.run(
        [sys.executable, "-P", "-m", "tests.property.fuzz_inputs", "--seeds"],
        capture_output=True,
        text=True,
        env=surroundings({"PYTHONPATH": f"{installed()}:{ROOT}"}),
        timeout=120,
        check=False,
    )
    assert (process.returncode, process.stdout) == (0, "")
