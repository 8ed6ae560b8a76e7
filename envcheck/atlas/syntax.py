"""Questions about Python syntax that several readers ask."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterable, Sequence

ErrorType = type[Exception]

_CLASS_NAME = re.compile(r"_*[A-Z]\w*[a-z]\w*")
"""The name of one class; a tuple of classes is named in capitals alone, or begins with a small letter."""


def parsed(content: bytes) -> ast.Module | None:
    """Return the statements of a file; None if Python cannot parse it, or only with more memory."""
    source = content.decode("utf-8", errors="replace").removeprefix("\N{BYTE ORDER MARK}")
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def dotted(node: ast.AST) -> str | None:
    """Return `a.b.c` for a chain of attributes that begins with a name, or None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def is_type_checking(test: ast.expr) -> bool:
    """Return whether a test is `TYPE_CHECKING`, alone or with a flag that only slows the import.

    Such a flag is a name: `TYPE_CHECKING or SLOW_IMPORT`. Any other test, `not IS_WASM or TYPE_CHECKING`, is
    one of a program that runs.
    """
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return all(map(dotted, test.values)) and any(map(is_type_checking, test.values))
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


def catches(named: ast.expr | None, error: ErrorType, *, derived: bool = False) -> bool:
    """Return whether `except NAMED` catches an error of exactly this class of Python's own.

    A missing name is an ImportError, which `except ModuleNotFoundError` lets pass; a class that is not
    Python's own is no base of its errors. With `derived`, the error may be of a class that is derived from
    this one, as PackageNotFoundError is, and such a class counts. A name that may stand for several classes,
    `except _ERRORS`, counts always.
    """
    if named is None:
        return True
    if isinstance(named, ast.Tuple):
        return any(catches(each, error, derived=derived) for each in named.elts)
    name = (dotted(named) or "").rsplit(".", 1)[-1]
    known = getattr(builtins, name, None)
    if isinstance(known, type):
        return issubclass(error, known)
    return derived or not _CLASS_NAME.fullmatch(name)


def catcher(
    handlers: Iterable[ast.ExceptHandler], error: ErrorType, *, derived: bool = False
) -> ast.ExceptHandler | None:
    """Return the handler to which an error goes: the first one that catches it, as `catches` says."""
    return next((each for each in handlers if catches(each.type, error, derived=derived)), None)


def expected(handlers: Sequence[ast.ExceptHandler], errors: Iterable[ErrorType]) -> frozenset[ErrorType]:
    """Return those errors whose handler does not end in a `raise`, so that the code goes on."""
    found = ((error, catcher(handlers, error)) for error in errors)
    return frozenset(error for error, each in found if each is not None and not ends_in_raise(each.body))


def suppressed(node: ast.With) -> list[ast.expr]:
    """Return the classes of errors that `with contextlib.suppress(...)` swallows."""
    return [
        argument
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
        and (dotted(item.context_expr.func) or "").endswith("suppress")
        for argument in item.context_expr.args
    ]
