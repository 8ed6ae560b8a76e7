"""The program that asks the driver through NVML; a process of its own, for a sick driver takes it along.

`driver.py` starts it as `python -I -S _nvml_child.py FOLDER PATIENCE LIMIT [SKIP ...]` and reads its lines;
nothing imports it, and it imports nothing of envcheck. FOLDER holds `pynvml`, PATIENCE and LIMIT are
seconds, a SKIP is a call not to make (`3:nvmlDeviceGetName`) because it crashed an earlier run.

Every line is a JSON list, written before a call (`["enter", 3, "nvmlDeviceGetName"]`) and after it
(`["answer", 3, "nvmlDeviceGetName", "NVIDIA H100"]`, or "refused" with NVML's code, or "failed" with
words), so that whatever was read before a hang or a crash is kept, and the last call entered is known.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

MOST_GPUS = 256  # a count above this is garbage, and nobody waits for four billion handles
MOST_SLICES = 16
DEVICE_CALLS = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeMode",
)


class Caller:
    """Makes calls of `pynvml` one at a time and writes what became of each to a file descriptor."""

    def __init__(self, wire: int, skip: Sequence[str]) -> None:
        """Write to `wire`; make none of the calls in `skip`."""
        self.wire = wire
        self.skip = frozenset(skip)

    def tell(self, *event: object) -> None:
        """Write one event; a line is shorter than PIPE_BUF, so lines of several threads do not mix."""
        os.write(self.wire, json.dumps(event).encode() + b"\n")

    def ask(self, gpu: int | None, call: str, *args: Any, slot: int | None = None) -> Any:
        """The answer of a call, or None if it refused, failed, or is to be skipped."""
        import pynvml

        label = call if slot is None else f"{call} {slot}"
        if f"{'' if gpu is None else gpu}:{label}" in self.skip:
            return None
        self.tell("enter", gpu, label)
        try:
            # Looked up here: an older nvidia-ml-py may lack a function, and that too fails alone.
            answer = getattr(pynvml, call)(*args)
        except pynvml.NVMLError as refusal:
            self.tell("refused", gpu, label, refusal.value)
            return None
        except UnicodeDecodeError as garbage:
            answer = garbage.object  # the bytes the driver gave; pynvml insists on UTF-8
        except Exception as failure:  # noqa: BLE001 - each call fails alone
            self.tell("failed", gpu, label, f"{type(failure).__name__}: {failure}")
            return None
        self.tell("answer", gpu, label, _plain(answer))
        return True if answer is None else answer


def _plain(answer: Any) -> object:
    """An answer as JSON can hold it; of memory the total and the free bytes, of a handle only that it is."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if isinstance(answer, str | int):
        return answer
    if isinstance(answer, tuple | list):
        return list(answer)
    if hasattr(answer, "total"):
        return [answer.total, answer.free]
    return True


def read_machine(caller: Caller) -> int:
    """Read what is true of the whole machine; how many GPUs there are to read."""
    up = caller.ask(None, "nvmlInit")
    # Answered even where initialising failed: the library's version is what error 18 is about.
    caller.ask(None, "nvmlSystemGetNVMLVersion")
    caller.tell("answer", None, "library", loaded_library())
    if up is None:
        return 0
    caller.ask(None, "nvmlSystemGetDriverVersion")
    # The first asks the libcuda that programs here will load; the second, older, answers without one.
    if caller.ask(None, "nvmlSystemGetCudaDriverVersion_v2") is None:
        caller.ask(None, "nvmlSystemGetCudaDriverVersion")
    count = caller.ask(None, "nvmlDeviceGetCount") or 0
    return count if count <= MOST_GPUS else 0


def loaded_library() -> str:
    """The file that answers as libnvidia-ml.so.1, by the kernel's own list of mapped files; "" if none."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
            for line in maps:
                if "libnvidia-ml" in line:
                    return line[line.index("/") :].rstrip("\n")
    except (OSError, ValueError):
        pass
    return ""


def read_gpu(caller: Caller, gpu: int) -> None:
    """Read what is true of one GPU."""
    handle = caller.ask(gpu, "nvmlDeviceGetHandleByIndex", gpu)
    if handle is None:
        return
    for call in DEVICE_CALLS:
        caller.ask(gpu, call, handle)
    mode = caller.ask(gpu, "nvmlDeviceGetMigMode", handle)
    if mode and mode[0] == 1:
        slices = caller.ask(gpu, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        for slot in range(min(slices, MOST_SLICES)):
            caller.ask(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, slot=slot)


def read_gpus(caller: Caller, count: int, patience_s: float) -> None:
    """Read the GPUs in order, passing over one that does not answer in time.

    A GPU that hangs keeps its thread; the others are read meanwhile, and a slow one may still answer
    before the parent's deadline.
    """
    readers = [threading.Thread(target=read_gpu, args=(caller, gpu), daemon=True) for gpu in range(count)]
    for reader in readers:
        reader.start()
        reader.join(patience_s)
    for reader in readers:
        reader.join()


def main(argv: Sequence[str]) -> None:
    """Ask everything and say it, on a copy of standard output that no driver library knows of."""
    folder, patience_s, limit_s, *skip = argv
    wire = os.dup(1)
    os.dup2(2, 1)  # what the driver prints must not mix with our lines
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is news, not a file on the user's disk
    signal.alarm(int(float(limit_s)) + 10)  # should the parent die, nothing is left hanging for ever
    sys.path.append(folder)
    caller = Caller(wire, skip)
    try:
        import pynvml  # noqa: F401
    except Exception as failure:  # noqa: BLE001 - whatever is wrong with it, there is nobody to ask
        caller.tell("failed", None, "import pynvml", f"{type(failure).__name__}: {failure}")
        return
    read_gpus(caller, read_machine(caller), float(patience_s))


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # a library that hangs or crashes when unloaded has already told us everything
