"""Make output safe to view and to publish: escape control characters, hide private names and secrets.

All output passes through here. Text from outside is not trusted: a package's metadata may contain terminal
escapes, a GPU's name a carriage return, a log line bidirectional overrides that make it read differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Inventory, Known, Unknown
from envcheck.core.findings import Diagnostic, Report, Waiting
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Matrix, Rule, Source

# Format and bidirectional controls, which reorder or hide text but are not C0 or C1 controls; tag
# characters, which spell invisible ASCII; and lone surrogates, which cannot be encoded.
_INVISIBLE = (
    *(0x00AD, 0x061C, 0x180E, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *(0xFFFE, 0xFFFF),  # not characters; forbidden in XML
    *range(0xE0000, 0xE0080),
    *range(0xD800, 0xE000),
)


@lru_cache(maxsize=1)
def _escapes() -> dict[int, str]:
    controls = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
    table = {code: f"\\x{code:02x}" for code in controls}
    table.update({code: f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}" for code in _INVISIBLE})  # noqa: PLR2004 - the last code point that `\u` can spell
    return table


def clean(text: str) -> str:
    """Return the text with every control, format and bidirectional character written as an escape.

    Line feed and tab stay.
    """
    # All characters in the table are unprintable to Python, so a printable text does not need it.
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return text.translate(_escapes())


def inline(text: str) -> str:
    """Clean a text and keep it on one line: a GPU's name must not be able to add a line to a report."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def redact(text: str, homes: Iterable[str]) -> str:
    """Return the text with every home folder written as `~`, so that no user's name is shown."""
    for home in homes:
        if home.strip("/"):
            text = _replace_word(text, home.rstrip("/"), "~")
    return text


def _replace_word(text: str, word: str, replacement: str, before: str = "") -> str:
    """Replace a word where it stands alone: `/home/al` is not replaced in `/home/alice`.

    With `before`, the word is replaced only after one of these characters.
    """
    if word not in text:
        return text
    head, *pieces = text.split(word)
    out = head
    for piece in pieces:
        last, first = out[-1:], piece[:1]
        alone = not (first.isalnum() or first == "_") and not (word[0].isalnum() and last.isalnum())
        out += (replacement if alone and (not before or (last and last in before)) else word) + piece
    return out


# --- secrets ----------------------------------------------------------------------------------------


class Private(NamedTuple):
    """Names that no report shows: home folders, the user's name, names of this machine."""

    homes: tuple[str, ...] = ()
    user: str = ""
    machines: tuple[str, ...] = ()


HIDDEN = "…"

# Default accounts of images and clouds, which identify no person.
_COMMON_NAMES = frozenset(
    {"root", "user", "ubuntu", "debian", "ec2-user", "azureuser", "jovyan", "runner", "localhost"}
)

_LONGEST_WORD = 32  # letters and digits in a row: a longer run is a key or a digest
_HINTS = (  # every match of a pattern below contains a match of this one, in capitals or not
    rf"://|@|/home/|/users/|hf_|api_org_|sk-|[rs]k_live_|gh[oprsu]_|github_pat_|gl[a-z]{{2,5}}-|akia|asia"
    rf"|eyj|xox|nvapi-|aiza|ya29|gocspx|ltai|akid|dapi|gsk_|pypi-|npm_|r8_|dop_v1_|dckr_pat_|wandb_v1_|ms-|sg\."
    rf"|/services/|/bot|-----"
    rf"|(?:token|secret|passw|pwd|credential|authorization|bearer|cookie|key|sig)[\w-]{{0,48}}[\"']?[\s=:]"
    rf"|[a-z0-9+/]{{{_LONGEST_WORD + 1}}}"
)

