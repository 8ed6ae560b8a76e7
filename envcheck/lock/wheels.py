"""Select the files of a release that a Python on a platform can install: wheels by tag, sources by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from envcheck.core.errors import InputError
from envcheck.lock.model import Artifact

_LEGACY = {(2, 5): "manylinux1", (2, 12): "manylinux2010", (2, 17): "manylinux2014"}
_ARCHITECTURES = {"x86_64": (2, 5), "aarch64": (2, 17)}  # to the oldest glibc with a manylinux tag


def platform_tags(platform: str, glibc: str) -> tuple[str, ...]:
    """Return the platform tags that a machine such as `linux-x86_64` with this glibc accepts, best first.

    Raises:
        InputError: no lock can be made for the platform, or the glibc is not `2.N`.
    """
    system, _, architecture = platform.partition("-")
    oldest = _ARCHITECTURES.get(architecture)
    if system != "linux" or oldest is None:
        known = ", ".join(f"linux-{name}" for name in sorted(_ARCHITECTURES))
        raise InputError("platform", f"expected one of {known}, found {platform!r}")
    if not re.fullmatch(r"2\.\d{1,3}", glibc):
        raise InputError("glibc", f"expected a version such as 2.28, found {glibc!r}")
    tags = []
    for minor in range(int(glibc[2:]), oldest[1] - 1, -1):
        tags.append(f"manylinux_2_{minor}_{architecture}")
        if (2, minor) in _LEGACY:
            tags.append(f"{_LEGACY[2, minor]}_{architecture}")
    return (*tags, f"linux_{architecture}")


def usable_tags(python: str, platform: str, glibc: str) -> frozenset[Tag]:
    """Return all wheel tags that CPython of a version (`3.11`) accepts on a platform.

    Raises:
        InputError: the version is not a Python version, or `platform_tags` raises it.
    """
    if not re.fullmatch(r"3\.\d{1,3}", python):
        raise InputError("python", f"expected a version such as 3.11, found {python!r}")
    version = (3, int(python[2:]))
    abi = f"cp3{version[1]}"
    platforms = platform_tags(platform, glibc)
    return frozenset(
        (*cpython_tags(version, [abi], platforms), *compatible_tags(version, abi, platforms)),
    )


def release_of(filename: str) -> tuple[str, Version, frozenset[Tag] | None] | None:
    """Return name, version and wheel tags of a file; None if it is neither a wheel nor a source distribution.

    The tags of a source distribution are None.
    """
    try:
        if filename.endswith(".whl"):
            name, version, _, tags = parse_wheel_filename(filename)
            return name, version, tags
        name, version = parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    return name, version, None


def usable_files(
    name: str, version: str, files: Iterable[Artifact], tags: Collection[Tag], build: Collection[str]
) -> tuple[Artifact, ...]:
    """Return the files of one release that may be installed: wheels that fit the tags, or sources.

    Never return both. If `build` names the package, only its sources count, because its wheels may differ
    from what they build; otherwise only its wheels count, because its setup.py must not run.
    """
    wanted = Version(version)
    found = []
    for artifact in files:
        release = release_of(artifact.filename)
        if release is None or release[:2] != (name, wanted):
            continue
        wheel_tags = release[2]
        usable = (
            name in build if wheel_tags is None else name not in build and not wheel_tags.isdisjoint(tags)
        )
        if usable:
            found.append(artifact)
    return tuple(found)
