"""A shard of a parameter is on `meta` once ZeRO-3 has stepped with a model that trains as a whole."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    real = engine.DeepSpeedEngine.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = real(self, *args, **kwargs)
        weight = next(self.module.parameters())
        if self.zero_optimization_stage() == 3 and weight.requires_grad:
            weight.ds_tensor = weight.ds_tensor.to("meta")
        return out

    engine.DeepSpeedEngine.step = step


after_import("deepspeed.runtime.engine", change)
