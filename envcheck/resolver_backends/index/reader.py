"""Read what an index offers: the files of a project, and the addresses of the files in a lock."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from urllib.parse import urlsplit, urlunsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from envcheck.core.errors import ExamineError, InputError
from envcheck.host.environment import own_python
from envcheck.host.machine import Host
from envcheck.resolver_backends.index.connection import IndexConnection
from envcheck.resolver_backends.index.pages import ListedFile, files_on_page
from envcheck.resolver_backends.index.settings import Index, user_index

_PIP_S = 30.0
"""Seconds that pip may take to print the address of its default index."""


class IndexReader:
    """Reads pages and files of the user's index, or of `other`, within `deadline_s` seconds in total."""

    def __init__(self, host: Host, deadline_s: float, other: Index | None = None) -> None:
        """Find the index.

        Raises:
            ExamineError: pip does not print the address of its default index, or the settings forbid the use
                of any index.
        """
        end = time.monotonic() + deadline_s
        index = other or user_index(host)
        if not index.url:
            index = Index(default_index(host, min(_PIP_S, deadline_s)), index.cert)
        self._connection = IndexConnection(index, end)

    def files(self, project: str) -> tuple[ListedFile, ...]:
        """Return every file of a project, with full addresses.

        Raises:
            ExamineError: the index cannot be read, is too slow, or the page cannot be read.
        """
        address, body, content_type = self._connection.page(project)
        try:
            return tuple(files_on_page(body, content_type, address))
        except ValueError:
            raise ExamineError(f"the index's page of {project} cannot be read") from None

    def fetch(self, url: str, limit: int, part: tuple[int, int] | None = None) -> tuple[bytes, str]:
        """Return the bytes of a file or of a part of it, and the Content-Range (empty for a whole file).

        `part` is the offsets of the first and the last byte. A negative first offset counts from the end; the
        last one is then ignored.

        Raises:
            ExamineError: the file cannot be read, is too slow, or is larger than `limit` bytes; or the server
                would send the whole file instead of a part.
        """
        return self._connection.fetch(url, limit, part)


def default_index(host: Host, deadline_s: float) -> str:
    """Return the address of pip's default index as pip prints it, so that it need not be hard-coded here.

    Raises:
        ExamineError: pip does not print an address.
    """
    ran = host.run([own_python(), "-I", "-c", _PRINT_DEFAULT_INDEX], deadline_s)
    url = ran.out.strip()
    if ran.code != 0 or "://" not in url:
        raise ExamineError("pip does not name its default index; set PIP_INDEX_URL")
    return url


_PRINT_DEFAULT_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def release_files(
    host: Host, index: Index, names: Iterable[str], python: str, deadline_s: float
) -> dict[str, tuple[ListedFile, ...]]:
    """Return, by project, the files that have a sha256 and admit this Python (any Python if it is empty).

    Pages are read in parallel.

    Raises:
        ExamineError: the index cannot be reached, is too slow, or has a page that cannot be read.
    """
    reader = IndexReader(host, deadline_s, index)

    def usable(project: str) -> tuple[ListedFile, ...]:
        files = reader.files(project)
        return tuple(file for file in files if file.sha256 and _admits(file.requires_python, python))

    names = sorted(names)
    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(names, pool.map(usable, names), strict=True))


@lru_cache(maxsize=1024)
def _admits(requires_python: str, python: str) -> bool:
    """Return whether any patch release of a Python may install a file; an unreadable bound admits all."""
    if not requires_python or not python:
        return True
    try:
        specifier = SpecifierSet(requires_python)
    except InvalidSpecifier:
        return True
    # `>=3.11.4` admits 3.11: the lock is for the minor version, and pip checks the patch on install.
    return any(specifier.contains(f"{python}.{patch}") for patch in (0, 50))


def file_addresses(
    host: Host, hashes: Mapping[str, Iterable[str]], deadline_s: float, *, own: bool
) -> dict[str, str]:
    """Return sha256 → address for the given sha256s of each project.

    Addresses have no login, query or fragment. Addresses on an index that the user has set, other
    than pip's default, name a private host. They are returned only if `own` allows it.

    Raises:
        InputError: the user has set another index than the default, and `own` is false.
        ExamineError: the index cannot be read, or does not have such a file.
    """
    index = user_index(host)
    if index.url and not own and index.url.rstrip("/") != default_index(host, _PIP_S).rstrip("/"):
        raise InputError(
            "--format pylock",
            "contains the address of every file, and the address of your own index is not shown by default; "
            "--show-index allows it (without the login)",
        )
    pages = release_files(host, index, hashes, "", deadline_s)
    found: dict[str, str] = {}
    for name, sha256s in hashes.items():
        addresses = {file.sha256: file.url for file in pages[name]}
        for sha256 in sha256s:
            if sha256 not in addresses:
                raise ExamineError(f"the index has no file of {name} with the sha256 {sha256[:12]}…")
            parts = urlsplit(addresses[sha256])
            found[sha256] = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return found
