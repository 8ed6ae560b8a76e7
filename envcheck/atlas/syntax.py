"""Questions about Python syntax that several readers ask."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def dotted(node: ast.AST) -> str | None:
    """Return `a.b.c` for a chain of attributes that begins with a name, or None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def is_type_checking(test: ast.expr) -> bool:
    """Return whether a test is `TYPE_CHECKING`, alone or with a flag that only slows the import."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(is_type_checking(each) for each in test.values)
    return (dotted(test) or "").rsplit(".", 1)[-1] == "TYPE_CHECKING"


def ends_in_raise(body: Sequence[ast.stmt]) -> bool:
    """Return whether the last statement of a block is a `raise`."""
    return bool(body) and isinstance(body[-1], ast.Raise)


def only_a_refusal(body: Sequence[ast.stmt]) -> str | None:
    """Return the test of `try: if not is_x_available(): raise …`, the form of optional dependencies."""
    match body:
        case [ast.If(test=test, body=raising, orelse=[])] if ends_in_raise(raising):
            return ast.unparse(test)
    return None


def caught_names(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the exceptions that a handler catches."""
    if handler.type is None:
        return {"BaseException"}
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {(dotted(each) or "").rsplit(".", 1)[-1] for each in types}
