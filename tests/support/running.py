"""Run envcheck as a user does: as a process, with its output and its exit code."""

from __future__ import annotations

import atexit
import compileall
import fcntl
import functools
import os
import shlex
import shutil
import signal
import subprocess  # noqa: TID251 - tests are users
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from compile_matrix import written

from tests.support.paths import ROOT

DEADLINE_S = 120  # against hangs; a page of the whole matrix takes 45 s of CPU

SET_ASIDE = {"VIRTUAL_ENV", "CONDA_PREFIX", "ENVCHECK_LANG", "LC_ALL", "LC_MESSAGES", "LANG"}
"""Variables that select what is examined or the language; a test sets those it needs."""


class Outcome(NamedTuple):
    """The result that a user sees."""

    code: int
    out: str
    err: str


def copy_compiled(folder: Path) -> None:
    """Copy envcheck into a folder with the contents of its wheel.

    The copy starts three times as fast as the checkout.
    """
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "shipped")
    shutil.copytree(ROOT / "envcheck", folder / "envcheck", ignore=ignored)
    written(folder / "envcheck/shipped")
    shutil.copytree(ROOT / "lockfiles", folder / "envcheck/shipped/lockfiles")


@functools.cache
def installed() -> Path:
    """Return the folder of this process's copy; each pytest process makes a new one, so it is up to date."""
    folder = Path(tempfile.mkdtemp(prefix="envcheck-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy_compiled(folder)
    compileall.compile_dir(folder, quiet=2)
    return folder


def invocation(*arguments: str) -> list[str]:
    """Return the command that runs envcheck.

    Without -P, Python would import from the current folder before the copy.
    """
    return [sys.executable, "-P", "-m", "envcheck", *arguments]


def surroundings(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a user's shell, in which an `invocation` finds the copy."""
    inherited = {k: v for k, v in os.environ.items() if k not in SET_ASIDE}  # noqa: TID251
    return {**inherited, "PYTHONPATH": str(installed()), **(added or {})}


def envcheck(*arguments: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Outcome:
    """Run `envcheck` with these arguments and these environment variables added."""
    ran = subprocess.run(
        invocation(*arguments),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=cwd or ROOT,
        env=surroundings(environ),
        check=False,
    )
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


def in_bash(line: str, cwd: Path) -> Outcome:
    """Run a line of bash in which `envcheck` is the program."""
    ran = subprocess.run(
        ["bash", "-c", line.replace("envcheck", shlex.join(invocation()))],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=cwd,
        env=surroundings(),
        check=False,
    )
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


class MeasuredOutcome(NamedTuple):
    """The result that a user sees, and its cost: processor time, which does not depend on other processes."""

    code: int
    out: str
    err: str
    seconds: float
    peak_mib: int


_SMALL_PARENT = """
import os, sys
child = os.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
report = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024
os.write(int(sys.argv[1]), " ".join(map(str, report)).encode())
"""
"""A parent that reports exit code, processor seconds and peak MiB of a command.

Linux includes in that peak the memory that the process had before `exec`. A test runner has hundreds of MiB,
so the parent must be small.
"""


def measured(
    *arguments: str, cwd: Path, environ: Mapping[str, str] | None = None, text: bytes = b""
) -> MeasuredOutcome:
    """Run `envcheck` with `text` as standard input; also return its processor time and peak memory."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as report,
    ):
        given.write(text)
        given.seek(0)
        parent = [sys.executable, "-ISc", _SMALL_PARENT, str(report.fileno())]
        process = subprocess.Popen(
            [*parent, *invocation(*arguments)],
            stdin=given,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=surroundings(environ),
            pass_fds=[report.fileno()],
            start_new_session=True,
        )
        watchdog = threading.Timer(DEADLINE_S, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        process.wait()
        watchdog.cancel()
        for file in (out, err, report):
            file.seek(0)
        code, seconds, peak_mib = report.read().decode().split() or ("-9", "inf", "0")
        return MeasuredOutcome(
            int(code),
            out.read().decode("utf-8", "replace"),
            err.read().decode("utf-8", "replace"),
            float(seconds),
            int(peak_mib),
        )


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder; create the folder if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def folder_of_session(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process of a session creates for all its processes."""
    base = factory.getbasetemp()
    common = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base  # noqa: TID251
    folder, whole = common / name, common / f"{name}.whole"
    with folder_lock(common):
        if not whole.exists():
            make(folder)
            whole.touch()
    return folder
