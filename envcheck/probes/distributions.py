"""Read what is installed in a package folder from its records, with one short read for each record.

A record is a `*.dist-info` folder (PEP 376), an `*.egg-info` folder or file, an `*.egg`, or an `*.egg-link`
to a checkout. `importlib.metadata` would take five times as long as the start of Python, so headers are
parsed here; only Name, Version and Requires-Dist matter. Nothing raises because of what a record contains,
and nothing of a package is imported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from envcheck.core.errors import InputError
from envcheck.core.facts import normalised
from envcheck.core.records import NamedTuple
from envcheck.probes.layout import PLAIN_PTH, check_size

METADATA_LIMIT = 2 * 1024 * 1024
"""The most bytes of a METADATA file that are read: headers are a few kilobytes, the rest is a README."""

_FIRST_READ = 16 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO without a writer must not hang
_MOST_REQUIREMENTS = 2000
_LONGEST_MARKER = 2000  # characters
_LONGEST_VERSION = 200
_KINDS = (".dist-info", ".egg-info", ".egg", ".egg-link")


class InstalledFiles(NamedTuple):
    """One record of one installed distribution.

    `version` is empty if neither the headers nor the record's name contain it; `degraded` means that the
    headers did not. `requires` are the Requires-Dist lines without an extra. `checkout` is the folder of an
    editable install, if the record names it.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    degraded: bool
    editable: bool
    site: str
    entry: str
    checkout: str = ""


def read_site(site: str, place: str, locate: Callable[[str], str]) -> Iterator[InstalledFiles]:
    """Yield the records of a package folder in the order of their names.

    `site` is the path of the folder on the examined machine, `place` its path for this process, and `locate`
    converts other paths of that machine (the checkout that an `.egg-link` names).

    Raises:
        OSError: the folder cannot be listed.
        ExamineError: it is too large.
    """
    names = os.listdir(place)  # noqa: PTH208 - names, not paths
    check_size(site, names)
    names.sort()
    editable = {_editable_name(name) for name in names if name.startswith("__editable__")}
    # An editable install adds its checkout to the path with a `.pth` file: without one, none is editable.
    linked = any(name.endswith(".pth") and name not in PLAIN_PTH for name in names)
    for entry in names:
        # pip renames what it removes to "~orch-…", and an interrupted removal leaves that behind.
        if entry.endswith(_KINDS) and entry[0] not in "~-.":
            record = _read_record(site, place, entry, locate)
            if record is None:
                continue
            checkout = _checkout(f"{place}/{entry}/direct_url.json") if linked else None
            if record.name in editable or checkout is not None:
                record = record._replace(editable=True, checkout=checkout or record.checkout)
            yield record


def _editable_name(entry: str) -> str:
    """Return the distribution of `__editable__.trl-0.12.0.pth`; empty for a finder module."""
    return normalised(_from_name(entry.removeprefix("__editable__."))[0])


def _read_record(site: str, place: str, entry: str, locate: Callable[[str], str]) -> InstalledFiles | None:
    path = f"{place}/{entry}"
    if entry.endswith(".dist-info"):
        head = read_head(f"{path}/METADATA")
        return _record(site, entry, head, editable=False)
    if entry.endswith(".egg-link"):
        return _read_egg_link(site, entry, path, locate)
    folder = f"{path}/EGG-INFO" if entry.endswith(".egg") else path
    # An egg-info may be a file with the content of PKG-INFO.
    head = read_head(f"{folder}/PKG-INFO")
    if not head and entry.endswith(".egg-info"):
        head = read_head(path)
    record = _record(site, entry, head, editable=False)
    return _with_requires_txt(record, folder)


def _read_egg_link(site: str, entry: str, path: str, locate: Callable[[str], str]) -> InstalledFiles | None:
    """Read a `setup.py develop` install: the link's first line is the checkout that contains the egg-info."""
    checkout = _read(path, _FIRST_READ).decode("utf-8", "replace").partition("\n")[0].strip()
    folder = f"{entry.removesuffix('.egg-link').replace('-', '_')}.egg-info"
    if not checkout.startswith("/"):
        return _record(site, entry, b"", editable=True)
    info = f"{locate(checkout)}/{folder}"
    record = _with_requires_txt(_record(site, entry, read_head(f"{info}/PKG-INFO"), editable=True), info)
    return record and record._replace(checkout=checkout)


def _record(site: str, entry: str, head: bytes, *, editable: bool) -> InstalledFiles | None:
    name = normalised(_text(header(head, b"Name")))
    version = _text(header(head, b"Version"))
    degraded = not (_is_name(name) and _is_version(version))
    if degraded:
        entry_name, entry_version = _from_name(entry)
        name = name if _is_name(name) else normalised(entry_name)
        version = version if _is_version(version) else entry_version
        if not _is_name(name):
            return None
    return InstalledFiles(name, version, requirements(head), degraded, editable, site, entry)


