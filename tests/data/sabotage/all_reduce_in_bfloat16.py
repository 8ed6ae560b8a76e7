"""All reduce in bfloat16."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    all_reduce = torch.distributed.all_reduce

    def narrow(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if tensor.dtype != torch.float32:
            return all_reduce(tensor, *args, **kwargs)
        narrower = tensor.to(torch.bfloat16)
        done = all_reduce(narrower, *args, **kwargs)
        tensor.copy_(narrower)
        return done

    torch.distributed.all_reduce = narrow


after_import("torch", sabotage)
