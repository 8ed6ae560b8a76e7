"""A command run in the foreground as if nobody stood between: its bytes, its terminal, its signals, its end.

Edge, beside `host`. Standard input is the command's own. What it prints is passed on as it comes, through
a terminal of its own where ours is one, and a bounded part is kept: the beginning, the places around the
first tracebacks, the end.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

_READ = 1 << 18  # bytes read at once; a pipe is made to hold as much
_HEAD, _AROUND, _TAIL = 1 << 18, 1 << 18, 4 << 20
_REGIONS = 8
_PARTIAL = 1 << 16  # bytes of a line without an end before it is kept as it is
_LAST_WORDS_S = 0.2  # for what is still in the pipe when the command has ended

_FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT),
)
_FROM_KERNEL = 128  # si_code of what a terminal sends, which the command got too

ASKED_TO_END = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})

NO_FAILURE = frozenset({signal.SIGINT, signal.SIGPIPE})
"""Ends by somebody's wish: Ctrl-C, or a reader that has seen enough."""


class Gap(NamedTuple):
    """Lines and bytes that were printed and not kept."""

    lines: int
    size: int


class KeptOutput:
    """What is kept of a stream however long: its beginning, around the first tracebacks, its end."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._pieces: list[bytes | Gap] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left = _HEAD  # bytes that are still taken as they come
        self._regions = 0
        self._partial: dict[int, bytes] = {}

    def add(self, stream: int, chunk: bytes) -> None:
        """The next bytes of one of the streams; lines of two are not mixed."""
        data = self._partial.pop(stream, b"") + chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) < _PARTIAL:
            self._partial[stream] = data
            return
        if end and end < len(data):
            self._partial[stream] = data[end:]
        self._line(data[: end or len(data)])

    def _line(self, data: bytes) -> None:
        if self._left <= 0 and self._regions < _REGIONS and b"Traceback (most recent call last)" in data:
            self._regions += 1
            self._left = _AROUND
            before = self._tail.pop() if self._tail else b""
            self._tail_size -= len(before)
            self._drop(0)
            data = before + data
        if self._left > 0:
            self._pieces.append(data)
            self._left -= len(data)
            return
        self._tail.append(data)
        self._tail_size += len(data)
        self._drop(_TAIL)

    def _drop(self, most: int) -> None:
        """Forget the oldest of the tail until so many bytes are left."""
        while self._tail_size > most:
            data = self._tail.popleft()
            self._tail_size -= len(data)
            gap = Gap(data.count(b"\n"), len(data))
            if self._pieces and isinstance(last := self._pieces[-1], Gap):
                gap = Gap(last.lines + gap.lines, last.size + gap.size)
                self._pieces.pop()
            self._pieces.append(gap)

    def pieces(self) -> Iterator[bytes | Gap]:
        """What was kept, in its order."""
        yield from self._pieces
        yield from self._tail
        yield from self._partial.values()


class CommandExit(NamedTuple):
    """How a command ended: its exit code, negative for a signal, and the signals we were asked to end by."""

    code: int
    asked: frozenset[int]


def run(command: Sequence[str], environ: Mapping[str, str], kept: KeptOutput) -> CommandExit:
    """Run a command to its end; what it prints is passed on and added to `kept`.

    Raises:
        OSError: it does not exist or may not be run.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns of an end
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD, signal.SIGWINCH})
    streams = _Streams()
    try:
        process = os.posix_spawnp(
            command[0],
            list(command),
            dict(environ),
            file_actions=streams.actions(),
            setsigmask=masked,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them, the command should not
        )
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        raise
    finally:
        streams.started()
    passed = _Signals(process, streams.resize)
    code = streams.pass_on(kept, process, passed)
    signal.pthread_sigmask(signal.SIG_SETMASK, masked)  # from here on they are for us
    return CommandExit(code, frozenset(passed.asked))


# --- signals ------------------------------------------------------------------------------------------


class _Signals:
    """Signals that come to us go to the command, but for those that a terminal sends to both of us."""

    def __init__(self, process: int, resize: Callable[[], bool]) -> None:
        self.process = process
        self.asked: set[int] = set()
        self._resize = resize
        self.woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            info = signal.sigwaitinfo({*_FORWARDED, signal.SIGCHLD, signal.SIGWINCH})
            if info.si_signo == signal.SIGCHLD:
                os.write(self._wake, b"!")
                continue
            if info.si_signo in ASKED_TO_END:
                self.asked.add(info.si_signo)
            # Of our terminal's size the kernel tells the command too early: its own has not changed yet.
            resized = info.si_signo == signal.SIGWINCH and self._resize()
            if resized or info.si_code != _FROM_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process, info.si_signo)


# --- streams ------------------------------------------------------------------------------------------


