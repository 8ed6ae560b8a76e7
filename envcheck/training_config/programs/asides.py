"""Parts of a program that take no part in its training, such as a simulation: they are not followed far."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from envcheck.training_config.programs.modules import Project
from envcheck.training_config.programs.names import names_of
from envcheck.training_config.programs.values import ProjectFunction

MOST_STEPS_ASIDE = 2_500
"""How far a function is followed that leads to no training."""

STEPS_OF_SHORT_ONES = 800
"""Before so many steps, every function is followed as far as the program."""

MOST_STEPS_ASIDES = 10_000
"""How far all such functions of a program are followed beside the rest of it."""

_MOST_DEFINITIONS = 400  # that one function leads to
_OF_TRAINING = re.compile(
    r"(?:\w*(?:Trainer|TrainingArguments|Accelerator)|(?:Lora|SFT|[A-Z]{2,4}O|BitsAndBytes)Config"
    r"|from_pretrained|get_peft_model|train|fit|backward|requires_grad_?|initialize|prepare"
    r"|add_argument|parse_args|parse_known_args|ArgumentParser|HfArgumentParser|OmegaConf|safe_load|compose"
    r"|subprocess|check_call|Popen|execv|spawn)"
)
"""Names in the code of a training, of what reads its configuration, or of what starts another program."""


_Definition: TypeAlias = tuple[ast.AST, str]
"""A function or class, and its file."""


class Asides:
    """Know of each function whether it may lead to a training, by the names in its code."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._read = 0
        self._functions: dict[str, list[_Definition]] = {}  # and classes, by name
        self._methods: dict[str, list[_Definition]] = {}
        self._bound: dict[str, list[tuple[str, str, ast.ImportFrom | ast.Import]]] = {}
        self._leads: dict[ast.AST, bool] = {}

    def leads_to_training(self, function: ProjectFunction) -> bool:
        """Return whether a function, or one that its code names, may configure or start a training."""
        if function.node not in self._leads:
            self._leads[function.node] = self._searched((function.node, function.module.path))
        return self._leads[function.node]

    def _searched(self, start: _Definition) -> bool:
        waiting, seen = [start], {start[0]}
        while waiting:
            node, path = waiting.pop()
            if len(seen) > _MOST_DEFINITIONS or any(map(_OF_TRAINING.fullmatch, names_of(node))):
                return True
            for each in self._reached(node, path):
                if each[0] not in seen:
                    seen.add(each[0])
                    waiting.append(each)
        return False

    def _reached(self, node: ast.AST, path: str) -> Iterator[_Definition]:
        """Yield what the code of a function or class may mean by its names and attributes."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        attributes = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        modules: set[str] = set()  # what may be an attribute of a module
        for bound, name, statement in self._imports(path):
            if bound in names:
                names.add(name.rpartition(".")[2])
                modules |= attributes if isinstance(statement, ast.Import) else set()
                self._find(statement, name, path)
        self._define()
        for name in names | modules:
            yield from self._functions.get(name, ())
        for name in attributes:
            yield from self._methods.get(name, ())

    def _imports(self, path: str) -> list[tuple[str, str, ast.ImportFrom | ast.Import]]:
        """Return what the imports of a file bind, with the name of the thing there."""
        if path not in self._bound:
            module = self._project.read(path)
            nodes = ast.walk(module.tree) if module is not None else ()
            self._bound[path] = [
                ((each.asname or each.name).partition(".")[0], each.name, node)
                for node in nodes
                if isinstance(node, ast.ImportFrom | ast.Import)
                for each in node.names
            ]
        return self._bound[path]

    def _find(self, node: ast.ImportFrom | ast.Import, name: str, path: str) -> None:
        """Read the module that an import names, which may be the thing that is imported."""
        if isinstance(node, ast.Import):
            self._project.find(name, 0, path)
            return
        package = node.module or ""
        self._project.find(f"{package}.{name}" if package else name, node.level, path)
        if package:
            self._project.find(package, node.level, path)

    def _define(self) -> None:
        """Take up the functions, classes and methods of the modules that were read."""
        modules = self._project.modules()
        for module in modules[self._read :]:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self._functions.setdefault(node.name, []).append((node, module.path))
                if isinstance(node, ast.ClassDef):
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                            self._methods.setdefault(each.name, []).append((each, module.path))
        self._read = len(modules)
