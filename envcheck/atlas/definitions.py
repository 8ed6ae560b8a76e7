"""Where the functions, classes and methods of one release are defined, and which keywords they accept."""

from __future__ import annotations

import ast
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from envcheck.atlas.code_file import read_code
from envcheck.atlas.code_summary import ClassCode, FileCode, FunctionCode, Parameters
from envcheck.atlas.entries import attribute_class
from envcheck.atlas.offers import ReleaseOffers, Way
from envcheck.atlas.release_modules import ModuleForm
from envcheck.atlas.summary import ImportOrigin

_DEEPEST = 10

_KEEPS_SIGNATURE = frozenset(
    {
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "deprecated"),
        *("experimental", "final", "inference_mode", "lru_cache", "no_grad", "on_last_process"),
        *("on_local_main_process", "on_main_process", "on_process", "override", "overload", "property"),
        *("staticmethod", "validate_hf_hub_args", "wraps", "add_end_docstrings", "add_start_docstrings"),
        *("replace_return_docstrings", "require_version", "requires", "requires_backends", "export"),
        *("auto_docstring", "apply_forward_hook", "_deprecate_positional_args", "instrument_w_nvtx"),
        *("PublicAPI", "DeveloperAPI", "add_start_docstrings_to_model_forward", "_deprecate_method"),
        "restore_default_dtype",
    }
)
"""Decorators that pass all arguments on unchanged, by the last part of their names."""

_RENAMES = frozenset({"deprecate_kwarg", "deprecate_kwargs", "_deprecate_arguments", "deprecated_args"})
"""Decorators that accept additional keywords, which their own arguments name as texts."""

_ALSO = {"validate_hf_hub_args": frozenset({"use_auth_token", "token"})}
_WITHOUT_OBJECT = frozenset({"staticmethod", "classmethod"})
"""Decorators of methods that are called on a class."""

