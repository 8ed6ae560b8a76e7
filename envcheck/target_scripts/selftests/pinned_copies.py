"""Values survive the way to every GPU and back, from pinned and from ordinary memory.

Four million whole numbers (32 MiB) are copied to the GPU on a separate stream, incremented there, and copied
back. Only the increment may have changed them, so the tolerance is 0. Seconds: 1 to 2 a GPU. Memory: 100 MiB
of the host, 70 MiB of each GPU.

A failure means broken transfers (PCIe, IOMMU, a driver), or a host that cannot pin memory; every offload and
every data loader with pin_memory depends on them.
"""

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
DEVICES = ("cuda",)

COUNT = 4 * 1024 * 1024


def run(test, variant):
    torch = test.import_torch()
    for device in test.devices():
        with test.must_succeed(f"pinning memory for {device}"):
            sent, back = torch.arange(COUNT).pin_memory(), torch.full((COUNT,), -1).pin_memory()
        if not sent.is_pinned():
            test.fail("pin_memory() gave memory that is not pinned")
        with test.must_succeed(f"pinned copies to and from {device}"):
            stream = torch.cuda.Stream(device)
            with torch.cuda.stream(stream):
                on_device = sent.to(device, non_blocking=True)
                back.copy_(on_device.add_(1), non_blocking=True)
            stream.synchronize()
        check_incremented(test, back, sent, f"pinned, {device}")
        with test.must_succeed(f"ordinary copies to and from {device}"):
            back = torch.arange(COUNT).to(device).add_(1).cpu()
        check_incremented(test, back, sent, f"not pinned, {device}")


def check_incremented(test, back, sent, where):
    """Fail if a number did not come back as itself plus one; the message names the first."""
    wrong = (back != sent + 1).nonzero()
    if len(wrong):
        first = int(wrong[0])
        test.fail(
            f"{where}: {len(wrong)} of {COUNT} numbers came back wrong, first number {first}: "
            f"{int(back[first])}, expected {first + 1}"
        )
