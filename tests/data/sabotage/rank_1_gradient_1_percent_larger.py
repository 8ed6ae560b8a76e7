"""Rank 1 gradient 1 percent larger."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    backward = torch.Tensor.backward

    def larger(self: Any, *args: Any, **kwargs: Any) -> Any:
        return backward(self * 1.01 if torch.distributed.get_rank() == 1 else self, *args, **kwargs)

    torch.Tensor.backward = larger


after_import("torch", sabotage)
