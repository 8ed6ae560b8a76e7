"""Values of expressions, as far as they are known."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.values import (
    ANY_CLASS,
    LONGEST_TEXT,
    MISSING,
    ClassValue,
    File,
    LibraryName,
    OneOf,
    PartialText,
    ProjectFunction,
    Record,
    Thing,
    Value,
    Variables,
    either,
    entry_of,
    has_further,
    is_known,
    is_list,
    is_too_large,
    quoted,
    same,
    text_of,
    truth,
)

_MOST_STEPS = 20_000  # expressions and statements that are followed in one program
_DEEPEST = 60  # expressions inside one another
_LONGEST_LOOP = 32  # items of a known list over which a comprehension is computed
_MOST_BITS = 256  # of a whole number that is computed with

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Value, Value], Value]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_BUILTINS = frozenset({
    "AssertionError", "AttributeError", "Exception", "FileNotFoundError", "ImportError", "IndexError",
    "KeyError", "KeyboardInterrupt", "NotImplementedError", "OSError", "RuntimeError", "SystemExit",
    "TypeError", "ValueError", "__import__", "abs", "all", "any", "bool", "bytes", "callable",
    "classmethod", "dict", "divmod", "enumerate", "eval", "exec", "filter", "float", "frozenset", "getattr",
    "globals", "hasattr", "hash", "id", "input", "int", "isinstance", "issubclass", "iter", "len", "list",
    "locals", "map", "max", "min", "next", "object", "open", "pow", "print", "property", "range", "repr",
    "reversed", "round", "set", "setattr", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type",
    "vars", "zip",
})  # fmt: skip


def is_huge(number: Value) -> bool:
    """Return whether a number is so large that computing with it could take long."""
    return isinstance(number, int) and number.bit_length() > _MOST_BITS


class ProgramTooLongError(Exception):
    """Program that is too long to be followed."""


def computed(node: ast.AST) -> Unknown:
    """Return Unknown with the reason that the program computes the expression."""
    return Unknown(f"{quoted(node)} is computed when the program runs")


class Expressions(ABC):
    """Evaluator of expressions; what a call does is left to subclasses."""

    def __init__(self) -> None:
        self.steps, self.most_steps = 0, _MOST_STEPS
        self.depth = 0
        self.conditions: list[str] = []  # undecided conditions around what is followed now
        self.names: set[str] = set()
        self.read_items: set[str] = set()  # names of the items of records that something reads

    @abstractmethod
    def call(self, node: ast.Call, scope: Variables) -> Value:
        """Return the result of a call."""

    @abstractmethod
    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return an attribute of a value."""

    @abstractmethod
    def function(self, node: ast.Lambda, scope: Variables) -> Value:
        """Return a lambda as a value."""

    @contextmanager
    def under(self, condition: str) -> Iterator[None]:
        """Follow what happens only if an undecided condition holds."""
        self.conditions.append(condition)
        try:
            yield
        finally:
            self.conditions.pop()

    def count(self) -> None:
        """Count a step.

        Raises:
            ProgramTooLongError: there are too many.
        """
        self.steps += 1
        if self.steps > self.most_steps:
            raise ProgramTooLongError

    def value(self, node: ast.expr | None, scope: Variables) -> Value:
        """Return the value of an expression; Unknown with a reason that quotes it if it is computed."""
        if node is None:
            return None
        self.count()
        read = _READERS.get(type(node))
        if read is None or self.depth > _DEEPEST:
            self._visit(node, scope)
            return computed(node)
        self.depth += 1
        try:
            found = read(self, node, scope)
        finally:
            self.depth -= 1
        return computed(node) if found is MISSING else found

    def _visit(self, node: ast.AST, scope: Variables) -> None:
        """Follow the calls inside an expression of another kind."""
        if self.depth > _DEEPEST:
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)

    def _constant(self, node: ast.Constant, scope: Variables) -> Value:
        del scope
        return node.value if is_known(node.value) else MISSING

    def _name(self, node: ast.Name, scope: Variables) -> Value:
        found = scope.find(node.id)
        if found is MISSING and node.id in _BUILTINS:
            return LibraryName(f"builtins.{node.id}")
        if found is MISSING and node.id[0].isupper():
            package = scope.find(ANY_CLASS)
            return LibraryName(f"{package.name}.{node.id}") if isinstance(package, LibraryName) else MISSING
        return found

    def _attribute(self, node: ast.Attribute, scope: Variables) -> Value:
        return self.attribute(self.value(node.value, scope), node.attr, node)

    def _unary(self, node: ast.UnaryOp, scope: Variables) -> Value:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            held = truth(value)
            return MISSING if held is None else not held
        negated = isinstance(node.op, ast.USub) and type(value) in (int, float)
        return -value if negated else MISSING

    def _choice(self, node: ast.IfExp, scope: Variables) -> Value:
        test = truth(self.value(node.test, scope))
        if test is not None:
            return self.value(node.body if test else node.orelse, scope)
        with self.under(quoted(node.test)):
            one = self.value(node.body, scope)
        with self.under(f"not {quoted(node.test)}"):
            other = self.value(node.orelse, scope)
        return either(one, other)

    def _comparison(self, node: ast.Compare, scope: Variables) -> Value:  # noqa: PLR0911 - one for each operator
        sides = [self.value(side, scope) for side in (node.left, *node.comparators)]
        if len(node.ops) != 1:
            return MISSING
        one, other = sides
        match node.ops[0]:
            case ast.Is() | ast.Eq() if other is None or one is None:
                held = _is_none(one, other)
                return MISSING if held is None else held
            case ast.IsNot() | ast.NotEq() if other is None or one is None:
                held = _is_none(one, other)
                return MISSING if held is None else not held
            case ast.In() | ast.NotIn():
                held = _contains(other, one)
                if isinstance(one, str) and held is not False:
                    self.names.add(one)
                return MISSING if held is None else held is isinstance(node.ops[0], ast.In)
            case ast.Is() | ast.IsNot() if is_known(one) and is_known(other):
                return (one is other) is isinstance(node.ops[0], ast.Is)
        function = _COMPARISONS.get(type(node.ops[0]))
        if function is None or not (is_known(one) and is_known(other)):
            return MISSING
        try:
            return bool(function(one, other))
        except TypeError:
            return MISSING

    def _either(self, node: ast.BoolOp, scope: Variables) -> Value:
        """Return the result of `and` or `or`; a certain object if only its truth is known."""
        decides = isinstance(node.op, ast.Or)
        undecided = 0
        decided = False
        last: Value = MISSING
        try:
            for part in node.values:
                last = self.value(part, scope)
                held = truth(last)
                if held is decides:
                    decided = True
                    break
                if held is None:
                    undecided += 1
                    self.conditions.append(quoted(part))
        finally:
            del self.conditions[len(self.conditions) - undecided :]
        if not undecided:
            return last
        if decided:
            return Thing("or", certain=True) if decides else False
        return MISSING

    def _binary(self, node: ast.BinOp, scope: Variables) -> Value:
        one, other = self.value(node.left, scope), self.value(node.right, scope)
        if isinstance(node.op, ast.Div) and isinstance(one, str) and isinstance(other, str):
            return f"{one}/{other}"  # of a Path
        if isinstance(one, Record) and isinstance(other, Record):
            return self._both(one, other) if isinstance(node.op, ast.BitOr) else MISSING
        if isinstance(node.op, ast.Add) and _makes_text(one, other):
            return text_of((one, other))
        return self._computed(node, one, other)

    def _both(self, one: Record, other: Record) -> Record:
        """Return the dictionary that `|` makes of two."""
        both = Record(dict(one.items), one.role, rest=one.rest, born=len(self.conditions))
        self.merge(both, other)
        return both

    def _computed(self, node: ast.BinOp, one: Value, other: Value) -> Value:
        """Return the result of an operator on numbers, texts or lists, or MISSING."""
        function = _ARITHMETIC.get(type(node.op))
        numbers = type(one) in (int, float) and type(other) in (int, float)
        texts = (
            isinstance(node.op, ast.Add)
            and type(one) is type(other)
            and (isinstance(one, str) or is_list(one))
        )
        if function is None or not (numbers or texts):
            return MISSING
        too_long = len(one) + len(other) > LONGEST_TEXT if texts else is_huge(one) or is_huge(other)
        if too_long:
            return MISSING
        try:
            return function(one, other)
        except (ZeroDivisionError, OverflowError):
            return MISSING

    def _items(self, node: ast.List | ast.Tuple | ast.Set, scope: Variables) -> Value:
        found: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.value(item.value, scope)
                found += inner if is_list(inner) else (computed(item.value),)
            else:
                found.append(self.value(item, scope))
        items = tuple(found)
        return MISSING if is_too_large(items) else items

    def _dict(self, node: ast.Dict, scope: Variables) -> Value:
        record = Record({}, born=len(self.conditions))
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.value(part, scope)
            if key is None:
                self.merge(record, value)
                continue
            name = self.value(key, scope)
            if isinstance(name, str):
                record.items[name] = value
            elif not is_known(name):
                record.rest = "a key of the dictionary is computed"
        return Record({}, rest="it is too large", born=record.born) if is_too_large(record) else record

    def merge(self, record: Record, value: Value) -> None:
        """Add the items of a dictionary to a record."""
        if isinstance(value, Record):
            record.items.update(value.items)
            record.rest = record.rest or value.rest
        elif value is not None:
            record.rest = record.rest or "it has the items of a dictionary that is computed"

    def _subscript(self, node: ast.Subscript, scope: Variables) -> Value:
        owner = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            return self._part_of(owner, node.slice, scope)
        key = self.value(node.slice, scope)
        if isinstance(owner, Record) and isinstance(key, str):
            self.read_items.add(key)
            found = owner.get(key)
            if truth(found) is not False:
                self.names.add(key)
            return found
        if isinstance(owner, Record) and not is_known(key):
            return entry_of(owner)
        if is_list(owner) and type(key) is int and -len(owner) <= key < len(owner):
            before = owner[: key + 1] if key >= 0 else owner[key:]
            return MISSING if has_further(before) else owner[key]
        if isinstance(key, str) and not isinstance(owner, Record):
            self.names.add(key)
        return self.item_of_library(owner, key) if isinstance(owner, LibraryName) else MISSING

    def item_of_library(self, owner: LibraryName, key: Value) -> Value:
        """Return an item of a library's object, such as a variable of the environment, or MISSING."""
        del owner, key
        return MISSING

    def _part_of(self, owner: Value, part: ast.Slice, scope: Variables) -> Value:
        """Return a part of a list or text between known positions."""
        lower, upper, step = (self.value(each, scope) for each in (part.lower, part.upper, part.step))
        known = all(each is None or type(each) is int for each in (lower, upper)) and step is None
        if not known or not (isinstance(owner, str) or is_list(owner)):
            return MISSING
        if is_list(owner) and has_further(owner):
            start = lower or 0
            return (
                owner[start:] if upper is None and start >= 0 and not has_further(owner[:start]) else MISSING
            )
        return owner[lower:upper]

    def _text(self, node: ast.JoinedStr, scope: Variables) -> Value:
        parts: list[Value] = []
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            plain = not isinstance(part, ast.FormattedValue) or part.format_spec is None
            parts.append(value if plain else computed(part))
        return text_of(parts)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Variables) -> Value:
        first = node.generators[0]
        items = self.value(first.iter, scope)
        simple = len(node.generators) == 1 and is_list(items) and len(items) <= _LONGEST_LOOP
        found: list[Value] = []
        complete = simple
        for item in items if simple else (computed(first.target),):
            inner = Variables({}, scope)
            self.bind(first.target, item, inner)
            for other in node.generators[1:]:
                self.value(other.iter, inner)
                self.bind(other.target, computed(other.target), inner)
            tests = [truth(self.value(test, inner)) for each in node.generators for test in each.ifs]
            if None in tests:
                complete = False
            if False not in tests:
                found.append(self.value(node.elt, inner))
        return tuple(found) if complete else MISSING

    def _dictionary(self, node: ast.DictComp, scope: Variables) -> Value:
        first = node.generators[0]
        items = self.value(first.iter, scope)
        if len(node.generators) == 1 and is_list(items) and len(items) <= _LONGEST_LOOP:
            return self._filtered(node, first, items, scope)
        inner = Variables({}, scope)
        for each in node.generators:
            self.value(each.iter, inner)
            self.bind(each.target, computed(each.target), inner)
        self.value(node.key, inner)
        self.value(node.value, inner)
        return Record({}, rest="the dictionary is computed", born=len(self.conditions))

    def _filtered(
        self, node: ast.DictComp, each: ast.comprehension, items: tuple[Value, ...], scope: Variables
    ) -> Value:
        """Return a dictionary made of known items; a condition that is not decided leaves none out.

        Such a condition asks which names another release of a class takes.
        """
        record = Record({}, born=len(self.conditions))
        for item in items:
            inner = Variables({}, scope)
            self.bind(each.target, item, inner)
            kept = all(truth(self.value(test, inner)) is not False for test in each.ifs)
            key, value = self.value(node.key, inner), self.value(node.value, inner)
            if not isinstance(key, str):
                record.rest = "a key of the dictionary is computed"
            elif kept:
                record.items[key] = value
        return record

    def _lambda(self, node: ast.Lambda, scope: Variables) -> Value:
        return self.function(node, scope)

    def _call(self, node: ast.Call, scope: Variables) -> Value:
        return self.call(node, scope)

    def _assigned(self, node: ast.NamedExpr, scope: Variables) -> Value:
        value = self.value(node.value, scope)
        self.bind(node.target, value, scope)
        return value

    def _awaited(self, node: ast.Await, scope: Variables) -> Value:
        return self.value(node.value, scope)

    @abstractmethod
    def bind(self, target: ast.expr, value: Value, scope: Variables) -> None:
        """Give a value to the target of an assignment."""


