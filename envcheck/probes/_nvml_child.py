"""The program that asks the driver through NVML; a process of its own, for a sick driver takes it along.

`driver.py` starts it as `python -I -S _nvml_child.py FOLDER PATIENCE LIMIT [SKIP ...]` and reads its lines;
nothing imports it, and it imports nothing of envcheck. FOLDER holds `pynvml`, PATIENCE and LIMIT are
seconds, a SKIP is a call not to make (`3:nvmlDeviceGetName`) because it crashed an earlier run; without
the number it ends with, it stands for all of them.

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
from collections.abc import Callable, Mapping, Sequence
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
HEALTH_CALLS = (
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetVirtualizationMode",
)
"""What nothing else waits for comes after what everything needs."""
ECC_COUNTERS = {"volatile": 0, "aggregate": 1}  # since the last reset, and ever: nvmlEccCounterType_t
UNCORRECTED = 1  # nvmlMemoryErrorType_t
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
VGPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU
ANOTHER_STRUCT = 25  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH


class Caller:
    """Makes calls of `pynvml` one at a time and writes what became of each to a file descriptor."""

    def __init__(self, wire: int, skip: Sequence[str]) -> None:
        """Write to `wire`; make none of the calls in `skip`."""
        self.wire = wire
        self.skip = frozenset(skip)

    def tell(self, *event: object) -> None:
        """Write one event; a line is shorter than PIPE_BUF, so lines of several threads do not mix."""
        os.write(self.wire, json.dumps(event).encode() + b"\n")

    def ask(self, gpu: int | None, call: str, *args: Any, slot: int | str | None = None) -> Any:
        """The answer of a call, or None if it refused, failed, or is to be skipped."""
        import pynvml

        label = call if slot is None else f"{call} {slot}"
        asked = f"{'' if gpu is None else gpu}:{label}"
        if asked in self.skip or asked.rpartition(" ")[0] in self.skip:
            return None
        self.tell("enter", gpu, label)
        try:
            # Looked up here: an older nvidia-ml-py may lack a function, and that too fails alone.
            answer = (_OURS.get(call) or getattr(pynvml, call))(*args)
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


# --- calls that pynvml leaves half to its user: each returns numbers --------------------------------


def _memory_v2(handle: Any) -> list[int]:
    import pynvml

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return [memory.total, memory.free]


def _fabric(handle: Any) -> list[int | None]:
    """[state, status, health mask, health summary], the last None before the struct's third version."""
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
    """[code, value]: a field has a return code of its own."""
    import pynvml

    field = pynvml.nvmlDeviceGetFieldValues(handle, [RECOVERY_ACTION])[0]
    return [field.nvmlReturn, field.value.uiVal]


def _licences(handle: Any) -> list[object]:
    """[whether a licence is needed, the state of each feature: 1 is licensed]."""
    import pynvml

    told = pynvml.nvmlDeviceGetGridLicensableFeatures_v4(handle)
    features = told.gridLicensableFeatures[: min(told.licensableFeaturesCount, 3)]
    return [told.isGridLicenseSupported, [feature.featureState for feature in features]]


_OURS: Mapping[str, Callable[[Any], Any]] = {
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetGpuFabricInfo": _fabric_before_versions,
    "nvmlDeviceGetFieldValues": _recovery,
    "nvmlDeviceGetGridLicensableFeatures_v4": _licences,
}


# --- what is asked ------------------------------------------------------------------------------------


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
    told = {call: caller.ask(gpu, call, handle) for call in DEVICE_CALLS}
    if told["nvmlDeviceGetMemoryInfo"] is None:
        caller.ask(gpu, "nvmlDeviceGetMemoryInfo_v2", handle)
    mode = caller.ask(gpu, "nvmlDeviceGetMigMode", handle)
    if mode and mode[0] == 1:
        read_slices(caller, gpu, handle)
    told = {call: caller.ask(gpu, call, handle) for call in HEALTH_CALLS}
    for counter, number in ECC_COUNTERS.items():
        caller.ask(gpu, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, number, slot=counter)
    if told["nvmlDeviceGetGpuFabricInfoV"] is None:
        caller.ask(gpu, "nvmlDeviceGetGpuFabricInfo", handle)
    if told["nvmlDeviceGetVirtualizationMode"] == VGPU:
        caller.ask(gpu, "nvmlDeviceGetGridLicensableFeatures_v4", handle)


def read_slices(caller: Caller, gpu: int, handle: Any) -> None:
    """Read the MIG devices of a GPU: how many there are, and the memory of each."""
    slices = caller.ask(gpu, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    for slot in range(min(slices, MOST_SLICES)):
        device = caller.ask(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, slot=slot)
        if device is not None:
            caller.ask(gpu, "nvmlDeviceGetMemoryInfo", device, slot=f"slice {slot}")


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
