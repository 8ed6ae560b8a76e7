"""Modules of a program's project: found beside it, parsed when they are first used, within limits."""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from envcheck.training_config.programs.values import Variables

MOST_FILES = 60
LARGEST = 1 << 18  # characters of one file
MOST_TEXT = 3 << 17  # characters of all files
_MOST_PARENTS = 2  # leading `..` in the name of a file that a program opens
LIBRARIES = frozenset({
    "accelerate", "axolotl", "datasets", "deepspeed", "diffusers", "liger_kernel", "llamafactory",
    "llmtuner", "nemo_rl", "openrlhf", "peft", "swift", "torch", "torchtune", "transformers", "trl",
    "unsloth", "verl",
})  # fmt: skip
"""Packages that are not followed, not even in a checkout of one; dialects describe the trainers."""


@dataclass(eq=False)
class Module:
    """File of the project; `scope` has its variables, `ran` says that its statements were followed."""

    path: str
    tree: ast.Module
    scope: Variables = field(default_factory=lambda: Variables({}))
    ran: bool = False
    _functions: dict[str, list[ast.AST]] | None = None
    _unused: frozenset[ast.AST] | None = None

    def unused(self) -> frozenset[ast.AST]:
        """Return the calls whose result it assigns to names that it never reads, if it starts a trainer.

        A notebook that only makes a configuration shows what another one trains with.
        """
        if self._unused is None:
            nodes = list(ast.walk(self.tree))
            trains = any(isinstance(node, ast.Call) and _called(node).endswith("Trainer") for node in nodes)
            self._unused = frozenset(never_read(nodes)) if trains else frozenset()
        return self._unused

    def functions(self) -> dict[str, list[ast.AST]]:
        """Return the functions and methods that it defines, by name, without those inside functions."""
        if self._functions is None:
            self._functions = {}
            waiting: list[ast.stmt] = [*self.tree.body]
            for node in waiting:  # grows during the loop
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._functions.setdefault(node.name, []).append(node)
                elif not isinstance(node, ast.Expr | ast.Assign | ast.Import | ast.ImportFrom):
                    waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
        return self._functions


def is_inside(path: str) -> bool:
    """Return whether a path stays near the program: it is relative and leaves at most two folders."""
    normal = posixpath.normpath(path)
    return not posixpath.isabs(normal) and normal.split("/").count("..") <= _MOST_PARENTS


def never_read(nodes: Sequence[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls of which a file assigns the result to names that it never reads."""
    read = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    read |= {text for node in nodes for text in _exported(node)}
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and all(isinstance(target, ast.Name) and target.id not in read for target in node.targets)
        ):
            yield node.value


def _exported(node: ast.AST) -> Iterator[str]:
    """Yield the names that `__all__` or a global statement gives to other code."""
    match node:
        case ast.Global(names=given):
            yield from given
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items)):
            yield from (str(each.value) for each in items if isinstance(each, ast.Constant))
        case _:
            pass


def is_configuration(node: ast.AST) -> bool:
    """Return whether an expression makes a configuration, which alone has no effect."""
    return isinstance(node, ast.Call) and _called(node).endswith("Config")


def _called(node: ast.Call) -> str:
    """Return the last name of what is called, or ""."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


@lru_cache(maxsize=256)
def parse(text: str) -> ast.Module | None:
    """Return the syntax tree of a text, or None if it is not Python."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the user's own strings
        try:
            return ast.parse(text.removeprefix("\ufeff"))  # a mark that editors of Windows write
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def project_folders(bases: Sequence[str], package: str, beside: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the folders of projects inside a project that are installed with pip: `PACKAGE/setup.py`."""
    for base in bases:
        folder = posixpath.join(base, package)
        if any(beside(posixpath.join(folder, name)) is not None for name in _PROJECT_FILES):
            yield folder
            yield posixpath.join(folder, "src")


_PROJECT_FILES = ("setup.py", "pyproject.toml")


class Project:
    """Modules that a program can import from its own project."""

    def __init__(self, beside: Callable[[str], str | None]) -> None:
        self._beside = beside
        self._modules: dict[str, Module | None] = {}
        self._found: dict[tuple[str, int, str], Module | None] = {}
        self._folders: dict[tuple[str, str], Sequence[str]] = {}
        self._size = 0
        self.limited = False  # a file was left out because of a limit

    def read(self, path: str) -> Module | None:
        """Return the module of a file, or None if there is none or it cannot be parsed."""
        path = posixpath.normpath(path)
        if path not in self._modules:
            self._modules[path] = None
            text = self._beside(path)
            if text is not None:
                self._modules[path] = self._parsed(path, text)
        return self._modules[path]

    def _parsed(self, path: str, text: str) -> Module | None:
        count = sum(module is not None for module in self._modules.values())
        if len(text) > min(LARGEST, MOST_TEXT - self._size) or count >= MOST_FILES:
            self.limited = True
            return None
        self._size += len(text)
        tree = parse(text)
        return Module(path, tree) if tree is not None else None

    def find(self, name: str, level: int, path: str) -> Module | None:
        """Return the module that an import in the file `path` names; `level` counts the leading dots.

        An absolute import is looked for in the folder of the importing file, then in its parent folders and
        in the folder `src` of each, then in folders of projects that are named as the package.
        """
        key = (name, level, posixpath.dirname(path))
        if key not in self._found:
            self._found[key] = self._search(name, level, path)
        return self._found[key]

    def _search(self, name: str, level: int, path: str) -> Module | None:
        top = name.partition(".")[0]
        if not level and (top in sys.stdlib_module_names or top in LIBRARIES):
            return None
        own = posixpath.dirname(path)
        parts = name.replace(".", "/")
        if level:
            bases = [posixpath.normpath(posixpath.join(own, *[".."] * (level - 1)))]
        else:
            bases = [own]
            while bases[-1] not in ("", "/", ".", "..") and not bases[-1].endswith("/.."):
                bases.append(posixpath.dirname(bases[-1]))
            bases = [*bases, *(posixpath.join(base, "src") for base in bases), *self._projects(bases, top)]
        names = [f"{parts}.py", f"{parts}/__init__.py"] if parts else ["__init__.py"]
        for base in bases:
            for each in names:
                if (module := self.read(posixpath.join(base, each))) is not None:
                    return module
        return None

    def _projects(self, bases: Sequence[str], package: str) -> Sequence[str]:
        """Return the folders of projects that are named as a package, looking for them once."""
        key = (bases[0], package)
        if key not in self._folders:
            self._folders[key] = tuple(project_folders(bases, package, self._beside))
        return self._folders[key]

    def modules(self) -> list[Module]:
        """Return the modules that were read."""
        return [module for module in self._modules.values() if module is not None]
