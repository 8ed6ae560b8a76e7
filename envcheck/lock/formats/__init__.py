"""The formats a lock can be written in: each module here that defines `render(lock, addresses) -> str`.

`addresses` maps the sha256 of a file to its address; only a module that sets `WANTS_ADDRESSES` needs it.
Every format starts with the same introduction and then says what the file is for. Every format checks its
text with `refuse_leaks`.

May import lock and core. A format must not choose versions or read an index.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, cast

from envcheck.core.errors import InputError
from envcheck.core.plugins import module_names
from envcheck.core.records import NamedTuple
from envcheck.lock.model import Lock

_NONE: Mapping[str, str] = MappingProxyType({})


AS_REQUIREMENTS = "the same `envcheck pin` command, with `-o requirements.txt` instead of --format"
"""How to get the file that a format installs from beside its own."""


class RequestedLock(NamedTuple):
    """A lock, and the requirements that it answers, without versions (`torch`, `trl[vllm]`)."""

    lock: Lock
    requested: tuple[str, ...]


class Context(NamedTuple):
    """Input of a format besides the lock.

    `addresses` maps the sha256 of a file to its address; only formats that set `WANTS_ADDRESSES` need it.
    `requested` are the requirements that the lock answers, without versions, and `server` is the lock of the
    second environment of the target, if it has one; only formats that set `WANTS_GROUPS` need them.
    """

    addresses: Mapping[str, str] = _NONE
    requested: tuple[str, ...] = ()
    server: RequestedLock | None = None


EMPTY = Context()


class Render(Protocol):
    """A function that writes a lock; the same lock and context always give the same bytes."""

    def __call__(self, lock: Lock, context: Context) -> str:
        """Return the text.

        Raises:
            ExamineError: the text reveals something of this machine, or a file has no address.
        """


class Format(Protocol):
    """A module of this folder."""

    render: Render
    WANTS_ADDRESSES: bool
    WANTS_GROUPS: bool
    FILES: str  # a pattern for the names that a file in this format may have
    WHY_FILES: str  # the reason, for the message that refuses another name


def names() -> tuple[str, ...]:
    """Return the names of all formats."""
    return module_names(__path__)


def named(name: str) -> Format:
    """Return the format of that name.

    Raises:
        InputError: no format has this name.
    """
    if name not in names():
        raise InputError("--format", f"expected one of {', '.join(names())}, found {name!r}")
    return cast("Format", importlib.import_module(f"{__name__}.{name}"))


def marker(lock: Lock) -> str:
    """Return the environments the lock is for, as a PEP 508 marker without the Python version."""
    system, _, architecture = lock.platform.partition("-")
    return f"sys_platform == '{system}' and platform_machine == '{architecture}'"
