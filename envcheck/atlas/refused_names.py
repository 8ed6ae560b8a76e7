"""Read the names that a module-level `__getattr__` refuses one by one, because the package has dropped them.

numpy 2 raises AttributeError for each name in a table, and pydantic 2 raises PydanticImportError for each
`module:name` in a set. Such a refusal is certain, even in a module whose other names cannot be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from envcheck.atlas.syntax import dotted, ends_in_raise

_GETTER = "getattr"
_DEFINES_GETTER = re.compile(r"\bdef\s+\w*getattr")
"""The definition of a getter or of a function that makes one: most files only call `getattr`."""


@dataclass(frozen=True)
class RefusedNames:
    """Hold the names that one file refuses.

    Attributes:
        words: refused names, or refused `module:name`.
        tables: refused names are the keys of tables that the file imports under these names.
        keys: the keys of the file's own tables, by the name of the table, for files that import one.

    """

    words: frozenset[str] = frozenset()
    tables: tuple[str, ...] = ()
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)


def read_refused_names(tree: ast.Module, source: str) -> RefusedNames:
    """Return the names that the `__getattr__` of a file, or one that it makes, refuses."""
    keys = {name: frozenset(words) for name, words in _tables(tree) if _tells_of_the_past(name)}
    if "raise" not in source or _DEFINES_GETTER.search(source) is None:
        return RefusedNames(keys=keys)
    words: set[str] = set()
    kept: set[str] = set()
    tables: dict[str, None] = {}
    own = dict(_tables(tree))
    for function in _getters(tree):
        tested = _tested_names(function)
        for test, refuses in _tests(function.body, tested):
            found = _words(test, own)
            if not refuses:
                kept |= found or set()
            elif found is None:
                tables.update(dict.fromkeys(_table_name(test)))
            else:
                words |= found
    return RefusedNames(frozenset(words - kept), tuple(tables), keys)


def _tells_of_the_past(name: str) -> bool:
    return any(word in name.lower() for word in ("expired", "former", "removed"))


def _getters(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield module-level `__getattr__` functions, and the functions that a maker of such functions holds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            continue
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef):
                continue
            inside = isinstance(node, ast.FunctionDef) and _GETTER in node.name
            if child.name == "__getattr__" or (inside and child.args.args):
                yield child


def _tested_names(function: ast.FunctionDef) -> frozenset[str]:
    """Return the parameter of a getter, and the names that hold a text made of it."""
    names = {each.arg for each in function.args.args[:1]}
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.JoinedStr() as value):
                if names & {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}:
                    names.add(name)
            case _:
                pass
    return frozenset(names)


def _tests(body: Iterable[ast.stmt], tested: frozenset[str]) -> Iterator[tuple[ast.Compare, bool]]:
    """Yield each test of the asked name whose block returns or raises, and whether it always raises."""
    for statement in body:
        if not isinstance(statement, ast.If):
            continue
        match statement.test:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.In()]) if name in tested:
                answers = any(isinstance(each, ast.If | ast.Return) for each in _inner(statement.body))
                if answers or ends_in_raise(statement.body):  # a mere warning is neither
                    yield statement.test, not answers
            case _:
                pass
        yield from _tests(statement.orelse, tested)


def _inner(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        yield from ast.walk(statement)


def _words(test: ast.Compare, tables: Mapping[str, set[str]]) -> set[str] | None:
    """Return the texts that a test compares with; None if a table of another file holds them."""
    match test.comparators[0]:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return {text for each in parts if (text := _text(each))}
        case _:
            name = next(iter(_table_name(test)), "")
            return tables.get(name)


def _table_name(test: ast.Compare) -> list[str]:
    value = test.comparators[0]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "keys":
        value = value.func.value
    name = dotted(value)
    return [name] if name and "." not in name else []


def _tables(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield the tables at module level, also below `if`, each with the texts of its keys or elements."""
    firsts: dict[str, list[ast.expr]] = {}
    for statement in _statements(tree.body):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                keys = _keys(value, firsts)
                if keys is not None:
                    firsts[name] = keys
                    yield name, {text for each in keys if (text := _text(each))}
            case _:
                pass


def _keys(value: ast.expr, tables: Mapping[str, list[ast.expr]]) -> list[ast.expr] | None:
    """Return the keys of a dictionary, the elements of a collection, or the first parts of its rows."""
    match value:
        case ast.Dict(keys=keys):
            return [each for each in keys if each is not None]
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return [each.elts[0] if isinstance(each, ast.Tuple) and each.elts else each for each in parts]
        case ast.DictComp(key=ast.Name(), generators=[ast.comprehension(iter=ast.Name(id=name), ifs=[])]):
            return tables.get(name)
        case ast.Call(func=ast.Name(id="frozenset" | "set"), args=[inner]):
            return _keys(inner, tables)
        case _:
            return None


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements((*statement.body, *statement.orelse))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
