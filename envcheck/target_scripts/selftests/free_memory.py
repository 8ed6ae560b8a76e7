"""The memory a GPU says is free can be had, and keeps what is written into it.

Half of what `torch.cuda.mem_get_info` reports as free is allocated in pieces of 256 MiB. Each piece is filled
with its own number, all are read back while all are allocated, and then freed. If more than 2 GiB is in use
before, another training may run there: then only a sixteenth is allocated, so that the growth of that
training does not make the test fail. The tolerance is 0. Seconds: 1 to 3 a GPU.

A failure means that a GPU (or a slice of one) reports memory that it does not have, or loses what is written.
"""

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
DEVICES = ("cuda",)

PIECE = 256 * 1024 * 1024
"""Bytes of one allocation."""

BUSY = 2 * 1024 * 1024 * 1024
"""Bytes in use from which on another program is assumed on the GPU."""

GIB = 1024**3


def run(test, variant):
    torch = test.import_torch()
    memory = {}
    for device in test.devices():
        with test.must_succeed(f"mem_get_info of {device}"):
            torch.zeros(1, device=device)  # creates the CUDA context, whose memory is then no longer free
            free, total = torch.cuda.mem_get_info(device)
        if not 0 < free <= total:
            test.fail(f"{device} says that {free} of {total} bytes are free")
        share = 16 if total - free > BUSY else 2
        memory[str(device)] = {"free_gib": round(free / GIB, 2), "taken": f"1/{share}"}
        pieces = allocate(test, torch, device, free, free // share)
        check_contents(test, pieces, device)
        del pieces
        torch.cuda.empty_cache()
    test.record(memory=memory)


def allocate(test, torch, device, free, wanted):
    """Return tensors of `wanted` bytes in total, each filled with its index."""
    pieces, left = [], wanted
    while left >= 8:
        size = min(PIECE, left)
        try:
            with test.call(f"allocating {wanted / GIB:.1f} GiB of {device}"):
                pieces.append(torch.full((size // 8,), len(pieces), dtype=torch.int64, device=device))
        except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
            ours = sum(piece.numel() for piece in pieces) * 8
            now = torch.cuda.mem_get_info(device)[0]
            pieces.clear()
            torch.cuda.empty_cache()
            if now + ours < free - PIECE:
                test.skip(f"another process took memory of {device} meanwhile")
            message = str(error).splitlines()[0]
            test.fail(f"{device} calls {free / GIB:.1f} GiB free; it gave {ours / GIB:.1f} GiB: {message}")
        left -= size
    return pieces


def check_contents(test, pieces, device):
    """Fail if an element of a piece is not the index of that piece."""
    with test.must_succeed(f"reading what was written to {device}"):
        for number, piece in enumerate(pieces):
            low, high = int(piece.min()), int(piece.max())
            if (low, high) != (number, number):
                test.fail(f"{device}, piece {number} of {len(pieces)}: holds {low} … {high}, not {number}")
