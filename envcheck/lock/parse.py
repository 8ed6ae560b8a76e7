"""Read a lock from a requirements.txt: every requirement an exact pin with hashes, the header optional."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from packaging.version import InvalidVersion, Version

from envcheck.core.errors import InputError
from envcheck.core.facts import normalised
from envcheck.core.records import NamedTuple
from envcheck.lock.model import (
    FILENAME,
    FORMAT,
    HEADER_FIELDS,
    HEADER_MARK,
    HEADER_VALUE,
    SHA256,
    Artifact,
    Lock,
    Pin,
    file_at,
    wheel_at,
)


def parse_requirements(text: str, where: str, local: Collection[str] = (), *, verify: bool = True) -> Lock:
    """Return the lock in a requirements.txt. Without envcheck's header the lock has no target.

    `local` are the local version labels to accept; a label means that a file comes from another index.
    Without `verify` the header's digest is not compared; this is for locks shipped with envcheck itself.

    Raises:
        InputError: a line is not a pin with hashes, or the header is wrong; with the number of the line.
    """
    if "\0" in text:
        raise InputError(where, "contains a zero byte: not a text file")
    header = _HeaderReader(where)
    pins: dict[str, Pin] = {}
    first_line: dict[str, int] = {}
    for number, requirement, comments in _entries(text, where, header):
        pin = _pin(requirement, comments, f"{where}:{number}", local)
        if pin.name in pins:
            raise InputError(
                f"{where}:{number}", f"{pin.name} is pinned twice, first in line {first_line[pin.name]}"
            )
        pins[pin.name], first_line[pin.name] = pin, number
    return header.lock(tuple(pins.values()), verify=verify)


def _entries(text: str, where: str, header: _HeaderReader) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each requirement with its line number and the comments that follow it.

    Continued lines are joined; comments of the header go to `header`.
    """
    pending: tuple[int, str, list[str]] | None = None
    joined, start = "", 0
    # Not splitlines(): it also breaks at form feeds and U+2028, which pip does not.
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw.strip(" \t")
        if joined:
            line = f"{joined} {line}"
        elif line.startswith("#"):
            comment = line[1:].strip()
            if not header.read(comment, number) and pending is not None:
                pending[2].append(comment)
            continue
        else:
            start = number
        line = _without_comment(line)
        if line.endswith("\\"):
            joined = line[:-1].strip() or " "
            continue
        joined = ""
        if line.strip():
            if pending is not None:
                yield pending
            pending = (start, line.strip(), [])
    if joined:
        raise InputError(f"{where}:{start}", "the file ends within an entry")
    if pending is not None:
        yield pending


def _without_comment(line: str) -> str:
    return re.sub(r"\s#.*$", "", line) if "#" in line else line


# --- one pin ----------------------------------------------------------------------------------------

_FILE_SUFFIXES = (".whl", ".tar.gz", ".zip")
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;,]+)")


class _Requirement(NamedTuple):
    """A requirement line in parts: name and version, the address or "", the options after it."""

    name: str
    version: str
    url: str
    options: list[str]


def _pin(requirement: str, comments: Iterable[str], where: str, local: Collection[str]) -> Pin:
    """Return the pin of a requirement line and the comments below it.

    Raises:
        InputError: the line is not an exact pin with hashes, or a lock may not contain it.
    """
    name, version, url, options = _requirement(requirement, where)
    _check_version(name, version, where, local if not url else None)
    artifacts = _artifacts(name, options, _file_names(comments) or ([file_at(url)] if url else []), where)
    try:
        return Pin(name, version, artifacts, url)
    except ValueError as error:
        raise InputError(where, str(error)) from None


def _requirement(text: str, where: str) -> _Requirement:
    """Take a requirement line apart. Raises InputError."""
    head, *options = text.split()
    if head.startswith("-"):
        raise InputError(where, f"expected name==version, found the option {head.partition('=')[0]}")
    url = ""
    if options[:1] == ["@"] and (wheel := wheel_at("".join(options[1:2]))):
        url, options = options[1], options[2:]
        head = f"{head}=={wheel[1]}"
    if any("://" in word or "@" in word for word in (head, *options)):
        # The message does not repeat the address, because it may contain a login.
        raise InputError(where, "expected name==version, found a direct reference")
    found = _PINNED.fullmatch(head)
    if found is None or "*" in found["version"]:
        raise InputError(where, f"expected name==version, found {head[:80]!r}")
    return _Requirement(normalised(found["name"]), found["version"], url, options)


