"""Read the stack traces that faulthandler writes: where a rank is, and whether it waits for another rank."""

from __future__ import annotations

import re
from enum import IntEnum

_FRAME = re.compile(r'^\s+File "(?P<file>[^"]*)", line (?P<line>\d+)(?: in (?P<name>.*))?$', re.MULTILINE)

_COLLECTIVES = ("/torch/distributed/distributed_c10d.py", "/torch/distributed/rendezvous.py")
_MAY_WAIT = ("/torch/autograd/", "/torch/_ops.py", "/torch/distributed/", "/deepspeed/comm/")
_IDLE = ("/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/concurrent/", "/multiprocessing/")


class WaitState(IntEnum):
    """Whether a rank waits for another one, judged by its stack."""

    NO = 0
    PERHAPS = 1
    SURELY = 2


def waiting(stack: str) -> WaitState:
    """Return whether the rank with this stack waits for another one."""
    frame = _test_frame(stack)
    if frame is None:
        return WaitState.NO
    file = frame["file"]
    if file.endswith(_COLLECTIVES) or (file.endswith("/_context.py") and frame["name"] == "exchange"):
        return WaitState.SURELY
    return WaitState.PERHAPS if any(part in file for part in _MAY_WAIT) else WaitState.NO


def innermost_line(stack: str) -> str:
    """Return `file:line in function` of the innermost frame of the test; empty if there is none."""
    frame = _test_frame(stack)
    if frame is None:
        return ""
    file = frame["file"].rpartition("site-packages/")[2].rpartition("/target_scripts/selftests/")[2]
    return f"{file if file != frame['file'] else file.rpartition('/')[2]}:{frame['line']} in {frame['name']}"


def _test_frame(stack: str) -> re.Match[str] | None:
    """Return the innermost frame of the thread that runs the test, which faulthandler writes last.

    During a backward pass on CUDA, the test's own thread only waits for autograd's threads. In that case
    return the innermost frame of another thread that is not idle, if there is one.
    """
    threads = [_FRAME.search(thread) for thread in stack.split("hread 0x")[1:]]
    if not threads or threads[-1] is None:
        return None
    if "/torch/autograd/" in threads[-1]["file"]:
        busy = [frame for frame in threads[:-1] if frame and not any(part in frame["file"] for part in _IDLE)]
        return busy[0] if busy else threads[-1]
    return threads[-1]
