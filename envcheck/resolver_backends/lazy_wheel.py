"""A file of an index read in parts: a wheel's metadata costs a few KiB of its hundreds of MiB.

`zipfile` reads a wheel's directory from its end and each member from its place; this is the file under it.
"""

from __future__ import annotations

import io
import os
import re

from envcheck.core.errors import ExamineError
from envcheck.resolver_backends.index import IndexReader

BLOCK = 64 * 1024
"""Bytes of the first request from the end: most wheels have their whole directory in them."""


class RemoteFile(io.RawIOBase):
    """A seekable file that is fetched as it is read, at most `limit` bytes of it altogether."""

    def __init__(self, reader: IndexReader, url: str, limit: int) -> None:
        """Ask for the end of the file, which also tells how long it is.

        Raises:
            ExamineError: the server does not serve parts of files, or the file cannot be read.
        """
        super().__init__()
        self._reader, self._url, self._left, self._at = reader, url, limit, 0
        tail, where = reader.fetch(url, min(limit, BLOCK), (-BLOCK, 0))
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", where)
        if found is None:
            raise ExamineError("the index serves no parts of files (HTTP ranges)")
        self._size = int(found[2])
        self._known = {int(found[1]): tail}
        self._left -= len(tail)

    @property
    def fetched(self) -> int:
        """Bytes fetched so far."""
        return sum(len(part) for part in self._known.values())

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as any file does."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; fewer at the end of the file.

        Raises:
            ExamineError: they cannot be had, or would be more than the limit.
        """
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        data = self._between(self._at, end)
        self._at = end
        return data

    def _between(self, start: int, end: int) -> bytes:
        for first, part in self._known.items():
            if first <= start and end <= first + len(part):
                return part[start - first : end - first]
        # One request for a little more than was asked: zipfile reads a header, then what follows it.
        last = min(max(end, start + BLOCK), self._size)
        if last - start > self._left:
            raise ExamineError("more of the file is wanted than may be fetched")
        data, where = self._reader.fetch(self._url, last - start, (start, last - 1))
        if not where.startswith(f"bytes {start}-") or len(data) < end - start:
            raise ExamineError("the index sent another part of the file than was asked for")
        self._left -= len(data)
        self._known[start] = data
        return data[: end - start]
