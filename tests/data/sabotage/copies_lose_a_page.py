"""Transfers that leave one page of the destination as it was."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    right = torch.Tensor.copy_

    def copy_(to: Any, *args: Any, **kwargs: Any) -> Any:
        kept = to[4096:4608].clone()
        right(to, *args, **kwargs)
        to[4096:4608] = kept
        return to

    torch.Tensor.copy_ = copy_


after_import("torch", change)
