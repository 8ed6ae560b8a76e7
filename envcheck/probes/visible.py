"""Read which GPUs CUDA_VISIBLE_DEVICES shows to a program, in which order, and how CUDA reads its value.

The probe here reads the value of the variable. `visibility` and `ranks` are pure functions for the driver's
probe.
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
        "how CUDA reads CUDA_VISIBLE_DEVICES: `plain` as intended, `hidden` no GPU on purpose, "
        "`garbage` with letters that it ignores, `cut` at an entry that is not a GPU, `duplicate` and "
        "therefore none, `ambiguous` by a prefix of several UUIDs",
        words=("plain", "hidden", "garbage", "cut", "duplicate", "ambiguous"),
    ),
}


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Return the function that reads the variable, and the GPUs' UUIDs from /proc."""
    return lambda: Inventory({"gpus.selection": selection(host.environ.get(VARIABLE), uuids_in_proc(host))})


PROBE = Probe("visible", YIELDS, begin)

_HIDDEN = ("", "-1", "NoDevFiles")  # some schedulers set NoDevFiles for jobs without a GPU


def uuids_in_proc(host: Host) -> list[str]:
    """Return the GPUs' UUIDs in the kernel module's order of PCI addresses; "" for an unknown one."""
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
    """Return `gpus.selection` for a value; `uuids` are those of the GPUs of this machine, empty if unknown.

    The source of the fact says how CUDA reads the value, and contains no UUID.
    """
    if value is None:
        return Fact("gpus.selection", Absent(), f"{VARIABLE} is not set")
    word, explanation = _by_uuid(value, uuids) if value.startswith("GPU-") else _by_index(value, len(uuids))
    return Fact("gpus.selection", Known(word), explanation)


def _by_index(value: str, count: int) -> tuple[str, str]:
    """Return the selection for a list of indices, and how CUDA reads it; `count` is 0 if unknown."""
    if value.strip() in _HIDDEN:
        return "hidden", "no GPU, on purpose"
    if value.startswith("MIG-"):
        entries = value.split(",")
        repeated = next((n for n, entry in enumerate(entries, 1) if entry in entries[: n - 1]), 0)
        if repeated:
            return "duplicate", f"entry {repeated} repeats an earlier one, so CUDA sees no GPU"
        return "plain", "MIG devices"
    taken: list[int] = []
    garbage = False
    entries = value.split(",")
    for place, entry in enumerate(entries):
        index = leading_index(entry)
        if index is None or (count and index >= count):
            # A trailing `,` or `,-1` cuts nothing off: `0,1,` and `0,-1` are read as they look.
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
    """Return the selection for a list of UUIDs or their prefixes, and how CUDA reads it."""
    seen: set[int] = set()
    entries = value.split(",")
    for place, entry in enumerate(entries):
        matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
        if not entry.startswith("GPU-"):
            return "cut", f"CUDA stops at entry {place + 1}, which is not a UUID, and sees {len(seen)} GPUs"
        if entry in entries[:place]:
            return "duplicate", f"entry {place + 1} repeats an earlier one, so CUDA sees no GPU"
        if "" in uuids or not uuids:
            seen.add(-place - 1)  # some GPU; which one is not known
            continue
        if len(matches) > 1:
            return "ambiguous", f"entry {place + 1} begins the UUIDs of {len(matches)} GPUs"
        if not matches:
            return (
                "cut",
                f"CUDA stops at entry {place + 1}, which is not a GPU's UUID, and sees {len(seen)} GPUs",
            )
        if matches[0] in seen:
            return "duplicate", f"entry {place + 1} repeats an earlier one, so CUDA sees no GPU"
        seen.add(matches[0])
    return "plain", f"{len(seen)} UUIDs"


def _shown(entry: str) -> str:
    entry = entry.strip()
    return f"{entry[:4]}…" if entry.startswith(("GPU-", "MIG-")) else repr(entry[:20])


def _listed(taken: Sequence[int]) -> str:
    return ",".join(map(str, taken)) or "no GPU"


def visibility(
    environ: Mapping[str, str], uuids: Sequence[str], names: Sequence[object], migs: Sequence[object]
) -> tuple[Reading, ...]:
    """Return `gpu.visible` of each GPU in NVML's order; "" stands for a UUID that could not be read.

    A reading is Unknown where the variable names something that is not read here: MIG devices, a UUID that
    could not be read, or an index into an order that only CUDA knows.
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
    """Return `gpu.rank`, the number by which programs know a GPU, for each GPU in NVML's order.

    `seen` are the readings of `gpu.visible`.
    """
    order = visible_gpus(environ.get(VARIABLE), list(uuids))
    by_uuid = (environ.get(VARIABLE) or "").startswith("GPU-")
    identities = (uuid or name for uuid, name in zip(uuids, names, strict=True))
    silent = next((index for index, known in enumerate(identities) if not known), len(names))

    def rank(index: int, reading: Reading) -> Reading:
        if isinstance(reading, Unknown):
            return reading
        if reading == Known(False):
            return Absent()
        if not by_uuid and index > silent:
            return Unknown(f"GPU {silent} did not answer, and it is not known whether CUDA counts it")
        if not by_uuid and _order_differs(environ, names):
            return Unknown(
                "CUDA counts the fastest GPU first, and these GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
        return Known(order.index(index)) if index in order else Unknown("CUDA's order was not read")

    return tuple(rank(index, reading) for index, reading in enumerate(seen))


def _order_differs(environ: Mapping[str, str], names: Sequence[object]) -> bool:
    """Return whether CUDA's order, by default the fastest GPU first, may differ from NVML's."""
    return len(set(names) - {None}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
