"""The user's further indexes, asked for one wheel each: a build that the default index does not hold.

An engine never sees them. What is taken from one is bound to its address and its hash, so no name is
offered by two indexes; and of an index nothing else is told than that address, if it is fit to be told.
"""

from __future__ import annotations

import email
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

from packaging.tags import Tag
from packaging.utils import canonicalize_name

from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.host.machine import Host
from envcheck.lock.model import Artifact, Pin
from envcheck.lock.wheels import release_of, usable_tags
from envcheck.resolver_backends import CompletionRequest, ExtraWheel
from envcheck.resolver_backends.index import Index, IndexReader, ListedFile, one_line, user_extra_indexes
from envcheck.resolver_backends.lazy_wheel import RemoteFile

PAGE_S = 20.0
"""Seconds for an index to answer with one page, or with the metadata of one wheel."""

METADATA_LIMIT = 4 * 1024 * 1024
"""Bytes that may be read for a wheel's metadata: its directory and METADATA have some hundred KiB at most."""


class ExtraIndexWheels(NamedTuple):
    """What one further index answered of a package.

    `label` says which index without its address. `pins` are by version the wheels that a lock may hold,
    `refused` those it may not, and why; `why` is set where the index was not asked or did not answer.
    """

    label: str
    place: Index
    pins: Mapping[str, Pin]
    served: Collection[str] = ()  # versions whose METADATA lies beside the wheel (PEP 658)
    refused: Mapping[str, str] = {}
    why: str = ""


def read_extra_indexes(host: Host, name: str, wanted: CompletionRequest) -> tuple[ExtraIndexWheels, ...]:
    """What every further index of the user's has of a package, with a local label, for the place wanted.

    Indexes are read side by side; one that hangs costs `PAGE_S` seconds.

    Raises:
        ExamineError: the settings forbid the use of any index.
    """
    indexes = user_extra_indexes(host)
    if not indexes:
        return ()
    labels = [
        f"a further index of yours ({setting}{f', number {number}' if len(indexes) > 1 else ''})"
        for number, (setting, _) in enumerate(indexes, 1)
    ]
    with ThreadPoolExecutor(max_workers=8) as pool:
        ask = partial(_shelf, host, name, wanted)
        return tuple(pool.map(ask, labels, [index for _, index in indexes]))


def _shelf(host: Host, name: str, wanted: CompletionRequest, label: str, index: Index) -> ExtraIndexWheels:
    why = _private(index.url)
    if why:
        return ExtraIndexWheels(label, index, {}, why=f"was not asked: its address {why}")
    try:
        files = IndexReader(host, PAGE_S, index).files(name)
    except ExamineError as error:
        return ExtraIndexWheels(label, index, {}, why=f"gave no answer: {error}")
    tags = usable_tags(wanted.python, wanted.platform, wanted.glibc)
    pins: dict[str, Pin] = {}
    served: set[str] = set()
    refused: dict[str, str] = {}
    for file in sorted(files):  # of two wheels of a version that fit, the one with the higher tag counts
        version = _labelled(file, name, tags)
        if not version:
            continue
        pin = _pin(file, name, version, wanted)
        if isinstance(pin, str):
            refused[version] = pin
            continue
        pins[version] = pin
        (served.add if file.metadata else served.discard)(version)
    return ExtraIndexWheels(label, index, pins, served, refused)


def _labelled(file: ListedFile, name: str, tags: Collection[Tag]) -> str:
    """The version of a wheel that fits and has a local label, else nothing."""
    release = release_of(file.name)
    if release is None or release[0] != name or not release[1].local:
        return ""
    return "" if release[2] is None or release[2].isdisjoint(tags) else str(release[1])


def _pin(file: ListedFile, name: str, version: str, wanted: CompletionRequest) -> Pin | str:
    """The wheel as a pin, or why it cannot be one."""
    if file.yanked:
        return "it was withdrawn there"
    if wanted.before and not "" < file.uploaded < wanted.before:
        late = f"it was uploaded after {wanted.until}"
        return late if file.uploaded else "it is not said when it was uploaded"
    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256.lower()):
        return "the index tells no sha256 of it"
    url = urldefrag(file.url)[0]
    if why := _private(url):
        return f"its address {why}"
    head, _, last = url.rpartition("/")
    url = f"{head}/{unquote(last).replace('+', '%2B')}"  # servers disagree about a bare plus sign
    try:
        return Pin(name, version, (Artifact(file.name, file.sha256.lower()),), url)
    except ValueError:
        return "its address is none that a lock may hold"


