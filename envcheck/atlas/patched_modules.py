"""Find the names that a package's files put into other modules of the package, with `setattr`.

lightning keeps dropped names alive in `lightning/pytorch/_graveyard/`: `setattr(pl.plugins.precision, name,
made)`. No statement of the module itself binds such a name. If the name is computed, each text in the file
may be one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from envcheck.atlas.syntax import dotted, parsed

_SET_ON = re.compile(rb"\bsetattr\(\s*(\w+)")
_OBJECTS = (b"self", b"cls")
"""First names of what `setattr` changes in most files; no module has such a name."""


class PatchedNames(NamedTuple):
    """Names that a file may put into a module, or into modules below it."""

    module: str
    names: frozenset[str]

    def may_hold(self, module: str, name: str) -> bool:
        """Return whether a module may have a name from here."""
        return name in self.names and f"{module}.".startswith(f"{self.module}.")


def patched_names(content: bytes, module: str, tops: Collection[str]) -> Iterator[PatchedNames]:
    """Yield the names that a file puts into other modules of the package.

    `module` is the file's own dotted path, and `tops` are the import names of the package.
    """
    if not any(root not in _OBJECTS for root in _SET_ON.findall(content)):
        return
    tree = parsed(content)
    if tree is None:
        return
    nodes = [*ast.walk(tree)]
    paths = dict(_imported(nodes, module))
    for node in nodes:
        if isinstance(node, ast.Assign):
            paths.update(_modules_taken(node, paths))
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id="setattr"), args=[target, name, _]):
                path = _path(target, paths)
                if path.split(".")[0] in tops:
                    yield PatchedNames(path, frozenset(_texts(name)) or frozenset(_texts(tree)))
            case _:
                pass


def _imported(nodes: Iterable[ast.AST], module: str) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with the path that it stands for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            base = [*module.split(".")[: -node.level]] if node.level else []
            for alias in node.names:
                yield alias.asname or alias.name, ".".join([*base, *filter(None, [node.module]), alias.name])


def _modules_taken(node: ast.Assign, paths: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names that are assigned `getattr(module, …)`, with the path of that module."""
    match node.value:
        case ast.Call(func=ast.Name(id="getattr"), args=[base, *_]):
            path = _path(base, paths)
            yield from ((each.id, path) for each in node.targets if path and isinstance(each, ast.Name))
        case _:
            pass


def _path(node: ast.expr, paths: dict[str, str]) -> str:
    root, _, rest = (dotted(node) or "").partition(".")
    return ".".join(filter(None, (paths.get(root, ""), rest))) if root in paths else ""


def _texts(tree: ast.AST) -> Iterable[str]:
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return (value for value in constants if isinstance(value, str) and value.isidentifier())