_READERS: Mapping[type[ast.expr], Callable[[Expressions, Value, Variables], Value]] = {
    ast.Constant: Expressions._constant,  # noqa: SLF001 - the table of its own methods
    ast.Name: Expressions._name,  # noqa: SLF001
    ast.Attribute: Expressions._attribute,  # noqa: SLF001
    ast.UnaryOp: Expressions._unary,  # noqa: SLF001
    ast.BoolOp: Expressions._either,  # noqa: SLF001
    ast.IfExp: Expressions._choice,  # noqa: SLF001
    ast.Compare: Expressions._comparison,  # noqa: SLF001
    ast.BinOp: Expressions._binary,  # noqa: SLF001
    ast.List: Expressions._items,  # noqa: SLF001
    ast.Tuple: Expressions._items,  # noqa: SLF001
    ast.Set: Expressions._items,  # noqa: SLF001
    ast.Dict: Expressions._dict,  # noqa: SLF001
    ast.Subscript: Expressions._subscript,  # noqa: SLF001
    ast.JoinedStr: Expressions._text,  # noqa: SLF001
    ast.ListComp: Expressions._comprehension,  # noqa: SLF001
    ast.SetComp: Expressions._comprehension,  # noqa: SLF001
    ast.GeneratorExp: Expressions._comprehension,  # noqa: SLF001
    ast.DictComp: Expressions._dictionary,  # noqa: SLF001
    ast.Lambda: Expressions._lambda,  # noqa: SLF001
    ast.Call: Expressions._call,  # noqa: SLF001
    ast.NamedExpr: Expressions._assigned,  # noqa: SLF001
    ast.Await: Expressions._awaited,  # noqa: SLF001
}


