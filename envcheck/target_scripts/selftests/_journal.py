"""The journal of one rank: one JSON object a line, appended as things happen.

The journal is the only output of a self-test that is read; libraries may print what they like. Because every
event is written at once, the journal of a process that hangs or is killed still shows how far it came.
"""

from __future__ import annotations

import json
import os
import time


class RankJournal:
    """One rank in one variant of a self-test, and the file its events go to."""

    def __init__(self, order, claim, variant):
        """Take the order for one rank, one of its claims (see `_worker.py`) and the variant's name."""
        self.order = order
        self.claim = claim
        self.variant = variant
        self.device_type = order["device"]
        self.rank, self.world = order["rank"], order["world"]
        self.local_rank = order.get("local_rank", self.rank)
        self.scratch = order["scratch"]
        self.journal = order["journal"]

    @property
    def key(self):
        """A prefix for files and store keys that no other variant uses."""
        return f"{self.claim['name']}.{self.variant}"

    @property
    def stacks(self):
        """The path of the stack traces that are written shortly before the deadline."""
        return os.path.join(self.scratch, f"{self.key}.{self.rank}.stacks")

    def note(self, event, **details):
        """Write one event; a value that JSON cannot represent is written as its text."""
        line = {
            "event": event,
            "test": self.claim["name"],
            "variant": self.variant,
            **details,
            "time": time.time(),
        }
        # The file is opened for each event: a library that closes all descriptors cannot close the journal.
        journal = os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # One write per line, so that lines of two appending processes never mix.
            os.write(journal, (json.dumps(line, default=str) + "\n").encode())
        finally:
            os.close(journal)


def tail(path, size=1 << 16):
    """Return the last `size` bytes of a file as text, or an empty string if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
