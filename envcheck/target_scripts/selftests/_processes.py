"""Forked processes: what they print, how long they may run, and how none of them is left behind.

Orphans are found and killed with prctl(2) and /proc, which only Linux has.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback

OUTPUT_KEPT = 4096
"""Bytes kept of what a process printed last: a library that aborts prints its reason there."""


class Deadline:
    """A number of seconds that counts down only while this process runs, not while it is stopped."""

    def __init__(self, seconds):
        """Start counting."""
        self.left, self.seen = seconds, time.monotonic()

    def past(self):
        """Return whether the time is up; must be called several times a second."""
        now = time.monotonic()
        self.left -= min(now - self.seen, 1.0)
        self.seen = now
        return self.left <= 0


class ForkedProcess:
    """A fork of this process. The end of its output is kept, and a full pipe never blocks it."""

    def __init__(self, work):
        """Fork, and run `work` in the child, which then ends without a library's exit handlers."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.printed, self.status = bytearray(), None
        self.output, child_output = os.pipe()
        os.set_blocking(self.output, False)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                die_with_parent(parent)
                os.dup2(child_output, 1)
                os.dup2(child_output, 2)
                os.close(child_output)
                os.close(self.output)
                work()
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:  # noqa: BLE001 - the child reports whatever ended it
                os.write(2, traceback.format_exc().encode())
                os._exit(1)
            finally:
                os._exit(0)  # exit handlers may wait for ranks that are gone
        os.close(child_output)

    def ended(self):
        """Return whether the process has ended, and read what it printed."""
        if self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._read()  # after waitpid: if the process has ended, all its output is there by now
            if done:
                self.status = status
                self.close()
        return self.status is not None

    def kill(self):
        """Kill the process; after 5 s one that is stuck in the kernel is left behind and not waited for."""
        if self.status is not None:
            return
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + 5
        while not ForkedProcess.ended(self) and time.monotonic() < until:
            time.sleep(0.005)
        if self.status is None:
            self.status = int(signal.SIGKILL)
            self.close()

    def _read(self):
        for _ in range(64):  # at most 4 MiB a time: a process that never stops printing does not block us
            try:
                chunk = os.read(self.output, 1 << 16) if self.output is not None else b""
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            self.printed = (self.printed + chunk)[-OUTPUT_KEPT:]

    def close(self):
        """Stop reading the output."""
        if self.output is not None:
            os.close(self.output)
            self.output = None

    @property
    def last_output(self):
        """The end of what the process printed."""
        return self.printed.decode("utf-8", "replace")


def wait_for_output(processes, seconds):
    """Wait until one of the processes prints or the time is up."""
    waiting = select.poll()
    for process in processes:
        if process.output is not None:
            waiting.register(process.output, select.POLLIN)
    waiting.poll(seconds * 1000)


def die_with_parent(parent):
    """Ask the kernel to kill this process when its parent ends, however that ends (prctl(2), Linux)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the request
            os._exit(1)


def adopt_orphans():
    """Become the parent of orphaned descendants, so that none escapes (prctl(2), Linux)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1)


def descendants():
    """Return the process ids of our children and their children; empty on systems other than Linux."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (AttributeError, OSError):
        return set()  # nearly always: there is no child, and no need to list every process of the machine
    parents, dead = _parents()
    found, front = set(), {os.getpid()}
    while front:
        front = {pid for pid, parent in parents.items() if parent in front} - found
        found |= front
    # A process that died during the listing still leads to a child that was listed before as its own.
    return found - dead


def _parents():
    """Return the parent of each process of this machine, and the set of processes that are zombies."""
    parents, dead = {}, set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
            parents[int(name)] = int(parent)
            if state == b"Z":
                dead.add(int(name))
    return parents, dead


def kill_descendants(spared=frozenset()):
    """Kill all descendants, those in other sessions too; look repeatedly, because some appear late."""
    for _ in range(200):
        left = descendants() - spared
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
