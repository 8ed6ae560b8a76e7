"""The first element of one gradient that ZeRO has reduced is NaN."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    real = engine.DeepSpeedEngine.backward

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = real(self, *args, **kwargs)
        self.optimizer.averaged_gradients[0][0].view(-1)[0] = float("nan")
        return out

    engine.DeepSpeedEngine.backward = backward


after_import("deepspeed.runtime.engine", change)
