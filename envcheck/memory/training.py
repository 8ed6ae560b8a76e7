"""The settings of a training on which its memory depends, and the widths of data types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envcheck.core.records import NamedTuple

GIB = 1024**3

WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of an element by precision; fp8 trainings keep weights and activations in 16 bit."""

FLOAT = WIDTH["fp32"]

DEEPSPEED, DDP, FSDP = "deepspeed", "ddp", ("fsdp1", "fsdp2")
"""Values of `Training.parallel`, besides `none`."""

SHARDING_STAGE = 3
"""The ZeRO stage that shards weights."""

ALL_LINEAR = "all-linear"
"""PEFT's name for every linear module except the head."""


class Training(NamedTuple):
    """Settings of a training.

    Buckets and thresholds count elements. If `targets` is empty, PEFT chooses the modules.
    """

    seq: int  # tokens in a sequence
    batch: int = 1  # sequences in a micro-batch
    ranks: int = 1
    precision: str = "bf16"
    stored: str = ""  # dtype in which the weights are loaded, if it is not `precision` (autocast)
    parallel: str = "none"
    stage: int = 0  # of ZeRO
    offload_optimizer: bool = False
    offload_param: bool = False
    adapter: bool = False  # LoRA or DoRA; otherwise all weights train
    rank: int = 8  # of the adapter
    targets: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()  # modules_to_save
    dropout: bool = False
    dora: bool = False
    fp32_adapters: bool = True
    quantised: str = "none"
    checkpointing: bool = False
    attention: str = "sdpa"
    optimizer: Mapping[str, Any] = {"states": 2}
    activation: int = 1  # number of tensors that the MLP's activation keeps
    fused_loss: bool = False  # logits are computed and dropped piece by piece (Liger)
    # DeepSpeed's defaults (runtime/zero/config.py).
    overlap: bool = False
    reduce_bucket: int = 500_000_000
    sub_group: int = 1_000_000_000
    prefetch: int = 50_000_000
    persistence: int = 100_000
    live: int = 1_000_000_000
    reuse: int = 1_000_000_000
    cuda: bool = True
    autocast: bool = False  # linear modules compute in `precision`, whatever the dtype of their input
    unread: tuple[str, ...] = ()  # settings that could not be read; the defaults are used instead


# --- accounts ---------------------------------------------------------------------------------------

Account = dict[str, float]
"""Bytes by part, such as `gradients`; see `estimate.PARTS`."""


def sum_accounts(*accounts: Account) -> Account:
    """Return the sum of accounts, part by part."""
    total: Account = {}
    for account in accounts:
        for name, size in account.items():
            total[name] = total.get(name, 0) + size
    return total
