"""Reduce scatter averages."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    reduce_scatter = torch.distributed.reduce_scatter

    def average(output: Any, *args: Any, **kwargs: Any) -> Any:
        reduce_scatter(output, *args, **kwargs)
        output.copy_(output // torch.distributed.get_world_size())

    torch.distributed.reduce_scatter = average


after_import("torch", sabotage)
