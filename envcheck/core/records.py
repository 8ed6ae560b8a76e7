"""`NamedTuple` for the classes on the start-up path: that of `typing`, without the check of annotations.

`typing` compiles each annotation that is a string, to find out whether it could be a type. mypy does that
better, and without it a class is defined in half the time. A start defines more than fifty.

A module that uses it postpones its annotations (`from __future__ import annotations`): from Python 3.14 on, a
class body has no others.
"""

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - exported
else:

    class _NamedTupleType(type):
        """Makes a named tuple of a class whose only base is `NamedTuple`, as `typing.NamedTupleMeta` does."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, namespace)  # `NamedTuple` itself
            if len(bases) > 1:
                raise TypeError(f"{name}: expected no other base than NamedTuple")
            fields = namespace.get("__annotations__", {})
            defaults = [namespace[field] for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])  # noqa: PYI024
            made.__annotations__ = fields
            for key, value in namespace.items():
                if key not in fields and key not in ("__module__", "__annotations__"):
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_NamedTupleType):
        """Base of a class that is a tuple with names: its fields, with their types, are its annotations."""