def _is_name(name: str) -> bool:
    return name.replace("-", "").isalnum() and name.isascii()


def _is_version(version: str) -> bool:
    """Return whether a version can be shown and compared; it need not follow PEP 440."""
    return 0 < len(version) <= _LONGEST_VERSION and version.isascii() and version.isprintable()


def _from_name(entry: str) -> tuple[str, str]:
    """Split `flash_attn-2.7.4-py3.11.egg-info` into name and version at the first `-` before a digit."""
    stem = entry.rpartition(".")[0]
    for cut in (i for i, char in enumerate(stem) if char == "-"):
        if stem[cut + 1 : cut + 2].isdecimal():
            rest = stem[cut + 1 :]
            version = rest.partition("-py")[0] if not entry.endswith(".dist-info") else rest
            return stem[:cut], version if _is_version(version) else ""
    return stem, ""


# --- headers ----------------------------------------------------------------------------------------


def read_head(path: str) -> bytes:
    """Return the headers of a metadata file, each after a line feed; empty if the file cannot be read.

    Line ends become line feeds. The headers end at the first blank line, as in e-mails, or at METADATA_LIMIT.
    """
    data = _read(path, METADATA_LIMIT, until_blank=True)
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    end = data.find(b"\n\n")
    return b"" if data[:1] in (b"", b"\n") else b"\n" + (data if end < 0 else data[:end])


def header(head: bytes, name: bytes) -> bytes:
    """Return the value of the first header of that name; empty if there is none."""
    start = head.find(b"\n" + name + b":")
    if start < 0:
        # Header names are case-insensitive, although all tools write them as in the standard.
        start = head.lower().find(b"\n" + name.lower() + b":")
        if start < 0:
            return b""
    start += len(name) + 2
    end = head.find(b"\n", start)
    return head[start:] if end < 0 else head[start:end]


def requirements(head: bytes) -> tuple[str, ...]:
    """Return the Requires-Dist lines as written, without those that apply only to an extra."""
    lines = [_folded_line(part) for part in head.split(b"\nRequires-Dist:", _MOST_REQUIREMENTS)[1:]]
    return tuple([_text(line) for line in lines if b"extra" not in line or not _for_extra(line)])


def _folded_line(part: bytes) -> bytes:
    """Return the first line with its continuation lines, which begin with a blank."""
    end = part.find(b"\n")
    while end >= 0 and part[end + 1 : end + 2] in (b" ", b"\t"):
        end = part.find(b"\n", end + 1)
    return part if end < 0 else part[:end]


def _for_extra(line: bytes) -> bool:
    return b"extra" in line.partition(b";")[2]


def _text(value: bytes) -> str:
    text = value.decode("utf-8", "replace").strip()
    return text if "\n" not in text else " ".join(text.split())


def _read(path: str, limit: int, *, until_blank: bool = False) -> bytes:
    """Return at most `limit` bytes of a regular file; empty if it cannot be read."""
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return b""
    try:
        data = os.read(descriptor, min(limit, _FIRST_READ))
        if len(data) < _FIRST_READ or (until_blank and b"\n\n" in data):
            return data
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        while len(data) < limit and (more := os.read(descriptor, min(limit - len(data), 1 << 18))):
            data += more
            if until_blank and b"\n\n" in data:
                break
    except OSError:
        return b""
    else:
        return data
    finally:
        os.close(descriptor)


def _checkout(path: str) -> str | None:
    """Return the checkout in `direct_url.json` (PEP 610), empty if unnamed; None if not editable."""
    text = _read(path, _FIRST_READ)
    if b'"editable":true' not in text.replace(b" ", b"").replace(b"\n", b""):
        return None
    from urllib.parse import unquote, urlsplit

    from envcheck.core.parsing import parse_json

    try:
        url = urlsplit(parse_json(text.decode("utf-8", "replace"), path)["url"])
    except (InputError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return unquote(url.path) if url.scheme == "file" else ""


def _with_requires_txt(record: InstalledFiles | None, folder: str) -> InstalledFiles | None:
    """Add the requirements that setuptools wrote beside an older PKG-INFO, which lacks Requires-Dist."""
    if record is None or record.requires:
        return record
    lines = _read(f"{folder}/requires.txt", METADATA_LIMIT).decode("utf-8", "replace").splitlines()
    return record._replace(requires=tuple(islice(_unconditional(lines), _MOST_REQUIREMENTS)))


def _unconditional(lines: Iterable[str]) -> Iterator[str]:
    """Yield requirements outside an extra's section; `[:marker]` adds a marker to those below it.

    A marker that is too long is cut, and so cannot be read: thousands of requirements would repeat it.
    """
    marker: str | None = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]")
            marker = section[1:] if section.startswith(":") else None
            if marker and len(marker) > _LONGEST_MARKER:
                marker = f"{marker[:_LONGEST_MARKER]}…"
        elif line and marker is not None:
            yield f"{line}; {marker}" if marker else line


