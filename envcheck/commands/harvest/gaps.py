"""Read the code of all stored releases, and write what they need of one another: `compat/atlas/gaps/`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envcheck.atlas.binary_gaps import find_binary_gaps
from envcheck.atlas.call_guards import find_call_guards
from envcheck.atlas.class_patches import find_patch_gaps
from envcheck.atlas.entries import entries_seen_by, use_entries
from envcheck.atlas.gaps import CodeGap
from envcheck.atlas.import_guards import find_import_guards
from envcheck.atlas.keywords import find_keyword_gaps
from envcheck.atlas.missing_names import find_missing_names, late_demands
from envcheck.atlas.overrides import find_override_gaps
from envcheck.atlas.packages import AtlasPackage
from envcheck.atlas.python_gaps import find_python_gaps
from envcheck.atlas.python_names import python_names_mark, python_releases, use_python_names
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.registrations import find_registrations
from envcheck.atlas.repeats import without_repeats
from envcheck.atlas.symbol_gaps import find_symbol_gaps
from envcheck.commands.harvest.code_digest import code_digest, short_digest
from envcheck.commands.harvest.kept_rows import rows_with_kept
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.errors import InputError
from envcheck.core.rules import AtlasRow
from envcheck.host.files import store_file, write_file
from envcheck.host.package_files import source_texts
from envcheck.knowledge.atlas import gaps_text, spans_of
from envcheck.knowledge.release_metadata import ReleaseTable

Tell = Callable[[str], None]
"""A function that receives progress, one line at a time."""

READERS: tuple[Callable[[PackageReader, PackageReader], list[CodeGap]], ...] = (
    find_missing_names,
    find_import_guards,
    find_call_guards,
    find_keyword_gaps,
    find_override_gaps,
    find_patch_gaps,
    find_registrations,
)
"""The functions that search for gaps in the code of a package and a partner."""

_SUMMARIES = ".summaries"
"""Folder in the store for summaries of each package's files, so that no file is parsed twice.

It also holds what was read of each release, so that a refresh reads new releases only.
"""

_SUMMARY = "python_file"
"""The module of `envcheck.atlas` that makes a summary."""

_READINGS = {
    "entries": "demands",
    "calls": "entry_calls",
    "refusals": "import_guards",
    "overrides": "overriding",
    "registered": "registrations",
    "import calls": "import_calls",
    "patches": "class_patches",
    "call refusals": "call_guards",
}
"""The kinds of readings of a release, each with the module that makes it.

