"""Read what each published release requires and what its wheels were built for: `compat/atlas/releases/`.

    table = parse_release_files(texts)     # a checkout: the texts by file name, `peft.txt`
    table = ReleaseTable(json.loads(text)) # the wheel: the compiled form
    row = table.row("peft", "0.14.0")      # None if this release was not read
    row.requires                           # ("accelerate>=0.21.0", "numpy>=1.17", …)
    row.python                             # ">=3.9.0", or empty
    row.build.get("torch", ())             # ("==2.6.0",): compiled for this torch
    table.versions("peft")                 # all final releases that were read, oldest first

`commands/atlas_tables.py` loads the table from where it is. A row takes about 30 µs. A local label
(`2.6.0+cu124`) is ignored. Requirements are canonical PEP 508 texts with their markers; those of extras are
left out. If `row.known` is false, the published files do not say what the release requires, so nothing
follows from an empty `requires`.

Keys of `build`, each with one or more values:

    torch   a specifier of the torch that compiled modules need
    cuda    the CUDA toolkit; several where a wheel holds libraries for several
    wheel   the Linux wheels of a machine: `x86_64 glibc>=2.28 python 3.9 3.10 abi3>=3.8`, with `3.13t` for a
            free-threaded Python and `any` where the Python does not matter; `any` alone is a wheel for any
            platform beside the compiled ones
    gpu     architectures that the libraries hold code for: `sm_80 sm_90 compute_90`
    needs-glibc   the newest glibc that its libraries import, which may be more than the wheel's tag says

The text form has one file a package and one fact a line, with the releases that it holds for: `1.0.0`,
`1.0.0..1.2.0` (inclusive) or `1.0.0..` (to the newest). A new release that changes nothing adds one line:

    release 0.14.0 2024-12-06
    python 0.13.0.. >=3.9.0
    requires 0.3.0.. accelerate>=0.21.0
    build 0.1.0..0.2.0 torch ==2.0.1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.records import NamedTuple

YANKED, UNKNOWN_REQUIREMENTS = "yanked", "requirements-unknown"
"""Words that may follow the day of a release."""

NO_DAY = "-"
"""In place of the day if the index does not say when the release was uploaded."""

_KINDS = ("python", "requires", "build")


class PublishedFacts(NamedTuple):
    """One published release: the module's docstring explains the fields."""

    package: str
    version: str
    requires: tuple[str, ...]
    python: str
    build: Mapping[str, tuple[str, ...]]
    uploaded: str = ""
    yanked: bool = False
    known: bool = True


class _Package(NamedTuple):
    """A package's releases by version, and its runs by kind.

    `runs` has a flat list for each kind: number of the text, first and last release, repeated.
    """

    places: Mapping[str, int]
    days: Sequence[str]
    words: Mapping[str, str]
    runs: Sequence[Sequence[int]]


