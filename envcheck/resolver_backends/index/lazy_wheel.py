"""Read parts of a remote wheel: its metadata is a few KiB of hundreds of MiB.

`zipfile` reads the directory at the end of a wheel, and then each member at its offset. This module provides
the file object from which it reads.
"""

from __future__ import annotations

import io
import os
import re
import struct

from envcheck.core.errors import ExamineError
from envcheck.resolver_backends.index.connection import NoRangesError
from envcheck.resolver_backends.index.reader import IndexReader

BLOCK = 64 * 1024
"""Bytes of the first request, from the end of the file: in most wheels they include the whole directory."""


class RemoteFile(io.RawIOBase):
    """A seekable file that is fetched while it is read, at most `limit` bytes in total."""

    def __init__(self, reader: IndexReader, url: str, limit: int) -> None:
        """Fetch the end of the file, which also gives its size.

        Raises:
            ExamineError: the server does not serve parts of files, or the file cannot be read.
        """
        super().__init__()
        self._reader, self._url, self._left, self._position = reader, url, limit, 0
        tail, content_range = reader.fetch(url, min(limit, BLOCK), (-BLOCK, 0))
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", content_range)
        if found is None:
            raise NoRangesError
        self._size = int(found[2])
        self._parts = {int(found[1]): tail}
        self._kept = frozenset(self._parts)
        self._left -= len(tail)

    @property
    def fetched(self) -> int:
        """Bytes fetched so far."""
        return sum(len(part) for part in self._parts.values())

    def prefetch_directory(self) -> None:
        """Fetch the whole directory of a zip archive with one request if the end does not hold it.

        Raises:
            ExamineError: the directory cannot be fetched.
        """
        (start, tail), *_ = self._parts.items()
        at = tail.rfind(b"PK\5\6")
        if at >= 0 and len(tail) >= at + 20:
            (first,) = struct.unpack_from("<I", tail, at + 16)
            if first < start:  # false in a zip64 archive, where the field has the largest number
                self.prefetch(first, self._size)

    def prefetch(self, start: int, end: int) -> None:
        """Fetch the bytes from `start` up to but excluding `end` with one request, unless already fetched.

        Raises:
            ExamineError: they cannot be fetched, or exceed the limit.
        """
        self._between(start, min(end, self._size))

    def keep(self) -> None:
        """Mark what was fetched so far, so that `forget` does not free it."""
        self._kept = frozenset(self._parts)

    def forget(self) -> None:
        """Free everything that was fetched after the call of `keep`."""
        for first in self._parts.keys() - self._kept:
            del self._parts[first]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position as in any file, and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes; fewer at the end of the file.

        Raises:
            ExamineError: the bytes cannot be fetched, or would exceed the limit.
        """
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        data = self._between(self._position, end)
        self._position = end
        return data

    def _between(self, start: int, end: int) -> bytes:
        for first, part in self._parts.items():
            if first <= start and end <= first + len(part):
                return part[start - first : end - first]
        # Request more than is needed now, because zipfile reads a header and then what follows it.
        last = min(max(end, start + BLOCK), self._size)
        if last - start > self._left:
            raise ExamineError("more of the file is needed than may be fetched")
        data, content_range = self._reader.fetch(self._url, last - start, (start, last - 1))
        if not content_range.startswith(f"bytes {start}-") or len(data) < end - start:
            raise ExamineError("the index sent another part of the file than was requested")
        self._left -= len(data)
        self._parts[start] = data
        return data[: end - start]
