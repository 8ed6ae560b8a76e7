"""`Host`: the machine that is judged, live or as a tree of its files (an unpacked image).

Every path of the machine is resolved under the root of the tree. Reads have a size limit, processes a
deadline.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from envcheck.core.errors import InputError
from envcheck.host.files import READ_LIMIT, read_file, read_start
from envcheck.host.processes import FinishedProcess, Running, start_process

_MOST_LINKS = 40  # as Linux itself (path_resolution(7))
_NOWHERE = f"/{os.urandom(16).hex()}"  # random, so that no tree can contain it


class Host:
    """Machine: `root` is put before every absolute path, `environ` is its environment."""

    def __init__(self, root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> None:
        """Take the root, and the environment's variables; without them, a copy of this process's."""
        self.root = root
        self.environ = dict(os.environ) if environ is None else environ

    @property
    def rooted(self) -> bool:
        """Return whether the machine's files lie under a prefix."""
        return str(self.root) != "/"  # called for every file, so it must not build a path

    @property
    def staged(self) -> bool:
        """Return whether this is a tree of files, in which nothing may be run, and not the live machine."""
        return self.rooted

    def path(self, path: str | Path) -> Path:
        """Return where an absolute path of the machine lies under the root, its links followed inside it."""
        if self.rooted:
            return self.root / self.follow(path).lstrip("/")
        return Path(path) if "\0" not in str(path) else Path(_NOWHERE)

    def follow(self, path: str | Path) -> str:
        """Return an absolute path of the machine with its symbolic links followed inside the root.

        In an unpacked image, a link to `/usr/bin/python3` means the image's Python. Missing parts are kept,
        so that opening the path fails with the right reason. For a loop of links, the result is a path that
        does not exist.
        """
        if "\0" in str(path):  # no file can have such a name, and the system's calls raise for it
            return _NOWHERE
        if not self.rooted:
            return os.path.realpath(path)
        done, left, links = "", str(path).split("/")[::-1], 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            current = f"{done}/{part}"
            try:
                target = str((self.root / current[1:]).readlink())
            except OSError:
                done = current
                continue
            links += 1
            if links > _MOST_LINKS:
                return _NOWHERE  # not `current`: opening that would follow its link out of the root
            done = "" if target.startswith("/") else done
            left += target.split("/")[::-1]
        return done or "/"

    def read_text(self, path: str | Path, limit: int = READ_LIMIT) -> str | None:
        """Return the text of a file, undecodable bytes replaced; None if it cannot be read."""
        try:
            return read_file(self.path(path), limit).decode("utf-8", "replace")
        except InputError:
            return None

    def read_end(self, path: str | Path, length: int) -> str | None:
        """Return the last `length` bytes of a file as text; None if it cannot be read."""
        try:
            return read_start(self.path(path), length, from_end=True).decode("utf-8", "replace")
        except InputError:
            return None

    def read_records(self, path: str | Path, length: int, deadline_s: float) -> str | None:
        """Return what a device such as /dev/kmsg holds now, up to about `length` bytes; None if unreadable.

        Never waits for more records: the device is opened non-blocking. In a staged tree, a regular file
        stands for the device.
        """
        try:
            descriptor = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not self.staged)):
                return None
            return _read_records(descriptor, length, time.monotonic() + deadline_s)
        finally:
            os.close(descriptor)

    def listdir(self, path: str | Path) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if there is no such folder."""
        try:
            return tuple(sorted(os.listdir(self.path(path))))  # noqa: PTH208 - names, not paths
        except OSError:
            return ()

    def permissions(self, path: str | Path) -> str:
        """Return mode, user and group as ` (crw-rw----, user 0, group 44)`; empty if the file is missing."""
        try:
            status = self.path(path).stat()
        except OSError:
            return ""
        return f" ({stat.filemode(status.st_mode)}, user {status.st_uid}, group {status.st_gid})"

    def exists(self, path: str | Path) -> bool:
        """Return whether the machine has this file or folder."""
        return self.path(path).exists()

    def start(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Running:
        """Start a process as `start_process` does, by default in the machine's environment.

        Raises:
            OSError: the program does not exist or may not be run.
        """
        return start_process(command, self.environ if environ is None else environ)

    def run(
        self, command: Sequence[str], deadline_s: float, environ: Mapping[str, str] | None = None
    ) -> FinishedProcess:
        """Run a process to its end or its deadline.

        Raises:
            OSError: as `start`.
        """
        return self.start(command, environ).finish(deadline_s)


def find_program(host: Host, name: str) -> str | None:
    """Return a program beside envcheck's own interpreter, else on the host's PATH, or None."""
    folders = [str(Path(sys.executable).parent), *host.environ.get("PATH", "").split(os.pathsep)]
    candidates = (Path(folder) / name for folder in folders if folder)
    return next((str(path) for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def _read_records(descriptor: int, length: int, until: float) -> str | None:
    records: list[bytes] = []
    left = length
    while left > 0 and time.monotonic() < until:
        try:
            record = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            break  # no more records now
        except BrokenPipeError:
            continue  # the oldest record was overwritten meanwhile; the next read returns the one after it
        except OSError:
            return None
        if not record:
            break
        records.append(record)
        left -= len(record)
    return b"".join(records).decode("utf-8", "replace")