_DATACLASSES = frozenset({"dataclass", "dataclasses.dataclass"})


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function that the release defines at module level."""

    module: str
    code: FunctionCode


@dataclass(frozen=True, slots=True)
class OwnClass:
    """A class that the release defines at module level."""

    module: str
    code: ClassCode


@dataclass(frozen=True, slots=True)
class ForeignPath:
    """Something that another package defines, by the path under which it is imported."""

    path: str


Definition: TypeAlias = OwnFunction | OwnClass | ForeignPath | None


@dataclass(frozen=True, slots=True)
class FoundMethod:
    """A method found among a class and its bases: its owner, and the owner's position in that order.

    `method` is None if another package defines the owner.
    """

    owner: OwnClass | ForeignPath
    method: FunctionCode | None
    position: int


@dataclass
class Definitions:
    """Find definitions of one release.

    Attributes:
        offers: the release.
        cache: files that were read before, by digest.

    """

    offers: ReleaseOffers
    cache: MutableMapping[bytes, FileCode] = field(default_factory=dict)
    _files: dict[str, FileCode] = field(default_factory=dict)
    _orders: dict[tuple[str, str], tuple[Definition, ...]] = field(default_factory=dict)

    def file(self, module: str) -> FileCode:
        """Return the code of a module; empty if it is not a source module."""
        if module not in self._files:
            modules = self.offers.modules
            self._files[module] = (
                read_code(modules.release.files.read(modules.path(module)), self.cache)
                if modules.form(module) is ModuleForm.SOURCE
                else FileCode()
            )
        return self._files[module]

    # Names

    def named(self, module: str, name: str, depth: int = 0) -> Definition:
        """Return what a name of a module of the release stands for; None if it is not known."""
        if depth > _DEEPEST or self.offers.modules.form(module) is not ModuleForm.SOURCE:
            return None
        code, summary = self.file(module), self.offers.modules.summary(module)
        functions, classes = code.functions.get(name, ()), code.classes.get(name, ())
        origin = summary.imports.get(name) if summary else None
        ways = len(functions) + len(classes) + (name in code.assigned) + (origin is not None)
        if ways == 1 and name in code.aliases:
            return self._aliased(module, code.aliases[name], depth)
        if ways > 1 or name in code.assigned:
            return None
        if functions:
            return OwnFunction(module, functions[0])
        if classes:
            return OwnClass(module, classes[0])
        return self.origin(module, origin, depth) if origin else self._offered(module, name, depth)

    def _aliased(self, module: str, text: str, depth: int) -> Definition:
        """Return what a name stands for that is assigned a dotted name of its module."""
        root, *rest = text.split(".")
        definition = self.named(module, root, depth + 1)
        if isinstance(definition, ForeignPath):
            return ForeignPath(".".join([definition.path, *rest]))
        return None if rest else definition

    def _offered(self, module: str, name: str, depth: int) -> Definition:
        """Return what a name from a lazy table or a star import stands for."""
        found = self.offers.find(module, name)
        if found.way is Way.LAZY and found.module:
            return self.named(found.module, found.name, depth + 1)
        return self._starred(module, name, depth) if found.way is Way.BOUND else None

    def origin(self, module: str, origin: ImportOrigin, depth: int = 0) -> Definition:
        """Return what an import in a module of the release stands for; None if it imports a module."""
        target = self.offers.modules.absolute(module, origin)
        if not self.offers.modules.owns(target):
            return ForeignPath(f"{target}.{origin.name}" if origin.name else target)
        if not origin.name or self.offers.modules.form(f"{target}.{origin.name}") is not None:
            return None
        return self.named(target, origin.name, depth + 1)

    def _starred(self, module: str, name: str, depth: int) -> Definition:
        summary = self.offers.modules.summary(module)
        for star in summary.stars if summary else ():
            target = self.offers.modules.absolute(module, star)
            source = self.offers.modules.form(target) is ModuleForm.SOURCE
            if source and self.offers.find(target, name).way in (Way.BOUND, Way.LAZY):
                return self.named(target, name, depth + 1)
        return None

    def path(self, path: str) -> Definition:
        """Return what a dotted path stands for; the path begins with an import name of the release."""
        module, *rest = path.split(".")
        while len(rest) > 1 and self.offers.modules.form(f"{module}.{rest[0]}") is not None:
            module = f"{module}.{rest.pop(0)}"
        return self.named(module, rest[0]) if len(rest) == 1 else None

    def expression(self, module: str, text: str, local: ImportOrigin | None = None) -> Definition:
        """Return what a dotted expression in a module stands for.

        Args:
            module: whose names it uses.
            text: the expression.
            local: what the function around it imports under the first name.

        """
        root, *rest = text.split(".")
        if local is not None:
            definition = self.origin(module, local)
            base = self.offers.modules.absolute(module, local) if definition is None else ""
        else:
            summary = self.offers.modules.summary(module)
            origin = summary.imports.get(root) if summary else None
            definition = self.named(module, root)
            base = self.offers.modules.absolute(module, origin) if origin and definition is None else ""
            local = origin
        if isinstance(definition, ForeignPath):
            return ForeignPath(".".join([definition.path, *rest]))
        if not rest:
            return definition
        if isinstance(definition, OwnClass):
            return self._called_on_class(definition, rest)
        if not base or not self.offers.modules.owns(base) or local is None:
            return None
        whole = f"{base}.{local.name}" if local.name else base
        return self.path(".".join([whole, *rest]))

    # Classes

    def _called_on_class(self, owner: OwnClass, names: Sequence[str]) -> OwnFunction | None:
        """Return the static or class method `Class.method` of the release; None for anything else."""
        found = self.method(owner, names[0]) if len(names) == 1 else None
        if found is None or found.method is None or not isinstance(found.owner, OwnClass):
            return None
        without_object = any(_name_of(text) in _WITHOUT_OBJECT for text in found.method.decorators)
        return OwnFunction(found.owner.module, found.method) if without_object else None

    def order(self, owner: OwnClass) -> tuple[Definition, ...]:
        """Return a class and its bases in the order in which attributes are looked up; None where unknown.

        The known order ends at the first base of another package.
        """
        key = (owner.module, owner.code.name)
        if key not in self._orders:
            self._orders[key] = (None,)
            self._orders[key] = (owner, *self._bases(owner))
        return self._orders[key]

    def _bases(self, owner: OwnClass) -> Iterator[Definition]:
        lines: list[tuple[Definition, ...]] = []
        for base in owner.code.bases:
            if base in ("object", "ABC", "abc.ABC", "Generic", "Protocol"):
                continue
            definition = self.expression(owner.module, base)
            lines.append(self.order(definition) if isinstance(definition, OwnClass) else (definition,))
        for index, line in enumerate(lines):
            later = [each for other in lines[index + 1 :] for each in other if each is not None]
            yield from (each for each in line if each not in later)

    def method(self, owner: OwnClass, name: str, after: int = -1) -> FoundMethod | None:
        """Return the method of this name; None if it cannot be determined.

        A base of another package is returned as the owner, because it may define the method.

        Args:
            owner: the class.
            name: name of the method.
            after: search only after this position in the order, for `super()`.

        """
        for position, each in enumerate(self.order(owner)):
            if position <= after:
                continue
            if isinstance(each, ForeignPath):
                return None if self._replaces(owner, each, name) else FoundMethod(each, None, position)
            if not isinstance(each, OwnClass):
                return None
            definitions = each.code.methods.get(name, ())
            if definitions:
                return FoundMethod(each, definitions[0], position) if len(definitions) == 1 else None
            if name in each.code.fields:
                return None
        return None

    def constructor(self, owner: OwnClass) -> FoundMethod | None:
        """Return the `__init__` that takes the arguments of a call of a class; None if they may change first.

        A base of another package is returned as the owner, because it may define the method.
        """
        for each in self.order(owner):
            if isinstance(each, ForeignPath):
                return self.method(owner, "__init__")
            if not isinstance(each, OwnClass) or each.code.peculiar or "__new__" in each.code.methods:
                return None
            if not all(_name_of(text) in _KEEPS_SIGNATURE for text in each.code.decorators):
                return None
            if "__init__" in each.code.methods:
                return self.method(owner, "__init__")
        return None

    def _replaces(self, owner: OwnClass, base: ForeignPath, name: str) -> bool:
        """Return whether a module changes a method of the base of another package that its class has.

        After `del Base.__init__`, `super().__init__(...)` calls the constructor of that class's own base.
        """
        return any(
            (text, name) in self.file(each.module).replaced and self.expression(each.module, text) == base
            for each in self.order(owner)
            if isinstance(each, OwnClass)
            for text in each.code.bases
        )

    def instance(self, owner: OwnClass, attribute: str) -> Definition:
        """Return the class of an attribute's value; None if it is not known.

        If no class of the release sets it, a base of another package may: entries.toml lists these.
        """
        order = self.order(owner)
        for each in order:
            if isinstance(each, OwnClass):
                if attribute in each.code.made:
                    return self.expression(each.module, each.code.made[attribute])
                if attribute in each.code.attributes | each.code.bound:
                    return None
        foreign = [each.path for each in order if isinstance(each, ForeignPath)]
        path = attribute_class(foreign[0], attribute) if len(foreign) == 1 and None not in order else ""
        return ForeignPath(path) if path else None

    # Signatures

    def accepts(self, path: str, method: str = "") -> frozenset[str] | None:
        """Return the keywords that something accepts; None if it accepts any, or if that is unknown.

        Args:
            path: dotted path of a function or class.
            method: method of the class; empty for a function, or for the constructor of a class.

        """
        definition = self.path(path)
        if isinstance(definition, OwnFunction):
            return None if method else signature(definition.code)
        if isinstance(definition, OwnClass):
            return self._accepted_by(definition, method or "__init__")
        owner, _, name = path.rpartition(".")
        above = self.path(owner) if definition is None and not method and "." in owner else None
        return self._accepted_by(above, name) if isinstance(above, OwnClass) else None

    def parameters(self, path: str, method: str) -> Parameters | None:
        """Return what a method of a class takes; None if the class or its method is not known."""
        owner = self.path(path)
        found = self.method(owner, method) if isinstance(owner, OwnClass) and method != "__init__" else None
        known = found is not None and found.method is not None and keeps_signature(found.method)
        return found.method.parameters if known and found is not None and found.method is not None else None

    def _accepted_by(self, owner: OwnClass, name: str) -> frozenset[str] | None:
        if name == "__init__":
            return self._constructor(owner)
        found = self.method(owner, name)
        return signature(found.method) if found is not None and found.method is not None else None

    def _constructor(self, owner: OwnClass) -> frozenset[str] | None:
        for each in self.order(owner):
            if not isinstance(each, OwnClass) or each.code.peculiar or "__new__" in each.code.methods:
                return None
            if not all(_name_of(text) in _KEEPS_SIGNATURE | {"dataclass"} for text in each.code.decorators):
                return None
            defined = each.code.methods.get("__init__", ())
            if defined:
                return signature(defined[0]) if len(defined) == 1 else None
            if is_dataclass(each.code):
                return self.fields(each)
        return None

    def fields(self, owner: OwnClass) -> frozenset[str] | None:
        """Return the fields of a dataclass, inherited ones included; None if a base cannot be read."""
        names: set[str] = set()
        for each in self.order(owner):
            if not isinstance(each, OwnClass) or each.code.peculiar:
                return None
            if is_dataclass(each.code):
                names.update(each.code.fields)
        return frozenset(names)


def is_dataclass(code: ClassCode) -> bool:
    """Return whether a class is decorated as a dataclass whose constructor is made from its fields."""
    return any(
        text.partition("(")[0] in _DATACLASSES and "init=False" not in text for text in code.decorators
    )


def signature(code: FunctionCode) -> frozenset[str] | None:
    """Return the keywords that a function accepts; None if it takes any, or a decorator may change them."""
    if code.accepted is None:
        return None
    names = set(code.accepted)
    for text in code.decorators:
        name = _name_of(text)
        names |= _ALSO.get(name, frozenset())
        if name in _RENAMES:
            names |= _texts(text)
        elif name not in _KEEPS_SIGNATURE and not text.endswith(".setter"):
            return None
    return frozenset(names)


def keeps_signature(code: FunctionCode) -> bool:
    """Return whether a method is called with its own parameters: no decorator changes them."""
    names = [_name_of(text) for text in code.decorators]
    return all(name in _KEEPS_SIGNATURE and name not in ("property", "cached_property") for name in names)


def _name_of(decorator: str) -> str:
    return decorator.partition("(")[0].rsplit(".", 1)[-1]


def _texts(decorator: str) -> set[str]:
    nodes = ast.walk(ast.parse(decorator, mode="eval"))
    return {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}
