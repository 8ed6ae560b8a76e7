"""Calls of a followed program: of its own functions and classes, which are followed, and of libraries."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.asides import MOST_STEPS_ASIDE, STEPS_OF_SHORT_ONES
from envcheck.training_config.programs.expressions import ProgramTooLongError, computed
from envcheck.training_config.programs.names import RECOMPUTES, is_beside, names_of
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall, KeywordGiven
from envcheck.training_config.programs.references import BoundName, Method
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    Further,
    LibraryName,
    OneOf,
    ProjectFunction,
    Record,
    Super,
    Thing,
    Value,
    Variables,
    common,
    has_further,
    is_list,
    is_too_large,
    quoted,
    truth,
)
from envcheck.training_config.programs.variables import CallFrame, Names

_DEEPEST_CALLS = 24
_DEEPEST_RECORDS = 6  # records inside one another
_LONGEST_LIST = 400  # items of a list that is followed while it grows
_HOLD_SETTINGS = ("Arguments", "Config", "DataLoader", "SentenceTransformer", "CrossEncoder")
"""Endings of the names of classes whose objects have the attributes that they are given."""

MAKERS = ("from_pretrained", "get_peft_model", "from_config", "prepare", "initialize", "ArgumentParser")
"""Functions of libraries that return an object, as classes do."""

CHANGES_A_LIST = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "add", "discard", "sort"})
_DECLARES = frozenset({"add_argument", "field", "Field", "option", "argument", "Option", "Argument", "print"})
"""Functions that declare options or print them, so that the names of their arguments say nothing."""

_COMMON = frozenset({
    "__call__", "__init__", "append", "backward", "close", "copy", "cuda", "eval", "format", "forward",
    "get", "info", "item", "items", "join", "keys", "load", "log", "map", "named_parameters", "parameters",
    "pop", "read", "save", "select", "size", "split", "step", "strip", "to", "update", "values", "warning",
    "write", "zero_grad",
})  # fmt: skip


class Calls(Names):
    """Evaluator that follows calls; statements, and what known libraries do, are left to subclasses."""

    @abstractmethod
    def block(self, statements: Sequence[ast.stmt], scope: Variables) -> bool:
        """Follow statements; return whether one of them ends the block."""

    @abstractmethod
    def instantiate(self, cls: ClassValue, given: Arguments, node: ast.Call) -> Value:
        """Return an object of a class of the project."""

    @abstractmethod
    def library(self, called: Value, name: str, owner: str, node: ast.Call, given: Arguments) -> Value:
        """Return the result of a function of a library that is known, or MISSING."""

    @abstractmethod
    def method(self, owner: Record, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a dictionary."""

    @abstractmethod
    def content_of(self, value: Value) -> Value:
        """Return the content of a configuration that the program has written, for its path."""

    @abstractmethod
    def bound_call(self, owner: Value, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a text, a file, a parser or a library's object, or MISSING."""

    @abstractmethod
    def call_marked(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function returns; a decorator may give it its arguments."""

    def arguments(self, node: ast.Call, scope: Variables) -> Arguments:
        """Return the arguments of a call."""
        positional: list[Value] = []
        keywords: list[KeywordGiven] = []
        rest = ""
        for each in node.args:
            if isinstance(each, ast.Starred):
                inner = self.value(each.value, scope)
                if is_list(inner) and not has_further(inner):
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
            case ProjectFunction() | ClassValue():
                return self._call_own(called, given, node)
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

    def _call_own(self, called: ProjectFunction | ClassValue, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a function or a class of the project."""
        self._calling = node
        try:
            if isinstance(called, ClassValue):
                return self.instantiate(called, given, node)
            return self.call_marked(called, given)
        finally:
            self._calling = None

    def _call_one_of(
        self, options: Sequence[Value], given: Arguments, node: ast.Call, scope: Variables
    ) -> Value:
        """Return what the functions of a table, of which one is called, all return."""
        found: list[Value] = []
        starts: list[int] = []
        depth = len(self.conditions)
        for option in options:
            starts.append(len(self.calls))
            with self.under(f"{quoted(node.func)} is {getattr(option, 'name', 'it')}"):
                match option:
                    case ProjectFunction():
                        found.append(self.call_marked(option, given))
                    case ClassValue():
                        found.append(self.instantiate(option, given, node))
                    case _:
                        found.append(self._call_library(option, node, given, scope))
        self._agree_on_calls(starts, node, depth)
        return reduce(common, found)

    def _agree_on_calls(self, starts: Sequence[int], node: ast.Call, depth: int) -> None:
        """Leave out the condition of a call that every option leads to, such as a class and one built on it.

        The calls of an option begin at its number in `starts`; its condition is the one at `depth`.
        """
        ends = [*starts[1:], len(self.calls)]
        names = [
            {
                call.name
                for call in self.calls[start:end]
                if call.node is node and len(call.conditions) > depth
            }
            for start, end in zip(starts, ends, strict=True)
        ]
        agreed = set.intersection(*names) if names else set()
        for at in range(starts[0] if starts else 0, len(self.calls)):
            call = self.calls[at]
            if call.name in agreed and call.node is node:
                kept = (*call.conditions[:depth], *call.conditions[depth + 1 :])
                self.calls[at] = call._replace(conditions=kept)

    def _change_list(self, node: ast.Call, given: Arguments, scope: Variables) -> None:
        """Follow what `append` and `extend` do to a list; forget one that another method changes."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES_A_LIST:
            target = node.func.value
            if (isinstance(target, ast.Name) and is_list(scope.find(target.id))) or (
                isinstance(target, ast.Attribute) and is_list(self.value(target, scope))
            ):
                own = scope.lists.get(target.id) if isinstance(target, ast.Name) else None
                longer = self._longer(self.value(target, scope), node, given, own or ())
                self.bind(target, longer, scope)
                if own is not None and isinstance(target, ast.Name):
                    scope.lists[target.id] = own

    def _longer(self, before: Value, node: ast.Call, given: Arguments, made: tuple[str, ...]) -> Value:
        """Return a list after `append` or `extend`, or a value that is not known.

        `made` are the undecided conditions under which the list was made: those are no conditions here.
        """
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        more = given.positional[0] if len(given.positional) == 1 else MISSING
        grows = method in ("append", "extend") and more is not MISSING
        too_long = len(before) > _LONGEST_LIST if is_list(before) else True
        if not grows or too_long or is_too_large((before, more)):
            return computed(node.func)
        if tuple(self.conditions) != made[: len(self.conditions)]:
            return (*before, Further(f"it is added only where {self.conditions[-1]}"))
        if method == "append":
            return (*before, more)
        return before + more if is_list(more) else (*before, Further(f"{quoted(node)} adds them"))

    # --- libraries --------------------------------------------------------------------------------

    def _call_library(self, called: Value, node: ast.Call, given: Arguments, scope: Variables) -> Value:
        """Return what a call of a library, or of something that is not known, returns."""
        name, owner = self._spelled(called, node)
        given = given._replace(
            keywords=tuple(each._replace(value=self.content_of(each.value)) for each in given.keywords)
        )
        found = self.library(called, name, owner, node, given)
        if found is not MISSING:
            return found
        values = [*given.positional, *(each.value for each in given.keywords)]
        self._give_away(values)
        for value in values:
            self.note_reading(value)
        self._note_call(called, name, owner, node, given, scope)
        full = f"{owner}.{name}" if owner else name
        certain = name in MAKERS or name[:1].isupper()
        holds = certain and (name.endswith(_HOLD_SETTINGS) or owner.endswith("AutoConfig"))
        settings = {each.name: each.value for each in given.keywords} if holds else None
        made = Thing(full, certain, settings, len(self.conditions))
        self.calls[-1] = self.calls[-1]._replace(made=made)
        return made

    def _spelled(self, called: Value, node: ast.Call) -> tuple[str, str]:
        """Return the name and the owner of what is called."""
        if isinstance(called, LibraryName):
            owner, _, name = called.name.rpartition(".")
            return name, owner
        if isinstance(node.func, ast.Attribute):
            return node.func.attr, self._spelled_owner(node.func.value)
        return getattr(node.func, "id", ""), ""

    def _note_call(
        self, called: Value, name: str, owner: str, node: ast.Call, given: Arguments, scope: Variables
    ) -> None:
        if name == "requires_grad_" and isinstance(node.func, ast.Attribute):
            owner = self.spelled_outside(node.func.value)
            if self._assigning is not None and node is self._assigning.value:
                target = quoted(self._assigning.targets[0])  # `ref_model = load(name).requires_grad_(False)`
                owner = target if is_beside(target) else owner
        owner = called.maker if name == "fit" and isinstance(called, Thing) else owner
        owner = self.owner_outside(owner) if name == "requires_grad_" else owner
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
                return
        self.names |= {name, owner.rpartition(".")[2]} if name == "from_pretrained" else {name}
        if owner == "torch.utils.checkpoint":
            self.names.add(RECOMPUTES)
        if name in _DECLARES:
            return
        self.names |= {
            each.name
            for each in given.keywords
            if truth(each.value) is not False and (each.name != "requires_grad" or each.value is not True)
        }

    def _name_methods(self, name: str) -> None:
        """Record the names in the project's methods that something unknown may stand for."""
        for module in self.project.modules() if name not in _COMMON else ():
            for node in module.functions().get(name, ()):
                if node not in self.followed:
                    self.followed.add(node)
                    self.names |= names_of(node)

    def note_reading(self, value: Value, depth: int = 0) -> None:
        """Remember that something that is not followed may read all items of a record."""
        if (
            isinstance(value, Record)
            and depth < _DEEPEST_RECORDS
            and not self.read_items >= value.items.keys()
        ):
            self.read_items |= value.items.keys()
            for each in value.items.values():
                self.note_reading(each, depth + 1)

    def _give_away(self, values: Iterable[Value]) -> None:
        """Remember the functions among values that a library is given, which may call them.

        Of a class it may make objects, as deepspeed.pipe does of the layers of a model.
        """
        for value in values:
            if isinstance(value, ProjectFunction):
                self._waiting.append(value)
            elif isinstance(value, ClassValue):
                self.names |= names_of(value.node)
            elif is_list(value):
                self._give_away(value)

    # --- functions of the project -----------------------------------------------------------------

    def call_function(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function of the project returns for the arguments."""
        active = sum(
            frame.function is not None and frame.function.node is function.node for frame in self._frames
        )
        if active > 1 or len(self._frames) > _DEEPEST_CALLS:
            return Unknown(f"{function.name} calls itself")
        short = self.steps < STEPS_OF_SHORT_ONES
        if short or self._aside or self.asides.leads_to_training(function):
            return self._run(function, given)
        return self._run_aside(function, given)

    def _run_aside(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function returns that leads to no training; Unknown if it is a long one."""
        why = f"{function.name} is too long to be followed"
        if function.node in self._long_asides:
            return Unknown(why)
        until, depth, start = self.most_steps, self.depth, self.steps
        self._aside, self.most_steps = True, min(until, start + MOST_STEPS_ASIDE)
        try:
            return self._run(function, given)
        except ProgramTooLongError:
            if self.steps > until:
                raise
            self.depth = depth
            self.names |= names_of(function.node)
            self._long_asides.add(function.node)
            return Unknown(why)
        finally:
            free = min(self.steps - start, self.free_steps)
            self.free_steps -= free
            self._aside, self.most_steps = False, until + free

    def _run(self, function: ProjectFunction, given: Arguments) -> Value:
        self.followed.add(function.node)
        if function.name:
            self.bodies.add(function.name)
        scope = Variables({}, function.scope)
        before, self._path = self._path, function.module.path
        depth = len(self.conditions)
        frame = self._frame(function)
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

    def _frame(self, function: ProjectFunction) -> CallFrame:
        """Return the frame of a function, with the expressions that the call in the code gives it."""
        frame, node, assigning = CallFrame(function), self._calling, self._assigning
        self._calling = None
        if node is None:
            return frame
        arguments = function.node.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        names = names[1:] if function.owner is not None else names
        if not any(isinstance(each, ast.Starred) for each in node.args):
            frame.given = dict(zip(names, node.args, strict=False))
        frame.given |= {each.arg: each.value for each in node.keywords if each.arg is not None}
        if assigning is not None and _without_moves(assigning.value) is node:
            frame.target = quoted(assigning.targets[0])
        return frame

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


def _without_moves(value: ast.expr) -> ast.expr:
    """Return what a chain of methods begins with that return the object itself, as `Model().to(device)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return value


_MOVES = ("to", "cuda", "cpu", "eval", "train", "half", "bfloat16", "float", "requires_grad_")


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
