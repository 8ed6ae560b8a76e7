"""Read what a function does with its `**kwargs` before it hands them on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_READS = frozenset({"get", "setdefault", "items", "keys", "values"})
"""Methods of a dictionary that take no key out of it."""


def rest_name(node: ast.FunctionDef) -> str:
    """Return the name of a function's `**kwargs`; empty if it has none."""
    return node.args.kwarg.arg if node.args.kwarg is not None else ""


def dropped_keywords(node: ast.FunctionDef) -> frozenset[str] | None:
    """Return the keywords that a function may take out of its `**kwargs`.

    None if it has no such parameter, or may change it in a way that is not read: it binds the name anew,
    or gives the dictionary itself to another function.
    """
    rest = rest_name(node)
    if not rest:
        return None
    dropped: set[str] = set()
    read = 0
    for key in _plain_uses(node, rest):
        read += 1
        dropped.update(filter(None, (key,)))
    every = sum(isinstance(each, ast.Name) and each.id == rest for each in ast.walk(node))
    return frozenset(dropped) if read == every else None


def _plain_uses(node: ast.FunctionDef, rest: str) -> Iterator[str]:
    """Yield the key that each plain use of the dictionary takes out of it; empty for those that take none."""
    for each in ast.walk(node):
        match each:
            case ast.keyword(arg=None, value=ast.Name(id=name)) if name == rest:
                yield ""
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name == rest:
                yield key if isinstance(each.ctx, ast.Del) else ""
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)]) if name == rest:
                yield ""
            case ast.If(test=ast.Name(id=name)) if name == rest:
                yield ""
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="pop"),
                args=[ast.Constant(value=str(key)), *_],
            ) if name == rest:
                yield key
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if (
                name == rest and method in _READS
            ):
                yield ""
            case _:
                pass
