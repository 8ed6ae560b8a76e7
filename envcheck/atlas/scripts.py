"""Reduce a module to the statements that decide guards: constants, tests and functions that answer them."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

_LONGEST_VALUE = 400
_LONGEST_FUNCTION = 60
_PREDICATE = re.compile(
    r"available|version|greater|less|equal|at_least|compatible|installed|support|exist|enabled|^_?(is|has|can|use)_|package",
    re.IGNORECASE,
)
_DECIDES = re.compile(
    r"version|availab|find_spec|metadata|environ|getenv|hasattr|platform|import_module|installed|[A-Z]{2}",
    re.IGNORECASE,
)
_EVALUATED = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Subscript,
    ast.IfExp,
)


def reduced_source(tree: ast.Module) -> str:
    """Return the source of the statements of a module that may decide a guard; empty if there are none."""
    kept = _reduced(tree.body)
    kept = [*_helpers(tree, kept), *kept]
    source = "\n".join(ast.unparse(each) for each in kept)
    return source if _DECIDES.search(source) else ""


def _helpers(tree: ast.Module, kept: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the functions that kept statements use, whatever their names."""
    rest = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    added: list[ast.stmt] = []
    searched = list(kept)
    while searched:
        names = {each.id for each in ast.walk(searched.pop()) if isinstance(each, ast.Name)}
        for name in sorted(names & rest.keys()):
            function = rest.pop(name)
            helper = None if _PREDICATE.search(name) else _predicate(function)
            if helper is not None:
                added.append(helper)
                searched.append(helper)
    return added


def _reduced(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [kept for each in body if (kept := _kept(each)) is not None]


def _kept(statement: ast.stmt) -> ast.stmt | None:
    kept: ast.stmt | None = None
    match statement:
        case ast.Assign() if all(isinstance(each, ast.Name | ast.Tuple) for each in statement.targets):
            kept = _assignment(statement.targets, statement.value)
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
            kept = _assignment([target], value)
        case ast.AugAssign(target=ast.Name() as target):
            kept = _assignment([target], ast.Constant(value=...))
        case ast.For() | ast.While():
            kept = _loop(statement)
        case ast.If():
            kept = _branch(statement)
        case ast.Try():
            kept = _attempt(statement)
        case ast.FunctionDef() if _PREDICATE.search(statement.name):
            kept = _predicate(statement)
        case ast.Expr(value=ast.Call() as call) if "version" in ast.unparse(call.func):
            kept = statement
        case ast.Import() | ast.ImportFrom() | ast.Raise():
            kept = statement
        case _:
            pass
    return kept


def _assignment(targets: Sequence[ast.expr], value: ast.expr) -> ast.stmt | None:
    """Return the assignment; a value that is never evaluated becomes an ellipsis."""
    if not isinstance(value, _EVALUATED) or len(ast.unparse(value)) > _LONGEST_VALUE:
        value = ast.Constant(value=...)
    return ast.fix_missing_locations(ast.Assign(targets=list(targets), value=value, lineno=0))


def _loop(statement: ast.For | ast.While) -> ast.stmt | None:
    """Return an assignment that makes every name opaque that a loop binds."""
    names = {
        each.id
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    if not names:
        return None
    targets: list[ast.expr] = [ast.Name(id=name, ctx=ast.Store()) for name in sorted(names)]
    return _assignment(targets, ast.Constant(value=...))


def _branch(statement: ast.If) -> ast.stmt | None:
    body, otherwise = _reduced(statement.body), _reduced(statement.orelse)
    if not body and not otherwise:
        return None
    return ast.If(test=statement.test, body=body or [ast.Pass()], orelse=otherwise)


def _attempt(statement: ast.Try) -> ast.stmt | None:
    body = [kept for each in statement.body if (kept := _kept(each) or _called(each)) is not None]
    otherwise = _reduced(statement.orelse)
    handlers = [
        ast.ExceptHandler(type=each.type, name=each.name, body=_reduced(each.body) or [ast.Pass()])
        for each in statement.handlers
    ]
    if not any((body, otherwise, *(each.body != [ast.Pass()] for each in handlers))):
        return None
    if not handlers:  # `try` with `finally` alone: the body runs as if it stood there
        return ast.If(test=ast.Constant(value=True), body=body or [ast.Pass()], orelse=otherwise)
    return ast.Try(body=body or [ast.Pass()], handlers=handlers, orelse=otherwise, finalbody=[])


def _called(statement: ast.stmt) -> ast.stmt | None:
    """Return a call inside a `try`, which may fail."""
    return statement if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _predicate(function: ast.FunctionDef) -> ast.stmt | None:
    """Return the bare function without annotations; None if it is long or returns nothing."""
    statements = [each for each in ast.walk(function) if isinstance(each, ast.stmt)]
    if len(statements) > _LONGEST_FUNCTION or not any(isinstance(each, ast.Return) for each in statements):
        return None
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    arguments = function.args
    plain = ast.arguments(
        posonlyargs=[ast.arg(arg=each.arg) for each in arguments.posonlyargs],
        args=[ast.arg(arg=each.arg) for each in arguments.args],
        kwonlyargs=[ast.arg(arg=each.arg) for each in arguments.kwonlyargs],
        kw_defaults=arguments.kw_defaults,
        defaults=arguments.defaults,
        vararg=arguments.vararg and ast.arg(arg=arguments.vararg.arg),
        kwarg=arguments.kwarg and ast.arg(arg=arguments.kwarg.arg),
    )
    return ast.fix_missing_locations(
        ast.FunctionDef(
            name=function.name, args=plain, body=body or [ast.Pass()], decorator_list=[], lineno=0
        )
    )
