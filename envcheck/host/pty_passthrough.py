"""Run a command in the foreground as if envcheck were not there: output, terminal, signals, exit code.

The command inherits standard input. Its output is passed on as it comes, and a bounded part of it is kept:
the beginning, the surroundings of the first tracebacks, and the end. If envcheck's output is a terminal, the
command gets a pseudo-terminal. It shares envcheck's process group, so that keys, job control and `/dev/tty`
remain the kernel's business; a signal is forwarded unless a terminal sent it to both.
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

_READ = 1 << 18  # bytes read at once, and the size that pipes are set to
_HEAD, _AROUND, _TAIL = 1 << 18, 1 << 18, 4 << 20
_REGIONS = 8
_PARTIAL = 1 << 16  # bytes of an unfinished line; a longer one is kept without its end
_LAST_OUTPUT_S = 0.2  # seconds to read what is still in the pipe after the command has ended

_FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT),
)
_FROM_KERNEL = 128  # si_code of signals that a terminal sends, and so to the command too

TERMINATION = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Signals that request the end of the command."""

NO_FAILURE = frozenset({signal.SIGINT, signal.SIGPIPE})
"""Signals that end a command without a failure: Ctrl-C, or a reader that closed the pipe."""


class Gap(NamedTuple):
    """Number of lines and bytes that were printed but not kept."""

    lines: int
    size: int


class KeptOutput:
    """Kept part of an output of any length: its beginning, around the first tracebacks, its end."""

    def __init__(self) -> None:
        """Start with nothing kept."""
        self._pieces: list[bytes | Gap] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left = _HEAD  # bytes still to be kept unconditionally
        self._regions = 0
        self._partial: dict[int, bytes] = {}

    def add(self, stream: int, chunk: bytes) -> None:
        """Add the next bytes of a stream; lines of different streams are not mixed."""
        data = self._partial.pop(stream, b"") + chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) < _PARTIAL:
            self._partial[stream] = data
            return
        if end and end < len(data):
            self._partial[stream] = data[end:]
        self._add_lines(data[: end or len(data)])

    def _add_lines(self, data: bytes) -> None:
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
        """Drop the oldest bytes of the tail until at most `most` are left."""
        while self._tail_size > most:
            data = self._tail.popleft()
            self._tail_size -= len(data)
            gap = Gap(data.count(b"\n"), len(data))
            if self._pieces and isinstance(last := self._pieces[-1], Gap):
                gap = Gap(last.lines + gap.lines, last.size + gap.size)
                self._pieces.pop()
            self._pieces.append(gap)

    def pieces(self) -> Iterator[bytes | Gap]:
        """Yield the kept bytes and the gaps between them, in order."""
        yield from self._pieces
        yield from self._tail
        yield from self._partial.values()


class CommandExit(NamedTuple):
    """End of a command: its exit code, negative for a signal, and the termination signals received."""

    code: int
    signals: frozenset[int]


def run(command: Sequence[str], environ: Mapping[str, str], kept: KeptOutput) -> CommandExit:
    """Run a command to its end; pass its output on and add it to `kept`.

    Raises:
        OSError: the program does not exist or may not be run.
    """
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # if it is ignored, no signal reports the end of the command
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD, signal.SIGWINCH})
    streams = _Streams()
    try:
        process = os.posix_spawnp(
            command[0],
            list(command),
            dict(environ),
            file_actions=streams.actions(),
            setsigmask=masked,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; the command must not
        )
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        raise
    finally:
        streams.started()
    signals = _Signals(process, streams.resize)
    code = streams.pass_on(kept, process, signals)
    signal.pthread_sigmask(signal.SIG_SETMASK, masked)  # from here on, signals are for envcheck itself
    return CommandExit(code, frozenset(signals.received))


# --- signals ------------------------------------------------------------------------------------------


class _Signals:
    """Forwards signals to the command, except those that a terminal sends to both processes."""

    def __init__(self, process: int, resize: Callable[[], bool]) -> None:
        self.process = process
        self.received: set[int] = set()
        self._resize = resize
        self.woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            info = signal.sigwaitinfo({*_FORWARDED, signal.SIGCHLD, signal.SIGWINCH})
            if info.si_signo == signal.SIGCHLD:
                os.write(self._wake, b"!")
                continue
            if info.si_signo in TERMINATION:
                self.received.add(info.si_signo)
            # The kernel's SIGWINCH reaches the command before its terminal has the new size: send it again.
            resized = info.si_signo == signal.SIGWINCH and self._resize()
            if resized or info.si_code != _FROM_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process, info.si_signo)


# --- streams ------------------------------------------------------------------------------------------


