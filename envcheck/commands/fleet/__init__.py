"""Gather the facts of many nodes and report on them: from files, from the ranks of a job, or over Ray.

Each source has a module (`files`, `ranks` with `boards`, `ray_nodes`); `judging` holds the options and the
judge of the nodes. Every wait has a deadline: a node that does not report in time is
named as missing. It may import what `commands` may. It must not know how the report is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcheck.commands.fleet.files import report_on_files
from envcheck.commands.fleet.judging import FleetOptions, FleetResult, node_facts
from envcheck.core.errors import InputError
from envcheck.fleet import launchers
from envcheck.host.signals import raise_on_termination

if TYPE_CHECKING:
    from envcheck.commands.examine import ExamineRequest
    from envcheck.host.machine import Host

__all__ = ["FleetOptions", "FleetResult", "gather", "node_facts", "report_on_files"]


def gather(request: ExamineRequest, options: FleetOptions, host: Host) -> FleetResult:
    """Return the report on files, on a Ray cluster, or on the ranks of the job that started this process.

    Raises:
        InputError: an option is wrong, or no source of facts is given.
        ExamineError: the ranks cannot reach each other, or Ray cannot be reached.
    """
    _refuse_two_sources(options)
    if options.sources:
        report = report_on_files(request, options)
        return FleetResult(report, report.code)
    if options.ray:
        from envcheck.commands.fleet import ray_nodes

        report = ray_nodes.report_on_ray(request, options)
        return FleetResult(report, report.code)
    started = launchers.started(host.environ)
    if started is None:
        raise InputError(
            "fleet", "name a file, a folder or -, or start it with torchrun, srun, mpirun or --ray"
        )
    from envcheck.commands.fleet import ranks

    with raise_on_termination():
        return ranks.report_on_ranks(request, options, host, started)


def _refuse_two_sources(options: FleetOptions) -> None:
    sources = (("FILE", options.sources), ("--ray", options.ray), ("--via", options.via))
    given = [name for name, value in sources if value]
    if len(given) > 1:
        raise InputError(given[1], f"contradicts {given[0]}")
