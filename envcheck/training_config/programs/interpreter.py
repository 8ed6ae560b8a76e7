"""Follow the modules of a program, and the functions that something else calls."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Mapping

from envcheck.training_config.programs.calls import MAKERS
from envcheck.training_config.programs.expressions import ProgramTooLongError
from envcheck.training_config.programs.modules import Module
from envcheck.training_config.programs.names import names_of
from envcheck.training_config.programs.recorded_calls import Arguments
from envcheck.training_config.programs.statements import Statements
from envcheck.training_config.programs.values import ProjectFunction
from envcheck.training_config.programs.variables import CallFrame

_MOST_STEPS_OF_ONE = 1_000  # of a function that a library is given
_MOST_STEPS_GIVEN_AWAY = 6_000  # of all such functions


class Interpreter(Statements):
    """Interpreter of a program from its modules; what known libraries do is left to subclasses."""

    def run_module(self, module: Module) -> None:
        """Follow the statements of a module once."""
        if module.ran:
            return
        module.ran = True
        module.scope.names["__file__"] = module.path if module.path.startswith("/") else f"./{module.path}"
        before, self._path = self._path, module.path
        conditions, self.conditions = self.conditions, []
        self._frames.append(CallFrame(None))
        try:
            self.block(module.tree.body, module.scope)
        finally:
            self._frames.pop()
            self._path, self.conditions = before, conditions

    def is_started(self) -> bool:
        """Return whether the module that is followed now is a program that was started, not imported."""
        return self.path in self.programs

    @abstractmethod
    def start_commands(self) -> None:
        """Follow the commands of groups and applications if the program itself starts none."""

    def run_waiting(self) -> None:
        """Follow the functions that were given away and not followed yet.

        Of one that is too long, such as a reward, only the names in its code are known, and those in the
        functions of its module that it leads to.
        """
        self.start_commands()
        until, names = self.steps + _MOST_STEPS_GIVEN_AWAY, _NamesInCode()
        while self._waiting:
            function = self._waiting.pop()
            if function.node not in self.followed:
                before, count = self.incomplete, len(self.calls)
                self.most_steps = min(self.steps + _MOST_STEPS_OF_ONE, until)
                try:
                    self.call_function(function, Arguments((), (), "another function calls it"))
                except ProgramTooLongError:
                    self.followed.add(function.node)
                    self.names |= names.of(function)
                if not any(_takes_part(call.name) for call in self.calls[count:]):
                    self.incomplete = before  # such as one that collates a batch


class _NamesInCode:
    """Collect the names in functions, and in what their modules define by these names; each is read once."""

    def __init__(self) -> None:
        self._defined: dict[str, dict[str, list[ast.AST]]] = {}
        self._read: set[ast.AST] = set()

    def of(self, function: ProjectFunction) -> set[str]:
        """Return the names that a function leads to, apart from those of code that was read before."""
        defined = self._definitions(function.module)
        found: set[str] = set()
        waiting: list[ast.AST] = [function.node]
        while waiting:
            node = waiting.pop()
            if node in self._read:
                continue
            self._read.add(node)
            more = names_of(node) - found
            found |= more
            waiting += [each for name in more for each in defined.get(name, ())]
        return found - defined.keys()  # a function counts by what its body does

    def _definitions(self, module: Module) -> Mapping[str, list[ast.AST]]:
        if module.path not in self._defined:
            defined: dict[str, list[ast.AST]] = {}
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    defined.setdefault(node.name, []).append(node)
            self._defined[module.path] = defined
        return self._defined[module.path]


def _takes_part(name: str) -> bool:
    """Return whether a call of this name makes a model or trains it."""
    return name in (*MAKERS, "backward", "train", "fit", "step") or name.endswith(("Trainer", "Model"))
