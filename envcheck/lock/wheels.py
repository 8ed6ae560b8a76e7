"""Which files of a release a platform and a Python can use: wheels by their tags, sources where named."""

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
_ARCHITECTURES = {"x86_64": (2, 5), "aarch64": (2, 17)}  # the oldest glibc a manylinux tag of it names


def platform_tags(platform: str, glibc: str) -> tuple[str, ...]:
    """The platform tags that a machine such as `linux-x86_64` with this glibc accepts, best first.

    Raises:
        InputError: a platform no lock can be made for, or a glibc that is not `2.N`.
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
    """All wheel tags that CPython of a version (`3.11`) accepts on a platform.

    Raises:
        InputError: not a Python version, or as `platform_tags` does.
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
    """Name, version and wheel tags (None for a source distribution) of a file, or None if it is neither."""
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
    """The files of one release that may be installed: wheels for the tags, or sources if it is to be built.

    Never both: a package named in `build` has no wheels one may trust to be the same, and a package
    that is not named must not run its setup.py.
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