class _Streams:
    """Standard output and error of a command: the ends it gets, and where they are passed on to."""

    def __init__(self) -> None:
        self._into: dict[int, int] = {}  # the descriptor to read from, and the one to write to
        self._given: dict[int, int] = {}  # the command's descriptor, and what it gets there
        self._terminals: list[tuple[int, int]] = []
        out, err = (_status(number) for number in (1, 2))
        if out is not None:
            self._open(1)
        if err is not None and out is not None and os.path.samestat(out, err):
            self._given[2] = self._given[1]  # one stream, so that lines keep their order
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
        """Return the file actions of posix_spawn."""
        return [(os.POSIX_SPAWN_DUP2, theirs, number) for number, theirs in self._given.items()]

    def started(self) -> None:
        """Close the command's ends in this process: with them open, the end of output would never be seen."""
        for theirs in set(self._given.values()):
            os.close(theirs)

    def resize(self) -> bool:
        """Give the command's terminals the size of ours; return whether any size changed."""
        changed = [_copy_size(number, ours) for ours, number in self._terminals]
        return any(changed)

    def pass_on(self, kept: KeptOutput, process: int, signals: _Signals) -> int:
        """Copy until the command has ended and its remaining output is read; return its exit code."""
        with selectors.DefaultSelector() as selector:
            for ours, number in self._into.items():
                selector.register(ours, selectors.EVENT_READ, number)
            selector.register(signals.woken, selectors.EVENT_READ)
            code = self._copy_until_end(selector, kept, process, signals)
        if self._into:
            self._leave_behind()
        return code if code is not None else 1

    def _copy_until_end(
        self, selector: selectors.BaseSelector, kept: KeptOutput, process: int, signals: _Signals
    ) -> int | None:
        code: int | None = None
        until = 0.0
        while code is None or len(selector.get_map()) > 1:
            left = None if code is None else until - time.monotonic()
            if left is not None and left < 0:
                break
            for key, _ in selector.select(left):
                if key.fd == signals.woken:
                    os.read(key.fd, 64)
                    code = _exit_code(process) if code is None else code
                    until = time.monotonic() + _LAST_OUTPUT_S
                else:
                    self._copy_or_close(selector, key, kept)
        return code

    def _copy_or_close(
        self, selector: selectors.BaseSelector, key: selectors.SelectorKey, kept: KeptOutput
    ) -> None:
        if not self._copy(key.fd, key.data, kept):
            selector.unregister(key.fd)
            os.close(key.fd)
            del self._into[key.fd]

    def _copy(self, ours: int, number: int, kept: KeptOutput | None) -> bool:
        """Pass on the output that is there; return whether more may come."""
        try:
            chunk = os.read(ours, _READ)
        except OSError:  # EIO: no process has the terminal open any more
            return False
        try:
            _write(number, memoryview(chunk))
        except OSError:
            return False  # our output has no reader: closing shows that to the command, as without envcheck
        if kept is not None and chunk:
            kept.add(number, chunk)
        return bool(chunk)

    def _leave_behind(self) -> None:
        """Fork a process that continues to pass on the output of processes that the command left running."""
        if os.fork():
            return
        with contextlib.suppress(BaseException), selectors.DefaultSelector() as selector:
            for ours, number in self._into.items():
                selector.register(ours, selectors.EVENT_READ, number)
            while selector.get_map():
                ready = selector.select()
                for key in (key for key, _ in ready if not self._copy(key.fd, key.data, None)):
                    selector.unregister(key.fd)
        os._exit(0)


def _write(number: int, left: memoryview) -> None:
    while left:
        try:
            left = left[os.write(number, left) :]
        except BlockingIOError:  # an earlier process made the descriptor non-blocking
            with selectors.DefaultSelector() as selector:
                selector.register(number, selectors.EVENT_WRITE)
                selector.select()


def _status(number: int) -> os.stat_result | None:
    try:
        return os.fstat(number)
    except OSError:
        return None  # closed, so the command's is closed too


def _exit_code(process: int) -> int | None:
    """Return the command's exit code, negative for a signal, or None if it runs; if it stopped, stop too."""
    found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
    if found and os.WIFSTOPPED(status):
        os.kill(
            os.getpid(), signal.SIGSTOP
        )  # the parent, such as a shell, sees that and will continue this process
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def _widen(pipe: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _READ)


def _terminal_like(number: int) -> tuple[int, int]:
    """Open a terminal of the same size that changes no byte: the outer terminal processes the output."""
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


def _copy_size(source: int, to: int) -> bool:
    """Give a terminal the size of another; return whether that changed it."""
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8))
        if size != fcntl.ioctl(to, termios.TIOCGWINSZ, bytes(8)):
            fcntl.ioctl(to, termios.TIOCSWINSZ, size)
            return True
    return False


def die_by_signal(number: int) -> None:
    """End this process by the signal that ended the command, without writing a core file."""
    import resource

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # closed, or full
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
