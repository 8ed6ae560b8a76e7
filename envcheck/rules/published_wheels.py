"""Derive what the published wheels of packages hold code for, and whether one of them fits this machine.

Imported by `derive` only for packages that a facts file, a lock or a list of requirements names. The resolver
derives thousands of candidates, so what follows from one release is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from envcheck.core import versions
from envcheck.core.facts import (
    Absent,
    Inventory,
    Known,
    Reading,
    Tri,
    is_package_key,
    package_key,
    package_of_key,
)
from envcheck.core.rules import Builds, Matrix

_OWN_RULES = frozenset({"torch"})
"""Packages whose wheels are covered by separate rules with more precise messages."""

_OTHER_CUDA = re.compile(r"cu\d{3}")
"""The local label of a project's own wheel for another CUDA than that of its release on the index."""

_KIND = re.compile(r"(\w+) glibc>=(\S+) python (.+)")


def listed_packages(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package."""
    for key, fact in inventory.facts.items():
        if is_package_key(key) and key.count(".") == 1 and isinstance(fact.value, str):
            yield package_of_key(key), fact.value


def published_code(inventory: Inventory, matrix: Matrix) -> dict[str, tuple[str, ...]]:
    """Return the GPU architectures of the packages whose wheels were opened, if no installed files were.

    A wheel for another CUDA, which is published elsewhere, has code for other GPUs, and so has conda's build.
    """
    built = _built_by_conda(inventory)
    found = {}
    for name, version in listed_packages(inventory):
        if name in built or _OTHER_CUDA.fullmatch(versions.local_label(version)):
            continue
        build = matrix.builds(name, version)
        if build and "gpu" in build and package_key(name, "architectures") not in inventory.facts:
            found[name] = tuple(build["gpu"][0].split(" "))
    return found


def _built_by_conda(inventory: Inventory) -> tuple[object, ...]:
    names = inventory.known("packages.from_conda")
    return names if isinstance(names, tuple) else ()


def without_wheel(inventory: Inventory, matrix: Matrix) -> Reading:
    """Return the packages of which no published wheel fits the Python and the C library, with the reason."""
    python, glibc, arch = (inventory.known(key) for key in ("python.version", "host.glibc", "host.arch"))
    if inventory.known("host.os") not in (None, "linux") or arch not in (None, "x86_64", "aarch64"):
        return Absent()
    machine = (str(arch or "x86_64"), str(python or ""), str(glibc or ""))
    built = _built_by_conda(inventory)
    found = []
    for name, version in listed_packages(inventory):
        label = versions.local_label(version)
        if name in _OWN_RULES or name in built or (label and not _OTHER_CUDA.fullmatch(label)):
            continue
        reason = _why_none_fits(matrix.builds, name, version.partition("+")[0], machine, bool(label))
        if reason:
            found.append(f"{name} {version} ({reason})")
    return Known(tuple(sorted(found))) if found else Absent()


@lru_cache(maxsize=4096)
def _why_none_fits(
    builds: Callable[[str, str], Builds | None],
    name: str,
    version: str,
    machine: tuple[str, str, str],
    is_other_cuda: bool,
) -> str:
    """Return why no wheel of a release fits a machine, as `why_no_wheel` does.

    The wheels for another CUDA are published elsewhere. They are built on the same system, so their libraries
    need the same C library; for which Pythons they are published is not known.
    """
    build = builds(name, version) or {}
    if not is_other_cuda:
        return why_no_wheel(build, machine)
    glibc, floors = machine[2], build.get("needs-glibc", ())
    floor = max(floors, key=versions.order, default="")
    too_old = bool(glibc and floor) and versions.compare(glibc, "<", floor) is Tri.YES
    return f"glibc {floor}" if too_old else ""


def why_no_wheel(build: Builds, machine: tuple[str, str, str]) -> str:
    """Return why no wheel fits a machine (architecture, Python, glibc).

    Empty if one does, or if the release has no compiled wheels for the architecture.
    """
    architecture, python, glibc = machine
    published = build.get("wheel", ())
    kinds = [kind for text in published if (kind := _KIND.fullmatch(text)) and kind[1] == architecture]
    if not kinds or "any" in published:
        return ""
    fitting = [kind for kind in kinds if _serves(kind[3].split(" "), python)]
    if not fitting:
        pythons = dict.fromkeys(one for kind in kinds for one in kind[3].split(" "))
        return f"for Python {', '.join(one for one in pythons if one != 'any')}"
    needed = build.get("needs-glibc", ())
    floor = min((max([kind[2], *needed], key=versions.order) for kind in fitting), key=versions.order)
    too_old = bool(glibc) and floor != "any" and versions.compare(glibc, "<", floor) is Tri.YES
    return f"glibc {floor}" if too_old else ""


def _serves(pythons: list[str], python: str) -> bool:
    """Return whether wheels for these Pythons may serve one; an unknown Python may be any.

    `any` beside versions of CPython stands for wheels of PyPy.
    """
    minor = ".".join(python.split(".")[:2])
    return (
        not minor
        or pythons == ["any"]
        or minor in pythons
        or any(
            versions.compare(minor, ">=", one.removeprefix("abi3>=")) is Tri.YES
            for one in pythons
            if one.startswith("abi3>=")
        )
    )
