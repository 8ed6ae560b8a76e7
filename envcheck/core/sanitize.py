"""What leaves envcheck is safe to look at and to paste: the one output boundary uses these.

Everything from outside is hostile: a package's metadata may carry terminal escapes, a GPU's name a
carriage return, a log line bidirectional overrides that make it read as something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Inventory, Known, Unknown
from envcheck.core.findings import Diagnostic, Report, Waiting
from envcheck.core.rules import Matrix, Rule, Source

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

_LONGEST_WORD = 32  # letters and digits without a break: longer is a key or a digest
_HINTS = (  # one of these is in whatever a pattern below matches
    rf"(?i)://|@|/home/|/users/|hf_|sk-|gh[oprsu]_|github_pat_|glpat-|akia|asia|eyj|xox|nvapi-"
    rf"|(?:token|secret|passw|pwd|credential|authorization|key)[\w-]{{0,48}}[\"']?[\s=:]"
    rf"|[a-z0-9+/]{{{_LONGEST_WORD + 1}}}"
)

_BEGINS_SO = (
    r"(?<![A-Za-z0-9])(?:sk-(?=[\w-]{20})|hf_|gh[oprsu]_|github_pat_|glpat-|xox[abeoprs]-|nvapi-|AKIA|ASIA|eyJ)"
    r"(?=[\w-]*[A-Z\d])[\w-]{12,}(?:\.[\w-]{12,})*"
)

# An address keeps its scheme, a setting its name; what may identify or admit somebody goes.
# Repetitions have limits: a text that nearly matches costs no more than one that does.
_ADDRESS = r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{0,20}://(?=[^\s/])[^\s\"'<>|]+"
_SETTING = (
    r"(?i)(?<!/)((?:token|secret|passw(?:or)?d|pwd|credentials?|authorization|(?:api|access|private)_?-?key)"
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


def hide_private(text: str, private: Private) -> str:
    """The text without what it may tell of people and of their secrets; an address keeps its scheme."""
    return _without_secrets(_nameless(text, private))


def hide_private_keep_urls(text: str, private: Private) -> str:
    """The same for what is meant to be looked up: of an address only logins and queries go."""
    pieces = _addresses().split(_nameless(text, private)) if "://" in text else [_nameless(text, private)]
    pieces[::2] = map(_without_secrets, pieces[::2])  # every other one is an address
    pieces[1::2] = (_login().sub(r"\1", piece).partition("?")[0] for piece in pieces[1::2])
    return "".join(pieces)


def hide_secrets(text: str) -> str:
    """Text of somebody's log without what looks like a password, a token or a key."""
    return hide_private_keep_urls(text, Private())


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
    """Whether a text is worth the patterns: most are a version or the name of a folder."""
    return _hint().search(text) is not None


@lru_cache(maxsize=1)
def _hint() -> Any:
    import re

    return re.compile(_HINTS)


Presented = TypeVar("Presented")


_LONGEST_TEXT = 4000  # characters: what is longer floods a report


def _short(text: str) -> str:
    more = len(text) - _LONGEST_TEXT
    return text if more <= 0 else f"{text[:_LONGEST_TEXT]}{HIDDEN} ({more} characters more)"


def sanitized(value: Presented, private: Private) -> Presented:
    """A report (or any part of it) that may be shown: every text in it cleaned, nothing private in it.

    The matrix and its rules, which say the same to everybody, are passed through, but for what an overlay
    brought; the addresses of sources stay.
    """
    rules: Iterable[Rule] = value.matrix.rules if isinstance(value, Report) else ()
    brought = value.matrix.overlaid() if isinstance(value, Report) else ()
    shown: Presented = _Presenting(private, {id(each) for each in rules if each.id not in brought}).walk(
        value
    )
    return shown


