"""Probes read facts off the machine. A module in this folder that defines `PROBE` is one.

A module named with a leading underscore is none: a program that a probe runs, or what one imports only
where it has to, for all others are imported at every start.

A probe never judges and never raises for what is wrong with the machine: what it could not read is a
reading with its reason. If it crashes all the same, `survey` turns its keys into Unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from envcheck.core.errors import EnvcheckError
from envcheck.core.facts import Inventory, Key, family
from envcheck.core.plugins import plugins
from envcheck.host.machine import Host


class ProbeRequest(NamedTuple):
    """What to examine: the interpreter or environment folder, and how.

    `python` is an interpreter or the folder of a virtual environment; `named_by` says where it came
    from (`--python`, `VIRTUAL_ENV`, …). With `static` nothing of the environment is run.
    `deadline_s` bounds each probe.
    """

    python: Path | None = None
    named_by: str = ""
    static: bool = False
    deadline_s: float = 10.0


Collect = Callable[[], Inventory]


class Probe(NamedTuple):
    """One way to read facts: the keys it may yield, and how.

    `begin` starts whatever is slow (a child process) and returns the function that collects it, so
    that all probes wait at the same time.
    """

    name: str
    yields: Mapping[str, Key]
    begin: Callable[[Host, ProbeRequest], Collect]


def every_probe() -> tuple[Probe, ...]:
    """All probes of this folder, by module name."""
    return plugins(__name__, __path__, "PROBE", Probe)


def survey(host: Host, request: ProbeRequest, probes: Iterable[Probe]) -> Inventory:
    """Run all probes side by side and merge what they read.

    Raises:
        EnvcheckError: the environment that was asked for cannot be examined at all.
    """
    begun = [(probe, _begin(probe, host, request)) for probe in probes]
    return Inventory.merged([_collect(probe, collect) for probe, collect in begun])


def _begin(probe: Probe, host: Host, request: ProbeRequest) -> Collect:
    try:
        return probe.begin(host, request)
    except EnvcheckError:
        raise
    except Exception as crash:  # noqa: BLE001 - a crashed probe is a reading, never a traceback
        lost = _crashed(probe, crash)
        return lambda: lost


def _collect(probe: Probe, collect: Collect) -> Inventory:
    try:
        return collect()
    except EnvcheckError:
        raise
    except Exception as crash:  # noqa: BLE001
        return _crashed(probe, crash)


def _crashed(probe: Probe, crash: Exception) -> Inventory:
    why = f"probe {probe.name} failed: {type(crash).__name__}: {crash}"
    return Inventory(unread={(family(key) if "*" in key else key): why for key in probe.yields})
