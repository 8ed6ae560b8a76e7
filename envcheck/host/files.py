"""Reading, writing, replacing and listing files: regular files only, and at most a given size.

Paths are those of envcheck's own process. For files of the machine that is judged, use `machine.Host`.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from envcheck.core.errors import ExamineError, InputError

READ_LIMIT = 4 * 1024 * 1024
"""Bytes read from one file unless a caller sets another limit; a larger file is refused."""

CHUNK = 4 << 20
"""Bytes of a stream that are read at once."""

WRITER_WAIT_S = 3
"""Seconds to wait for a writer when a named pipe has none."""

STDIN = "-"
"""The argument that means standard input."""

STDIN_NAME = "standard input"
"""What reports and messages call standard input."""

_POLL_MS = 200

# O_NONBLOCK: without it, opening a FIFO that has no writer would hang.
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


# --- reading ------------------------------------------------------------------------------------------


def read_file(path: Path, limit: int = READ_LIMIT) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes.

    Raises:
        InputError: no such file, not a regular file (a FIFO or device would hang), too large, or
            unreadable.
    """
    data = read_start(path, limit + 1)
    if len(data) > limit:
        raise InputError(str(path), f"larger than {limit} bytes")
    return data


def read_start(path: Path, length: int, *, from_end: bool = False) -> bytes:
    """Return the first `length` bytes of a regular file, or the last with `from_end`; all of a shorter one.

    Raises:
        InputError: as `read_file`, but no file is too large.
    """
    descriptor = _open(str(path), _READ_FLAGS)
    try:
        status = os.fstat(descriptor)
        _check_regular(str(path), status)
        if from_end and status.st_size > length:
            os.lseek(descriptor, -length, os.SEEK_END)
        pieces: list[bytes] = []
        left = length
        while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise InputError(str(path), _reason(error, "cannot be read")) from None
    finally:
        os.close(descriptor)
    return b"".join(pieces)


@contextmanager
def open_ranges(path: Path) -> Iterator[Callable[[int, int], bytes]]:
    """Open a regular file of any size; yield a function of offset and length that returns these bytes.

    It returns fewer bytes where the file ends, and none if reading fails.

    Raises:
        OSError: no such file, not a regular file, or unreadable.
        ValueError: a zero byte in the path.
    """
    descriptor = os.open(path, _READ_FLAGS)
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


def read_chunks(name: str) -> Iterator[bytes]:
    """Yield a file of any size in chunks; a pipe is read to its end.

    Raises:
        InputError: no such file, a folder, unreadable, or a pipe without a writer.
    """
    descriptor = _open(name, _READ_FLAGS)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise InputError(name, "expected a file, found a directory")
        if stat.S_ISFIFO(mode) and (start := _await_writer(descriptor, name)):
            yield start
        os.set_blocking(descriptor, True)
        yield from _chunks(descriptor, name)
    finally:
        os.close(descriptor)


def read_argument(name: str, limit: int = READ_LIMIT) -> bytes:
    """Return the bytes of what an argument names: a regular file, a pipe such as `<(pip freeze)`, or `-`.

    Raises:
        InputError: as `read_file`, or a pipe without a writer; at most `limit` bytes are read.
    """
    if name != STDIN and not is_pipe(Path(name)):
        return read_file(Path(name), limit)
    read = bytearray()
    for chunk in read_standard_input() if name == STDIN else read_chunks(name):
        read += chunk
        if len(read) > limit:
            raise InputError(argument_name(name), f"larger than {limit} bytes")
    return bytes(read)


def argument_name(argument: str) -> str:
    """Return what messages call the file that an argument names."""
    return STDIN_NAME if argument == STDIN else argument


