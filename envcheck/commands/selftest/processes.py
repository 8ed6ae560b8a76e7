"""Run selected variants in worker processes: group variants by worker, and write each worker's input.

A worker (`target_scripts/selftests/_worker.py`) imports once and forks its ranks. It enforces the
deadlines of imports and tests; the deadline here is for a worker that fails to do so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from envcheck.commands.selftest.environment import TESTS_FOLDER, SelftestOptions, TestEnvironment
from envcheck.commands.selftest.launched import LaunchedRank, launched_rank
from envcheck.commands.selftest.progress import Progress
from envcheck.commands.selftest.selection import Selected
from envcheck.core.errors import ExamineError
from envcheck.core.facts import Inventory, package_key
from envcheck.host.machine import Host
from envcheck.host.package_files import package_folder
from envcheck.host.processes import FinishedProcess, Running
from envcheck.selftest.declaration import SelftestDeclaration
from envcheck.selftest.journal import ProcessEnd

IMPORTS_S = 180.0
"""Seconds that loading torch, DeepSpeed and transformers may take on a cold network disk."""

GRACE_S = 60.0
"""Seconds after a variant's deadline to end its processes and to receive other machines' results."""

NO_ROOM_CODE, LATE_CODE, CUT_OFF_CODE = 123, 124, 125
"""Exit codes of the worker; see `target_scripts/selftests/_worker.py`."""

JOURNAL_LIMIT = 64 * 1024 * 1024
"""Maximum bytes read of a rank's journal."""

AT_ONCE = 8
"""Maximum number of variants that run at once on CUDA, two cores each: they mostly import. Not measured."""


# --- batches ----------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Variants that run in one worker, and so in the same number of ranks."""

    number: int
    selected: tuple[Selected, ...]
    ranks: int


def make_batches(selected: Sequence[Selected], device: str, launched: LaunchedRank | None) -> list[Batch]:
    """Group variants into batches.

    Variants that can be forked off one import share a worker for each number of ranks; the others run
    alone. If a launcher started several ranks, they meet in one batch that also holds the variants that
    cannot run on this rank, because the other ranks wait for an answer.
    """
    if launched is not None:
        groups = [[each for each in selected if each.ranks == launched.world]]
    else:
        runnable = [each for each in selected if not each.skipped]
        forked = [each for each in runnable if _can_fork(each.claim, device)]
        groups = [
            [each for each in forked if each.ranks == ranks]
            for ranks in sorted({each.ranks for each in forked})
        ]
        groups += [[each] for each in runnable if not _can_fork(each.claim, device)]
    return [Batch(number, tuple(group), group[0].ranks) for number, group in enumerate(groups) if group]


def _can_fork(claim: SelftestDeclaration, device: str) -> bool:
    """Return whether a fork can use what was imported.

    It cannot use a CUDA context, but importing torch alone creates none.
    """
    return device == "cpu" or claim.imports == ("torch",)


# --- workers ----------------------------------------------------------------------------------------


class _SupervisorDeadline:
    """A deadline that does not count the time during which this process is stopped (SIGSTOP)."""

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, time.monotonic()

    def passed(self) -> bool:
        """Return whether the time is up; must be called several times a second."""
        now = time.monotonic()
        self._left -= min(now - self._seen, 1.0)
        self._seen = now
        return self._left <= 0


class _Worker(NamedTuple):
    batch: Batch
    process: Running
    deadline: _SupervisorDeadline


