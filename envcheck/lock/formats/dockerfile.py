"""A Dockerfile: a slim Python, the lock, and a gate that stops the build if a rule is broken."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.lock.formats import AS_REQUIREMENTS, Context
from envcheck.lock.install import install_commands, needs_torch
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES, WANTS_GROUPS = False, False
FILES, WHY_FILES = r".*", ""


def render(lock: Lock, context: Context) -> str:
    """Return a Dockerfile that installs the lock from a requirements.txt beside it, then judges the image."""
    del context
    return checked(document(_header(lock), _body(lock)), lock)


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "Put beside it a wheel of envcheck, and the same lock as requirements.txt"
    yield f"({AS_REQUIREMENTS})."
    yield "The driver comes with the machine, so the image has none."
    if apart := needs_torch(lock.build):
        yield f"{', '.join(apart)}: published as source; where no published wheel fits, its build needs nvcc"
        yield "and a C++ compiler: take a base image that has a CUDA toolkit."
    yield ""


def _body(lock: Lock) -> Iterator[str]:
    target = f" --target {lock.target}" if lock.target else ""
    yield f"FROM python:{lock.python}-slim"
    yield from _compilers(lock)
    yield "# The wheels are several GB: pip's cache would be in the image a second time."
    yield "ENV PIP_NO_CACHE_DIR=1"
    yield "WORKDIR lock"
    yield "COPY requirements.txt envcheck_ml-*.whl ./"
    yield from (f"RUN {command}" for command in install_commands(lock.build, lock.pins))
    yield "# The gate: a broken rule stops the build. envcheck has a separate environment."
    yield "RUN python -m venv gate && gate/bin/pip install ./envcheck_ml-*.whl && \\"
    yield f'    gate/bin/envcheck gate --python "$(command -v python)"{target} --lock requirements.txt'


def _compilers(lock: Lock) -> Iterator[str]:
    """Yield the lines that install the compilers which the training starts; a slim Python has none."""
    needed: dict[str, None] = {}
    if any(pin.name == "triton" for pin in lock.pins):
        yield "# Triton compiles a launcher with the C compiler at the first start of a kernel."
        needed |= dict.fromkeys(("gcc", "libc6-dev"))
    if dict(lock.train).get("train.offload_optimizer") in ("cpu", "nvme"):
        yield "# DeepSpeed compiles its CPU optimizer with the C++ compiler when the training starts."
        needed |= dict.fromkeys(("g++",))
    if needed:
        yield f"RUN apt-get update && apt-get install -y --no-install-recommends {' '.join(needed)} && \\"
        yield "    rm -rf /var/lib/apt/lists/*"
