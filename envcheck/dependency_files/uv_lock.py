"""uv.lock: every package of a project, for all Pythons and platforms at once, and its conflict sets.

A project's own extras and dependency groups are read together, except those that a conflict set declares
mutually exclusive: each of these gives a list of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import normalised
from envcheck.core.parsing import parse_toml
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing import toml_lines
from envcheck.dependency_files.parsing.locked_packages import (
    applies,
    lists_by_python,
    pythons_to_read,
    with_sources,
)

_OWN_SOURCES = ("virtual", "editable", "directory")


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return a list for each member of a conflict set and each group of Pythons with the same versions.

    Raises:
        InputError: the file is not TOML, or not a lock of uv.
    """
    tree = parse_toml(text, where)
    rows = tree.get("package")
    if not isinstance(rows, list) or "version" not in tree:
        raise InputError(where, "expected version and [[package]] as uv writes them")
    lock = _UvLock(rows, toml_lines.lines_of_key(text, "package", "name"), where, context)
    requires = tree.get("requires-python")
    pythons = pythons_to_read(context, requires if isinstance(requires, str) else "")
    lists: list[DependencyList] = []
    for label, selected, excluded in _choices(tree.get("conflicts")):
        found = {python: lock.packages(python, selected, excluded) for python in pythons}
        lists += lists_by_python(where, found, label)
    overridden = _overridden(tree.get("manifest"))
    return with_sources((one._replace(overridden=overridden) for one in lists), rows)


def _overridden(manifest: object) -> frozenset[str]:
    """Return the packages of `override-dependencies`: uv ignores the ranges that others require of them."""
    rows = _list(manifest.get("overrides")) if isinstance(manifest, Mapping) else []
    return frozenset(
        normalised(str(row["name"])) for row in rows if isinstance(row, Mapping) and "name" in row
    )


def _choices(conflicts: object) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """Yield each choice: a label, the members of conflict sets to install, and the members to leave out.

    A member is `project-extra` or `project-group`.
    """
    sets = (
        [[member for member in map(_member, one) if member] for one in conflicts if isinstance(one, list)]
        if isinstance(conflicts, list)
        else []
    )
    every = {member for one in sets for member in one}
    if not every:
        yield "", frozenset(), frozenset()
    for member in sorted(every):
        rivals = {rival for one in sets if member in one for rival in one} - {member}
        others = every - rivals - {member}
        # No member of the other sets is installed: each of them has a choice of its own.
        yield member.partition("-")[2] or member, frozenset({member}), frozenset(rivals | others)


def _member(row: object) -> str:
    if not isinstance(row, Mapping):
        return ""
    part = row.get("extra") or row.get("group") or ""
    return f"{row.get('package', '')}-{part}" if part else ""


class _UvLock:
    """Packages of a lock and how they depend on each other."""

    def __init__(
        self, rows: Sequence[Any], lines: Sequence[int], where: str, context: ReadingContext
    ) -> None:
        self._context = context
        self._rows: dict[str, list[tuple[Mapping[str, Any], str]]] = {}
        self._own: list[Mapping[str, Any]] = []
        for number, row in enumerate(rows):
            place = f"{where}:{lines[number]}:1" if number < len(lines) else where
            if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                raise InputError(place, "a package without a name")
            self._rows.setdefault(normalised(row["name"]), []).append((row, place))
            source = row.get("source")
            if isinstance(source, Mapping) and any(key in source for key in _OWN_SOURCES):
                self._own.append(row)

    def packages(
        self, python: str, selected: frozenset[str], excluded: frozenset[str]
    ) -> list[ListedPackage]:
        """Return the packages that an installer selects for a Python, in the order of the lock."""
        reached: dict[tuple[str, str], None] = {}
        edges: list[Any] = [edge for row in self._own for edge in _edges_of_project(row, excluded)]
        if not self._own:
            edges = [{"name": name} for name in self._rows]
        while edges:
            edge = edges.pop()
            for row, name in self._targets(edge, python, selected):
                key = (name, str(row.get("version", "")))
                extras = edge.get("extra") if isinstance(edge.get("extra"), list) else []
                if key in reached and not extras:
                    continue
                new = key not in reached
                reached[key] = None
                edges += _list(row.get("dependencies")) if new else []
                optional = row.get("optional-dependencies")
                if isinstance(optional, Mapping):
                    edges += [one for extra in extras or () for one in _list(optional.get(extra))]
        return list(self._listed(reached))

    def _targets(
        self, edge: object, python: str, selected: frozenset[str]
    ) -> Iterator[tuple[Mapping[str, Any], str]]:
        if not isinstance(edge, Mapping) or not isinstance(edge.get("name"), str):
            return
        if not applies(str(edge.get("marker", "")), self._context, python, selected):
            return
        name, version = normalised(edge["name"]), edge.get("version")
        for row, _ in self._rows.get(name, ()):
            if version is not None and row.get("version") != version:
                continue
            forks = _list(row.get("resolution-markers"))
            if forks and not any(applies(str(one), self._context, python, selected) for one in forks):
                continue
            yield row, name

    def _listed(self, reached: Mapping[tuple[str, str], None]) -> Iterator[ListedPackage]:
        for name, rows in self._rows.items():
            found = [(row, place) for row, place in rows if (name, str(row.get("version", ""))) in reached]
            versions = {str(row.get("version", "")) for row, _ in found}
            own = [row for row, _ in found if row in self._own]
            if not found or own:
                continue
            place = found[0][1]
            if len(versions) > 1:
                yield ListedPackage(name, "", place, "the lock has it in several versions")
            elif "" in versions:
                yield ListedPackage(name, "", place, "the lock gives no version")
            else:
                yield ListedPackage(name, versions.pop(), place)


def _edges_of_project(row: Mapping[str, Any], excluded: frozenset[str]) -> Iterator[object]:
    """Yield the dependencies of a project and of its extras and groups that are not excluded."""
    yield from _list(row.get("dependencies"))
    for table in ("optional-dependencies", "dev-dependencies"):
        parts = row.get(table)
        for part, edges in parts.items() if isinstance(parts, Mapping) else ():
            if f"{row['name']}-{part}" not in excluded:
                yield from _list(edges)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


LISTING = DependencyFormat("uv.lock", lambda name: name == "uv.lock" or name.endswith(".uv.lock"), read)
