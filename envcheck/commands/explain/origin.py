"""The command that wrote a log, and its end as the last event of the log."""

from __future__ import annotations

from typing import NamedTuple

from envcheck.host.signals import signal_name
from envcheck.logs.events import Event, Log


class LogOrigin(NamedTuple):
    """Command that wrote a log, and its exit code, negative for a signal.

    `named` is False if the environment was not named but found beside the command.
    """

    command: str
    code: int
    named: bool = True


def with_end(log: Log, code: int) -> Log:
    """Add the end of the process that wrote the log as its last event.

    It is a root cause only for a signal, and only if the log names none: torchrun's report on its ranks
    counts before it.
    """
    text = f"exit code {code}"
    if code < 0:
        text = f"killed by signal {-code}\ntraceback : Signal {-code} ({signal_name(-code)})"
    numbers = tuple(log.lines + 1 for _ in text.split("\n"))
    root = code < 0 and not any(event.root for event in log.events)
    end = Event("ended", numbers, text, code=code, root=root, again=log.lines + 1)
    return log._replace(events=(*log.events, end))
