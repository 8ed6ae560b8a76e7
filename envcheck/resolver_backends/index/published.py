"""Group the files of a project into releases, with the most informative wheel of each release first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from envcheck.lock.wheels import release_of
from envcheck.resolver_backends.index.pages import ListedFile

_PREFERRED = (
    r"-cp311-cp311-.*manylinux.*x86_64",
    r"-cp312-cp312-.*manylinux.*x86_64",
    r"-cp310-cp310-.*manylinux.*x86_64",
    r"-abi3-.*manylinux.*x86_64",
    r"-py3-none-.*manylinux.*x86_64",
    r"-.*linux.*x86_64",
    r"-none-any",
    r"-.*linux.*",
)
"""Patterns of wheel names, in order of how much the wheel reveals about an installation on Linux."""


@dataclass(frozen=True, kw_only=True)
class ListedRelease:
    """One release on an index.

    Attributes:
        package: normalised name.
        version: normalised version.
        uploaded: ISO date of the first upload; empty if the index does not give it.
        yanked: whether every file was yanked.
        wheels: the wheels, the most informative one first.
        sdists: the source distributions.

    """

    package: str
    version: str
    uploaded: str
    yanked: bool
    wheels: tuple[ListedFile, ...]
    sdists: tuple[ListedFile, ...]


def listed_releases(
    package: str, files: Iterable[ListedFile], since: str, *, candidates: bool = False
) -> list[ListedRelease]:
    """Return the releases since an ISO date, oldest version first; skip files of other projects.

    They are the final releases, with `candidates` the pre-releases too. If the index does not give the date
    of a release, the release counts as recent.
    """
    found: dict[Version, list[ListedFile]] = {}
    for file in files:
        release = release_of(file.name)
        if release is None or release[0] != package:
            continue
        if candidates or not release[1].is_prerelease:
            found.setdefault(release[1], []).append(file)
    releases = [_release(package, version, found[version]) for version in sorted(found)]
    return [release for release in releases if not "" < release.uploaded < since]


def _release(package: str, version: Version, files: list[ListedFile]) -> ListedRelease:
    wheels = [file for file in files if file.name.endswith(".whl")]
    return ListedRelease(
        package=package,
        version=str(version),
        uploaded=min((file.uploaded[:10] for file in files if file.uploaded), default=""),
        yanked=all(file.yanked for file in files),
        wheels=tuple(sorted(wheels, key=_preference)),
        sdists=tuple(file for file in files if file not in wheels),
    )


def _preference(file: ListedFile) -> tuple[int, str]:
    fits = (place for place, form in enumerate(_PREFERRED) if re.search(form, file.name))
    return next(fits, len(_PREFERRED)), file.name
