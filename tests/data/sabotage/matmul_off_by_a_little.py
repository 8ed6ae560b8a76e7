"""A float32 product that is a ten-thousandth too large."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    right = torch.Tensor.__matmul__
    torch.Tensor.__matmul__ = lambda a, b: right(a, b) * (1 + 1e-4 * (a.dtype == torch.float32))


after_import("torch", change)
