"""Fetch what the store keeps of a source distribution, under the paths of a wheel that is built from it."""

from __future__ import annotations

import io
import lzma
import posixpath
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping

from envcheck.atlas.core_metadata import (
    Requires,
    requires_of_metadata,
    requires_of_requirements_txt,
    requires_of_requires_txt,
)
from envcheck.atlas.packages import AtlasPackage
from envcheck.commands.harvest.wheel_files import MEMBER_LIMIT, KeptFiles
from envcheck.core.errors import ExamineError
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader

SDIST_LIMIT = 64 * 1024 * 1024
"""Maximum size of a source distribution in bytes."""

UNPACKED_LIMIT = 512 * 1024 * 1024
"""Maximum size of its kept files in bytes when unpacked."""

_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, NotImplementedError),
)

# The files that state what is required. setuptools writes the first two; some setup.py read the third.
_PKG_INFO = re.compile(r"PKG-INFO|(?:.*/)?[^/]+\.egg-info/PKG-INFO")
_REQUIRES_TXT = re.compile(r"(?:.*/)?[^/]+\.egg-info/requires\.txt")
_REQUIREMENTS = re.compile(r"(?:requirements/)?requirements\.txt")
_REQUIRES_FILES = (_PKG_INFO, _REQUIRES_TXT, _REQUIREMENTS)


def fetch_sdist(reader: IndexReader, sdist: ListedFile, package: AtlasPackage) -> KeptFiles:
    """Return what is kept of a source distribution.

    Raises:
        ExamineError: it cannot be read, is too large, or holds neither the packages nor metadata.
    """
    data, _ = reader.fetch(sdist.url, SDIST_LIMIT)
    try:
        members = unpacked(sdist.name, data)
    except _DAMAGED as error:
        raise ExamineError(f"not a readable source distribution ({type(error).__name__})") from None
    return keep_installed(members, package)


def unpacked(name: str, data: bytes) -> dict[str, bytes]:
    """Return the text-like members of an archive by path below its top folder; links are followed.

    Other members are listed with empty content.

    Raises:
        ValueError: its unpacked size is too large. A damaged archive raises tarfile's or zipfile's errors.
    """
    members = _zip_members(data) if name.endswith(".zip") else _tar_members(data)
    found: dict[str, bytes] = {}
    total = 0
    for path, content in members:
        total += len(content)
        if total > UNPACKED_LIMIT:
            raise ValueError("too large")
        found[path.partition("/")[2]] = content
    return found


def _readable(path: str, size: int) -> bool:
    return size <= MEMBER_LIMIT and path.endswith((".py", ".pyi", ".txt", ".json", "PKG-INFO"))


def _zip_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, archive.read(info) if _readable(info.filename, info.file_size) else b""


def _tar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a tar archive, and those behind its symbolic links to folders and files."""
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.issym():
                target = posixpath.join(posixpath.dirname(member.name), member.linkname)
                links[member.name] = posixpath.normpath(target)
            elif member.isfile():
                stream = archive.extractfile(member) if _readable(member.name, member.size) else None
                files[member.name] = stream.read() if stream else b""
    yield from files.items()
    for link, target in links.items():
        for path, content in files.items():
            if path == target or path.startswith(f"{target}/"):
                yield link + path[len(target) :], content


def keep_installed(members: Mapping[str, bytes], package: AtlasPackage) -> KeptFiles:
    """Return the files below the folder that holds the packages, and what the distribution requires.

    If a distribution was published without its code, only its metadata is kept.

    Raises:
        ExamineError: neither the packages nor metadata are there.
    """
    root = source_root(members, package.imports)
    if root is None and not _matching(members, _PKG_INFO):
        raise ExamineError(f"neither {' or '.join(package.imports)} nor PKG-INFO in the source distribution")
    root = root or ""
    files: dict[str, bytes] = {}
    others: list[str] = []
    for path, content in members.items():
        inside = path.removeprefix(root)
        if package.keeps(inside, from_sdist=True) and (path.startswith(root) or inside == path):
            files[inside] = content
        elif path.startswith(root) and package.owns(inside):
            others.append(inside)
        elif any(form.fullmatch(path) for form in _REQUIRES_FILES):
            files[path] = content
    return KeptFiles(files, tuple(others), _requires(members))


def source_root(paths: Iterable[str], imports: tuple[str, ...]) -> str | None:
    """Return the folder that holds the first package: `src/`, or empty for the top; None if none does."""
    ends = (f"{imports[0]}/__init__.py", f"{imports[0]}.py", f"{imports[0]}/version.py")
    roots = [
        path.removesuffix(end) for path in paths for end in ends if path == end or path.endswith(f"/{end}")
    ]
    return min(roots, key=len, default=None)


def _requires(members: Mapping[str, bytes]) -> Requires:
    """Return what a source distribution requires; it is not known if no file states it."""
    stated = [requires_of_metadata(_text(members[path])) for path in _matching(members, _PKG_INFO)]
    python = next((requires.python for requires in stated if requires.python), "")
    for requires in stated:
        if requires.dists:
            return requires._replace(python=python)
    for path in _matching(members, _REQUIRES_TXT):
        return Requires(requires_of_requires_txt(_text(members[path])), python)
    if any("egg-info" in path for path in _matching(members, _PKG_INFO)):
        return Requires((), python)  # setuptools writes requires.txt beside it wherever something is required
    for path in _matching(members, _REQUIREMENTS):
        return Requires(requires_of_requirements_txt(_text(members[path])), python)
    return Requires((), python, known=False)


def _matching(members: Mapping[str, bytes], form: re.Pattern[str]) -> list[str]:
    return sorted((path for path in members if form.fullmatch(path)), key=len)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