# --- several records for one name -------------------------------------------------------------------

_MOST_FILES = 40
_LARGEST_FILE = 256 * 1024


def imported_first(records: list[InstalledFiles], place: Callable[[str], str]) -> list[InstalledFiles]:
    """Return records of one name, starting with the one whose files `import` would find.

    The earlier folder comes first. Within one folder the files decide: an interrupted upgrade leaves two
    records, and only one of them matches the files (python/cpython#100666).
    """
    site = records[0].site
    rivals = [record for record in records if record.site == site]
    if len(rivals) > 1:
        best = max(rivals, key=lambda record: _match(place(site), record.entry))
        return [best, *(record for record in records if record is not best)]
    return records


def _match(place: str, entry: str) -> tuple[float, float]:
    """Return the share of listed files that match their size and hash, and when the record last changed."""
    try:
        changed = os.stat(f"{place}/{entry}").st_mtime  # noqa: PTH116 - strings throughout, for speed
    except OSError:
        changed = 0.0
    listed = _listed(_read(f"{place}/{entry}/RECORD", METADATA_LIMIT).decode("utf-8", "replace"))
    if not listed:
        return 0.0, changed
    return sum(_is_as_listed(place, *row) for row in listed) / len(listed), changed


def _listed(record: str) -> list[tuple[str, str, str]]:
    """Return some files of a RECORD as path, hash and size; those that best distinguish versions first."""
    rows = []
    for line in record.splitlines():
        path, digest, size = (*line.rsplit(",", 2), "", "")[:3]
        # A quoted path contains a comma. It is skipped: such paths are rare, and other files suffice.
        if path and ".dist-info/" not in path and not path.startswith(("..", "/", '"')):
            rows.append((path, digest, size))
    rows.sort(key=lambda row: ("version" not in row[0], "__init__" not in row[0]))
    return rows[:_MOST_FILES]


def shared_libraries(place: str, record: InstalledFiles) -> list[str]:
    """Return the shared libraries in a RECORD, as paths in the package folder; empty without a RECORD."""
    text = _read(f"{place}/{record.entry}/RECORD", METADATA_LIMIT)
    if b".so" not in text:
        return []
    lines = (line.partition(b",")[0] for line in text.splitlines() if b".so" in line and b"\0" not in line)
    paths = (line.decode("utf-8", "replace") for line in lines)
    return [path for path in paths if _is_library(path) and not path.startswith(("..", "/", '"'))]


def _is_library(path: str) -> bool:
    """Return whether a file has a name like `_C.cpython-311-x86_64-linux-gnu.so` or `libpng16.so.16`."""
    name = path.rpartition("/")[2]
    stem, _, version = name.partition(".so")
    return bool(stem) and all(part.isdecimal() for part in version.split(".") if part)


def _is_as_listed(place: str, path: str, digest: str, size: str) -> bool:
    import base64
    import hashlib

    try:
        actual = os.stat(f"{place}/{path}").st_size  # noqa: PTH116
    except (OSError, ValueError):
        return False
    if size and size != str(actual):
        return False
    if not digest.startswith("sha256=") or actual > _LARGEST_FILE:
        return True
    found = hashlib.sha256(_read(f"{place}/{path}", _LARGEST_FILE)).digest()
    return digest.removeprefix("sha256=") == base64.urlsafe_b64encode(found).decode().rstrip("=")


# --- conda ------------------------------------------------------------------------------------------


class CondaRecord(NamedTuple):
    """A conda package; name, version and build string come from the file name of its record."""

    name: str
    version: str
    build: str
    entry: str


def conda_records(entries: Iterable[str]) -> Iterator[CondaRecord]:
    """Yield the packages in a `conda-meta` folder, from names like `pytorch-2.1.0-py3.11_cuda12.1_0.json`."""
    for entry in entries:
        parts = entry.removesuffix(".json").rsplit("-", 2)
        if entry.endswith(".json") and len(parts) == 3:  # noqa: PLR2004 - name, version, build
            name = normalised(parts[0])
            if _is_name(name) and _is_version(parts[1]):
                yield CondaRecord(name, parts[1], parts[2], entry)


def installs_python_files(text: str) -> bool:
    """Return whether a conda record lists Python packages that have no record in a package folder."""
    own_record = ".dist-info/" in text or ".egg-info" in text
    return "site-packages/" in text and not own_record
