"""Configurations in Python that a program reads when it runs: absl's flags, ml_collections, mmengine."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.hydra import put_at
from envcheck.training_config.programs.interpreter import Interpreter
from envcheck.training_config.programs.modules import Module, Project, is_inside
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall
from envcheck.training_config.programs.references import ModuleValue
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    LibraryName,
    ProjectFunction,
    Record,
    Value,
)

_DOTTED_CLASS = re.compile(r"(?:[a-z_]\w*\.)+_?[A-Z]\w*(?:\.from_pretrained)?")
_FLAGS = "absl.flags.FLAGS"
_DEFINES = frozenset({
    "DEFINE_string", "DEFINE_bool", "DEFINE_boolean", "DEFINE_integer", "DEFINE_float", "DEFINE_enum",
    "DEFINE_list", "DEFINE_multi_string",
})  # fmt: skip
_DEFAULT_AT = 1  # the position of a flag's default, after its name
_ENDS_IN_COLON = re.compile(r"(.+\.py):(\w+)")


class PythonConfigurations(Interpreter):
    """Interpreter that follows configurations written in Python.

    `given` are the program's arguments on its command line; `rest` is the reason why there may be others, or
    "".
    """

    def __init__(self, project: Project, given: Mapping[str, Value], rest: str) -> None:
        super().__init__(project)
        self.given, self.rest = given, rest
        self._flags: dict[str, Value] = {}  # of absl, by name

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return an attribute of a value; that of absl's FLAGS is the flag."""
        if isinstance(owner, LibraryName) and owner.name == _FLAGS and name in self._flags:
            return self._flags[name]
        return super().attribute(owner, name, node)

    def of_configuration(self, name: str, module: str, given: Arguments) -> Value:
        """Return the result of a function that defines a flag or reads a file of Python, or MISSING."""
        if self._define_flag(name, given):
            return None
        if name == "load_source" and module in ("imp", "machinery"):
            return self._loaded_module(given.get("pathname", 1))
        if (module, name) == ("Config", "fromfile"):
            return self._from_python_file(given.get("filename", 0))
        return MISSING

    def of_modules(self, name: str, module: str, given: Arguments) -> Value:
        """Return a module that a function imports by its name, or MISSING; follow a file that it runs."""
        first = given.positional[0] if given.positional else MISSING
        if not isinstance(first, str):
            return MISSING
        if (module, name) == ("importlib", "import_module"):
            found = self.project.find(first.lstrip("."), len(first) - len(first.lstrip(".")), self.path)
            return LibraryName(first) if found is None else ModuleValue(found)
        if module == "runpy":
            found = self._module_of(first) if name == "run_path" else self._module_named(first)
            return MISSING if found is None else self.run_program(found)
        return MISSING

    def _module_named(self, name: str) -> Module | None:
        """Return a module, or the file `__main__.py` of a package."""
        return self.project.find(f"{name}.__main__", 0, self.path) or self.project.find(name, 0, self.path)

    def run_program(self, module: Module) -> Value:
        """Follow a file that runs as a program in this process."""
        self.programs.add(module.path)
        self.run_module(module)
        return Unknown("its variables")

    def _define_flag(self, name: str, given: Arguments) -> bool:
        """Note a flag of absl; return whether a function of this name defines one."""
        flag, default = given.get("name", 0), given.get("default", _DEFAULT_AT)
        if not isinstance(flag, str) or not (name in _DEFINES or name == "DEFINE_config_file"):
            return False
        value = None if default is MISSING else default
        if self.rest:
            value = Unknown(self.rest)
        value = self.given.get(flag, value)
        if name == "DEFINE_config_file":
            value = self._from_function(value)
            for key, override in self.given.items():
                if key.startswith(f"{flag}.") and isinstance(value, Record):
                    put_at(value, key.split(".")[1:], override)
        self._flags[flag] = value
        return True

    def _module_of(self, path: str) -> Module | None:
        """Return the module of a file that the program opens; None if it is not near the program."""
        return self.project.read(path) if is_inside(path) else None

    def _from_function(self, path: Value) -> Value:
        """Return what `get_config` of a file returns; the path `file.py:NAME` gives it an argument."""
        if not isinstance(path, str):
            return Unknown("its configuration is not known")
        chosen = _ENDS_IN_COLON.fullmatch(path)
        module = self._module_of(chosen[1] if chosen else path)
        if module is None:
            return Unknown(f"{path} is not here")
        self.run_module(module)
        function = self.resolved(module.scope.find("get_config"))
        if not isinstance(function, ProjectFunction):
            return Unknown(f"{path} has no get_config")
        return self.call_function(function, Arguments((chosen[2],) if chosen else (), ()))

    def _from_python_file(self, path: Value) -> Value:
        """Return the variables of a module that mmengine reads as a configuration, or MISSING."""
        if not isinstance(path, str) or not path.endswith(".py"):
            return MISSING
        module = self._module_of(path)
        if module is None:
            return Unknown(f"{path} is not here")
        self.run_module(module)
        names = {name: self.resolved(value) for name, value in module.scope.names.items() if name[:2] != "__"}
        no_values = (LibraryName, ProjectFunction, ClassValue, ModuleValue)
        items = {name: value for name, value in names.items() if not isinstance(value, no_values)}
        return Record(items, "namespace", rest="other files are its base" if "_base_" in items else "")

    def _loaded_module(self, path: Value) -> Value:
        """Return the module of a file that `imp.load_source` loads, or MISSING."""
        module = self._module_of(path) if isinstance(path, str) else None
        return MISSING if module is None else ModuleValue(module)

    def globals_here(self) -> Value:
        """Return the variables of the module that is followed, as `globals()` does."""
        module = self.project.read(self.path)
        return MISSING if module is None else Record(module.scope.names)

    def described_call(self, given: Arguments, node: ast.Call) -> None:
        """Record the call that `dict(type=LoraConfig, r=8)` describes, as configurations of mmengine do."""
        described = given.keyword("type")
        of_project = isinstance(described, ClassValue)
        name = described.name if isinstance(described, LibraryName | ClassValue) else described
        if not isinstance(name, str) or not (of_project or _DOTTED_CLASS.fullmatch(name)):
            return
        owner, _, last = name.rpartition(".")
        keywords = tuple(each for each in given.keywords if each.name != "type")
        arguments = Arguments(given.positional, keywords, given.rest)
        self.calls.append(FollowedCall(last, owner, node, self.path, arguments, tuple(self.conditions)))
        self.names.add(last)
        if owner:
            self.unread.add(owner.partition(".")[0])
