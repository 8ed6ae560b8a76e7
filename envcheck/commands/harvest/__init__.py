"""Fetch the published files of every release of the atlas's packages into a folder, and read them there.

This is `envcheck matrix harvest`, for curators. Stored releases are not fetched again, so an interrupted run
continues where it stopped, and a run with nothing new reads one page per package.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from envcheck.atlas.packages import AtlasPackage, read_packages
from envcheck.atlas.release_table import table_release, table_text
from envcheck.commands.harvest.gaps import GapOptions, write_gap_tables
from envcheck.commands.harvest.sdist_files import fetch_sdist
from envcheck.commands.harvest.store import ReleaseStore, index_fields
from envcheck.commands.harvest.wheel_files import KeptFiles, fetch_libraries, fetch_metadata, fetch_wheel
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.suggestions import suggestion
from envcheck.host.files import folder_texts, free_mib, locked_folder, write_file
from envcheck.host.machine import Host
from envcheck.host.package_files import source_texts
from envcheck.knowledge.release_metadata import parse_release_files
from envcheck.resolver_backends.index.connection import NoProjectError
from envcheck.resolver_backends.index.published import ListedRelease, listed_releases
from envcheck.resolver_backends.index.reader import IndexReader, default_index
from envcheck.resolver_backends.index.settings import Index, user_index

CONNECTIONS = 4
"""Number of simultaneous connections to the index."""

ATTEMPTS = 3
"""Number of attempts before a release counts as unreadable."""

RELEASE_S = 600.0
"""Seconds for one attempt at one release."""

FREE_MIB = 2 * 1024
"""MiB of disk that must stay free."""

_PAUSE_S = 2.0
_PIP_S = 30.0

_Read = TypeVar("_Read")

Tell = Callable[[str], None]
"""A function that receives progress, one line at a time."""


@dataclass(frozen=True, kw_only=True)
class HarvestOptions:
    """What to fetch and where to.

    Attributes:
        folder: the store.
        packages: names of packages; empty for all of the atlas.
        output: folder for the readers' results, laid out like `compat/atlas/`; None only fetches.
    """

    folder: Path
    packages: tuple[str, ...] = ()
    output: Path | None = None


@dataclass(kw_only=True)
class _PackageTally:
    """Counts of what happened to the releases of one package.

    `described` counts stored releases whose description was updated, `bytes` is the size of new archives,
    `unread` counts releases that could not be read, `empty` those without code of the package.
    """

    package: str
    releases: int = 0
    fetched: int = 0
    described: int = 0
    bytes: int = 0
    unread: int = 0
    empty: int = 0


def atlas_packages() -> dict[str, AtlasPackage]:
    """Return the packages of the atlas by name.

    Raises:
        InputError: `compat/atlas/packages.toml` is missing or has a mistake.
    """
    texts = source_texts("compat/atlas", ".toml", "packages")
    if "packages.toml" not in texts:
        raise InputError("compat/atlas/packages.toml", "no such file; harvest needs a checkout")
    return read_packages(texts["packages.toml"], "compat/atlas/packages.toml")


def harvest(options: HarvestOptions, host: Host, tell: Tell) -> tuple[str, int]:
    """Fetch what the store lacks; return a summary, and exit code 3 if a release could not be read.

    Raises:
        InputError: a package is not in the atlas, or the folder cannot be used.
        ExamineError: the index cannot be read at all, or the disk is full.
    """
    packages = _chosen(options.packages)
    index = user_index(host)
    if not index.url:
        index = Index(default_index(host, _PIP_S), index.cert)
    with locked_folder(options.folder) as folder:
        store = ReleaseStore(folder)
        text, code = _Harvest(host, index, store, tell).run(packages)
        if options.output is not None:
            text += write_atlas(store, [package.name for package in packages], options.output, tell)
        return text, code


def write_atlas(store: ReleaseStore, packages: Sequence[str], folder: Path, tell: Tell) -> str:
    """Write what the readers find in the stored releases of some packages; return lines about it.

    Raises:
        InputError: a stored release cannot be read, or a file cannot be written.
    """
    text = write_release_table(store, packages, folder)
    options = GapOptions(
        asking=tuple(packages),
        packages=atlas_packages(),
        table=parse_release_files(folder_texts(folder / "releases", ".txt")),
        folder=folder,
        read=dt.datetime.now(tz=dt.UTC).date().isoformat(),
    )
    return text + write_gap_tables(store, options, tell)


def write_release_table(store: ReleaseStore, packages: Sequence[str], folder: Path) -> str:
    """Write `releases/PACKAGE.txt` of each stored package below a folder; return a line about it.

    Raises:
        InputError: a stored release cannot be read, or a file cannot be written.
    """
    size, known = 0, atlas_packages()
    for package in packages:
        built_for = known[package].built_for_installed_torch if package in known else ()
        published = store.releases(package, candidates=True)
        releases = [table_release(release, built_for_torch=built_for) for release in published]
        if releases:
            text = table_text(package, releases)
            write_file(folder / "releases" / f"{package}.txt", text)
            size += len(text.encode())
    return f"{folder / 'releases'}: {len(packages)} packages, {size / 1024:.0f} KiB\n"


def _chosen(names: Sequence[str]) -> list[AtlasPackage]:
    known = atlas_packages()
    for name in names:
        if name not in known:
            raise InputError(name, f"not a package of the atlas{suggestion(name, known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


class _Harvest:
    """One run: pages first, then releases, both by `CONNECTIONS` threads."""

    def __init__(self, host: Host, index: Index, store: ReleaseStore, tell: Tell) -> None:
        self._host, self._index, self._store, self._tell = host, index, store, tell
        self._stop = threading.Event()
        self._unread: list[str] = []

    def run(self, packages: Sequence[AtlasPackage]) -> tuple[str, int]:
        """Fetch everything; return the summary and the exit code."""
        began = time.monotonic()
        with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
            try:
                pages = list(pool.map(self._page, packages))
                tallies = [*self._tallies(packages, pages, pool)]
            finally:
                self._stop.set()  # after an error or Ctrl-C, no further release is started
        return self._summary(tallies, time.monotonic() - began), 3 if self._unread else 0

    def _page(self, package: AtlasPackage) -> list[ListedRelease]:
        files = self._attempt(package.name, lambda reader: reader.files(package.name))
        if files is None:
            return []
        return listed_releases(package.name, files, package.since, candidates=package.candidates)

    def _tallies(
        self, packages: Iterable[AtlasPackage], pages: Iterable[list[ListedRelease]], pool: ThreadPoolExecutor
    ) -> Iterator[_PackageTally]:
        """Yield the tally of each package; releases of the next packages are fetched meanwhile."""
        jobs: list[tuple[AtlasPackage, list[Future[_PackageTally]]]] = [
            (package, [pool.submit(partial(self._release, package, release)) for release in page])
            for package, page in zip(packages, pages, strict=True)
        ]
        for package, futures in jobs:
            total = _PackageTally(package=package.name)
            for future in futures:
                _add(total, future.result())
            self._tell(_line(total))
            yield total

    def _release(self, package: AtlasPackage, release: ListedRelease) -> _PackageTally:
        """Fetch one release into the store; if it is stored, bring its description up to date."""
        tally = _PackageTally(package=package.name, releases=1)
        if self._stop.is_set():
            return tally
        stored = self._store.description(release.package, release.version)
        if stored is not None:
            self._renew(package, release, stored, tally)
            return tally
        if free_mib(self._store.folder) < FREE_MIB:
            raise ExamineError(f"{self._store.folder}: less than {FREE_MIB // 1024} GiB of disk are free")
        kept = self._attempt(
            f"{package.name} {release.version}", lambda reader: _fetch(reader, release, package)
        )
        if kept is None:
            tally.unread = 1
            return tally
        tally.fetched, tally.bytes = 1, self._store.add(release, kept)
        tally.empty = int(not any(package.owns(path) for path in (*kept.files, *kept.others)))
        if _has_unread_libraries(package, release, {}):
            self._renew(package, release, {}, tally)
        return tally

    def _renew(
        self,
        package: AtlasPackage,
        release: ListedRelease,
        stored: Mapping[str, Any],
        tally: _PackageTally,
    ) -> None:
        """Bring the description of a stored release up to date, with its libraries if they were not read."""
        libraries = None
        if _has_unread_libraries(package, release, stored):
            libraries = self._attempt(
                f"{package.name} {release.version}",
                lambda reader: fetch_libraries(reader, release.wheels[0], package),
            )
            tally.unread += libraries is None
        if libraries is not None or {**stored, **index_fields(release)} != stored:
            self._store.describe_anew(release, libraries)
            tally.described = 1

    def _attempt(self, what: str, read: Callable[[IndexReader], _Read]) -> _Read | None:
        """Return what `read` returns; None, and a line of progress, if it fails every time."""
        problem = ""
        for attempt in range(ATTEMPTS):
            if self._stop.wait(attempt * _PAUSE_S):
                return None
            try:
                return read(IndexReader(self._host, RELEASE_S, self._index))
            except NoProjectError as error:
                problem = str(error)
                break
            except ExamineError as error:
                problem = str(error)
        self._unread.append(f"{what}: {problem}")
        self._tell(f"{what}: {problem}")
        return None

    def _summary(self, tallies: Sequence[_PackageTally], seconds: float) -> str:
        total = _PackageTally(package="all")
        for tally in tallies:
            _add(total, tally)
        lines = [f"{_line(total)}, {seconds:.0f} s", *(f"not read: {line}" for line in sorted(self._unread))]
        return "".join(f"{line}\n" for line in lines)


def _fetch(reader: IndexReader, release: ListedRelease, package: AtlasPackage) -> KeptFiles:
    """Return what is kept of a release: from its wheel, else from its source distribution.

    Raises:
        ExamineError: it cannot be read.
    """
    if not release.wheels:
        if not release.sdists:
            raise ExamineError("neither a wheel nor a source distribution")
        return fetch_sdist(reader, release.sdists[0], package)
    wheel = release.wheels[0]
    try:
        return fetch_wheel(reader, wheel, package)
    except ExamineError:
        if not wheel.metadata:
            raise
        return fetch_metadata(reader, wheel)


def _has_unread_libraries(package: AtlasPackage, release: ListedRelease, stored: Mapping[str, Any]) -> bool:
    if not package.libraries or not release.wheels:
        return False
    read = stored.get("libraries")
    return read is None or (package.torch_symbols and any("needs" not in facts for facts in read.values()))


def _add(total: _PackageTally, one: _PackageTally) -> None:
    for name in ("releases", "fetched", "described", "bytes", "unread", "empty"):
        setattr(total, name, getattr(total, name) + getattr(one, name))


def _line(tally: _PackageTally) -> str:
    mib = tally.bytes / (1 << 20)
    parts = [f"{tally.package}: {tally.releases} releases", f"{tally.fetched} fetched ({mib:.1f} MiB)"]
    if tally.described:
        parts.append(f"{tally.described} read again")
    if tally.empty:
        parts.append(f"{tally.empty} without code")
    if tally.unread:
        parts.append(f"{tally.unread} not read")
    return ", ".join(parts)
