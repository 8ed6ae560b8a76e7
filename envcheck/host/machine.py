"""The only door to the machine: files under a root prefix, processes with a deadline, the environment.

Everything that touches the outside goes through a `Host`, so a test can point it at a staged tree,
and nothing can be read without a size limit or run without a deadline.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from envcheck.core.errors import ExamineError, InputError
from envcheck.core.sanitize import Private

if TYPE_CHECKING:
    import subprocess  # noqa: TID251 - this module is the door

READ_LIMIT = 4 * 1024 * 1024
"""Bytes read from any one file unless a caller asks otherwise: a bomb is refused, not swallowed."""

_MOST_LINKS = 40  # as Linux itself (path_resolution(7))
_NOWHERE = f"/{os.urandom(16).hex()}"  # no tree can have put something there


class FinishedProcess(NamedTuple):
    """How a process ended: `code` is None if it outlived its deadline and was killed."""

    code: int | None
    out: str
    err: str


class Running(NamedTuple):
    """A process started in the background; `finish` collects it."""

    process: subprocess.Popen[bytes]

    def finish(self, deadline_s: float) -> FinishedProcess:
        """Wait at most `deadline_s` seconds, then kill; a process stuck in the kernel is left behind.

        What the process wrote before it was killed is returned, so that a probe that hung half-way
        still tells what it had found.
        """
        out, err = bytearray(), bytearray()
        try:
            ended = self._drain(out, err, deadline_s) and self._wait(deadline_s)
        except BaseException:  # Ctrl-C: the child has a session of its own, so nobody else ends it
            self.kill()
            raise
        if not ended:
            self.kill()
            # A short grace: a child in uninterruptible sleep never dies, and must not hold us.
            self._drain(out, err, 0.5)
            self._wait(0.5)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        code = self.process.returncode if ended else None
        return FinishedProcess(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def _drain(self, out: bytearray, err: bytearray, seconds: float) -> bool:
        """Read both streams, whether to their ends or until the time is up.

        What goes beyond READ_LIMIT is read and dropped: a process that never stops printing fills
        neither its pipe nor our memory.
        """
        import selectors

        until = time.monotonic() + seconds
        kept = {self.process.stdout: out, self.process.stderr: err}
        with selectors.DefaultSelector() as selector:
            for stream, buffer in kept.items():
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, buffer)
            while selector.get_map():
                left = until - time.monotonic()
                if left <= 0:
                    return False
                for key, _ in selector.select(left):
                    if not (chunk := os.read(key.fd, 1 << 16)):
                        selector.unregister(key.fileobj)
                    key.data.extend(chunk[: max(0, READ_LIMIT - len(key.data))])
        return True

    def _wait(self, seconds: float) -> bool:
        import subprocess  # noqa: TID251 - loaded where a process is started, and only then

        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def end(self, grace_s: float = 5.0) -> None:
        """Ask the process to end, which lets it end what it started; kill its session if it does not."""
        if not self.ended():
            self.process.terminate()
            if not self._wait(grace_s):
                self.kill()

    def kill(self) -> None:
        """Kill the whole session: a child of a shell script would live on and hold our pipes open."""
        import signal

        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            self.process.kill()


@dataclass(frozen=True, slots=True)
class Host:
    """The machine: `root` is put before every absolute path, `environ` is the environment."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))  # noqa: TID251

    def path(self, path: str | Path) -> Path:
        """Where an absolute path of the machine lies under the root prefix, links followed inside it."""
        return self.root / self.follow(path).lstrip("/") if self.rooted else Path(path)

    def read_text(self, path: str | Path, limit: int = READ_LIMIT) -> str | None:
        """The text of a file of the machine, undecodable bytes replaced; None if it cannot be read."""
        try:
            return read_file(self.path(path), limit).decode("utf-8", "replace")
        except InputError:
            return None

    def read_end(self, path: str | Path, length: int) -> str | None:
        """The last `length` bytes of a file of the machine as text; None if it cannot be read."""
        try:
            return read_start(self.path(path), length, from_end=True).decode("utf-8", "replace")
        except InputError:
            return None

    def read_records(self, path: str | Path, length: int, deadline_s: float) -> str | None:
        """What a device such as /dev/kmsg holds now, at most `length` bytes; None if it cannot be read.

        Never waits: the device is opened so that it says when it has no more. In a staged tree a
        regular file stands for it.
        """
        place = self.path(path)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not self.staged)):
                return None
            return _records(descriptor, length, time.monotonic() + deadline_s)
        finally:
            os.close(descriptor)

    def follow(self, path: str | Path) -> str:
        """An absolute path of the machine with its symbolic links followed inside the root.

        On an unpacked image a link to `/usr/bin/python3` means the image's, not ours. A missing part is
        returned as far as it goes: opening it then fails with the right reason. A loop leads nowhere.
        """
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
            here = f"{done}/{part}"
            try:
                target = str((self.root / here[1:]).readlink())
            except OSError:
                done = here
                continue
            links += 1
            if links > _MOST_LINKS:
                return _NOWHERE  # not `here`: whoever opens that follows its link, and out of the root
            done = "" if target.startswith("/") else done
            left += target.split("/")[::-1]
        return done or "/"

    def listdir(self, path: str | Path) -> tuple[str, ...]:
        """Names in a folder of the machine, sorted; empty if there is no such folder."""
        try:
            return tuple(sorted(os.listdir(self.path(path))))  # noqa: PTH208 - names, not paths
        except OSError:
            return ()

    def permissions(self, path: str | Path) -> str:
        """Who may open a file, as ` (crw-rw----, user 0, group 44)`; empty if there is no such file."""
        try:
            status = self.path(path).stat()
        except OSError:
            return ""
        return f" ({stat.filemode(status.st_mode)}, user {status.st_uid}, group {status.st_gid})"

    def exists(self, path: str | Path) -> bool:
        """Whether the machine has this file or folder."""
        return self.path(path).exists()

    def start(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Running:
        """Start a process without standard input, in its own session, from the root folder.

        Raises:
            OSError: the program does not exist or may not be run.
        """
        import subprocess  # noqa: TID251 - four milliseconds that a machine without a driver need not pay

        return Running(
            subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environ if environ is None else environ),
                cwd="/",
                start_new_session=True,
            )
        )

    def run(
        self, command: Sequence[str], deadline_s: float, environ: Mapping[str, str] | None = None
    ) -> FinishedProcess:
        """Run a process to its end or its deadline. Raises OSError as `start` does."""
        return self.start(command, environ).finish(deadline_s)

    @property
    def rooted(self) -> bool:
        """Whether the machine's files lie under a prefix."""
        return str(self.root) != "/"  # asked of every file: no path is made for it

    @property
    def staged(self) -> bool:
        """Whether this is a tree of files and not the machine we run on: nothing may be run for it."""
        return self.rooted


