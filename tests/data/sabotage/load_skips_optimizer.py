"""A checkpoint is loaded without its optimizer states, by DeepSpeed and by torch alike."""

from typing import Any

from after_import import after_import


def by_deepspeed(engine: Any) -> None:
    real = engine.DeepSpeedEngine.load_checkpoint

    def load_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, *args, **{**kwargs, "load_optimizer_states": False})

    engine.DeepSpeedEngine.load_checkpoint = load_checkpoint


def by_torch(optim: Any) -> None:
    optim.AdamW.load_state_dict = lambda *_: None


after_import("deepspeed.runtime.engine", by_deepspeed)
after_import("torch.optim", by_torch)
