"""Locks: exact pins with the hash of every usable file, as a requirements.txt that says what it assumes.

A `Lock` is a value; `render_requirements` writes it and `parse_requirements` reads it back, so that
parse(render(lock)) == lock. The header is comments: prose for people, and lines that start with
`# envcheck:` for `check`, which must not guess what a lock was made for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from envcheck.core.errors import ExamineError, InputError
from envcheck.core.facts import normalised

FORMAT = "1"
"""The layout of the header; a reader refuses one it does not know."""

# --- what a lock is ---------------------------------------------------------------------------------


class Artifact(NamedTuple):
    """One file of a release and its sha256, as 64 lower-case hexadecimal digits.

    The name is empty where it is not known: in locks that envcheck did not write.
    """

    filename: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Pin:
    """One package at one version, with every file of it that the lock admits.

    `url` is the address of its only file, a wheel, where that lies on no default index.

    Raises:
        ValueError: a name, version, file name, hash or address that could not be written into a lock.
    """

    name: str
    version: str
    artifacts: tuple[Artifact, ...]
    url: str = ""

    def __post_init__(self) -> None:
        """Bring the files into the one order in which they are written, each hash once."""
        if not _NAME.fullmatch(self.name) or normalised(self.name) != self.name:
            raise ValueError(f"not a normalised package name: {self.name!r}")
        if not _VERSION.fullmatch(self.version):
            raise ValueError(f"not a version: {self.version!r}")
        unique: dict[str, Artifact] = {}
        for artifact in sorted(self.artifacts):
            if not _SHA256.fullmatch(artifact.sha256):
                raise ValueError(f"not a sha256: {artifact.sha256!r}")
            if not _FILENAME.fullmatch(artifact.filename):
                raise ValueError(f"not a file name: {artifact.filename!r}")
            unique.setdefault(artifact.sha256, artifact)
        if not all(artifact.filename for artifact in self.artifacts):  # some names would be worse than none
            unique = {sha256: Artifact("", sha256) for sha256 in unique}
        object.__setattr__(self, "artifacts", tuple(unique[key] for key in sorted(unique)))
        if self.url and (
            _wheel_at(self.url) != (self.name, self.version)
            or [each.filename for each in self.artifacts] != [_file_at(self.url)]
        ):
            raise ValueError(f"{self.name}: its address is not that of one wheel of {self.version}")

    @property
    def requirement(self) -> str:
        """The line of a requirements file without its hashes."""
        return f"{self.name} @ {self.url}" if self.url else f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class Lock:
    """Pins, and all that was assumed when they were chosen.

    `python` is `3.11`, `platform` `linux-x86_64`, `glibc` the oldest C library it installs on. `needs` are
    facts of the machine it relies on, each `(key, operator, value)` with `>=` or `=`; `train` are the facts
    of the training it was chosen for. `build` names the packages that exist as source only. `date` (ISO),
    `maker` (envcheck's version) and `matrix` (digest of the knowledge) say when and by what it was made.

    Raises:
        ValueError: a word that could not be written into a header.
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

    def __post_init__(self) -> None:
        """Sort what has no order of its own, and refuse what the header cannot carry."""
        object.__setattr__(self, "pins", tuple(sorted(self.pins, key=lambda pin: pin.name)))
        object.__setattr__(self, "needs", tuple(sorted(self.needs)))
        object.__setattr__(self, "train", tuple(sorted(self.train)))
        object.__setattr__(self, "build", tuple(sorted(self.build)))
        once = [pin.name for pin in self.pins]
        if len(set(once)) != len(once):
            raise ValueError("the same package is pinned twice")
        for key, value in self._words():
            if not _KEY.fullmatch(key) or not _WORD.fullmatch(value):
                raise ValueError(f"cannot be written into a lock's header: {key}={value!r}")
        for note in self.notes:
            if not note.isprintable() or note != note.strip() or not note:
                raise ValueError(f"a note is one line of text: {note!r}")

    def _words(self) -> Iterator[tuple[str, str]]:
        for key in ("target", "python", "platform", "glibc", "date", "maker", "matrix"):
            if value := getattr(self, key):
                yield key, value
        yield from ((key, value) for key, _, value in self.needs)
        yield from self.train
        yield from (("build", name) for name in self.build)

    def digest(self) -> str:
        """The sha256 of all the lock says but its prose: it shows that nobody changed a line by hand."""
        import hashlib  # OpenSSL behind it takes a fifth of Python's own start to load

        said = [*_machine_lines(self), *self.notes, _body(self.pins)]
        return "sha256:" + hashlib.sha256("\n".join(said).encode()).hexdigest()


_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILENAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.!+-]*)?")
_KEY = re.compile(r"[a-z][a-z0-9_.]*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,:+-]*")


