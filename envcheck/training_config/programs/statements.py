"""Statements of a followed program: branches, loops, definitions."""

from __future__ import annotations

import ast
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.calls import CHANGES_A_LIST
from envcheck.training_config.programs.classes import Classes
from envcheck.training_config.programs.expressions import computed
from envcheck.training_config.programs.modules import is_configuration
from envcheck.training_config.programs.recorded_calls import Arguments
from envcheck.training_config.programs.references import Imported
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    Further,
    OneOf,
    ProjectFunction,
    Record,
    Thing,
    Value,
    Variables,
    either,
    has_further,
    is_list,
    quoted,
    truth,
)
from envcheck.training_config.programs.variables import CallFrame, made_by_library

_LONGEST_LOOP = 48  # items of a known list over which a loop is followed
_MOST_OPTIONS = 8  # classes of which a condition chooses one
_REGISTERS = re.compile(r"regist")
_EXITS = ("sys.exit", "builtins.exit", "builtins.quit")
_STARTERS = frozenset({"command", "group", "callback", "local_entrypoint"})
"""Decorators of click, Typer and Modal that make a function a command."""


class Statements(Classes):
    """Interpreter of statements; what starts a program is left to subclasses."""

    @abstractmethod
    def is_started(self) -> bool:
        """Return whether the module that is followed now is a program that was started, not imported."""

    @abstractmethod
    def note_command(self, owner: Value, name: str, starts: Value) -> None:
        """Remember a command of a group or an application."""

    def block(self, statements: Sequence[ast.stmt], scope: Variables) -> bool:
        """Follow statements; return whether one of them ends the block."""
        return any(self._statement(statement, scope) for statement in statements)

    def _statement(self, node: ast.stmt, scope: Variables) -> bool:
        self.count()
        follow = _STATEMENTS.get(type(node))
        return follow(self, node, scope) if follow is not None else False

    def _expression(self, node: ast.Expr, scope: Variables) -> bool:
        self._assigning = None
        result = self.value(node.value, scope)
        return isinstance(result, Thing) and result.maker in _EXITS

    # --- assignments ------------------------------------------------------------------------------

    def _assignment(self, node: ast.Assign, scope: Variables) -> bool:
        if self._is_unused(node.value, scope):
            return False
        self._assigning = node
        result = self._made_in_module(self.value(node.value, scope), scope)
        for target in node.targets:
            self.bind(target, result, scope)
            if isinstance(target, ast.Name) and not _mentions(node.value, target.id):
                self._iterated.pop(target.id, None)  # a loop before had a variable of this name
        return False

    def _made_in_module(self, value: Value, scope: Variables) -> Value:
        """Return a value that a statement makes; an empty dictionary of an imported module may be filled."""
        if len(self._frames) > 1 and scope.around is None and _is_empty_dict(value):
            value.rest = "another module may fill it"
        return value

    def _is_unused(self, node: ast.expr, scope: Variables) -> bool:
        """Return whether a value is a configuration that nothing uses; another module may use a module's."""
        exported = len(self._frames) > 1 and scope.around is None
        return not exported and is_configuration(node) and node in self._module(scope).unused()

    def _annotated(self, node: ast.AnnAssign, scope: Variables) -> bool:
        if node.value is not None:
            self.bind(node.target, self._made_in_module(self.value(node.value, scope), scope), scope)
        return False

    def _augmented(self, node: ast.AugAssign, scope: Variables) -> bool:
        both = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
        self.bind(node.target, self.value(both, scope), scope)
        return False

    # --- what leaves a block ----------------------------------------------------------------------

    def _return(self, node: ast.Return, scope: Variables) -> bool:
        self._frames[-1].returned.append(self.value(node.value, scope))
        return True

    def _returns(self, frame: CallFrame, before: int, condition: str) -> None:
        """Follow the rest of a function under a condition if a branch before it returns."""
        if frame.function is not None and len(frame.returned) > before:
            self.conditions.append(condition)

    def _raise(self, node: ast.Raise, scope: Variables) -> bool:
        if isinstance(node.exc, ast.Call) and getattr(node.exc.func, "id", "") == "SystemExit":
            self.value(node.exc, scope)  # `raise SystemExit(main())` runs the program
        elif not self.conditions:
            self.incomplete = self.incomplete or f"line {node.lineno} of {self._path} would stop it"
        return True

    def _leave(self, node: ast.Break | ast.Continue, scope: Variables) -> bool:
        del node, scope
        return True

    def _global(self, node: ast.Global, scope: Variables) -> bool:
        del scope
        self._frames[-1].globals |= {*node.names}
        return False

    # --- branches and loops -----------------------------------------------------------------------

    def _if(self, node: ast.If, scope: Variables) -> bool:
        guard = _is_main_guard(node.test)
        held = self.is_started() if guard else truth(self.value(node.test, scope))
        if held is not None:
            taken, other = (node.body, node.orelse) if held else (node.orelse, node.body)
            if taken and isinstance(taken[-1], ast.Raise) and _asks_whether_given(node.test):
                taken = other if held else []  # a training that runs was given what is missing here
            return self.block(taken, scope)
        before = dict(scope.names)
        frame, test = self._frames[-1], quoted(node.test)
        returned = len(frame.returned)
        depth = len(self.conditions)
        if self.asks_for_names(node.test):
            self.about_names.add(test)
        self.conditions.append(test)
        one_ends = self.block(node.body, scope)
        del self.conditions[depth:]
        after_one = len(frame.returned)
        one = scope.names
        scope.names = dict(before)
        self.conditions.append(f"not {test}")
        other_ends = self.block(node.orelse, scope)
        del self.conditions[depth:]
        if one_ends and other_ends:
            return True
        if after_one > returned:
            self._returns(frame, returned, f"not {test}")
        elif len(frame.returned) > after_one:
            self._returns(frame, after_one, test)
        if one_ends:
            return False
        if other_ends:
            scope.names = one
            return False
        scope.names = _joined(one, scope.names, quoted(node.test))
        return False

    def _branch(self, body: Sequence[ast.stmt], scope: Variables) -> None:
        """Follow a branch that may be left out."""
        before = dict(scope.names)
        self.block(body, scope)
        scope.names = _joined(before, scope.names, "one branch is taken")

    def _match(self, node: ast.Match, scope: Variables) -> bool:
        self.value(node.subject, scope)
        for case in node.cases:
            with self.under(quoted(node.subject)):
                self._branch(case.body, scope)
        return False

    def _for(self, node: ast.For | ast.AsyncFor, scope: Variables) -> bool:
        self._loop(node.body, scope, node)
        return False

    def _while(self, node: ast.While, scope: Variables) -> bool:
        if truth(self.value(node.test, scope)) is not False:
            self._loop(node.body, scope, None)
        return False

    def _loop(self, body: Sequence[ast.stmt], scope: Variables, node: ast.For | ast.AsyncFor | None) -> None:
        """Follow the body of a loop once; a variable that it changes is not known before."""
        changed = {
            each.id
            for statement in body
            for each in ast.walk(statement)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        iterated: Value = self.value(node.iter, scope) if node is not None else None
        if node is not None and _is_run_through(iterated, body):
            for each in iterated:
                self.bind(node.target, each, scope)
                self.block(body, scope)
            self.block(node.orelse, scope)
            return
        for name in changed & scope.names.keys():
            scope.names[name] = Unknown(f"{name} changes in a loop")
        for name in _appended_to(body) & scope.names.keys():
            before = scope.names[name]
            if is_list(before):
                scope.names[name] = (*before, Further(f"{name} changes in a loop"))
        if node is not None:
            self._iterated.update({name: quoted(node.iter) for name in _names_in(node.target)})
            alone = is_list(iterated) and len(iterated) == 1 and not has_further(iterated)
            one: Value = iterated[0] if alone else made_by_library(iterated)
            self.bind(node.target, computed(node.target) if one is None else one, scope)
        self.block(body, scope)
        if node is not None:
            self.block(node.orelse, scope)

    def _try(self, node: ast.Try | ast.TryStar, scope: Variables) -> bool:
        ends = self.block(node.body, scope)
        for handler in node.handlers:
            before = dict(scope.names)
            returned = len(self._frames[-1].returned) if self._frames else 0
            with self.under("another statement fails"):
                self.block(handler.body, scope)
            if self._frames:  # what is returned where something fails is not what a training goes on with
                del self._frames[-1].returned[returned:]
            # A name that only the handler sets is not known afterwards.
            scope.names = {**before, **{k: v for k, v in scope.names.items() if k not in before}}
        ends = self.block(node.orelse, scope) or ends
        return self.block(node.finalbody, scope) or ends

    def _with(self, node: ast.With | ast.AsyncWith, scope: Variables) -> bool:
        for item in node.items:
            value = self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, scope)
        return self.block(node.body, scope)

    # --- definitions ------------------------------------------------------------------------------

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Variables) -> bool:
        function = ProjectFunction(node, self._module(scope), scope, marks=tuple(node.decorator_list))
        scope.names[node.name] = function
        self._register(function, node, scope)
        for mark in function.marks:
            called = mark.func if isinstance(mark, ast.Call) else mark
            if isinstance(called, ast.Attribute) and called.attr in _STARTERS:
                given = self.arguments(mark, scope) if isinstance(mark, ast.Call) else Arguments((), ())
                named = given.get("name", 0)
                name = named if isinstance(named, str) else node.name.replace("_", "-")
                starts = "" if called.attr == "callback" else name
                self.note_command(self.value(called.value, scope), starts, function)
        return False

    def _defined_class(self, node: ast.ClassDef, scope: Variables) -> bool:
        scope.names[node.name] = self._class(node, scope)
        self._register(scope.names[node.name], node, scope)
        return False

    def _register(
        self, defined: Value, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Variables
    ) -> None:
        """Follow the project's own decorators that register a function or class in a table."""
        for mark in node.decorator_list:
            if not _REGISTERS.search(ast.unparse(mark).partition("(")[0].lower()):
                continue
            decorator = self.value(mark, scope)
            if isinstance(decorator, ProjectFunction):
                self.call_function(decorator, Arguments((defined,), ()))

    def function(self, node: ast.Lambda, scope: Variables) -> Value:
        """Return a lambda as a value."""
        return ProjectFunction(node, self._module(scope), scope)


