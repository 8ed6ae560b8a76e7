"""Symbolic values for the evaluation of guards: versions and answers of whatever is installed.

`predicates.py` executes a package's own code on these values. This module applies Python's operations to
them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, get_args

from envcheck.atlas.conditions import (
    ALWAYS,
    NEVER,
    UNREADABLE,
    AllOf,
    Compared,
    Condition,
    HasName,
    Installed,
    PartCompared,
    all_of,
    any_of,
    either,
    negate,
)
from envcheck.atlas.entries import distribution_of
from envcheck.atlas.named_predicates import named_flag
from envcheck.core.versions import parse

WHOLE = 3
"""Parts of a version that are compared as a tuple: major, minor, micro."""

_MOST_DIGITS = 4
"""The most digits in the first number of a version: four, for a year such as 2024."""


@dataclass(frozen=True, slots=True)
class VersionOf:
    """Version of a package; with `depth`, its first numbers as a tuple."""

    package: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class PartOf:
    """One number of a package's version."""

    package: str
    index: int


@dataclass(frozen=True, slots=True)
class FirstCharacterOf:
    """First character of a version as text: `__version__[0]`."""

    package: str


@dataclass(frozen=True, slots=True)
class SpecOf:
    """Answer of `find_spec`: None unless the module is installed."""

    module: str


@dataclass(frozen=True, slots=True)
class PathOf:
    """A module of another package, or a name in it, whose code is not read."""

    path: str


@dataclass(frozen=True, slots=True)
class OwnName:
    """A name of another module of the same package, looked up when it is used."""

    module: str
    name: str


@dataclass(frozen=True, eq=False)
class LocalFunction:
    """A function of the package, with the module whose names it sees."""

    node: ast.FunctionDef
    module: str


@dataclass(frozen=True, slots=True)
class MethodOf:
    """A method of a value, before it is called."""

    value: SymbolValue
    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One value if a condition is met, another one otherwise."""

    test: Condition
    then: SymbolValue
    otherwise: SymbolValue


@dataclass(frozen=True, slots=True)
class DistributionTable:
    """Answer of `packages_distributions()`: import names to lists of distributions."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that cannot be followed."""


OPAQUE = Opaque()
SymbolValue: TypeAlias = (
    Condition
    | VersionOf
    | PartOf
    | FirstCharacterOf
    | SpecOf
    | PathOf
    | OwnName
    | LocalFunction
    | MethodOf
    | Choice
    | DistributionTable
    | Opaque
    | str
    | int
    | float
    | tuple["SymbolValue", ...]
    | frozenset["SymbolValue"]
    | None
)

_READ = VersionOf | PartOf | FirstCharacterOf
_CONDITION_TYPES = get_args(Condition)
_OPERATORS: Mapping[type[ast.cmpop], str] = {
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.LtE: "<=",
    ast.Lt: "<",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
FLIPPED = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "==": "==", "!=": "!="}
"""Each operator, with its equivalent when the sides are swapped."""


def is_condition(value: SymbolValue) -> TypeGuard[Condition]:
    """Return whether a value is a condition, and so a truth value."""
    return isinstance(value, _CONDITION_TYPES)


def constant(value: object) -> SymbolValue:
    """Return the value of a literal."""
    if isinstance(value, bool):
        return ALWAYS if value else NEVER
    return value if isinstance(value, str | int | float) or value is None else OPAQUE


def texts(values: Iterable[SymbolValue]) -> SymbolValue:
    """Return the values as a set; OPAQUE if one of them is not a text."""
    kept = list(values)
    return frozenset(kept) if all(isinstance(each, str) for each in kept) else OPAQUE


def truth(value: SymbolValue) -> Condition:
    """Return when a value counts as true."""
    answer: Condition = UNREADABLE
    match value:
        case None | str() | int() | float() | tuple() | frozenset():
            answer = ALWAYS if value else NEVER
        case SpecOf(module):
            answer = spec_found(module)
        case VersionOf(package):
            answer = Installed(package)
        case Choice(test, then, otherwise):
            answer = either(test, truth(then), truth(otherwise))
        case PathOf(path):
            answer = named_flag(path) or UNREADABLE
        case _ if is_condition(value):
            answer = value
        case _:
            pass
    return answer


def spec_found(module: str) -> Condition:
    """Return when `find_spec` finds a module."""
    installed = Installed(distribution_of(module))
    return all_of((installed, HasName(module))) if "." in module else installed


