"""A GPU that gives less than a quarter of the memory it calls free."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    right, given = torch.full, [0]

    def full(size: Any, value: Any, **kwargs: Any) -> Any:
        given[0] += size[0] * 8 if kwargs.get("device") is not None else 0
        if given[0] > 256 * 1024 * 1024:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 44.00 MiB.")
        return right(size, value, **kwargs)

    torch.full = full


after_import("torch", change)
