"""What a lock can be written as. A module here that defines `render(lock, addresses) -> str` is one.

`addresses` are sha256 → where that file lies; only a module that sets `WANTS_ADDRESSES` needs them. Every
format begins with the same introduction and then says what it is for; none prints what `refuse_leaks`
refuses.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, cast

from envcheck.core.errors import InputError
from envcheck.core.plugins import module_names
from envcheck.lock.model import Lock

NONE: Mapping[str, str] = MappingProxyType({})


class Render(Protocol):
    """Writes a lock; the same bytes for the same lock and addresses."""

    def __call__(self, lock: Lock, addresses: Mapping[str, str]) -> str:
        """The text. Raises ExamineError for what belongs to one machine, or a file without an address."""


class Format(Protocol):
    """A module of this folder."""

    render: Render
    WANTS_ADDRESSES: bool
    FILES: str  # the names a file of it may have, as a pattern
    WHY_FILES: str


def names() -> tuple[str, ...]:
    """Names of all formats."""
    return module_names(__path__)


def named(name: str) -> Format:
    """The format of that name.

    Raises:
        InputError: there is none.
    """
    if name not in names():
        raise InputError("--format", f"expected one of {', '.join(names())}, found {name!r}")
    return cast("Format", importlib.import_module(f"{__name__}.{name}"))


def marker(lock: Lock) -> str:
    """The environments the lock is for, as a PEP 508 marker without the Python version."""
    system, _, architecture = lock.platform.partition("-")
    return f"sys_platform == '{system}' and platform_machine == '{architecture}'"