A stored reading counts as long as this module, and those that it imports, contain the same statements.
"""


_OF_CALLS = ("calls", "overrides", "call refusals")
"""The kinds of readings that begin at what users call, not at what they import."""


class StoredReaders:
    """Readers of all stored packages, with the summaries and readings of earlier runs."""

    def __init__(self, store: ReleaseStore, packages: Sequence[str]) -> None:
        """Take the store and the packages that are compared with one another."""
        use_shipped_entries()
        self._store = store
        # What one asks depends on the predicates of the others that are stored.
        self._packages = " ".join(sorted(each for each in packages if store.versions(each, candidates=True)))
        self._kept: list[_Kept] = []
        self.readers: dict[str, PackageReader] = {}
        for package in packages:
            releases = list(store.releases(package, candidates=True))
            if releases:
                summaries = _Kept([(None, self._summaries_file(package))])
                readings = _Kept([(kind, self._readings_file(package, kind)) for kind in _READINGS])
                self._kept += [summaries, readings]
                self.readers[package] = PackageReader(package, releases, summaries, self.readers, readings)

    def save(self) -> None:
        """Store the summaries and readings that were made since the last call."""
        for each in self._kept:
            each.save()

    def _summaries_file(self, package: str) -> Path:
        return self._store.folder / _SUMMARIES / f"{package}-{code_digest(_SUMMARY)}.pickle"

    def _readings_file(self, package: str, kind: str) -> Path:
        table = entries_seen_by(package, calls=kind in _OF_CALLS)
        digest = short_digest(code_digest(_READINGS[kind]), self._packages, table, python_names_mark())
        return self._store.folder / _SUMMARIES / f"{package}-{kind}-{digest}.pickle"


class _Kept(MutableMapping[Any, Any]):
    """Readings of one package by earlier runs, loaded from its files when first needed.

    A run that reads one release of one package asks a few partners, not all of them. With a kind, the keys of
    a file are versions, and those of the mapping are the kind and the version.
    """

    def __init__(self, files: Sequence[tuple[str | None, Path]]) -> None:
        self._files = files
        self._found: dict[Any, Any] | None = None
        self._sizes: dict[Path, int] = {}

    def save(self) -> None:
        for kind, file in self._files if self._found is not None else ():
            found = self._of(kind)
            if len(found) > self._sizes[file]:
                store_file(file, pickle.dumps(found))
                self._sizes[file] = len(found)

    def _of(self, kind: str | None) -> dict[Any, Any]:
        if kind is None:
            return dict(self._data)
        return {key[1]: value for key, value in self._data.items() if key[0] == kind}

    @property
    def _data(self) -> dict[Any, Any]:
        if self._found is None:
            self._found = {}
            for kind, file in self._files:
                # Unpickling is safe: the store is the curator's own, and only this class writes these files.
                found = pickle.loads(file.read_bytes()) if file.is_file() else {}  # noqa: S301
                self._sizes[file] = len(found)
                self._found.update(found if kind is None else {(kind, key): found[key] for key in found})
        return self._found

    def __getitem__(self, key: object) -> object:
        return self._data[key]

    def __setitem__(self, key: object, value: object) -> None:
        self._data[key] = value

    def __delitem__(self, key: object) -> None:
        del self._data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


def use_shipped_entries() -> None:
    """Load the names that users import and call of each package, for the readers.

    Raises:
        InputError: `compat/atlas/entries.toml` is missing or has a mistake.
    """
    name = "entries.toml"
    texts = source_texts("compat/atlas", ".toml", "entries")
    if name not in texts:
        raise InputError(f"compat/atlas/{name}", "no such file; harvest needs a checkout")
    use_entries(texts[name], f"compat/atlas/{name}")
    use_python_names(source_texts("compat/names", ".txt", "python").get("python.txt", ""))


@dataclass(frozen=True, kw_only=True)
class GapOptions:
    """What to read.

    Attributes:
        asking: packages whose code is read.
        packages: all packages of the atlas, by name; those in the store are the partners.
        table: what the releases were built for.
        folder: a folder laid out like `compat/atlas/`, for the tables.
        read: ISO date of the harvest.
    """

    asking: tuple[str, ...]
    packages: Mapping[str, AtlasPackage]
    table: ReleaseTable
    folder: Path
    read: str


def write_gap_tables(store: ReleaseStore, options: GapOptions, tell: Tell) -> str:
    """Write `gaps/PACKAGE.toml` of the asking packages below a folder; return a line about it.

    Raises:
        InputError: a stored release cannot be read, a file cannot be written, or the store lacks packages and
            rows would be lost.
    """
    stored = StoredReaders(store, [*options.packages])
    missing = [each for each in options.packages if each not in stored.readers]
    if missing:
        tell(f"{len(missing)} packages are not stored: rows about them stay as they are")
    size = count = 0
    for package in options.asking:
        if package not in stored.readers:
            continue
        listed = options.packages[package]
        rows = [*code_rows(package, stored.readers), *binary_rows(listed, options.table)]
        rows += symbol_rows(listed, store)
        stored.save()
        rows = rows_with_kept(rows, options.folder, package, missing, options.table)
        tell(f"{package}: {len(rows)} gaps")
        file = options.folder / "gaps" / f"{package}.toml"
        if rows or file.is_file():
            text = gaps_text(package, rows, options.read)
            write_file(file, text)
            size, count = size + len(text.encode()), count + len(rows)
    return f"{options.folder / 'gaps'}: {count} gaps, {size / 1024:.0f} KiB\n"


def binary_rows(package: AtlasPackage, table: ReleaseTable) -> Iterator[AtlasRow]:
    """Yield the releases of torch for which a package's compiled modules were not built."""
    rows = (table.row(package.name, version) for version in table.versions(package.name))
    torch = table.versions("torch")
    if package.links_torch:
        for gap in find_binary_gaps(filter(None, rows), torch, package.binary_entry, package.stable_since):
            yield atlas_row(gap, table.versions(package.name), torch)


def symbol_rows(package: AtlasPackage, store: ReleaseStore) -> Iterator[AtlasRow]:
    """Yield the releases of torch that lack symbols which a package's compiled modules need."""
    if package.torch_symbols and package.name != "torch":
        releases, torch = (list(store.releases(name)) for name in (package.name, "torch"))
        every = [[each.version for each in found] for found in (releases, torch)]
        for gap in find_symbol_gaps(releases, torch, package.binary_entry):
            yield atlas_row(gap, every[0], every[1])


def code_rows(package: str, readers: Mapping[str, PackageReader]) -> Iterator[AtlasRow]:
    """Yield what the releases of a package need of each partner, and which of its releases lack it."""
    asking = readers[package]
    partners = {
        demand.what.partner
        for version in asking.by_version
        for demand in (*asking.demands(version), *late_demands(asking, version))
    }
    for partner in sorted(readers.keys() - {package}):
        for read in READERS:
            if read is find_missing_names and partner not in partners:
                continue
            for gap in without_repeats(read(asking, readers[partner])):
                yield atlas_row(gap, list(asking.by_version), list(readers[partner].by_version))
    for gap in without_repeats(find_python_gaps(asking)):
        yield atlas_row(gap, list(asking.by_version), python_releases())


def atlas_row(gap: CodeGap, releases: Sequence[str], partner_releases: Sequence[str]) -> AtlasRow:
    """Return a gap as a row: releases as spans, with the place in the newest release of each span."""
    spans = spans_of(gap.releases, releases)
    place_of = dict(zip(gap.releases, gap.places, strict=True))
    return AtlasRow(
        package=gap.package,
        partner=gap.partner,
        kind=gap.kind.value,
        entry=gap.entry,
        needs=gap.needs,
        releases=spans,
        lacking=spans_of(gap.lacking, partner_releases),
        places=tuple(place_of[last] for _, last in spans),
    )
