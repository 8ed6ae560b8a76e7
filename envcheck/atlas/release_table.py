"""Write the releases of a package as the text that `knowledge/release_metadata.py` reads."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement

from envcheck.atlas.binaries import build_facts
from envcheck.atlas.release import PublishedRelease
from envcheck.atlas.requirements import installation_requirements
from envcheck.knowledge.release_metadata import NO_DAY, UNKNOWN_REQUIREMENTS, YANKED

HEADER = "# {}: what each release requires and was built for. Written by `envcheck matrix harvest`.\n"


@dataclass(kw_only=True)
class TableRelease:
    """One release as it is written: its line, and the facts (kind, text) that neighbours may share."""

    version: str
    words: str
    facts: frozenset[tuple[str, str]] = field(default_factory=frozenset)


def table_release(release: PublishedRelease, *, built_for_torch: Collection[str] = ()) -> TableRelease:
    """Return what the table holds of a release.

    The requirements of a source distribution on the packages of `built_for_torch` are left out.
    """
    known = release.requires_known
    words = (
        release.uploaded or NO_DAY,
        *([YANKED] * release.yanked),
        *([UNKNOWN_REQUIREMENTS] * (not known)),
    )
    unstated = () if release.wheels else built_for_torch
    requires = installation_requirements(release)
    facts = {("requires", text) for text in requires if Requirement(text).name not in unstated}
    if release.requires_python:
        facts.add(("python", _specifier(release.requires_python)))
    facts |= {("build", f"{key} {value}") for key, values in build_facts(release).items() for value in values}
    return TableRelease(version=release.version, words=" ".join(words), facts=frozenset(facts))


def _specifier(text: str) -> str:
    return ",".join(sorted(part.strip() for part in text.split(",")))


def table_text(package: str, releases: Sequence[TableRelease]) -> str:
    """Return the text of a package's file, given its releases from the oldest to the newest."""
    lines = [f"release {release.version} {release.words}\n" for release in releases]
    for kind in ("python", "requires", "build"):
        lines += _fact_lines(kind, releases)
    return HEADER.format(package) + "".join(lines)


def _fact_lines(kind: str, releases: Sequence[TableRelease]) -> Iterator[str]:
    """Yield a line for each run of releases that share a fact: by text, then by age."""
    holders: dict[str, list[int]] = {}
    for place, release in enumerate(releases):
        for fact_kind, text in release.facts:
            if fact_kind == kind:
                holders.setdefault(text, []).append(place)
    for text in sorted(holders):
        for first, last in runs(holders[text]):
            newest = last == len(releases) - 1
            end = ".." if newest else f"..{releases[last].version}" if last > first else ""
            yield f"{kind} {releases[first].version}{end} {text}\n"


def runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each run of consecutive numbers; `places` is ascending."""
    first = last = None
    for place in places:
        if last is not None and first is not None and place != last + 1:
            yield first, last
            first = None
        first = place if first is None else first
        last = place
    if first is not None and last is not None:
        yield first, last
