"""Fetch pages and files from one index: with its login and certificates, and within a deadline."""

from __future__ import annotations

import base64
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from envcheck.core.errors import ExamineError
from envcheck.resolver_backends.index.pages import PAGE_LIMIT
from envcheck.resolver_backends.index.redaction import one_line, redact
from envcheck.resolver_backends.index.settings import Index

_ANSWER_S = 30.0
"""Maximum seconds to wait for the server in one operation."""


class NoProjectError(ExamineError):
    """The index responded, but it does not have the project."""


class NoRangesError(ExamineError):
    """The index does not support range requests."""

    def __init__(self) -> None:
        super().__init__("the index serves no parts of files (HTTP ranges)")


@dataclass(frozen=True, slots=True)
class IndexConnection:
    """Access to one index until `end`, a moment of the monotonic clock in seconds."""

    index: Index
    end: float

    def page(self, project: str) -> tuple[str, bytes, str]:
        """Return address, content and content type of a project's page.

        Raises:
            NoProjectError: the index does not have the project.
            ExamineError: the index cannot be read, is too slow, or the page is too large.
        """
        address = self._page_address(project)
        request = self._request(address)
        request.add_header("Accept", "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
        with self._response(request, project) as response:
            body = self._body(response, project, PAGE_LIMIT)
            return address, body, response.headers.get("Content-Type", "")

    def fetch(self, url: str, limit: int, part: tuple[int, int] | None = None) -> tuple[bytes, str]:
        """Return a file or a part of it, as `IndexReader.fetch` describes.

        Raises:
            NoRangesError: the server does not serve parts of files.
            ExamineError: the file cannot be read, is too slow, or is too large.
        """
        name = urlsplit(url).path.rpartition("/")[2]
        request = self._request(url)
        if part is not None:
            first, last = part
            request.add_header("Range", f"bytes={first}-{last}" if first >= 0 else f"bytes={first}")
        request.add_header("Accept-Encoding", "identity")  # otherwise the range may count compressed bytes
        with self._response(request, name) as response:
            content_range = response.headers.get("Content-Range") or ""
            if part is not None and not content_range:  # the server sends the whole file, hundreds of MiB
                raise NoRangesError
            return self._body(response, name, limit), content_range

    def _page_address(self, project: str) -> str:
        """Return the address of a project's page without the login. Raises ExamineError."""
        parts = urlsplit(self.index.url)
        if parts.scheme not in ("http", "https", "file"):
            raise ExamineError("the index is neither http, https nor file")
        netloc = parts.netloc.rpartition("@")[2]
        page = "index.html" if parts.scheme == "file" else ""
        return urlunsplit((parts.scheme, netloc, f"{parts.path.rstrip('/')}/{project}/{page}", "", ""))

    def _request(self, url: str) -> urllib.request.Request:
        """Return a request, with the login if the address is on the index's own host. Raises ExamineError."""
        target, index = urlsplit(url), urlsplit(self.index.url)
        if target.scheme not in ("http", "https", "file"):
            raise ExamineError("the index names a file that is neither http, https nor file")
        request = urllib.request.Request(url)  # noqa: S310 - the scheme was checked
        login, _, netloc = index.netloc.rpartition("@")
        if login and (target.scheme, target.netloc) == (index.scheme, netloc):
            token = base64.b64encode(unquote(login if ":" in login else f"{login}:").encode()).decode()
            # An unredirected header is not sent after a redirect, because the login is only for this host.
            request.add_unredirected_header("Authorization", f"Basic {token}")
        return request

    @contextmanager
    def _response(self, request: urllib.request.Request, name: str) -> Iterator[Any]:
        """Yield the response to a request; connection errors become ExamineError without the address."""
        try:
            with _opener(self.index.cert).open(request, timeout=self._seconds_left(name)) as response:
                yield response
        except urllib.error.HTTPError as error:
            kind = NoProjectError if error.code == HTTPStatus.NOT_FOUND else ExamineError
            raise kind(f"the index answers {error.code} for {name}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            shown = one_line(redact(str(reason) or type(error).__name__, self.index))
            raise ExamineError(f"the index cannot be read: {shown}") from None

    def _seconds_left(self, name: str) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise ExamineError(f"the index took too long (reading {name})")
        return min(left, _ANSWER_S)

    def _body(self, response: Any, name: str, limit: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        # read1 returns what has arrived, so the deadline is checked often. One long read could exceed it.
        while chunk := response.read1(1 << 16) if hasattr(response, "read1") else response.read(1 << 16):
            size += len(chunk)
            if size > limit:
                raise ExamineError(f"what the index has of {name} is larger than {limit / (1 << 20):g} MiB")
            self._seconds_left(name)
            chunks.append(chunk)
        return b"".join(chunks)


@lru_cache(maxsize=1)
def _opener(cert: str) -> urllib.request.OpenerDirector:
    """Return an opener; it is shared by all pages, because loading certificates takes longer than a page."""
    path = Path(cert) if cert else None
    context = ssl.create_default_context(cafile=str(path) if path and path.is_file() else None)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
