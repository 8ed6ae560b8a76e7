"""Literal expressions of a Python file: their values, and Unknown for what is computed. Nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.programs.expressions import Expressions, ProgramTooLongError, computed
from envcheck.training_config.programs.values import (
    MISSING,
    Record,
    Thing,
    Value,
    Variables,
    is_known,
    is_list,
)

_NO_OPTIONS: Mapping[str, Any] = {}
_HOLDS_OPTIONS = pattern(r"arg|opt|config|cfg|params|flags")
"""Names of variables whose attributes are the options of a program."""


class Literals(Expressions):
    """Values of expressions in a file; a name that is assigned exactly once has the assigned value.

    `options` are the values of the program's own options, by name: `args.use_lora` has the value of
    `use_lora`, unless the program itself sets the attribute.
    """

    def __init__(self, names: AssignedNames, options: Mapping[str, Any] = _NO_OPTIONS) -> None:
        """Evaluate no expression yet."""
        super().__init__()
        self._scope = Variables(_AssignedOnce(self, names.once))
        self._options = {name: value for name, value in options.items() if name not in names.attributes}

    def of(self, node: ast.expr) -> Any:
        """Return the value of a literal expression; for any other, Unknown with a reason that quotes it."""
        try:
            found = self.value(node, self._scope)
        except ProgramTooLongError:
            return computed(node)
        return computed(node) if isinstance(found, Record) and found.rest else plain(found, node)

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return `bfloat16` for `torch.bfloat16`, and the value of an option for `args.option`."""
        del owner
        holder = getattr(node, "value", None)
        if isinstance(holder, ast.Name) and holder.id == "torch":
            return name
        spelled = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
        return self._options.get(name, MISSING) if _HOLDS_OPTIONS.search(spelled.lower()) else MISSING

    def call(self, node: ast.Call, scope: Variables) -> Value:
        """Return the dictionary that `dict(name=value)` makes."""
        if not isinstance(node.func, ast.Name) or node.func.id != "dict" or node.args:
            return MISSING
        return Record({each.arg: self.value(each.value, scope) for each in node.keywords if each.arg})

    def function(self, node: ast.Lambda, scope: Variables) -> Value:
        """Return that a function is computed."""
        del node, scope
        return MISSING

    def bind(self, target: ast.expr, value: Value, scope: Variables) -> None:
        """Give a value to the variable of a comprehension."""
        if isinstance(target, ast.Name) and scope is not self._scope:
            scope.names[target.id] = value


class AssignedNames:
    """Names that a file assigns once, with their expressions, and the attributes that it sets."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        assigned: dict[str, list[ast.expr]] = {}
        for node in nodes:
            for name, value in _bindings(node):
                assigned.setdefault(name, []).append(value)
        for name, value in _parameters(nodes):
            assigned.setdefault(name, []).append(value)
        self.once = {name: values[0] for name, values in assigned.items() if len(values) == 1}
        self.attributes = {
            node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }


class _AssignedOnce(dict[str, Value]):
    """Variables that a file assigns exactly once, each evaluated when it is first read."""

    def __init__(self, literals: Literals, expressions: Mapping[str, ast.expr]) -> None:
        super().__init__()
        self._literals = literals
        self._expressions = expressions

    def __contains__(self, name: object) -> bool:
        return name in self._expressions

    def __missing__(self, name: str) -> Value:
        node = self._expressions[name]
        self[name] = computed(node)  # while it is evaluated, for one that names itself
        self[name] = self._literals.value(node, Variables(self))
        return self[name]


def plain(value: Value, node: ast.expr) -> Any:
    """Return a value as Python's own: a dictionary for a record, Unknown for an object."""
    if isinstance(value, Record):
        return (
            {name: plain(inner, node) for name, inner in value.items.items()}
            if value.role != "object"
            else computed(node)
        )
    if is_list(value):
        return tuple(plain(each, node) for each in value)
    if isinstance(value, Thing) and value.maker == "or":
        return True
    return value if is_known(value) or isinstance(value, Unknown) else computed(node)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that a node binds, with its value.

    A name that is bound other than by `=` is yielded twice, so that it does not count as assigned once.
    """
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bound(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.AugAssign | ast.For | ast.NamedExpr):
        for name in ast.walk(node.target):
            if isinstance(name, ast.Name):
                yield from ((name.id, name), (name.id, name))
    elif isinstance(node, ast.Lambda):
        for arg in node.args.args:
            yield from ((arg.arg, ast.Name(arg.arg)), (arg.arg, ast.Name(arg.arg)))


def _parameters(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield each parameter with the value that all calls in the file pass; twice if there is none."""
    calls: dict[str, list[ast.Call]] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.setdefault(node.func.id, []).append(node)
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = calls.get(node.name, [])
        for name, default, position in _signature(node.args):
            values = [_passed(call, name, default, position) for call in given]
            texts = {ast.unparse(value) for value in values if value is not None}
            if len(texts) == 1 and None not in values and values[0] is not None:
                yield name, values[0]
            else:
                yield from ((name, ast.Name(name)), (name, ast.Name(name)))


def _signature(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None, int]]:
    """Yield each parameter with its default and its position, or -1 if it is keyword-only or variadic."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    for index, each in enumerate(positional):
        yield each.arg, arguments.defaults[index - without] if index >= without else None, index
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield each.arg, default, -1
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest.arg, None, -1


def _passed(call: ast.Call, name: str, default: ast.expr | None, position: int) -> ast.expr | None:
    """Return the expression that a call passes for a parameter; None if that is not known."""
    packed = [isinstance(each, ast.Starred) for each in call.args]
    if any(packed) or not all(each.arg for each in call.keywords):
        return None
    given = next((each.value for each in call.keywords if each.arg == name), None)
    if given is not None:
        return given
    return call.args[position] if 0 <= position < len(call.args) else default


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a target of `=`.

    Those in a tuple whose value has no parts, and those of which an item is set, are yielded twice.
    """
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        if len(parts) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in target.elts):
            for inner, part in zip(target.elts, parts, strict=True):
                yield from _bound(inner, part)
            return
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                yield from ((name.id, name), (name.id, name))
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):  # changes an item
        yield from ((target.value.id, target.value), (target.value.id, target.value))
