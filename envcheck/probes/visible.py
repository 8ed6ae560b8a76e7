"""Which GPUs CUDA_VISIBLE_DEVICES lets a program see; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envcheck.model import Known, Reading, Unknown


def chosen(value: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES lets a program see, in the program's order.

    The rules are CUDA's own, as torch.cuda repeats them: a list of indices is read as C's strtoul reads
    numbers ("1gpu" is 1), a list of UUIDs by unique prefixes; the first entry says which list it is, the
    first entry that names no GPU ends it, and one named twice empties it.
    """
    if value is None:
        return tuple(range(len(uuids)))
    by_uuid = value.startswith("GPU-")
    picked: list[int] = []
    ended = False
    for entry in value.split(","):
        index = _by_prefix(entry, uuids) if by_uuid else _as_strtoul(entry)
        if index is None:
            break
        if index in picked:
            return ()
        # A number too high ends the list like any other mistake, but what follows may still repeat.
        ended = ended or index >= len(uuids)
        if not ended:
            picked.append(index)
    return tuple(picked)


def _as_strtoul(entry: str) -> int | None:
    number = re.match(r"[+-]?[0-9]+", entry.strip())
    index = int(number[0][:20]) if number else -1  # more digits than that are too high all the same
    return index if index >= 0 else None


def _by_prefix(entry: str, uuids: Sequence[str]) -> int | None:
    if not entry.startswith("GPU-"):
        return None
    matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def visibility(
    environ: Mapping[str, str], uuids: Sequence[str], names: Sequence[object], migs: Sequence[object]
) -> tuple[Reading, ...]:
    """`gpu.visible` of each GPU in NVML's order; "" stands for a UUID that could not be read.

    Unknown where the variable speaks of something not read here: MIG devices, an unread UUID, or an
    index into an order that only CUDA knows.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    seen = chosen(value, uuids)
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
