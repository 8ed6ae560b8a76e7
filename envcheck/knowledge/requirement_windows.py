"""What pinned releases require of packages that are not pinned: implied versions, and what no release meets.

torch 2.6.0 pins triton 3.2.0, so an environment with torch 2.6.0 has triton 3.2.0, listed or not.
If two pinned releases require an absent package in windows that do not overlap, no release satisfies both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from envcheck.core import markers, versions
from envcheck.core.facts import Tri, normalised
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Comparison
from envcheck.knowledge.release_metadata import ReleaseTable

_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


class ReleaseRequirement(NamedTuple):
    """A line `text` in the metadata of `package` `version`: it requires `specifier` of package `requires`."""

    package: str
    version: str
    requires: str
    specifier: str
    text: str


class ImpliedVersion(NamedTuple):
    """A version that follows from an exact pin in the metadata of a pinned or implied release."""

    package: str
    version: str
    because: ReleaseRequirement


class DisjointWindows(NamedTuple):
    """A package, and two requirements of it that no release meets together."""

    package: str
    asks: tuple[ReleaseRequirement, ...]


class ExcludedCompanion(NamedTuple):
    """An unpinned package that a pinned one requires, each admitted release of which excludes another pin.

    `release` is the requirement that the other pin violates, of the admitted release that is nearest to it.
    """

    package: str
    ask: ReleaseRequirement
    release: ReleaseRequirement


def requirements_of(
    package: str, version: str, table: ReleaseTable, environment: Mapping[str, str]
) -> Iterator[ReleaseRequirement]:
    """Yield what a release requires in an environment of marker variables; nothing for an unknown release."""
    row = table.row(package, version)
    for text in row.requires if row else ():
        bare, _, marker = text.partition(";")
        rest = bare.lstrip(_NAME_CHARACTERS)
        name, rest = bare.removesuffix(rest), rest.strip()
        if rest.startswith("["):
            rest = rest.partition("]")[2].strip()
        if name and not rest.startswith("@") and (not marker or markers.matches(marker, environment)):
            yield ReleaseRequirement(package, version, normalised(name), rest.replace(" ", ""), text)


def implied_versions(
    pins: Mapping[str, str], table: ReleaseTable, environment: Mapping[str, str]
) -> dict[str, ImpliedVersion]:
    """Return the versions of unpinned packages that follow from exact pins, directly or through one another.

    A package that two releases pin to different versions is left out.
    """
    found: dict[str, ImpliedVersion] = {}
    contradicted: set[str] = set()
    waiting = [*pins.items()]
    for package, version in waiting:
        for ask in requirements_of(package, version, table, environment):
            exact = _exact_version(ask.specifier)
            if not exact or ask.requires in pins:
                continue
            if ask.requires not in found:
                found[ask.requires] = ImpliedVersion(ask.requires, exact, ask)
                waiting.append((ask.requires, exact))
            elif versions.compare(found[ask.requires].version, "==", exact) is not Tri.YES:
                contradicted.add(ask.requires)
    return {name: implied for name, implied in found.items() if name not in contradicted}


def _exact_version(specifier: str) -> str:
    """Return the version that a specifier pins, else an empty text."""
    comparisons = _comparisons(specifier)
    if len(comparisons) != 1 or comparisons[0].op not in ("==", "==="):
        return ""
    version = str(comparisons[0].operand)
    return "" if version.endswith(".*") else version


def _asks_for_others(
    pins: Mapping[str, str], table: ReleaseTable, environment: Mapping[str, str]
) -> dict[str, list[ReleaseRequirement]]:
    """Return what the pinned releases require of packages that are not pinned, by package."""
    asks: dict[str, list[ReleaseRequirement]] = {}
    for package, version in pins.items():
        for ask in requirements_of(package, version, table, environment):
            if ask.requires not in pins:
                asks.setdefault(ask.requires, []).append(ask)
    return asks


def disjoint_windows(
    pins: Mapping[str, str], table: ReleaseTable, environment: Mapping[str, str]
) -> list[DisjointWindows]:
    """Return the unpinned packages that two pinned releases require in windows that do not overlap.

    A window without any release counts only between the oldest and the newest release that were read.
    """
    asks = _asks_for_others(pins, table, environment)
    found = []
    for package in sorted(asks):
        known = table.versions(package)
        pair = _excluding_pair(asks[package], known)
        if pair:
            found.append(DisjointWindows(package, pair))
    return found


def excluded_companions(
    pins: Mapping[str, str], table: ReleaseTable, environment: Mapping[str, str]
) -> list[ExcludedCompanion]:
    """Return the unpinned packages that a pinned release requires, if all admitted releases exclude a pin.

    Pins may fit one another and leave no release of what one of them needs: LLaMA-Factory 0.9.0 requires
    transformers 4.41.2 or newer, and each of those requires tokenizers newer than 0.15.
    """
    asks = _asks_for_others(pins, table, environment)
    found = []
    for package in sorted(asks):
        asker = asks[package][0].package
        own = requirements_of(asker, pins[asker], table, environment)
        refused = {ask.requires for ask in own if ask.requires in pins and _is_violated(ask, pins)}
        # A pin that the asker itself excludes is a finding of its own.
        others = {name: version for name, version in pins.items() if name not in {asker, *refused}}
        violated = _violated_by_all(package, asks[package], others, table, environment)
        if violated:
            found.append(ExcludedCompanion(package, asks[package][0], violated))
    return found


def _violated_by_all(
    package: str,
    asks: Sequence[ReleaseRequirement],
    pins: Mapping[str, str],
    table: ReleaseTable,
    environment: Mapping[str, str],
) -> ReleaseRequirement | None:
    """Return what the admitted releases of a package ask of the pins in vain; None if one asks nothing so.

    If no release is admitted, `disjoint_windows` says so. Of several requirements that of the newest release
    is returned if its upper bound is violated, else that of the oldest.
    """
    wanted = tuple(each for ask in asks for each in _comparisons(ask.specifier))
    violated = []
    for version in reversed(table.versions(package)):
        if versions.satisfies_all(version, wanted) is Tri.NO:
            continue
        row = table.row(package, version)
        if row is None or not row.known:
            return None
        asked = requirements_of(package, version, table, environment)
        first = next((ask for ask in asked if ask.requires in pins and _is_violated(ask, pins)), None)
        if first is None:
            return None
        violated.append(first)
    if not violated:
        return None
    newest = violated[0]
    above = any(
        each.op in ("<", "<=")
        and versions.compare(pins[newest.requires], each.op, str(each.operand)) is Tri.NO
        for each in _comparisons(newest.specifier)
    )
    return newest if above else violated[-1]


def _is_violated(ask: ReleaseRequirement, pins: Mapping[str, str]) -> bool:
    return versions.satisfies_all(pins[ask.requires], _comparisons(ask.specifier)) is Tri.NO


def _excluding_pair(asks: list[ReleaseRequirement], known: tuple[str, ...]) -> tuple[ReleaseRequirement, ...]:
    """Return two requirements of different packages that no release meets together; empty if none do."""
    for at, one in enumerate(asks):
        for other in asks[at + 1 :]:
            both = (*_comparisons(one.specifier), *_comparisons(other.specifier))
            alone = (_comparisons(one.specifier), _comparisons(other.specifier))
            if one.package == other.package or any(_is_empty(each, known) for each in alone):
                continue  # a mistake of one package alone, or a marker that was not understood
            if _is_empty(both, known):
                return one, other
    return ()


def _is_empty(comparisons: Iterable[Comparison], known: tuple[str, ...]) -> bool:
    """Return whether no version meets all comparisons, or no release where all releases are known."""
    wanted = tuple(comparisons)
    bounds = tuple(each for each in wanted if each.op not in ("!=", "==="))
    if any(each.op == "===" for each in wanted):
        return False
    candidates = ("0", *(probe for each in bounds for probe in _probes(str(each.operand))))
    inside = [version for version in candidates if versions.satisfies_all(version, bounds) is not Tri.NO]
    if not inside:
        return True
    if not known or any(not _is_between(version, known) for version in inside):
        return False
    open_ended = not any(each.op in ("<", "<=", "==", "~=") for each in bounds)
    return not open_ended and not any(
        versions.satisfies_all(version, wanted) is not Tri.NO for version in known
    )


def _probes(operand: str) -> tuple[str, ...]:
    """Return versions at a bound and directly above it."""
    version = operand.removesuffix(".*")
    return version, f"{version}.0.0.1", f"{version}.post1"


def _is_between(version: str, known: tuple[str, ...]) -> bool:
    return (
        versions.compare(version, ">=", known[0]) is Tri.YES
        and versions.compare(version, "<=", known[-1]) is Tri.YES
    )


def _comparisons(specifier: str) -> tuple[Comparison, ...]:
    """Return the parts of a specifier; empty if it cannot be read, so that it restricts nothing."""
    try:
        return versions.parse_specifier(specifier)
    except ValueError:
        return ()
