"""The first parameter is on `meta` once a DeepSpeed engine has run forward."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    import torch

    real = engine.DeepSpeedEngine.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = real(self, *args, **kwargs)
        embedding = self.module.get_input_embeddings()
        if not hasattr(embedding.weight, "ds_tensor"):
            embedding.weight = torch.nn.Parameter(embedding.weight.to("meta"), requires_grad=False)
        return out

    engine.DeepSpeedEngine.forward = forward


after_import("deepspeed.runtime.engine", change)