def read_file(path: Path, limit: int = READ_LIMIT) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Raises:
        InputError: no such file, not a regular file (a FIFO or device would hang us), too large,
            or unreadable.
    """
    data = read_start(path, limit + 1)
    if len(data) > limit:
        raise InputError(str(path), f"larger than {limit} bytes")
    return data


def _records(descriptor: int, length: int, until: float) -> str | None:
    parts: list[bytes] = []
    left = length
    while left > 0 and time.monotonic() < until:
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            break  # no more of it now
        except BrokenPipeError:
            continue  # the oldest record was overwritten while we read: the next one is there
        except OSError:
            return None
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts).decode("utf-8", "replace")


def read_start(path: Path, length: int, *, from_end: bool = False) -> bytes:
    """The first bytes of a regular file, however large, or the last; fewer than `length` if it is short.

    Raises:
        InputError: as `read_file`, but for its size.
    """
    try:
        # O_NONBLOCK: opening a FIFO nobody writes to must not hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # a zero byte in the name
        why = getattr(error, "strerror", None) or "cannot be opened"
        raise InputError(str(path), why.lower()) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InputError(str(path), f"expected a file, found {kind}")
        if from_end and status.st_size > length:
            os.lseek(descriptor, -length, os.SEEK_END)
        chunks: list[bytes] = []
        left = length
        while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 20))):
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise InputError(str(path), (error.strerror or "cannot be read").lower()) from None
    finally:
        os.close(descriptor)
    return b"".join(chunks)


@contextmanager
def ranges(path: Path) -> Iterator[Callable[[int, int], bytes]]:
    """Read ranges of a regular file, however large: so many bytes from an offset on, fewer where it ends.

    Raises:
        OSError: it is not there, no regular file, or may not be read; later failures read as the end.
        ValueError: a zero byte in its name.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        size = status.st_size

        def read(offset: int, length: int) -> bytes:
            if not 0 <= offset < size or length <= 0:
                return b""
            try:
                return os.pread(descriptor, min(length, size - offset), offset)
            except OSError:
                return b""

        yield read
    finally:
        os.close(descriptor)


CHUNK = 4 << 20
"""Bytes of a stream that are read at once."""


