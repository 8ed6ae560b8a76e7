"""Rank 1 receives a flipped bit."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    all_gather = torch.distributed.all_gather

    def flipped(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        all_gather(tensors, *args, **kwargs)
        if torch.distributed.get_rank() == 1 and tensors[0].dtype == torch.float32:
            tensors[0].view(torch.int32)[77] ^= 1

    torch.distributed.all_gather = flipped


after_import("torch", sabotage)
