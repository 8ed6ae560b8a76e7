"""Values survive the way to every GPU and back, from pinned and from ordinary memory.

Four million whole numbers (32 MiB) go to the GPU on a stream of their own, are added to there, and come
back; nothing but that addition may have changed them, so no tolerance. Seconds: 1 to 2 a GPU. Memory:
100 MiB of the host, 70 MiB of each GPU. A failure means broken transfers (PCIe, IOMMU, a driver), or a
host that pins no memory; every offload and every data loader with pin_memory depends on it.
"""

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
DEVICES = ("cuda",)

COUNT = 4 * 1024 * 1024


def run(stage, variant):
    torch = stage.torch()
    for device in stage.devices():
        with stage.must(f"pinning memory for {device}"):
            sent, back = torch.arange(COUNT).pin_memory(), torch.full((COUNT,), -1).pin_memory()
        if not sent.is_pinned():
            stage.fail("pin_memory() gave memory that is not pinned")
        with stage.must(f"pinned copies to and from {device}"):
            stream = torch.cuda.Stream(device)
            with torch.cuda.stream(stream):
                there = sent.to(device, non_blocking=True)
                back.copy_(there.add_(1), non_blocking=True)
            stream.synchronize()
        same(stage, back, sent, f"pinned, {device}")
        with stage.must(f"ordinary copies to and from {device}"):
            back = torch.arange(COUNT).to(device).add_(1).cpu()
        same(stage, back, sent, f"not pinned, {device}")


def same(stage, back, sent, where):
    """Fail, naming the first of them, if a number did not come back as itself plus one."""
    wrong = (back != sent + 1).nonzero()
    if len(wrong):
        first = int(wrong[0])
        stage.fail(
            f"{where}: {len(wrong)} of {COUNT} numbers came back wrong, first number {first}: "
            f"{int(back[first])}, expected {first + 1}"
        )
