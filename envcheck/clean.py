"""What leaves envcheck is safe to look at and to paste: the one output boundary uses these.

Everything from outside is hostile: a package's metadata may carry terminal escapes, a GPU's name a
carriage return, a log line bidirectional overrides that make it read as something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from envcheck.model import Fact, Inventory, Known, Matrix, Place, Remark, Source, Unknown

# Format and bidirectional controls, which reorder or hide text without being C0 or C1; tag characters,
# which spell invisible ASCII; and lone surrogates, which cannot be encoded.
_UNSEEN = (
    *(0x00AD, 0x061C, 0x180E, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *(0xFFFE, 0xFFFF),  # no characters at all, and no XML may hold them
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
            text = _replaced(text, home.rstrip("/"), "~")
    return text


def _replaced(text: str, word: str, by: str, before: str = "") -> str:
    """The text with a word replaced where it stands alone: `/home/al` is no part of `/home/alice`.

    With `before`, only behind one of these signs.
    """
    if word not in text:
        return text
    head, *pieces = text.split(word)
    out = head
    for piece in pieces:
        last, first = out[-1:], piece[:1]
        alone = not (first.isalnum() or first == "_") and not (word[0].isalnum() and last.isalnum())
        out += (by if alone and (not before or (last and last in before)) else word) + piece
    return out


# --- secrets ----------------------------------------------------------------------------------------


class Private(NamedTuple):
    """What no report names: home folders, the user's name, names of this machine."""

    homes: tuple[str, ...] = ()
    user: str = ""
    machines: tuple[str, ...] = ()


HIDDEN = "…"

# Accounts that images and clouds give everybody.
_NOBODY = frozenset(
    {"root", "user", "ubuntu", "debian", "ec2-user", "azureuser", "jovyan", "runner", "localhost"}
)

_STARTS = ("hf_", "sk-", "gh", "glpat-", "AKIA", "ASIA", "eyJ", "xox", "nvapi-")
_HINTS = ("://", "@", "/home/", "/Users/", *_STARTS)
_NAMES = ("token", "secret", "passw", "pwd", "credential", "auth", "key")
_LONGEST_WORD = 32  # letters and digits without a break: longer is a key or a digest

_BEGINS_SO = (
    r"(?<![A-Za-z0-9])(?:sk-(?=[\w-]{20})|hf_|gh[oprsu]_|github_pat_|glpat-|xox[abeoprs]-|nvapi-|AKIA|ASIA|eyJ)"
    r"(?=[\w-]*[A-Z\d])[\w-]{12,}(?:\.[\w-]{12,})*"
)

# An address keeps its scheme, a setting its name; what may identify or admit somebody goes.
# Repetitions have limits: a text that nearly matches costs no more than one that does.
_ADDRESS = r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{0,20}://(?=[^\s/])[^\s\"'<>|]+"
_SETTING = (
    r"(?i)((?:token|secret|passw(?:or)?d|pwd|credentials?|authorization|(?:api|access|private)_?-?key)"
    r"(?![a-z])[\w-]{0,40}[\"']?\s{0,9}[=:]\s{0,9}[\"']?(?:(?:bearer|basic)\s{1,9})?)[^\s\"',;&]+"
)
_ARGUMENT = (
    r"(?i)(--(?:\w{1,20}[_-]){0,3}(?:token|secret|passw(?:or)?d|api-key|access-key)[\s=]{1,9})[^\s\"']+"
)
_AWS_40 = (  # letters, digits and slashes, of every kind several
    r"(?<![\w+])(?=(?:[a-z0-9+/]{0,39}[A-Z]){3})(?=(?:[A-Z0-9+/]{0,39}[a-z]){3})(?=[A-Za-z+/]{0,39}\d)"
    r"[A-Za-z0-9+/]{40}(?![\w+])"
)
_SECRETS = (
    (rf"(?={_ADDRESS})([^:]+://)[^\s\"'<>|]+", rf"\1{HIDDEN}"),
    (r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,9}\.[A-Za-z]{2,24}\b", HIDDEN),
    (r"(/home/|/Users/)[^/\s:;,'\"]+", rf"\1{HIDDEN}"),
    (_BEGINS_SO, HIDDEN),
    (_SETTING, rf"\1{HIDDEN}"),
    (_ARGUMENT, rf"\1{HIDDEN}"),
    (_AWS_40, HIDDEN),
    (rf"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{{_LONGEST_WORD + 1},}}", HIDDEN),
)


@lru_cache(maxsize=1)
def _addresses() -> Any:
    import re

    return re.compile(rf"({_ADDRESS})")


