"""DeepSpeed doubles the learning rate it is given."""

from typing import Any

from after_import import after_import


def change(deepspeed: Any) -> None:
    real = deepspeed.initialize

    def initialize(*args: Any, **kwargs: Any) -> Any:
        for group in kwargs["optimizer"].param_groups:
            group["lr"] *= 2
        return real(*args, **kwargs)

    deepspeed.initialize = initialize


after_import("deepspeed", change)
