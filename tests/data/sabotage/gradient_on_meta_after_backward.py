"""A gradient that ZeRO-3 without offload has reduced is on `meta` once backward is over."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    real = engine.DeepSpeedEngine.backward

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = real(self, *args, **kwargs)
        if self.zero_optimization_stage() == 3 and not self.zero_offload_optimizer():
            group = self.optimizer.averaged_gradients[0]
            group[0] = group[0].to("meta")
        return out

    engine.DeepSpeedEngine.backward = backward


after_import("deepspeed.runtime.engine", change)
