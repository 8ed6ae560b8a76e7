"""A moment that an offloaded optimizer keeps is on `meta` once the step is over."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    real = engine.DeepSpeedEngine.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = real(self, *args, **kwargs)
        if self.zero_offload_optimizer() and not self.zero_offload_param():
            state = next(iter(self.optimizer.optimizer.state.values()))
            state["exp_avg_sq"] = state["exp_avg_sq"].to("meta")
        return out

    engine.DeepSpeedEngine.step = step


after_import("deepspeed.runtime.engine", change)
