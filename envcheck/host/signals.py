"""Signals that end envcheck's own process, turned into exceptions, and the names of signals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ProcessExit(SystemExit):
    """Raised when a signal ends this process; `code` is the exit code a shell reports for that signal."""

    def __init__(self, number: int) -> None:
        """Take the signal's number."""
        import signal

        super().__init__(128 + number)
        self.name = signal.Signals(number).name


@contextmanager
def raise_on_termination() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise, as SIGINT does, so that `finally` blocks clean up.

    A signal that is already handled or ignored (nohup) keeps its handler.

    Raises:
        ProcessExit: one of these signals came.
    """
    import signal

    def end(number: int, _: object) -> None:
        raise ProcessExit(number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def signal_name(number: int) -> str:
    """Return the name of a signal, for example SIGKILL for 9."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal has no name
