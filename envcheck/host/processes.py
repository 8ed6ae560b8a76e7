"""Processes that run in the background, with a deadline and a limit on their output."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from envcheck.core.records import NamedTuple

if TYPE_CHECKING:
    import selectors
    import subprocess

_OUTPUT_LIMIT = 4 * 1024 * 1024  # bytes kept of each of the two streams
_GRACE_S = 0.5  # a killed process gets this long to close its streams and to be collected


class FinishedProcess(NamedTuple):
    """What a process returned: `code` is None if it outlived its deadline and was killed."""

    code: int | None
    out: str
    err: str


class Running(NamedTuple):
    """A process started in the background; `finish` waits for it and collects its output."""

    process: subprocess.Popen[bytes]

    def finish(self, deadline_s: float) -> FinishedProcess:
        """Wait at most `deadline_s` seconds, then kill; a process stuck in the kernel is left behind.

        What the process wrote before it was killed is returned, so the findings of a probe that hung
        half-way are not lost.
        """
        out, err = bytearray(), bytearray()
        try:
            ended = self._read_output(out, err, deadline_s) and self._wait(deadline_s)
        except BaseException:  # Ctrl-C does not reach the child: it has its own session
            self.kill()
            raise
        if not ended:
            self.kill()
            # Keep this wait short: a child in uninterruptible sleep never dies.
            self._read_output(out, err, _GRACE_S)
            self._wait(_GRACE_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        code = self.process.returncode if ended else None
        return FinishedProcess(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def _read_output(self, out: bytearray, err: bytearray, seconds: float) -> bool:
        """Read both streams for at most `seconds`; return whether both reached their ends.

        Bytes beyond the limit are read and dropped, so a process that never stops printing fills
        neither its pipe nor envcheck's memory.
        """
        import selectors

        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for stream, buffer in ((self.process.stdout, out), (self.process.stderr, err)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, buffer)
            while selector.get_map():
                left = until - time.monotonic()
                if left <= 0:
                    return False
                _read_ready(selector, left)
        return True

    def _wait(self, seconds: float) -> bool:
        import subprocess  # loaded only where a process is started

        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    def end(self, grace_s: float = 5.0) -> None:
        """Terminate the process, so that it can end its own children; after `grace_s` seconds, kill it."""
        if not self.ended():
            self.process.terminate()
            if not self._wait(grace_s):
                self.kill()

    def kill(self) -> None:
        """Kill the whole session: a child of a shell script would live on and keep the pipes open."""
        import signal

        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            self.process.kill()


def _read_ready(selector: selectors.BaseSelector, seconds: float) -> None:
    """Read once from each stream that has data; forget a stream at its end."""
    for key, _ in selector.select(seconds):
        if not (chunk := os.read(key.fd, 1 << 16)):
            selector.unregister(key.fileobj)
        key.data.extend(chunk[: max(0, _OUTPUT_LIMIT - len(key.data))])


def start_process(command: Sequence[str], environ: Mapping[str, str]) -> Running:
    """Start a process in a new session, from the folder `/`, without standard input.

    Raises:
        OSError: the program does not exist or may not be run.
    """
    import subprocess  # takes 4 ms to import, which a machine without a driver does not pay

    return Running(
        subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            cwd="/",
            start_new_session=True,
        )
    )