def choose(test: Condition, then: SymbolValue, otherwise: SymbolValue) -> SymbolValue:
    """Return the value `then if test else otherwise`."""
    if test == ALWAYS or then == otherwise:
        return then
    if test == NEVER:
        return otherwise
    if is_condition(then) and is_condition(otherwise):
        return either(test, then, otherwise)
    if isinstance(then, tuple) and isinstance(otherwise, tuple) and len(then) == len(otherwise):
        return tuple(choose(test, one, other) for one, other in zip(then, otherwise, strict=True))
    return Choice(test, then, otherwise)


def item(base: SymbolValue, index: ast.expr, key: SymbolValue) -> SymbolValue:
    """Return `base[index]`, where the index has the value `key`."""
    answer: SymbolValue = OPAQUE
    match base, index:
        case Choice(test, then, otherwise), _:
            answer = choose(test, item(then, index, key), item(otherwise, index, key))
        case DistributionTable(), _ if isinstance(key, str):
            answer = (distribution_of(key),)
        case VersionOf(package, whole), ast.Slice(lower=None, upper=ast.Constant(value=int(depth))) if whole:
            answer = VersionOf(package, depth)
        case VersionOf(package, depth), ast.Constant(value=int(position)) if position >= 0:
            # Of a text, an index gives a character.
            answer = (
                PartOf(package, position) if depth else FirstCharacterOf(package) if not position else OPAQUE
            )
        case tuple(), ast.Constant(value=int(position)) if -len(base) <= position < len(base):
            answer = base[position]
        case _:
            pass
    return answer


def attribute(base: SymbolValue, name: str) -> SymbolValue:
    """Return `base.name` of a value that is no module."""
    match base:
        case VersionOf(package):
            parts = {"major": 0, "minor": 1, "micro": 2}
            if name in parts:
                return PartOf(package, parts[name])
            if name == "release":
                return VersionOf(package, depth=WHOLE)
            return base if name in ("base_version", "public", "version") else MethodOf(base, name)
        case str() | frozenset() | tuple() | DistributionTable():
            return MethodOf(base, name)
        case _:
            return OPAQUE


def call_method(value: SymbolValue, method: str, arguments: Sequence[SymbolValue]) -> SymbolValue:
    """Return `value.method(arguments)`."""
    first = arguments[0] if arguments else None
    answer: SymbolValue = OPAQUE
    match value, method:
        case str(), "upper" | "lower" | "strip":
            answer = {"upper": value.upper, "lower": value.lower, "strip": value.strip}[method]()
        case str(), "replace" if len(arguments) > 1 and all(isinstance(each, str) for each in arguments):
            answer = value.replace(str(first), str(arguments[1]))
        case str(), "startswith" if isinstance(first, str):
            answer = ALWAYS if value.startswith(first) else NEVER
        case DistributionTable(), "get" if isinstance(first, str):
            answer = (distribution_of(first),)
        case frozenset(), "union" if isinstance(first, frozenset):
            answer = value | first
        case VersionOf(package), "split":
            # `version.split("+")[0]` is still the version; `version.split(".")[0]` is its first number.
            answer = VersionOf(package, depth=WHOLE) if first == "." else (value,)
        case VersionOf(package), "startswith" if isinstance(first, str) and parse(first.rstrip(".")):
            bound = first.rstrip(".")
            answer = Compared(package, "==", bound, depth=bound.count(".") + 1)
        case _:
            pass
    return answer


def compare(left: SymbolValue, operation: ast.cmpop, right: SymbolValue) -> Condition:
    """Return when a comparison is true."""
    if isinstance(left, Choice):
        then, otherwise = compare(left.then, operation, right), compare(left.otherwise, operation, right)
        return either(left.test, then, otherwise)
    if isinstance(right, Choice):
        then, otherwise = compare(left, operation, right.then), compare(left, operation, right.otherwise)
        return either(right.test, then, otherwise)
    op = _OPERATORS.get(type(operation))
    if op is not None:
        return _ordered(left, op, right)
    same = _identical(left, right) if isinstance(operation, ast.Is | ast.IsNot) else _member(left, right)
    return negate(same) if isinstance(operation, ast.IsNot | ast.NotIn) else same


def _identical(left: SymbolValue, right: SymbolValue) -> Condition:
    match left, right:
        case SpecOf(module), None:
            return negate(spec_found(module))
        case ((str() | VersionOf() | tuple() | frozenset() | int()), None):
            return NEVER
        case None, None:
            return ALWAYS
        case _ if is_condition(left) and right in (ALWAYS, NEVER):
            return left if right == ALWAYS else negate(left)
        case _:
            return UNREADABLE


