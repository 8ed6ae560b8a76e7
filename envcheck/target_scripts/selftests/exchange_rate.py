"""Ranks and devices exchange at a rate that is on record.

all-reduce: 64 MiB of float32 on CUDA, 8 MiB on the CPU, summed over all ranks; the best of five after two to
warm up. The bus rate is bytes * 2 (n - 1) / n over seconds, what each link carries in a ring. host-device:
256 MiB each way, pinned and not; the best of five. GB/s are 1e9 bytes a second. No floor is held against
them, for none is known for this pair of GPUs and links; that the data arrives unchanged is checked.
Seconds: 1 to 5 a variant. Memory: 1 GiB of the host, 512 MiB of the GPU. A failure means wrong data; a low
rate is for the reader to judge (a PCIe slot with few lanes, shared memory off, NCCL over sockets).
"""

LEVEL = 3
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch", "torch.distributed")
SECONDS = 60
RANKS = (2, 64)
VARIANTS = {
    "all-reduce-rate": {},
    "host-device-rate": {"devices": ("cuda",), "ranks": (1, 64)},
}

ROUNDS, WARM_UP = 5, 2


def run(stage, variant):
    (all_reduce if variant == "all-reduce-rate" else host_device)(stage)


def best(stage, action):
    """The shortest seconds of an action; everything on the device has ended when a round ends."""
    import time

    import torch

    took = []
    for _ in range(WARM_UP + ROUNDS):
        begun = time.perf_counter()
        action()
        if stage.device_type != "cpu":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - begun)
    return max(min(took[WARM_UP:]), 1e-9)


def all_reduce(stage):
    import torch

    dist = stage.join()
    size = (8 if stage.device_type == "cpu" else 64) << 20
    tensor = torch.ones(size // 4, device=stage.device)
    call = "all_reduce of " + str(size >> 20) + " MiB"
    with stage.call(call):
        seconds = best(stage, lambda: dist.all_reduce(tensor))
        expected = float(stage.world) ** (WARM_UP + ROUNDS)
        wrong = (
            bool((tensor != expected).any()) if stage.world <= 8 else not bool(torch.isfinite(tensor).all())
        )
        stage.agree(f"rank {stage.rank} holds a wrong sum of ones" if wrong else "", call)
    rate = size * 2 * (stage.world - 1) / stage.world / seconds / 1e9
    stage.saw(all_reduce_mib=size >> 20, all_reduce_seconds=seconds, all_reduce_bus_gb_s=round(rate, 3))


def host_device(stage):
    import torch

    stage.join()
    elements = (256 << 20) // 4
    there = torch.empty(elements, device=stage.device)
    for pinned in (True, False):
        kind = "pinned" if pinned else "pageable"
        here = torch.arange(elements, dtype=torch.float32)
        here = here.pin_memory() if pinned else here
        back = torch.empty_like(here, pin_memory=pinned)
        with stage.call(f"copy to the device, {kind}"):
            down = best(stage, lambda there=there, here=here: there.copy_(here, non_blocking=True))
        with stage.call(f"copy from the device, {kind}"):
            up = best(stage, lambda there=there, back=back: back.copy_(there, non_blocking=True))
            wrong = not torch.equal(here, back)
            stage.agree(f"rank {stage.rank}: 256 MiB came back changed" if wrong else "", f"copies {kind}")
        rates = {"to_device": down, "from_device": up}
        stage.saw(**{f"{kind}_{way}_gb_s": round((256 << 20) / took / 1e9, 2) for way, took in rates.items()})
