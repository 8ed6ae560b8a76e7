"""`envcheck run`: nobody notices it, neither the command nor who looks at it, until the command fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess  # noqa: TID251 - tests are users
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envcheck.host import pty_passthrough
from tests.support.paths import ROOT
from tests.support.running import invocation, surroundings

RUN = tuple(invocation("run"))
ENVIRON = surroundings({"NO_COLOR": "1"})


def ran(
    *command: str, run: tuple[str, ...] = (*RUN, "--"), text: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*run, *command], input=text, capture_output=True, timeout=60, check=False, env=ENVIRON, cwd=ROOT
    )


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*RUN, "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRON,
        cwd=ROOT,
        process_group=0,  # the kernel stops no process of a group that its session's shell does not know
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def script(body: str) -> tuple[str, ...]:
    return (sys.executable, "-u", "-c", body)


# --- bytes and ends -----------------------------------------------------------------------------------


def test_bytes_go_through_untouched_in_both_directions() -> None:
    text = bytes(range(256)) * 1000
    body = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(d[::-1])"
    done = ran(*script(body), text=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, text[::-1])


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands_own(code: int) -> None:
    assert ran("sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT])
def test_run_ends_with_the_signal_that_ended_the_command(number: int) -> None:
    assert ran("sh", "-c", f"kill -{number} $$").returncode == -number


def test_options_behind_the_command_are_its_own() -> None:
    assert ran("echo", "--json", "--help", run=RUN).stdout == b"--json --help\n"


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run_is_a_one_line_error(command: str, code: int) -> None:
    done = ran(command)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, b"", 1)
    assert command.encode() in done.stderr


def test_both_streams_into_one_file_stay_in_their_order(tmp_path: Path) -> None:
    body = "import os\nfor n in range(3000): os.write(1 + n % 2, b'%d\\n' % n)"
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([*RUN, "--", *script(body)], stdout=log, stderr=log, check=True, env=ENVIRON, cwd=ROOT)
    assert (tmp_path / "log").read_bytes() == b"".join(b"%d\n" % n for n in range(3000))


def test_a_closed_pipe_ends_the_command_as_without_envcheck() -> None:
    body = "import signal\nsignal.signal(13, 0)\nwhile True: print('x' * 1000)"
    with running(*script(body)) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(timeout=20) == -signal.SIGPIPE


def test_background_processes_of_the_command_can_go_on_printing() -> None:
    done = ran("sh", "-c", "(sleep 1; echo later) & echo now")
    assert done.stdout == b"now\nlater\n"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--facts", "absent.toml", "no such file"),
        ("--python", "/absent", "no such interpreter"),
        ("--train", "absent.json", "no such file"),
        ("--target", "absent", "no such target"),
        ("--driver", "new", "version"),
        ("--matrix", "absent.toml", "no such file"),
    ],
)
def test_wrong_use_is_reported_before_the_command_starts(
    option: str, value: str, said: str, tmp_path: Path
) -> None:
    done = ran("touch", str(tmp_path / "started"), run=(*RUN, option, value, "--"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, b"", 1)
    assert said.encode() in done.stderr
    assert not (tmp_path / "started").exists()


# --- signals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on_once(number: int) -> None:
    body = f"""
import signal, sys, time
got = []
signal.signal({int(number)}, lambda *a: got.append(1))
print("up")
deadline = time.monotonic() + 20
while not got and time.monotonic() < deadline: time.sleep(0.05)
time.sleep(0.3)
print(len(got))
sys.exit(9)
"""
    with running(*script(body)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.stdout.readline() == b"1\n"
        assert process.wait(timeout=30) == 9


def test_a_run_that_was_asked_to_end_is_not_explained() -> None:
    with running(*script("import time; print('up'); time.sleep(60)")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (-signal.SIGTERM, b"")


def test_run_stops_and_continues_with_the_command() -> None:
    with running(*script("import time\nprint('up')\ntime.sleep(1)\nprint('end')")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == b"end\n"
        assert process.wait(timeout=20) == 0


# --- terminals ----------------------------------------------------------------------------------------


def on_a_terminal(
    command: tuple[str, ...], *acts: tuple[float, Callable[[int, int], object]]
) -> tuple[bytes, int]:
    """What a command prints on a terminal of 33 lines, and its exit code; acts come after so many seconds."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        os.execve(command[0], command, ENVIRON)  # noqa: S606 - as a terminal does
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    out, left, until = b"", list(acts), time.monotonic() + 30
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                out += os.read(terminal, 1 << 16)
            except OSError:
                break
        if left and b"up" in out:
            after, act = left.pop(0)
            time.sleep(after)
            act(terminal, process)
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return out, os.waitstatus_to_exitcode(status)


