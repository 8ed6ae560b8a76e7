"""Probes that read facts off the machine; every module of this package that defines `PROBE` is one.

All modules are imported at every start, except those whose name begins with an underscore: programs that a
probe runs, and modules that a probe imports only where it needs them.

A probe never judges, and never raises for a fault of the machine: what it cannot read is an Unknown with its
reason. If a probe crashes nevertheless, `survey` makes all its keys Unknown.

This package may import `core`, `host` and `target_scripts`. It must not know rules, policies or reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from envcheck.core.errors import EnvcheckError
from envcheck.core.facts import Inventory, Key, family
from envcheck.core.plugins import plugins
from envcheck.core.records import NamedTuple
from envcheck.host.machine import Host


class ProbeRequest(NamedTuple):
    """Interpreter or environment folder to examine, and how.

    `python` is an interpreter or the folder of a virtual environment; `named_by` says where it was named
    (`--python`, `VIRTUAL_ENV`, …). With `static` nothing of the environment is run. `deadline_s` is the time
    in seconds that each probe may take.
    """

    python: Path | None = None
    named_by: str = ""
    static: bool = False
    deadline_s: float = 10.0


Collect = Callable[[], Inventory]


class Probe(NamedTuple):
    """A way to read facts, with the keys that it may yield.

    `begin` starts whatever is slow (a child process) and returns the function that collects the result, so
    that all probes wait at the same time.
    """

    name: str
    yields: Mapping[str, Key]
    begin: Callable[[Host, ProbeRequest], Collect]


def every_probe() -> tuple[Probe, ...]:
    """Return all probes of this package, by module name."""
    return plugins(__name__, __path__, "PROBE", Probe)


def survey(host: Host, request: ProbeRequest, probes: Iterable[Probe]) -> Inventory:
    """Run all probes at the same time and merge what they read.

    Raises:
        EnvcheckError: the requested environment cannot be examined at all.
    """
    begun = [(probe, _begin(probe, host, request)) for probe in probes]
    return Inventory.merged([_collect(probe, collect) for probe, collect in begun])


def _begin(probe: Probe, host: Host, request: ProbeRequest) -> Collect:
    try:
        return probe.begin(host, request)
    except EnvcheckError:
        raise
    except Exception as crash:  # noqa: BLE001 - a crashed probe must not stop the others
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
