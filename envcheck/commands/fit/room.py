"""The memory that a machine has for a training."""

from __future__ import annotations

from envcheck.core.facts import Inventory
from envcheck.memory.options import Room
from envcheck.memory.training import GIB

MIB = 1024 * 1024


def read_room(inventory: Inventory, ranks: int, *, elsewhere: bool, ram: int | None) -> Room:
    """Return the memory of the smallest visible GPU, and of the host.

    `ram` is the host's memory in GiB. If it is None, this host's memory is taken, unless the GPUs are
    `elsewhere`.
    """
    gpu, gpu_free, name = _smallest_gpu(inventory)
    host_bytes, host_free = (None, False) if elsewhere else _memory_of_host(inventory)
    local_gpus = inventory.known("gpus.count")
    return Room(
        gpu=gpu,
        free=gpu_free,
        name=name,
        ram=host_bytes if ram is None else ram * GIB,
        ranks=min(ranks, local_gpus) if isinstance(local_gpus, int) and local_gpus > 1 else ranks,
        declared=elsewhere,
        ram_free=host_free and ram is None,
        shared=any(inventory.known("gpu.memory_shared", n) is True for n in inventory.visible_devices()),
    )


def _smallest_gpu(inventory: Inventory) -> tuple[int | None, bool, str]:
    """Return the smallest visible GPU: its bytes of memory, whether only free memory is counted, its name.

    If the memory of any GPU is unknown, that one may be the smallest, so the result is (None, False, "").
    """
    sizes, visible = [], inventory.visible_devices()
    for device in visible:
        free = inventory.known("gpu.memory_free_mib", device)
        size = free if free is not None else inventory.known("gpu.memory_mib", device)
        if isinstance(size, int):
            name = str(inventory.known("gpu.name", device) or "GPU")
            sizes.append((size * MIB, free is not None, name))
    if not sizes or len(sizes) != len(visible):
        return None, False, ""
    return min(sizes)


def _memory_of_host(inventory: Inventory) -> tuple[int | None, bool]:
    """Return the host's memory in bytes, and whether only free memory is counted."""
    free = inventory.known("host.ram_free_mib")
    size = free if free is not None else inventory.known("host.ram_limit_mib")
    return size * MIB if isinstance(size, int) else None, free is not None