LOOKS = """
import os, signal, sys, time
sizes = []
signal.signal(signal.SIGWINCH, lambda *a: sizes.append(os.get_terminal_size(1).lines))
signal.signal(signal.SIGINT, lambda *a: sys.exit(5))
time.sleep(0.3)
print([os.isatty(n) for n in range(3)], os.get_terminal_size(1).lines, bool(open("/dev/tty")))
sys.stdout.write("\\x1b[31mred\\x1b[0m\\ttab\\n")
print("up")
for _ in range(100):
    time.sleep(0.05)
    if sizes[-1:] == [44]: print(44); sizes.clear()  # the first size may come as a change too
"""


def test_a_terminal_stays_a_terminal() -> None:
    acts = (
        (0.2, lambda fd, _: fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 99, 0, 0))),
        (0.5, lambda fd, _: os.write(fd, b"\x03")),
    )
    alone = on_a_terminal(script(LOOKS), *acts)
    assert alone[1] == 5
    assert b"[True, True, True] 33 True\r\n" in alone[0]
    assert b"44\r\n" in alone[0]
    assert on_a_terminal((*RUN, "--", *script(LOOKS)), *acts) == alone


# --- explaining ---------------------------------------------------------------------------------------


def test_a_failure_is_explained_on_standard_error_and_a_success_is_not() -> None:
    failed = ran(*script("import sys; print('step 1'); print({}['labels'])"))
    assert (failed.returncode, failed.stdout) == (1, b"step 1\n")
    assert b"first cause  lines 2-4: KeyError: 'labels'" in failed.stderr
    assert ran(
        *script("import sys; print('Traceback (most recent call last):', file=sys.stderr)")
    ).stderr == (b"Traceback (most recent call last):\n")


def test_a_killed_command_is_explained_without_any_output() -> None:
    done = ran("sh", "-c", "kill -9 $$")
    assert b"killed by signal 9" in done.stderr
    assert b"host-out-of-memory-sigkill" in done.stderr


def test_the_first_failure_is_kept_however_much_is_printed_after_it() -> None:
    body = """
import sys, traceback
print("step 0 loss 1.0\\n" * 200000)
try: {}["labels"]
except KeyError: traceback.print_exc()
sys.stderr.flush()
print("ring 0 waits\\n" * 1000000)
sys.exit(3)
"""
    done = ran(*script(body))
    assert done.returncode == 3
    assert b"KeyError: 'labels'" in done.stderr.rpartition(b"first cause")[2]


def test_kept_output_is_bounded_and_its_lines_keep_their_numbers() -> None:
    kept = pty_passthrough.KeptOutput()
    filler = b"".join(b"%07d\n" % n for n in range(8192))
    for _ in range(400):
        kept.add(1, filler)
    kept.add(1, b"Traceback (most recent call last):\n")
    for _ in range(400):
        kept.add(1, filler)
    pieces = list(kept.pieces())
    assert sum(len(each) for each in pieces if isinstance(each, bytes)) < 8 << 20
    lines = sum(each.count(b"\n") if isinstance(each, bytes) else each.lines for each in pieces)
    assert lines == 800 * 8192 + 1
    assert any(b"Traceback" in each for each in pieces if isinstance(each, bytes))
