"""Content of one file of Python that no argument of the program changes: its classes, imports and names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from envcheck.training_config.programs.modules import never_read
from envcheck.training_config.programs.names import names
from envcheck.training_config.readers._known_calls import (
    LIBRARIES,
    makes_configuration,
)
from envcheck.training_config.readers._python_literals import AssignedNames

_NAMES = (ast.Name, ast.Attribute)


class FileContents:
    """Content of one file that no argument of the program changes, each part found when it is used."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))

    @cached_property
    def assigned(self) -> AssignedNames:
        return AssignedNames(self.nodes)

    @cached_property
    def classes(self) -> Mapping[str, str]:
        return dict(own_classes(self.nodes))

    @cached_property
    def foreign(self) -> set[str]:
        return _imported_elsewhere(self.nodes)

    @cached_property
    def never_used(self) -> set[ast.AST]:
        return _never_used(self.nodes)

    @cached_property
    def imported(self) -> set[str]:
        return _imported(self.nodes)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(names(self.nodes))

    @cached_property
    def makes_a_trainer(self) -> bool:
        called = (node.func for node in self.nodes if isinstance(node, ast.Call))
        return any(ast.unparse(each).endswith("Trainer") for each in called if isinstance(each, _NAMES))


@lru_cache(maxsize=16)
def contents_of(tree: ast.Module) -> FileContents:
    """Return the content of a file; the launches of one script share their programs."""
    return FileContents(tree)


def own_classes(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each class of the file with its first base, and each import alias with its original name."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        if isinstance(node, ast.ClassDef) and node.bases:
            base = node.bases[0]
            yield node.name, base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _imported_elsewhere(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that a file imports from packages that do not define the known trainers."""
    return {
        name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        and (node.level or (node.module or "").partition(".")[0] not in LIBRARIES)
        for alias in node.names
        for name in (alias.name, alias.asname or alias.name)
    }


def _never_used(nodes: Sequence[ast.AST]) -> set[ast.AST]:
    """Return the calls whose result the file never uses, of those that make a configuration."""
    return {node for node in never_read(nodes) if makes_configuration(getattr(node.func, "id", ""))}


def _imported(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the top-level packages that a file imports."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
