"""Rank 1 weights corrupted after step."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    step = torch.optim.SGD.step

    def corrupting(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = step(self, *args, **kwargs)
        if torch.distributed.get_rank() == 1:
            weights = self.param_groups[0]["params"][0].data
            getattr(weights, "_local_tensor", weights).flatten()[3] += 0.5
        return done

    torch.optim.SGD.step = corrupting


after_import("torch", sabotage)
