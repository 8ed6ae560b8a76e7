"""pyproject.toml: what `[project]` depends on."""

from __future__ import annotations

from envcheck.core import toml_locations
from envcheck.core.errors import InputError
from envcheck.dependency_files import DependencyFormat, DependencyList, ReadingContext, toml
from envcheck.dependency_files.requirements import RequirementsReader


def read(text: str, where: str, asked: ReadingContext) -> tuple[DependencyList, ...]:
    """The one sheet of a project's dependencies, extras and groups left out.

    Raises:
        InputError: not TOML, or a dependency that is no requirement; with line and column.
    """
    tree = toml_locations.parse_toml(text, where)
    project = tree.get("project")
    if not isinstance(project, dict):
        raise InputError(where, "no [project] table: nothing is declared there that pip would install")
    wanted = project.get("dependencies", [])
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise InputError(f"{where}: project.dependencies", "expected a list of requirements")
    start = next(
        (block.at("dependencies") for block in toml_locations.blocks(text) if block.header == "project"), 0
    )
    reader = RequirementsReader(asked)
    for each in wanted:
        reader.one(each, toml.place_of(text, each, where, start))
    if "dependencies" in project.get("dynamic", ()):
        reader.remarks.append(f"{where}: its dependencies are dynamic, and not told here")
    reader.hashed = False
    return (reader.sheet(where),)


LISTING = DependencyFormat("pyproject.toml", lambda name: name == "pyproject.toml", read)
