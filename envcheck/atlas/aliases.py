"""Read the old names under which a file serves modules that lie elsewhere.

A file may put modules into `sys.modules` under other names, one by one, in a loop, or in a function that it
calls, or it may add an import hook with a table of old and new names. Statements are followed as far as their
values are texts in the file. A part of a name that cannot be read is `*`, and a target that cannot be read is
empty.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from envcheck.atlas.summary import OWN_NAME, ModuleAlias
from envcheck.atlas.syntax import dotted

UNREAD = "*"
"""Stands for a part of a name that cannot be read."""

_DEEPEST_CALL = 3
_MOST_ALIASES = 2000


@dataclass(frozen=True)
class AliasReading:
    """Old names that a file serves.

    Attributes:
        aliases: each old name with the module that it stands for.
        loose: the file also registers modules under names that cannot be read.
        replaces_itself: the file puts something that is no readable module in its own place.

    """

    aliases: tuple[ModuleAlias, ...] = ()
    loose: bool = False
    replaces_itself: bool = False


@dataclass(frozen=True)
class _ReachedModule:
    """A module as a value; the path is empty if it cannot be read."""

    path: str


_Value: TypeAlias = "str | _ReachedModule | tuple[_Value, ...] | dict[str, _Value] | None"
_Names: TypeAlias = Mapping[str, _Value]


def read_aliases(tree: ast.Module, source: str) -> AliasReading:
    """Return the old names that a file serves."""
    if "sys.modules" not in source and "sys.meta_path" not in source:
        return AliasReading()
    return _AliasReader(tree).read()


@dataclass
class _AliasReader:
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    aliases: dict[ModuleAlias, None] = field(default_factory=dict)
    seen: set[ast.AST] = field(default_factory=set)
    loose: bool = False
    replaces_itself: bool = False

    def read(self) -> AliasReading:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.update(_imported(node))
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, node)
        self.run(self.tree.body, {}, 0)
        registering = [each for each in ast.walk(self.tree) if _registers(each)]
        hooked = any(isinstance(each, ast.Call) and _is_hook(each) for each in registering)
        if hooked:
            self.tables()
        self.loose = self.loose or hooked or any(each not in self.seen for each in registering)
        return AliasReading(tuple(self.aliases)[:_MOST_ALIASES], self.loose, self.replaces_itself)

    def tables(self) -> None:
        """Read the tables of old and new names in a file that adds an import hook."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Dict):
                continue
            for key, value in zip(node.keys, node.values, strict=True):
                match key, value:
                    case ast.Constant(value=str(old)), ast.Constant(value=str(new)) if _are_paths(old, new):
                        absolute = "." in old
                        alias = old if absolute else f"{OWN_NAME}.{old}"
                        self.aliases[ModuleAlias(alias, new if absolute else f".{new}", hooked=True)] = None
                    case _:
                        pass

    # Statements

    def run(self, statements: Iterable[ast.stmt], names: dict[str, _Value], depth: int) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    self.seen.add(statement)
                    self.assign(targets, value, names)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.assign([target], value, names)
                case ast.For():
                    self.loop(statement, names, depth)
                case ast.If(body=body, orelse=other):
                    self.run((*body, *other), names, depth)
                case ast.With(body=body):
                    self.run(body, names, depth)
                case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
                    handled = [each for handler in handlers for each in handler.body]
                    self.run((*body, *handled, *other, *last), names, depth)
                case ast.Expr(value=ast.Call() as call):
                    self.call(call, names, depth)
                case _:
                    pass

    def assign(self, targets: Sequence[ast.expr], value: ast.expr, names: dict[str, _Value]) -> None:
        found = self.value(value, names)
        for target in targets:
            if isinstance(target, ast.Name):
                names[target.id] = found
            elif isinstance(target, ast.Subscript) and dotted(target.value) == "sys.modules":
                self.register(target.slice, value, names)
            elif ast.unparse(target) == "sys.modules[__name__].__class__":
                self.replaces_itself = True

    def loop(self, loop: ast.For, names: dict[str, _Value], depth: int) -> None:
        values = self.value(loop.iter, names)
        rows: Sequence[_Value] = (None,)
        if isinstance(values, dict):
            rows = tuple(values)
        elif isinstance(values, tuple):
            rows = values
        for row in rows[:_MOST_ALIASES]:
            self.bind(loop.target, row, names)
            self.run(loop.body, names, depth)

    def bind(self, target: ast.expr, value: _Value, names: dict[str, _Value]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value if isinstance(value, tuple) and len(value) == len(target.elts) else None
            for index, each in enumerate(target.elts):
                self.bind(each, parts[index] if parts is not None else None, names)

    def call(self, call: ast.Call, names: dict[str, _Value], depth: int) -> None:
        function = dotted(call.func) or ""
        if function in ("sys.modules.setdefault", "sys.modules.__setitem__") and len(call.args) == 2:  # noqa: PLR2004
            self.seen.add(call)
            self.register(call.args[0], call.args[1], names)
        elif function == "sys.modules.update" and call.args and isinstance(call.args[0], ast.Dict):
            self.seen.add(call)
            for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
                if key is not None:
                    self.register(key, value, names)
        elif function in self.functions and depth < _DEEPEST_CALL:
            called = self.functions[function]
            parameters = [*called.args.posonlyargs, *called.args.args]
            inside: dict[str, _Value] = dict(names)
            for parameter, argument in zip(parameters, call.args, strict=False):
                inside[parameter.arg] = self.value(argument, names)
            for keyword in call.keywords:
                if keyword.arg:
                    inside[keyword.arg] = self.value(keyword.value, names)
            self.run(called.body, {**inside, _WITHIN: function}, depth + 1)

    def register(self, key: ast.expr, value: ast.expr, names: _Names) -> None:
        alias = self.value(key, names)
        target = self.value(value, names)
        path = target.path if isinstance(target, _ReachedModule) else self.module_made(names)
        if not isinstance(alias, str) or alias.strip("*.") == "":
            self.loose = True
        elif alias == OWN_NAME and not path:
            self.replaces_itself = True
        else:
            self.aliases[ModuleAlias(alias, path)] = None

    def module_made(self, names: _Names) -> str:
        """Return the only module that the function around imports, whose names a new module then serves."""
        within = names.get(_WITHIN)
        if not isinstance(within, str):
            return ""
        calls = (each for each in ast.walk(self.functions[within]) if isinstance(each, ast.Call))
        made = {found.path for each in calls if isinstance(found := self.value(each, names), _ReachedModule)}
        return next(iter(made)) if len(made) == 1 else ""

    # Values

    def value(self, node: ast.expr, names: _Names) -> _Value:
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp(op=ast.Add()):
                return self.joined(node, names)
            case ast.Name(id=name):
                return self.named(name, names)
            case ast.Attribute():
                return self.imported(dotted(node) or "")
            case ast.Subscript() | ast.Call():
                return self.called(node, names)
            case _:
                return self.collection(node, names)

    def collection(self, node: ast.expr, names: _Names) -> _Value:
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return tuple(self.value(each, names) for each in parts)
            case ast.Dict(keys=keys, values=values):
                return self.table(keys, values, names)
            case _:
                return None

    def named(self, name: str, names: _Names) -> _Value:
        if name == "__name__":
            return OWN_NAME
        return names[name] if name in names else self.imported(name)

    def joined(self, node: ast.expr, names: _Names) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self.text(each, names) for each in parts)
            case ast.BinOp(left=left, right=right):
                return self.text(left, names) + self.text(right, names)
            case _:
                return UNREAD

    def table(
        self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], names: _Names
    ) -> dict[str, _Value]:
        found: dict[str, _Value] = {}
        for key, value in zip(keys, values, strict=True):
            text = self.value(key, names) if key is not None else None
            if isinstance(text, str):
                found[text] = self.value(value, names)
        return found

    def called(self, node: ast.Subscript | ast.Call, names: _Names) -> _Value:
        """Return the module of `sys.modules[...]` or `import_module(...)`, or the rows of a table."""
        match node:
            case ast.Subscript(value=ast.Attribute() as base, slice=key) if dotted(base) == "sys.modules":
                return self.module(key, names)
            case ast.Call(func=ast.Attribute(value=base, attr="items"), args=[]):
                table = self.value(base, names)
                return tuple(table.items()) if isinstance(table, dict) else None
            case ast.Call(func=ast.Attribute(value=base, attr="keys" | "copy"), args=[]):
                return self.value(base, names)
            case ast.Call(func=function, args=[path, *_]):
                imports = (dotted(function) or "").rsplit(".", 1)[-1] == "import_module"
                return self.module(path, names) if imports else None
            case _:
                return None

    def module(self, node: ast.expr, names: _Names) -> _ReachedModule:
        path = self.value(node, names)
        return _ReachedModule(path if isinstance(path, str) and UNREAD not in path else "")

    def text(self, node: ast.expr, names: _Names) -> str:
        inner = node.value if isinstance(node, ast.FormattedValue) else node
        found = self.value(inner, names)
        return found if isinstance(found, str) else UNREAD

    def imported(self, chain: str) -> _Value:
        root, _, rest = chain.partition(".")
        origin = self.imports.get(root)
        if origin is None:
            return None
        return _ReachedModule(
            ".".join(filter(None, (origin, rest))) if origin.strip(".") else f"{origin}{rest}"
        )


_WITHIN = "<function>"
"""The key under which the values of a function hold its name."""


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the local names of an import, each with the dotted path that it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        return
    base = "." * node.level + (node.module or "")
    for alias in node.names:
        yield (
            alias.asname or alias.name,
            f"{base}{alias.name}" if base.endswith(".") else f"{base}.{alias.name}",
        )


def _are_paths(*texts: str) -> bool:
    return all(part.isidentifier() for text in texts for part in text.split("."))


def _is_hook(call: ast.Call) -> bool:
    return (dotted(call.func) or "").startswith("sys.meta_path.")


def _registers(node: ast.AST) -> bool:
    """Return whether a statement or call puts a module into `sys.modules`, or adds an import hook."""
    match node:
        case ast.Assign():
            return any(
                isinstance(target, ast.Subscript)
                and dotted(target.value) == "sys.modules"
                and ast.unparse(target.slice) != "__name__"
                for target in node.targets
            )
        case ast.Call():
            function = dotted(node.func) or ""
            reads = function.endswith((".get", ".keys", ".items", ".values", ".pop"))
            return function.startswith(("sys.modules.", "sys.meta_path.")) and not reads
        case _:
            return False
