"""Engines complete exact pins to a closure with hashes. A module in this folder that defines `ENGINE` is one.

An engine resolves; it decides nothing about the stack, whose versions it is given. It sees one index,
runs under a deadline, and what it says when it fails is reduced to one line without secrets.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from envcheck.host import Host
from envcheck.lock import Artifact, Pin
from envcheck.model import ExamineError, InputError
from envcheck.wheels import usable_files, usable_tags

INSTALL_HINT = "pip install 'envcheck[resolve]'"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to complete: exact `pins`, `also` further requirements (`setuptools`, `rich>=13`), and for where.

    `constraints` (`numpy<2`) bind a package only if something else brings it.

    `python` is `3.11`, `platform` `linux-x86_64`, `glibc` the oldest C library to serve. `build` names the
    packages that exist as source only: no other package's code is run. `local` are the local version
    labels that may be in the result.
    """

    pins: Mapping[str, str]
    also: tuple[str, ...] = ()
    python: str = "3.11"
    platform: str = "linux-x86_64"
    glibc: str = "2.28"
    build: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    deadline_s: float = 300.0

    def requirements(self) -> str:
        """The requirements as text, one a line, in an order that does not depend on the caller."""
        exact = sorted(f"{name}=={version}" for name, version in self.pins.items())
        return "".join(f"{line}\n" for line in (*exact, *sorted(self.also)))

    def bounds(self) -> str:
        """The constraints as text, one a line, in an order that does not depend on the caller."""
        return "".join(f"{line}\n" for line in sorted(self.constraints))


@dataclass(frozen=True, slots=True)
class Engine:
    """One resolver: `available` says whether it is installed, `complete` asks it.

    `complete` raises ExamineError (no network, it failed, it cannot serve this Python), NoSolutionError
    (nothing satisfies the pins, with the constraints that clash), InputError (not a platform or a version).
    `rank` orders the engines: the lowest that is available is used unless another is named.
    """

    name: str
    rank: int
    available: Callable[[Host], bool]
    complete: Callable[[Host, Wanted], tuple[Pin, ...]]


def every_engine() -> tuple[Engine, ...]:
    """All engines of this folder, best first."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        engine = getattr(importlib.import_module(f"{__name__}.{module.name}"), "ENGINE", None)
        if isinstance(engine, Engine):
            found.append(engine)
    return tuple(sorted(found, key=lambda engine: engine.rank))


def choose(host: Host, engines: Iterable[Engine], name: str = "") -> Engine:
    """The engine of that name, or the best that is installed.

    Raises:
        InputError: no engine has this name.
        ExamineError: it is, or they all are, not installed.
    """
    engines = tuple(engines)
    named = [engine for engine in engines if name in ("", engine.name)]
    if not named:
        raise InputError(
            "engine", f"expected one of {', '.join(one.name for one in engines)}, found {name!r}"
        )
    for engine in named:
        if engine.available(host):
            return engine
    missing = " or ".join(engine.name for engine in named)
    raise ExamineError(f"{missing} is not installed; {INSTALL_HINT}")


def checked_pins(wanted: Wanted, found: Mapping[str, tuple[str, tuple[Artifact, ...]]]) -> tuple[Pin, ...]:
    """An engine's answer, held against what was asked: versions as pinned, and files that can be used.

    `found` is name → (version, files of that release). Every engine ends here, so that the same
    versions give the same lock whoever chose them.

    Raises:
        ExamineError: another version than the pinned one, a local version nobody asked for, or a package
            without a usable file; says which.
    """
    tags = usable_tags(wanted.python, wanted.platform, wanted.glibc)
    pins = []
    for name, (version, files) in sorted(found.items()):
        parsed = Version(version)
        asked = wanted.pins.get(name)
        if asked is not None and parsed != Version(asked):
            raise ExamineError(f"{name}: asked for {asked}, the engine chose {version}")
        if parsed.local and parsed.local not in wanted.local:
            raise ExamineError(f"{name} {version}: its local version +{parsed.local} was not asked for")
        usable = usable_files(name, version, files, tags, wanted.build)
        if not usable:
            what = "source distribution" if name in wanted.build else "wheel"
            raise ExamineError(
                f"{name} {version}: the index has no {what} with a sha256 for "
                f"Python {wanted.python} on {wanted.platform}, glibc {wanted.glibc}"
            )
        pins.append(Pin(name, version, usable))
    if missing := sorted(set(wanted.pins) - set(found)):
        raise ExamineError(f"the engine's answer lacks {', '.join(missing)}")
    return tuple(pins)
