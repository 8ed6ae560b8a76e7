"""ZeRO drops a parameter group that the learning rate schedule still knows."""

from typing import Any

from after_import import after_import


def change(deepspeed: Any) -> None:
    real = deepspeed.initialize

    def initialize(*args: Any, **kwargs: Any) -> Any:
        engine, optimizer, *rest = real(*args, **kwargs)
        schedule = kwargs.get("lr_scheduler")
        if schedule is not None:
            schedule.base_lrs.append(schedule.base_lrs[0])
            schedule.lr_lambdas.append(schedule.lr_lambdas[0])
        return engine, optimizer, *rest

    deepspeed.initialize = initialize


after_import("deepspeed", change)
