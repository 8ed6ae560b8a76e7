"""Engines complete exact pins to a closure with hashes. A module in this folder that defines `ENGINE` is one.

An engine resolves; it decides nothing about the stack, whose versions it is given. It sees one index,
runs under a deadline, and what it says when it fails is reduced to one line without secrets.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from envcheck.core.errors import ExamineError, InputError, NoSolutionError
from envcheck.core.plugins import plugins
from envcheck.host.machine import Host
from envcheck.lock.model import Artifact, Pin
from envcheck.lock.wheels import usable_files, usable_tags

INSTALL_HINT = "pip install 'envcheck[resolve]'"


class ExtraWheel(NamedTuple):
    """A wheel that the index is not asked for: its pin, which holds its address, and its METADATA."""

    pin: Pin
    metadata: bytes


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What to complete: exact `pins`, `also` further requirements (`setuptools`, `rich>=13`), and for where.

    `constraints` (`numpy<2`) bind a package only if something else brings it. `until` (an ISO date) leaves
    out what was uploaded after that day, in UTC.

    `python` is `3.11`, `platform` `linux-x86_64`, `glibc` the oldest C library to serve. `build` names the
    packages that exist as source only: no other package's code is run. `local` are the local version
    labels that may be in the result. `given` are wheels of another index; their versions are fixed.
    """

    pins: Mapping[str, str]
    also: tuple[str, ...] = ()
    python: str = "3.11"
    platform: str = "linux-x86_64"
    glibc: str = "2.28"
    build: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    until: str = ""
    given: tuple[ExtraWheel, ...] = ()
    deadline_s: float = 300.0

    def requirements(self) -> str:
        """The requirements as text, one a line, in an order that does not depend on the caller.

        What is given is not among them: `stand_ins` tells an engine of it.
        """
        exact = sorted(f"{name}=={version}" for name, version in self.pins.items() if not self.gives(name))
        return "".join(f"{line}\n" for line in (*exact, *sorted(self.also)))

    def bounds(self) -> str:
        """The constraints as text, one a line, in an order that does not depend on the caller."""
        return "".join(f"{line}\n" for line in sorted(self.constraints))

    def gives(self, name: str) -> bool:
        """Whether a package is given."""
        return any(each.pin.name == name for each in self.given)

    @property
    def before(self) -> str:
        """The first moment whose uploads are left out, as engines and PEP 700 write it; empty for none."""
        if not self.until:
            return ""
        next_day = dt.date.fromisoformat(self.until) + dt.timedelta(days=1)
        return f"{next_day.isoformat()}T00:00:00Z"


class YankedError(NoSolutionError):
    """The index has withdrawn a release that would have been pinned; another one may do."""

    def __init__(self, name: str, version: str, reason: str) -> None:
        """Say which, and the reason its maintainers gave."""
        why = f" ({reason})" if reason else ""
        super().__init__(f"{name} {version} was yanked from the index{why}")
        self.name, self.version = name, version


@dataclass(frozen=True, slots=True)
class Backend:
    """One resolver: `available` says whether it is installed, `complete` asks it.

    `complete` raises ExamineError (no network, it failed, it cannot serve this Python), NoSolutionError
    (nothing satisfies the pins, with the constraints that clash), InputError (not a platform or a version).
    `rank` orders the engines: the lowest that is available is used unless another is named.
    """

    name: str
    rank: int
    available: Callable[[Host], bool]
    complete: Callable[[Host, CompletionRequest], tuple[Pin, ...]]


def every_backend() -> tuple[Backend, ...]:
    """All engines of this folder, best first."""
    return tuple(sorted(plugins(__name__, __path__, "ENGINE", Backend), key=lambda engine: engine.rank))


def backends_named(engines: Iterable[Backend], name: str) -> tuple[Backend, ...]:
    """The engines of that name, all of them if it is empty.

    Raises:
        InputError: no engine has this name.
    """
    engines = tuple(engines)
    found = tuple(engine for engine in engines if name in ("", BOTH, engine.name))
    if not found:
        known = ", ".join((*(one.name for one in engines), BOTH))
        raise InputError("--engine", f"expected one of {known}, found {name!r}")
    return found


def choose_backend(host: Host, engines: Iterable[Backend], name: str = "") -> Backend:
    """The engine of that name, or the best that is installed.

    Raises:
        InputError: no engine has this name.
        ExamineError: it is, or they all are, not installed.
    """
    named = backends_named(engines, name)
    for engine in named:
        if engine.available(host):
            return engine
    missing = " or ".join(engine.name for engine in named)
    raise ExamineError(f"{missing} is not installed; {INSTALL_HINT}")


