"""Literal expressions of a Python file: their values, and Unknown for what is computed. Nothing is run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.facts import Unknown

_MAX_DEPTH = 40  # of an expression that is evaluated
_SHOWN = 60  # characters of an expression that a reason quotes
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}


class Literals:
    """The values of expressions in a file, in which a name that is assigned once stands for its value."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        """Take all nodes of the file."""
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in nodes:
            for name, value in _bindings(node):
                self._assigned.setdefault(name, []).append(value)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of a literal expression; Unknown with the expression for any other."""
        read = _READERS.get(type(node))
        found = read(self, node, depth + 1) if read is not None and depth < _MAX_DEPTH else None
        if found is not None or (isinstance(node, ast.Constant) and node.value is None):
            return found
        return computed(node)

    def _constant(self, node: ast.Constant, depth: int) -> Any:
        del depth
        return node.value if isinstance(node.value, bool | int | float | str) else None

    def _name(self, node: ast.Name, depth: int) -> Any:
        values = self._assigned.get(node.id, [])
        return self.value(values[0], depth) if len(values) == 1 else None

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        """Return `bfloat16` for `torch.bfloat16`."""
        del depth
        return node.attr if isinstance(node.value, ast.Name) and node.value.id == "torch" else None

    def _unary(self, node: ast.UnaryOp, depth: int) -> Any:
        value = self.value(node.operand, depth)
        if not isinstance(value, bool | int | float):
            return None
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(node.op, ast.USub) else None

    def _choice(self, node: ast.IfExp, depth: int) -> Any:
        test = self.value(node.test, depth)
        return None if isinstance(test, Unknown) else self.value(node.body if test else node.orelse, depth)

    def _either(self, node: ast.BoolOp, depth: int) -> Any:
        """Return whether `and` or `or` holds, as far as its parts decide it."""
        decides = isinstance(node.op, ast.Or)
        parts = [self.value(part, depth) for part in node.values]
        if any(not isinstance(part, Unknown) and bool(part) is decides for part in parts):
            return decides
        return None if any(isinstance(part, Unknown) for part in parts) else not decides

    def _binary(self, node: ast.BinOp, depth: int) -> Any:
        numbers = [self.value(side, depth) for side in (node.left, node.right)]
        function = _ARITHMETIC.get(type(node.op))
        if function is None or not all(type(number) in (int, float) for number in numbers):
            return None
        try:
            return function(*numbers)
        except (ZeroDivisionError, OverflowError):
            return None

    def _items(self, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Any:
        return tuple(self.value(item, depth) for item in node.elts)

    def _dict(self, node: ast.Dict, depth: int) -> Any:
        found: dict[str, Any] = {}
        for key, node_of_value in zip(node.keys, node.values, strict=True):
            value = self.value(node_of_value, depth)
            name = self.value(key, depth) if key is not None else None
            if isinstance(name, str):
                found[name] = value
            elif key is None and isinstance(value, dict):  # **OTHER
                found.update(value)
            else:
                return None
        return found

    def _call(self, node: ast.Call, depth: int) -> Any:
        """Return the dictionary that `dict(name=value)` makes."""
        is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args
        return (
            {each.arg: self.value(each.value, depth) for each in node.keywords if each.arg}
            if is_dict
            else None
        )


_READERS: Mapping[type[ast.expr], Callable[[Literals, Any, int], Any]] = {
    ast.Constant: Literals._constant,  # noqa: SLF001 - the table of its own methods
    ast.Name: Literals._name,  # noqa: SLF001
    ast.Attribute: Literals._attribute,  # noqa: SLF001
    ast.UnaryOp: Literals._unary,  # noqa: SLF001
    ast.BoolOp: Literals._either,  # noqa: SLF001
    ast.IfExp: Literals._choice,  # noqa: SLF001
    ast.BinOp: Literals._binary,  # noqa: SLF001
    ast.List: Literals._items,  # noqa: SLF001
    ast.Tuple: Literals._items,  # noqa: SLF001
    ast.Set: Literals._items,  # noqa: SLF001
    ast.Dict: Literals._dict,  # noqa: SLF001
    ast.Call: Literals._call,  # noqa: SLF001
}


def computed(node: ast.expr) -> Unknown:
    """Return the reason why an expression has no value before the program runs."""
    return Unknown(f"{quoted(node)} is computed when the program runs")


def quoted(node: ast.expr) -> str:
    """Return the text of an expression, cut where it is long."""
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a node binds, each with its value; twice what is bound otherwise than by `=`."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bound(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.AugAssign | ast.For | ast.NamedExpr):
        for name in ast.walk(node.target):
            if isinstance(name, ast.Name):
                yield from ((name.id, name), (name.id, name))
    elif isinstance(node, ast.arg):
        yield from ((node.arg, ast.Name(node.arg)), (node.arg, ast.Name(node.arg)))


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a target of `=`; those in a tuple whose value has no parts are yielded twice."""
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