# --- addresses --------------------------------------------------------------------------------------

# A host and a path, so neither login nor query nor fragment. A text: few locks need it.
_ADDRESS = r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?/(?:[A-Za-z0-9._~!/+-]|%2B)+\.whl"
_WHEEL_PARTS = (5, 6)  # name, version, build if there is one, three tags


def _file_at(url: str) -> str:
    return url.rpartition("/")[2].replace("%2B", "+")


def _wheel_at(url: str) -> tuple[str, str] | None:
    """Name and version of the wheel at an address that a lock may hold, or None if it is no such address."""
    parts = _file_at(url).split("-")
    plain = re.fullmatch(_ADDRESS, url) and len(parts) in _WHEEL_PARTS
    return (normalised(parts[0]), parts[1]) if plain else None


# --- what a package that is built on install needs --------------------------------------------------


class Build(NamedTuple):
    """How a source distribution is built: what must be there before, and the settings that keep it quick."""

    needs: tuple[str, ...] = ()
    settings: str = ""


BUILDS: Mapping[str, Build] = MappingProxyType(
    {
        # 0.19.8's setup.py compiles nothing with DS_BUILD_OPS=0, but wants setuptools, and adds nvidia-ml-py
        # to its own requirements where torch sees a GPU: without that pin, a lock made on a laptop would be
        # incomplete on the machine it is for.
        "deepspeed": Build(needs=("nvidia-ml-py", "setuptools"), settings="DS_BUILD_OPS=0"),
    }
)


def build_needs(build: Iterable[str]) -> tuple[str, ...]:
    """The packages a lock must hold besides, so that these can be built without fetching anything."""
    return tuple(sorted({need for name in build for need in BUILDS.get(name, Build(("setuptools",))).needs}))


def install_commands(build: Collection[str]) -> tuple[str, ...]:
    """The shell lines that install a lock saved as requirements.txt; a stranger can paste them.

    Wheels first, then what is built from source: a build sees the torch it will run with, uses the
    locked setuptools instead of fetching one without a hash, and no other package may be built.
    """
    install = "python -m pip install --no-deps --require-hashes"
    if not build:
        return (f"{install} --only-binary :all: -r requirements.txt",)
    # All lines of a pin but its last end in a backslash: delete from the first to the one that does not.
    deletions = " ".join(f"-e '/^{name}==/,/[^\\\\]$/d'" for name in sorted(build))
    settings = "".join(f"{BUILDS[name].settings} " for name in sorted(build) if name in BUILDS)
    return (
        f"sed {deletions} requirements.txt > wheels.txt && {install} --only-binary :all: -r wheels.txt",
        f"{settings}{install} --no-build-isolation -r requirements.txt",
    )


# --- writing ----------------------------------------------------------------------------------------


def render_requirements(lock: Lock) -> str:
    """The lock as requirements.txt: header, then each package with its hashes. Same lock, same bytes.

    Raises:
        ExamineError: something that belongs to the machine it was made on got in (see `refuse_leaks`).
    """
    text = comments(_header(lock)) + _body(lock.pins)
    refuse_leaks(text, labels(lock), wheel_addresses(lock))
    return text


