"""Classes of a followed program: their definitions, their objects, and the fields of dataclasses."""

from __future__ import annotations

import ast

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.calls import Calls
from envcheck.training_config.programs.names import names_of
from envcheck.training_config.programs.recorded_calls import Arguments, KeywordGiven
from envcheck.training_config.programs.references import FieldDefault
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    LibraryName,
    ProjectFunction,
    Record,
    Value,
    Variables,
    quoted,
)
from envcheck.training_config.programs.variables import CallFrame


class Classes(Calls):
    """Evaluator that makes classes and their objects; statements are left to subclasses."""

    def _class(self, node: ast.ClassDef, scope: Variables) -> ClassValue:
        bases = tuple(self.value(base, scope) for base in node.bases)
        inner = Variables({}, scope)
        self._frames.append(CallFrame(None))
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

    def instantiate(self, cls: ClassValue, given: Arguments, node: ast.Call) -> Value:
        """Return an object of a class of the project."""
        self.followed.add(cls.node)
        self.names.add(cls.name)
        lineage = cls.lineage()
        record = Record({}, "object", cls, born=len(self.conditions))
        own = given
        library = next((each for each in lineage if isinstance(each, LibraryName)), None)
        if library is not None:
            record.rest = f"{cls.name} inherits it"
        start = self._in_class(cls, "__init__", record)
        if isinstance(start, ProjectFunction):
            own = _named(start, given, node)
            self.call_function(start, given)
            given = Arguments((), (), given.rest)
        elif self.is_dataclass(cls):
            fields = self.fields(cls)
            record.items.update(dict.fromkeys(fields, Unknown(given.rest)) if given.rest else fields)
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
            self.calls[-1] = self.calls[-1]._replace(own=own)
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
                    self.names |= names_of(member.node)

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

    def _class_of_field(self, cls: ClassValue, name: str) -> ClassValue | None:
        """Return the class of the project that annotates a field, or None."""
        for each in cls.lineage():
            for node in each.node.body if isinstance(each, ClassValue) else ():
                if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
                    for part in ast.walk(node.annotation):
                        found = each.scope.find(part.id) if isinstance(part, ast.Name) else MISSING
                        if isinstance(found := self.resolved(found), ClassValue):
                            return found
        return None

    def _field_default(self, value: Value) -> Value:
        return value.default if isinstance(value, FieldDefault) else value


def _named(start: ProjectFunction, given: Arguments, node: ast.Call) -> Arguments:
    """Return the arguments of a class by the names that its `__init__` has for them."""
    names = [each.arg for each in start.node.args.args][1:]
    by_position = (
        KeywordGiven(name, value, node) for name, value in zip(names, given.positional, strict=False)
    )
    return Arguments((), (*by_position, *given.keywords), given.rest)