class _Presenting:
    """A walk through a report. It goes by exact types, for it is taken at every start."""

    def __init__(self, private: Private, ours: set[int]) -> None:
        """Take what is private, and the rules (by identity) that hold nothing from outside."""
        self.private, self.ours = private, ours
        self.done: dict[str, str] = {}
        self.ways: dict[type, Callable[[Any], Any]] = {
            str: self.show,
            tuple: lambda value: tuple(map(self.walk, value)),
            list: lambda value: list(map(self.walk, value)),
            dict: self._mapping,
            Fact: self._fact,
            Known: self._known,
            Unknown: lambda value: Unknown(self.show(value.why), value.asked),
            Inventory: self._inventory,
            Rule: lambda value: value if id(value) in self.ours else self._named(value),
            Waiting: lambda value: value if id(value.rule) in self.ours else self._named(value),
            Matrix: lambda value: value._replace(origins=self.walk(value.origins)),
            Source: lambda value: Source(*map(self.quote, value)),
            Diagnostic: self._remark,
            Place: self._place,
        }

    def show(self, text: str) -> str:
        """A text from outside."""
        found = self.done.get(text)
        if found is None:
            found = self.done[text] = hide_private(_short(clean(text)), self.private)
        return found

    def quote(self, text: str) -> str:
        """A text that says where something is written."""
        return hide_private_keep_urls(_short(clean(text)), self.private)

    def walk(self, value: Any) -> Any:
        """The value, presented."""
        kind = type(value)
        way = self.ways.get(kind)
        if way is None:
            way = self.ways[kind] = self._way(value)
        return way(value)

    def _way(self, value: Any) -> Callable[[Any], Any]:
        if isinstance(value, Mapping):
            return self._mapping
        return self._named if hasattr(value, "_make") else lambda other: other

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        return {self.show(str(key)): self.walk(each) for key, each in value.items()}

    def _named(self, value: Any) -> Any:
        return value._make(map(self.walk, value))

    def _fact(self, fact: Fact) -> Fact:
        # A default is a row of a table of ours, and says where that is written.
        show = self.quote if fact.source.startswith("default: ") else self.show
        return Fact(self.show(fact.key), self.walk(fact.reading), show(fact.source))

    def _known(self, reading: Known) -> Known:
        return Known(self.walk(reading.value))

    def _inventory(self, value: Inventory) -> Inventory:
        facts, *devices = (_Presented(each, self) for each in (value.facts, *value.devices))
        return Inventory(facts, tuple(devices), value.complete, self.walk(value.unread))

    def _remark(self, remark: Diagnostic) -> Diagnostic:
        code, text, places, advice = map(self.walk, remark[1:5])
        return Diagnostic(remark.severity, code, text, places, advice, self.quote(remark.source))

    def _place(self, place: Place) -> Place:
        # The line it quotes is cleaned where it is underlined, and left out if it tells too much.
        plain = clean(place.excerpt)
        excerpt = place.excerpt if self.show(plain) == plain else ""
        return place._replace(file=self.show(place.file), excerpt=excerpt)


class _Presented(Mapping[str, Fact]):
    """Facts, each presented when it is asked for: of hundreds most reports for people show a few."""

    def __init__(self, facts: Mapping[str, Fact], by: _Presenting) -> None:
        """Take the facts as they were read, and what presents them."""
        self._facts, self._by = facts, by
        self._shown: dict[str, Fact] = {}
        self._keys: dict[str, str] = {}

    def __getitem__(self, key: str) -> Fact:
        if key not in self._shown:
            plain = key in self._facts and self._by.show(key) == key
            fact: Fact = self._by.walk(self._facts[key if plain else self._read_as()[key]])
            self._shown[key] = fact
        return self._shown[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_as())

    def __len__(self) -> int:
        return len(self._read_as())

    def _read_as(self) -> dict[str, str]:
        """The keys as they were read, by what is shown of them."""
        if not self._keys:
            self._keys = {self._by.show(key): key for key in self._facts}
        return self._keys