class ReleaseTable:
    """All releases of all packages. It is created from the JSON form; packages are unpacked on first use."""

    def __init__(self, frozen: Mapping[str, Any]) -> None:
        """Take what `freeze_releases` returned."""
        self._texts: Sequence[str] = frozen["texts"]
        self._frozen: Mapping[str, Any] = frozen["packages"]
        self._packages: dict[str, _Package] = {}

    def packages(self) -> list[str]:
        """Return the names of all packages."""
        return [*self._frozen]

    def versions(self, package: str, *, candidates: bool = False) -> tuple[str, ...]:
        """Return the releases of a package that were read, oldest first; empty for an unknown package.

        Pre-releases are left out, because nobody gets one without asking for it; with `candidates`, those
        that were read are among the others.
        """
        found = self._package(package)
        return tuple(each for each in found.places if candidates or _is_final(each)) if found else ()

    def row(self, package: str, version: str) -> PublishedFacts | None:
        """Return a release; None if it is not known."""
        found = self._package(package)
        release = version.partition("+")[0]
        place = found.places.get(release) if found else None
        if found is None or place is None:
            return None
        words = found.words.get(str(place), "")
        python, requires, build = (self._at(runs, place) for runs in found.runs)
        facts: dict[str, tuple[str, ...]] = {}
        for text in build:
            key, _, value = text.partition(" ")
            facts[key] = (*facts.get(key, ()), value)
        return PublishedFacts(
            package,
            release,
            tuple(requires),
            python[0] if python else "",
            facts,
            _whole_day(found.days[place]),
            YANKED in words,
            UNKNOWN_REQUIREMENTS not in words,
        )

    def _package(self, name: str) -> _Package | None:
        if name not in self._packages and name in self._frozen:
            versions, days, words, runs = self._frozen[name]
            places = {version: place for place, version in enumerate(versions.split(" "))}
            self._packages[name] = _Package(places, days.split(" "), words, runs)
        return self._packages.get(name)

    def _at(self, runs: Sequence[int], place: int) -> list[str]:
        """Return the texts of the runs that contain a release."""
        starts = range(0, len(runs), 3)
        return [self._texts[runs[at]] for at in starts if runs[at + 1] <= place <= runs[at + 2]]


def _short_day(day: str) -> str:
    """Return an ISO day of this century without what every day has: `250129` for `2025-01-29`."""
    return day.removeprefix("20").replace("-", "") if day != NO_DAY else NO_DAY


def _whole_day(short: str) -> str:
    """Return the ISO day of a short one; empty if the index does not give it."""
    return f"20{short[:2]}-{short[2:4]}-{short[4:]}" if short != NO_DAY else ""


def _is_final(version: str) -> bool:
    """Return whether a normalised version is none of a pre-release; to parse all of them takes too long."""
    return version.replace(".post", "").replace(".", "").isdecimal()


# --- text → JSON ------------------------------------------------------------------------------------


def parse_release_files(texts: Mapping[str, str]) -> ReleaseTable:
    """Return the table of the files of `compat/atlas/releases/`, by file name.

    Raises:
        InputError: a line cannot be read.
    """
    return ReleaseTable(freeze_releases(texts))


def freeze_releases(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the files as JSON-ready values, every distinct text once.

    Raises:
        InputError: a line cannot be read.
    """
    numbers: dict[str, int] = {}
    packages = {
        file.removesuffix(".txt"): _frozen_package(file, texts[file], numbers) for file in sorted(texts)
    }
    return {"texts": list(numbers), "packages": packages}


def _frozen_package(file: str, text: str, numbers: dict[str, int]) -> list[Any]:
    """Return versions, days, words by number of the release, and runs by kind."""
    places: dict[str, int] = {}
    days: list[str] = []
    words: dict[str, str] = {}
    runs: dict[str, list[int]] = {kind: [] for kind in _KINDS}
    for number, kind, subject, rest in _lines(file, text):
        if kind == "release":
            day, _, marks = rest.partition(" ")
            if marks:
                words[str(len(places))] = marks
            places[subject] = len(places)
            days.append(_short_day(day))
            continue
        first, dots, last = subject.partition("..")
        newest = next(reversed(places), "")
        try:
            span = places[first], places[(last or newest) if dots else first]
        except KeyError as error:
            raise InputError(f"{file}:{number}", f"no line 'release {error.args[0]}' above") from None
        runs[kind] += (numbers.setdefault(rest, len(numbers)), *span)
    return [" ".join(places), " ".join(days), words, [runs[kind] for kind in _KINDS]]


def _lines(file: str, text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield number, kind, release or releases, and the rest of each line; comments are left out."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(" ", 2)
        if len(words) != 3 or words[0] not in ("release", *_KINDS):  # noqa: PLR2004 - as the message says
            found = (
                f"expected 'release VERSION DAY' or '{'|'.join(_KINDS)} RELEASES TEXT'; found {line[:60]!r}"
            )
            raise InputError(f"{file}:{number}", found)
        yield number, words[0], words[1], words[2]
