"""Find the version checks in functions that a module calls while it is imported, or that users call.

llamafactory calls `check_dependencies()` at the top of a module. Such a function is followed with the values
of its arguments: a `raise`, an `assert` and a call of `require_version` in it refuse like one in the module.
If an environment variable can end the function earlier, each later refusal lists it. Of what users call,
nothing is known of the arguments.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from envcheck.atlas.code_file import flat
from envcheck.atlas.conditions import (
    ALWAYS,
    NEVER,
    UNREADABLE,
    AllOf,
    AnyOf,
    Condition,
    all_of,
    any_of,
    negate,
)
from envcheck.atlas.definitions import Definition, Definitions, OwnClass, OwnFunction
from envcheck.atlas.predicates import Names
from envcheck.atlas.summary import ImportOrigin, ModuleCall
from envcheck.atlas.symbols import OPAQUE, LocalFunction, SymbolValue, assign, truth
from envcheck.atlas.syntax import dotted, ends_in_raise

VERSION_CHECKS = ("require_version", "require_version_core")
"""Functions of transformers, and copies of them, that raise unless a requirement is met."""

_DEEPEST = 6
_MOST_TURNS = 40
_ON_SELF = "self."
_MAY_LEAVE = (ast.While, ast.Match, ast.AsyncFor, ast.AsyncWith)
"""Statements that are not followed, and that may end the function."""
_PLAIN = ("override", "staticmethod", "classmethod")
"""Decorators that leave a method as it is."""


@dataclass(frozen=True, slots=True)
class CalledRefusal:
    """A line of a called function that refuses versions.

    Attributes:
        requirement: the requirement that is checked, `trl>=0.18.0`; empty for a `raise` or an `assert`.
        condition: when the line is reached; for a `raise` or an `assert`, when it raises.
        place: file and line.
        variables: environment variables that may end the function before this line, if they are set.

    """

    requirement: str
    condition: Condition
    place: str
    variables: tuple[str, ...]


@dataclass(frozen=True)
class _CalledSpot:
    """A statement's place in a function that is followed.

    Attributes:
        module: the module of its function.
        names: local names of the function.
        imports: what the function imports.
        reached: when the statement is reached.
        variables: environment variables that may end the function before it.
        written: file and line of the call that names the requirement, if the function was called with it.
        depth: number of calls around it.
        receiver: the class of `self`, if it is a method.

    """

    module: str
    names: Names
    imports: Mapping[str, ImportOrigin]
    reached: Condition
    variables: tuple[str, ...] = ()
    written: str = ""
    depth: int = 0
    receiver: OwnClass | None = None

    def under(self, test: Condition, variables: Sequence[str] = ()) -> _CalledSpot:
        """Return the spot inside a branch, with a copy of the names, so that its assignments stay there."""
        asked = tuple(dict.fromkeys((*self.variables, *variables)))
        return replace(self, names=dict(self.names), reached=all_of((self.reached, test)), variables=asked)


_Walk = Generator[CalledRefusal, None, _CalledSpot]


@dataclass
class CalledChecks:
    """Follow calls of one release.

    Attributes:
        code: the definitions of the release.

    """

    code: Definitions
    _running: list[str] = field(default_factory=list)

    def refusals(self, call: ModuleCall, module: str, reached: Condition) -> Iterator[CalledRefusal]:
        """Yield the refusals of a call at module level."""
        node = ast.parse(call.text, mode="eval").body
        if isinstance(node, ast.Call):
            yield from self._called(node, _CalledSpot(module, {}, {}, reached), call.line)

    def of_users(self, definition: Definition, methods: Sequence[str]) -> Iterator[CalledRefusal]:
        """Yield the refusals in a function that users call, or in methods of a class that a run calls."""
        if isinstance(definition, OwnFunction):
            function = self._body(definition.module, definition.code.name)
            if function is not None and _runs_as_written(function.node):
                yield from self._by_users(function, None)
        if isinstance(definition, OwnClass):
            for name in methods:
                yield from self._by_users(self._own_method(definition, name), definition)

    def _by_users(self, function: LocalFunction | None, receiver: OwnClass | None) -> Iterator[CalledRefusal]:
        if function is None or _is_generator(function.node):
            return
        names: Names = dict.fromkeys(self.code.offers.guards.parameters(function, (), {}), OPAQUE)
        self._running.append(function.node.name)
        yield from self._block(
            function.node.body, _CalledSpot(function.module, names, {}, ALWAYS, receiver=receiver)
        )
        self._running.pop()

    def _own_method(self, owner: OwnClass, name: str) -> LocalFunction | None:
        """Return the method that runs for objects of a class, if the release defines it, and once."""
        found = self.code.method(owner, name)
        if found is None or found.method is None or not isinstance(found.owner, OwnClass):
            return None
        function = self._body(found.owner.module, name, found.owner.code.name)
        return function if function is not None and _runs_as_written(function.node) else None

    def _body(self, module: str, name: str, owner: str = "") -> LocalFunction | None:
        modules = self.code.offers.modules
        functions = _functions(modules.release.files.read(modules.path(module)), owner)
        node = functions.get(name)
        return LocalFunction(node, module) if node is not None else None

    # Calls

    def _called(self, node: ast.Call, spot: _CalledSpot, line: int = 0) -> Iterator[CalledRefusal]:
        """Yield the refusals of a call of `require_version` or of a function of the release."""
        path = dotted(node.func) or ""
        guards = self.code.offers.guards
        values = [guards.value(each, spot.names, spot.module) for each in node.args]
        here = f"{self.code.offers.modules.path(spot.module)}:{line or node.lineno}"
        if any(isinstance(each, ast.Constant) for each in node.args):
            spot = replace(spot, written=here)
        if path.rsplit(".", 1)[-1] in VERSION_CHECKS:
            if values and isinstance(values[0], str):
                yield CalledRefusal(values[0], spot.reached, spot.written or here, spot.variables)
            return
        function = self._function(path, spot)
        if function is None or spot.depth >= _DEEPEST or function.node.name in self._running:
            return
        keywords = {
            each.arg: guards.value(each.value, spot.names, spot.module)
            for each in node.keywords
            if each.arg is not None
        }
        names = guards.parameters(function, values, keywords)
        if path.startswith(_ON_SELF) or _hands_on(node):
            names = dict.fromkeys(names, OPAQUE)
        self._running.append(function.node.name)
        receiver = spot.receiver if path.startswith(_ON_SELF) else None
        inner = replace(
            spot, module=function.module, names=names, imports={}, depth=spot.depth + 1, receiver=receiver
        )
        yield from self._block(function.node.body, inner)
        self._running.pop()

    def _function(self, path: str, spot: _CalledSpot) -> LocalFunction | None:
        """Return the function of the release that a dotted name means, with its body."""
        root, _, rest = path.partition(".")
        local = spot.imports.get(root)
        if path.startswith(_ON_SELF) and spot.receiver is not None and "." not in rest:
            return self._own_method(spot.receiver, rest)
        if not path or (root in spot.names and local is None):
            return None
        found = self.code.expression(spot.module, path, local)
        if not isinstance(found, OwnFunction) or found.code.decorators:
            return None
        function = self._body(found.module, found.code.name)
        return function if function is not None and not _is_generator(function.node) else None

    # Statements: each method returns the spot of the next statement; after a return, that is reached NEVER.

    def _block(self, body: Sequence[ast.stmt], spot: _CalledSpot) -> _Walk:
        for statement in body:
            if spot.reached == NEVER:
                break
            reader = getattr(self, f"_read_{type(statement).__name__.lower()}", None)
            if reader is not None:
                spot = yield from reader(statement, spot)
            else:
                _forget(statement, spot.names)
                if isinstance(statement, _MAY_LEAVE) and _leaves(statement):
                    spot = spot.under(UNREADABLE)
        return spot

    def _read_expr(self, node: ast.Expr, spot: _CalledSpot) -> _Walk:
        if isinstance(node.value, ast.Call):
            yield from self._called(node.value, spot)
        return spot

    def _read_return(self, node: ast.Return, spot: _CalledSpot) -> _Walk:
        if isinstance(node.value, ast.Call):
            yield from self._called(node.value, spot)
        return replace(spot, reached=NEVER)

    def _read_raise(self, node: ast.Raise, spot: _CalledSpot) -> _Walk:
        yield self._refusal(node, spot, spot.reached)
        return replace(spot, reached=NEVER)

    def _read_assert(self, node: ast.Assert, spot: _CalledSpot) -> _Walk:
        test = truth(self._value(node.test, spot))
        yield self._refusal(node, spot, all_of((spot.reached, negate(test))))
        return spot

    def _refusal(self, node: ast.stmt, spot: _CalledSpot, condition: Condition) -> CalledRefusal:
        path = self.code.offers.modules.path(spot.module)
        return CalledRefusal("", condition, f"{path}:{node.lineno}", spot.variables)

    def _read_if(self, node: ast.If, spot: _CalledSpot) -> _Walk:
        guards = self.code.offers.guards
        guards.variables.clear()
        test = truth(self._value(node.test, spot))
        asked = tuple(sorted(guards.variables))
        then = yield from self._block(node.body, spot.under(test, asked))
        otherwise = yield from self._block(node.orelse, spot.under(negate(test), asked))
        _merge(test, then, otherwise, spot.names)
        after = any_of((then.reached, otherwise.reached))
        inside = all_of((spot.reached, test)), all_of((spot.reached, negate(test)))
        raised = ends_in_raise(node.body) or ends_in_raise(node.orelse)
        if (then.reached, otherwise.reached) == inside or (raised and _is_unsure(test)):
            after = spot.reached
        if not _leaves(node):
            asked = ()
        return replace(spot, reached=after, variables=tuple(dict.fromkeys((*spot.variables, *asked))))

    def _read_try(self, node: ast.Try, spot: _CalledSpot) -> _Walk:
        """Walk the body if every handler raises again; a failure that is caught refuses nothing."""
        if not all(ends_in_raise(each.body) for each in node.handlers):
            _forget(node, spot.names)
            returns = any(isinstance(each, ast.Return) for each in ast.walk(node))
            return spot.under(UNREADABLE) if returns else spot
        spot = yield from self._block([*node.body, *node.orelse, *node.finalbody], spot)
        return spot

    def _read_with(self, node: ast.With, spot: _CalledSpot) -> _Walk:
        caught = any("suppress" in ast.unparse(each.context_expr) for each in node.items)
        if caught:
            _forget(node, spot.names)
            return spot
        spot = yield from self._block(node.body, spot)
        return spot

    def _read_for(self, node: ast.For, spot: _CalledSpot) -> _Walk:
        """Walk each turn of a loop over known values; nothing is known of the turns of any other loop."""
        values = self._value(node.iter, spot)
        leaves = any(isinstance(each, ast.Return | ast.Break) for each in ast.walk(node))
        turns = values if isinstance(values, tuple) and len(values) <= _MOST_TURNS and not leaves else ()
        for value in turns:
            turn = spot.under(ALWAYS)
            assign(node.target, value, turn.names)
            yield from self._block(node.body, turn)
        _forget(node, spot.names)
        return spot.under(UNREADABLE) if leaves else spot

    def _read_continue(self, _node: ast.Continue, spot: _CalledSpot) -> _Walk:
        yield from ()
        return replace(spot, reached=NEVER)

    def _read_assign(self, node: ast.Assign, spot: _CalledSpot) -> _Walk:
        if isinstance(node.value, ast.Call):
            yield from self._called(node.value, spot)
        value = self._value(node.value, spot)
        for target in node.targets:
            assign(target, value, spot.names)
        return spot

    def _read_functiondef(self, node: ast.FunctionDef, spot: _CalledSpot) -> _Walk:
        """Bind a function that is defined inside: numba's check reads each version by one."""
        yield from ()
        spot.names[node.name] = OPAQUE if node.decorator_list else LocalFunction(node, spot.module)
        return spot

    def _read_import(self, node: ast.Import, spot: _CalledSpot) -> _Walk:
        yield from ()
        names, imports = spot.names, dict(spot.imports)
        self.code.offers.guards.run_import(node, names, spot.module)
        for alias in node.names:
            local = alias.asname or alias.name.split(".")[0]
            imports[local] = ImportOrigin(0, alias.name if alias.asname else local)
        return replace(spot, imports=imports)

    def _read_importfrom(self, node: ast.ImportFrom, spot: _CalledSpot) -> _Walk:
        yield from ()
        names, imports = spot.names, dict(spot.imports)
        self.code.offers.guards.run_import(node, names, spot.module)
        for alias in node.names:
            imports[alias.asname or alias.name] = ImportOrigin(node.level, node.module or "", alias.name)
        return replace(spot, imports=imports)

    def _value(self, node: ast.expr, spot: _CalledSpot) -> SymbolValue:
        return self.code.offers.guards.value(node, spot.names, spot.module)


