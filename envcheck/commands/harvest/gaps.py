"""Read the code of all stored releases, and write what they ask of one another: `compat/atlas/gaps/`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from envcheck.atlas.entries import PACKAGES
from envcheck.atlas.gaps import CodeGap
from envcheck.atlas.import_guards import find_import_guards
from envcheck.atlas.missing_names import find_missing_names
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.summary import FileSummary
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.rules import AtlasRow
from envcheck.host.files import store_file, write_file
from envcheck.knowledge.atlas import gaps_text, spans_of

Tell = Callable[[str], None]
"""Takes progress, a line at a time."""

READERS: tuple[Callable[[PackageReader, PackageReader], list[CodeGap]], ...] = (
    find_missing_names,
    find_import_guards,
)
"""What is looked for in the code of a package and a partner."""

_SUMMARIES = ".summaries"
"""Folder in the store for what the files of each package contain, so that no file is read twice."""


class StoredReaders:
    """The readers of all stored packages, with what was learnt of their files in earlier runs."""

    def __init__(self, store: ReleaseStore, packages: Sequence[str]) -> None:
        """Take the store and the packages that are compared with one another."""
        self._store = store
        self._known: dict[str, int] = {}
        self.readers: dict[str, PackageReader] = {}
        for package in packages:
            releases = list(store.releases(package))
            if releases:
                reader = PackageReader(package, releases, self._load(package), self.readers)
                self.readers[package] = reader
                self._known[package] = len(reader.cache)

    def save(self) -> None:
        """Keep what was learnt since the last call."""
        for package, reader in self.readers.items():
            if len(reader.cache) > self._known[package]:
                store_file(self._file(package), pickle.dumps(dict(reader.cache)))
                self._known[package] = len(reader.cache)

    def _load(self, package: str) -> dict[str, FileSummary]:
        file = self._file(package)
        # The store belongs to the curator, and this class alone writes these files.
        return pickle.loads(file.read_bytes()) if file.is_file() else {}  # noqa: S301

    def _file(self, package: str) -> Path:
        return self._store.folder / _SUMMARIES / f"{package}.pickle"


def write_gap_tables(
    store: ReleaseStore, asking: Sequence[str], packages: Sequence[str], folder: Path, read: str, tell: Tell
) -> str:
    """Write `gaps/PACKAGE.toml` of the asking packages below a folder; return a line about it.

    `packages` are all that are compared, `read` is the ISO date of the harvest.

    Raises:
        InputError: a stored release cannot be read, or a file cannot be written.
    """
    stored = StoredReaders(store, packages)
    size = count = 0
    for package in asking:
        if package not in stored.readers or not _has_entries(package):
            continue
        rows = list(atlas_rows(package, stored.readers))
        stored.save()
        tell(f"{package}: {len(rows)} gaps")
        if rows:
            text = gaps_text(package, rows, read)
            write_file(folder / "gaps" / f"{package}.toml", text)
            size, count = size + len(text.encode()), count + len(rows)
    return f"{folder / 'gaps'}: {count} gaps, {size / 1024:.0f} KiB\n"


def atlas_rows(package: str, readers: Mapping[str, PackageReader]) -> Iterator[AtlasRow]:
    """Yield what the releases of a package ask of each partner that lacks it."""
    asking = readers[package]
    partners = {demand.what.partner for version in asking.by_version for demand in asking.demands(version)}
    for partner in sorted(readers.keys() - {package}):
        for read in READERS:
            if read is find_missing_names and partner not in partners:
                continue
            for gap in read(asking, readers[partner]):
                yield atlas_row(gap, asking, readers[partner])


def atlas_row(gap: CodeGap, package: PackageReader, partner: PackageReader) -> AtlasRow:
    """Return a gap as a row: releases as spans, with the place in the newest release of each span."""
    spans = spans_of(gap.releases, list(package.by_version))
    place_of = dict(zip(gap.releases, gap.places, strict=True))
    return AtlasRow(
        package=gap.package,
        partner=gap.partner,
        kind=gap.kind.value,
        entry=gap.entry,
        needs=gap.needs,
        releases=spans,
        lacking=spans_of(gap.lacking, list(partner.by_version)),
        places=tuple(place_of[last] for _, last in spans),
    )


def _has_entries(package: str) -> bool:
    known = PACKAGES.get(package)
    return known is not None and bool(known.entries)