def why_unavailable(shelf: ExtraIndexWheels, version: str, wanted: CompletionRequest) -> str:
    """Why this index has no wheel of that version for us, as a sentence; nothing if it has."""
    if shelf.why:
        return f"{shelf.label} {shelf.why}"
    if version in shelf.refused and version not in shelf.pins:
        return f"{shelf.label} has that wheel, but {shelf.refused[version]}"
    if version in shelf.pins:
        return ""
    where = f"Python {wanted.python} on {wanted.platform}, glibc {wanted.glibc}"
    return f"{shelf.label} has no such wheel for {where}"


_WORDS = re.compile(r"[A-Z]?[a-z]{0,20}|[A-Za-z0-9]{1,8}")
"""What a part of an address may be that tells nothing: words, numbers, and short mixtures such as `cu118`."""


def _private(url: str) -> str:
    """What of an address must not be told, for a person; nothing if it is a host and a harmless path."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not host:
        return "is not one of the web"
    if "@" in parts.netloc:
        return "holds a login, which a lock would show"
    if parts.query:
        return "holds more than a host and a path, which a lock would show"
    folders = parts.path.split("/")
    if url.endswith(".whl"):
        folders.pop()  # the name of the wheel
    words = re.split(r"[-_.~!+/]", "/".join(folders))
    harmless = all(_WORDS.fullmatch(word) for word in words)
    return "" if harmless else "holds what may be a token, which a lock would show"


# --- what a wheel requires --------------------------------------------------------------------------


def fetch_extra_wheel(host: Host, shelf: ExtraIndexWheels, name: str, version: str) -> ExtraWheel:
    """A wheel of a shelf with its metadata, of which some KiB are read and no more.

    Raises:
        ExamineError: they cannot be had from where the lock would say the wheel lies, or are another's.
    """
    pin = shelf.pins[version]
    reader = IndexReader(host, PAGE_S, shelf.place)
    try:
        metadata = _metadata(reader, pin, beside=version in shelf.served)
    except (ExamineError, ValueError, OSError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        said = str(error) if isinstance(error, ExamineError) else "it is no wheel"
        raise ExamineError(
            f"{shelf.label}: the metadata of {name} {version} cannot be read: {said}"
        ) from None
    about = email.message_from_bytes(metadata)
    named = canonicalize_name(str(about["Name"])), str(about["Version"]).strip()
    if named != (name, version):
        raise ExamineError(f"{shelf.label}: its wheel of {name} {version} says that it is another")
    if any("@" in str(line).partition(";")[0] for line in about.get_all("Requires-Dist", [])):
        # An engine would go wherever it says.
        raise ExamineError(f"{shelf.label}: its wheel of {name} {version} requires a file by its address")
    return ExtraWheel(pin, metadata)


def _metadata(reader: IndexReader, pin: Pin, *, beside: bool) -> bytes:
    if beside:
        return reader.fetch(f"{pin.url}.metadata", METADATA_LIMIT)[0]
    with zipfile.ZipFile(RemoteFile(reader, pin.url, METADATA_LIMIT)) as archive:
        members = [each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each)]
        if len(members) != 1:
            raise ExamineError("it has not one METADATA")
        with archive.open(members[0]) as member:
            return member.read(METADATA_LIMIT)


def fetch_companion_wheel(
    host: Host, shelf: ExtraIndexWheels, name: str, version: str, wanted: CompletionRequest
) -> ExtraWheel:
    """A wheel built for the same CUDA as one that was taken from this shelf's index, from there as well.

    Raises:
        NoSolutionError: it is not there: that of the default index is built for another CUDA.
        ExamineError: as `fetch_extra_wheel` does.
    """
    own = _shelf(host, name, wanted, shelf.label, shelf.place)
    if why := why_unavailable(own, version, wanted):
        raise NoSolutionError(one_line(f"{name} {version} is needed from the same index as torch: {why}"))
    return fetch_extra_wheel(host, own, name, version)
