"""Read what a module-level `__getattr__` imports for each name that stands in its body.

Two forms are read: a test of the name against texts, with an import below it,

    if name in ("Trainer", "TrainerCallback"):
        from .trainer import Trainer ...

and a table from names to modules, `{"Trainer": (".trainer", "Trainer")}`, whose module `import_module` gets.
A form that is not read makes no name, so that the name stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from envcheck.atlas.summary import Guards, ImportOrigin
from envcheck.atlas.syntax import dotted, ends_in_raise


def getter_names(tree: ast.Module, getter: ast.FunctionDef) -> dict[str, ImportOrigin]:
    """Return the names that a `__getattr__` answers by an import, and what each of them stands for."""
    if len(getter.args.args) != 1:
        return {}
    found: dict[str, ImportOrigin] = {}
    for name, origin in _GetterBody(getter.args.args[0].arg, _literals(tree)).names(getter.body, ()):
        found.setdefault(name, origin)
    return found


def relative_key(getter: ast.FunctionDef) -> bool:
    """Return whether a `__getattr__` puts a dot, or its own name, before a path: `f".{module}"`."""
    for call in _import_calls(getter):
        match call.args[0]:
            case ast.JoinedStr(values=[ast.Constant(value="."), *_]):
                return True
            case ast.JoinedStr(values=[ast.FormattedValue(value=own), ast.Constant(value="."), *_]):
                return _is_own_name(own)
            case ast.BinOp(op=ast.Add(), left=ast.Constant(value=".")):
                return True
            case ast.BinOp(op=ast.Add(), left=ast.BinOp(left=own, right=ast.Constant(value="."))):
                return _is_own_name(own)
            case _:
                pass
    return False


def _import_calls(node: ast.AST) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and each.args and _imports(each):
            yield each


def _imports(call: ast.Call) -> bool:
    return (dotted(call.func) or "").rsplit(".", 1)[-1] == "import_module"


def _is_own_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("__name__", "__package__")


def _literals(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Return the texts of module-level collections by name; of a dictionary, its keys."""
    return {
        target.id: words
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and (words := _words(statement.value)) is not None
    }


def _words(value: ast.expr) -> frozenset[str] | None:
    """Return the texts of a written collection, of a dictionary its keys; None for anything else."""
    match value:
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple" | "list"), args=[inner], keywords=[]):
            return _words(inner)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            nodes: Sequence[ast.expr | None] = elements
        case ast.Dict(keys=keys):
            nodes = keys
        case _:
            return None
    texts = [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return frozenset(texts) if len(texts) == len(nodes) else None


@dataclass
class _GetterBody:
    """Walk the body of one `__getattr__`, whose parameter is `asked`."""

    asked: str
    collections: dict[str, frozenset[str]]

    def names(self, body: Sequence[ast.stmt], guards: Guards) -> Iterator[tuple[str, ImportOrigin]]:
        """Yield each name that is compared with the parameter, with what its branch returns."""
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=local)], value=value) if words := _words(value):
                    self.collections = {**self.collections, local: words}
                case ast.If(test=test) if (asked := self._compared(test)) is not None:
                    for name in sorted(asked):
                        origin = _GetterBranch(self.asked, name).origin(statement.body)
                        if origin is not None:
                            yield name, replace(origin, guards=guards)
                    yield from self.names(statement.orelse, guards)
                case ast.If(test=test):
                    written = ast.unparse(test)
                    yield from self.names(statement.body, (*guards, written))
                    yield from self.names(statement.orelse, (*guards, f"not ({written})"))
                    if ends_in_raise(statement.body):
                        guards = (*guards, f"not ({written})")
                case _:
                    pass

    def _compared(self, test: ast.expr) -> frozenset[str] | None:
        """Return the texts with which a test compares the parameter; None if it is another test."""
        match test:
            case ast.Compare(
                left=ast.Name(id=self.asked), ops=[ast.Eq()], comparators=[ast.Constant(value=str(word))]
            ):
                return frozenset({word})
            case ast.Compare(left=ast.Name(id=self.asked), ops=[ast.In()], comparators=[ast.Name(id=table)]):
                return self.collections.get(table)
            case ast.Compare(left=ast.Name(id=self.asked), ops=[ast.In()], comparators=[written]):
                return _words(written)
            case _:
                return None


