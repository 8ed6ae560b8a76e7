"""What a scanned log reports: events with their exceptions and frames."""

from __future__ import annotations

import re
from typing import NamedTuple


class Frame(NamedTuple):
    """One entry of a traceback: the file, the line and the function."""

    file: str
    line: int
    name: str


class Raised(NamedTuple):
    """One exception: its name as printed, the first line of its message, its innermost frame if certain.

    `source` is the line of code that raised it, and `marked` the part of it that Python underlined with `~`;
    both are empty if the log does not show them.
    """

    name: str
    message: str
    place: Frame | None
    source: str = ""
    marked: str = ""


_WRAPPER = re.compile(
    r"(?:Failed to import [\w.]+ because of the following error \(look up to see its traceback\):\s*)+"
)
"""How lazy imports of transformers, diffusers and others quote the error of a module."""


def without_wrapper(message: str) -> str:
    """Return the message that a lazy import quotes, or the message itself."""
    return _WRAPPER.sub("", message, count=1)


class FailureForm(NamedTuple):
    """Hold what the form of a line shows about a failure: its kind, its meaning, advice; texts may be empty.

    `aside` marks what a run may print without failing: it counts only if nothing else in the log failed.
    `closing` marks what only reports that a build failed, whose reason another line tells. `telling` says
    that the meaning tells more at first sight than the line. `last` marks what counts only at a log's end.
    `heading` marks a line whose message stands in the lines below it. `remark` marks what a run prints that
    goes on in vain: if nothing else failed, it is a remark on the run, not a failure.
    """

    kind: str = "unknown"
    means: str = ""
    advice: str = ""
    aside: bool = False
    closing: bool = False
    telling: bool = False
    last: bool = False
    heading: bool = False
    remark: bool = False


class Event(NamedTuple):
    """Something that a log reports: chained exceptions, the end of a process, or a passage around a word.

    A failure that one line states is `ended` or `stated`, and `form` is what the form of that line shows.
    `cut_at` is the last frame of a traceback whose exception is not in the log. `general` is what failures of
    its class usually mean.

    `numbers` are the line numbers of its text, from 1. `exceptions` are in the order in which they were
    raised; an end and a passage have none. `code` is the exit code of an end, negative for a signal; `root`
    marks the end that torchrun calls the root cause. `times` counts equal events, and `again` is the number
    of the last line of the last one.
    """

    what: str  # raised, ended, stated, or said for a passage
    numbers: tuple[int, ...]
    text: str
    ranks: tuple[str, ...] = ()
    exceptions: tuple[Raised, ...] = ()
    code: int | None = None
    root: bool = False
    times: int = 1
    again: int = 0
    form: FailureForm | None = None
    cut_at: Frame | None = None
    general: FailureForm | None = None

    @property
    def first(self) -> int:
        """Return the number of its first line."""
        return self.numbers[0]

    @property
    def last(self) -> int:
        """Return the number of its last line."""
        return self.numbers[-1]


class Log(NamedTuple):
    """Events of a log by first line, with the number of its lines and bytes.

    `progress` has the first and last line of each stretch in which the run trained. `trained_from` and
    `trained_until` are the first and the last line that report a step, and `completed` is the last one that
    reports the end of a whole training; they are 0 without one. `crowded` says that some events were left
    out.
    """

    events: tuple[Event, ...]
    lines: int
    size: int
    progress: tuple[tuple[int, int], ...] = ()
    crowded: bool = False
    trained_from: int = 0
    trained_until: int = 0
    completed: int = 0

    def trained(self, first: int, last: int) -> int:
        """Return how many lines of training there are between two lines."""
        return sum(max(0, min(last, end) - max(first, begin)) for begin, end in self.progress)
