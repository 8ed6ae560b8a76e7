"""Derive what the published wheels of packages say where no installed files were read: GPU code, and whether one fits.

Imported by `derive` only for packages that a facts file, a lock or a list of requirements names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

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

_KIND = re.compile(r"(\w+) glibc>=(\S+) python (.+)")


def listed_packages(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Yield name and version of the packages that were listed, not found installed.

    Of an installed package the metadata was read: it is there, wherever it came from.
    """
    for key, fact in inventory.facts.items():
        if is_package_key(key) and key.count(".") == 1 and isinstance(fact.value, str):
            name = package_of_key(key)
            if package_key(name, "requires") not in inventory.facts:
                yield name, fact.value


def published_code(inventory: Inventory, matrix: Matrix) -> dict[str, tuple[str, ...]]:
    """Return the GPU architectures of the listed packages whose wheels were opened."""
    found = {}
    for name, version in listed_packages(inventory):
        build = matrix.builds(name, version)
        if build and "gpu" in build and package_key(name, "architectures") not in inventory.facts:
            found[name] = tuple(build["gpu"][0].split(" "))
    return found


def without_wheel(inventory: Inventory, matrix: Matrix) -> Reading:
    """Return the listed packages of which no published wheel fits the Python and the C library, with the reason."""
    python, glibc, arch = (inventory.known(key) for key in ("python.version", "host.glibc", "host.arch"))
    if inventory.known("host.os") not in (None, "linux") or arch not in (None, "x86_64", "aarch64"):
        return Absent()
    found = []
    for name, version in listed_packages(inventory):
        build = None if versions.local_label(version) else matrix.builds(name, version)
        reason = (
            _why_none_fits(build, str(arch or "x86_64"), str(python or ""), str(glibc or "")) if build else ""
        )
        if reason:
            found.append(f"{name} {version} ({reason})")
    return Known(tuple(sorted(found))) if found else Absent()


def _why_none_fits(build: Builds, arch: str, python: str, glibc: str) -> str:
    """Return why no wheel fits; empty if one does, or if the release has no compiled wheels for the machine."""
    kinds = [kind for text in build.get("wheel", ()) if (kind := _KIND.fullmatch(text)) and kind[1] == arch]
    if not kinds or "any" in build["wheel"]:
        return ""
    for_python = [kind for kind in kinds if _serves(kind[3].split(" "), python)]
    if not for_python:
        return f"for Python {', '.join(dict.fromkeys(one for kind in kinds for one in kind[3].split(' ')))}"
    floors = [max(kind[2], *build.get("needs-glibc", ()), key=versions.order) for kind in for_python]
    floor = min(floors, key=versions.order)
    if not glibc or floor == "any" or versions.compare(glibc, ">=", floor) is not Tri.NO:
        return ""
    return f"glibc {floor}"


def _serves(pythons: list[str], python: str) -> bool:
    """Return whether wheels for these Pythons may serve one; a Python that is not known may be any."""
    minor = ".".join(python.split(".")[:2])
    return (
        not minor
        or "any" in pythons
        or minor in pythons
        or any(
            one.startswith("abi3>=") and versions.compare(minor, ">=", one.removeprefix("abi3>=")) is Tri.YES
            for one in pythons
        )
    )


def architectures(inventory: Inventory, code: Mapping[str, tuple[str, ...]]) -> Inventory:
    """Add the architectures of published wheels as facts of their packages."""
    from envcheck.core.facts import Fact

    return inventory.with_facts(
        Fact(package_key(name, "architectures"), Known(found), f"the published wheel of {name}")
        for name, found in code.items()
    )
