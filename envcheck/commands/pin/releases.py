"""The releases to search: those in the tables, and those of the user's packages and their dependencies.

A target's package that the tables do not list, such as vllm, is searched like one that the user requires.

A package that the user requires joins the search with its own metadata and every release in the atlas. The
packages that these releases require join it as dependencies, because two packages often conflict only in
their requirements on a third.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.commands import atlas_tables, loading
from envcheck.commands.pin.target import LockTarget
from envcheck.core import markers, versions
from envcheck.core.facts import Inventory, Tri
from envcheck.core.rules import Builds
from envcheck.knowledge.release_metadata import ReleaseTable
from envcheck.lock.install import BUILDS
from envcheck.resolution.resolver import Release
from envcheck.rules.published_wheels import why_no_wheel
from envcheck.rules.requirements import marker_environment, split_requirement


class SearchedReleases(NamedTuple):
    """Every release to choose from, and the names of the packages that join as dependencies."""

    releases: tuple[Release, ...]
    dependencies: tuple[str, ...]


def searched_releases(goal: LockTarget) -> SearchedReleases:
    """Return the releases for a goal; each dependency comes after the packages that require it."""
    rows: list[Mapping[str, Any]] = [
        *({**row, "package": "torch"} for row in goal.matrix.tables.get("torch", [])),
        *loading.published_releases(),
    ]
    required = [each.package for each in goal.requirements if each.wanted]
    in_tables = {row["package"] for row in rows}
    required += [name for name in goal.target.packages if name not in in_tables]
    if not required:
        return SearchedReleases(tuple(map(_of_row, rows)), ())
    table = atlas_tables.release_table()
    unread = set(_asked_beyond_table(goal, table))
    required = [name for name in required if name not in unread]
    dependencies = tuple(name for name in _dependencies(required, goal, table) if name not in unread)
    joined = {*required, *dependencies, *goal.target.packages}
    rows = [row for row in rows if row["package"] not in unread]
    found = [
        _with_metadata(_of_row(row), goal, table) if row["package"] in joined else _of_row(row)
        for row in rows
    ]
    listed = {(release.package, release.version) for release in found}
    extras = _requires_of_extras(goal)
    for name in dict.fromkeys((*required, *dependencies)):
        unlisted = (version for version in table.versions(name) if (name, version) not in listed)
        found += [_with_metadata(Release(name, version), goal, table) for version in unlisted]
    found = [
        release._replace(requires=(*release.requires, *extras.get((release.package, release.version), ())))
        for release in found
    ]
    return SearchedReleases(tuple(found), dependencies)


def _requires_of_extras(goal: LockTarget) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return what the extras of the goal require, by package and release, as far as the tables list them."""
    texts = (text.partition("[") for text in (*goal.target.extras, *goal.extras))
    asked = {(name, each.strip()) for name, _, rest in texts for each in rest.partition("]")[0].split(",")}
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in loading.read_only_tree()["tables"].get("extra", []):
        if (row["package"], row["extra"]) in asked:
            for version in row["versions"]:
                key = row["package"], version
                found[key] = (*found.get(key, ()), *row["requires"])
    return found


def _of_row(row: Mapping[str, Any]) -> Release:
    """Return the release of a row of the tables.

    A package that is built without a compiler (BUILDS) is built wherever it has a source distribution: the
    only wheels of a few DeepSpeed releases are for Windows.
    """
    kinds = row.get("kinds", ())
    return Release(
        package=row["package"],
        version=row["version"],
        requires=tuple(f"{name}{bound}" for name, bound in row.get("requires", {}).items()),
        pythons=tuple(row.get("python", ())),
        requires_python=row.get("requires_python", ""),
        date=str(row.get("date", "")),
        yanked=bool(row.get("yanked")),
        sdist=[*kinds] == ["sdist"] or ("sdist" in kinds and row["package"] in BUILDS),
    )


def _with_metadata(release: Release, goal: LockTarget, table: ReleaseTable) -> Release:
    """Return a release with its published metadata, and why no wheel fits the platform, if so."""
    row = table.row(release.package, release.version)
    if row is None:
        return release
    return release._replace(
        requires=row.requires,
        requires_python=release.requires_python or row.python,
        date=release.date or row.uploaded,
        yanked=release.yanked or row.yanked,
        no_wheel="" if release.sdist else _why_no_wheel(row.build, goal),
    )


def _why_no_wheel(build: Builds, goal: LockTarget) -> str:
    """Return why no compiled wheel fits; empty if the release has no compiled wheels, or one fits."""
    published = build.get("wheel", ())
    system, _, architecture = goal.platform.partition("-")
    if system != "linux" or not published or "any" in published:
        return ""
    if not any(text.startswith(f"{architecture} ") for text in published):
        return f"none for {architecture}"
    return why_no_wheel(build, (architecture, goal.python, goal.glibc))


def _asked_beyond_table(goal: LockTarget, table: ReleaseTable) -> Iterator[str]:
    """Yield required packages of which the user wants a release that is not in the table, such as an old one.

    Such a release may exist nevertheless, so the backend looks for it on the index.
    """
    for requirement in goal.requirements:
        name, known = requirement.package, table.versions(requirement.package)
        if name not in goal.target.packages and not any(
            versions.satisfies(version, requirement.specifier, unknown=Tri.YES) is not Tri.NO
            for version in known
        ):
            yield name


def needing_source(
    releases: Iterable[Release], sources: Collection[str], machine: Inventory
) -> Iterator[Release]:
    """Yield the releases; those that require one of `sources`, which have no wheels, say so in `no_wheel`."""
    environment = marker_environment(machine)
    for release in releases:
        needed = _required_names(release.requires, environment) & {*sources}
        if needed and not release.no_wheel:
            yield release._replace(no_wheel=f"needs {', '.join(sorted(needed))}, published as source only")
        else:
            yield release


# --- dependencies -----------------------------------------------------------------------------------


def _dependencies(required: Sequence[str], goal: LockTarget, table: ReleaseTable) -> tuple[str, ...]:
    """Return the table's packages that some release of a required or a target's package depends on."""
    environment = marker_environment(goal.machine)
    known, ordered = frozenset(table.packages()), list[str]()
    chosen = {*required, *goal.target.packages}
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for other in sorted(_required_by(name, table, environment) & known):
            visit(other)
        ordered.append(name)

    for name in (*required, *goal.target.packages):
        visit(name)
    return tuple(name for name in reversed(ordered) if name not in chosen)


def _required_by(name: str, table: ReleaseTable, environment: Mapping[str, str]) -> set[str]:
    rows = (table.row(name, version) for version in table.versions(name))
    return _required_names({line for row in rows if row for line in row.requires}, environment)


def _required_names(lines: Iterable[str], environment: Mapping[str, str]) -> set[str]:
    """Return the packages that requirements name whose marker matches or cannot be evaluated."""
    found = set()
    for line in lines:
        bare, _, marker = line.partition(";")
        if not marker or markers.matches(marker, environment) is not False:
            found.add(split_requirement(bare)[0])
    return found
