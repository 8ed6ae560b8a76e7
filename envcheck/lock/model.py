"""The values a lock consists of: exact pins with the hash of every usable file, and what the lock assumes.

`render.render_requirements` writes a `Lock` and `parse.parse_requirements` reads it back, so that
parse(render(lock)) == lock. This module also holds the lines that both sides must agree on, because the
digest of a lock covers them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from envcheck.core.facts import normalised
from envcheck.core.records import NamedTuple

FORMAT = "1"
"""The version of the header's layout; the parser refuses any other."""

HEADER_MARK = "envcheck: "
"""The prefix, after the comment sign, of the header lines that a program reads back."""

HEADER_FIELDS = ("target", "python", "platform", "glibc", "date", "maker", "matrix")
"""The fields of a `Lock` that the header holds as one word each."""


class Artifact(NamedTuple):
    """One file of a release and its sha256, as 64 lower-case hexadecimal digits.

    The name is empty if it is not known, as in locks that envcheck did not write.
    """

    filename: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Pin:
    """One package at one version, with every file of this release that may be installed.

    `url` is the address of the only file, a wheel, if that file is not on the default index. `index` is the
    address of the index that lists it, as far as it is known: formats with hashes need none.

    Raises:
        ValueError: a name, version, file name, hash or address that cannot be written into a lock.
    """

    name: str
    version: str
    artifacts: tuple[Artifact, ...]
    url: str = ""
    index: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Check every field, and sort the files by their hashes with each hash once."""
        if not _NAME.fullmatch(self.name) or normalised(self.name) != self.name:
            raise ValueError(f"not a normalised package name: {self.name!r}")
        if not _VERSION.fullmatch(self.version):
            raise ValueError(f"not a version: {self.version!r}")
        object.__setattr__(self, "artifacts", _in_order(self.artifacts))
        if self.url and (
            wheel_at(self.url) != (self.name, self.version)
            or [artifact.filename for artifact in self.artifacts] != [file_at(self.url)]
        ):
            raise ValueError(f"{self.name}: the address is not that of exactly one wheel of {self.version}")

    @property
    def requirement(self) -> str:
        """Return the line of a requirements file without the hashes."""
        return f"{self.name} @ {self.url}" if self.url else f"{self.name}=={self.version}"


def _in_order(artifacts: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """Return the files sorted by hash, each hash once; without names if any name is missing.

    Raises:
        ValueError: a hash or a file name that cannot be written into a lock.
    """
    artifacts = sorted(artifacts)
    unique: dict[str, Artifact] = {}
    for artifact in artifacts:
        if not SHA256.fullmatch(artifact.sha256):
            raise ValueError(f"not a sha256: {artifact.sha256!r}")
        if not FILENAME.fullmatch(artifact.filename):
            raise ValueError(f"not a file name: {artifact.filename!r}")
        unique.setdefault(artifact.sha256, artifact)
    if not all(artifact.filename for artifact in artifacts):
        # Names belong to hashes by position, so a lock with some of them missing could not be read back.
        unique = {sha256: Artifact("", sha256) for sha256 in unique}
    return tuple(unique[sha256] for sha256 in sorted(unique))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Pins, and everything that was assumed when they were chosen.

    `python` is `3.11`, `platform` is `linux-x86_64`, `glibc` is the oldest C library that the lock installs
    on. `needs` are facts of the machine that the lock relies on, each `(key, operator, value)` with the
    operator `>=` or `=`. `train` are the facts, as `(key, value)`, of the training that the versions were
    chosen for. `build` names the packages that exist only as source. `date` (ISO), `maker` (envcheck's
    version) and `matrix` (the digest of the knowledge) say when and with what the lock was made. `notes` are
    lines of prose for the header, and `proof` says in words how the combination was tested.

    Raises:
        ValueError: a word that cannot be written into a header, or a package that is pinned twice.
    """

    target: str
    python: str
    platform: str
    pins: tuple[Pin, ...]
    glibc: str = ""
    needs: tuple[tuple[str, str, str], ...] = ()
    train: tuple[tuple[str, str], ...] = ()
    build: tuple[str, ...] = ()
    date: str = ""
    maker: str = ""
    matrix: str = ""
    notes: tuple[str, ...] = ()
    proof: str = ""

    def __post_init__(self) -> None:
        """Sort the fields whose order has no meaning, and refuse what the header cannot hold."""
        object.__setattr__(self, "pins", tuple(sorted(self.pins, key=lambda pin: pin.name)))
        object.__setattr__(self, "needs", tuple(sorted(self.needs)))
        object.__setattr__(self, "train", tuple(sorted(self.train)))
        object.__setattr__(self, "build", tuple(sorted(self.build)))
        names = [pin.name for pin in self.pins]
        if len(set(names)) != len(names):
            raise ValueError("the same package is pinned twice")
        for key, value in self._header_words():
            if not _KEY.fullmatch(key) or not HEADER_VALUE.fullmatch(value):
                raise ValueError(f"cannot be written into a lock's header: {key}={value!r}")
        for note in (*self.notes, *filter(None, (self.proof,))):
            if not note.isprintable() or note != note.strip() or not note:
                raise ValueError(f"a note must be one line of text, found {note!r}")

    def _header_words(self) -> Iterator[tuple[str, str]]:
        for key in HEADER_FIELDS:
            if value := getattr(self, key):
                yield key, value
        yield from ((key, value) for key, _, value in self.needs)
        yield from self.train
        yield from (("build", name) for name in self.build)

    def digest(self) -> str:
        """Return the sha256 of all fields, notes and proof included; it reveals lines edited by hand."""
        import hashlib  # it loads OpenSSL, which takes a fifth of Python's own start

        prose = [*self.notes, *filter(None, (self.proof,))]
        covered = [*machine_lines(self), *prose, pin_lines(self.pins)]
        return "sha256:" + hashlib.sha256("\n".join(covered).encode()).hexdigest()


