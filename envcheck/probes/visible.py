"""Which GPUs CUDA_VISIBLE_DEVICES lets a program see, in which order, and what CUDA makes of its text.

`visibility` and `ranks` are pure and for the driver's probe; the probe here reads the text alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.core.nvidia import leading_index, visible_gpus
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest

VARIABLE = "CUDA_VISIBLE_DEVICES"

YIELDS = {
    "gpus.selection": Key(
        Kind.WORD,
        "what CUDA makes of CUDA_VISIBLE_DEVICES: `plain` as it is meant, `hidden` no GPU on purpose, "
        "`garbage` with letters it reads past, `cut` at an entry that is no GPU, `duplicate` and so none, "
        "`ambiguous` by a prefix of several UUIDs",
        words=("plain", "hidden", "garbage", "cut", "duplicate", "ambiguous"),
    ),
}


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """One variable, and a folder if it is set."""
    return lambda: Inventory({"gpus.selection": selection(host.environ.get(VARIABLE), told_uuids(host))})


PROBE = Probe("visible", YIELDS, begin)

_HIDDEN = ("", "-1", "NoDevFiles")  # the last by some schedulers, for jobs without a GPU


def told_uuids(host: Host) -> list[str]:
    """UUIDs of the GPUs in the kernel module's own order of PCI addresses; "" for one it does not tell."""
    folder = "/proc/driver/nvidia/gpus"
    found = []
    for address in host.listdir(folder):
        uuid = ""
        for line in (host.read_text(f"{folder}/{address}/information", limit=1 << 16) or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "GPU UUID" and value.strip().startswith("GPU-") and "?" not in value:
                uuid = value.strip()
        found.append(uuid)
    return found


def selection(value: str | None, uuids: Sequence[str]) -> Fact:
    """`gpus.selection` of a value; `uuids` of the GPUs that are here, empty if nobody tells.

    The source says how CUDA reads it, and holds no UUID.
    """
    if value is None:
        return Fact("gpus.selection", Absent(), f"{VARIABLE} is not set")
    word, said = _by_uuid(value, uuids) if value.startswith("GPU-") else _by_index(value, len(uuids))
    return Fact("gpus.selection", Known(word), said)


def _by_index(value: str, count: int) -> tuple[str, str]:
    if value.strip() in _HIDDEN:
        return "hidden", "no GPU, on purpose"
    if value.startswith("MIG-"):
        return "plain", "MIG devices"
    taken: list[int] = []
    garbage = False
    entries = value.split(",")
    for place, entry in enumerate(entries):
        index = leading_index(entry)
        if index is None or (count and index >= count):
            # `0,1,` and `0,-1` end where they look like ending.
            last = place == len(entries) - 1 and taken and entry.strip() in ("", "-1")
            if last:
                break
            return "cut", f"CUDA stops at {_shown(entry)} and sees {_listed(taken)}"
        if index in taken:
            return "duplicate", f"{index} stands there twice, so CUDA sees no GPU"
        taken.append(index)
        garbage = garbage or not entry.strip().isdecimal()
    return ("garbage" if garbage else "plain"), f"CUDA reads it as {_listed(taken)}"


def _by_uuid(value: str, uuids: Sequence[str]) -> tuple[str, str]:
    seen: set[int] = set()
    for place, entry in enumerate(value.split(",")):
        fits = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
        if not entry.startswith("GPU-"):
            return "cut", f"CUDA stops at entry {place + 1}, which is no UUID, and sees {len(seen)} GPUs"
        if "" in uuids or not uuids:
            seen.add(-place - 1)  # which one it is cannot be told
            continue
        if len(fits) > 1:
            return "ambiguous", f"entry {place + 1} begins the UUIDs of {len(fits)} GPUs"
        if not fits:
            return "cut", f"CUDA stops at entry {place + 1}, no GPU's UUID, and sees {len(seen)} GPUs"
        if fits[0] in seen:
            return "duplicate", f"entry {place + 1} repeats an earlier one, so CUDA sees no GPU"
        seen.add(fits[0])
    return "plain", f"{len(seen)} UUIDs"


def _shown(entry: str) -> str:
    entry = entry.strip()
    return f"{entry[:4]}…" if entry.startswith(("GPU-", "MIG-")) else repr(entry[:20])


def _listed(taken: Sequence[int]) -> str:
    return ",".join(map(str, taken)) or "no GPU"


def visibility(
    environ: Mapping[str, str], uuids: Sequence[str], names: Sequence[object], migs: Sequence[object]
) -> tuple[Reading, ...]:
    """`gpu.visible` of each GPU in NVML's order; "" stands for a UUID that could not be read.

    Unknown where the variable speaks of something not read here: MIG devices, an unread UUID, or an
    index into an order that only CUDA knows.
    """
    value = environ.get(VARIABLE)
    seen = visible_gpus(value, list(uuids))
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
    if _order_differs(environ, names) and 0 < len(seen) < len(uuids):
        why = Unknown(
            "CUDA_VISIBLE_DEVICES counts the fastest GPU first, and these GPUs differ: "
            "with CUDA_DEVICE_ORDER=PCI_BUS_ID its numbers would be those of nvidia-smi"
        )
        return (why,) * len(uuids)
    return tuple(readings)


def ranks(
    environ: Mapping[str, str], uuids: Sequence[str], names: Sequence[object], seen: Sequence[Reading]
) -> tuple[Reading, ...]:
    """`gpu.rank` of each GPU in NVML's order: the number programs know it by; `seen` is its `gpu.visible`."""
    order = visible_gpus(environ.get(VARIABLE), list(uuids))
    by_uuid = (environ.get(VARIABLE) or "").startswith("GPU-")
    told = (uuid or name for uuid, name in zip(uuids, names, strict=True))
    silent = next((index for index, each in enumerate(told) if not each), len(names))

    def rank(index: int, reading: Reading) -> Reading:
        if isinstance(reading, Unknown):
            return reading
        if reading == Known(False):
            return Absent()
        if not by_uuid and index > silent:
            return Unknown(f"GPU {silent} did not answer, and whether CUDA counts it is not known")
        if not by_uuid and _order_differs(environ, names):
            return Unknown(
                "CUDA counts the fastest GPU first, and these GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
        return Known(order.index(index)) if index in order else Unknown("CUDA's order was not read")

    return tuple(rank(index, reading) for index, reading in enumerate(seen))


def _order_differs(environ: Mapping[str, str], names: Sequence[object]) -> bool:
    """CUDA numbers the fastest first unless told otherwise; among equal cards that is NVML's order."""
    return len(set(names) - {None}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
