"""Ask the driver through NVML, as a separate program, because a broken driver may hang or crash its process.

`nvml.py` starts it as `python -I -S _nvml_child.py FOLDER PATIENCE LIMIT [SKIP ...]` and reads its lines;
nothing imports it, and it imports nothing of envcheck. FOLDER contains `pynvml`. PATIENCE is how many seconds
to wait for one GPU before the next is read, LIMIT how many all may take. A SKIP is a call not to make
(`3:nvmlDeviceGetName`) because it crashed an earlier run. For a call whose name ends in a number, a SKIP
without that number skips the call with every number.

Every line is a JSON list, written before a call (`["enter", 3, "nvmlDeviceGetName"]`) and after it
(`["answer", 3, "nvmlDeviceGetName", "NVIDIA H100"]`, or "refused" with NVML's code, or "failed" with a
message). So everything that was read before a hang or a crash is kept, and the last call entered is known.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MOST_GPUS = 256  # a larger count is garbage: four billion handles would take forever
MOST_SLICES = 16
DEVICE_CALLS = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeMode",
)
HEALTH_CALLS = (
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetVirtualizationMode",
)
"""These calls come last, because nothing depends on their answers."""
ECC_COUNTERS = {"volatile": 0, "aggregate": 1}  # nvmlEccCounterType_t: since the last reset, and in total
UNCORRECTED = 1  # nvmlMemoryErrorType_t
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
VGPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU
ANOTHER_STRUCT = 25  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH


class Caller:
    """Makes calls of `pynvml` one at a time and writes the result of each to a file descriptor."""

    def __init__(self, wire: int, skip: Sequence[str]) -> None:
        """Write to the descriptor `wire`, and make none of the calls in `skip`."""
        self.wire = wire
        self.skip = frozenset(skip)

    def write(self, *event: object) -> None:
        """Write one event; a line is shorter than PIPE_BUF, so lines of several threads do not mix."""
        os.write(self.wire, json.dumps(event).encode() + b"\n")

    def ask(self, gpu: int | None, call: str, *args: Any, slot: int | str | None = None) -> Any:
        """Make a call and return its answer, or None if it was refused, failed, or is to be skipped."""
        import pynvml

        label = call if slot is None else f"{call} {slot}"
        key = f"{'' if gpu is None else gpu}:{label}"
        if key in self.skip or key.rpartition(" ")[0] in self.skip:
            return None
        self.write("enter", gpu, label)
        try:
            # The function is looked up here, so that one missing from an older nvidia-ml-py only fails this
            # call.
            answer = (_OWN_CALLS.get(call) or getattr(pynvml, call))(*args)
        except pynvml.NVMLError as refusal:
            self.write("refused", gpu, label, refusal.value)
            return None
        except UnicodeDecodeError as garbage:
            answer = garbage.object  # the bytes of the driver, which pynvml requires to be UTF-8
        except Exception as failure:  # noqa: BLE001 - one call must not stop the others
            self.write("failed", gpu, label, f"{type(failure).__name__}: {failure}")
            return None
        self.write("answer", gpu, label, _plain(answer))
        return True if answer is None else answer


# --- calls that need more than a function of pynvml: each returns numbers ----------------------------


def _memory_v2(handle: Any) -> list[int]:
    import pynvml

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return [memory.total, memory.free]


def _fabric(handle: Any) -> list[int | None]:
    """Return [state, status, health mask, health summary]; version 2 of the struct has no summary (None)."""
    import ctypes

    import pynvml

    newest = getattr(pynvml, "c_nvmlGpuFabricInfo_v3_t", None)
    if newest is not None:
        try:
            info = newest()
            pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except pynvml.NVMLError as refusal:
            if refusal.value != ANOTHER_STRUCT:
                raise
        else:
            return [info.state, info.status, info.healthMask, info.healthSummary]
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return [info.state, info.status, info.healthMask, None]


def _fabric_before_versions(handle: Any) -> list[int | None]:
    import ctypes

    import pynvml

    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return [info.state, info.status, None, None]


def _recovery(handle: Any) -> list[int]:
    """Return [code, value]; every field has its own return code."""
    import pynvml

    field = pynvml.nvmlDeviceGetFieldValues(handle, [RECOVERY_ACTION])[0]
    return [field.nvmlReturn, field.value.uiVal]


def _licences(handle: Any) -> list[object]:
    """Return [whether a licence is needed, the states of the features, of which 1 is licensed]."""
    import pynvml

    licences = pynvml.nvmlDeviceGetGridLicensableFeatures_v4(handle)
    features = licences.gridLicensableFeatures[: min(licences.licensableFeaturesCount, 3)]
    return [licences.isGridLicenseSupported, [feature.featureState for feature in features]]


_OWN_CALLS: Mapping[str, Callable[[Any], Any]] = {
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetGpuFabricInfo": _fabric_before_versions,
    "nvmlDeviceGetFieldValues": _recovery,
    "nvmlDeviceGetGridLicensableFeatures_v4": _licences,
}


# --- what is read -------------------------------------------------------------------------------------


def _plain(answer: Any) -> object:
    """Return an answer as JSON can represent it: memory as total and free bytes, a handle as true."""
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
    """Read what concerns the whole machine, and return how many GPUs there are to read."""
    initialized = caller.ask(None, "nvmlInit")
    # NVML answers this even if it failed to initialize: error 18 is about the library's version.
    caller.ask(None, "nvmlSystemGetNVMLVersion")
    caller.write("answer", None, "library", loaded_library())
    if initialized is None:
        return 0
    caller.ask(None, "nvmlSystemGetDriverVersion")
    # The first uses the libcuda that programs here will load; the second, older one works without it.
    if caller.ask(None, "nvmlSystemGetCudaDriverVersion_v2") is None:
        caller.ask(None, "nvmlSystemGetCudaDriverVersion")
    count = caller.ask(None, "nvmlDeviceGetCount") or 0
    return count if count <= MOST_GPUS else 0


def loaded_library() -> str:
    """Return the file loaded as libnvidia-ml.so.1, from the kernel's list of mapped files; "" if none."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
            line = next((line for line in maps if "libnvidia-ml" in line), "")
        return line[line.index("/") :].rstrip("\n") if line else ""
    except (OSError, ValueError):
        return ""


