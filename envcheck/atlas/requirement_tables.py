"""Read tables of requirements, and loops that check them while a module is imported.

transformers keeps the requirement of every package in `dependency_versions_table.py`, and checks some of
them in `dependency_versions_check.py`, except those whose `continue` is reached first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import InvalidRequirement, Requirement

from envcheck.atlas.summary import Guards, TableCheck
from envcheck.atlas.syntax import dotted

_CHECKS = ("require_version", "require_version_core")


def read_requirement_tables(tree: ast.Module) -> Mapping[str, Mapping[str, str]]:
    """Return the module-level dictionaries of a module that hold a requirement for each package."""
    tables: dict[str, dict[str, str]] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table):
                rows = {
                    str(key.value): str(value.value)
                    for key, value in zip(table.keys, table.values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
                }
                if rows and len(rows) == len(table.keys) and all(map(_is_requirement, rows, rows.values())):
                    tables[name] = rows
            case _:
                pass
    return tables


def _is_requirement(key: str, value: str) -> bool:
    try:
        return Requirement(value).name.lower() == Requirement(key).name.lower()  # the key may name extras
    except InvalidRequirement:
        return False


def read_table_checks(tree: ast.Module) -> Iterator[TableCheck]:
    """Yield the requirements that a module-level loop checks by `require_version(table[name])`."""
    lists: dict[str, Sequence[str]] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                lists[name] = _names(value)
            case ast.For(target=ast.Name(id=variable), iter=iterated):
                names = lists.get(iterated.id, ()) if isinstance(iterated, ast.Name) else _names(iterated)
                for name in names:
                    yield from _checks(statement.body, variable, name, [])
            case _:
                pass


def _names(value: ast.expr) -> Sequence[str]:
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [
                each.value
                for each in elements
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split"), args=[]):
            return text.split()
        case _:
            return ()


def _checks(body: Sequence[ast.stmt], variable: str, name: str, guards: list[str]) -> Iterator[TableCheck]:
    """Follow one turn of the loop, in which the variable has this value; `guards` grows on the way."""
    for statement in body:
        match statement:
            case ast.If(test=test, body=[ast.Continue()], orelse=[]):
                guards.append(f"not ({ast.unparse(test)})")
            case ast.If(test=test):
                yield from _checks(_branch(statement, variable, name), variable, name, guards)
            case ast.Expr(value=ast.Call() as call) if table := _checked_table(call, variable):
                kept: Guards = tuple(guards)
                yield TableCheck(name, table, kept, statement.lineno)
            case _:
                pass


def _branch(statement: ast.If, variable: str, name: str) -> Sequence[ast.stmt]:
    """Return the branch that runs for this value of the variable."""
    match statement.test:
        case ast.Compare(left=ast.Name(id=left), ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
            if left == variable:
                return statement.body if value == name else statement.orelse
        case _:
            pass
    return statement.body


def _checked_table(call: ast.Call, variable: str) -> str:
    """Return the name of the table in `require_version_core(deps[pkg])`, or an empty text."""
    match call.args:
        case [ast.Subscript(value=ast.Name(id=table), slice=ast.Name(id=key)), *_] if key == variable:
            return table if (dotted(call.func) or "").rsplit(".", 1)[-1] in _CHECKS else ""
        case _:
            return ""
