"""Where the ranks of a job exchange texts: a folder that all share, or torch's store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from envcheck.commands import examine
from envcheck.commands.fleet.judging import FleetOptions
from envcheck.core.errors import ExamineError, InputError
from envcheck.fleet import launchers
from envcheck.fleet.records import LARGEST_RECORD
from envcheck.host.files import (
    is_file,
    list_folder,
    mark_used,
    read_file,
    replace_file,
    scratch_folder,
    write_file,
)
from envcheck.host.machine import Host
from envcheck.host.package_files import package_folder
from envcheck.host.processes import Running
from envcheck.probes.layout import find_interpreter

LEAVING_S = 15.0
"""Seconds that rank 0 waits for the other ranks to read the verdict, if it hosts the store."""

PREFIX = "fleet."
"""Prefix of every file name in the folder of `--via`."""


class MessageBoard:
    """A place where ranks post named texts and read those of others: one folder, or one per direction."""

    def __init__(self, out: Path, incoming: Path, prefix: str = "", suffix: str = "") -> None:
        """Take the folders, and the prefix and suffix that make a text's name a file name."""
        self._out, self._in = out, incoming
        self._prefix, self._suffix = prefix, suffix

    def post(self, name: str, text: str) -> None:
        """Post a text; it replaces an earlier one of that name."""
        replace_file(self._out / f"{self._prefix}{name}{self._suffix}", text)

    def read(self, names: Iterable[str]) -> dict[str, str]:
        """Return the texts of these names that were posted."""
        present = set(list_folder(self._in))
        found = {}
        for name in names:
            file = f"{self._prefix}{name}{self._suffix}"
            if file not in present:
                continue
            try:
                data = read_file(self._in / file, 2 * LARGEST_RECORD)
            except InputError:
                continue  # it is being replaced, or no rank wrote it: treat it as absent
            found[name] = data.decode("utf-8", "replace")
        return found

    def is_current(self, name: str, text: str) -> bool:
        """Return whether the text of this name is still the one that this process posted."""
        return self.read([name]).get(name) == text

    def leave(self, rank: int, others: Iterable[int]) -> None:
        """Announce that this rank needs nothing more; a rank 0 that hosts a store waits for the others."""


class StoreMessageBoard(MessageBoard):
    """A board over torch's store; a child process copies between the store and two folders."""

    def __init__(self, folder: Path, running: Running, where: str) -> None:
        """Take the child's folder, the child, and the store's address for messages."""
        super().__init__(folder / "out", folder / "in")
        self._folder, self._running, self._where = folder, running, where
        self._requested: set[str] = set()

    def read(self, names: Iterable[str]) -> dict[str, str]:
        """Return the texts of these names that were posted, as `MessageBoard.read`.

        Raises:
            ExamineError: the child has failed.
        """
        requested = list(names)
        if not self._requested.issuperset(requested):
            self._requested.update(requested)
            replace_file(self._folder / "want", json.dumps(sorted(self._requested)))
        failed = self._folder / "failed"
        if self._running.ended() or is_file(failed):
            ran = self._running.finish(1.0)
            output = read_file(failed).decode("utf-8", "replace") if is_file(failed) else ran.err
            raise ExamineError(f"{self._where}: ranks cannot connect there: {last_line(output)}")
        return super().read(requested)

    def is_current(self, name: str, text: str) -> bool:
        """Return True: a store belongs to one job."""
        del name, text
        return True

    def leave(self, rank: int, others: Iterable[int]) -> None:
        """Announce the end as `MessageBoard.leave`, and end the child."""
        if rank:
            self.post(f"left-{rank}", "")
        replace_file(self._folder / "stop", json.dumps([f"left-{other}" for other in others]))
        self._running.finish(LEAVING_S)


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


@contextmanager
def open_board(
    python: str | None, options: FleetOptions, host: Host, started: launchers.Started
) -> Iterator[MessageBoard]:
    """Open the board of a job: a scratch folder for one rank, the folder of `--via`, or torch's store.

    `python` names the environment whose torch is used, as `--python` does.

    Raises:
        InputError: no meeting point of the ranks is given.
        ExamineError: there is no torch, whose store the ranks would use.
    """
    if started.world == 1:
        with scratch_folder() as folder:
            yield MessageBoard(folder, folder)
    elif options.via:
        prefix = f"{PREFIX}{job_in_file_name(options, started)}."
        yield MessageBoard(Path(options.via), Path(options.via), prefix, ".json")
    elif not started.address or not started.port:
        raise InputError(
            started.launcher,
            f"rank {started.rank} of {started.world}: name a folder that all ranks share (--via FOLDER), "
            "or set the address of rank 0 (MASTER_ADDR, MASTER_PORT)",
        )
    else:
        with _store_board(python, options.wait_s, host, started) as board:
            yield board


@contextmanager
def _store_board(
    python: str | None, wait_s: float, host: Host, started: launchers.Started
) -> Iterator[StoreMessageBoard]:
    path, named_by = examine.environment_to_run(python, host)
    interpreter = find_interpreter(host, os.path.abspath(path))  # noqa: PTH100 - links tell a venv from its base
    with scratch_folder() as folder:
        for name in ("out", "in"):
            mark_used(folder / name)
        order = {
            "address": started.address,
            "port": started.port,
            "rank": started.rank,
            # If torchrun's agent hosts a store at this address, rank 0 must not.
            "hosting": started.rank == 0 and host.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            "restarts": host.environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
            "seconds": wait_s,
        }
        write_file(folder / "order.json", json.dumps(order))
        script = package_folder("target_scripts") / "c10d.py"
        running = host.start([interpreter, "-X", "utf8", str(script), str(folder)])
        where = f"{started.address}:{started.port}, by the torch of {path} ({named_by})"
        try:
            yield StoreMessageBoard(folder, running, where)
        finally:
            running.end()


def job_in_file_name(options: FleetOptions, started: launchers.Started) -> str:
    """Return the job's name in ASCII letters, digits and hyphens, as a part of file names."""
    job = options.job or started.job or "job"
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in job)[:100]
