"""Run a command, pass everything through, and explain what it printed if it failed by itself."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck import probes
from envcheck.commands import examine, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.explain.explained_log import explain_chunks
from envcheck.commands.explain.origin import LogOrigin
from envcheck.core.facts import (
    Inventory,
)
from envcheck.host import pty_passthrough
from envcheck.host.machine import Host
from envcheck.reports.explanation import Explanation


class FinishedCommand(NamedTuple):
    """Hold how a command ended: its exit code (negative for a signal), and the explanation of a failure.

    `trouble` says why a failure could not be explained.
    """

    code: int
    explanation: Explanation | None = None
    trouble: str = ""


def run(request: ExamineRequest, command: Sequence[str], host: Host) -> FinishedCommand:
    """Run a command and pass everything through; if it fails by itself, explain what it printed.

    Raises:
        EnvcheckError: an argument is wrong; the command was not started.
        OSError: the command does not exist or may not be run.
    """
    _refuse_wrong_request(request, host)
    kept = pty_passthrough.KeptOutput()
    ended = pty_passthrough.run(command, host.environ, kept)
    if ended.code == 0 or ended.signals or -ended.code in pty_passthrough.NO_FAILURE:
        return FinishedCommand(ended.code)
    beside = None
    if request.python is None and request.facts is None:
        beside = _python_beside(command[0], host)
    if beside is not None:
        request = request._replace(python=beside)
    name = f"what {command[0].rpartition('/')[2]} printed"
    origin = LogOrigin(shlex.join(command), ended.code, named=beside is None)
    try:
        explanation = explain_chunks(request, name, kept.pieces(), host, origin)
    except Exception as error:  # noqa: BLE001 - a fault of ours must not hide the command's exit code
        return FinishedCommand(ended.code, trouble=str(error) or type(error).__name__)
    return FinishedCommand(ended.code, explanation)


def _refuse_wrong_request(request: ExamineRequest, host: Host) -> None:
    """Check everything that the request names before the command starts, which may take hours.

    Raises:
        EnvcheckError: something named is missing, or wrong.
    """
    if request == ExamineRequest(deadline_s=request.deadline_s):
        return
    keys = loading.vocabulary(probes.every_probe())
    matrix = loading.load_matrix(keys, request.overlays)
    inventory = Inventory()
    for file in () if request.facts is None else (request.facts, *request.more_facts):
        inventory = examine.read_facts(file, keys)
    examine.complete_inventory(inventory, request, matrix)
    if request.python is not None:
        from envcheck.probes import python_env

        python_env.interpreter(host, probes.ProbeRequest(Path(request.python)))


def _python_beside(program: str, host: Host) -> str | None:
    """Return the interpreter beside a program, such as an environment's own torchrun; None without one."""
    import shutil

    found = shutil.which(program, path=host.environ.get("PATH"))
    python = Path(found).parent / "python" if found else None
    return str(python) if python and python.is_file() else None