_PREFIXES = (
    r"sk-(?=[\w-]{20})|[rs]k_live_|hf_|api_org_|gh[oprsu]_|github_pat_|gl(?:pat|dt|rt|ptt|cbt|ft|soat)-"
    r"|xox[abeoprs]-|nvapi-|AKIA|ASIA|LTAI|AKID|eyJ|AIza|ya29\.|GOCSPX-|gsk_|pypi-|npm_|r8_|dop_v1_|dckr_pat_|wandb_v1_|SG\."
)
_KNOWN_PREFIX = (
    rf"(?<![A-Za-z0-9])(?:(?:{_PREFIXES})(?=[\w-]*[A-Z\d])[\w-]{{12,}}(?:\.[\w-]{{4,}})*"
    r"|dapi[0-9a-f]{32}|ms-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)

# A private key on one line, its line feeds written as `\n` or blanks, or on many lines; it may be cut off.
_PEM = r"(-----BEGIN [A-Z0-9 ]{0,40}-----)(?:(?!-----END)[^\x00]){0,20000}(?:-----END [A-Z0-9 ]{0,40}-----)?"
_PEM_END = r"(?<![^\s])(?:[A-Za-z0-9+/=]{1,80}+(?:\s|\\n){1,9}+){1,200}+(?=-----END )"
_PEM_LINE = (  # a line of a key: 64 or 76 characters, an upper-case and a lower-case letter and a digit
    r"(?m)(?<![^\s|:>\"'])(?=[A-Za-z\d+/]{0,75}[A-Z])(?=[A-Za-z\d+/]{0,75}[a-z])(?=[A-Za-z+/]{0,75}\d)"
    r"(?:[A-Za-z\d+/]{76}|[A-Za-z\d+/]{64})(?![^\s\"'|])"
)

# A URL keeps its scheme and a setting its name; what identifies a person or grants access is removed.
# Repetitions have limits, so that a text that nearly matches takes no longer than one that does.
_URL = r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{0,20}://(?=[^\s/])[^\s\"'<>|]+"
_HEADER = (  # a header's scheme, which may have any name, what follows it, and further `name=value` parts
    r"(?i)((?<![\w/])(?:(?:proxy-)?authorization|(?:set-)?cookie)[\"']?\s{0,9}[:=]\s{0,9}[\"']?)"
    r"(?:[a-z][\w-]{0,30}\s{1,9})?[^\s\"',;&]+(?:\s{0,9}[,;]\s{0,9}[\w-]{1,40}=[^\s,;]{1,4000}){0,40}"
)
_BEARER = r"(?i)((?<![A-Za-z])bearer\s{1,9})(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}"
_NETRC = (
    r"(?i)((?<![A-Za-z])(?:machine\s{1,9}\S{1,253}|default)\s{1,9}login\s{1,9})\S+(\s{1,9}password\s{1,9})\S+"
)
_NETRC_LINE = r"(?im)(^[ \t]*password[ \t]{1,9})\S+(?=[ \t]*$)"
_KEY_OWNERS = r"api|access|private|account|shared|storage|encryption|signing|master|service|ssh"
_SETTING = (
    r"(?i)(?<!/)((?:token|secret|passw(?:or)?d|pwd|credentials?|authorization|(?<![a-z])sig(?:nature)?"
    rf"|(?:{_KEY_OWNERS})_?-?key)"
    r"(?![a-z])[\w-]{0,40}[\"']?\s{0,9}[=:]\s{0,9}[\"']?(?:(?:bearer|basic)\s{1,9})?)[^\s\"',;&]+"
)
_ARGUMENT = (
    r"(?i)(--(?:\w{1,20}[_-]){0,3}(?:token|secret|passw(?:or)?d|api-key|access-key)[\s=]{1,9})[^\s\"']+"
)
_AWS_40 = (  # 40 characters with several upper-case letters, several lower-case letters and a digit
    r"(?<![\w+])(?=(?:[a-z0-9+/]{0,39}[A-Z]){3})(?=(?:[A-Z0-9+/]{0,39}[a-z]){3})(?=[A-Za-z+/]{0,39}\d)"
    r"[A-Za-z0-9+/]{40}(?![\w+])"
)
_IDENTIFYING = (
    (rf"(?={_URL})([^:]+://)[^\s\"'<>|]+", rf"\1{HIDDEN}"),
    (r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,9}\.[A-Za-z]{2,24}\b", HIDDEN),
    (r"(/home/|/Users/)[^/\s:;,'\"]+", rf"\1{HIDDEN}"),
)
_SECRETS = (
    (_PEM, rf"\1{HIDDEN}"),
    (_PEM_END, HIDDEN),
    (_PEM_LINE, HIDDEN),
    (_HEADER, rf"\1{HIDDEN}"),
    (_NETRC, rf"\1{HIDDEN}\2{HIDDEN}"),
    (_NETRC_LINE, rf"\1{HIDDEN}"),
    (_KNOWN_PREFIX, HIDDEN),
    (_BEARER, rf"\1{HIDDEN}"),
    (_SETTING, rf"\1{HIDDEN}"),
    (_ARGUMENT, rf"\1{HIDDEN}"),
    (_AWS_40, HIDDEN),
    (rf"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{{{_LONGEST_WORD + 1},}}", HIDDEN),
)


@lru_cache(maxsize=1)
def _url_pattern() -> Any:
    import re

    return re.compile(rf"({_URL})")


@lru_cache(maxsize=1)
def _login_pattern() -> Any:
    import re

    # A password may hold a slash that should have been escaped; a port and a path are no password.
    return re.compile(r"(://)(?:[^/]*@|[^/@:]*:(?!\d+(?:/|$))[^@\s]*@)")


@lru_cache(maxsize=1)
def _secret_patterns() -> list[tuple[Any, str]]:
    return _compiled(_SECRETS)


@lru_cache(maxsize=1)
def _identifying_patterns() -> list[tuple[Any, str]]:
    return _compiled(_IDENTIFYING)


def _compiled(patterns: Iterable[tuple[str, str]]) -> list[tuple[Any, str]]:
    import re  # most reports do not need it

    return [(re.compile(pattern), replacement) for pattern, replacement in patterns]


def hide_private(text: str, private: Private) -> str:
    """Return the text without private names, secrets, mail addresses and URLs; a URL keeps its scheme."""
    return _hide_patterns(_hide_names(text, private))


def hide_private_keep_urls(text: str, private: Private) -> str:
    """Do the same as `hide_private`, but keep URLs, without logins and queries, for a reader to open."""
    without_names = _hide_names(text, private)
    pieces = _url_pattern().split(without_names) if "://" in text else [without_names]
    pieces[::2] = map(_hide_patterns, pieces[::2])  # every second piece is a URL
    pieces[1::2] = map(_without_login, pieces[1::2])
    return "".join(pieces)


def _without_login(url: str) -> str:
    """Return a URL without login and query, and without a token in its path; a commit's digest stays."""
    url = _login_pattern().sub(r"\1", url).partition("?")[0]
    if _may_hold_secret(url.partition("://")[2]):
        for pattern, replacement in _url_secret_patterns():
            url = pattern.sub(replacement, url)
    return url


@lru_cache(maxsize=1)
def _url_secret_patterns() -> list[tuple[Any, str]]:
    hook = r"(hooks\.slack\.com/services/|api\.telegram\.org/bot)[^\s\"']+"
    return _compiled(((_KNOWN_PREFIX, HIDDEN), (_SETTING, rf"\1{HIDDEN}"), (hook, rf"\1{HIDDEN}")))


def holds_secret(text: str) -> bool:
    """Return whether a text holds a password, a token or a key, or a URL with a login."""
    if "://" in text and any(_without_login(url) != url for url in _url_pattern().findall(text)):
        return True
    return _may_hold_secret(text) and any(pattern.search(text) for pattern, _ in _secret_patterns())


def hide_secrets(text: str) -> str:
    """Return a text from a user's log without anything that looks like a password, a token or a key."""
    return hide_private_keep_urls(text, Private())


def _hide_names(text: str, private: Private) -> str:
    text = redact(text, private.homes)
    if len(private.user) > 1 and private.user not in _COMMON_NAMES:
        # Only in a path or an address: as a separate word it may be a package's name.
        text = _replace_word(text, private.user, HIDDEN, "/@:=").replace(f"{private.user}@", f"{HIDDEN}@")
    for machine in private.machines:
        if len(machine) > 1 and machine not in _COMMON_NAMES:
            text = _replace_word(text, machine, HIDDEN, "/@:=._-" if machine.isalpha() else "")
    return text


def _hide_patterns(text: str) -> str:
    if _may_hold_secret(text):
        for pattern, replacement in (*_identifying_patterns(), *_secret_patterns()):
            text = pattern.sub(replacement, text)
    return text


def _may_hold_secret(text: str) -> bool:
    """Return whether a text may hold a secret: most texts are versions or folder names and need no search."""
    # The pattern takes a quarter of the time without IGNORECASE, which other scripts than ASCII need.
    ascii_text = text.isascii()
    return _hint_pattern(ignore_case=not ascii_text).search(text.lower() if ascii_text else text) is not None


@lru_cache(maxsize=2)
def _hint_pattern(*, ignore_case: bool) -> Any:
    import re

    return re.compile(_HINTS, re.IGNORECASE if ignore_case else 0)


Sanitized = TypeVar("Sanitized")


_LONGEST_TEXT = 4000  # characters of one text in a report


def _shorten(text: str) -> str:
    more = len(text) - _LONGEST_TEXT
    return text if more <= 0 else f"{text[:_LONGEST_TEXT]}{HIDDEN} ({more} characters more)"


def sanitized(value: Sanitized, private: Private) -> Sanitized:
    """Return a report, or a part of one, with every text cleaned and everything private hidden.

    The matrix and its shipped rules are public and pass unchanged; those of an overlay do not. The URLs of
    sources stay.
    """
    rules: Iterable[Rule] = value.matrix.rules if isinstance(value, Report) else ()
    overlaid = value.matrix.overlaid() if isinstance(value, Report) else ()
    shipped = {id(rule) for rule in rules if rule.id not in overlaid}
    result: Sanitized = _Sanitizer(private, shipped).walk(value)
    return result


class _Sanitizer:
    """Walks through a report's values. It dispatches on exact types for speed, as it runs at every start."""

    def __init__(self, private: Private, shipped: set[int]) -> None:
        """Take the private names, and the identities of the rules that hold no text from outside."""
        self.private, self.shipped = private, shipped
        self.done: dict[str, str] = {}
        self.methods: dict[type, Callable[[Any], Any]] = {
            str: self.show,
            tuple: lambda value: tuple(map(self.walk, value)),
            list: lambda value: list(map(self.walk, value)),
            dict: self._mapping,
            Fact: self._fact,
            Known: self._known,
            Unknown: lambda value: Unknown(self.show(value.why), value.asked),
            Inventory: self._inventory,
            Rule: lambda value: value if id(value) in self.shipped else self._named_tuple(value),
            Waiting: lambda value: value if id(value.rule) in self.shipped else self._named_tuple(value),
            Matrix: lambda value: value._replace(origins=self.walk(value.origins)),
            Source: lambda value: Source(*map(self.quote, value)),
            Diagnostic: self._diagnostic,
            Place: self._place,
        }

    def show(self, text: str) -> str:
        """Sanitize a text."""
        found = self.done.get(text)
        if found is None:
            found = self.done[text] = hide_private(_shorten(clean(text)), self.private)
        return found

    def quote(self, text: str) -> str:
        """Sanitize a text that names a source: its URLs stay."""
        return hide_private_keep_urls(_shorten(clean(text)), self.private)

    def walk(self, value: Any) -> Any:
        """Sanitize any value of a report."""
        kind = type(value)
        method = self.methods.get(kind)
        if method is None:
            method = self.methods[kind] = self._method_for(value)
        return method(value)

    def _method_for(self, value: Any) -> Callable[[Any], Any]:
        if isinstance(value, Mapping):
            return self._mapping
        return self._named_tuple if hasattr(value, "_make") else lambda other: other

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        return {self.show(str(key)): self.walk(item) for key, item in value.items()}

    def _named_tuple(self, value: Any) -> Any:
        return value._make(map(self.walk, value))

    def _fact(self, fact: Fact) -> Fact:
        # The source of a default is a row of a shipped table, which cites a URL.
        show = self.quote if fact.source.startswith("default: ") else self.show
        return Fact(self.show(fact.key), self.walk(fact.reading), show(fact.source))

    def _known(self, reading: Known) -> Known:
        return Known(self.walk(reading.value))

    def _inventory(self, value: Inventory) -> Inventory:
        facts, *devices = (_SanitizedFacts(part, self) for part in (value.facts, *value.devices))
        return Inventory(facts, tuple(devices), value.complete, self.walk(value.unread))

    def _diagnostic(self, diagnostic: Diagnostic) -> Diagnostic:
        code, text, places, advice = map(self.walk, diagnostic[1:5])
        return Diagnostic(diagnostic.severity, code, text, places, advice, self.quote(diagnostic.source))

    def _place(self, place: Place) -> Place:
        # A format cleans the quoted line when it underlines a part; a line with private text is left out.
        plain = clean(place.excerpt)
        excerpt = place.excerpt if self.show(plain) == plain else ""
        return place._replace(file=self.show(place.file), excerpt=excerpt)


class _SanitizedFacts(Mapping[str, Fact]):
    """Facts that are sanitized when they are looked up: most reports show a few of several hundred."""

    def __init__(self, facts: Mapping[str, Fact], sanitizer: _Sanitizer) -> None:
        """Take the facts as read."""
        self._facts, self._sanitizer = facts, sanitizer
        self._shown: dict[str, Fact] = {}
        self._keys: dict[str, str] = {}

    def __getitem__(self, key: str) -> Fact:
        if key not in self._shown:
            plain = key in self._facts and self._sanitizer.show(key) == key
            fact: Fact = self._sanitizer.walk(self._facts[key if plain else self._original_keys()[key]])
            self._shown[key] = fact
        return self._shown[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._original_keys())

    def __len__(self) -> int:
        return len(self._original_keys())

    def _original_keys(self) -> dict[str, str]:
        """Return the original keys, by sanitized key."""
        if not self._keys:
            self._keys = {self._sanitizer.show(key): key for key in self._facts}
        return self._keys
