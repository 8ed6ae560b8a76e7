"""`pin --format dockerfile`: buildah builds what is written, and the gate in it judges what the lock installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess  # noqa: TID251 - tests are users
from pathlib import Path

import pytest

from envcheck.host.machine import Host, find_program
from tests.support.image_builds import Builder, repacked, torch
from tests.support.local_index import LocalIndex, serving
from tests.support.running import installed, invocation
from tests.support.stack_index import STACK, stack

PYTHON = "3.11"
"""The Python of the Debian that stands in for python:3.11-slim."""

SLIM = r"""
COPY pip.conf /etc/pip.conf
COPY wheels /wheels
RUN ln -s /usr/bin/python3 /usr/local/bin/python && python -m pip install -q -U pip && \
    rm -r /usr/lib/python3/dist-packages/setuptools* /usr/lib/python3/dist-packages/wheel*
"""
PIP = "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"

pytestmark = pytest.mark.skipif(find_program(Host(), "uv") is None, reason="needs uv")


@pytest.fixture(scope="module")
def wheels() -> dict[str, bytes]:
    """Return the files of a stack whose torch states its CUDA."""
    name, content = torch(STACK["torch"], "13.0")
    return stack() | {Path(name).name: content}


@pytest.fixture(scope="module")
def locked(wheels: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the Dockerfile and the requirements.txt that `pin` writes for the stack."""
    folder = tmp_path_factory.mktemp("locked")
    asked = ("--target", "zero3-lora", "--python-version", PYTHON, "--platform", "linux-x86_64")
    declared = ("--glibc", "2.36", "--driver", "580.95.05", "--gpu", "H100", "--resolve")
    with serving(LocalIndex(wheels, as_json=True)) as index:
        aside = ("UV_", "PIP_", "VIRTUAL_ENV", "CONDA_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(aside)}  # noqa: TID251
        environment = kept | {
            "UV_DEFAULT_INDEX": index.url,
            "UV_NO_CONFIG": "1",
            "PYTHONPATH": str(installed()),
        }
        environment |= {"UV_CACHE_DIR": str(folder / "cache"), "PIP_CONFIG_FILE": os.devnull}
        for words in (("--format", "dockerfile", "-o", "Dockerfile"), ("-o", "requirements.txt")):
            command = invocation("pin", *asked, *declared, *words)
            ran = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
            )
            assert ran.returncode == 0, ran.stderr
    return folder


def _own_requirements() -> set[str]:
    """Return the packages that envcheck requires, and those that they require."""
    found: set[str] = set()
    todo = ["envcheck-ml"]
    while todo:
        for line in importlib.metadata.requires(todo.pop()) or ():
            name = re.split(r"[^\w.-]", line, maxsplit=1)[0].lower()
            if ";" not in line and name not in found:
                found.add(name)
                todo.append(name)
    return found


def test_the_dockerfile_builds_and_its_gate_stops_at_another_release(
    builder: Builder, wheels: dict[str, bytes], locked: Path
) -> None:
    own = dict(map(repacked, ("pip", *_own_requirements())))
    files: dict[str, bytes | str] = {f"wheels/{name}": data for name, data in (own | wheels).items()}
    made = builder.build(SLIM, {**files, "pip.conf": PIP}, tag=f"python:{PYTHON}-slim")
    assert made.code == 0, made.out
    wheel = next((builder.folder / "wheel").glob("*.whl"))
    lock = (locked / "requirements.txt").read_bytes()
    beside: dict[str, bytes | str] = {wheel.name: wheel.read_bytes(), "requirements.txt": lock}
    dockerfile = (locked / "Dockerfile").read_text()
    made = builder.build(dockerfile, beside, "--pull-never", base="", tag="from-lock")
    assert made.code == 0, made.out
    assert "gate open: no known problem" in made.out
    assert re.search(
        r"^\[✓\] Packages .*torch 2\.13\.0 for CUDA 13\.0, deepspeed 0\.19\.8", made.out, re.MULTILINE
    )
    gate = dockerfile[dockerfile.rindex("\nRUN ") + 1 :]
    drift = "RUN python -m pip uninstall -q -y peft\n"
    made = builder.build(drift + gate, beside, "--pull-never", base="localhost/from-lock")
    assert made.code != 0, made.out
    assert "lock:missing:peft" in made.out