BOTH = "both"
"""The name that asks every engine, to compare them."""


@dataclass(frozen=True, slots=True)
class BackendSelection:
    """The engine whose answer counts, and others whose answers are held against it."""

    engine: Backend
    others: tuple[Backend, ...] = ()

    def complete(self, host: Host, wanted: CompletionRequest, remarks: list[str]) -> tuple[Pin, ...]:
        """As `Engine.complete`; what the others answer differently is added to `remarks`."""
        pins = self.engine.complete(host, wanted)
        for other in self.others:
            try:
                found = other.complete(host, wanted)
            except (ExamineError, NoSolutionError) as error:
                remarks.append(f"{other.name} gives no answer: {error}")
                continue
            told = differences((self.engine.name, pins), (other.name, found))
            remarks += told or [f"{self.engine.name} and {other.name} agree on all {len(pins)} packages"]
        return pins


def select_backends(host: Host, engines: Iterable[Backend], name: str = "") -> BackendSelection:
    """The engine of that name, the best that is installed, or all of them for `both`.

    Raises:
        InputError, ExamineError: as `choose_backend`; for `both`, one that is not installed.
    """
    engines = tuple(engines)
    if name != BOTH:
        return BackendSelection(choose_backend(host, engines, name))
    first, *others = (choose_backend(host, engines, each.name) for each in engines)
    return BackendSelection(first, tuple(others))


def differences(one: tuple[str, Iterable[Pin]], other: tuple[str, Iterable[Pin]]) -> list[str]:
    """Where two engines' answers differ, a line for each package; none if nowhere."""
    (one_name, one_pins), (other_name, other_pins) = one, other
    here, there = ({pin.name: pin for pin in pins} for pins in (one_pins, other_pins))
    told = []
    for name in sorted(here.keys() | there.keys()):
        mine, theirs = here.get(name), there.get(name)
        if mine == theirs:
            continue
        if mine and theirs and mine.version == theirs.version:
            counts = len(mine.artifacts), len(theirs.artifacts)
            told.append(
                f"{name} {mine.version}: not the same files: {one_name} {counts[0]}, {other_name} {counts[1]}"
            )
        else:
            chosen = [each.version if each else "nothing" for each in (mine, theirs)]
            told.append(f"{name}: {one_name} chooses {chosen[0]}, {other_name} {chosen[1]}")
    return told


def stand_ins(wanted: CompletionRequest, folder: Path) -> str:
    """Requirements for what is given: in the folder, wheels that hold nothing but the real one's metadata.

    So an engine learns what it requires, reads no second index, and fetches none of its hundreds of MiB.
    """
    import zipfile

    lines = []
    for each in wanted.given:
        stem = f"{each.pin.name.replace('-', '_')}-{each.pin.version}"
        path = folder / f"{stem}-py3-none-any.whl"  # that the real one fits was looked at before
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{stem}.dist-info/METADATA", each.metadata)
            archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{stem}.dist-info/RECORD", "")
        lines.append(f"{each.pin.name} @ {path.as_uri()}\n")
    return "".join(lines)


def checked_pins(
    wanted: CompletionRequest,
    found: Mapping[str, tuple[str, tuple[Artifact, ...]]],
    yanked: Mapping[str, str],
) -> tuple[Pin, ...]:
    """An engine's answer, held against what was asked: versions as pinned, and files that can be used.

    `found` is name → (version, files of that release), `yanked` name → why it was withdrawn. Every engine
    ends here, so that the same versions give the same lock whoever chose them.

    Raises:
        ExamineError: another version than the pinned one, a local version nobody asked for, or a package
            without a usable file; says which.
        YankedError: a release that its maintainers have withdrawn.
    """
    tags = usable_tags(wanted.python, wanted.platform, wanted.glibc)
    pins = [each.pin for each in wanted.given]
    for name, (version, files) in sorted(found.items()):
        if wanted.gives(name):
            continue
        parsed = Version(version)
        asked = wanted.pins.get(name)
        if asked is not None and parsed != Version(asked):
            raise ExamineError(f"{name}: asked for {asked}, the engine chose {version}")
        if name in yanked:
            raise YankedError(name, version, yanked[name])
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
    if missing := sorted(set(wanted.pins) - set(found) - {each.pin.name for each in wanted.given}):
        raise ExamineError(f"the engine's answer lacks {', '.join(missing)}")
    return tuple(sorted(pins, key=lambda pin: pin.name))
