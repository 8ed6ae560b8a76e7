"""Accelerate keeps no engine: its backward has None to call."""

from typing import Any

from after_import import after_import


def change(accelerator: Any) -> None:
    real = accelerator.Accelerator._prepare_deepspeed

    def _prepare_deepspeed(self: Any, *args: Any) -> Any:
        out = real(self, *args)
        self.deepspeed_engine_wrapped = None
        return out

    accelerator.Accelerator._prepare_deepspeed = _prepare_deepspeed


after_import("accelerate.accelerator", change)
