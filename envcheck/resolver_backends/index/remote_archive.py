"""Read many members of a remote wheel with few requests: neighbouring members are fetched together."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

from envcheck.core.errors import ExamineError
from envcheck.resolver_backends.index.connection import NoRangesError
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.reader import IndexReader

GAP = 256 * 1024
"""Maximum bytes between two members for which one request is cheaper than two."""

SPAN = 16 * 1024 * 1024
"""Maximum bytes of one request for several members; a larger member is fetched alone."""

_HEADER = 30 + 512
"""Bytes allowed for a member's local header with its extra fields, without the name."""

_DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError, OSError)


class RemoteArchive:
    """A remote zip archive. If the index does not serve parts of files, the whole file is fetched."""

    def __init__(self, reader: IndexReader, url: str, limit: int) -> None:
        """Fetch the list of members.

        Raises:
            ExamineError: the file cannot be read, is not a zip archive, or needs more than `limit` bytes.
        """
        self._remote: RemoteFile | None = None
        source: io.RawIOBase | io.BytesIO
        try:
            source = self._remote = RemoteFile(reader, url, limit)
            self._remote.prefetch_directory()
        except NoRangesError:
            source = io.BytesIO(reader.fetch(url, limit)[0])
        try:
            self._zip = zipfile.ZipFile(source)
        except _DAMAGED as error:
            raise _archive_error(error) from None
        if self._remote is not None:
            self._remote.keep()

    def sizes(self) -> dict[str, int]:
        """Return the uncompressed size of each member in bytes, by name; folders are left out."""
        return {info.filename: info.file_size for info in self._zip.infolist() if not info.is_dir()}

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield names and bytes of members, in the order of their offsets in the file.

        Raises:
            ExamineError: a member cannot be fetched or is damaged.
        """
        infos = sorted((self._zip.getinfo(name) for name in names), key=lambda info: info.header_offset)
        for group in _groups(infos):
            if self._remote is not None:
                self._remote.prefetch(group[0].header_offset, _end(group[-1]))
            for info in group:
                try:
                    yield info.filename, self._zip.read(info)
                except _DAMAGED as error:
                    raise _archive_error(error) from None
            if self._remote is not None:
                self._remote.forget()


def _archive_error(error: Exception) -> ExamineError:
    return ExamineError(f"not a readable zip archive ({type(error).__name__})")


def _end(info: zipfile.ZipInfo) -> int:
    """Return an offset at or after the end of a member."""
    return info.header_offset + _HEADER + len(info.filename.encode()) + info.compress_size


def _groups(infos: list[zipfile.ZipInfo]) -> Iterator[list[zipfile.ZipInfo]]:
    """Yield members, ordered by offset, in groups that one request fetches."""
    group = infos[:1]
    for last, info in pairwise(infos):
        if info.header_offset - _end(last) > GAP or _end(info) - group[0].header_offset > SPAN:
            yield group
            group = []
        group.append(info)
    if group:
        yield group
