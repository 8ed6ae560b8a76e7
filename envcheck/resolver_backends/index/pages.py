"""Read the page of a project: the files that an index lists, in HTML (PEP 503) or JSON (PEP 691)."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json

PAGE_LIMIT = 64 << 20
"""Maximum bytes of a page: a project with a thousand releases of thirty wheels lists more than 4 MiB."""


class ListedFile(NamedTuple):
    """A file on a project's page, with its full address.

    `uploaded` is an ISO time or empty. `metadata` is true if the file's METADATA is served beside it
    (PEP 658). `reason` says why the file was yanked, if its maintainers gave a reason.
    """

    name: str
    sha256: str
    requires_python: str
    url: str
    yanked: bool = False
    uploaded: str = ""
    metadata: bool = False
    reason: str = ""


def files_on_page(body: bytes, content_type: str, address: str) -> list[ListedFile]:
    """Return the files on the page at an address.

    Raises:
        ValueError: the page is not what PEP 503 or PEP 691 describe.
    """
    try:
        text = body.decode("utf-8")
        files = _json_files(text) if "json" in content_type else _html_files(text)
    # html.parser raises AssertionError for an unknown declaration.
    except (InputError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError("not a page of a package index") from error
    return [file._replace(url=urljoin(address, file.url)) for file in files]


def _json_files(text: str) -> list[ListedFile]:
    return [
        ListedFile(
            file["filename"],
            file["hashes"].get("sha256") or "",
            file.get("requires-python") or "",
            file.get("url") or "",
            bool(file.get("yanked")),
            file.get("upload-time") or "",
            bool(file.get("core-metadata") or file.get("dist-info-metadata")),
            file["yanked"] if isinstance(file.get("yanked"), str) else "",
        )
        for file in parse_json(text, "the page", PAGE_LIMIT)["files"]
        if _are_text(file["filename"], file["hashes"].get("sha256"), file.get("requires-python"))
        and _are_text(file.get("url"), file.get("upload-time"))
    ]


def _are_text(*values: object) -> bool:
    """Return True if every value is text or missing.

    Raises:
        TypeError: a value is something else.
    """
    if any(value is not None and not isinstance(value, str) for value in values):
        raise TypeError("expected text")
    return True


def _html_files(text: str) -> list[ListedFile]:
    links = _Links()
    links.feed(text)
    return links.files


class _Links(HTMLParser):
    """Collects the links of a PEP 503 page."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[ListedFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect an `<a href="…/name.whl#sha256=…">`, with or without a hash."""
        attributes = dict(attrs)
        if tag != "a" or not (href := attributes.get("href")):
            return
        url, fragment = urldefrag(href)
        sha256 = re.search(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)", fragment)
        self.files.append(
            ListedFile(
                unquote(urlsplit(url).path.rpartition("/")[2]),
                sha256[1].lower() if sha256 else "",
                attributes.get("data-requires-python") or "",
                url,
                "data-yanked" in attributes,
                attributes.get("data-upload-time") or "",
                "data-core-metadata" in attributes or "data-dist-info-metadata" in attributes,
                attributes.get("data-yanked") or "",
            )
        )
