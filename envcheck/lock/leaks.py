"""The last check of a lock before it is printed: it must reveal nothing of the machine it was made on."""

from __future__ import annotations

import re
from collections.abc import Collection

from packaging.version import Version

from envcheck.core.errors import ExamineError
from envcheck.lock.model import Lock

# Not compiled: serving a shipped lock needs none of these, and compiling takes a quarter of Python's start.
_LEAKS = (
    ("a URL", r"://|\bfile:"),
    ("an index option", r"--(?:extra-)?index-url|--find-links|--trusted-host|--no-index"),
    ("an index option", r"(?m)^\s*-[if]\b"),
    # The install command contains `/^name==/` and `$/d`, which are not paths: in a path, a letter or a digit
    # follows the slash. The command may also read /dev/stdin, and a Dockerfile empties the lists of apt.
    (
        "an absolute path",
        r"(?m)(?:^|[\s\"'=(,:])(?:~?/(?!dev/stdin |var/lib/apt/lists/)[A-Za-z0-9_.]|[A-Za-z]:\\)",
    ),
    ("an address or a login", r"@"),
)
_LOCAL_VERSION = r"[0-9]\+([A-Za-z0-9.]+)"


def checked(text: str, *locks: Lock) -> str:
    """Return a text that holds these locks unchanged if it reveals nothing of this machine.

    Raises:
        ExamineError: see `refuse_leaks`.
    """
    labels = [label for lock in locks for label in local_labels(lock)]
    refuse_leaks(text, labels, [address for lock in locks for address in wheel_addresses(lock)])
    return text


def refuse_leaks(text: str, allowed_labels: Collection[str] = (), addresses: Collection[str] = ()) -> None:
    """Check the text of a lock, comments included.

    `allowed_labels` are the local version labels (`cu128`) that the user chose; any other label means that a
    local wheel of this machine got into the lock. `addresses` are those of the pins and of their
    indexes, which are allowed.

    Raises:
        ExamineError: a URL, an index option, an absolute path, a login or a local version that was not
            requested. The message gives the line number but never repeats the line.
    """
    for address in addresses:
        text = text.replace(f" @ {address}", "")
        text = text.replace(f'url = "{address}"', "").replace(f'index = "{address}"', "")
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in _LEAKS:
            if re.search(pattern, line):
                raise ExamineError(f"refusing to print the lock: line {number} holds {what}")
        for label in re.findall(_LOCAL_VERSION, line):
            if label not in allowed_labels:
                raise ExamineError(
                    f"refusing to print the lock: line {number} holds a local version that was not requested"
                )


def local_labels(lock: Lock) -> list[str]:
    """Return the local version labels of the pins; a backend has already refused unrequested ones."""
    return [label for pin in lock.pins if (label := Version(pin.version).local)]


def wheel_addresses(lock: Lock) -> list[str]:
    """Return the addresses of the pins that have one, and of the indexes that list them."""
    return [address for pin in lock.pins for address in (pin.url, pin.index) if address]
