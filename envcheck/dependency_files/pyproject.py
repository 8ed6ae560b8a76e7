"""pyproject.toml: the dependencies of `[project]`."""

from __future__ import annotations

from envcheck.core import parsing, toml_locations
from envcheck.core.errors import InputError
from envcheck.dependency_files import DependencyFormat, DependencyList, ReadingContext
from envcheck.dependency_files.parsing import toml_lines
from envcheck.dependency_files.parsing.requirement_collector import RequirementCollector


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return the one dependency list of a project, without its extras and groups.

    Raises:
        InputError: the file is not TOML, or a dependency is not a requirement; with line and column.
    """
    tree = parsing.parse_toml(text, where)
    project = tree.get("project")
    if not isinstance(project, dict):
        raise InputError(where, "no [project] table: it declares nothing that pip would install")
    requirements = project.get("dependencies", [])
    if not isinstance(requirements, list) or not all(isinstance(each, str) for each in requirements):
        raise InputError(f"{where}: project.dependencies", "expected a list of requirements")
    start = next(
        (block.at("dependencies") for block in toml_locations.blocks(text) if block.header == "project"), 0
    )
    collector = RequirementCollector(context)
    for requirement in requirements:
        collector.add(requirement, toml_lines.place_of(text, requirement, where, start))
    if "dependencies" in project.get("dynamic", ()):
        collector.remarks.append(f"{where}: its dependencies are dynamic, and not told here")
    collector.hashed = False
    return (collector.dependency_list(where)._replace(fresh=True),)


LISTING = DependencyFormat("pyproject.toml", lambda name: name == "pyproject.toml", read)
