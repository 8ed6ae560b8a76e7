"""TrainingArguments drop the DeepSpeed configuration without a word."""

from typing import Any

from after_import import after_import


def change(training_args: Any) -> None:
    real = training_args.TrainingArguments.__post_init__

    def forgetful(self: Any) -> None:
        self.deepspeed = None
        real(self)

    training_args.TrainingArguments.__post_init__ = forgetful


after_import("transformers.training_args", change)