def read_gpu(caller: Caller, gpu: int) -> None:
    """Read everything about one GPU."""
    handle = caller.ask(gpu, "nvmlDeviceGetHandleByIndex", gpu)
    if handle is None:
        return
    answers = {call: caller.ask(gpu, call, handle) for call in DEVICE_CALLS}
    if answers["nvmlDeviceGetMemoryInfo"] is None:
        caller.ask(gpu, "nvmlDeviceGetMemoryInfo_v2", handle)
    mode = caller.ask(gpu, "nvmlDeviceGetMigMode", handle)
    if mode and mode[0] == 1:
        read_slices(caller, gpu, handle)
    answers = {call: caller.ask(gpu, call, handle) for call in HEALTH_CALLS}
    for counter, number in ECC_COUNTERS.items():
        caller.ask(gpu, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, number, slot=counter)
    if answers["nvmlDeviceGetGpuFabricInfoV"] is None:
        caller.ask(gpu, "nvmlDeviceGetGpuFabricInfo", handle)
    if answers["nvmlDeviceGetVirtualizationMode"] == VGPU:
        caller.ask(gpu, "nvmlDeviceGetGridLicensableFeatures_v4", handle)


def read_slices(caller: Caller, gpu: int, handle: Any) -> None:
    """Read the MIG devices of a GPU: how many there are, and the memory of each."""
    slices = caller.ask(gpu, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    for slot in range(min(slices, MOST_SLICES)):
        device = caller.ask(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, slot=slot)
        if device is not None:
            caller.ask(gpu, "nvmlDeviceGetMemoryInfo", device, slot=f"slice {slot}")


def read_gpus(caller: Caller, count: int, patience_s: float) -> None:
    """Read the GPUs in order; go on to the next after `patience_s` seconds.

    A GPU that hangs keeps its thread. The others are read meanwhile, and a slow one may still answer before
    the parent's deadline.
    """
    readers = [threading.Thread(target=read_gpu, args=(caller, gpu), daemon=True) for gpu in range(count)]
    for reader in readers:
        reader.start()
        reader.join(patience_s)
    for reader in readers:
        reader.join()


def main(argv: Sequence[str]) -> None:
    """Make all calls, and write the results to a copy of standard output, to which no library prints."""
    folder, patience_s, limit_s, *skip = argv
    wire = os.dup(1)
    os.dup2(2, 1)  # what the driver prints must not mix with our lines
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not leave a core file on the user's disk
    signal.alarm(int(float(limit_s)) + 10)  # ends this process if the parent is gone
    sys.path.append(folder)
    caller = Caller(wire, skip)
    try:
        import pynvml  # noqa: F401
    except Exception as failure:  # noqa: BLE001 - without pynvml there is nothing to do
        caller.write("failed", None, "import pynvml", f"{type(failure).__name__}: {failure}")
        return
    read_gpus(caller, read_machine(caller), float(patience_s))


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # skips unloading the library, which may hang or crash after all is written
