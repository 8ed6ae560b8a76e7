"""The user's package index: which it is, what its pages say, and how to keep its address to ourselves.

One index, never two: where two may serve a name, whoever uploads to the second chooses what is
installed. So extra indexes and wheel folders of this machine are left out of a lock on purpose; `further`
asks the former for one wheel by its name, and that is bound to its address.
"""

from __future__ import annotations

import base64
import configparser
import http.client
import json
import re
import ssl
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from envcheck.core.errors import ExamineError, InputError
from envcheck.core.sanitize import clean
from envcheck.host.machine import Host, own_python

PAGE_LIMIT = 64 * 1024 * 1024
"""Bytes of one index page: the largest projects have pages of a few MiB."""

_KEPT = re.compile(
    r"PATH|HOME|LANG|LC_.*|TMPDIR|USER|LOGNAME|XDG_.*|(?:HTTPS?|NO|ALL)_PROXY|(?:https?|no|all)_proxy"
    r"|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|SYSTEMROOT"
    r"|PIP_(?:CERT|CLIENT_CERT|PROXY|TRUSTED_HOST|DEFAULT_TIMEOUT|TIMEOUT|RETRIES|KEYRING_PROVIDER|CACHE_DIR)"
    r"|UV_(?:CACHE_DIR|SYSTEM_CERTS|NATIVE_TLS|INSECURE_HOST|HTTP_.*|OFFLINE|KEYRING_PROVIDER)"
)


class NoProjectError(ExamineError):
    """The index was reached and does not have the project."""


@dataclass(frozen=True, slots=True)
class Index:
    """Where packages come from. `url` may hold a login: never print it. Empty: the tools' own default."""

    url: str = ""
    cert: str = ""

    def __repr__(self) -> str:
        """Without the address: a repr ends up in tracebacks."""
        return "Index(the user's)" if self.url else "Index(the default)"


def user_index(host: Host) -> Index:
    """The one index the user has set: for uv or pip, in the environment or a configuration file.

    Raises:
        ExamineError: the settings forbid the use of any index, or name none that can be read.
    """
    environ = host.environ
    pip = _pip_settings(host)
    forbidding = {
        "PIP_NO_INDEX": environ.get("PIP_NO_INDEX"),
        "UV_NO_INDEX": environ.get("UV_NO_INDEX"),
        "no-index in pip's configuration": pip.get("no-index"),
    }
    for name, said in forbidding.items():
        if (said or "").strip().lower() in ("1", "true", "yes", "on", "y", "t"):
            raise ExamineError(f"{name} forbids the use of an index, and a lock is made from one")
    named = (
        environ.get("UV_DEFAULT_INDEX"),
        environ.get("UV_INDEX_URL"),
        environ.get("PIP_INDEX_URL"),
        _uv_settings(host)[0],
        pip.get("index-url"),
    )
    cert = environ.get("PIP_CERT") or environ.get("SSL_CERT_FILE") or pip.get("cert") or ""
    url = next((url.strip() for url in named if url and url.strip()), "")
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise ExamineError("the address of your index cannot be read") from None  # it may hold a login
    return Index(url, cert)


def user_extra_indexes(host: Host) -> list[tuple[str, Index]]:
    """The user's other indexes, each once, with the name of the setting they stand in; none is the one index.

    Raises:
        ExamineError: the settings forbid the use of any index.
    """
    environ, pip = host.environ, _pip_settings(host)
    lists = {
        "UV_INDEX": environ.get("UV_INDEX"),
        "UV_EXTRA_INDEX_URL": environ.get("UV_EXTRA_INDEX_URL"),
        "PIP_EXTRA_INDEX_URL": environ.get("PIP_EXTRA_INDEX_URL"),
        "uv.toml": _uv_settings(host)[1],
        # A variable takes the place of what pip's files say.
        "pip.conf": "" if environ.get("PIP_EXTRA_INDEX_URL") else pip.get("extra-index-url"),
    }
    if not any(lists.values()):
        return []
    own = user_index(host)
    found: dict[str, tuple[str, Index]] = {}
    for setting, urls in lists.items():
        for word in (urls or "").split():
            url = re.sub(r"^[A-Za-z0-9._-]+=", "", word)  # uv's way to name an index
            if url.rstrip("/") != own.url.rstrip("/"):
                found.setdefault(url.rstrip("/"), (setting, Index(url, own.cert)))
    return list(found.values())