class _Streams:
    """Standard output and error of the command: what it gets, and where we pass it on to."""

    def __init__(self) -> None:
        self._into: dict[int, int] = {}  # what we read from → what we write to
        self._given: dict[int, int] = {}  # the command's descriptor → what it gets there
        self._terminals: list[tuple[int, int]] = []
        out, err = (_status(number) for number in (1, 2))
        if out is not None:
            self._open(1)
        if err is not None and out is not None and os.path.samestat(out, err):
            self._given[2] = self._given[1]  # one stream, so that lines stay in their order
        elif err is not None:
            self._open(2)

    def _open(self, number: int) -> None:
        if os.isatty(number):
            ours, theirs = _terminal_like(number)
            self._terminals.append((ours, number))
        else:
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            _widen(ours)
        self._into[ours] = number
        self._given[number] = theirs

    def actions(self) -> list[tuple[int, int, int]]:
        """What posix_spawn does to descriptors."""
        return [(os.POSIX_SPAWN_DUP2, theirs, number) for number, theirs in self._given.items()]

    def started(self) -> None:
        """The command has its ends; ours must go, or we would never see the end."""
        for theirs in set(self._given.values()):
            os.close(theirs)

    def resize(self) -> bool:
        """Tell the command's terminals how large ours is now; whether that is news."""
        changed = [_copy_size(number, ours) for ours, number in self._terminals]
        return any(changed)

    def pass_on(self, kept: KeptOutput, process: int, passed: _Signals) -> int:
        """Copy until the command has ended and its last words are read; its exit code."""
        code: int | None = None
        with selectors.DefaultSelector() as selector:
            for ours, number in self._into.items():
                selector.register(ours, selectors.EVENT_READ, number)
            selector.register(passed.woken, selectors.EVENT_READ)
            until = 0.0
            while code is None or len(selector.get_map()) > 1:
                left = None if code is None else until - time.monotonic()
                if left is not None and left < 0:
                    break
                for key, _ in selector.select(left):
                    if key.fd == passed.woken:
                        os.read(key.fd, 64)
                        code = _ended(process) if code is None else code
                        until = time.monotonic() + _LAST_WORDS_S
                    elif not self._copy(key.fd, key.data, kept):
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        del self._into[key.fd]
        if self._into:
            self._leave_behind()
        return code if code is not None else 1

    def _copy(self, ours: int, number: int, kept: KeptOutput | None) -> bool:
        """Pass on what is there; whether more may come."""
        try:
            chunk = os.read(ours, _READ)
        except OSError:  # EIO: nobody holds the terminal any more
            return False
        try:
            _write(number, memoryview(chunk))
        except OSError:
            return False  # our reader is gone: closing tells the command, as it would have been told
        if kept is not None and chunk:
            kept.add(number, chunk)
        return bool(chunk)

    def _leave_behind(self) -> None:
        """The command left others that still print: a copy of us goes on passing that."""
        if os.fork():
            return
        with contextlib.suppress(BaseException), selectors.DefaultSelector() as selector:
            for ours, number in self._into.items():
                selector.register(ours, selectors.EVENT_READ, number)
            while selector.get_map():
                for key, _ in selector.select():
                    if not self._copy(key.fd, key.data, None):
                        selector.unregister(key.fd)
        os._exit(0)


def _write(number: int, left: memoryview) -> None:
    while left:
        try:
            left = left[os.write(number, left) :]
        except BlockingIOError:  # somebody before us made it so
            with selectors.DefaultSelector() as selector:
                selector.register(number, selectors.EVENT_WRITE)
                selector.select()


def _status(number: int) -> os.stat_result | None:
    try:
        return os.fstat(number)
    except OSError:
        return None  # closed, and the command's stays closed too


def _ended(process: int) -> int | None:
    """The exit code of the command, negative for a signal; None if it goes on. Where it stops, so do we."""
    found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
    if found and os.WIFSTOPPED(status):
        os.kill(os.getpid(), signal.SIGSTOP)  # whoever waits for us sees it, and continues us
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def _widen(pipe: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _READ)


def _terminal_like(number: int) -> tuple[int, int]:
    """A terminal of the size of ours that changes no byte: ours still does what a terminal does."""
    import pty
    import termios

    ours, theirs = pty.openpty()
    os.set_inheritable(ours, False)
    with contextlib.suppress(termios.error):
        modes = termios.tcgetattr(number)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
    _copy_size(number, ours)
    return ours, theirs


def _copy_size(from_: int, to: int) -> bool:
    """Give a terminal the size of another; whether it had another one."""
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(from_, termios.TIOCGWINSZ, bytes(8))
        if size != fcntl.ioctl(to, termios.TIOCGWINSZ, bytes(8)):
            fcntl.ioctl(to, termios.TIOCSWINSZ, size)
            return True
    return False


def die_by_signal(number: int) -> None:
    """End this process by a signal, as the command did; without a core file of our own."""
    import resource

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # closed, or full
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
