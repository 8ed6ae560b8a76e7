"""What a name or an attribute stands for apart from a value: modules, imports, methods, fields."""

from __future__ import annotations

from envcheck.training_config.programs.modules import Module
from envcheck.training_config.programs.values import Record, Value


class Imported:
    """Name that an import binds, until it is used."""

    def __init__(self, package: str, level: int, name: str, path: str) -> None:
        self.package, self.level, self.name, self.path = package, level, name, path
        self.found: Value = None


class ModuleValue:
    """Module of the project as an object."""

    __match_args__ = ("module",)

    def __init__(self, module: Module) -> None:
        self.module = module


class Method:
    """Method of a dictionary or namespace."""

    __match_args__ = ("owner", "name")

    def __init__(self, owner: Record, name: str) -> None:
        self.owner, self.name = owner, name


class BoundName:
    """Attribute of a text, a file, a parser, or an object of a library, with its owner."""

    __match_args__ = ("owner", "name")

    def __init__(self, owner: Value, name: str) -> None:
        self.owner, self.name = owner, name


class FieldDefault:
    """Result of `field(default=…)` makes in the body of a class."""

    def __init__(self, default: Value) -> None:
        self.default = default