_STATEMENTS: Mapping[type[ast.stmt], Callable[[Statements, Value, Variables], bool]] = {
    ast.Expr: Statements._expression,  # noqa: SLF001 - the table of its own methods
    ast.Assign: Statements._assignment,  # noqa: SLF001
    ast.AnnAssign: Statements._annotated,  # noqa: SLF001
    ast.AugAssign: Statements._augmented,  # noqa: SLF001
    ast.Return: Statements._return,  # noqa: SLF001
    ast.Raise: Statements._raise,  # noqa: SLF001
    ast.Break: Statements._leave,  # noqa: SLF001
    ast.Continue: Statements._leave,  # noqa: SLF001
    ast.Global: Statements._global,  # noqa: SLF001
    ast.If: Statements._if,  # noqa: SLF001
    ast.For: Statements._for,  # noqa: SLF001
    ast.AsyncFor: Statements._for,  # noqa: SLF001
    ast.While: Statements._while,  # noqa: SLF001
    ast.With: Statements._with,  # noqa: SLF001
    ast.AsyncWith: Statements._with,  # noqa: SLF001
    ast.Try: Statements._try,  # noqa: SLF001
    ast.TryStar: Statements._try,  # noqa: SLF001
    ast.FunctionDef: Statements._define,  # noqa: SLF001
    ast.AsyncFunctionDef: Statements._define,  # noqa: SLF001
    ast.ClassDef: Statements._defined_class,  # noqa: SLF001
    ast.Import: Statements._import,  # noqa: SLF001
    ast.ImportFrom: Statements._import,  # noqa: SLF001
    ast.Match: Statements._match,  # noqa: SLF001
}


