"""Events, frames and places of a log in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envcheck.core.facts import package_key
from envcheck.core.findings import Report
from envcheck.core.sanitize import hide_secrets
from envcheck.logs.diagnosis import Cause
from envcheck.logs.events import Frame, Log, without_wrapper
from envcheck.logs.own_code import checked_out, own_code

SHORT, LONG = 160, 400  # characters shown of one line of a log


FEW = 3  # ranges and rules shown for a missing name


LISTED = 6  # items shown of a long list


def with_version(package: str, report: Report) -> str:
    """Return a package with its release in the judged environment, if that is known."""
    version = report.inventory.known(package_key(package)) if package else None
    return f"{package} {version}" if version else package


def place_in_log(cause: Cause, log: Log) -> str:
    """Return the ranks and lines of an event: `rank 0, lines 3-11`."""
    ranks = cause.event.ranks
    who = f"rank {ranks[0]}, " if len(ranks) == 1 else f"ranks {_several(ranks)}, " if ranks else ""
    first, last = cause.event.first, cause.event.last
    if first > log.lines:
        return f"{who}the end"
    if cause.event.what == "stated":
        return f"{who}line {first}"
    return f"{who}line {first}" if first == last else f"{who}lines {first}-{last}"


def _several(ranks: Sequence[str]) -> str:
    more = f" and {len(ranks) - LISTED} more" if len(ranks) > LISTED else ""
    return ", ".join(ranks[:LISTED]) + more


def event_text(cause: Cause, limit: int = LONG) -> str:
    """Return the event of a cause in one line: the first exception, or the line that was recognised."""
    event = cause.event
    if (first := cause.told) is not None:
        message = without_wrapper(first.message) if limit == SHORT else first.message
        text = f"{first.name}: {message}" if message else first.name
        text = message if message != first.message else text
    elif event.what == "raised":
        text = "a traceback whose exception is not in the log"
    elif event.what == "ended":
        text = " ".join(event.text.split("\n")[0].split())
    elif cause.match:
        texts = dict(zip(event.numbers, event.text.split("\n"), strict=False))
        text = _without_raise(texts.get(cause.match.lines[0], event.text.split("\n")[0]))
    else:
        text = _OF_LOGGERS.sub("", " ".join(event.text.strip().split("\n")[0].split()))
    text = hide_secrets(
        text[: 10 * limit]
    )  # longer than what is shown, so that a secret is recognised before the text is cut
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


_OF_LOGGERS = re.compile(r"^(?:\[[^\]]{1,120}\] ?){2,}(?=\S)")
"""What torch writes before a message: time, file and process group."""


def _without_raise(line: str) -> str:
    """Return a line; if it is the source `raise X("…")`, return the exception as it would be printed."""
    found = re.match(r"\s*raise ([\w.]+)\([fr]?[\"']?(.*?)[\"']?\)?$", line.strip())
    return f"{found[1]}: {found[2]}".rstrip(": ") if found else line.strip()


def bare_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


def frame_text(frame: Frame) -> str:
    """Return a stack frame, its path relative to site-packages: `transformers/trainer.py:12 in train`."""
    file = frame.file
    for folder in ("site-packages/", "dist-packages/"):
        file = file.rpartition(folder)[2]
    if file == frame.file and own_code(frame):
        file = file.rpartition("/")[2]
    elif library := checked_out(file.replace("\\", "/")):
        file = f"{library}/{f'/{file}'.replace(chr(92), '/').rpartition(f'/{library}/')[2]}"
    # Of a command in somebody's home the folder stays, and with it the name of its owner.
    return f"{hide_secrets(file)}:{frame.line}" + (f" in {frame.name}" if frame.name else "")
