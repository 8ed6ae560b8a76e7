"""The Python program that a launch line starts, with the modules of its project: which names its code has.

The files are parsed, never run. What the names mean stands in the dialects.
"""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Iterator

from envcheck.training_config.document import ProgramSource
from envcheck.training_config.readers import Beside
from envcheck.training_config.readers._python_calls import names, parsed

_MOST_FILES = 60
_LARGEST = 1 << 18  # characters of one file


def program_source(program: str, folder: str, beside: Beside) -> ProgramSource | None:
    """Return what the code of a program names; None if its file is not here or cannot be parsed.

    `folder` is where it is started.
    """
    if not program.endswith(".py"):
        return None
    path = posixpath.join(folder, program)
    reader = _ProgramReader(beside)
    if not reader.read(path) and not (folder and reader.read(path := program)):
        return None
    reader.follow()
    return ProgramSource(path, frozenset(reader.names), frozenset(reader.unresolved), reader.switches)


class _ProgramReader:
    """Reads a program and the modules of its project that it imports, directly or not."""

    def __init__(self, beside: Beside) -> None:
        self.names: set[str] = set()
        self.unresolved: set[str] = set()
        self.switches: dict[str, bool] = {}
        self._beside = beside
        self._seen: dict[str, bool] = {}
        self._waiting: list[tuple[str, ast.Module]] = []

    def read(self, path: str) -> bool:
        """Read a file; return whether it is there and could be parsed."""
        if path not in self._seen:
            text = self._beside(path)
            tree = parsed(text) if text is not None and len(text) <= _LARGEST else None
            self._seen[path] = tree is not None
            if tree is not None:
                self._waiting.append((path, tree))
        return self._seen[path]

    def follow(self) -> None:
        """Collect the names of every file, reading the modules of the project that it imports."""
        files = 0
        while self._waiting:
            path, tree = self._waiting.pop()
            files += 1
            nodes = list(ast.walk(tree))
            self.names.update(names(nodes))
            for name, default in _switches(nodes):
                self.switches[name] = self.switches.get(name, False) or default
            for module, level in _imports(nodes):
                if level == 0 and module.partition(".")[0] in sys.stdlib_module_names:
                    continue
                if files >= _MOST_FILES or not self._read_module(module, level, path):
                    self.unresolved.add(module.partition(".")[0] or ".")

    def _read_module(self, module: str, level: int, path: str) -> bool:
        """Read a module of the project: below its file's folder or one of those around that."""
        own = posixpath.dirname(path)
        parts = module.replace(".", "/")
        if level:
            bases = [posixpath.normpath(posixpath.join(own, *[".."] * (level - 1)))]
        else:
            bases = [own]
            while bases[-1] not in ("", "/"):
                bases.append(posixpath.dirname(bases[-1]))
        return any(
            self.read(posixpath.join(base, name))
            for base in bases
            for name in (f"{parts}.py" if parts else "__init__.py", posixpath.join(parts, "__init__.py"))
        )


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield each imported module with how many folders up it is looked for: 0 for an absolute name.

    A name imported from a package may be a module of it; only the package is yielded then, with the module
    if that is part of a relative import.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.level
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.level) for alias in node.names)


def _switches(nodes: list[ast.AST]) -> Iterator[tuple[str, bool]]:
    """Yield the flags among the options of a program: fields of its dataclasses, arguments of its parser."""
    for node in nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=bool() as default)):
                yield name, default
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(keywords=keywords)):
                yield from ((name, default) for default in _defaults(keywords))
            case ast.Call(
                func=ast.Attribute(attr="add_argument"), args=[*_, ast.Constant(value=str() as flag)]
            ):
                name = flag.lstrip("-").replace("-", "_")
                given = {each.arg: each.value for each in node.keywords}
                action = given.get("action")
                if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
                    yield name, action.value == "store_false"
                yield from ((name, default) for default in _defaults(node.keywords))
            case _:
                pass


def _defaults(keywords: list[ast.keyword]) -> Iterator[bool]:
    """Yield the argument `default` of a call if it is true or false."""
    for keyword in keywords:
        value = keyword.value
        if keyword.arg == "default" and isinstance(value, ast.Constant) and isinstance(value.value, bool):
            yield value.value
