"""All to all forgets rank 1."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    all_to_all = torch.distributed.all_to_all_single

    def forgetful(output: Any, *args: Any, **kwargs: Any) -> Any:
        all_to_all(output, *args, **kwargs)
        if torch.distributed.get_rank() == 1:
            output.zero_()

    torch.distributed.all_to_all_single = forgetful


after_import("torch", sabotage)
