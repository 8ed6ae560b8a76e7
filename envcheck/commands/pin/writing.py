"""Put chosen pins together as a lock, and write a lock in a format."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from envcheck import __version__
from envcheck.commands.pin.drivers import driver_window
from envcheck.commands.pin.target import LockTarget, package_facts
from envcheck.core.facts import Value
from envcheck.core.rules import Matrix, Target
from envcheck.host.machine import Host
from envcheck.lock import formats
from envcheck.lock import model as lock
from envcheck.rules import derive

ADDRESSES_S = 120.0
"""Seconds to read the index pages of all pinned packages, for a format that holds addresses."""


def build_lock(
    goal: LockTarget, pins: Sequence[lock.Pin], build: tuple[str, ...], changed: Mapping[str, Value]
) -> lock.Lock:
    """Return the lock of these pins, with everything that was assumed when they were chosen.

    `build` names the packages that exist as source only, `changed` the training facts that the search
    chose differently from the target.
    """
    needs, driver_notes = _needs(goal, pins)
    return lock.Lock(
        target=goal.target.name,
        python=goal.python,
        platform=goal.platform,
        pins=tuple(pins),
        glibc=goal.glibc,
        needs=tuple(needs),
        train=tuple((key, _text(value)) for key, value in {**goal.target.train, **changed}.items()),
        build=tuple(name for name in build if any(pin.name == name for pin in pins)),
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        maker=__version__,
        matrix=goal.matrix.digest,
        notes=(*_notes(goal, pins, changed), *driver_notes),
        proof=how_tried(goal.target, goal.matrix, pins),
    )


def once_installed(target: str) -> str:
    """Return the command that tests a lock which nobody has tested, as the end of a sentence."""
    return f"once installed: envcheck selftest --target {target} --level 3 --python ENV"


def how_tried(target: Target, known: Matrix, pins: Sequence[lock.Pin]) -> str:
    """Return what was tested of a lock that was never installed: at most its stack was measured."""
    test = once_installed(target.name)
    versions = {pin.name: pin.version for pin in pins}
    dates = [
        cell.date
        for cell in known.cells
        if cell.target == target.name
        and cell.outcome == "ok"
        and all(versions.get(name) == version for name, version in cell.pkg.items())
    ]
    if dates:
        together = f"{', '.join(target.packages)} trained together on {max(dates)}"
        return f"{together}, but never with the rest of this lock; {test}"
    return f"never run together: resolved and judged only; {test}"


def _needs(goal: LockTarget, pins: Sequence[lock.Pin]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return the driver and the GPU architectures that the lock relies on, and notes on the driver."""
    if goal.no_gpu:
        return [], []
    packages = package_facts({pin.name: pin.version for pin in pins})
    derived = derive.derive(goal.machine.with_facts(packages), goal.matrix)
    floor, architectures = derived.known("cuda.minimum_driver"), derived.known("build.torch.architectures")
    needs: list[tuple[str, str, str]] = []
    notes: list[str] = []
    if isinstance(floor, str):
        needed, notes = (floor, []) if goal.driver_known else driver_window(goal, floor)
        needs.append(("driver.version", ">=", needed))
    if isinstance(architectures, tuple) and architectures:
        needs.append(("gpu.architectures", "=", ",".join(architectures)))
    return needs, notes


def _notes(goal: LockTarget, pins: Sequence[lock.Pin], changed: Mapping[str, Value]) -> Iterator[str]:
    for key, value in changed.items():
        yield f"{key} = {_text(value)} was chosen with these versions: train with it, or make another lock"
    asked_for = {f"{each.package}{each.specifier}" for each in goal.requirements if each.wanted}
    if asked_for:
        yield f"requested in addition to the target: {', '.join(sorted({*asked_for, *goal.extras}))}"
    if goal.until:
        yield f"nothing uploaded after {goal.until}"
    for pin in pins:
        if pin.url:
            yield f"{pin.name} {pin.version} comes from the address in its line, not from the default index"


def _text(value: Value) -> str:
    return str(value).lower()


def render(
    made: lock.Lock,
    format_name: str,
    host: Host,
    *,
    own_index: bool,
    requested: tuple[str, ...] = (),
    server: formats.RequestedLock | None = None,
) -> str:
    """Return the lock's text in this format; one that holds addresses reads them from the index.

    `own_index` allows addresses on the user's own index. `requested` and `server` are as in a format's
    `Context`.

    Raises:
        ExamineError: the index cannot be read, or the lock holds text that must not leave this machine.
    """
    chosen = formats.named(format_name)
    context = formats.Context(requested=requested, server=server)
    if not chosen.WANTS_ADDRESSES:
        return chosen.render(made, context)
    from envcheck.resolver_backends.index.reader import file_addresses

    hashes = {pin.name: [file.sha256 for file in pin.artifacts] for pin in made.pins if not pin.url}
    addresses = file_addresses(host, hashes, ADDRESSES_S, own=own_index)
    return chosen.render(made, context._replace(addresses=addresses))
