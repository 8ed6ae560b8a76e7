"""Console scripts of a project: the commands that its installation makes, and the functions that they call.

They are read from `pyproject.toml` (the standard's table and Poetry's), `setup.cfg` and the literals of
`setup.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_toml
from envcheck.core.patterns import pattern
from envcheck.training_config.readers import Beside

_LARGEST = 1 << 16  # characters of a file
_ENTRY = pattern(r"([\w.-]+)\s*=\s*([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_][\w.]*)(?:\s*\[.*\])?")


class EntryPoint(NamedTuple):
    """Function that a console script calls, in a module given by its dotted name."""

    module: str
    function: str


class ConsoleScripts:
    """Console scripts of the project around a launch script, read when a command may be one of them."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside
        self._parsed = False  # once a command may be one of them

    def of(self, command: str) -> EntryPoint | None:
        """Return what a command calls, or None if it is no console script of the project."""
        if not self._parsed and not any(command in text for text in self._texts.values()):
            return None
        self._parsed = True
        return self._scripts.get(command)

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        """Return the files that declare console scripts, by name."""
        texts = {name: self._beside(name) for name in ("pyproject.toml", "setup.cfg", "setup.py")}
        return {
            name: text
            for name, text in texts.items()
            if text is not None and "scripts" in text and len(text) <= _LARGEST
        }

    @cached_property
    def _scripts(self) -> Mapping[str, EntryPoint]:
        read = {"pyproject.toml": _of_pyproject, "setup.cfg": _of_setup_cfg, "setup.py": _of_setup}
        found: dict[str, EntryPoint] = {}
        for name, text in self._texts.items():
            for line in read[name](text):
                if entry := _ENTRY.fullmatch(line.strip()):
                    found.setdefault(entry[1], EntryPoint(entry[2], entry[3]))
        return found


def _of_pyproject(text: str) -> Iterator[str]:
    """Yield the entries of `[project.scripts]` and `[tool.poetry.scripts]` as `name = module:function`."""
    try:
        tree = parse_toml(text, "pyproject.toml")
    except InputError:
        return
    for path in (("project",), ("tool", "poetry")):
        table: Any = tree
        for name in (*path, "scripts"):
            table = table.get(name) if isinstance(table, dict) else None
        yield from (f"{name} = {entry}" for name, entry in (table.items() if isinstance(table, dict) else ()))


def _of_setup_cfg(text: str) -> Iterator[str]:
    """Yield the entries of `console_scripts`."""
    import configparser  # few projects still have such a file

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    yield from parser.get("options.entry_points", "console_scripts", fallback="").splitlines()


def _of_setup(text: str) -> Iterator[str]:
    """Yield the entries of `console_scripts` in a literal dictionary or text of `setup.py`."""
    import ast

    from envcheck.training_config.programs.modules import parse

    tree = parse(text)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "console_scripts":
                for each in ast.walk(value):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield from each.value.splitlines()
