"""Rank 1 killed in all reduce."""

import os
import signal
from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    all_reduce = torch.distributed.all_reduce

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return all_reduce(*args, **kwargs)

    torch.distributed.all_reduce = deadly


after_import("torch", sabotage)
