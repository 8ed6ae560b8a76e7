"""A backward that adds every gradient twice."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    right = torch.Tensor.backward
    torch.Tensor.backward = lambda loss, *args, **kwargs: right(loss * 2, *args, **kwargs)


after_import("torch", change)
