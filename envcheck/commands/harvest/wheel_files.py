"""Fetch what the store keeps of a release's wheel: Python files, metadata, the names of all other files."""

from __future__ import annotations

import re
import threading
from typing import NamedTuple

from envcheck.atlas.core_metadata import Requires, requires_of_metadata
from envcheck.atlas.library_facts import LibraryFacts, read_library
from envcheck.atlas.packages import AtlasPackage
from envcheck.core.errors import ExamineError
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader
from envcheck.resolver_backends.index.remote_archive import RemoteArchive

WHEEL_LIMIT = 192 * 1024 * 1024
"""Maximum bytes to fetch of one wheel: the Python part of the largest has about 40 MiB."""

MEMBER_LIMIT = 16 * 1024 * 1024
"""Maximum size of one kept file in bytes; a larger one is listed by name only."""


LIBRARIES_LIMIT = 1024 * 1024 * 1024
"""Maximum bytes to fetch of one wheel for its libraries."""

LIBRARY_LIMIT = 2 * 1024 * 1024 * 1024
"""Maximum size of one library in bytes when unpacked; a larger one is not read."""

_SPREAD = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")
"""Folders inside a wheel that are installed at the root; old compiled wheels and openrlhf's use them."""

_ONE_AT_A_TIME = threading.Lock()


class KeptFiles(NamedTuple):
    """Kept files of a release by path, the paths of its other files, and what it requires."""

    files: dict[str, bytes]
    others: tuple[str, ...]
    requires: Requires


def fetch_wheel(reader: IndexReader, wheel: ListedFile, package: AtlasPackage) -> KeptFiles:
    """Return what is kept of a wheel.

    Raises:
        ExamineError: it cannot be read, or has no METADATA.
    """
    archive = RemoteArchive(reader, wheel.url, WHEEL_LIMIT)
    sizes = archive.sizes()
    kept = {
        name for name, size in sizes.items() if package.keeps(installed_path(name)) and size <= MEMBER_LIMIT
    }
    files = {installed_path(name): data for name, data in archive.read(kept)}
    metadata = [name for name in files if name.endswith(".dist-info/METADATA")]
    if len(metadata) != 1:
        raise ExamineError(f"expected one METADATA, found {len(metadata)}")
    requires = requires_of_metadata(files[metadata[0]].decode("utf-8", "replace"))
    return KeptFiles(files, tuple(installed_path(name) for name in sizes if name not in kept), requires)


def installed_path(name: str) -> str:
    """Return where an installer puts a file of a wheel: files in `NAME.data/purelib/` go to the root."""
    return _SPREAD.sub("", name)


def fetch_libraries(reader: IndexReader, wheel: ListedFile, package: AtlasPackage) -> dict[str, LibraryFacts]:
    """Return the facts on a wheel's large libraries, by path. Only one is in memory at a time.

    Raises:
        ExamineError: the wheel cannot be read.
    """
    with _ONE_AT_A_TIME:
        archive = RemoteArchive(reader, wheel.url, LIBRARIES_LIMIT)
        wanted = [
            name
            for name, size in archive.sizes().items()
            if package.reads_library(installed_path(name)) and size <= LIBRARY_LIMIT
        ]
        return {name: read_library(data) for name, data in archive.read(wanted)}


def fetch_metadata(reader: IndexReader, wheel: ListedFile) -> KeptFiles:
    """Return the METADATA alone, which an index may serve beside the wheel (PEP 658).

    Raises:
        ExamineError: it cannot be read.
    """
    stem = "-".join(wheel.name.split("-")[:2])
    data, _ = reader.fetch(f"{wheel.url}.metadata", MEMBER_LIMIT)
    requires = requires_of_metadata(data.decode("utf-8", "replace"))
    return KeptFiles({f"{stem}.dist-info/METADATA": data}, (), requires)
