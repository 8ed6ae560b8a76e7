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

The compiled form has one list a package: versions, days, marks by number of the release, and one text for
each of `python`, `requires` and `build`. Loading it reads strings only; a package is unpacked when it is
first asked for. Numbers have a fixed width in base 36, so they need no separator and compare as texts. Facts
that begin alike are a group, which has their beginning once:

    day 2024-12-06                        oc6: year of the century, month, day
    requires 0.1.0..0.4.0 torch>=1.13     torch^0003>=1.13^04zz==2.0.1: `torch>=1.13` from release 00 to 03,
    requires 0.5.0.. torch==2.0.1         `torch==2.0.1` from 04 to the newest
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from envcheck.core.errors import InputError
from envcheck.core.records import NamedTuple

YANKED, UNKNOWN_REQUIREMENTS = "yanked", "requirements-unknown"
"""Words that may follow the day of a release."""

NO_DAY = "-"
"""In place of the day if the index does not say when the release was uploaded."""

_KINDS = ("python", "requires", "build")

_GROUP, _FACT = "|", "^"
"""Separate groups, and the facts of a group, in the compiled form. Requirements and markers have neither."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_MOST_RELEASES = len(_DIGITS) ** 2 - 1

_NEWEST = "zz"
"""In place of the number of a fact's last release if the fact holds for the newest release."""

_LARGEST_GROUP = 40
"""More facts in one group save hardly any characters, and take the build longer."""

_Grouping: TypeAlias = Callable[[Sequence[tuple[str, str]]], Iterable[str]]
"""Returns the groups of facts; a fact is the numbers of its first and last release, and its text."""

_SHORT_NO_DAY = "---"


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
    """Hold a package's versions and days as one text each, marks, and the groups of facts of each kind."""

    versions: str
    days: str
    words: Mapping[str, str]
    groups: Sequence[Sequence[Sequence[str]]]

    def place(self, version: str) -> int | None:
        """Return the number of a release; None if it was not read."""
        at = f" {self.versions} ".find(f" {version} ")  # faster than a dictionary of all releases
        return self.versions.count(" ", 0, at) if at >= 0 else None


class ReleaseTable:
    """All releases of all packages. It is created from the JSON form; packages are unpacked on first use."""

    def __init__(self, frozen: Mapping[str, Any]) -> None:
        """Take what `freeze_releases` returned."""
        self._frozen = frozen
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
        every = found.versions.split(" ") if found else ()
        return tuple(each for each in every if candidates or _is_final(each))

    def row(self, package: str, version: str) -> PublishedFacts | None:
        """Return a release; None if it is not known."""
        found = self._package(package)
        release = version.partition("+")[0]
        place = found.place(release) if found else None
        if found is None or place is None:
            return None
        words = found.words.get(str(place), "")
        python, requires, build = (_facts_at(groups, place) for groups in found.groups)
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
            _whole_day(found.days[3 * place : 3 * place + 3]),
            YANKED in words,
            UNKNOWN_REQUIREMENTS not in words,
        )

    def _package(self, name: str) -> _Package | None:
        if name not in self._packages and name in self._frozen:
            versions, days, words, *kinds = self._frozen[name]
            groups = [[group.split(_FACT) for group in text.split(_GROUP)] for text in kinds]
            self._packages[name] = _Package(versions, days, words, groups)
        return self._packages.get(name)


def _facts_at(groups: Iterable[Sequence[str]], place: int) -> list[str]:
    """Return the texts of the facts that hold for a release."""
    number, next_number = _two_digits(place), _two_digits(place + 1)
    return [
        group[0] + fact[4:]
        for group in groups
        for fact in group[1:]
        if fact < next_number and number <= fact[2:4]
    ]


