"""Decode texts from outside: UTF-8, or UTF-16 with its mark, as PowerShell of Windows writes it."""

from __future__ import annotations

import codecs

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a text in UTF-16 begins, such as a file to which PowerShell of Windows redirects output."""


def decode_text(data: bytes) -> str:
    """Return a text without its byte order mark; bytes that do not belong there become U+FFFD."""
    return data.decode("utf-16" if data.startswith(UTF_16_MARKS) else "utf-8-sig", "replace")
