"""Run the self-tests with the interpreter of an environment, and report how they ended.

`environment` finds the environment and the declared tests, `selection` decides what runs and in how many
ranks, `processes` runs it, and `failures` looks for the rule behind a failure. Every process has a
deadline, is then killed with all its children, and ends when envcheck ends. The package may import what
`commands` may. It must not know how the report is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from envcheck import __version__
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.selftest import launched
from envcheck.commands.selftest.environment import SelftestOptions, TestEnvironment, claims, prepare
from envcheck.commands.selftest.failures import with_rule
from envcheck.commands.selftest.processes import WorkerPool, make_batches
from envcheck.commands.selftest.progress import Progress
from envcheck.commands.selftest.selection import (
    Selected,
    choose_device,
    device_in_words,
    refuse_unknown,
    select,
)
from envcheck.host.files import scratch_path
from envcheck.host.machine import Host
from envcheck.host.signals import raise_on_termination
from envcheck.selftest import outcome as selftest_outcome
from envcheck.selftest.journal import outcome_of_ranks
from envcheck.selftest.outcome import Outcome
from envcheck.selftest.report import SelftestReport

__all__ = ["SelftestOptions", "TestEnvironment", "claims", "prepare", "refuse_unknown", "run", "selftest"]

LINGER_S = 2.0
"""Seconds that a failing rank waits before it ends, so that rank 0 can print before the launcher ends it."""


def selftest(
    request: ExamineRequest, options: SelftestOptions, host: Host, show: Callable[[str], None] | None = None
) -> SelftestReport:
    """Run the self-tests that the options select, and return the report.

    `show` is called with a line of progress from time to time.

    Raises:
        InputError: an option is wrong.
        ExamineError: there is no environment to test.
    """
    refuse_unknown(options)
    prepared = prepare(request, host)
    device = choose_device(options, prepared.inventory)
    outcomes = run(prepared, options, device, host, show)
    rank = launched.launched_rank(host)
    report = SelftestReport(
        __version__,
        prepared.subject,
        device_in_words(device, prepared.inventory),
        outcomes,
        rank=rank.rank if rank else 0,
    )
    if report.rank and report.code:
        time.sleep(LINGER_S)
    return report


def run(
    prepared: TestEnvironment,
    options: SelftestOptions,
    device: str,
    host: Host,
    show: Callable[[str], None] | None = None,
) -> tuple[Outcome, ...]:
    """Run what the options select and return the outcomes, in the order of the claims."""
    selected = select(prepared, options, device, host)
    ended: dict[tuple[str, str], Outcome] = {}
    with (
        raise_on_termination(),
        scratch_path() as folder,
        WorkerPool(host, prepared, options, device, folder) as workers,
    ):
        if show is not None:
            workers.show_progress(Progress(sum(not each.skipped for each in selected), show))
        for batch, ranks in workers.run(make_batches(selected, device, launched.launched_rank(host))):
            for each in batch.selected:
                outcome = outcome_of_ranks(each.claim, each.variant, ranks)
                ended[each.claim.name, each.variant.name] = with_rule(outcome, prepared)
    return tuple(ended.get((each.claim.name, each.variant.name)) or _skipped(each) for each in selected)


def _skipped(selected: Selected) -> Outcome:
    return Outcome(
        selected.claim,
        selected.variant,
        selftest_outcome.SKIP,
        selected.skipped,
        ranks=selected.ranks,
        rule=selected.rule,
    )