def _makes_text(one: Value, other: Value) -> bool:
    """Return whether `+` makes a text of two values, of which at least one is not known as a whole."""
    kinds = (str, PartialText, Unknown)
    either_text = isinstance(one, str | PartialText) or isinstance(other, str | PartialText)
    whole = isinstance(one, str) and isinstance(other, str)
    return either_text and not whole and isinstance(one, kinds) and isinstance(other, kinds)


def _is_none(one: Value, other: Value) -> bool | None:
    """Return whether the one of two values that is not None literally is None; None if that is not known."""
    value = one if other is None else other
    if is_known(value):
        return value is None
    objects = Record | ProjectFunction | ClassValue | File | LibraryName | OneOf | PartialText
    return (
        False
        if isinstance(value, objects) or is_list(value) or (isinstance(value, Thing) and value.certain)
        else None
    )


def _contains(items: Value, item: Value) -> bool | None:
    """Return whether an item is in a dictionary, list or text; None if that is not known."""
    if isinstance(items, Record) and isinstance(item, str):
        return True if item in items.items else None if items.rest else False
    if not is_known(item) or not (is_list(items) or isinstance(items, str)):
        return None
    if isinstance(items, str):
        return item in items if isinstance(item, str) else None
    if any(is_known(each) and same(each, item) for each in items):
        return True
    return False if all(map(is_known, items)) else None