def _leaves(statement: ast.stmt) -> bool:
    return any(isinstance(each, ast.Return | ast.Continue) for each in ast.walk(statement))


def _merge(test: Condition, then: _CalledSpot, otherwise: _CalledSpot, names: Names) -> None:
    """Bind the names of both branches; where the branches may differ, the value is unknown."""
    for name in {*then.names, *otherwise.names}:
        one, other = then.names.get(name, OPAQUE), otherwise.names.get(name, OPAQUE)
        if otherwise.reached == NEVER or test == ALWAYS:
            names[name] = one
        elif NEVER in (then.reached, test):
            names[name] = other
        else:
            names[name] = one if one is other else OPAQUE


def _forget(statement: ast.stmt, names: Names) -> None:
    for each in ast.walk(statement):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            names[each.id] = OPAQUE


def _is_unsure(condition: Condition) -> bool:
    return condition == UNREADABLE or (isinstance(condition, AllOf | AnyOf) and UNREADABLE in condition.of)


def _hands_on(node: ast.Call) -> bool:
    """Return whether a call unpacks arguments, so that a parameter need not have its default."""
    return any(isinstance(each, ast.Starred) for each in node.args) or any(
        each.arg is None for each in node.keywords
    )


def _runs_as_written(node: ast.FunctionDef) -> bool:
    """Return whether no decorator of a method can keep it from running."""
    return all((dotted(each) or "").rsplit(".", 1)[-1] in _PLAIN for each in node.decorator_list)


def _is_generator(node: ast.FunctionDef) -> bool:
    """Return whether a call of a function may run none of it."""
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))


@lru_cache(maxsize=256)
def _functions(content: bytes, owner: str = "") -> Mapping[str, ast.FunctionDef]:
    """Return the functions of a file by name, or the methods of one of its classes."""
    source = content.decode("utf-8", errors="replace").removeprefix("\N{BYTE ORDER MARK}")
    with warnings.catch_warnings(action="ignore"):
        body = ast.parse(source).body
    if owner:
        classes = [each for each in flat(body) if isinstance(each, ast.ClassDef) and each.name == owner]
        body = classes[0].body if len(classes) == 1 else []
    return {each.name: each for each in flat(body) if isinstance(each, ast.FunctionDef)}
