"""What a user calls of a package: the constructors, functions and methods from which calls are followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envcheck.atlas.entries import PACKAGES


@dataclass(frozen=True, slots=True)
class CallEntry:
    """Something that a user calls.

    Attributes:
        path: of the class or function, `trl.SFTTrainer`.
        methods: further methods that a run calls; each with what a user calls to get there.

    """

    path: str
    methods: Mapping[str, str]


CONSTRUCTING = ("__init__", "__post_init__")

_TRAINING = dict.fromkeys(
    (
        *("train", "_inner_training_loop", "_run_epoch", "training_step", "compute_loss", "_wrap_model"),
        *("get_train_dataloader", "create_optimizer_and_scheduler", "create_optimizer", "create_scheduler"),
        *("_prepare_inputs", "_prepare_input", "_maybe_log_save_evaluate", "log", "_clip_grad_norm"),
        *("_prepare_for_training", "_init_training_state", "_finalize_training"),
    ),
    "train",
) | dict.fromkeys(
    ("save_model", "_save", "_save_checkpoint", "_save_optimizer_and_scheduler", "_save_rng_state"),
    "save_model",
)
"""Methods of trainers that every run passes, although flags stand on the way to some of them."""

_STORING = {"from_pretrained": "from_pretrained", "save_pretrained": "save_pretrained"}

_MORE: Mapping[str, tuple[str, ...]] = {
    "accelerate": ("accelerate.Accelerator",),
    "deepspeed": ("deepspeed.initialize",),
    "diffusers": ("diffusers.DiffusionPipeline", "diffusers.UNet2DConditionModel"),
    "sentence-transformers": ("sentence_transformers.SentenceTransformerTrainingArguments",),
    "transformers": ("transformers.Seq2SeqTrainer", "transformers.Seq2SeqTrainingArguments"),
}
_ACCELERATOR = {
    name: name for name in ("prepare", "backward", "unwrap_model", "save_state", "get_state_dict")
}


def call_entries(package: str) -> list[CallEntry]:
    """Return what a user calls of a package, the most usual first."""
    known = PACKAGES.get(package)
    paths = [f"{entry.module}.{name}" for entry in (known.entries if known else ()) for name in entry.names]
    return [
        CallEntry(path, _methods(path.rsplit(".", 1)[-1]))
        for path in dict.fromkeys((*paths, *_MORE.get(package, ())))
    ]


def _methods(name: str) -> Mapping[str, str]:
    if name.endswith("Trainer"):
        return _TRAINING
    if name == "Accelerator":
        return _ACCELERATOR
    return {} if name.endswith(("Config", "Arguments")) else _STORING
