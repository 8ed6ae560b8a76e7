"""Read which attributes the objects of a class have: what its methods assign to `self`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envcheck.atlas.code_summary import SELF

_ANSWERING = frozenset({"__getattr__", "__getattribute__"})
_TABLES = (f"{SELF}.__dict__", f"vars({SELF})")
"""Dictionaries of an object's attributes; who holds one may add any."""


def assigned_to_self(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that a class, or a function inside it, gives to an object called `self`."""
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Call(
                func=ast.Name(id="setattr"), args=[ast.Name(id="self"), ast.Constant(value=str(name)), *_]
            ):
                yield name
            case _:
                pass


def answers_more(node: ast.ClassDef) -> bool:
    """Return whether objects of a class may have attributes that nothing in its file names."""
    functions = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(
        each.name in _ANSWERING
        or _fills_the_table(each)
        or (each.args.kwarg is not None and _sets_named(each))
        for each in functions
    )


def sets_named(node: ast.ClassDef) -> bool:
    """Return whether a method sets attributes by names that are values, as texts of the file may be."""
    return _sets_named(node)


def _sets_named(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Name)
        and each.func.id == "setattr"
        and len(each.args) > 1
        and ast.unparse(each.args[0]) == SELF
        and not isinstance(each.args[1], ast.Constant)
        for each in ast.walk(node)
    )


def _fills_the_table(node: ast.AST) -> bool:
    """Return whether a function writes to the dictionary of its object's attributes."""
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Attribute(value=table, attr="update" | "setdefault")):
                if ast.unparse(table) in _TABLES:
                    return True
            case ast.Subscript(value=table, ctx=ast.Store()):
                if ast.unparse(table) in _TABLES:
                    return True
            case ast.Attribute(value=ast.Name(id="self"), attr="__dict__", ctx=ast.Store()):
                return True
            case _:
                pass
    return False
