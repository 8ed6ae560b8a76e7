"""The memory a GPU says is free can be had, and keeps what is written into it.

Half of what `torch.cuda.mem_get_info` calls free is taken in pieces of 256 MiB, each filled with a number of
its own, read back when all are held, and given back. Where more than 2 GiB is in use before, somebody else
may be training there: then a sixteenth, so that their growth is not what fails. Exact, no tolerance.
Seconds: 1 to 3 a GPU. A failure means a GPU (or a slice of one) that promises memory it does not have, or
that loses what is written.
"""

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
DEVICES = ("cuda",)

PIECE = 256 * 1024 * 1024
BUSY = 2 * 1024 * 1024 * 1024
GIB = 1024**3


def run(stage, variant):
    torch = stage.torch()
    held = {}
    for device in stage.devices():
        with stage.must(f"mem_get_info of {device}"):
            torch.zeros(1, device=device)  # the context's own memory is no longer free
            free, total = torch.cuda.mem_get_info(device)
        if not 0 < free <= total:
            stage.fail(f"{device} says that {free} of {total} bytes are free")
        share = 16 if total - free > BUSY else 2
        held[str(device)] = {"free_gib": round(free / GIB, 2), "taken": f"1/{share}"}
        pieces = taken(stage, torch, device, free, free // share)
        kept(stage, pieces, device)
        del pieces
        torch.cuda.empty_cache()
    stage.saw(memory=held)


def taken(stage, torch, device, free, wanted):
    """Tensors of `wanted` bytes in all, each filled with its number."""
    pieces, left = [], wanted
    while left >= 8:
        size = min(PIECE, left)
        try:
            with stage.call(f"allocating {wanted / GIB:.1f} GiB of {device}"):
                pieces.append(torch.full((size // 8,), len(pieces), dtype=torch.int64, device=device))
        except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
            ours = sum(each.numel() for each in pieces) * 8
            now = torch.cuda.mem_get_info(device)[0]
            pieces.clear()
            torch.cuda.empty_cache()
            if now + ours < free - PIECE:
                stage.skip(f"another process took memory of {device} meanwhile")
            said = str(error).splitlines()[0]
            stage.fail(f"{device} calls {free / GIB:.1f} GiB free; it gave {ours / GIB:.1f} GiB: {said}")
        left -= size
    return pieces


def kept(stage, pieces, device):
    """Fail if a piece does not hold its number everywhere."""
    with stage.must(f"reading what was written to {device}"):
        for number, piece in enumerate(pieces):
            low, high = int(piece.min()), int(piece.max())
            if (low, high) != (number, number):
                stage.fail(f"{device}, piece {number} of {len(pieces)}: holds {low} … {high}, not {number}")
