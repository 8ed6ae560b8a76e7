"""Conda's packages as locks name them: which are Python's and torch's, and what a build's name says."""

from __future__ import annotations

import re

from envcheck.core.facts import Fact, Known, normalised
from envcheck.dependency_files import ListedPackage

PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
"""Conda's names of Linux platforms."""

NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch", "libtorch": ""}
"""Conda's names of packages that the index calls otherwise; empty for parts of another one."""


def conda_package(name: str, version: str, build: str, place: str) -> tuple[ListedPackage | None, list[Fact]]:
    """Return a package of conda, and the facts that it states; `build` is a build's or a file's name."""
    plain = normalised(name)
    if plain == "python":
        return None, [Fact("python.version", Known(version), place)]
    plain = NAMES.get(plain, plain)
    if not plain:
        return None, []
    facts = []
    if plain == "torch" and (cuda := re.search(r"cuda_?(\d{2})\.?(\d)", build)):
        facts.append(Fact("build.torch.cuda", Known(f"{cuda[1]}.{cuda[2]}"), place))
    return ListedPackage(plain, version, place), facts