def _await_writer(descriptor: int, name: str) -> bytes:
    """Wait until a pipe, opened without blocking, has a writer or had one; return what was read meanwhile.

    Raises:
        InputError: there was no writer in time, or it is unreadable.
    """
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    until = time.monotonic() + WRITER_WAIT_S
    while time.monotonic() < until:
        try:
            start = os.read(descriptor, CHUNK)
        except BlockingIOError:  # a writer that has not written yet
            return b""
        except OSError as error:
            raise InputError(name, _reason(error, "cannot be read")) from None
        # Before a writer comes, a read returns at once and a poll waits; after it left, both return at once.
        if start or poll.poll(_POLL_MS):
            return start
    raise InputError(name, f"a pipe without a writer (waited {WRITER_WAIT_S} s)")


def read_standard_input() -> Iterator[bytes]:
    """Return the chunks of standard input, to its end.

    Raises:
        InputError: it is closed or unreadable.
    """
    if sys.stdin is None:
        raise InputError(STDIN_NAME, "is closed")
    return _chunks(sys.stdin.fileno(), STDIN_NAME)


def _chunks(descriptor: int, name: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, CHUNK)
        except OSError as error:
            raise InputError(name, _reason(error, "cannot be read")) from None
        if not chunk:
            return
        yield chunk


def sha256(path: Path, until: float) -> str | None:
    """Return the SHA-256 of a regular file in hexadecimal digits, or None if the time is up.

    `until` is a time of the monotonic clock, in seconds.

    Raises:
        OSError: no such file, not a regular file, or unreadable.
    """
    import hashlib

    descriptor = os.open(path, _READ_FLAGS)
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


def folder_texts(folder: Path, suffix: str, stem: str = "", excluded: Collection[str] = ()) -> dict[str, str]:
    """Return the texts of the files in a folder and its subfolders, by name.

    Names are relative to the folder, with forward slashes. File names begin with `stem` and end with
    `suffix`; the subfolders `excluded` are not read.

    Raises:
        InputError: it is not a folder, or a file cannot be read.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "expected a folder")
    found = sorted(path for path in folder.rglob(f"{stem}*{suffix}") if path.is_file())
    paths = {path.relative_to(folder): path for path in found}
    return {
        name.as_posix(): read_file(path).decode("utf-8", "replace")
        for name, path in paths.items()
        if name.parts[0] not in excluded
    }


def _open(name: str, flags: int) -> int:
    try:
        return os.open(name, flags)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise InputError(name, _reason(error, "cannot be opened")) from None


def _check_regular(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise InputError(name, f"expected a file, found {kind}")


def _reason(error: Exception, otherwise: str) -> str:
    """Return the system's words for an error in lower case, or `otherwise` if it has none."""
    return (getattr(error, "strerror", None) or otherwise).lower()


# --- looking ------------------------------------------------------------------------------------------


def is_file(path: Path) -> bool:
    """Return whether the path leads to a file; False if it cannot be a path (too long, a loop of links)."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for these


def is_folder(name: str) -> bool:
    """Return whether a name leads to a folder; False for an empty name, or one that cannot be a path."""
    return os.path.isdir(name)  # noqa: PTH112 - Path.is_dir raises for these, and takes no name for `.`


def is_pipe(path: Path) -> bool:
    """Return whether the path leads to a pipe; False if there is nothing, or it cannot be a path."""
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def path_exists(path: Path) -> bool:
    """Return whether the path leads to anything; False if it cannot be a path, as `is_file`."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises for these


def name_exists(path: Path) -> bool:
    """Return whether the folder has an entry of this name, even a link that leads nowhere."""
    return os.path.lexists(path)


def resolve_links(path: Path) -> str:
    """Return the absolute path with its symbolic links followed as far as they exist."""
    return os.path.realpath(path)


def list_folder(folder: Path) -> tuple[str, ...]:
    """Return the names in a folder, sorted.

    Raises:
        InputError: no such folder, or it cannot be read.
    """
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names, not paths
    except OSError as error:
        raise InputError(str(folder), _reason(error, "cannot be read")) from None