def comments(lines: Iterable[str]) -> str:
    """The lines as comments, of a requirements file and of TOML alike."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def labels(lock: Lock) -> list[str]:
    """The local version labels of its pins; an engine has already refused those nobody asked for."""
    return [label for pin in lock.pins if (label := Version(pin.version).local)]


def wheel_addresses(lock: Lock) -> list[str]:
    """The addresses of its pins that have one."""
    return [pin.url for pin in lock.pins if pin.url]


def introduction(lock: Lock) -> Iterator[str]:
    """What every format says first: by whom, when and for what it was locked, and what that relies on."""
    by = f"envcheck {lock.maker}".strip()
    when = f" on {lock.date}" if lock.date else ""
    yield f"Locked by {by}{when} for {f'the target {lock.target}' if lock.target else 'no target'}."
    yield ""
    yield f"Python     {lock.python} on {lock.platform}" + (
        f", glibc {lock.glibc} or newer" if lock.glibc else ""
    )
    for key, operator, value in lock.needs:
        yield f"Machine    {key} {value}" + (" or newer" if operator == ">=" else "")
    for key, value in lock.train:
        yield f"Training   {key} = {value}"
    for note in lock.notes:
        yield f"Note       {note}"


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "Install into an empty environment, with this file as requirements.txt:"
    yield from (f"  {command}" for command in install_commands(lock.build))
    yield ""
    yield from _machine_lines(lock)
    yield f"{_MARK}digest={lock.digest()}"
    yield ""


def _machine_lines(lock: Lock) -> Iterator[str]:
    """The lines a program reads back: words of `key=value` or `key>=value`, in a fixed order."""
    said = [("lock", FORMAT)]
    said += [(key, getattr(lock, key)) for key in ("maker", "date", "target", "python", "platform", "glibc")]
    yield _MARK + " ".join(f"{key}={value}" for key, value in said if value)
    for key, operator, value in lock.needs:
        yield f"{_MARK}needs {key}{operator}{value}"
    for key, value in lock.train:
        yield f"{_MARK}train {key}={value}"
    if lock.build:
        yield f"{_MARK}build={','.join(lock.build)}"
    if lock.matrix:
        yield f"{_MARK}matrix={lock.matrix}"


_MARK = "envcheck: "


def _body(pins: Iterable[Pin]) -> str:
    lines = []
    for pin in pins:
        hashes = [f"    --hash=sha256:{file.sha256}" for file in pin.artifacts]
        lines.append(" \\\n".join([pin.requirement, *hashes]))
        lines.extend(f"    # {file.filename}" for file in pin.artifacts if file.filename)
    return "".join(f"{line}\n" for line in lines)


# --- the last defence -------------------------------------------------------------------------------

# Texts, not compiled: serving a shipped lock needs none of them, and they take a quarter of Python's start.
_LEAKS = (
    ("a URL", r"://|\bfile:"),
    ("an index option", r"--(?:extra-)?index-url|--find-links|--trusted-host|--no-index"),
    ("an index option", r"(?m)^\s*-[if]\b"),
    # `/^name==/` and `$/d` of the install command are no paths: a path goes on with a letter or a digit.
    ("an absolute path", r"(?m)(?:^|[\s\"'=(,:])(?:~?/[A-Za-z0-9_.]|[A-Za-z]:\\)"),
    ("an address or a login", r"@"),
)
_LOCAL = r"[0-9]\+([A-Za-z0-9.]+)"


def refuse_leaks(text: str, asked: Collection[str] = (), known: Collection[str] = ()) -> None:
    """Look at a lock once more before it is printed, comments included.

    `asked` are the local version labels (`cu128`) the user chose; any other means that a wheel lying
    about on this machine got into the lock. `known` are the addresses that its pins hold.

    Raises:
        ExamineError: a URL, an index option, an absolute path, a login or an unasked local version; says
            the line, but never repeats what stands there.
    """
    for address in known:
        text = text.replace(f" @ {address}", "")
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in _LEAKS:
            if re.search(pattern, line):
                raise ExamineError(f"refusing to print the lock: line {number} holds {what}")
        for label in re.findall(_LOCAL, line):
            if label not in asked:
                raise ExamineError(
                    f"refusing to print the lock: line {number} holds a local version nobody asked for"
                )


# --- reading ----------------------------------------------------------------------------------------


def parse_requirements(text: str, where: str, local: Collection[str] = (), *, verify: bool = True) -> Lock:
    """Read a lock: every line a pin with hashes. Without envcheck's header the lock has no target.

    `local` are the local version labels to accept; a label says that a file comes from another index.
    Without `verify` the header's digest is not compared: for locks that came with this envcheck.

    Raises:
        InputError: names the line and what is wrong with it.
    """
    if "\0" in text:
        raise InputError(where, "holds a zero byte: not a text file")
    header = _Header(where)
    pins: dict[str, Pin] = {}
    first_seen: dict[str, int] = {}
    for number, requirement, comments in _entries(text, where, header):
        pin = _pin(requirement, comments, f"{where}:{number}", local)
        if pin.name in pins:
            raise InputError(
                f"{where}:{number}", f"{pin.name} is pinned twice, first in line {first_seen[pin.name]}"
            )
        pins[pin.name], first_seen[pin.name] = pin, number
    return header.lock(tuple(pins.values()), verify=verify)


def _entries(text: str, where: str, header: _Header) -> Iterator[tuple[int, str, list[str]]]:
    """Each requirement, its continued lines joined, with the comments that follow it and its line number."""
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
        raise InputError(f"{where}:{start}", "the file ends in the middle of an entry")
    if pending is not None:
        yield pending


def _without_comment(line: str) -> str:
    return re.sub(r"\s#.*$", "", line) if "#" in line else line


_FILES = (".whl", ".tar.gz", ".zip")
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;,]+)")


def _pin(requirement: str, comments: list[str], where: str, local: Collection[str]) -> Pin:
    """One requirement line as a pin. Raises InputError with what is wrong with it."""
    head, *options = requirement.split()
    if head.startswith("-"):
        raise InputError(where, f"expected name==version, found the option {head.partition('=')[0]}")
    url = ""
    if options[:1] == ["@"] and (wheel := _wheel_at("".join(options[1:2]))):
        url, options = options[1], options[2:]
        head = f"{head}=={wheel[1]}"
    if any("://" in word or "@" in word for word in (head, *options)):
        raise InputError(where, "expected name==version, found a direct reference")  # which may hold a login
    found = _PINNED.fullmatch(head)
    if found is None or "*" in found["version"]:
        raise InputError(where, f"expected name==version, found {head[:80]!r}")
    name = normalised(found["name"])
    try:
        version = Version(found["version"])
    except InvalidVersion:
        raise InputError(where, f"{name}: {found['version'][:80]!r} is not a version") from None
    if version.local and not url and version.local not in local:
        raise InputError(
            where, f"{name}: the local version +{version.local} names a file no index is known for"
        )
    hashes = [_sha256(option, where, name) for option in options]
    if not hashes:
        raise InputError(where, f"{name} has no hash")
    files = _files(comments) or ([_file_at(url)] if url else [])
    if files and len(files) != len(hashes):
        raise InputError(
            where, f"{name}: as many hashes as files are needed, here are {len(hashes)} and {len(files)}"
        )
    names = files or [""] * len(hashes)
    artifacts = tuple(Artifact(file, sha256) for file, sha256 in zip(names, hashes, strict=True))
    try:
        return Pin(name, found["version"], artifacts, url)
    except ValueError as error:
        raise InputError(where, str(error)) from None


def _files(comments: Iterable[str]) -> list[str]:
    return [comment for comment in comments if comment.endswith(_FILES) and _FILENAME.fullmatch(comment)]


def _sha256(option: str, where: str, name: str) -> str:
    kind, equals, value = option.partition("=")
    if kind != "--hash" or not equals:
        raise InputError(where, f"{name}: expected --hash=sha256:…, found {kind[:40]!r}")
    algorithm, _, digits = value.partition(":")
    if algorithm != "sha256":
        raise InputError(where, f"{name}: expected a sha256, found {algorithm[:20]!r}")
    if not _SHA256.fullmatch(digits):
        raise InputError(
            where, f"{name}: a sha256 has 64 hexadecimal digits, this one has {len(digits)} characters"
        )
    return digits


class _Header:
    """Collects `# envcheck:` lines; they stand before the first pin, but nothing depends on it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.words: dict[str, str] = {}
        self.needs: list[tuple[str, str, str]] = []
        self.train: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.line = 0

    def read(self, comment: str, number: int) -> bool:
        """Take a comment if it is the header's. Raises InputError for a key that is unknown or said twice."""
        if comment.startswith("Note "):
            self.notes.append(comment[4:].strip())
            return True
        if not comment.startswith(_MARK):
            return False
        self.line = number
        section, _, rest = comment.removeprefix(_MARK).partition(" ")
        match section:
            case "needs":
                self.needs.append(self._split(rest))
            case "train":
                key, _, value = self._split(rest)
                self.train.append((key, value))
            case _:
                for word in comment.removeprefix(_MARK).split():
                    key, _, value = self._split(word)
                    if key not in _HEADER_KEYS or key in self.words:
                        raise InputError(
                            f"{self.where}:{number}", f"header: {key!r} is unknown or said twice"
                        )
                    self.words[key] = value
        return True

    def _split(self, word: str) -> tuple[str, str, str]:
        found = re.fullmatch(r"([a-z][a-z0-9_.]*)(>=|=)(\S+)", word)
        if found is None or not _WORD.fullmatch(found[3]):
            raise InputError(f"{self.where}:{self.line}", f"header: expected key=value, found {word[:80]!r}")
        return found[1], found[2], found[3]

    def lock(self, pins: tuple[Pin, ...], *, verify: bool) -> Lock:
        """The lock of this header and these pins. Raises InputError if they do not belong together."""
        words = dict(self.words)
        place = f"{self.where}:{self.line}" if self.line else self.where
        if not pins:
            raise InputError(self.where, "holds no pins")
        if words and words.pop("lock", "") != FORMAT:
            raise InputError(place, f"header: expected lock={FORMAT}; a newer envcheck may have written this")
        digest = words.pop("digest", "")
        build = tuple(filter(None, words.pop("build", "").split(",")))
        kept = {
            key: words.get(key, "")
            for key in ("target", "python", "platform", "glibc", "date", "maker", "matrix")
        }
        try:
            lock = Lock(
                pins=pins,
                needs=tuple(self.needs),
                train=tuple(self.train),
                build=build,
                notes=tuple(self.notes),
                **kept,
            )
        except ValueError as error:
            raise InputError(place, f"header: {error}") from None
        if verify and self.words and digest != lock.digest():
            raise InputError(
                place, "the pins are not those envcheck wrote (the digest differs); make the lock anew"
            )
        return lock


_HEADER_KEYS = frozenset(
    ("lock", "maker", "date", "target", "python", "platform", "glibc", "build", "matrix", "digest")
)
