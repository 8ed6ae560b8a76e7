"""`NamedTuple` for the classes on the start-up path: that of `typing`, made without compiling anything.

`typing` compiles each annotation that is a string, to find out whether it could be a type, and `collections`
compiles a constructor for each class. mypy checks annotations better, and one compiled constructor serves all
classes with as many fields. A start makes about 140 classes, each in a third of the time.

A module that uses it postpones its annotations (`from __future__ import annotations`): from Python 3.14 on, a
class body has no others.
"""

from collections import namedtuple
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - exported
else:
    _FieldGetter = type(vars(namedtuple("_One", "field"))["field"])  # noqa: PYI024 - its getter, written in C

    class _NamedFields(tuple):
        """Hold what all named tuples share; the names and types are those of `typing.NamedTuple`."""

        __slots__ = ()

        @classmethod
        def _make(cls, values: "Iterable[Any]") -> "_NamedFields":
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changed: Any) -> "_NamedFields":
            made = self._make(map(changed.pop, self._fields, self))
            if changed:
                raise ValueError(f"Got unexpected field names: {list(changed)!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    @cache
    def _constructor(size: int) -> "CodeType":
        """Return the code of a `__new__` for a number of fields, whose names are yet to be set."""
        names = ", ".join(f"field{index}" for index in range(size))
        return eval(f"lambda cls, {names}: new(cls, ({names}{',' * (size == 1)}))").__code__  # noqa: S307

    class _NamedTupleType(type):
        """Makes a named tuple of a class whose only base is `NamedTuple`, as `typing.NamedTupleMeta` does."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, namespace)  # `NamedTuple` itself
            if len(bases) > 1:
                raise TypeError(f"{name}: expected no other base than NamedTuple")
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace[field] for field in fields if field in namespace}
            if fields[len(fields) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name}: a field without a default follows one with a default")
            code = _constructor(len(fields)).replace(
                co_varnames=("cls", *fields), co_qualname=f"{name}.__new__"
            )
            namespace.update(
                __slots__=(),
                __match_args__=fields,
                __new__=FunctionType(code, {"new": tuple.__new__}, None, tuple(defaults.values())),
                _fields=fields,
                _field_defaults=defaults,
                **{field: _FieldGetter(index, field) for index, field in enumerate(fields)},
            )
            return type(name, (_NamedFields,), namespace)

    class NamedTuple(metaclass=_NamedTupleType):
        """Base of a class that is a tuple with names: its fields, with their types, are its annotations."""