def chunks(name: str) -> Iterator[bytes]:
    """A file as it comes, however long; a pipe is waited for to its end.

    Raises:
        InputError: no such file, a folder, or it cannot be read.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "cannot be opened"
        raise InputError(name, why.lower()) from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise InputError(name, "expected a file, found a directory")
        yield from _read_on(descriptor, name)
    finally:
        os.close(descriptor)


def standard_input() -> Iterator[bytes]:
    """Standard input as it comes, to its end.

    Raises:
        InputError: it is closed, or cannot be read.
    """
    if sys.stdin is None:
        raise InputError("standard input", "is closed")
    return _read_on(sys.stdin.fileno(), "standard input")


def _read_on(descriptor: int, name: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, CHUNK)
        except OSError as error:
            raise InputError(name, (error.strerror or "cannot be read").lower()) from None
        if not chunk:
            return
        yield chunk


def is_file(path: Path) -> bool:
    """Whether there is a file; what cannot be a path (too long, a loop of links) is none."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for these


def exists(path: Path) -> bool:
    """Whether something is there, as `is_file`."""
    return os.path.exists(path)  # noqa: PTH110


def named(path: Path) -> bool:
    """Whether a folder has this name in it, wherever the link leads that it may be."""
    return os.path.lexists(path)


def followed(path: Path) -> str:
    """Where a path leads, links followed as far as they can be."""
    return os.path.realpath(path)


def names(folder: Path) -> tuple[str, ...]:
    """Names in a folder of the user's, sorted.

    Raises:
        InputError: it is not there, or closed.
    """
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names, not paths
    except OSError as error:
        raise InputError(str(folder), (error.strerror or "cannot be read").lower()) from None


def sha256(path: Path, until: float) -> str | None:
    """The sha256 of a regular file in hexadecimal digits, read in pieces; None if the time is up.

    `until` is a moment of the monotonic clock, in seconds.

    Raises:
        OSError: it is not there, no regular file, or cannot be read.
    """
    import hashlib

    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        digest = hashlib.sha256()
        while piece := os.read(descriptor, 1 << 20):
            if time.monotonic() > until:
                return None
            digest.update(piece)
        return digest.hexdigest()
    finally:
        os.close(descriptor)


def today() -> str:
    """The day in UTC, as an ISO date."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def built_on() -> str:
    """The day that a build says it is made on: SOURCE_DATE_EPOCH, which makes builds repeat, else today."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")  # noqa: TID251 - this module is the door
    if epoch.isascii() and epoch.isdecimal() and len(epoch) <= 11:  # noqa: PLR2004 - a year of four digits
        return time.strftime("%Y-%m-%d", time.gmtime(int(epoch)))
    return today()


def here() -> str:
    """The folder we were started in; empty if it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - the hot path
    except OSError:
        return ""


def own_python() -> str:
    """The interpreter that runs envcheck."""
    return sys.executable


@contextmanager
def folder_made(path: Path) -> Iterator[Path]:
    """A folder of the user's for us alone, made if it is not there; it stays.

    Raises:
        InputError: it cannot be made, or another envcheck is at work in it.
    """
    import fcntl

    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(str(path), (error.strerror or "cannot be made").lower()) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(str(path), "another envcheck is at work in it") from None
    try:
        yield path.resolve()
    finally:
        os.close(lock)


def least_recently_used(folder: Path, pattern: str, kept: int) -> list[Path]:
    """The folders of this pattern but the `kept` most recently touched, oldest first."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    return found[: max(0, len(found) - kept)]


def remove_folder(path: Path) -> None:
    """Remove a folder of ours with all it holds; what cannot be removed stays."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def touch(path: Path) -> None:
    """Mark a folder as used now; make it if it is not there."""
    path.mkdir(parents=True, exist_ok=True)
    os.utime(path)


def free_mib(path: Path) -> int:
    """MiB that we may still write on the disk of a folder."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize // (1024 * 1024)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of our own that something can be written to; gone afterwards, where signals raise too.

    Raises:
        ExamineError: there is no room for one.
    """
    import shutil
    import tempfile

    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="envcheck-"))
        (folder / "room").write_bytes(bytes(1 << 16))
        (folder / "room").unlink()
    except OSError as error:
        shutil.rmtree(folder or "", ignore_errors=True)
        why = (error.strerror or "cannot be written").lower()
        raise ExamineError(f"no scratch folder: {why} (TMPDIR names where one is made)") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def signal_name(number: int) -> str:
    """The name of a signal: SIGKILL of 9."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time one


