"""Read the user's extra indexes for wheels of one package: builds that the default index does not have.

Backends never use these indexes. A wheel from one of them is bound to its address and hash, so that only one
index provides each package. That address is all that is ever shown of an extra index, and only if it contains
nothing private.
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
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader
from envcheck.resolver_backends.index.redaction import one_line
from envcheck.resolver_backends.index.settings import Index, user_extra_indexes

PAGE_S = 20.0
"""Maximum seconds for an index to answer with one page, or with the metadata of one wheel."""

METADATA_LIMIT = 4 * 1024 * 1024
"""Maximum bytes to read for a wheel's metadata: its directory and METADATA have a few hundred KiB at most."""


class ExtraIndexWheels(NamedTuple):
    """Wheels of one package on one extra index.

    `label` names the index without its address. `pins` has the wheels that a lock may contain, by version.
    `refused` has the reason for each version that a lock may not contain. `why` says why the index was not
    read or did not answer; otherwise it is empty.
    """

    label: str
    source: Index
    pins: Mapping[str, Pin]
    served: Collection[str] = ()  # versions whose METADATA is served beside the wheel (PEP 658)
    refused: Mapping[str, str] = {}
    why: str = ""


def read_extra_indexes(host: Host, name: str, request: CompletionRequest) -> tuple[ExtraIndexWheels, ...]:
    """Return, for each extra index, the wheels of a package that have a local label and fit the platform.

    The indexes are read in parallel; one that hangs costs `PAGE_S` seconds.

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
        read = partial(_read_index, host, name, request)
        return tuple(pool.map(read, labels, [index for _, index in indexes]))


def _read_index(
    host: Host, name: str, request: CompletionRequest, label: str, index: Index
) -> ExtraIndexWheels:
    private = _why_private(index.url)
    if private:
        return ExtraIndexWheels(label, index, {}, why=f"was not queried: its address {private}")
    try:
        files = IndexReader(host, PAGE_S, index).files(name)
    except ExamineError as error:
        return ExtraIndexWheels(label, index, {}, why=f"did not answer: {error}")
    tags = usable_tags(request.python, request.platform, request.glibc)
    pins: dict[str, Pin] = {}
    served: set[str] = set()
    refused: dict[str, str] = {}
    for file in sorted(files):  # if two wheels of a version fit, the last in this order is used
        version = _labelled_version(file, name, tags)
        if not version:
            continue
        pin = _pin(file, name, version, request, index.url)
        if isinstance(pin, str):
            refused[version] = pin
            continue
        pins[version] = pin
        (served.add if file.metadata else served.discard)(version)
    return ExtraIndexWheels(label, index, pins, served, refused)


def _labelled_version(file: ListedFile, name: str, tags: Collection[Tag]) -> str:
    """Return the version of a wheel that fits and has a local label; otherwise an empty text."""
    release = release_of(file.name)
    if release is None or release[0] != name or not release[1].local:
        return ""
    return "" if release[2] is None or release[2].isdisjoint(tags) else str(release[1])


def _pin(file: ListedFile, name: str, version: str, request: CompletionRequest, index: str) -> Pin | str:
    """Return the wheel as a pin, or the reason why a lock may not contain it.

    `index` is the address of the index, which was found harmless.
    """
    if file.yanked:
        return "it was withdrawn there"
    if request.before and not "" < file.uploaded < request.before:
        too_late = f"it was uploaded after {request.until}"
        return too_late if file.uploaded else "its upload time is not known"
    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256.lower()):
        return "the index gives no sha256 for it"
    url = urldefrag(file.url)[0]
    if private := _why_private(url):
        return f"its address {private}"
    head, _, last = url.rpartition("/")
    url = f"{head}/{unquote(last).replace('+', '%2B')}"  # servers disagree about a bare plus sign
    try:
        return Pin(name, version, (Artifact(file.name, file.sha256.lower()),), url, index)
    except ValueError:
        return "its address must not be in a lock"


def why_unavailable(wheels: ExtraIndexWheels, version: str, request: CompletionRequest) -> str:
    """Return why this index has no usable wheel of a version, as a sentence; empty if it has one."""
    if wheels.why:
        return f"{wheels.label} {wheels.why}"
    if version in wheels.pins:
        return ""
    if version in wheels.refused:
        return f"{wheels.label} has that wheel, but {wheels.refused[version]}"
    where = f"Python {request.python} on {request.platform}, glibc {request.glibc}"
    return f"{wheels.label} has no such wheel for {where}"


_HARMLESS_PART = re.compile(r"[A-Z]?[a-z]{0,20}|[A-Za-z0-9]{1,8}")
"""Parts of an address that cannot be a token: words, numbers, and short mixtures such as `cu118`."""


def _why_private(url: str) -> str:
    """Return why an address must not be shown; empty if it is a host and a harmless path."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not host:
        return "is not a web address"
    if "@" in parts.netloc:
        return "contains a login, which a lock would show"
    if parts.query:
        return "contains more than a host and a path, which a lock would show"
    folders = parts.path.split("/")
    if url.endswith(".whl"):
        folders.pop()  # the file name of the wheel is not private
    words = re.split(r"[-_.~!+/]", "/".join(folders))
    harmless = all(_HARMLESS_PART.fullmatch(word) for word in words)
    return "" if harmless else "contains what may be a token, which a lock would show"