def backend_environment(host: Host, index: Index, extra: Mapping[str, str]) -> dict[str, str]:
    """An engine's environment: what the connection needs, and none of the settings that shape a result.

    `DS_BUILD_OPS=0` because an old DeepSpeed's metadata has to be built, and must compile nothing.
    """
    kept = {name: value for name, value in host.environ.items() if _KEPT.fullmatch(name)}
    if index.cert:
        kept = {"PIP_CERT": index.cert, "SSL_CERT_FILE": index.cert, **kept}
    return {**kept, "DS_BUILD_OPS": "0", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", **extra}


# --- configuration files ----------------------------------------------------------------------------


def _config_folders(host: Host) -> tuple[str, ...]:
    home = host.environ.get("HOME", "")
    own = host.environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    shared = (host.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    return tuple(folder for folder in (*reversed(shared), own) if folder)


def _pip_settings(host: Host) -> dict[str, str]:
    """What pip's configuration files say of indexes and `cert`; a later file overrules an earlier one."""
    named = host.environ.get("PIP_CONFIG_FILE", "")
    if named == "/dev/null":  # pip's own way to say "no configuration at all"
        return {}
    home = host.environ.get("HOME", "")
    folders = _config_folders(host)
    files = [
        *(f"{folder}/pip/pip.conf" for folder in folders[:-1]),
        "/etc/pip.conf",
        *([f"{home}/.pip/pip.conf"] if home else []),
        *(f"{folder}/pip/pip.conf" for folder in folders[-1:]),
        *(f"{folder}/pip.conf" for folder in (host.environ.get("VIRTUAL_ENV"),) if folder),
        *([named] if named else []),
    ]
    settings: dict[str, str] = {}
    for section in ("global", "install"):  # a command's own section beats [global] whatever the file
        for file in files:
            settings.update(_ini_section(host.read_text(file), section))
    return settings


def _ini_section(text: str | None, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text or "")
    except configparser.Error:
        return {}
    if not parser.has_section(section):
        return {}
    return {name.replace("_", "-"): value for name, value in parser.items(section) if value}


def _uv_settings(host: Host) -> tuple[str, str]:
    """The default index of the user's or the system's uv.toml, and the others, apart by spaces."""
    found, further = "", ""
    for file in ("/etc/uv/uv.toml", *(f"{folder}/uv/uv.toml" for folder in _config_folders(host))):
        try:
            said: dict[str, Any] = tomllib.loads(host.read_text(file) or "")
        except tomllib.TOMLDecodeError:
            continue
        rows = [row for row in _list(said.get("index")) if isinstance(row, dict)]
        tables = [row for row in rows if row.get("default")]
        url = tables[0].get("url") if tables else said.get("index-url")
        found = url if isinstance(url, str) else found
        others = [row.get("url") for row in rows if row not in tables] + _list(said.get("extra-index-url"))
        further = " ".join((further, *(each for each in others if isinstance(each, str))))
    return found, further


def _list(said: object) -> list[Any]:
    return said if isinstance(said, list) else []


# --- keeping secrets --------------------------------------------------------------------------------

_SECRET_LENGTH = 4  # shorter pieces of an address would blank out half of every message
# A password may hold what ends an address elsewhere.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^\s/]*@)?[^\s`'\"<>)\],]*")


def redact(text: str, index: Index, places: Iterable[str] = ()) -> str:
    """Foreign text fit to be shown: no URL, no part of the index's address, none of these folders."""
    text = _URL.sub("<url>", text)
    parts = urlsplit(index.url)
    login = parts.netloc.rpartition("@")[0]
    pieces = [
        index.url,
        parts.netloc,
        login,
        *login.split(":"),
        parts.hostname or "",
        *parts.path.split("/"),
        *places,
    ]
    # Path segments and logins hold tokens; words such as "simple" tell nothing and are left readable.
    secrets = {
        piece
        for piece in pieces
        if len(piece) >= _SECRET_LENGTH and piece not in ("simple", "pypi", "root", "index")
    }
    secrets |= {unquote(piece) for piece in secrets}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return clean(text)


def one_line(text: str, limit: int = 600) -> str:
    """Text as one line of at most `limit` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


# --- reading pages ----------------------------------------------------------------------------------

_ASK_PIP = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def default_index(host: Host, deadline_s: float) -> str:
    """The address pip uses when nobody names one: pip is asked, so that it is written nowhere here.

    Raises:
        ExamineError: pip does not say.
    """
    ran = host.run([own_python(), "-I", "-c", _ASK_PIP], deadline_s)
    url = ran.out.strip()
    if ran.code != 0 or "://" not in url:
        raise ExamineError("pip does not name its default index; set PIP_INDEX_URL")
    return url


def release_files(
    host: Host, index: Index, names: Iterable[str], python: str, deadline_s: float
) -> dict[str, tuple[ListedFile, ...]]:
    """All files of projects that have a sha256, as the index's own pages give them (PEP 503 or PEP 691).

    Addresses are full ones. Files that exclude this Python (none of them if it is empty) are left
    out. Pages are read side by side.

    Raises:
        ExamineError: the index cannot be reached, is too slow, or has a page that cannot be read.
    """
    end = time.monotonic() + deadline_s
    if not index.url:
        index = Index(default_index(host, min(30.0, deadline_s)), index.cert)
    reader = _PageReader(index, python, end)
    with ThreadPoolExecutor(max_workers=8) as pool:
        names = sorted(names)
        return dict(zip(names, pool.map(reader.project, names), strict=True))


def file_addresses(
    host: Host, wanted: Mapping[str, Iterable[str]], deadline_s: float, *, own: bool
) -> dict[str, str]:
    """Where files lie: sha256 → address, of the sha256s `wanted` of each project.

    They are without login, query and fragment. Addresses on an index of the user's own are given only if
    `own` says so: they name a private host.

    Raises:
        InputError: the index is the user's own, and nobody said that its addresses may be shown.
        ExamineError: it cannot be read, or does not have such a file.
    """
    index = user_index(host)
    if index.url and not own and index.url.rstrip("/") != default_index(host, 30.0).rstrip("/"):
        raise InputError(
            "--format pylock",
            "holds the address of every file, and your index is your own, which is never shown unasked; "
            "--show-index allows it (without the login)",
        )
    pages = release_files(host, index, wanted, "", deadline_s)
    found: dict[str, str] = {}
    for name, sha256s in wanted.items():
        places = {each.sha256: each.url for each in pages[name]}
        for sha256 in sha256s:
            if sha256 not in places:
                raise ExamineError(f"the index has no file of {name} with the sha256 {sha256[:12]}…")
            parts = urlsplit(places[sha256])
            found[sha256] = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return found


class ListedFile(NamedTuple):
    """A file on a project's page.

    `uploaded` is an ISO time or empty, `metadata` whether its METADATA is served beside it (PEP 658).
    """

    name: str
    sha256: str
    requires_python: str
    url: str
    yanked: bool = False
    uploaded: str = ""
    metadata: bool = False
    reason: str = ""  # why it was yanked, if somebody said


class IndexReader:
    """Pages and files of the user's one index, or another, within `deadline_s` seconds altogether."""

    def __init__(self, host: Host, deadline_s: float, other: Index | None = None) -> None:
        """Find the index.

        Raises:
            ExamineError: pip does not say which it is.
        """
        index = other or user_index(host)
        if not index.url:
            index = Index(default_index(host, min(30.0, deadline_s)), index.cert)
        self._reader = _PageReader(index, "", time.monotonic() + deadline_s)

    def files(self, name: str) -> tuple[ListedFile, ...]:
        """Every file of a project, with a full address. Raises ExamineError."""
        return tuple(self._reader.listed(name))

    def fetch(self, url: str, limit: int, part: tuple[int, int] | None = None) -> tuple[bytes, str]:
        """A file's bytes, or those of one range (first and last, or minus how many from the end and 0).

        Gives the bytes and the Content-Range, which is empty for a whole file.

        Raises:
            ExamineError: it cannot be read, is too slow, is larger than `limit` bytes, or the server would
                send the whole instead of a part.
        """
        return self._reader.fetch(url, limit, part)


@dataclass(frozen=True, slots=True)
class _PageReader:
    """Reads one index until a moment of the monotonic clock."""

    index: Index
    python: str
    end: float

    def project(self, name: str) -> tuple[ListedFile, ...]:
        """The files of one project that carry a sha256. Raises ExamineError."""
        return tuple(
            each for each in self.listed(name) if each.sha256 and _admits(each.requires_python, self.python)
        )

    def listed(self, name: str) -> list[ListedFile]:
        """All that the page of one project says of its files, with full addresses. Raises ExamineError."""
        page = self.page_address(name)
        body, kind = self._page(name)
        try:
            text = body.decode("utf-8")
            files = _json_files(text) if "json" in kind else _html_files(text)
            return [each._replace(url=urljoin(page, each.url)) for each in files]
        # AssertionError is html.parser's own for a declaration it does not know.
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
            raise ExamineError(f"the index's page of {name} cannot be read") from None

    def fetch(self, url: str, limit: int, part: tuple[int, int] | None = None) -> tuple[bytes, str]:
        """A file or a part of it, as `Reader.fetch` says."""
        name = urlsplit(url).path.rpartition("/")[2]
        request = self._addressed(url)
        if part is not None:
            first, last = part
            request.add_header("Range", f"bytes={first}-{last}" if first >= 0 else f"bytes={first}")
        request.add_header("Accept-Encoding", "identity")  # a range of packed bytes is not what was meant
        with self._answer(request, name) as response:
            where = response.headers.get("Content-Range") or ""
            if part is not None and not where:  # the whole of it comes, hundreds of MiB
                raise ExamineError("the index serves no parts of files (HTTP ranges)")
            return self._body(response, name, limit), where

    def _page(self, name: str) -> tuple[bytes, str]:
        request = self._addressed(self.page_address(name))
        request.add_header("Accept", "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
        with self._answer(request, name) as response:
            return self._body(response, name, PAGE_LIMIT), response.headers.get("Content-Type", "")

    @contextmanager
    def _answer(self, request: urllib.request.Request, name: str) -> Iterator[Any]:
        try:
            with _opener(self.index.cert).open(request, timeout=self._left(name)) as response:
                yield response
        except urllib.error.HTTPError as error:
            kind = NoProjectError if error.code == HTTPStatus.NOT_FOUND else ExamineError
            raise kind(f"the index answers {error.code} for {name}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            said = one_line(redact(str(reason) or type(error).__name__, self.index))
            raise ExamineError(f"the index cannot be read: {said}") from None

    def page_address(self, name: str) -> str:
        """Where a project's page is; the login is left out. Raises ExamineError."""
        parts = urlsplit(self.index.url)
        if parts.scheme not in ("http", "https", "file"):
            raise ExamineError("the index is neither http, https nor file")
        netloc = parts.netloc.rpartition("@")[2]
        page = "index.html" if parts.scheme == "file" else ""
        return urlunsplit((parts.scheme, netloc, f"{parts.path.rstrip('/')}/{name}/{page}", "", ""))

    def _addressed(self, url: str) -> urllib.request.Request:
        asked, index = urlsplit(url), urlsplit(self.index.url)
        if asked.scheme not in ("http", "https", "file"):
            raise ExamineError("the index names a file that is neither http, https nor file")
        request = urllib.request.Request(url)  # noqa: S310 - the scheme was looked at
        login, _, netloc = index.netloc.rpartition("@")
        if login and (asked.scheme, asked.netloc) == (index.scheme, netloc):
            token = base64.b64encode(unquote(login if ":" in login else f"{login}:").encode()).decode()
            # Unredirected: a login is for this host alone.
            request.add_unredirected_header("Authorization", f"Basic {token}")
        return request

    def _left(self, name: str) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise ExamineError(f"the index took too long (reading {name})")
        return min(left, 30.0)

    def _body(self, response: Any, name: str, limit: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        # read1: an answer that drips must not outlive the deadline inside one long read.
        while chunk := response.read1(1 << 16) if hasattr(response, "read1") else response.read(1 << 16):
            size += len(chunk)
            if size > limit:
                raise ExamineError(f"what the index has of {name} is larger than {limit / (1 << 20):g} MiB")
            self._left(name)
            chunks.append(chunk)
        return b"".join(chunks)


@lru_cache(maxsize=1)
def _opener(cert: str) -> urllib.request.OpenerDirector:
    """One for all pages: certificates take longer to load than a page."""
    path = Path(cert) if cert else None
    context = ssl.create_default_context(cafile=str(path) if path and path.is_file() else None)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))


def _json_files(text: str) -> list[ListedFile]:
    return [
        ListedFile(
            file["filename"],
            file["hashes"].get("sha256") or "",
            file.get("requires-python") or "",
            file.get("url") or "",
            bool(file.get("yanked")),
            file.get("upload-time") or "",
            bool(file.get("core-metadata") or file.get("dist-info-metadata")),
            file["yanked"] if isinstance(file.get("yanked"), str) else "",
        )
        for file in json.loads(text)["files"]
        if _is_text(file["filename"], file["hashes"].get("sha256"), file.get("requires-python"))
        and _is_text(file.get("url"), file.get("upload-time"))
    ]


def _is_text(*said: object) -> bool:
    """Whether all of it is text or missing. Raises TypeError if not."""
    if any(each is not None and not isinstance(each, str) for each in said):
        raise TypeError("expected text")
    return True


def _html_files(text: str) -> list[ListedFile]:
    links = _Links()
    links.feed(text)
    return links.files


class _Links(HTMLParser):
    """The links of a PEP 503 page."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[ListedFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an `<a href="…/name.whl#sha256=…">`, with a hash or without."""
        said = dict(attrs)
        if tag != "a" or not (href := said.get("href")):
            return
        url, fragment = urldefrag(href)
        found = re.search(r"(?:^|&)sha256=([0-9a-fA-F]{64})(?:&|$)", fragment)
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        self.files.append(
            ListedFile(
                name,
                found[1].lower() if found else "",
                said.get("data-requires-python") or "",
                url,
                "data-yanked" in said,
                said.get("data-upload-time") or "",
                "data-core-metadata" in said or "data-dist-info-metadata" in said,
                said.get("data-yanked") or "",
            )
        )


@lru_cache(maxsize=1024)
def _admits(requires_python: str, python: str) -> bool:
    """Whether some patch release of this Python may install the file; an unreadable bound excludes none."""
    if not requires_python or not python:
        return True
    try:
        specifier = SpecifierSet(requires_python)
    except InvalidSpecifier:
        return True
    # `>=3.11.4` admits 3.11: the lock is for the minor version, and pip asks again on install.
    return any(specifier.contains(f"{python}.{patch}") for patch in (0, 50))