class ProcessExit(SystemExit):
    """A signal asks this process to end; `code` is the exit code that a shell has for it."""

    def __init__(self, number: int) -> None:
        """Take the signal's number."""
        import signal

        super().__init__(128 + number)
        self.name = signal.Signals(number).name


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack, as SIGINT does, so that what was begun is ended; else they kill.

    Raises:
        Ended: one came.
    """
    import signal

    def end(number: int, _: object) -> None:
        raise ProcessExit(number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's stays
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def find_program(host: Host, name: str) -> str | None:
    """A program beside envcheck's own interpreter, else on the host's PATH; None if there is none."""
    folders = [str(Path(sys.executable).parent), *host.environ.get("PATH", "").split(os.pathsep)]
    candidates = (Path(folder) / name for folder in folders if folder)
    return next((str(path) for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


def variable(name: str) -> str | None:
    """An environment variable of envcheck's own process."""
    return os.environ.get(name)  # noqa: TID251 - this module is the door


def homes() -> tuple[str, ...]:
    """The home folder, which no report shows; empty where there is none to hide."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    return (home,) if home not in ("~", "/", "") else ()


def private() -> Private:
    """What no report names of this machine: home folders, its user, its own names."""
    machine = os.uname().nodename if hasattr(os, "uname") else variable("COMPUTERNAME") or ""
    user = variable("USER") or variable("LOGNAME") or next(iter(homes()), "").rpartition("/")[2]
    return Private(homes(), user, tuple(dict.fromkeys((machine, machine.partition(".")[0]))))


def node_name() -> str:
    """The name of this node, for those who ask which node it is; reports do not show it."""
    return os.uname().nodename


def mark() -> str:
    """A word that no other process and no other start will choose."""
    return os.urandom(8).hex()


_PACKAGE = Path(__file__).resolve().parent.parent


def folder_texts(folder: Path, suffix: str, stem: str = "", but: str = "") -> dict[str, str]:
    """The files of a folder and its subfolders by their names in it, with forward slashes.

    `stem` is how their names begin, `but` a subfolder that is left unread.

    Raises:
        InputError: it is not a folder, or a file cannot be read.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "expected a folder")
    found = sorted(path for path in folder.rglob(f"{stem}*{suffix}") if path.is_file())
    names = {path.relative_to(folder): path for path in found}
    return {
        name.as_posix(): read_file(path).decode("utf-8", "replace")
        for name, path in names.items()
        if name.parts[0] != but
    }


def write_file(path: Path, text: str) -> None:
    """Write a text file; folders that are missing are made.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), (error.strerror or "cannot be written").lower()) from None


def append_file(path: Path, text: str) -> None:
    """Write a text at the end of a file, which is made if it is not there.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InputError(str(path), (error.strerror or "cannot be written").lower()) from None


def replaceable(path: Path) -> None:
    """Say before the work begins that a file cannot be written there.

    Raises:
        InputError: the folder is missing or closed, or what stands there is no regular file.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise InputError(str(path), (error.strerror or "cannot be written").lower()) from None
    else:
        if stat.S_ISLNK(status.st_mode):
            raise InputError(str(path), "is a symbolic link; name the file it points to")
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InputError(str(path), f"expected a file, found {kind}")
    if not path.name or not path.parent.is_dir():
        raise InputError(str(path), "the folder it would lie in is not there")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(str(path), "the folder it would lie in cannot be written")


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file that is there."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def replace_file(path: Path, text: str) -> None:
    """Put a text in the place of a file, whole or not at all, whenever this process ends.

    The old file's permissions stay; a new one has those of any file of this user.

    Raises:
        InputError: as `replaceable`.
        ExamineError: it could not be written (a full disk); the old file is untouched.
    """
    replaceable(path)
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    with signals_raise():
        _swap(path, draft, text)


def _swap(path: Path, draft: Path, text: str) -> None:
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(draft, flags, 0o666), "wb") as file:  # noqa: PTH123 - a descriptor
                if path.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())  # or a crash could leave the new name with nothing in it
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise ExamineError(f"{path}: {why}; what was there before is untouched") from None


def shipped_text(name: str) -> str | None:
    """A file the build put into the package (`judging.json`); None in a checkout, which has sources."""
    path = _PACKAGE / "shipped" / name
    return read_file(path, limit=64 * READ_LIMIT).decode() if path.is_file() else None


def package_folder(name: str) -> Path:
    """A folder that lies beside envcheck's own modules: scripts for the target's interpreter."""
    return _PACKAGE / name


def package_text(name: str) -> str:
    """A file that lies beside envcheck's own modules."""
    return read_file(_PACKAGE / name).decode()


def source_texts(folder: str, suffix: str, stem: str = "", but: str = "") -> dict[str, str]:
    """The files of a top-level folder: of the checkout, or what the build put into the package.

    Names are relative to the folder, with forward slashes; `stem` is how they must begin,
    `but` a subfolder that is left unread.
    """
    for base in (_PACKAGE / "shipped" / folder, _PACKAGE.parent / folder):
        if base.is_dir():
            return folder_texts(base, suffix, stem, but)
    return {}