@lru_cache(maxsize=1)
def _login() -> Any:
    import re

    return re.compile(r"(://)[^/]*@")


@lru_cache(maxsize=1)
def _secrets() -> list[tuple[Any, str]]:
    import re  # most reports hold nothing that needs it

    return [(re.compile(pattern), by) for pattern, by in _SECRETS]


def withheld(text: str, private: Private) -> str:
    """The text without what it may tell of people and of their secrets; an address keeps its scheme."""
    return _without_secrets(_nameless(text, private))


def quoted(text: str, private: Private) -> str:
    """The same for what is meant to be looked up: of an address only logins and queries go."""
    pieces = _addresses().split(_nameless(text, private)) if "://" in text else [_nameless(text, private)]
    pieces[::2] = map(_without_secrets, pieces[::2])  # every other one is an address
    pieces[1::2] = (_login().sub(r"\1", piece).partition("?")[0] for piece in pieces[1::2])
    return "".join(pieces)


def _nameless(text: str, private: Private) -> str:
    text = redact(text, private.homes)
    if len(private.user) > 1 and private.user not in _NOBODY:
        # A folder or an address of theirs; as a word alone it may be a package's name.
        text = _replaced(text, private.user, HIDDEN, "/@:=").replace(f"{private.user}@", f"{HIDDEN}@")
    for machine in private.machines:
        if len(machine) > 1 and machine not in _NOBODY:
            text = _replaced(text, machine, HIDDEN, "/@:=._-" if machine.isalpha() else "")
    return text


def _without_secrets(text: str) -> str:
    if _suspicious(text):
        for pattern, by in _secrets():
            text = pattern.sub(by, text)
    return text


def _suspicious(text: str) -> bool:
    lower = text.lower()
    return (
        any(hint in text for hint in _HINTS)
        or any(name in lower for name in _NAMES)
        or any(len(word) > _LONGEST_WORD for word in text.split())
    )


Presented = TypeVar("Presented")
_Show = Callable[[str], str]


_LONGEST_TEXT = 4000  # characters: what is longer floods a report


def _short(text: str) -> str:
    more = len(text) - _LONGEST_TEXT
    return text if more <= 0 else f"{text[:_LONGEST_TEXT]}{HIDDEN} ({more} characters more)"


def presented(value: Presented, private: Private) -> Presented:
    """A report (or any part of it) that may be shown: every text in it cleaned, nothing private in it.

    The matrix, which says the same to everybody, is passed through; the addresses of sources stay.
    """
    done: dict[str, str] = {}

    def outside(text: str) -> str:
        if (found := done.get(text)) is None:
            found = done[text] = withheld(_short(clean(text)), private)
        return found

    def ours(text: str) -> str:
        return quoted(_short(clean(text)), private)

    shown: Presented = _walked(value, outside, ours)
    return shown


def _ours(value: object) -> bool:
    """Whether it says where something is written, for people to look up."""
    return isinstance(value, Source) or (isinstance(value, Fact) and value.source.startswith("default: "))


def _walked(value: Any, show: _Show, quote: _Show) -> Any:  # noqa: C901 - one case a shape
    if isinstance(value, str):
        return show(value)
    show = quote if _ours(value) else show

    def walk(each: Any) -> Any:
        return _walked(each, show, quote)

    match value:
        case Known(inner):
            shown: Any = Known(walk(inner))
        case Unknown(why, asked):
            shown = Unknown(show(why), asked)
        case Place():
            shown = _place(value, show)
        case Matrix():
            shown = value._replace(origins=walk(value.origins))
        case Inventory(facts, devices, complete, unread):
            shown = Inventory(walk(facts), walk(devices), complete, walk(unread))
        case Mapping():
            shown = {show(str(key)): walk(each) for key, each in value.items()}
        case Remark():
            code, text, places, advice = map(walk, value[1:5])
            shown = Remark(value.severity, code, text, places, advice, quote(value.source))
        case list() | tuple():
            parts = map(walk, value)
            shown = value._make(parts) if hasattr(value, "_make") else type(value)(parts)
        case _:
            shown = value
    return shown


def _place(place: Place, show: _Show) -> Place:
    """A place; the line it quotes is cleaned where it is underlined, and left out if it tells too much."""
    plain = clean(place.excerpt)
    return place._replace(file=show(place.file), excerpt=place.excerpt if show(plain) == plain else "")


def secretless(text: str) -> str:
    """Text of somebody's log without what looks like a password, a token or a key.

    Logs hold addresses with logins, `HF_TOKEN=…`, headers, and keys that are known by their beginning.
    """
    return quoted(text, Private())
