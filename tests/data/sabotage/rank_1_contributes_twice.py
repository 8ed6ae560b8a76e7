"""Rank 1 contributes twice."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    all_reduce = torch.distributed.all_reduce

    def twice(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.distributed.get_rank() == 1:
            tensor.mul_(2)
        return all_reduce(tensor, *args, **kwargs)

    torch.distributed.all_reduce = twice


after_import("torch", sabotage)
