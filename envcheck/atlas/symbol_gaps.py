"""Find the releases of torch that do not define what the compiled modules of a package need.

The loader resolves every strong symbol when Python imports a module, so one that no library defines ends in
`undefined symbol`. A symbol counts as lacking in a release of torch only if

- another release defines it: those of libtorch_cuda, which is not read, are defined in none;
- it is not in the new C++ ABI, or the release is 2.7 or newer: before, the wheels had the old ABI, but
  vendors and conda-forge compiled with the new one, so what a wheel lacks they may have;
- the releases that define it follow one another: a hole is taken for a mistake of the reader.

If a package brings several modules of which one is loaded, as TorchCodec does for each FFmpeg, a release of
torch counts only if none of them loads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.library_facts import LibraryFacts, defined_hashes
from envcheck.atlas.release import PublishedRelease
from envcheck.core import versions
from envcheck.core.elf import gnu_hash
from envcheck.core.facts import Tri

_NEW_ABI = "__cxx11"
_ONE_ABI_SINCE = "2.7"
_IN_LIBTORCH_CUDA = re.compile(r"(?!_ZN[KVRO]*3c104cuda).*cuda", re.IGNORECASE)


def find_symbol_gaps(
    releases: Sequence[PublishedRelease],
    torch: Sequence[PublishedRelease],
    entry_of: Callable[[str], str],
) -> list[CodeGap]:
    """Return which releases of torch lack symbols that the releases of a package need.

    Both are in the order of versions. `entry_of` returns what fails in a release.
    """
    defined = {each.version: hashes for each in torch if (hashes := _defined(each.libraries))}
    lacking_of: dict[str, frozenset[str]] = {}
    grouped: dict[tuple[str, str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for release in releases:
        modules = _broken_modules(release.libraries, defined, lacking_of)
        if not modules:
            continue
        failing = frozenset.intersection(*(_union(lacks) for _, lacks in modules))
        path, lacks = modules[0]
        for symbol, covered in _fewest(lacks, failing):
            key = (entry_of(release.version), symbol, tuple(each for each in defined if each in covered))
            grouped.setdefault(key, []).append((release.version, path))
    return [
        CodeGap(
            kind=GapKind.SYMBOL,
            package=releases[0].package,
            releases=tuple(version for version, _ in asking),
            entry=entry,
            partner="torch",
            lacking=lacking,
            needs=symbol,
            places=tuple(path for _, path in asking),
        )
        for (entry, symbol, lacking), asking in grouped.items()
    ]


def _defined(libraries: Mapping[str, LibraryFacts]) -> frozenset[int]:
    return frozenset().union(*(defined_hashes(each) for each in libraries.values()))


def _broken_modules(
    libraries: Mapping[str, LibraryFacts],
    defined: Mapping[str, frozenset[int]],
    lacking_of: dict[str, frozenset[str]],
) -> list[tuple[str, dict[str, frozenset[str]]]]:
    """Return the modules of a release, each with the symbols it needs and the torch releases that lack them.

    Empty if some module loads beside every torch, or could not be read. `lacking_of` caches look-ups.
    """
    found = []
    for path, library in sorted(libraries.items()):
        for symbol in library.needs or ():
            if symbol not in lacking_of:
                lacking_of[symbol] = _lacking(symbol, defined)
        lacks = {symbol: lacking_of[symbol] for symbol in library.needs or () if lacking_of[symbol]}
        if not lacks:
            return []
        found.append((path, lacks))
    return found


def _lacking(symbol: str, defined: Mapping[str, frozenset[int]]) -> frozenset[str]:
    """Return the releases of torch that do not define a symbol; empty if that is not decided."""
    if _IN_LIBTORCH_CUDA.match(symbol):
        return frozenset()
    value = gnu_hash(symbol.encode()) | 1
    runs = [defines for defines, _ in groupby(value in hashes for hashes in defined.values())]
    if runs.count(True) != 1:
        return frozenset()
    return frozenset(
        version
        for version, hashes in defined.items()
        if value not in hashes
        and (_NEW_ABI not in symbol or versions.compare(version, ">=", _ONE_ABI_SINCE) is Tri.YES)
    )


def _union(lacks: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*lacks.values())


def _fewest(
    lacks: Mapping[str, frozenset[str]], failing: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield symbols that together show why all `failing` releases of torch fail, and which each shows.

    Each time, the symbol that most of the rest lack is taken; of several, the shortest.
    """
    rest = failing
    while rest:
        symbol = min(lacks, key=lambda each: (-len(lacks[each] & rest), len(each), each))
        yield symbol, lacks[symbol] & failing
        rest -= lacks[symbol]