_CHOSEN = (Imported, ClassValue, OneOf)


def _options(value: Value) -> tuple[Value, ...]:
    return value.options if isinstance(value, OneOf) else (value,)


def _mentions(node: ast.expr, name: str) -> bool:
    return name in _named_in(node)


@lru_cache(maxsize=1 << 14)
def _named_in(node: ast.expr) -> frozenset[str]:
    """Return the variables in an expression; cached, because a program is followed once for each launch."""
    return frozenset(_names_in(node))


def _is_empty_dict(value: Value) -> bool:
    return isinstance(value, Record) and value.role == "dict" and not value.items


def _joined(one: Mapping[str, Value], other: Mapping[str, Value], why: str) -> dict[str, Value]:
    """Return the variables after a condition that is not decided."""
    found: dict[str, Value] = {}
    for name in {**one, **other}:
        before, after = one.get(name, MISSING), other.get(name, MISSING)
        if before is not after and isinstance(before, _CHOSEN) and isinstance(after, _CHOSEN):
            options = (*_options(before), *_options(after))
            found[name] = (
                OneOf(options) if len(options) <= _MOST_OPTIONS else Unknown(f"{name} is one of many")
            )
        elif before is MISSING or after is MISSING:
            found[name] = after if before is MISSING else before
        else:
            either_one = either(before, after)
            found[name] = Unknown(f"{name} depends on {why}") if either_one is MISSING else either_one
    return found


def _loaded(target: ast.expr) -> ast.expr:
    match target:
        case ast.Name(id=name):
            return ast.copy_location(ast.Name(name, ast.Load()), target)
        case ast.Attribute(value=value, attr=attr):
            return ast.copy_location(ast.Attribute(value, attr, ast.Load()), target)
        case ast.Subscript(value=value, slice=key):
            return ast.copy_location(ast.Subscript(value, key, ast.Load()), target)
        case _:
            return target


def _appended_to(body: Sequence[ast.stmt]) -> set[str]:
    """Return the variables on which statements call a method that changes a list."""
    return {
        node.func.value.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CHANGES_A_LIST
        and isinstance(node.func.value, ast.Name)
    }


def _asks_whether_given(test: ast.expr) -> bool:
    """Return whether a condition asks only which values there are: `a is None`, `not a.b`, `a or b`."""
    match test:
        case ast.Compare(
            ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=None)]
        ):
            return isinstance(test.left, ast.Name | ast.Attribute | ast.Subscript)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _asks_whether_given(operand)
        case ast.BoolOp(values=values):
            return all(map(_asks_whether_given, values))
        case _:
            return isinstance(test, ast.Name | ast.Attribute | ast.Subscript)


def _names_in(target: ast.expr) -> list[str]:
    return [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_run_through(items: Value, body: Sequence[ast.stmt]) -> bool:
    """Return whether a loop takes each of several known items: nothing in its body leaves it."""
    if not is_list(items) or has_further(items) or not 1 < len(items) <= _LONGEST_LOOP:
        return False
    return not any(
        isinstance(node, ast.Break | ast.Return | ast.Yield | ast.YieldFrom)
        for statement in body
        for node in ast.walk(statement)
    )
