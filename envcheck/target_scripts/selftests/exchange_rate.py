"""Ranks and devices exchange at a rate that is on record.

Variant `all-reduce-rate`: 64 MiB of float32 on CUDA, 8 MiB on the CPU, are summed over all ranks. The bus
rate is bytes * 2 (n - 1) / n over seconds, which is what each link of a ring carries.

Variant `host-device-rate`: 256 MiB are copied each way, pinned and not.

The best of five rounds counts, after two to warm up. A GB/s is 1e9 bytes a second. The rates are not compared
with a minimum, because none is known for this pair of GPUs and links; only the data is checked to be
unchanged.

Seconds: 1 to 5 a variant. Memory: 1 GiB of the host, 512 MiB of the GPU.

A failure means wrong data. A low rate is left to the reader to judge (a PCIe slot with few lanes, shared
memory switched off, NCCL over sockets).
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
"""Rounds that are timed, and rounds before them that are not."""


def run(test, variant):
    (all_reduce if variant == "all-reduce-rate" else host_device)(test)


def best(test, action):
    """Return the shortest time of an action in seconds; a round ends when the device has finished."""
    import time

    import torch

    times = []
    for _ in range(WARM_UP + ROUNDS):
        begun = time.perf_counter()
        action()
        if test.device_type != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return max(min(times[WARM_UP:]), 1e-9)


def all_reduce(test):
    import torch

    dist = test.join_process_group()
    size = (8 if test.device_type == "cpu" else 64) << 20
    tensor = torch.ones(size // 4, device=test.device)
    call = "all_reduce of " + str(size >> 20) + " MiB"
    with test.call(call):
        seconds = best(test, lambda: dist.all_reduce(tensor))
        expected = float(test.world) ** (WARM_UP + ROUNDS)
        wrong = (
            bool((tensor != expected).any()) if test.world <= 8 else not bool(torch.isfinite(tensor).all())
        )
        test.fail_together(f"rank {test.rank} holds a wrong sum of ones" if wrong else "", call)
    rate = size * 2 * (test.world - 1) / test.world / seconds / 1e9
    test.record(all_reduce_mib=size >> 20, all_reduce_seconds=seconds, all_reduce_bus_gb_s=round(rate, 3))


def host_device(test):
    import torch

    test.join_process_group()
    elements = (256 << 20) // 4
    on_device = torch.empty(elements, device=test.device)
    for pinned in (True, False):
        kind = "pinned" if pinned else "pageable"
        sent = torch.arange(elements, dtype=torch.float32)
        sent = sent.pin_memory() if pinned else sent
        back = torch.empty_like(sent, pin_memory=pinned)
        with test.call(f"copy to the device, {kind}"):
            to_device = best(test, lambda sent=sent: on_device.copy_(sent, non_blocking=True))
        with test.call(f"copy from the device, {kind}"):
            from_device = best(test, lambda back=back: back.copy_(on_device, non_blocking=True))
            wrong = not torch.equal(sent, back)
            test.fail_together(
                f"rank {test.rank}: 256 MiB came back changed" if wrong else "", f"copies {kind}"
            )
        times = {"to_device": to_device, "from_device": from_device}
        test.record(
            **{f"{kind}_{way}_gb_s": round((256 << 20) / seconds / 1e9, 2) for way, seconds in times.items()}
        )
