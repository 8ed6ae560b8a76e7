"""Values of a followed program, apart from Python's own scalars, tuples, and Unknown."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from envcheck.core.facts import Unknown

if TYPE_CHECKING:
    from envcheck.training_config.programs.modules import Module

Value: TypeAlias = Any
"""A scalar, a tuple of values, Unknown, or one of the classes below."""

LONGEST_TEXT = 10_000
"""Characters of a text, or items of a list, that a program puts together."""
_SHOWN = 60  # characters of an expression that a reason quotes
_MOST_OPTIONS = 16  # entries of a table of functions that are all followed


@dataclass(frozen=True, eq=False)
class LibraryName:
    """Definition of a library, by its dotted name: `transformers.Trainer`."""

    name: str


@dataclass(frozen=True, eq=False)
class Thing:
    """Object that a library made; `certain` if it is an object, and never None.

    `maker` is the dotted name of what made it. `given` are the attributes of an object that holds settings,
    as far as its maker was given them, and `born` the number of undecided conditions under which it was made.
    """

    maker: str
    certain: bool = False
    given: dict[str, Value] | None = None
    born: int = 0


class PerhapsSet(Unknown):
    """Stand for an item that is set only under a condition that is not decided, and is missing otherwise."""


class UnknownWord(Unknown):
    """One word of a command line that is not known; a plain Unknown may be several words in a command."""


@dataclass(frozen=True, eq=False)
class PartialText:
    """Text of which some parts are not known: `parts` are texts and Unknown, at least one of each."""

    parts: tuple[str | Unknown, ...]


@dataclass(frozen=True, eq=False)
class Further:
    """Items of a list that it may have at this place: any number of them, for the reason `why`."""

    why: str


@dataclass(frozen=True, eq=False)
class OneOf:
    """Entry of a table of functions or classes that the program chooses when it runs."""

    options: tuple[Value, ...]


@dataclass(eq=False)
class ProjectFunction:
    """Function of the project; `scope` has the variables around its definition, `bound` known arguments."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    scope: Variables
    owner: Value = None  # the object or class of a bound method
    defined_in: ClassValue | None = None
    bound: Mapping[str, Value] = field(default_factory=dict)
    marks: tuple[ast.expr, ...] = ()  # decorators

    @property
    def name(self) -> str:
        """Return its name, or "" for a lambda."""
        return getattr(self.node, "name", "")


@dataclass(eq=False)
class ClassValue:
    """Class of the project."""

    node: ast.ClassDef
    module: Module
    scope: Variables
    bases: tuple[Value, ...]
    members: dict[str, Value]

    @property
    def name(self) -> str:
        """Return its name."""
        return self.node.name

    def lineage(self) -> list[Value]:
        """Return the class and its bases, depth first, each once; those of libraries stay as they are."""
        found: list[Value] = []
        waiting: list[Value] = [self]
        while waiting and len(found) < 40:  # noqa: PLR2004 - against bases without end
            each = waiting.pop(0)
            if any(each is other for other in found):
                continue
            found.append(each)
            if isinstance(each, ClassValue):
                waiting[:0] = each.bases
        return found


@dataclass(eq=False)
class Record:
    """Dictionary, namespace, or object of a project's class: known items by name.

    `rest` is the reason why it may have other items, or "". `born` is the number of undecided conditions
    under which it was made. `role` is dict, namespace, parser, or object.
    """

    items: dict[str, Value]
    role: str = "dict"
    made_from: ClassValue | None = None
    rest: str = ""
    born: int = 0

    def get(self, name: str) -> Value:
        """Return an item; Unknown if there may be one that is not known; `MISSING` if there is none."""
        if name in self.items:
            return self.items[name]
        return Unknown(self.rest) if self.rest else MISSING


def deepcopy(record: Record) -> Record:
    """Return a copy of a record, with copies of the records inside it."""
    return _copied(record, {})


def _copied(record: Record, done: dict[int, Record]) -> Record:
    """Return the copy of a record; one that is in several places is copied once, as Python does."""
    if id(record) not in done:
        copy = done[id(record)] = Record({}, record.role, record.made_from, record.rest, record.born)
        copy.items.update(
            (name, _copied(each, done) if isinstance(each, Record) else each)
            for name, each in record.items.items()
        )
    return done[id(record)]


class NoItem:
    """Result for an item of a record that it does not have."""


MISSING = NoItem()

ANY_CLASS = "*"
"""The name of a scope for the library of which a module imports everything: its classes are known by name."""


@dataclass(frozen=True, eq=False)
class File:
    """File that the program has opened, by its path."""

    path: str


@dataclass(frozen=True, eq=False)
class Super:
    """Result of `super()` in a method of `after` called on `owner`."""

    owner: Value
    after: ClassValue | None


@dataclass(eq=False)
class Variables:
    """Variables of a function or module, and the scope around it.

    `lists` has the undecided conditions under which a variable was given its list, by name.
    """

    names: dict[str, Value]
    around: Variables | None = None
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self, name: str) -> Value:
        """Return the value of a variable, or MISSING."""
        scope: Variables | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        return MISSING

    def set(self, name: str, value: Value, conditions: Sequence[str]) -> None:
        """Give a variable a value, under conditions that are not decided."""
        self.names[name] = value
        if is_list(value):
            self.lists[name] = tuple(conditions)


def is_list(value: Value) -> bool:
    """Return whether a value is a list or tuple; Unknown is a named tuple, and none of them."""
    return isinstance(value, tuple) and not isinstance(value, Unknown)


def has_further(values: tuple[Value, ...]) -> bool:
    """Return whether a list may have items whose number is not known."""
    return any(isinstance(each, Further) for each in values)