def same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same existing file."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def free_mib(path: Path) -> int:
    """Return how many MiB an unprivileged user may still write on the disk of a folder."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize // (1024 * 1024)


# --- writing ------------------------------------------------------------------------------------------


def write_file(path: Path, text: str) -> None:
    """Write a text file; create missing folders.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), _reason(error, "cannot be written")) from None


def store_file(path: Path, data: bytes) -> None:
    """Write a file in one step; create missing folders. It works in any thread.

    Raises:
        ExamineError: it cannot be written; an old file is unchanged.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_bytes(data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ExamineError(f"{path}: {_reason(error, 'cannot be written')}") from None


def append_file(path: Path, text: str) -> None:
    """Append a text to a file; create the file and missing folders.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise InputError(str(path), _reason(error, "cannot be written")) from None


def check_replaceable(path: Path) -> None:
    """Check, before long work begins, that `replace_file` will be able to write here.

    Raises:
        InputError: the folder is missing or not writable, or the path is no regular file.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise InputError(str(path), _reason(error, "cannot be written")) from None
    else:
        if stat.S_ISLNK(status.st_mode):
            raise InputError(str(path), "is a symbolic link; name the file it points to")
        _check_regular(str(path), status)
    if not path.name or not path.parent.is_dir():
        raise InputError(str(path), "the folder of this file does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(str(path), "the folder of this file is not writable")


def replace_file(path: Path, text: str) -> None:
    """Replace a file by a text in one step: whenever this process ends, the file has the old text or the new.

    The old file's permissions stay; a new file gets the user's default permissions.

    Raises:
        InputError: as `check_replaceable`.
        ExamineError: writing failed (a full disk); the old file is unchanged.
    """
    from envcheck.host.signals import raise_on_termination

    check_replaceable(path)
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    with raise_on_termination():
        try:
            _write_and_rename(path, draft, text)
        except OSError as error:
            why = _reason(error, "cannot be written")
            raise ExamineError(f"{path}: {why}; the old content is unchanged") from None


def _write_and_rename(path: Path, draft: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(draft, flags, 0o666), "wb") as file:  # noqa: PTH123 - a descriptor
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())  # without it, a crash could leave an empty file under the new name
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


# --- folders ------------------------------------------------------------------------------------------


@contextmanager
def locked_folder(path: Path) -> Iterator[Path]:
    """Create a folder if it is missing, and keep other envcheck processes out of it; it is not removed.

    Raises:
        InputError: it cannot be created, or another envcheck uses it.
    """
    import fcntl

    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(str(path), _reason(error, "cannot be created")) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InputError(str(path), "another envcheck is using this folder") from None
    try:
        yield path.resolve()
    finally:
        os.close(lock)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary folder with room to write; remove it afterwards, also after a signal that raises.

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
        why = _reason(error, "cannot be written")
        raise ExamineError(f"cannot create a temporary folder: {why} (TMPDIR says where)") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_path() -> Iterator[Path]:
    """Choose the path of a temporary folder that a child process creates; remove the folder afterwards.

    Nothing exists before the child does, so the child can remove everything if this process is killed.
    """
    import shutil

    path = _temporary_parent() / f"envcheck-{os.urandom(8).hex()}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _temporary_parent() -> Path:
    """Return the first writable folder of those that `tempfile` tries, without writing a file there."""
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    folders = (*named, "/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - only the parent of a folder of our own
    writable = (Path(folder).absolute() for folder in folders if os.access(folder, os.W_OK | os.X_OK))
    return next(writable, Path.cwd())


def least_recently_used(folder: Path, pattern: str, kept: int) -> list[Path]:
    """Return the subfolders that match, oldest first, without the `kept` most recently used."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    return found[: max(0, len(found) - kept)]


def remove_folder(path: Path) -> None:
    """Remove a folder and all it holds; leave what cannot be removed."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def mark_used(path: Path) -> None:
    """Set a folder's time of last use to now; create the folder if it is missing."""
    path.mkdir(parents=True, exist_ok=True)
    os.utime(path)
