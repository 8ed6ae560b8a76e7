"""Rank 1 sleeps in backward."""

import time
from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    backward = torch.Tensor.backward

    def sleepy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.distributed.get_rank() == 1:
            self.register_hook(lambda _: time.sleep(600))
        return backward(self, *args, **kwargs)

    torch.Tensor.backward = sleepy


after_import("torch", sabotage)