def text_of(parts: Sequence[Value]) -> Value:
    """Return texts, numbers and values that are not known as one text, or MISSING if nothing is known."""
    found: list[str | Unknown] = []
    for each in parts:
        more = each.parts if isinstance(each, PartialText) else (_part(each),)
        for part in more:
            if isinstance(part, str) and found and isinstance(found[-1], str):
                found[-1] += part
            else:
                found.append(part)
    if sum(len(part) for part in found if isinstance(part, str)) >= LONGEST_TEXT:
        return MISSING
    if all(isinstance(part, str) for part in found):
        return "".join(str(part) for part in found)
    says_something = any(isinstance(part, str) and part for part in found)
    return PartialText(tuple(found)) if says_something else MISSING


def _part(value: Value) -> str | Unknown:
    if isinstance(value, bool | int | float | str):
        return str(value)
    return value if isinstance(value, Unknown) else Unknown("it is computed when the program runs")


def is_known(value: Value) -> bool:
    """Return whether a value is a scalar, or a tuple of such values."""
    if is_list(value):
        return all(map(is_known, value))
    return value is None or isinstance(value, bool | int | float | str)


def is_too_large(value: Value) -> bool:
    """Return whether a list or dictionary has more than `LONGEST_TEXT` items, with those inside them.

    What is in several places counts in each: forty lists, each twice in the next, would have 2**40 items.
    """
    waiting, count = [value], 0
    while waiting and count <= LONGEST_TEXT:
        each = waiting.pop()
        items = each.items.values() if isinstance(each, Record) else each if is_list(each) else ()
        count += len(items)
        waiting += [item for item in items if isinstance(item, tuple | Record)]
    return count > LONGEST_TEXT


def truth(value: Value) -> bool | None:
    """Return whether a value counts as true in a condition, or None if that is not known."""
    if is_list(value):
        certain = any(not isinstance(each, Further) for each in value)
        return True if certain else None if value else False
    if is_known(value):
        return bool(value)
    if isinstance(value, Record):
        if value.role != "dict":
            return True
        return True if value.items else None if value.rest else False
    is_object = isinstance(value, ProjectFunction | ClassValue | OneOf | File | PartialText)
    if is_object or (isinstance(value, Thing) and value.certain):
        return True
    return None


def same(one: Value, other: Value) -> bool:
    """Return whether two values are certainly equal."""
    if one is other:
        return True
    if is_known(one) and is_known(other):
        return type(one) is type(other) and bool(one == other)
    if isinstance(one, LibraryName) and isinstance(other, LibraryName):
        return one.name == other.name
    if isinstance(one, Thing) and isinstance(other, Thing):
        return one.maker == other.maker and one.certain == other.certain and not (one.given or other.given)
    return False


def common(one: Value, other: Value) -> Value:
    """Return what two values have in common: the value itself, an object of the same maker, or MISSING."""
    if same(one, other):
        return one
    if isinstance(one, Thing) and isinstance(other, Thing) and one.maker == other.maker:
        return Thing(one.maker, certain=one.certain and other.certain)
    if isinstance(one, Record) and isinstance(other, Record) and one.role == other.role == "dict":
        return _common_items(one, other)
    return MISSING


def _common_items(one: Record, other: Record) -> Record:
    """Return a dictionary with the items of two; what they do not agree on is not known."""
    why = Unknown("a condition decides it")
    items = {
        name: one.items[name] if same(one.items.get(name, MISSING), other.items.get(name, MISSING)) else why
        for name in {**one.items, **other.items}
    }
    return Record(items, rest=one.rest or other.rest, born=max(one.born, other.born))


def either(one: Value, other: Value) -> Value:
    """Return what a variable may be after a condition that is not decided, or MISSING.

    Of functions and classes it is one; whatever is common to the values otherwise.
    """
    shared = common(one, other)
    if shared is not MISSING:
        return shared
    if is_list(one) and is_list(other):
        return _either_list(one, other)
    options = tuple(
        option for each in (one, other) for option in (each.options if isinstance(each, OneOf) else (each,))
    )
    callable_ones = ProjectFunction | ClassValue | LibraryName
    fits = len(options) <= _MOST_OPTIONS and all(isinstance(each, callable_ones) for each in options)
    return OneOf(options) if fits else MISSING


def _either_list(one: tuple[Value, ...], other: tuple[Value, ...]) -> Value:
    """Return the items that two lists begin with, and that there may be more; MISSING if there are none."""
    count = 0
    while count < min(len(one), len(other)) and same(one[count], other[count]):
        count += 1
    return (*one[:count], Further("a condition decides what follows")) if count else MISSING


def entry_of(table: Record) -> Value:
    """Return what a dictionary has under a key that is not known: functions or classes, or MISSING."""
    options = tuple(table.items.values())
    callable_ones = ProjectFunction | ClassValue | LibraryName
    fits = 0 < len(options) <= _MOST_OPTIONS and all(isinstance(each, callable_ones) for each in options)
    return OneOf(options) if fits and table.role == "dict" and not table.rest else MISSING


def parent(path: str) -> str:
    """Return the folder of a path; that of `.`, where the program starts, is `..`."""
    folder = posixpath.dirname(path)
    outside = posixpath.normpath(path) in (".", "..") or posixpath.normpath(path).endswith("/..")
    return f"{posixpath.normpath(path)}/.." if outside else folder


def quoted(node: ast.AST) -> str:
    """Return the text of an expression, shortened if it is long; each is written out once."""
    text = getattr(node, "quoted_text", None)
    if not isinstance(text, str):
        try:
            line = " ".join(ast.unparse(node).split())
        except RecursionError:
            line = "an expression"
        text = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
        node.quoted_text = text  # type: ignore[attr-defined]
    return text
