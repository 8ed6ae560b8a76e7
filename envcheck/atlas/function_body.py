"""Read the body of one function: the calls that run when it is called, each with the tests around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from envcheck.atlas.code_summary import (
    SELF,
    SUPER,
    UNLESS_RAISED,
    UNREADABLE_TEST,
    CodeCall,
    CodeImport,
    if_given,
)
from envcheck.atlas.rest_keywords import dropped_keywords, rest_name
from envcheck.atlas.summary import Guards, ImportOrigin
from envcheck.atlas.syntax import ErrorType, catches, dotted, ends_in_raise, expected, suppressed

_ERRORS: tuple[ErrorType, ...] = (TypeError, ModuleNotFoundError, ImportError, AttributeError)
_TABLE_METHODS = ("to_dict", "asdict")
_DEFERRED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_ALL_KEYS = "*"
_OF_ATTRIBUTE = re.compile(r"self\.\w+\.\w+")
_CLASS_NAME = re.compile(r"_*[A-Z]\w*[a-z]\w*")


@dataclass(frozen=True)
class Spot:
    """Hold the place of a statement in a function.

    Attributes:
        guards: the tests around it.
        looped: whether the statement is in a loop.
        caught: whether a `try` around it catches TypeError.
        optional: whether a `try` around it catches that a module or a name in it is missing.
        absent: whether a `try` around it catches AttributeError.

    """

    guards: Guards = ()
    looped: bool = False
    caught: bool = False
    optional: bool = False
    absent: bool = False

    def under(self, *guards: str) -> Spot:
        """Return the same place under more tests."""
        return replace(self, guards=(*self.guards, *(each for each in guards if each not in self.guards)))

    def expecting(self, errors: Collection[ErrorType]) -> Spot:
        """Return the same place in a `try` that catches these errors."""
        return replace(
            self,
            caught=self.caught or TypeError in errors,
            optional=self.optional or ModuleNotFoundError in errors or ImportError in errors,
            absent=self.absent or AttributeError in errors,
        )


@dataclass(frozen=True)
class _GivenValues:
    """Hold the positional arguments of a call, and the methods of `self` and the classes among all.

    `rest` says whether the function's own `**kwargs` are among them.
    """

    positional: int = -1
    methods: tuple[tuple[str | int, str], ...] = ()
    classes: tuple[tuple[str | int, str], ...] = ()
    rest: bool = False


@dataclass
class FunctionReader:
    """Walk the statements of one function in order and collect what it calls.

    Attributes:
        node: the function.
        calls: what it calls.
        imports: what it imports.
        imported: its imports that no `try` expects to fail.
        made: local names that hold an instance, with the expression of its class.
        locals: names that the body or the parameters bind.

    """

    node: ast.FunctionDef
    calls: list[CodeCall] = field(default_factory=list)
    imports: dict[str, ImportOrigin] = field(default_factory=dict)
    imported: list[CodeImport] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    locals: frozenset[str] = frozenset()
    _tables: dict[str, dict[str, Guards]] = field(default_factory=dict)
    _stored: dict[str, int] = field(default_factory=dict)
    _plain: dict[str, ast.expr] = field(default_factory=dict)
    _parameters: frozenset[str] = frozenset()
    _flags: set[str] = field(default_factory=set)

    def read(self) -> None:
        """Read the body."""
        arguments = self.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        bound = {each.arg for each in (*every, arguments.vararg, arguments.kwarg) if each is not None}
        self._parameters = frozenset(each.arg for each in every)
        for each in ast.walk(self.node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                bound.add(each.id)
                self._stored[each.id] = self._stored.get(each.id, 0) + 1
        self.locals = frozenset(bound - {SELF, "cls"})
        if dropped_keywords(self.node) is not None:
            self._tables[rest_name(self.node)] = {}
        self._block(self.node.body, Spot())

    # Statements

    def _block(self, body: Sequence[ast.stmt], spot: Spot) -> None:
        for statement in body:
            reader = getattr(self, f"_read_{type(statement).__name__.lower()}", None)
            if reader is not None:
                spot = reader(statement, spot) or spot
            elif not isinstance(statement, _DEFERRED):
                self._children(statement, spot)

    def _children(self, node: ast.AST, spot: Spot) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child, spot)

    def _read_import(self, node: ast.Import, spot: Spot) -> None:
        for alias in node.names:
            self._import(ImportOrigin(0, alias.name), node, spot)
            local = alias.asname or alias.name.split(".")[0]
            self.imports.setdefault(local, ImportOrigin(0, alias.name if alias.asname else local))

    def _read_importfrom(self, node: ast.ImportFrom, spot: Spot) -> None:
        for alias in node.names:
            origin = ImportOrigin(node.level, node.module or "", alias.name)
            self._import(origin, node, spot)
            self.imports.setdefault(alias.asname or alias.name, origin)

    def _import(self, origin: ImportOrigin, node: ast.stmt, spot: Spot) -> None:
        if not spot.optional:
            self.imported.append(CodeImport(origin, spot.guards, node.lineno, spot.looped))

    def _read_if(self, node: ast.If, spot: Spot) -> Spot:
        self._expression(node.test, spot)
        test = self._test(node.test)
        if (dotted(node.test) or "").startswith(f"{SELF}."):
            # Acting on a flag resets it, as saving does: a second test of it is seldom true.
            test, again = (UNREADABLE_TEST if test in self._flags else test), test
            self._flags.add(again)
        then = UNLESS_RAISED + _negated(test) if ends_in_raise(node.orelse) else test
        otherwise = UNLESS_RAISED + test if ends_in_raise(node.body) else _negated(test)
        self._block(node.body, spot.under(then))
        self._block(node.orelse, spot.under(otherwise))
        ends, otherwise_ends = _ends(node.body), _ends(node.orelse)
        if ends and otherwise_ends:
            return spot.under("False")
        if ends:
            return spot.under(otherwise)
        return spot.under(then) if otherwise_ends else spot

    def _read_try(self, node: ast.Try, spot: Spot) -> Spot:
        lenient = [each for each in node.handlers if not ends_in_raise(each.body)]
        caught = expected(node.handlers, _ERRORS)
        self._block(node.body, spot.expecting(caught))
        for each in node.handlers:
            self._block(each.body, spot.under(UNREADABLE_TEST))
        self._block(node.orelse, spot.under(UNREADABLE_TEST) if TypeError in caught else spot)
        self._block(node.finalbody, spot)
        returned = _ends(node.body) or any(_ends(each.body) for each in lenient)
        return spot.under(UNREADABLE_TEST) if returned else spot

    def _read_with(self, node: ast.With, spot: Spot) -> Spot:
        for item in node.items:
            self._expression(item.context_expr, spot)
        named = suppressed(node)
        caught = {error for error in _ERRORS if any(catches(each, error) for each in named)}
        self._block(node.body, spot.expecting(caught))
        return spot.under("False") if _ends(node.body) else spot

    def _read_for(self, node: ast.For | ast.While, spot: Spot) -> Spot:
        self._expression(node.iter if isinstance(node, ast.For) else node.test, spot)
        self._block(node.body, replace(spot, looped=True))
        self._block(node.orelse, spot.under(UNREADABLE_TEST))
        leaves = any(isinstance(each, ast.Return) for each in ast.walk(node))
        return replace(spot, looped=True) if leaves else spot

    _read_while = _read_for

    def _read_match(self, node: ast.Match, spot: Spot) -> Spot:
        for case in node.cases:
            self._block(case.body, spot.under(UNREADABLE_TEST))
        return spot.under(UNREADABLE_TEST) if any(_ends(each.body) for each in node.cases) else spot

    def _read_assign(self, node: ast.Assign, spot: Spot) -> None:
        self._expression(node.value, spot)
        match node.targets:
            case [ast.Name(id=name)]:
                self._bind(name, node.value, spot)
            case [ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))]:
                if name in self._tables:
                    self._tables[name][key] = spot.guards
            case _:
                pass

    def _read_annassign(self, node: ast.AnnAssign, spot: Spot) -> None:
        if node.value is not None:
            self._expression(node.value, spot)
            if isinstance(node.target, ast.Name):
                self._bind(node.target.id, node.value, spot)

    def _read_delete(self, node: ast.Delete, _spot: Spot) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                self._forget(target.value, target.slice)

    def _read_expr(self, node: ast.Expr, spot: Spot) -> None:
        self._expression(node.value, spot)

    def _bind(self, name: str, value: ast.expr, spot: Spot) -> None:
        self._tables.pop(name, None)
        if self._stored.get(name) != 1:
            return
        keys = _literal_keys(value)
        if keys is not None:
            self._tables[name] = dict.fromkeys(keys, spot.guards)
        if (made := made_class(value)) is not None:
            self.made[name] = made
        if not spot.guards:
            self._plain[name] = value

    # Tests

    def _test(self, node: ast.expr) -> str:
        """Return a test as text; a local name is replaced by its value, or makes the test unreadable."""
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
            ):
                if name in self._parameters and name not in self._stored:
                    return if_given(name)
            case ast.Name(id=name) if name in self._parameters and name not in self._stored:
                return if_given(name)
            case _:
                pass
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if not names & self.locals - self.imports.keys():
            return ast.unparse(node)
        return ast.unparse(_Inlined(self).visit(ast.parse(ast.unparse(node), mode="eval").body))

    # Expressions

    def _expression(self, node: ast.expr, spot: Spot) -> None:
        match node:
            case ast.Lambda():
                return
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                self._expression(test, spot)
                text = self._test(test)
                self._expression(then, spot.under(text))
                self._expression(otherwise, spot.under(_negated(text)))
            case ast.BoolOp(op=operation, values=values):
                for value in values:
                    self._expression(value, spot)
                    text = self._test(value)
                    spot = spot.under(text if isinstance(operation, ast.And) else _negated(text))
            case ast.Call():
                self._call(node, spot)
            case ast.Attribute():
                self._attribute(node, spot)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                for child in ast.walk(node):
                    if isinstance(child, ast.Call):
                        self._call(child, replace(spot, looped=True).under(UNREADABLE_TEST))
            case _:
                self._children(node, spot)

    def _attribute(self, node: ast.Attribute, spot: Spot) -> None:
        chain = dotted(node)
        if chain == f"{SELF}.{node.attr}":
            self._record(chain, (), (), node, spot, read=True)
        elif chain is None or chain.startswith((f"{SELF}.", "cls.")):
            self._children(node, spot)
            if chain is not None and _OF_ATTRIBUTE.fullmatch(chain) and isinstance(node.ctx, ast.Load):
                self._record(chain, (), (), node, spot, read=True)
        elif isinstance(node.ctx, ast.Load):
            self._record(chain, (), (), node, spot, read=True)

    def _call(self, node: ast.Call, spot: Spot) -> None:
        self._mutate(node, spot)
        for argument in node.args:
            self._expression(argument.value if isinstance(argument, ast.Starred) else argument, spot)
        for keyword in node.keywords:
            self._expression(keyword.value, spot)
        function, keywords = node.func, node.keywords
        target = _target(function)
        if not target:
            self._children(function, spot)
            return
        if isinstance(function, ast.Attribute) and target.startswith(f"{SELF}.") and target.count(".") > 1:
            self._expression(function.value, spot)
        given = _given(node)
        named = tuple(each.arg for each in keywords if each.arg)
        unpacked = tuple(filter(None, (_table_of(each.value) for each in keywords if each.arg is None)))
        names = {each.value.id for each in keywords if each.arg is None and isinstance(each.value, ast.Name)}
        rest = rest_name(self.node) in names
        self._record(target, named, unpacked, node, spot, given=replace(given, rest=rest))
        for each in keywords:
            if each.arg is None and isinstance(each.value, ast.Name):
                for key, guards in self._tables.get(each.value.id, {}).items():
                    self._record(target, (key,), (), node, spot.under(*guards), given=given)

    def _record(
        self,
        target: str,
        keywords: tuple[str, ...],
        unpacked: tuple[str, ...],
        node: ast.expr,
        spot: Spot,
        *,
        read: bool = False,
        given: _GivenValues | None = None,
    ) -> None:
        if not spot.caught and not (read and UNREADABLE_TEST in spot.guards):
            found = given or _GivenValues()
            self.calls.append(
                CodeCall(
                    target,
                    keywords,
                    unpacked,
                    spot.guards,
                    node.lineno,
                    spot.looped,
                    read,
                    found.positional,
                    found.methods,
                    spot.absent,
                    found.classes,
                    found.rest,
                )
            )

    def _mutate(self, node: ast.Call, spot: Spot) -> None:
        """Note the key that a method call adds to a dictionary, or forget those that it removes."""
        match node.func:
            case ast.Attribute(value=ast.Name(id=name), attr="setdefault") if name in self._tables:
                key = node.args[0] if node.args else None
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self._tables[name].setdefault(key.value, spot.guards)
            case ast.Attribute(value=table, attr="pop" | "clear" | "popitem") if isinstance(table, ast.Name):
                self._forget(table, node.args[0] if node.args else ast.Constant(value=_ALL_KEYS))
            case _:
                pass

    def _forget(self, table: ast.expr, key: ast.expr) -> None:
        if isinstance(table, ast.Name) and table.id in self._tables:
            known = isinstance(key, ast.Constant) and key.value != _ALL_KEYS
            if known and isinstance(key, ast.Constant):
                self._tables[table.id].pop(str(key.value), None)
            else:
                del self._tables[table.id]


class _Inlined(ast.NodeTransformer):
    """Replace the local names of a test by their only value, if it depends on no other local name."""

    def __init__(self, reader: FunctionReader) -> None:
        self._reader = reader

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the value of a local name, or the name `UNREADABLE_TEST` if it has no usable value."""
        reader = self._reader
        if node.id not in reader.locals or node.id in reader.imports:
            return node
        value = reader._plain.get(node.id)  # noqa: SLF001 - the transformer is a part of the reader
        names = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)} if value else set()
        if value is None or names & reader.locals:
            return ast.Name(id=UNREADABLE_TEST, ctx=ast.Load())
        return value