def _member(left: SymbolValue, right: SymbolValue) -> Condition:
    if isinstance(left, str | int) and isinstance(right, frozenset | tuple):
        return ALWAYS if left in right else UNREADABLE if OPAQUE in right else NEVER
    if isinstance(left, str) and isinstance(right, str):
        return ALWAYS if left in right else NEVER
    return UNREADABLE


def _ordered(left: SymbolValue, op: str, right: SymbolValue) -> Condition:
    if isinstance(right, _READ) and not isinstance(left, _READ):
        left, right, op = right, left, FLIPPED[op]
    match left:
        case VersionOf(package, depth):
            return _version_ordered(package, depth, op, right)
        case PartOf(package, index) if isinstance(right, int) or (isinstance(right, str) and right.isdigit()):
            return PartCompared(package, index, op, int(right))
        case FirstCharacterOf(package) if isinstance(right, str) and op in ("==", "!="):
            same = _begins_with(package, right)
            return same if op == "==" else negate(same)
        case tuple() if isinstance(right, tuple):
            return _parts_ordered(left, op, right)
        case str() | int():
            return _constants_ordered(left, op, right)
        case _:
            return UNREADABLE


def _begins_with(package: str, digit: str) -> Condition:
    """Return when the first number of a version begins with a digit: 2 of 2.7, of 24.0.0 and of 2024.6.1."""
    if not (digit.isascii() and digit.isdecimal()) or len(digit) > 1:
        return UNREADABLE
    tens = [10**power for power in range(_MOST_DIGITS)]
    return any_of(
        all_of(
            (
                PartCompared(package, 0, ">=", int(digit) * ten),
                PartCompared(package, 0, "<", (int(digit) + 1) * ten),
            )
        )
        for ten in tens
    )


def _version_ordered(package: str, depth: int, op: str, right: SymbolValue) -> Condition:
    match right:
        case str() if parse(right) is not None:
            return Compared(package, op, right, depth if depth < WHOLE else 0)
        case float() | int():
            return Compared(package, op, str(right))
        case tuple() if right and all(isinstance(each, int) for each in right):
            return Compared(package, op, ".".join(map(str, right)), depth if depth < WHOLE else 0)
        case _:
            return UNREADABLE


def _parts_ordered(left: tuple[SymbolValue, ...], op: str, right: tuple[SymbolValue, ...]) -> Condition:
    """Compare `(TORCH_MAJOR, TORCH_MINOR)` with numbers."""
    parts = [each for each in left if isinstance(each, PartOf)]
    whole = (
        bool(parts) and len(parts) == len(left) and [each.index for each in parts] == list(range(len(parts)))
    )
    if not whole or not all(isinstance(each, int) for each in right):
        return UNREADABLE
    return Compared(parts[0].package, op, ".".join(map(str, right)), len(left))


def _constants_ordered(left: str | int, op: str, right: SymbolValue) -> Condition:
    if not isinstance(right, str | int | None):
        return UNREADABLE
    if op in ("==", "!="):
        return ALWAYS if (left == right) == (op == "==") else NEVER
    one, other = parse(str(left)), parse(str(right))
    if one is None or other is None:
        return UNREADABLE
    answers = {">=": one >= other, ">": one > other, "<=": one <= other, "<": one < other}
    return ALWAYS if answers[op] else NEVER


def as_floor(value: SymbolValue) -> SymbolValue:
    """Return "installed, and at least X" as a single Installed condition with the floor X."""
    match value:
        case AllOf((Installed(package, floors), Compared(other, ">=", bound, 0))) if package == other:
            return Installed(package, tuple(sorted({*floors, bound})))
        case _:
            return value


def merge(test: Condition, one: Mapping[str, Any], other: Mapping[str, Any], names: dict[str, Any]) -> None:
    """Bind each name to its value after `one` if a test is met, after `other` otherwise."""
    for name in {*one, *other}:
        names[name] = choose(test, one.get(name, OPAQUE), other.get(name, OPAQUE))


def assign(target: ast.expr, value: SymbolValue, names: dict[str, Any]) -> None:
    """Bind the names of an assignment's target."""
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Tuple):
        count = len(target.elts)
        parts: Sequence[SymbolValue] = (OPAQUE,) * count
        if isinstance(value, tuple) and len(value) == count:
            parts = value
        elif isinstance(value, VersionOf):
            parts = [PartOf(value.package, index) for index in range(count)]
        for each, part in zip(target.elts, parts, strict=True):
            assign(each, part, names)
