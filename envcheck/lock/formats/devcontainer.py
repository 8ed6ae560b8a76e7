"""devcontainer.json: the locked Python in a container with the machine's GPUs, and the lock installed."""

from __future__ import annotations

import json

from envcheck.lock.formats import AS_REQUIREMENTS, Context
from envcheck.lock.install import install_commands, needs_torch
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock
from envcheck.lock.render import introduction

WANTS_ADDRESSES, WANTS_GROUPS = False, False
FILES, WHY_FILES = r"\.?devcontainer\.json", "editors read this format from a file named devcontainer.json"


def render(lock: Lock, context: Context) -> str:
    """Return the file with its introduction as comments, which the format allows."""
    del context
    header = [
        *introduction(lock),
        "",
        "The workspace holds the same lock as requirements.txt",
        f"({AS_REQUIREMENTS}).",
        "It has the host's shared memory (--ipc=host): NCCL and data loaders need more than 64 MB.",
    ]
    if apart := needs_torch(lock.build):
        header.append(f"{', '.join(apart)}: published as source; where no published wheel fits, its build")
        header.append("needs nvcc: take an image that has a CUDA toolkit.")
    header.append("")
    settings = {
        "name": lock.target or "locked",
        # The slim image has no git and no C compiler, which triton runs at the first start of a kernel.
        "image": f"python:{lock.python}",
        "hostRequirements": {"gpu": "optional"},
        "runArgs": ["--ipc=host"],
        "postCreateCommand": " && ".join(install_commands(lock.build, lock.pins)),
    }
    text = "".join(f"// {line}".rstrip() + "\n" for line in header) + json.dumps(settings, indent=2) + "\n"
    return checked(text, lock)
