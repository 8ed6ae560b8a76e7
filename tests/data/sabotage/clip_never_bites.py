"""Nothing is clipped: neither by torch nor by ZeRO."""

from typing import Any

from after_import import after_import


def by_torch(utils: Any) -> None:
    utils.clip_grad_norm_ = lambda *_, **__: None


def by_zero_2(module: Any) -> None:
    module.DeepSpeedZeroOptimizer.unscale_and_clip_grads = lambda *_: None


def by_zero_3(module: Any) -> None:
    module.DeepSpeedZeroOptimizer_Stage3.unscale_and_clip_grads = lambda *_: None


after_import("torch.nn.utils", by_torch)
after_import("deepspeed.runtime.zero.stage_1_and_2", by_zero_2)
after_import("deepspeed.runtime.zero.stage3", by_zero_3)
