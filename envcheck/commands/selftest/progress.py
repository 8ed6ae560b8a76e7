"""Show the progress of the self-tests on a terminal, from the journals that the ranks write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json
from envcheck.host.machine import Host

_EVERY_S = 0.5
_LIMIT = 64 * 1024 * 1024  # maximum bytes read of a journal


class Progress:
    """Counts the variants that ended; `show` gets one line at most twice a second."""

    def __init__(self, total: int, show: Callable[[str], None]) -> None:
        """Store the number of variants that run, and the function that shows a line."""
        self._total, self._show = total, show
        self._ended: set[tuple[str, str]] = set()
        self._started = time.monotonic()
        self._next_look = 0.0

    def look(self, journals: Sequence[Path]) -> None:
        """Show how many variants ended and which one runs; `journals` are rank 0's of the running batches."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _EVERY_S
        running = ""
        for journal in journals:
            running = self._read(Host().read_text(journal, _LIMIT) or "") or running
        number = min(len(self._ended) + 1, self._total)
        what = running or "importing"
        self._show(f"self-test {number} of {self._total}, {now - self._started:.0f} s: {what}")

    def _read(self, journal: str) -> str:
        """Count the variants that ended; return the name of the one that runs."""
        running = ""
        for line in journal.splitlines():
            if '"event": "begin"' not in line and '"event": "end"' not in line:
                continue
            try:
                event = parse_json(line, "")
                name = str(event["test"]), str(event["variant"])
            except (InputError, KeyError, TypeError):
                continue  # a line that is being written
            if event["event"] == "end":
                self._ended.add(name)
                running = ""
            else:
                running = " ".join(dict.fromkeys(name))
        return running
