"""The Trainer's schedule has a rate for a parameter group that DeepSpeed has dropped, as with transformers before 5.1."""

from typing import Any

from after_import import after_import


def change(trainer: Any) -> None:
    real = trainer.Trainer.create_scheduler

    def create_scheduler(self: Any, *args: Any, **kwargs: Any) -> Any:
        schedule = real(self, *args, **kwargs)
        schedule.base_lrs.append(schedule.base_lrs[0])
        schedule.lr_lambdas.append(schedule.lr_lambdas[0])
        return schedule

    trainer.Trainer.create_scheduler = create_scheduler


after_import("transformers.trainer", change)
