"""A buffer of a model with offloaded parameters is on `meta` once a checkpoint is saved."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    real = engine.DeepSpeedEngine.save_checkpoint

    def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = real(self, *args, **kwargs)
        if self.zero_offload_param():
            for module in self.module.modules():
                for name, buffer in module.named_buffers(recurse=False):
                    module._buffers[name] = buffer.to("meta")
        return out

    engine.DeepSpeedEngine.save_checkpoint = save_checkpoint


after_import("deepspeed.runtime.engine", change)