def _check_version(name: str, text: str, where: str, local: Collection[str] | None) -> None:
    """Raise InputError if a text is not a version, or has a local label that is not among `local`.

    With None any label is accepted, because an address identifies the file.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        raise InputError(where, f"{name}: {text[:80]!r} is not a version") from None
    if version.local and local is not None and version.local not in local:
        raise InputError(
            where, f"{name}: the local version +{version.local} is not on an index that is known here"
        )


def _artifacts(name: str, options: list[str], file_names: list[str], where: str) -> tuple[Artifact, ...]:
    """Return the files of a pin, from its options and the file names that are known. Raises InputError."""
    hashes = [_sha256(option, where, name) for option in options]
    if not hashes:
        raise InputError(where, f"{name} has no hash")
    if file_names and len(file_names) != len(hashes):
        counts = f"{len(hashes)} hashes and {len(file_names)} files"
        raise InputError(where, f"{name}: expected one hash for each file, found {counts}")
    names = file_names or [""] * len(hashes)
    return tuple(Artifact(file, sha256) for file, sha256 in zip(names, hashes, strict=True))


def _file_names(comments: Iterable[str]) -> list[str]:
    names = (comment for comment in comments if comment.endswith(_FILE_SUFFIXES))
    return [name for name in names if FILENAME.fullmatch(name)]


def _sha256(option: str, where: str, name: str) -> str:
    kind, equals, value = option.partition("=")
    if kind != "--hash" or not equals:
        raise InputError(where, f"{name}: expected --hash=sha256:…, found {kind[:40]!r}")
    algorithm, _, digits = value.partition(":")
    if algorithm != "sha256":
        raise InputError(where, f"{name}: expected a sha256, found {algorithm[:20]!r}")
    if not SHA256.fullmatch(digits):
        raise InputError(
            where, f"{name}: a sha256 has 64 hexadecimal digits, this one has {len(digits)} characters"
        )
    return digits


# --- the header -------------------------------------------------------------------------------------

_HEADER_KEYS = frozenset((*HEADER_FIELDS, "lock", "build", "digest"))


class _HeaderReader:
    """The `# envcheck:` lines read so far. They precede the first pin, but nothing depends on that."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.words: dict[str, str] = {}
        self.needs: list[tuple[str, str, str]] = []
        self.train: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.proof = ""
        self.line = 0

    def read(self, comment: str, number: int) -> bool:
        """Take a comment and return True if it belongs to the header.

        Raises:
            InputError: an unknown key, or one that appears twice.
        """
        if comment.startswith("Note "):
            self.notes.append(comment[4:].strip())
            return True
        if comment.startswith("Proven "):
            self.proof = comment.removeprefix("Proven ").strip()
            return True
        if not comment.startswith(HEADER_MARK):
            return False
        self.line = number
        content = comment.removeprefix(HEADER_MARK)
        section, _, rest = content.partition(" ")
        match section:
            case "needs":
                self.needs.append(self._split(rest))
            case "train":
                key, _, value = self._split(rest)
                self.train.append((key, value))
            case _:
                self._take_words(content.split())
        return True

    def _take_words(self, words: Iterable[str]) -> None:
        for word in words:
            key, _, value = self._split(word)
            if key not in _HEADER_KEYS or key in self.words:
                raise InputError(f"{self.where}:{self.line}", f"header: {key!r} is unknown or appears twice")
            self.words[key] = value

    def _split(self, word: str) -> tuple[str, str, str]:
        found = re.fullmatch(r"([a-z][a-z0-9_.]*)(>=|=)(\S+)", word)
        if found is None or not HEADER_VALUE.fullmatch(found[3]):
            raise InputError(f"{self.where}:{self.line}", f"header: expected key=value, found {word[:80]!r}")
        return found[1], found[2], found[3]

    def lock(self, pins: tuple[Pin, ...], *, verify: bool) -> Lock:
        """Return the lock of this header and these pins.

        Raises:
            InputError: there are no pins, the layout is unknown, or header and pins do not belong together.
        """
        words = dict(self.words)
        place = f"{self.where}:{self.line}" if self.line else self.where
        if not pins:
            raise InputError(self.where, "contains no pins")
        if words and words.pop("lock", "") != FORMAT:
            raise InputError(place, f"header: expected lock={FORMAT}; a newer envcheck may have written this")
        digest = words.pop("digest", "")
        build = tuple(filter(None, words.pop("build", "").split(",")))
        try:
            lock = Lock(
                pins=pins,
                needs=tuple(self.needs),
                train=tuple(self.train),
                build=build,
                notes=tuple(self.notes),
                proof=self.proof,
                **{key: words.get(key, "") for key in HEADER_FIELDS},
            )
        except ValueError as error:
            raise InputError(place, f"header: {error}") from None
        if verify and self.words and digest != lock.digest():
            raise InputError(
                place, "the pins are not those envcheck wrote (the digest differs); make a new lock"
            )
        return lock