_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
FILENAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.!+-]*)?")
_KEY = re.compile(r"[a-z][a-z0-9_.]*")
HEADER_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,:+-]*")


# --- the lines that the digest covers ---------------------------------------------------------------


def machine_lines(lock: Lock) -> Iterator[str]:
    """Yield the header lines that a program reads back: `key=value` or `key>=value`, in a fixed order."""
    words = [("lock", FORMAT)]
    words += [(key, getattr(lock, key)) for key in ("maker", "date", "target", "python", "platform", "glibc")]
    yield HEADER_MARK + " ".join(f"{key}={value}" for key, value in words if value)
    for key, operator, value in lock.needs:
        yield f"{HEADER_MARK}needs {key}{operator}{value}"
    for key, value in lock.train:
        yield f"{HEADER_MARK}train {key}={value}"
    if lock.build:
        yield f"{HEADER_MARK}build={','.join(lock.build)}"
    if lock.matrix:
        yield f"{HEADER_MARK}matrix={lock.matrix}"


def pin_lines(pins: Iterable[Pin]) -> str:
    """Return the body of a lock: each requirement with its hashes, then its file names as comments."""
    lines = []
    for pin in pins:
        hashes = [f"    --hash=sha256:{artifact.sha256}" for artifact in pin.artifacts]
        lines.append(" \\\n".join([pin.requirement, *hashes]))
        lines.extend(f"    # {artifact.filename}" for artifact in pin.artifacts if artifact.filename)
    return "".join(f"{line}\n" for line in lines)


# --- addresses --------------------------------------------------------------------------------------

# Only a host and a path: no login, query or fragment. Not compiled, because few locks need it.
_ADDRESS = r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?/(?:[A-Za-z0-9._~!/+-]|%2B)+\.whl"
_WHEEL_PARTS = (5, 6)  # name, version, an optional build number, three tags


def file_at(url: str) -> str:
    """Return the file name that an address ends in."""
    return url.rpartition("/")[2].replace("%2B", "+")


def wheel_at(url: str) -> tuple[str, str] | None:
    """Return name and version of the wheel at an address; None if a lock may not hold that address."""
    parts = file_at(url).split("-")
    allowed = re.fullmatch(_ADDRESS, url) and len(parts) in _WHEEL_PARTS
    return (normalised(parts[0]), parts[1]) if allowed else None