class WorkerPool:
    """Workers of a run; leaving the context ends the workers that still run."""

    def __init__(
        self, host: Host, prepared: TestEnvironment, options: SelftestOptions, device: str, folder: Path
    ) -> None:
        """Store what is tested, and the path of a folder for files, which the first worker creates."""
        self._host, self._prepared, self._options = host, prepared, options
        self._device, self._folder = device, folder
        self._running: list[_Worker] = []
        self._progress: Progress | None = None
        self._launched = launched_rank(host)

    def show_progress(self, progress: Progress) -> None:
        """Show the progress of the tests while they run."""
        self._progress = progress

    def __enter__(self) -> Self:
        """Start with no worker."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers that still run."""
        for worker in self._running:
            worker.process.end()

    def run(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, list[ProcessEnd]]]:
        """Yield each batch as it ends, with how its ranks ended; on CUDA some run side by side."""
        waiting = list(batches)[::-1]
        while waiting or self._running:
            while waiting and self._has_room_for(waiting[-1]):
                self._start(waiting.pop())
            for worker in list(self._running):
                in_time = worker.process.ended()
                if in_time or worker.deadline.passed():
                    worker.process.end()
                    finished = worker.process.finish(1.0)
                    self._running.remove(worker)
                    finished = finished if in_time else finished._replace(code=None)
                    yield worker.batch, self._ends_of_ranks(worker.batch, finished)
            if self._progress is not None:
                numbers = [worker.batch.number for worker in self._running]
                self._progress.look([self._folder / str(number) / "rank-0.jsonl" for number in numbers])
            time.sleep(0.01)

    def _has_room_for(self, batch: Batch) -> bool:
        """Return whether a batch may start now; a batch of several ranks runs alone on the machine."""
        running = (worker.batch.ranks for worker in self._running)
        alone = max(batch.ranks, *running, 0) > 1
        cores = self._prepared.inventory.known("host.cpu_count")
        lanes = min(AT_ONCE, max(1, cores // 2)) if isinstance(cores, int) else 1
        return len(self._running) < (1 if alone or self._device == "cpu" else lanes)

    def _start(self, batch: Batch) -> None:
        folder = self._folder / str(batch.number)
        order = self._order(batch, folder)
        script = package_folder(TESTS_FOLDER) / "_worker.py"
        process = self._host.start(
            [self._prepared.interpreter, "-X", "utf8", str(script), json.dumps(order)],
            self._environ(folder, batch.ranks),
        )
        self._running.append(_Worker(batch, process, _SupervisorDeadline(self._seconds_for(batch))))

    def _seconds_for(self, batch: Batch) -> float:
        """Return the seconds that a worker may take: more than the sum of the deadlines that it enforces."""
        claims = len({each.claim.name for each in batch.selected})
        imports = IMPORTS_S * self._options.patience * (claims + 1) * (2 if self._launched else 1)
        return imports + sum(each.claim.seconds + GRACE_S for each in batch.selected)

    def _ends_of_ranks(self, batch: Batch, finished: FinishedProcess) -> list[ProcessEnd]:
        """Read what each rank left behind.

        Raises:
            ExamineError: there is no room for the worker's folder, or this rank lost the others.
        """
        output = finished.err.strip()
        if finished.code == NO_ROOM_CODE:
            raise ExamineError(f"cannot create a temporary folder: {output} (TMPDIR says where)")
        if finished.code == CUT_OFF_CODE and self._launched:
            rank, world, _, address, port = self._launched
            why = output.splitlines()[-1] if output else "no answer"
            raise ExamineError(f"rank {rank} of {world} lost the others (rank 0 is {address}:{port}): {why}")
        code = None if finished.code == LATE_CODE else finished.code
        folder, read = self._folder / str(batch.number), Host().read_text
        names = [f"{each.claim.name}.{each.variant.name}" for each in batch.selected]
        return [
            ProcessEnd(
                code,
                output,
                read(folder / f"rank-{rank}.jsonl", JOURNAL_LIMIT) or "",
                {name: read(folder / f"{name}.{rank}.stacks") or "" for name in names},
            )
            for rank in range(batch.ranks)
        ]

    # The input of a worker: its instructions as JSON, and its environment variables.

    def _order(self, batch: Batch, folder: Path) -> dict[str, Any]:
        launched = self._launched
        own_ranks = (
            [(launched.rank, launched.local_rank)] if launched else [(n, n) for n in range(batch.ranks)]
        )
        return {
            "claims": self._claims_of(batch),
            "device": self._device,
            "world": batch.ranks,
            "ranks": [
                {"rank": rank, "local_rank": local, "journal": str(folder / f"rank-{rank}.jsonl")}
                for rank, local in own_ranks
            ],
            "parent": os.getpid(),
            "scratch": str(folder),
            "folder": str(self._folder),
            "imports_seconds": IMPORTS_S * self._options.patience,
            "rendezvous": "env" if launched else "file",
            "gpus": _visible_gpus(self._prepared.inventory),
        }

    def _claims_of(self, batch: Batch) -> list[dict[str, Any]]:
        """Return the claims of a batch, each with the variants to run and to skip."""
        tests = package_folder(TESTS_FOLDER)
        by_name: dict[str, dict[str, Any]] = {}
        for each in batch.selected:
            claim = by_name.setdefault(
                each.claim.name,
                {
                    "name": each.claim.name,
                    "test": str(tests / f"{each.claim.name}.py"),
                    "variants": [],
                    "imports": [],
                    "seconds": each.claim.seconds,
                    "skipped": {},
                },
            )
            claim["variants"].append(each.variant.name)
            if each.skipped:
                claim["skipped"][each.variant.name] = each.skipped
            else:
                claim["imports"] = self._imports(each.claim)
        return list(by_name.values())

    def _imports(self, claim: SelftestDeclaration) -> list[str]:
        """Return the installed ones of the claim's imports, to load once; none if they cannot be forked."""
        known = self._prepared.inventory.known
        installed = [name for name in claim.imports if known(package_key(name.partition(".")[0])) is not None]
        return installed if _can_fork(claim, self._device) else []

    def _environ(self, folder: Path, ranks: int) -> dict[str, str]:
        """Return the user's environment variables, changed to keep tests off networks and caches."""
        environ = {**self._host.environ, **_QUIET}
        environ.update(dict.fromkeys(_CACHES, str(folder)))
        if self._device == "cpu":
            environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
        world = str(ranks)
        if self._launched is None:
            environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
            # Ranks of one machine use the loopback interface: nothing listens to the outside.
            environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", GLOO_SOCKET_IFNAME="lo")
        else:
            rank, _, local, address, port = self._launched
            environ.update(RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=world)
            environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
        return environ


def _visible_gpus(inventory: Inventory) -> int | None:
    """Return how many GPUs a program sees; None if it is not known for each of them, as with MIG."""
    certain = all(
        inventory.known("gpu.visible", device) is not None and inventory.known("gpu.mig", device) is False
        for device in range(len(inventory.devices))
    )
    return len(inventory.visible_devices()) if certain and inventory.devices else None


_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "DS_BUILD_OPS": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # older torch starts its workers when inductor is imported
}

_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "HF_HOME")
"""Variables for the places that libraries write to; they point to the scratch folder instead."""
