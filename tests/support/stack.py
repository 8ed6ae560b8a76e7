"""A real training stack: an environment with torch, DeepSpeed, transformers and PEFT, and other DeepSpeed releases.

ENVCHECK_STACK is an interpreter that has the packages of `STACK`, or `install`, which creates an environment
with pip (this takes some minutes, and several GB unless the index has a CPU build of torch). If it is not
set, the tests that need a stack are skipped with that reason.
"""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - tests are users
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.running import folder_of_session

STACK = ("torch==2.13.0", "deepspeed==0.19.8", "transformers==5.23.0", "peft==0.21.2", "accelerate==1.15.0")

OVERLAYS = {
    "0.19.2": (
        "deepspeed==0.19.2",
    ),  # the last release that empties frozen parameters under non-reentrant checkpointing
    "0.14.2": ("deepspeed==0.14.2",),  # clips with a tensor on the accelerator
    "0.14.3": ("deepspeed==0.14.3",),  # the first release that does not
}

BUILD = {"DS_BUILD_OPS": "0", "DS_SKIP_CUDA_CHECK": "1"}


def pip(python: str, *arguments: str) -> None:
    ran = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, **BUILD},  # noqa: TID251
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of an environment that has the packages of `STACK`."""
    named = os.environ.get("ENVCHECK_STACK", "")  # noqa: TID251
    if not named:
        pytest.skip("ENVCHECK_STACK is not set: an interpreter with torch and DeepSpeed, or `install`")
    if named != "install":
        return named
    return str(folder_of_session(tmp_path_factory, "stack", install) / "bin/python")


def install(folder: Path) -> None:
    """Install the packages of `STACK` into a new environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    python = str(folder / "bin/python")
    # DeepSpeed's setup.py imports torch, so torch comes first and the build is not isolated.
    pip(python, STACK[0], "setuptools<81", "wheel", "numpy")
    pip(python, *(each for each in STACK if not each.startswith("deepspeed")), "py-cpuinfo", "ninja")
    pip(python, "--no-build-isolation", *(each for each in STACK if each.startswith("deepspeed")))


@pytest.fixture(scope="session")
def deepspeed(stack: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a folder with another DeepSpeed release, to put before the environment's on PYTHONPATH."""
    given = os.environ.get("ENVCHECK_OVERLAYS", "")  # noqa: TID251 - a folder that has some of them already

    def overlay(version: str) -> Path:
        kept = Path(given, f"ds-{version}") if given else None
        if kept is not None and kept.is_dir():
            return kept
        words = ("--no-deps", "--no-build-isolation", "--target")
        return folder_of_session(
            tmp_path_factory,
            f"ds-{version}",
            lambda folder: pip(stack, *words, str(folder), *OVERLAYS[version]),
        )

    return overlay
