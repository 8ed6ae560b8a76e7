"""Remove the address of an index from foreign text, such as a backend's error output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from envcheck.core.sanitize import clean
from envcheck.resolver_backends.index.settings import Index

_SECRET_LENGTH = 4  # characters; hiding shorter parts of an address would make every message unreadable
_HARMLESS_PARTS = ("simple", "pypi", "root", "index")
# A password may hold characters that would otherwise end an address.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^\s/]*@)?[^\s`'\"<>)\],]*")


def redact(text: str, index: Index, folders: Iterable[str] = ()) -> str:
    """Return foreign text without URLs, parts of the index's address, and these folders."""
    text = _URL.sub("<url>", text)
    parts = urlsplit(index.url)
    login = parts.netloc.rpartition("@")[0]
    pieces = [
        index.url,
        parts.netloc,
        login,
        *login.split(":"),
        parts.hostname or "",
        *parts.path.split("/"),
        *folders,
    ]
    # Path segments and logins may be tokens; a word such as "simple" reveals nothing and stays readable.
    secrets = {piece for piece in pieces if len(piece) >= _SECRET_LENGTH and piece not in _HARMLESS_PARTS}
    secrets |= {unquote(piece) for piece in secrets}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return clean(text)


def one_line(text: str, limit: int = 600) -> str:
    """Return the text as one line of at most `limit` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"