def _given(node: ast.Call) -> _GivenValues:
    starred = any(isinstance(each, ast.Starred) for each in node.args)
    by_position: list[tuple[str | int, ast.expr]] = [] if starred else [*enumerate(node.args)]
    by_name = [(each.arg, each.value) for each in node.keywords if each.arg]
    methods = tuple(
        (place, value.attr)
        for place, value in (*by_position, *by_name)
        if isinstance(value, ast.Attribute) and dotted(value.value) == SELF
    )
    named = ((place, dotted(value)) for place, value in (*by_position, *by_name))
    classes = tuple((place, text) for place, text in named if text and names_a_class(text))
    return _GivenValues(-1 if starred else len(node.args), methods, classes)


def names_a_class(text: str) -> bool:
    """Return whether a dotted expression is spelt as a class is: `transformers.Trainer`."""
    return _CLASS_NAME.fullmatch(text.rsplit(".", 1)[-1]) is not None


def _negated(test: str) -> str:
    return f"not ({test})"


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block never reaches the statement after it."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, _ENDS)


def _target(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
            return f"{SUPER}.{name}"
        case _:
            return dotted(node) or ""


def _table_of(node: ast.expr) -> str:
    """Return the expression of `**x.to_dict()` as `x.to_dict`; empty for anything else."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as function, args=[], keywords=[]) if (
            name in _TABLE_METHODS
        ):
            return dotted(function) or ""
        case _:
            return ""


def _literal_keys(node: ast.expr) -> list[str] | None:
    """Return the keys of a dictionary literal; None for anything else."""
    match node:
        case ast.Dict(keys=keys):
            return [
                each.value for each in keys if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return [each.arg for each in keywords if each.arg]
        case _:
            return None


def made_class(node: ast.expr | None) -> str | None:
    """Return the class whose instance a call makes, recognised by the spelling of its name; else None."""
    if not isinstance(node, ast.Call):
        return None
    path = dotted(node.func)
    parts = path.split(".") if path else []
    if len(parts) > 1 and parts[-1].startswith("from_") and parts[-2][:1].isupper():
        parts.pop()
    return ".".join(parts) if parts and parts[-1][:1].isupper() and parts[0] != SELF else None
