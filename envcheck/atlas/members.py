"""Attributes of a release's classes, and parameters of its functions. Pure.

Classes are named without their module, as exceptions name them: `'GRPOConfig' object has no attribute`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeGuard

_MAKING = ("__init__", "__new__", "__post_init__")
"""Methods that run when an object is made. What others assign is missing in an object until they run."""

_REGISTERING = ("register_buffer", "register_parameter", "add_module", "register_module")
"""Methods of torch's modules that give an object the attribute that their first argument names."""

_ANSWERING = ("__getattr__", "__getattribute__")
"""Methods that answer to attributes which nothing assigns."""

ANY = "*"
"""Stands for the names of all attributes, if a class passes them on to another object."""

_OF_A_NAME = ("", "_id", "_ids", "s")
"""What code that answers to attributes appends to the names that it knows: `pad_token`, `pad_token_id`."""


class ClassMembers(NamedTuple):
    """Names of a class's bases, its own attributes, and the parameters of its methods by name.

    `attributes` are those that every object of the class has once it is made. `answers` are the texts to
    which a class with a `__getattr__` may answer, or `ANY` if it passes names on to another object.
    """

    bases: tuple[str, ...]
    attributes: frozenset[str]
    methods: Mapping[str, str]
    answers: frozenset[str] = frozenset()

    def may_answer(self, name: str) -> bool:
        """Return whether an attribute that nothing assigns may be there nevertheless."""
        known = (name.removesuffix(end) for end in _OF_A_NAME if name.endswith(end))
        return ANY in self.answers or not self.answers.isdisjoint(known)


class ModuleMembers(NamedTuple):
    """Classes of a module, and the parameters of its functions by name."""

    classes: Mapping[str, ClassMembers]
    functions: Mapping[str, str]


def module_members(tree: ast.Module) -> ModuleMembers:
    """Return the classes and functions that a module defines at its top, also below `if` and `try`."""
    classes, functions = {}, {}
    for statement in _top(tree.body):
        if isinstance(statement, ast.ClassDef):
            classes[statement.name] = _class(statement)
        else:
            functions[statement.name] = _parameters(statement.args)
    for name, other in _aliases(tree.body):
        if other in classes:
            classes.setdefault(name, classes[other])
    return ModuleMembers(classes, functions)


def _aliases(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the names that a module gives to others as a whole, such as the old name of a class."""
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value.id


def _top(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try):
            yield from _top((*statement.body, *statement.orelse))


def _class(node: ast.ClassDef) -> ClassMembers:
    names: set[str] = set()
    methods: dict[str, str] = {}
    functions = {
        each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for name in _called_on_making(functions):
        names |= {*_assigned_to_self(functions[name]), *_assigned_in_loops(functions[name], functions)}
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(statement.name)
            methods[statement.name] = _parameters(statement.args)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names.add(statement.target.id)
        elif isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    bases = tuple(name for base in node.bases if (name := _base_name(base)))
    return ClassMembers(bases, frozenset(names), methods, _answers(node, functions))


def _called_on_making(functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> Iterator[str]:
    """Yield the methods of a class that run when an object is made, those that these call included."""
    queue = [name for name in _MAKING if name in functions]
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            yield name
            called = (each.func for each in ast.walk(functions[name]) if isinstance(each, ast.Call))
            queue += [each.attr for each in called if _is_of_self(each) and each.attr in functions]


def _is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _answers(
    node: ast.ClassDef, functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
) -> frozenset[str]:
    """Return the texts to which a class answers as attributes; `ANY` if it passes names on to an object.

    They stand where it answers, or in what the class lists outside its methods.
    """
    answering = [functions[name] for name in _ANSWERING if name in functions]
    calls = (each for function in answering for each in ast.walk(function) if isinstance(each, ast.Call))
    if any(_is_call_of(each, "getattr") and not _is_name(each.args[0], "self") for each in calls):
        return frozenset({ANY})
    listed = [*answering, *(each for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign))]
    walked = (each for part in listed for each in ast.walk(part)) if answering else ()
    texts = (each.value for each in walked if isinstance(each, ast.Constant))
    return frozenset(text for text in texts if isinstance(text, str) and text.isidentifier())


def _is_call_of(call: ast.Call, function: str) -> bool:
    """Return whether a call with arguments is one of a function of Python's own."""
    return _is_name(call.func, function) and bool(call.args)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _base_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _base_name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _assigned_to_self(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (name := _given_to_self(node)):
            yield name
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def _assigned_in_loops(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef],
) -> Iterator[str]:
    """Yield the attributes that `for name, value in self.defaults().items(): setattr(self, name, …)` sets.

    They are the texts that are keys of a dictionary which the method returns.
    """
    for loop in ast.walk(function):
        if not (isinstance(loop, ast.For) and _sets_its_names(loop)):
            continue
        methods = {node.attr for node in ast.walk(loop.iter) if _is_of_self(node)} & functions.keys()
        for node in (node for name in sorted(methods) for node in ast.walk(functions[name])):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
                keys = (key.value for key in node.value.keys if isinstance(key, ast.Constant))
                yield from (key for key in keys if isinstance(key, str))


def _sets_its_names(loop: ast.For) -> bool:
    """Return whether a loop sets attributes of `self` by the names that it goes through."""
    calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call) and _is_call_of(each, "setattr")]
    targets = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    return any(
        _is_name(call.args[0], "self") and isinstance(call.args[1], ast.Name) and call.args[1].id in targets
        for call in calls
        if len(call.args) > 1
    )


def _given_to_self(call: ast.Call) -> str:
    """Return the attribute that `setattr(self, "x", …)` or `self.register_buffer("x", …)` gives an object."""
    named: ast.expr | None = None
    if _is_of_self(call.func) and call.func.attr in _REGISTERING:
        named = next(iter(call.args), None)
    elif _is_call_of(call, "setattr") and _is_name(call.args[0], "self"):
        named = call.args[1]
    return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else ""


def _parameters(args: ast.arguments) -> str:
    """Return the names of parameters, with `=` behind those that have a default: `self, model, args=`."""
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    parts = [f"{each.arg}{'=' * (number >= required)}" for number, each in enumerate(positional)]
    if args.vararg:
        parts.append(f"*{args.vararg.arg}")
    elif args.kwonlyargs:
        parts.append("*")
    parts += [
        f"{each.arg}{'=' * (default is not None)}"
        for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if args.kwarg:
        parts.append(f"**{args.kwarg.arg}")
    return ", ".join(parts)