# --- what a wheel requires --------------------------------------------------------------------------


def fetch_extra_wheel(host: Host, wheels: ExtraIndexWheels, name: str, version: str) -> ExtraWheel:
    """Return a wheel of an extra index with its metadata; only a few KiB of the wheel are read.

    Raises:
        ExamineError: the metadata cannot be read from the address that the lock would contain, belongs to
            another wheel, or requires a file by its address.
    """
    pin = wheels.pins[version]
    reader = IndexReader(host, PAGE_S, wheels.source)
    try:
        metadata = _metadata(reader, pin, beside=version in wheels.served)
    except (ExamineError, ValueError, OSError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error) if isinstance(error, ExamineError) else "it is no wheel"
        raise ExamineError(
            f"{wheels.label}: the metadata of {name} {version} cannot be read: {reason}"
        ) from None
    fields = email.message_from_bytes(metadata)
    if (canonicalize_name(str(fields["Name"])), str(fields["Version"]).strip()) != (name, version):
        raise ExamineError(f"{wheels.label}: its wheel of {name} {version} states another name or version")
    if any("@" in str(line).partition(";")[0] for line in fields.get_all("Requires-Dist", [])):
        # A backend would fetch from any address in the metadata.
        raise ExamineError(f"{wheels.label}: its wheel of {name} {version} requires a file by its address")
    return ExtraWheel(pin, metadata)


def _metadata(reader: IndexReader, pin: Pin, *, beside: bool) -> bytes:
    if beside:
        return reader.fetch(f"{pin.url}.metadata", METADATA_LIMIT)[0]
    with zipfile.ZipFile(RemoteFile(reader, pin.url, METADATA_LIMIT)) as archive:
        members = [
            member for member in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", member)
        ]
        if len(members) != 1:
            raise ExamineError("it does not have exactly one METADATA")
        with archive.open(members[0]) as member:
            return member.read(METADATA_LIMIT)


def fetch_companion_wheel(
    host: Host, wheels: ExtraIndexWheels, name: str, version: str, request: CompletionRequest
) -> ExtraWheel:
    """Return a wheel of another package from the index of `wheels`, where it is built for the same CUDA.

    Raises:
        NoSolutionError: that index has no usable wheel. The default index's wheel would be for another CUDA.
        ExamineError: as `fetch_extra_wheel` raises it.
    """
    found = _read_index(host, name, request, wheels.label, wheels.source)
    if why := why_unavailable(found, version, request):
        raise NoSolutionError(one_line(f"{name} {version} is needed from the same index as torch: {why}"))
    return fetch_extra_wheel(host, found, name, version)
