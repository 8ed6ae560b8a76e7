"""Open published releases file by file: wheels in parts, source distributions, or a folder of copies."""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename
from packaging.version import Version

from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.lock.wheels import release_of
from envcheck.resolver_backends.index.connection import NoProjectError
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader

WHEEL_LIMIT = 96 * 1024 * 1024
"""Maximum bytes of one wheel that are fetched."""

_TRIES, _PAUSE_S = 4, 2.0
"""How often a failing request is tried, and the seconds in between."""

SDIST_LIMIT = 256 * 1024 * 1024
"""Bytes of the largest source distribution that is fetched."""

_CPYTHON = ("cp310", "cp311", "cp312", "cp39")
"""If a release has a wheel for each Python, the first of these tags that exists selects the one to open."""


_T = TypeVar("_T")

_DATA = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")
"""A folder in which a wheel may keep its modules; installers remove this prefix."""


class _Archive(Protocol):
    def namelist(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...


class ReleaseContents:
    """Files of one release, read from its archive on request."""

    def __init__(self, archive: _Archive, wheels: Sequence[str]) -> None:
        """Take the archive of the release, and the names of all its wheels."""
        self._archive, self._wheels, self._lock = archive, tuple(wheels), threading.Lock()
        self._paths = {_DATA.sub("", name): name for name in archive.namelist()}
        self._texts: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """Return the text of a file by its path inside the wheel; None if there is no such file.

        Raises:
            ExamineError: the file cannot be fetched.
        """
        if name not in self._paths:
            return None
        with self._lock:  # an archive cannot be read by two threads at the same time
            if name not in self._texts:
                body = _patiently(lambda: self._archive.read(self._paths[name]))
                self._texts[name] = body.decode("utf-8", "replace").replace("\r\n", "\n")
        return self._texts[name]

    def requires(self) -> list[str]:
        """Return the values of Requires-Dist, or the requirements of an egg-info folder if there are none."""
        name = min((path for path in self._paths if _is_metadata(path)), key=len, default="")
        message = HeaderParser().parsestr(self.text(name) or "")
        found = [str(value) for value in message.get_all("Requires-Dist") or []]
        return found or self._egg_requirements()

    def _egg_requirements(self) -> list[str]:
        """Return the requirements of a source distribution whose PKG-INFO names none; extras are left out."""
        name = next((path for path in sorted(self._paths) if path.endswith(".egg-info/requires.txt")), "")
        lines = (self.text(name) or "").partition("\n[")[0].splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("[")]

    def wheels(self) -> tuple[str, ...]:
        """Return the names of the wheels of the release."""
        return self._wheels


def _patiently(request: Callable[[], _T]) -> _T:
    """Return the result of a request, and repeat the request if it fails.

    Raises:
        NoProjectError: the index does not have the project; the request is not repeated.
        ExamineError: every try failed.
    """
    for _ in range(_TRIES - 1):
        try:
            return request()
        except NoProjectError:
            raise
        except ExamineError:
            time.sleep(_PAUSE_S)
    return request()


def _is_metadata(path: str) -> bool:
    return path.endswith(".dist-info/METADATA") or posixpath.basename(path) == "PKG-INFO"


class _SourceArchive:
    """A source distribution, with the paths that its files would have in a wheel."""

    def __init__(self, name: str, body: bytes) -> None:
        self._files: dict[str, bytes] = {}
        for path, content in _unpacked(name, body):
            inner = path.partition("/")[2]
            self._files[inner.removeprefix("src/")] = content

    def namelist(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        return self._files[name]


def _unpacked(name: str, body: bytes) -> list[tuple[str, bytes]]:
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return [(path, archive.read(path)) for path in archive.namelist() if not path.endswith("/")]
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return [
            (member.name.removeprefix("./"), file.read())
            for member in members
            if (file := archive.extractfile(member)) is not None
        ]


class PublishedPackages:
    """Releases of packages on the user's index; if a folder of copies has a release, it is read there.

    The folder holds `PACKAGE/VERSION.zip`, with paths as in the wheel.
    """

    def __init__(self, host: Host, deadline_s: float, folder: Path | None = None) -> None:
        """Find the index.

        Raises:
            ExamineError: pip does not print the address of its default index.
        """
        self._reader, self._folder = IndexReader(host, deadline_s), folder
        self._lock = threading.Lock()
        self._opening: dict[tuple[str, str], threading.Lock] = {}
        self._opened: dict[tuple[str, str], ReleaseContents] = {}
        self._files = lru_cache(maxsize=None)(lambda package: _patiently(lambda: self._reader.files(package)))

    def releases(self, package: str) -> list[str]:
        """Return the final releases that were not yanked, oldest first.

        Raises:
            ExamineError: the index cannot be read.
        """
        found: dict[Version, bool] = {}
        for file in self._files(package):
            release = release_of(file.name)
            if release is not None and not release[1].is_prerelease:
                found[release[1]] = found.get(release[1], False) or not file.yanked
        return [str(version) for version in sorted(found) if found[version]]

    def open(self, package: str, version: str) -> ReleaseContents:
        """Return the files of a release; repeated calls return the same object.

        Raises:
            ExamineError: the index does not have the release, or it cannot be read.
        """
        key = package, version
        with self._lock:
            lock = self._opening.setdefault(key, threading.Lock())
        with lock:
            if key not in self._opened:
                self._opened[key] = _patiently(lambda: self._open(package, version))
        return self._opened[key]

    def _open(self, package: str, version: str) -> ReleaseContents:
        files = [file for file in self._files(package) if _is_of(file, version)]
        wheels = [file for file in files if file.name.endswith(".whl")]
        names = [file.name for file in wheels]
        copy = self._folder / package / f"{version}.zip" if self._folder else None
        try:
            if copy is not None and copy.is_file():
                return ReleaseContents(zipfile.ZipFile(copy), names)
            if wheels:
                remote = RemoteFile(self._reader, _best(wheels).url, WHEEL_LIMIT)
                return ReleaseContents(zipfile.ZipFile(remote), names)
            source = next((file for file in files if _is_source(file.name)), None)
            if source is None:
                raise ExamineError(f"the index has no {package} {version}")
            body, _ = self._reader.fetch(source.url, SDIST_LIMIT)
            return ReleaseContents(_SourceArchive(source.name, body), names)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
            raise ExamineError(f"{package} {version} cannot be unpacked: {error}") from None


def _is_of(file: ListedFile, version: str) -> bool:
    release = release_of(file.name)
    return release is not None and release[1] == Version(version)


def _is_source(name: str) -> bool:
    try:
        parse_sdist_filename(name)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return False
    return True


def _best(wheels: Sequence[ListedFile]) -> ListedFile:
    """Return the wheel for any Python, else one for Linux on x86-64."""

    def rank(file: ListedFile) -> tuple[bool, bool, int, str]:
        python = next(
            (number for number, tag in enumerate(_CPYTHON) if f"-{tag}-" in file.name), len(_CPYTHON)
        )
        linux = "linux" in file.name and "x86_64" in file.name
        return not file.name.endswith("none-any.whl"), not linux, python, file.name

    return min(wheels, key=rank)
