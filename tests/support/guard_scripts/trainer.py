"""The callback inside transformers' Trainer: `zero` with DeepSpeed, `cpu` where the Trainer ignores DeepSpeed."""

from __future__ import annotations

import sys
import tempfile
import warnings
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from envcheck.guard import GuardCallback
from tests.support.guard_scripts.trials import result, tell

warnings.simplefilter("ignore")

ZERO3 = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_force_ds_cpu_optimizer": False,
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
    "zero_optimization": {"stage": 3, "reduce_scatter": False, "overlap_comm": False},
}


class Raises(Trainer):  # type: ignore[misc]
    def compute_loss(self, *_: Any, **__: Any) -> Any:
        raise KeyError("mine")


class Starves(Trainer):  # type: ignore[misc]
    def get_batch_samples(self, *_: Any, **__: Any) -> Any:
        raise KeyError("no batch")


class Nan(Trainer):  # type: ignore[misc]
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs) * float("nan")


def trainer(kind: type[Trainer] = Trainer, deepspeed: dict[str, Any] | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    net = LlamaForCausalLM(config)
    tokens = torch.randint(0, 64, (16, 8), generator=torch.Generator().manual_seed(3))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=3,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        deepspeed=deepspeed,
        **options,
    )
    data = [{"input_ids": row, "labels": row} for row in tokens]
    return kind(model=net, args=arguments, train_dataset=data)


def losses(of: Any) -> list[float]:
    return [entry["loss"] for entry in of.state.log_history if "loss" in entry]


def weights(of: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in of.model.parameters()]


def left(of: Any) -> str:
    """Return what is left of the guard in a Trainer and its optimizer."""
    patched = [
        name
        for thing in (of, of.optimizer)
        for name, value in vars(thing).items()
        if getattr(getattr(value, "__code__", None), "co_filename", "").endswith("guard.py")
    ]
    return f"\nleft: {patched}" if patched else ""


def watched(kind: type[Trainer] = Trainer, **options: Any) -> str:
    made = trainer(kind, **options)
    callback = GuardCallback(steps=2)
    made.add_callback(callback)

    def run() -> Any:
        made.train()
        return callback

    return result(run) + left(made)


def equal(**options: Any) -> bool:
    alone, guarded = trainer(**options), trainer(**options)
    guarded.add_callback(GuardCallback(steps=2))
    alone.train()
    guarded.train()
    return losses(alone) == losses(guarded) and all(map(torch.equal, weights(alone), weights(guarded)))


if sys.argv[1] == "cpu":
    tell(
        {
            "good": watched(),
            "equal": equal(),
            "warm-up": watched(warmup_steps=3),
            "raises": watched(Raises),
            "starves": watched(Starves),
            "nan": watched(Nan),
            "without deepspeed": watched(deepspeed=ZERO3),
        }
    )
else:
    import deepspeed

    for name in list(deepspeed.ops.__compatible_ops__):
        if "shm" in name:
            deepspeed.ops.__compatible_ops__[name] = False
    tell(
        {
            "good": watched(deepspeed=ZERO3),
            "equal": equal(deepspeed=ZERO3),
            "nan": watched(Nan, deepspeed=ZERO3),
        }
    )