@dataclass
class _GetterBranch:
    """Follow one branch to what it returns for one name."""

    asked: str
    name: str
    locals: dict[str, ImportOrigin] = field(default_factory=dict)

    def origin(self, body: Sequence[ast.stmt]) -> ImportOrigin | None:
        """Return the module and name that the branch returns; None if it does anything else."""
        for statement in body:
            match statement:
                case ast.ImportFrom(level=level, module=module):
                    for alias in statement.names:
                        self.locals[alias.asname or alias.name] = ImportOrigin(
                            level, module or "", alias.name
                        )
                case ast.Import():
                    for alias in statement.names:
                        if alias.asname or "." not in alias.name:
                            self.locals[alias.asname or alias.name] = ImportOrigin(0, alias.name)
                case ast.Assign(targets=[ast.Name(id=local)], value=value):
                    self._bind(local, value)
                case ast.Assign() | ast.Global() | ast.Expr():
                    pass
                case ast.Return(value=ast.expr() as value):
                    return self._value(value)
                case _:
                    return None
        return None

    def _bind(self, local: str, value: ast.expr) -> None:
        found = self._value(value)
        if found is not None:
            self.locals[local] = found
        else:
            self.locals.pop(local, None)

    def _value(self, value: ast.expr) -> ImportOrigin | None:
        match value:
            case ast.Name(id=local):
                return self.locals.get(local)
            case ast.Attribute(value=owner, attr=attribute):
                return _inside(self._value(owner), attribute)
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, name]):
                return _inside(self._value(owner), self._text(name))
            case ast.Call(args=[path, *rest]) if _imports(value):
                return _module(self._text(path), rest)
            case _:
                return None

    def _text(self, value: ast.expr) -> str:
        """Return a written text, or the name that is asked for; empty for anything else."""
        match value:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=self.asked):
                return self.name
            case ast.JoinedStr():
                return self._joined(value)
            case _:
                return ""

    def _joined(self, text: ast.JoinedStr) -> str:
        """Return the path that `f".{name}"` or `f"{__name__}.{name}"` states; empty for other texts."""
        parts = []
        for place, each in enumerate(text.values):
            match each:
                case ast.Constant(value=str(word)):
                    parts.append(word)
                case ast.FormattedValue(value=ast.Name(id=self.asked)):
                    parts.append(self.name)
                case ast.FormattedValue(value=own) if place == 0 and _is_own_name(own):
                    pass  # the dot after it makes the path relative
                case _:
                    return ""
        return "".join(parts)


def _module(path: str, rest: Sequence[ast.expr]) -> ImportOrigin | None:
    """Return the module of `import_module(path, package)`; None if it is relative to another package."""
    name = path.lstrip(".")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        return None
    level = len(path) - len(name)
    if level and rest and not _is_own_name(rest[0]):
        return None
    return ImportOrigin(level, name)


def _inside(owner: ImportOrigin | None, name: str) -> ImportOrigin | None:
    """Return a name inside a module that an import gets; `from . import x` gets a module, too."""
    if owner is None or not name:
        return None
    module = ".".join(filter(None, (owner.module, owner.name)))
    return replace(owner, module=module, name=name)


def table_pair(value: ast.expr) -> tuple[str, str] | None:
    """Return the module and name of a value `(".module", "name")`; None for anything else."""
    match value:
        case ast.Tuple(elts=[ast.Constant(value=str(module)), ast.Constant(value=str(name))]) if (
            "." in module and name.isidentifier()
        ):
            return module, name
    return None


def relative(origin: ImportOrigin) -> ImportOrigin:
    """Return an origin of a table as seen from the package of the file, if it has no dots of its own."""
    return origin if origin.level else replace(origin, level=1)