def _two_digits(number: int) -> str:
    return _DIGITS[number // len(_DIGITS)] + _DIGITS[number % len(_DIGITS)]


def _short_day(day: str) -> str:
    """Return an ISO day as three digits in base 36: `p1t` for `2025-01-29`.

    Raises:
        ValueError: the text is not a day of 2000 to 2035.
    """
    if day == NO_DAY:
        return _SHORT_NO_DAY
    numbers = [int(part) for part in day.removeprefix("20").split("-") if part.isdecimal()]
    if len(numbers) != 3 or max(numbers) >= len(_DIGITS):  # noqa: PLR2004 - year, month and day
        raise ValueError(f"expected a day of 2000 to 2035; found {day!r}")
    return "".join(_DIGITS[number] for number in numbers)


def _whole_day(short: str) -> str:
    """Return the ISO day of a short one; empty if the index does not give it."""
    if short == _SHORT_NO_DAY:
        return ""
    year, month, of_month = (int(digit, 36) for digit in short)
    return f"20{year:02}-{month:02}-{of_month:02}"


def _is_final(version: str) -> bool:
    """Return whether a normalised version is none of a pre-release; to parse all of them takes too long."""
    return version.replace(".post", "").replace(".", "").isdecimal()


# --- text → JSON ------------------------------------------------------------------------------------


def parse_release_files(texts: Mapping[str, str]) -> ReleaseTable:
    """Return the table of the files of `compat/atlas/releases/`, by file name.

    Raises:
        InputError: a line cannot be read.
    """
    return ReleaseTable(_frozen(texts, _each_alone))


def freeze_releases(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the files as JSON-ready values, by package; the module's docstring explains the form.

    Raises:
        InputError: a line cannot be read.
    """
    return _frozen(texts, _fewest_characters)


def _frozen(texts: Mapping[str, str], groups: _Grouping) -> dict[str, Any]:
    return {file.removesuffix(".txt"): _frozen_package(file, texts[file], groups) for file in sorted(texts)}


def _frozen_package(file: str, text: str, groups: _Grouping) -> list[Any]:
    """Return versions, days, words by number of the release, and the facts of each kind in groups."""
    places: dict[str, int] = {}
    days: list[str] = []
    words: dict[str, str] = {}
    facts: dict[str, list[tuple[str, str]]] = {kind: [] for kind in _KINDS}
    for number, kind, subject, rest in _lines(file, text):
        try:
            if kind == "release":
                day, _, marks = rest.partition(" ")
                if marks:
                    words[str(len(places))] = marks
                places[subject] = len(places)
                days.append(_short_day(day))
            else:
                facts[kind].append((_numbered_span(subject, places), rest))
        except KeyError as error:
            raise InputError(f"{file}:{number}", f"no line 'release {error.args[0]}' above") from None
        except ValueError as error:
            raise InputError(f"{file}:{number}", str(error)) from None
    if len(places) >= _MOST_RELEASES:
        raise InputError(file, f"expected fewer than {_MOST_RELEASES} releases; found {len(places)}")
    packed = (_GROUP.join(groups(each)) for each in facts.values())
    return [" ".join(places), "".join(days), words, *packed]


def _numbered_span(releases: str, places: Mapping[str, int]) -> str:
    """Return the releases of a fact as the numbers of the first and of the last one."""
    first, dots, last = releases.partition("..")
    end = _two_digits(places[last or first]) if last or not dots else _NEWEST
    return _two_digits(places[first]) + end


def _each_alone(facts: Sequence[tuple[str, str]]) -> Iterable[str]:
    """Return a group for each fact, which takes no time."""
    return [f"{text}{_FACT}{span}" for span, text in facts]


def _fewest_characters(facts: Sequence[tuple[str, str]]) -> Iterable[str]:
    """Return the groups of neighbours that take the fewest characters.

    The cheapest way to write the facts up to one of them is the cheapest way to write those before its group,
    and the group: `cheapest` holds the length and the groups.
    """
    cheapest: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    for end in range(1, len(facts) + 1):
        ways: list[tuple[int, int, str]] = []
        head, length = facts[end - 1][1], 0
        for start in range(end - 1, max(end - _LARGEST_GROUP, 0) - 1, -1):
            span, text = facts[start]
            head = _shared_start(head, text)
            if ways and not head:
                break
            length += len(_FACT + span + text)
            shorter = length - len(head) * (end - start - 1)
            ways.append((cheapest[start][0] + len(_GROUP) + shorter, start, head))
        total, start, head = min(ways)
        group = _FACT.join([head, *(span + text[len(head) :] for span, text in facts[start:end])])
        cheapest.append((total, (*cheapest[start][1], group)))
    return cheapest[-1][1]


def _shared_start(one: str, other: str) -> str:
    while not other.startswith(one):
        one = one[:-1]
    return one


def _lines(file: str, text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield number, kind, release or releases, and the rest of each line; comments are left out."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(" ", 2)
        is_whole = len(words) == 3 and not {_GROUP, _FACT} & {*line}  # noqa: PLR2004 - as the message says
        if not is_whole or words[0] not in ("release", *_KINDS):
            found = (
                f"expected 'release VERSION DAY' or '{'|'.join(_KINDS)} RELEASES TEXT'; found {line[:60]!r}"
            )
            raise InputError(f"{file}:{number}", found)
        yield number, words[0], words[1], words[2]
