"""pyproject.toml: the dependencies of `[project]`, its extras and dependency groups, and those of poetry.

There is one list of the dependencies alone, and one with each extra and each group, because extras may
exclude each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core import parsing, toml_locations
from envcheck.core.errors import InputError
from envcheck.core.facts import normalised
from envcheck.dependency_files import DependencyFormat, DependencyList, ReadingContext
from envcheck.dependency_files.parsing import toml_lines
from envcheck.dependency_files.parsing.project_sources import ProjectSources
from envcheck.dependency_files.parsing.requirement_collector import RequirementCollector

_DEEPEST_GROUP = 20


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return one list of a project's dependencies, and one more for each extra and group.

    Raises:
        InputError: the file is not TOML, or a dependency is not a requirement; with line and column.
    """
    tree = parsing.parse_toml(text, where)
    project, poetry = tree.get("project"), _poetry(tree)
    groups = tree.get("dependency-groups", {})
    if not isinstance(project, dict) and not poetry and not groups:
        raise InputError(where, "no [project] table: it declares nothing that pip would install")
    project = project if isinstance(project, dict) else {}
    base = [*_texts(project.get("dependencies", []), f"{where}: project.dependencies"), *poetry]
    parts: dict[str, list[str]] = {"": []}
    extras = project.get("optional-dependencies", {})
    for name, listed in extras.items() if isinstance(extras, Mapping) else ():
        parts[f"extra {name}"] = _texts(listed, f"{where}: project.optional-dependencies.{name}")
    for name in groups if isinstance(groups, Mapping) else ():
        parts[f"group {name}"] = list(_group(groups, name, where, 0))
    read_part = _PartReader(text, where, context, project, ProjectSources(tree, context))
    lists = [read_part.dependency_list(label, base, added) for label, added in parts.items()]
    return tuple(one for one in lists if one.lines or one.remarks or one is lists[0])


class _PartReader:
    """A project file; reads the dependencies with one extra or group into a list."""

    def __init__(
        self,
        text: str,
        where: str,
        context: ReadingContext,
        project: Mapping[str, Any],
        sources: ProjectSources,
    ) -> None:
        self._text, self._sources = text, sources
        self._where = where
        self._context = context
        self._dynamic = "dependencies" in project.get("dynamic", ())
        self._own_name = normalised(str(project.get("name", "")))
        blocks = list(toml_locations.blocks(text))
        self._poetry = next((one for one in blocks if one.header == "tool.poetry.dependencies"), None)
        self._start = next((block.at("dependencies") for block in blocks if block.header == "project"), 0)

    def dependency_list(self, label: str, base: list[str], added: list[str]) -> DependencyList:
        collector = RequirementCollector(self._context)
        overridden: set[str] = set()
        for requirement in [*base, *added]:
            if (
                self._own_name
                and normalised(re.split(r"[\[<>=!~; @]", requirement, maxsplit=1)[0]) == self._own_name
            ):
                continue  # an extra that refers to other extras of the same project
            collector.add(requirement, self._place(requirement))
        for requirement in self._sources.overrides:
            name = normalised(re.split(r"[\[<>=!~; @]", requirement, maxsplit=1)[0])
            overridden.add(name)
            if name in collector.packages:
                collector.packages.pop(name)
                collector.add(requirement, self._place(requirement))
        self._sources.apply(collector, label)
        if self._dynamic:
            collector.remarks.append(f"{self._where}: its dependencies are dynamic, and so not known")
        collector.hashed = False
        name = f"{self._where} ({label})" if label else self._where
        return collector.dependency_list(name)._replace(fresh=True, overridden=frozenset(overridden))

    def _place(self, requirement: str) -> str:
        """Return the place of a requirement: its quoted text in a list, or its name in poetry's table."""
        place = toml_lines.place_of(self._text, requirement, self._where, self._start)
        if place == self._where:
            place = toml_lines.place_of(self._text, requirement, self._where)
        name = re.match(r"[\w.-]+", requirement)
        line = self._poetry.at(name[0]) if self._poetry and name and place == self._where else 0
        return f"{self._where}:{line}:1" if line else place


def _texts(listed: object, where: str) -> list[str]:
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise InputError(where, "expected a list of requirements")
    return listed


def _group(groups: Mapping[str, Any], name: str, where: str, depth: int) -> Iterator[str]:
    """Yield the requirements of a dependency group and of those that it includes (PEP 735)."""
    listed = next((value for key, value in groups.items() if normalised(key) == normalised(name)), None)
    if not isinstance(listed, list):
        raise InputError(f"{where}: dependency-groups.{name}", "expected a list of requirements")
    if depth > _DEEPEST_GROUP:
        raise InputError(f"{where}: dependency-groups.{name}", "groups include each other")
    for each in listed:
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping) and isinstance(each.get("include-group"), str):
            yield from _group(groups, each["include-group"], where, depth + 1)
        else:
            raise InputError(f"{where}: dependency-groups.{name}", "expected requirements and include-group")


# --- poetry -----------------------------------------------------------------------------------------


def _poetry(tree: Mapping[str, Any]) -> list[str]:
    """Return the dependencies of `[tool.poetry.dependencies]` as requirements."""
    tool = tree.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, Mapping) else None
    listed = poetry.get("dependencies") if isinstance(poetry, Mapping) else None
    found = []
    for name, value in listed.items() if isinstance(listed, Mapping) else ():
        bound = value.get("version") if isinstance(value, Mapping) else value
        optional = isinstance(value, Mapping) and value.get("optional")
        if normalised(name) != "python" and isinstance(bound, str) and not optional:
            found.append(f"{name}{_specifier(bound)}")
    return found


def _specifier(bound: str) -> str:
    """Return poetry's bound as pip writes it: `^2.4` is `>=2.4,<3`."""
    return ",".join(filter(None, (_clause(part.strip()) for part in bound.split(","))))


def _clause(part: str) -> str:
    if part in ("*", ""):
        return ""
    operator, version = (part[0], part[1:].strip()) if part[0] in "^~" and part[:2] != "~=" else ("", part)
    numbers = version.split(".")
    if not operator or not all(map(str.isdecimal, numbers)):
        return part if part[0] in "<>=!~" else f"=={part}"
    keep = 1 if operator == "^" else min(2, len(numbers))
    if operator == "^":  # the first number that is not zero may not change
        keep = next((at for at, number in enumerate(numbers, 1) if int(number)), len(numbers))
    upper = [*numbers[: keep - 1], str(int(numbers[keep - 1]) + 1)]
    return f">={version},<{'.'.join(upper)}"


LISTING = DependencyFormat("pyproject.toml", lambda name: name == "pyproject.toml", read)
