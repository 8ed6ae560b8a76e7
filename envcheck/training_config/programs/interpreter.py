"""Follow statements, functions, classes and modules of a program, and record the calls of libraries."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.expressions import Expressions, computed
from envcheck.training_config.programs.modules import Module, Project, is_configuration
from envcheck.training_config.programs.names import is_beside
from envcheck.training_config.programs.names import names as names_in
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    File,
    LibraryName,
    OneOf,
    Parser,
    ProjectFunction,
    Record,
    Super,
    Thing,
    Value,
    Variables,
    common,
    either,
    is_list,
    parent,
    quoted,
    same,
    truth,
)

_DEEPEST_CALLS = 24
_LONGEST_LIST = 400  # items of a list that is followed while it grows
_LONGEST_LOOP = 48  # items of a known list over which a loop is followed
_HOLD_SETTINGS = ("Arguments", "Config")
"""Endings of the names of classes whose objects have the attributes that they are given."""

_MAKERS = ("from_pretrained", "get_peft_model", "from_config", "prepare", "initialize", "ArgumentParser")
"""Functions of libraries that return an object, as classes do."""


class KeywordGiven(NamedTuple):
    """Keyword argument of a call, with its value and the expression that gives it."""

    name: str
    value: Value
    node: ast.expr


class Arguments(NamedTuple):
    """Arguments of a call; `rest` is the reason why there may be others, or ""."""

    positional: tuple[Value, ...]
    keywords: tuple[KeywordGiven, ...]
    rest: str = ""

    def keyword(self, name: str) -> Value:
        """Return a keyword argument, or MISSING."""
        return next((each.value for each in self.keywords if each.name == name), MISSING)

    def get(self, name: str, position: int) -> Value:
        """Return an argument by its name or its position, or MISSING."""
        found = self.keyword(name)
        if found is MISSING and 0 <= position < len(self.positional):
            return self.positional[position]
        return found


class FollowedCall(NamedTuple):
    """Call of a library: what is called, by name and owner, with its place and its arguments.

    `conditions` are the undecided conditions under which it is reached, the outermost first.
    """

    name: str
    owner: str
    node: ast.Call
    path: str
    arguments: Arguments
    conditions: tuple[str, ...]


class _CallFrame:
    """Call of a function that is being followed: what it returns, and the names that are global in it."""

    def __init__(self, function: ProjectFunction | None) -> None:
        self.function = function
        self.returned: list[Value] = []
        self.globals: set[str] = set()
        self.path = ""


class Interpreter(Expressions):
    """Interpreter of a program; `calls` are those of libraries, `unread` the packages that it depends on."""

    def __init__(self, project: Project) -> None:
        super().__init__()
        self.project = project
        self.calls: list[FollowedCall] = []
        self.followed: set[ast.AST] = set()  # functions and classes whose code was followed
        self.unread: set[str] = set()
        self.packages: set[str] = set()
        self.incomplete = ""
        self.unfreezes = False  # it makes parameters trainable, perhaps those that it froze before
        self._frames: list[_CallFrame] = []
        self.commands: list[ProjectFunction] = []  # functions that a command-line library starts
        self._waiting: list[ProjectFunction] = []  # functions given to something that may call them
        self._assigning: ast.Assign | None = None  # the assignment that is followed now
        self._iterated: dict[str, str] = {}  # the expression that each variable of a loop takes its values of
        self._path = ""

    # --- modules ------------------------------------------------------------------------------------

    def run_module(self, module: Module) -> None:
        """Follow the statements of a module once."""
        if module.ran:
            return
        module.ran = True
        module.scope.names["__file__"] = module.path if module.path.startswith("/") else f"./{module.path}"
        before, self._path = self._path, module.path
        conditions, self.conditions = self.conditions, []
        self._frames.append(_CallFrame(None))
        try:
            self.block(module.tree.body, module.scope)
        finally:
            self._frames.pop()
            self._path, self.conditions = before, conditions

    def run_waiting(self) -> None:
        """Follow the functions that were given away and not followed yet."""
        for function in self.commands:
            if function.node not in self.followed:
                self.call_marked(function, Arguments((), ()))
        while self._waiting:
            function = self._waiting.pop()
            if function.node not in self.followed:
                before, count = self.incomplete, len(self.calls)
                self.call_function(function, Arguments((), (), "another function calls it"))
                if not any(_takes_part(call.name) for call in self.calls[count:]):
                    self.incomplete = before  # such as one that collates a batch

    @property
    def path(self) -> str:
        """Return the file that is followed now."""
        return self._path

    # --- statements ---------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt], scope: Variables) -> bool:
        """Follow statements; return whether one of them ends the block."""
        return any(self._statement(statement, scope) for statement in statements)

    def _returns(self, frame: _CallFrame, before: int, condition: str) -> None:
        """Follow the rest of a function under a condition if a branch before it returns."""
        if frame.function is not None and len(frame.returned) > before:
            self.conditions.append(condition)

    def _statement(self, node: ast.stmt, scope: Variables) -> bool:
        self.count()
        follow = _STATEMENTS.get(type(node))
        return follow(self, node, scope) if follow is not None else False

    def _expression(self, node: ast.Expr, scope: Variables) -> bool:
        result = self.value(node.value, scope)
        return isinstance(result, Thing) and result.maker in _EXITS

    def _assignment(self, node: ast.Assign, scope: Variables) -> bool:
        if self._is_unused(node.value, scope):
            return False
        self._assigning = node
        result = self._made_in_module(self.value(node.value, scope), scope)
        for target in node.targets:
            self.bind(target, result, scope)
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

    def _return(self, node: ast.Return, scope: Variables) -> bool:
        self._frames[-1].returned.append(self.value(node.value, scope))
        return True

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

    def _for(self, node: ast.For | ast.AsyncFor, scope: Variables) -> bool:
        self._loop(node.body, scope, node)
        return False

    def _while(self, node: ast.While, scope: Variables) -> bool:
        if truth(self.value(node.test, scope)) is not False:
            self._loop(node.body, scope, None)
        return False

    def _with(self, node: ast.With | ast.AsyncWith, scope: Variables) -> bool:
        for item in node.items:
            value = self.value(item.context_expr, scope)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, scope)
        return self.block(node.body, scope)

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

    def _match(self, node: ast.Match, scope: Variables) -> bool:
        self.value(node.subject, scope)
        for case in node.cases:
            with self.under(quoted(node.subject)):
                self._branch(case.body, scope)
        return False

    def _if(self, node: ast.If, scope: Variables) -> bool:
        held = True if _is_main_guard(node.test) else truth(self.value(node.test, scope))
        if held is not None:
            return self.block(node.body if held else node.orelse, scope)
        before = dict(scope.names)
        frame, test = self._frames[-1], quoted(node.test)
        returned = len(frame.returned)
        depth = len(self.conditions)
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
        if node is not None:
            self._iterated.update({name: quoted(node.iter) for name in _names_in(node.target)})
            alone = is_list(iterated) and len(iterated) == 1
            one: Value = iterated[0] if alone else _made_by_library(iterated)
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

    # --- definitions --------------------------------------------------------------------------------

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Variables) -> bool:
        function = ProjectFunction(node, self._module(scope), scope, marks=tuple(node.decorator_list))
        scope.names[node.name] = function
        self._register(function, node, scope)
        for mark in function.marks:
            called = mark.func if isinstance(mark, ast.Call) else mark
            if isinstance(called, ast.Attribute) and called.attr in _STARTERS:
                self.commands.append(function)
        return False

    def function(self, node: ast.Lambda, scope: Variables) -> Value:
        """Return a lambda as a value."""
        return ProjectFunction(node, self._module(scope), scope)

    def _module(self, scope: Variables) -> Module:
        del scope
        module = self.project.read(self._path)
        return module if module is not None else Module(self._path, ast.Module([], []))

    def _class(self, node: ast.ClassDef, scope: Variables) -> ClassValue:
        bases = tuple(self.value(base, scope) for base in node.bases)
        inner = Variables({}, scope)
        self._frames.append(_CallFrame(None))
        try:
            self.block(node.body, inner)
        finally:
            self._frames.pop()
        found = ClassValue(node, self._module(scope), scope, bases, inner.names)
        for member in inner.names.values():
            if isinstance(member, ProjectFunction):
                member.defined_in = found
                member.scope = scope  # the body of a class is no scope of its methods
        return found

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Variables) -> bool:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._note_package(alias.name, 0)
                package, _, last = alias.name.rpartition(".")
                if alias.asname and package:
                    scope.names[alias.asname] = Imported(package, 0, last, self._path)
                else:
                    name = alias.name.partition(".")[0]
                    scope.names[alias.asname or name] = Imported("", 0, name, self._path)
            return False
        package = node.module or ""
        if not node.level:
            self._note_package(package, 0)
        for alias in node.names:
            if alias.name == "*":
                self._import_all(package, node.level, scope)
                continue
            scope.names[alias.asname or alias.name] = Imported(package, node.level, alias.name, self._path)
        return False

    def _note_package(self, name: str, level: int) -> None:
        if not level:
            self.packages.add(name.partition(".")[0])

    def _import_all(self, package: str, level: int, scope: Variables) -> None:
        module = self.project.find(package, level, self._path)
        if module is not None:
            self.run_module(module)
            scope.names.update(
                {name: value for name, value in module.scope.names.items() if not name.startswith("_")}
            )

    def resolved(self, value: Value) -> Value:
        """Return what an imported name stands for; its module is followed when the name is first used."""
        if isinstance(value, OneOf):
            result = reduce(either, map(self.resolved, value.options))
            return Unknown("one of several definitions") if result is MISSING else result
        if not isinstance(value, Imported):
            return value
        if value.found is None:
            value.found = Unknown(f"{value.name} is imported in a circle")
            value.found = self._resolve(value)
        return value.found

    def _resolve(self, value: Imported) -> Value:
        """Return what an imported name stands for, from the project or a library."""
        inside = f"{value.package}.{value.name}" if value.package else value.name
        module = (
            self.project.find(value.package, value.level, value.path)
            if value.package or value.level
            else None
        )
        if module is not None:
            self.run_module(module)
            found = module.scope.find(value.name)
            if found is not MISSING:
                return self.resolved(found)
        submodule = self.project.find(inside, value.level, value.path)
        if submodule is not None:
            return ModuleValue(submodule)
        if value.level:
            return Unknown(f"{value.name} is not in the project")
        return LibraryName(inside)

    # --- attributes and assignments -----------------------------------------------------------------

    def value(self, node: ast.expr | None, scope: Variables) -> Value:
        """Return the value of an expression; a part of what a library made is the library's too."""
        found = super().value(node, scope)
        if isinstance(found, Unknown) and isinstance(node, ast.Subscript):
            return _made_by_library(self.value(node.value, scope)) or found
        return self.resolved(found)

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:  # noqa: PLR0911, PLR0912, C901 - each kind
        """Return an attribute of a value."""
        match owner:
            case Record():
                return self._member(owner, name)
            case ModuleValue(module=module):
                self.run_module(module)
                found = module.scope.find(name)
                if found is not MISSING:
                    return self.resolved(found)
                inner = self.project.find(name, 1, module.path)
                return ModuleValue(inner) if inner is not None else computed(node)
            case LibraryName(name=library):
                return name if library == "torch" and name in _DTYPES else LibraryName(f"{library}.{name}")
            case ClassValue():
                found = self._in_class(owner, name)
                return found if found is not MISSING else computed(node)
            case OneOf(options=options):
                found = reduce(either, (self.attribute(option, name, node) for option in options))
                return computed(node) if found is MISSING else found
            case Super(owner=inner, after=after):
                found = self._inherited(inner, after, name)
                return found if found is not MISSING else LibraryName(f"super.{name}")
            case ProjectFunction():  # such as train.remote
                self._waiting.append(owner)
                return computed(node)
            case Thing() if name in _OF_THE_MAIN_PROCESS:
                return True
            case Thing(given=dict() as settings) if name in settings:
                self._name_used(name, node)
                return settings[name]
            case str() if name == "parent" and "/" in owner:
                return parent(owner)
            case str() | File() | Parser() | Thing():
                self._name_used(name, node)
                return BoundName(owner, name)
            case _:
                self._name_used(name, node)
                return computed(node) if isinstance(node, ast.expr) else Unknown(f"{name} is computed")

    def _name_used(self, name: str, node: ast.AST) -> None:
        """Record the name of an attribute of something that is not known."""
        if name not in ("requires_grad", "requires_grad_") and isinstance(
            getattr(node, "ctx", None), ast.Load
        ):
            self.names.add(name)

    def _member(self, owner: Record, name: str) -> Value:
        """Return an attribute of a record: an item, or a member of its class."""
        if owner.role == "dict":
            return Method(owner, name)
        if name in owner.items:
            return self.resolved(owner.items[name])
        if owner.made_from is not None:
            found = self._in_class(owner.made_from, name, owner)
            if found is not MISSING:
                return found
        if owner.role == "namespace" and name in _DICTIONARY:
            return Method(owner, name)
        found = owner.get(name)
        if found is MISSING:
            self.names.add(name)
            return Unknown(f"{name} is computed when the program runs")
        return found

    def _in_class(self, cls: ClassValue, name: str, owner: Value = None) -> Value:
        """Return a member of a class or its bases; a method is bound to `owner`, a property is followed."""
        for each in cls.lineage():
            if not isinstance(each, ClassValue) or name not in each.members:
                continue
            found = each.members[name]
            if not isinstance(found, ProjectFunction):
                return self.resolved(found)
            marks = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in found.marks}
            if "staticmethod" in marks:
                return found
            bound = ProjectFunction(
                found.node,
                found.module,
                found.scope,
                cls if "classmethod" in marks else owner,
                each,
                marks=found.marks,
            )
            if owner is not None and marks & {"property", "cached_property"}:
                return self.call_function(bound, Arguments((), ()))
            return bound
        return MISSING

    def _inherited(self, owner: Value, after: ClassValue | None, name: str) -> Value:
        """Return a member that `super()` finds."""
        cls = owner.made_from if isinstance(owner, Record) else owner
        if not isinstance(cls, ClassValue):
            return MISSING
        lineage = cls.lineage()
        start = next((i + 1 for i, each in enumerate(lineage) if each is after), 1)
        for each in lineage[start:]:
            if isinstance(each, ClassValue) and name in each.members:
                found = each.members[name]
                if isinstance(found, ProjectFunction):
                    return ProjectFunction(
                        found.node, found.module, found.scope, owner, each, marks=found.marks
                    )
                return self.resolved(found)
        return MISSING

    def bind(self, target: ast.expr, value: Value, scope: Variables) -> None:
        """Give a value to the target of an assignment."""
        match target:
            case ast.Name(id=name):
                frame = self._frames[-1] if self._frames else None
                if frame is not None and name in frame.globals:
                    scope = _outermost(scope)
                scope.names[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values = value if is_list(value) else ()
                fits = len(values) == len(parts) and not any(isinstance(each, ast.Starred) for each in parts)
                made = _made_by_library(value)
                for index, part in enumerate(parts):
                    inner = values[index] if fits else made if made is not None else computed(part)
                    self.bind(part, inner, scope)
            case ast.Starred(value=inner):
                self.bind(inner, computed(inner), scope)
            case ast.Attribute(value=owner, attr=name):
                self._set_attribute(self.value(owner, scope), target, value)
            case ast.Subscript(value=owner, slice=key):
                held, name = self.value(owner, scope), self.value(key, scope)
                if isinstance(held, Record) and isinstance(name, str):
                    self.put(held, name, value)
                elif isinstance(held, Record):
                    held.rest = held.rest or "a computed key of it is set"
            case _:
                pass

    def _set_attribute(self, owner: Value, target: ast.Attribute, value: Value) -> None:
        name = target.attr
        if isinstance(owner, Record) and owner.role != "dict":
            self.put(owner, name, value)
            return
        if isinstance(owner, Thing) and owner.given is not None:
            owner.given[name] = self._settled(owner.given.get(name, MISSING), value, owner.born)
        if isinstance(owner, ModuleValue):
            owner.module.scope.names[name] = value
            return
        if isinstance(owner, ClassValue):
            owner.members[name] = Unknown("it is set under a condition") if self.conditions else value
        if name == "requires_grad" and is_beside(self._spelled_owner(target.value)):
            return
        if name == "requires_grad" and value is not False:
            self.unfreezes = True
        elif name == "requires_grad":
            self._note_freezing(target)
        switched_on = name in ("requires_grad", "requires_grad_") and value is True
        if not switched_on and (name == "requires_grad" or truth(value) is not False):
            self.names.add(name)

    def _note_freezing(self, target: ast.Attribute) -> None:
        """Record `parameter.requires_grad = False` as the call that does the same."""
        function = ast.copy_location(ast.Attribute(target.value, "requires_grad_", ast.Load()), target)
        call = ast.copy_location(ast.Call(function, [], []), target)
        owner = self._spelled_owner(target.value)
        given = Arguments((False,), ())
        self.calls.append(
            FollowedCall("requires_grad_", owner, call, self._path, given, tuple(self.conditions))
        )

    def put(self, record: Record, name: str, value: Value) -> None:
        """Set an item of a record; one that is set under an undecided condition is not known afterwards."""
        record.items[name] = self._settled(record.items.get(name, MISSING), value, record.born)

    def _settled(self, before: Value, value: Value, born: int) -> Value:
        """Return what an item is after it was set, perhaps under a condition that is not decided."""
        if len(self.conditions) > born and not same(before, value):
            return Unknown(f"it is set only where {self.conditions[born]}")
        return value

    # --- calls --------------------------------------------------------------------------------------

    def arguments(self, node: ast.Call, scope: Variables) -> Arguments:
        """Return the arguments of a call."""
        positional: list[Value] = []
        keywords: list[KeywordGiven] = []
        rest = ""
        for each in node.args:
            if isinstance(each, ast.Starred):
                inner = self.value(each.value, scope)
                if is_list(inner):
                    positional += inner
                else:
                    rest = f"{quoted(each)} is computed when the program runs"
            else:
                positional.append(self.value(each, scope))
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                keywords.append(KeywordGiven(keyword.arg, value, keyword.value))
            elif isinstance(value, Record) and value.role in ("dict", "namespace"):
                keywords += [KeywordGiven(name, item, keyword.value) for name, item in value.items.items()]
                rest = rest or value.rest
            else:
                rest = rest or f"{quoted(keyword.value)} is computed when the program runs"
        return Arguments(tuple(positional), tuple(keywords), rest)

    def call(self, node: ast.Call, scope: Variables) -> Value:  # noqa: PLR0911 - one for each kind of value
        """Return the result of a call."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            function = self._frames[-1].function if self._frames else None
            return Super(function.owner, function.defined_in) if function else MISSING
        called = self.value(node.func, scope)
        given = self.arguments(node, scope)
        match called:
            case ProjectFunction():
                return self.call_marked(called, given)
            case ClassValue():
                return self.instantiate(called, given, node)
            case OneOf(options=options):
                return self._call_one_of(options, given, node, scope)
            case BoundName(owner=held, name=name):
                found = self.bound_call(held, name, given, node)
                return self._call_library(held, node, given, scope) if found is MISSING else found
            case Method(owner=owner, name=name):
                return self.method(owner, name, given, node)
            case Record(made_from=ClassValue() as cls) if (
                function := self._in_class(cls, "__call__", called)
            ) is not MISSING or (function := self._in_class(cls, "forward", called)) is not MISSING:
                return self.call_function(function, given)
            case _:
                self._change_list(node, given, scope)
                return self._call_library(called, node, given, scope)

    def _call_one_of(
        self, options: Sequence[Value], given: Arguments, node: ast.Call, scope: Variables
    ) -> Value:
        """Return what the functions of a table, of which one is called, all return."""
        found: list[Value] = []
        for option in options:
            with self.under(f"{quoted(node.func)} is {getattr(option, 'name', 'it')}"):
                match option:
                    case ProjectFunction():
                        found.append(self.call_marked(option, given))
                    case ClassValue():
                        found.append(self.instantiate(option, given, node))
                    case _:
                        found.append(self._call_library(option, node, given, scope))
        return reduce(common, found)

    def _change_list(self, node: ast.Call, given: Arguments, scope: Variables) -> None:
        """Follow what `append` and `extend` do to a list; forget one that another method changes."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES_A_LIST:
            target = node.func.value
            if (isinstance(target, ast.Name) and is_list(scope.find(target.id))) or (
                isinstance(target, ast.Attribute) and is_list(self.value(target, scope))
            ):
                self.bind(target, self._longer(self.value(target, scope), node, given), scope)

    def _longer(self, before: Value, node: ast.Call, given: Arguments) -> Value:
        """Return a list after `append` or `extend`, or a value that is not known."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        more = given.positional[0] if len(given.positional) == 1 else MISSING
        grows = method in ("append", "extend") and more is not MISSING and not self.conditions
        if not grows or not is_list(before) or len(before) > _LONGEST_LIST:
            return computed(node.func)
        if method == "append":
            return (*before, more)
        return before + more if is_list(more) else computed(node.func)

    def _call_library(self, called: Value, node: ast.Call, given: Arguments, scope: Variables) -> Value:
        """Return what a call of a library, or of something that is not known, returns."""
        name, owner = self._spelled(called, node)
        found = self.library(called, name, owner, node, given)
        if found is not MISSING:
            return found
        self._give_away([*given.positional, *(each.value for each in given.keywords)])
        self._note_call(called, name, owner, node, given, scope)
        full = f"{owner}.{name}" if owner else name
        certain = name in _MAKERS or name[:1].isupper()
        holds = certain and name.endswith(_HOLD_SETTINGS)
        settings = {each.name: each.value for each in given.keywords} if holds else None
        return Thing(full, certain, settings, len(self.conditions))

    def _spelled(self, called: Value, node: ast.Call) -> tuple[str, str]:
        """Return the name and the owner of what is called."""
        if isinstance(called, LibraryName):
            owner, _, name = called.name.rpartition(".")
            return name, owner
        if isinstance(node.func, ast.Attribute):
            return node.func.attr, self._spelled_owner(node.func.value)
        return getattr(node.func, "id", ""), ""

    def _spelled_owner(self, node: ast.expr) -> str:
        """Return an expression as it is written; for the variable of a loop, what the loop goes through."""
        return self._iterated.get(node.id, node.id) if isinstance(node, ast.Name) else quoted(node)

    def _note_call(
        self, called: Value, name: str, owner: str, node: ast.Call, given: Arguments, scope: Variables
    ) -> None:
        if name == "requires_grad_" and self._assigning is not None and node is self._assigning.value:
            target = quoted(self._assigning.targets[0])  # `ref_model = load(name).requires_grad_(False)`
            owner = target if is_beside(target) else owner
        self.calls.append(FollowedCall(name, owner, node, self._path, given, tuple(self.conditions)))
        if owner != "builtins":
            self._note_names(name, owner, given)
        if isinstance(called, LibraryName):
            self.unread.add(called.name.partition(".")[0])
        elif called is None:
            self.incomplete = self.incomplete or f"{quoted(node.func)} is not known"
        elif isinstance(called, Unknown) and isinstance(node.func, ast.Attribute):
            self._name_methods(node.func.attr)
        elif isinstance(called, Unknown) and not isinstance(node.func, ast.Name):
            self.incomplete = self.incomplete or f"{quoted(node.func)} is not known"
        elif isinstance(called, Unknown) and scope.find(getattr(node.func, "id", "")) is MISSING:
            self.names.add(name)
        elif isinstance(called, Unknown):
            self.incomplete = self.incomplete or f"{quoted(node.func)} is not known"

    def _note_names(self, name: str, owner: str, given: Arguments) -> None:
        """Record the name of a call of a library, and of its arguments that are not off."""
        if name == "requires_grad_" and is_beside(owner):
            return
        if name == "requires_grad_":
            first = given.get("requires_grad", 0)
            if first is MISSING or first is True:
                self.unfreezes = True
                return
        self.names.add(name)
        if name in _DECLARES:
            return
        self.names |= {each.name for each in given.keywords if truth(each.value) is not False}

    def _name_methods(self, name: str) -> None:
        """Record the names in the project's methods that something unknown may stand for."""
        for module in self.project.modules() if name not in _COMMON else ():
            for node in module.functions().get(name, ()):
                if node not in self.followed:
                    self.followed.add(node)
                    self.names |= {*names_in(list(ast.walk(node)))}

    def _give_away(self, values: Iterable[Value]) -> None:
        """Remember the functions among values that a library is given, which may call them."""
        for value in values:
            if isinstance(value, ProjectFunction):
                self._waiting.append(value)
            elif is_list(value):
                self._give_away(value)

    def call_function(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function of the project returns for the arguments."""
        active = sum(
            frame.function is not None and frame.function.node is function.node for frame in self._frames
        )
        if active > 1 or len(self._frames) > _DEEPEST_CALLS:
            return Unknown(f"{function.name} calls itself")
        self.followed.add(function.node)
        if function.name:
            self.names.add(function.name)
        scope = Variables({}, function.scope)
        before, self._path = self._path, function.module.path
        depth = len(self.conditions)
        frame = _CallFrame(function)
        self._frames.append(frame)
        try:
            self._bind_parameters(function, given, scope)
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, scope)
            self.block(function.node.body, scope)
        finally:
            self._frames.pop()
            self._path = before
            del self.conditions[depth:]
        if _is_generator(function.node):
            return Unknown(f"{function.name} is a generator")
        found = frame.returned[0] if frame.returned else None
        for other in frame.returned[1:]:
            found = common(found, other)
        return Unknown(f"{function.name} returns several values") if found is MISSING else found

    def _bind_parameters(self, function: ProjectFunction, given: Arguments, scope: Variables) -> None:
        arguments = function.node.args
        positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        values = [*given.positional]
        if function.owner is not None and positional:
            scope.names[positional.pop(0)] = function.owner
        named = {each.name: each.value for each in given.keywords}
        named = {**function.bound, **named}
        defaults = self._defaults(function, scope)
        for index, name in enumerate(positional):
            scope.names[name] = (
                values[index] if index < len(values) else self._parameter(name, named, defaults, given.rest)
            )
        for each in arguments.kwonlyargs:
            scope.names[each.arg] = self._parameter(each.arg, named, defaults, given.rest)
        if arguments.vararg is not None:
            more = tuple(values[len(positional) :])
            scope.names[arguments.vararg.arg] = more if not given.rest else Unknown(given.rest)
        if arguments.kwarg is not None:
            own = {*positional, *(each.arg for each in arguments.kwonlyargs)}
            items = {name: value for name, value in named.items() if name not in own}
            scope.names[arguments.kwarg.arg] = Record(items, rest=given.rest, born=len(self.conditions))

    def _parameter(
        self, name: str, named: Mapping[str, Value], defaults: Mapping[str, Value], rest: str
    ) -> Value:
        if name in named:
            return named[name]
        if rest:
            return Unknown(rest)
        return defaults[name] if name in defaults else Unknown(f"{name} is not given")

    def _defaults(self, function: ProjectFunction, scope: Variables) -> dict[str, Value]:
        """Return the default of each parameter that has one."""
        arguments = function.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(
            zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
        )
        pairs += [
            (each, default)
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        ]
        del scope
        return {each.arg: self.value(default, function.scope) for each, default in pairs}

    # --- classes ------------------------------------------------------------------------------------

    def instantiate(self, cls: ClassValue, given: Arguments, node: ast.Call) -> Value:
        """Return an object of a class of the project."""
        self.followed.add(cls.node)
        self.names.add(cls.name)
        lineage = cls.lineage()
        record = Record({}, "object", cls, born=len(self.conditions))
        library = next((each for each in lineage if isinstance(each, LibraryName)), None)
        if library is not None:
            record.rest = f"{cls.name} inherits it"
        start = self._in_class(cls, "__init__", record)
        if isinstance(start, ProjectFunction):
            self.call_function(start, given)
            given = Arguments((), (), given.rest)
        elif self.is_dataclass(cls):
            record.items.update(self.fields(cls))
            names = [*record.items]
            record.items.update(zip(names, given.positional, strict=False))
        for each in given.keywords if not isinstance(start, ProjectFunction) else ():
            record.items[each.name] = each.value
        if library is not None:
            owner, _, name = library.name.rpartition(".")
            values = given.keywords
            if self.is_dataclass(cls):
                values = tuple(KeywordGiven(name, value, node) for name, value in record.items.items())
            self._note_call(library, name, owner, node, given._replace(keywords=values), cls.scope)
            self._name_unfollowed(cls)
        return record

    def _name_unfollowed(self, cls: ClassValue) -> None:
        """Record the names in the methods of a class that a library may call."""
        for each in cls.lineage():
            if not isinstance(each, ClassValue):
                continue
            for member in each.members.values():
                if isinstance(member, ProjectFunction) and member.node not in self.followed:
                    self.followed.add(member.node)
                    self.names |= {*names_in(list(ast.walk(member.node)))}

    def is_dataclass(self, cls: ClassValue) -> bool:
        """Return whether a class is a dataclass, or one of pydantic."""
        marks = {quoted(mark).partition("(")[0].rpartition(".")[2] for mark in cls.node.decorator_list}
        bases = {getattr(each, "name", "").rpartition(".")[2] for each in cls.lineage()[1:]}
        inherited = any(
            isinstance(each, ClassValue) and each is not cls and self.is_dataclass(each)
            for each in cls.lineage()
        )
        return bool(
            marks & {"dataclass", "define", "attrs"}
            or bases & {"BaseModel", "BaseSettings", "NamedTuple"}
            or inherited
        )

    def fields(self, cls: ClassValue) -> dict[str, Value]:
        """Return the fields of a dataclass with their defaults; Unknown without a default."""
        found: dict[str, Value] = {}
        for each in reversed(cls.lineage()):
            if not isinstance(each, ClassValue):
                continue
            for statement in each.node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    name = statement.target.id
                    default = self._field_default(each.members.get(name, MISSING))
                    if statement.value is not None or name not in found:
                        found[name] = Unknown(f"{name} is not given") if default is MISSING else default
        return found

    def _field_default(self, value: Value) -> Value:
        return value.default if isinstance(value, FieldDefault) else value

    # --- what libraries do --------------------------------------------------------------------------

    def library(self, called: Value, name: str, owner: str, node: ast.Call, given: Arguments) -> Value:
        """Return the result of a function of a library that is known, or MISSING."""
        raise NotImplementedError

    def method(self, owner: Record, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a dictionary."""
        raise NotImplementedError

    def bound_call(self, owner: Value, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a text, a file, a parser or a library's object, or MISSING."""
        raise NotImplementedError

    def call_marked(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function returns; a decorator may give it its arguments."""
        raise NotImplementedError


_STATEMENTS: Mapping[type[ast.stmt], Callable[[Interpreter, Value, Variables], bool]] = {
    ast.Expr: Interpreter._expression,  # noqa: SLF001 - the table of its own methods
    ast.Assign: Interpreter._assignment,  # noqa: SLF001
    ast.AnnAssign: Interpreter._annotated,  # noqa: SLF001
    ast.AugAssign: Interpreter._augmented,  # noqa: SLF001
    ast.Return: Interpreter._return,  # noqa: SLF001
    ast.Raise: Interpreter._raise,  # noqa: SLF001
    ast.Break: Interpreter._leave,  # noqa: SLF001
    ast.Continue: Interpreter._leave,  # noqa: SLF001
    ast.Global: Interpreter._global,  # noqa: SLF001
    ast.If: Interpreter._if,  # noqa: SLF001
    ast.For: Interpreter._for,  # noqa: SLF001
    ast.AsyncFor: Interpreter._for,  # noqa: SLF001
    ast.While: Interpreter._while,  # noqa: SLF001
    ast.With: Interpreter._with,  # noqa: SLF001
    ast.AsyncWith: Interpreter._with,  # noqa: SLF001
    ast.Try: Interpreter._try,  # noqa: SLF001
    ast.TryStar: Interpreter._try,  # noqa: SLF001
    ast.FunctionDef: Interpreter._define,  # noqa: SLF001
    ast.AsyncFunctionDef: Interpreter._define,  # noqa: SLF001
    ast.ClassDef: Interpreter._defined_class,  # noqa: SLF001
    ast.Import: Interpreter._import,  # noqa: SLF001
    ast.ImportFrom: Interpreter._import,  # noqa: SLF001
    ast.Match: Interpreter._match,  # noqa: SLF001
}


class Imported:
    """Name that an import binds, until it is used."""

    def __init__(self, package: str, level: int, name: str, path: str) -> None:
        self.package, self.level, self.name, self.path = package, level, name, path
        self.found: Value = None


class ModuleValue:
    """Module of the project as an object."""

    __match_args__ = ("module",)

    def __init__(self, module: Module) -> None:
        self.module = module


class Method:
    """Method of a dictionary or namespace."""

    __match_args__ = ("owner", "name")

    def __init__(self, owner: Record, name: str) -> None:
        self.owner, self.name = owner, name


class BoundName:
    """Attribute of a text, a file, a parser, or an object of a library, with its owner."""

    __match_args__ = ("owner", "name")

    def __init__(self, owner: Value, name: str) -> None:
        self.owner, self.name = owner, name


class FieldDefault:
    """Result of `field(default=…)` makes in the body of a class."""

    def __init__(self, default: Value) -> None:
        self.default = default


_REGISTERS = re.compile(r"regist")
_EXITS = ("sys.exit", "builtins.exit", "builtins.quit")
_CHANGES_A_LIST = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "add", "discard", "sort"}
)
_OF_THE_MAIN_PROCESS = frozenset({"is_main_process", "is_local_main_process", "is_world_process_zero"})
_STARTERS = frozenset({"command", "callback", "local_entrypoint"})
_DTYPES = frozenset({"bfloat16", "float16", "float32", "half", "float", "float64", "int8", "uint8"})
_DICTIONARY = frozenset({"get", "items", "keys", "values", "pop", "setdefault", "update", "copy"})
_DECLARES = frozenset({"add_argument", "field", "Field", "option", "argument", "Option", "Argument", "print"})
"""Functions that declare options or print them, so that the names of their arguments say nothing."""
_COMMON = frozenset({
    "__call__", "__init__", "append", "backward", "close", "copy", "cuda", "eval", "format", "forward",
    "get", "info", "item", "items", "join", "keys", "load", "log", "map", "named_parameters", "parameters",
    "pop", "read", "save", "select", "size", "split", "step", "strip", "to", "update", "values", "warning",
    "write", "zero_grad",
})  # fmt: skip


def _takes_part(name: str) -> bool:
    """Return whether a call of this name makes a model or trains it."""
    return name in (*_MAKERS, "backward", "train", "fit", "step") or name.endswith(("Trainer", "Model"))


def _is_empty_dict(value: Value) -> bool:
    return isinstance(value, Record) and value.role == "dict" and not value.items


def _made_by_library(value: Value) -> Thing | None:
    """Return what stands for a part of something that a library made, or None."""
    if isinstance(value, BoundName):
        value = value.owner
    if isinstance(value, LibraryName):
        return Thing(value.name)
    return Thing(value.maker) if isinstance(value, Thing) else None


def _joined(one: Mapping[str, Value], other: Mapping[str, Value], why: str) -> dict[str, Value]:
    """Return the variables after a condition that is not decided."""
    found: dict[str, Value] = {}
    for name in {**one, **other}:
        before, after = one.get(name, MISSING), other.get(name, MISSING)
        if before is not after and isinstance(before, Imported) and isinstance(after, Imported):
            found[name] = OneOf((before, after))
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


def _names_in(target: ast.expr) -> list[str]:
    return [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]


def _outermost(scope: Variables) -> Variables:
    while scope.around is not None:
        scope = scope.around
    return scope


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_run_through(items: Value, body: Sequence[ast.stmt]) -> bool:
    """Return whether a loop takes each of several known items: nothing in its body leaves it."""
    if not is_list(items) or not 1 < len(items) <= _LONGEST_LOOP:
        return False
    return not any(
        isinstance(node, ast.Break | ast.Return | ast.Yield | ast.YieldFrom)
        for statement in body
        for node in ast.walk(statement)
    )


@lru_cache(maxsize=1024)
def _is_generator(node: ast.AST) -> bool:
    body = getattr(node, "body", [])
    waiting: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(each)
    return False
