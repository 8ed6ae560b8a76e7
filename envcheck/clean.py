"""What leaves envcheck is safe to look at and to paste: the one output boundary uses these two.

Everything from outside is hostile: a package's metadata may carry terminal escapes, a GPU's name a
carriage return, a log line bidirectional overrides that make it read as something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

# Format and bidirectional controls, which reorder or hide text without being C0 or C1; tag characters,
# which spell invisible ASCII; and lone surrogates, which cannot be encoded.
_UNSEEN = (
    *(0x00AD, 0x061C, 0x180E, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
    *range(0xD800, 0xE000),
)


@lru_cache(maxsize=1)
def _escapes() -> dict[int, str]:
    controls = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
    table = {code: f"\\x{code:02x}" for code in controls}
    table.update({code: f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}" for code in _UNSEEN})  # noqa: PLR2004 - the last code point `\u` can spell
    return table


def clean(text: str) -> str:
    """The text with every control, format and bidirectional character written out as an escape.

    Line feed and tab stay.
    """
    # Whatever the table writes out is unprintable to Python, so what is printable needs no table.
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return text.translate(_escapes())


def inline(text: str) -> str:
    """Cleaned, and on one line: a GPU's name must not be able to write a line of its own into a report."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def redact(text: str, homes: Iterable[str]) -> str:
    """The text with every home folder written `~`, so that a report names nobody."""
    for home in homes:
        if home.strip("/"):
            text = text.replace(home.rstrip("/"), "~")
    return text


@cache
def _secrets() -> tuple[tuple[re.Pattern[str], str], ...]:
    value = r"""(?:"[^"]*"|'[^']*'|[^\s,;&"'})\]]+)"""
    name = (
        r"[\w.-]{0,40}(?:token|secret|passw(?:or)?d|passwd|passphrase|api[_-]?key|access[_-]?key(?:[_-]?id)?"
        r"|credentials?|authorization|cookie|signature|sig|session[_-]?id)"
    )
    return (
        (re.compile(r"(?<=://)[^\s/@]+@"), "…@"),
        (re.compile(rf"(?i)\b({name}['\"]?\s*(?:=|:)\s*(?:(?:bearer|basic|token)\s+)?){value}"), r"\1…"),
        (re.compile(rf"(?i)(--{name}\s+){value}"), r"\1…"),
        (re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}"), r"\1…"),
        (
            re.compile(
                r"\b(?:hf_|sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|ya29\.|eyJ)[\w./+=-]{12,}"
            ),
            "…",
        ),
        (
            re.compile(r"\b[0-9a-f]{40}\b"),
            "…",
        ),  # a key of Weights & Biases; a commit, too, tells nothing here
    )


def secretless(text: str) -> str:
    """Text of somebody's log without what looks like a password, a token or a key.

    Logs hold addresses with logins, `HF_TOKEN=…`, headers, and keys that are known by their beginning.
    """
    for pattern, instead in _secrets():
        text = pattern.sub(instead, text)
    return text
