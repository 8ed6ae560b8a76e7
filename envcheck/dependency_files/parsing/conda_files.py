"""Conda packages as locks name them: their names on the Python index, and the facts in a build's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from envcheck.core.facts import Fact, Known, normalised
from envcheck.dependency_files import ListedPackage

PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
"""Conda's names of Linux platforms."""

NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch", "libtorch": ""}
"""Names on the index of packages that conda names differently; "" for a part of another package."""

_CPU_BUILD = re.compile(r"(?:^|[-_])cpu(?:_|$)")


def conda_package(name: str, version: str, build: str, place: str) -> tuple[ListedPackage | None, list[Fact]]:
    """Return a conda package, or None for Python and for parts of other packages, and the facts it states.

    `build` is the name of a build or of a file. A torch that is built for the CPU has the label of such a
    wheel.
    """
    plain = normalised(name)
    if plain == "python":
        return None, [Fact("python.version", Known(version), place)]
    plain = NAMES.get(plain, plain)
    if not plain:
        return None, []
    facts = []
    if plain == "torch" and (cuda := re.search(r"cuda_?(\d{2})\.?(\d)", build)):
        facts.append(Fact("build.torch.cuda", Known(f"{cuda[1]}.{cuda[2]}"), place))
    elif plain == "torch" and _CPU_BUILD.search(build) and "+" not in version:
        version = f"{version}+cpu"
    return ListedPackage(plain, version, place), facts


def packages_from_conda(
    conda: Iterable[ListedPackage], packages: Mapping[str, ListedPackage], place: str
) -> tuple[Fact, ...]:
    """Return a fact: which packages conda installs, without those that pip replaces."""
    found = sorted({each.name for each in conda if packages.get(each.name) is each})
    return (Fact("packages.from_conda", Known(tuple(found)), place),) if found else ()


def name_and_version(address: str) -> tuple[str, str]:
    """Return name and version in the address of a conda package, a wheel or a source distribution.

    Both are empty if its file name has another form.
    """
    file = address.rpartition("/")[2].partition("#")[0].replace("%2B", "+")
    if file.endswith((".conda", ".tar.bz2")):
        parts = file.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
        return (parts[0], parts[1]) if len(parts) == 3 else ("", "")  # noqa: PLR2004 - name, version, build
    found = re.match(r"([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9_.!+]*)(?:-|\.tar|\.zip)", file)
    return (found[1], found[2]) if found else ("", "")
