"""Find the names that a package's files put into other modules of the package, with `setattr`.

lightning keeps dropped names alive in `lightning/pytorch/_graveyard/`: `setattr(pl.plugins.precision, name,
made)`. No statement of the module itself binds such a name. If the name is computed, each text in the file
may be one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from envcheck.atlas.syntax import dotted, parsed

_SETS = b"setattr("


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
    if _SETS not in content:
        return
    tree = parsed(content)
    if tree is None:
        return
    paths = dict(_imported(tree, module))
    texts = frozenset(_texts(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            paths.update(_modules_taken(node, paths))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="setattr"), args=[target, name, _]):
                path = _path(target, paths)
                if path.split(".")[0] in tops:
                    yield PatchedNames(path, frozenset(_texts(name)) or texts)
            case _:
                pass


def _imported(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with the path that it stands for."""
    for node in ast.walk(tree):
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
