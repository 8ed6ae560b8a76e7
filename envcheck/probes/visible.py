"""Which GPUs CUDA_VISIBLE_DEVICES lets a program see; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.model import Known, Reading, Unknown
from envcheck.nvidia import chosen


def visibility(
    environ: Mapping[str, str], uuids: Sequence[str], names: Sequence[object], migs: Sequence[object]
) -> tuple[Reading, ...]:
    """`gpu.visible` of each GPU in NVML's order; "" stands for a UUID that could not be read.

    Unknown where the variable speaks of something not read here: MIG devices, an unread UUID, or an
    index into an order that only CUDA knows.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    seen = chosen(value, list(uuids))
    readings: list[Reading] = [Known(index in seen) for index in range(len(uuids))]
    if value is None:
        return tuple(readings)
    if value.startswith("MIG-"):
        why = Unknown("CUDA_VISIBLE_DEVICES names a MIG device, and which card it is on was not read")
        return tuple(Known(False) if mig is False else why for mig in migs)
    if value.startswith("GPU-"):
        if "" in uuids:
            why = Unknown("CUDA_VISIBLE_DEVICES names GPUs by UUID, and not every UUID could be read")
            readings = [Known(True) if reading == Known(True) else why for reading in readings]
        return tuple(readings)
    # CUDA numbers the fastest first unless told otherwise; among equal cards that is NVML's order.
    differ = len(set(names) - {None}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    if differ and 0 < len(seen) < len(uuids):
        why = Unknown(
            "CUDA_VISIBLE_DEVICES counts the fastest GPU first, and these GPUs differ: "
            "with CUDA_DEVICE_ORDER=PCI_BUS_ID its numbers would be those of nvidia-smi"
        )
        return (why,) * len(uuids)
    return tuple(readings)
