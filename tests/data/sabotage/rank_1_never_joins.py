"""Rank 1 never joins."""

import time
from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    join = torch.distributed.init_process_group

    def never(*args: Any, **kwargs: Any) -> Any:
        if kwargs["rank"] == 1:
            time.sleep(600)
        return join(*args, **kwargs)

    torch.distributed.init_process_group = never


after_import("torch", sabotage)
