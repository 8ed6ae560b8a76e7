"""Compare published memory figures of trainings with the estimates of `envcheck fit`.

    python benchmarks/published.py

A published figure contains the CUDA context, for which `fit` states a range, and memory that the allocator
keeps without using it, which `fit` does not count. It was also measured with other releases than those on
which `fit` is based.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent

QWEN = "https://github.com/QwenLM/Qwen/blob/main/README.md"
TORCHTUNE = "https://github.com/pytorch/torchtune/blob/0031bfb080bd35ec533c412df883cf2bf7bf7fe4/README.md"
FACTORY = "https://github.com/hiyouga/LLaMA-Factory/blob/main/README.md"
DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed/blob/master/docs/code-docs/source/memory.rst"

MODELS = {
    "Qwen-1.8B": "params=1.837e9,layers=24,hidden=2048,heads=16,mlp=5504,vocab=151936",
    "Qwen-7B": "params=7.72e9,layers=32,hidden=4096,heads=32,mlp=11008,vocab=151936",
    "Qwen-14B": "params=14.17e9,layers=40,hidden=5120,heads=40,mlp=13696,vocab=152064",
    "Qwen-72B": "params=72.29e9,layers=80,hidden=8192,heads=64,mlp=24576,vocab=152064",
    "Llama-2-7B": "params=6.74e9,layers=32,hidden=4096,heads=32,mlp=11008,vocab=32000",
    "Llama-3.1-8B": "params=8.03e9,layers=32,hidden=4096,heads=32,kv_heads=8,mlp=14336,vocab=128256",
    "Llama-3.1-70B": "params=70.6e9,layers=80,hidden=8192,heads=64,kv_heads=8,mlp=28672,vocab=128256",
    "2.85B parameters": "params=2.851e9",
}

_CHECKPOINTED = {"checkpointing": True, "attention": "flash_attention_2"}
_LORA = {
    **_CHECKPOINTED,
    "adapter": True,
    "rank": 64,
    "targets": ("all-linear",),
    "dropout": True,
    "fp32_adapters": False,
    "optimizer": {"states": 2, "together": True},
}
_GPTQ = {
    **_LORA,
    "precision": "fp16",
    "quantised": "gptq",
    "parallel": "deepspeed",
    "stage": 2,
    "overlap": True,
    "reduce_bucket": 200_000_000,
}
_ZERO3 = {"parallel": "deepspeed", "stage": 3}
_TORCHTUNE = {
    **_CHECKPOINTED,
    "adapter": True,
    "seq": 2048,
    "batch": 2,
    "fused_loss": True,
    "fp32_adapters": False,
}
_ATTENTION = ("q_proj", "v_proj", "o_proj")


UNIT = {QWEN: 10**9, FACTORY: 10**9, TORCHTUNE: 1024**3, DEEPSPEED: 1024**3}
"""Bytes of one G in each source. Qwen's 162.0 G on two GPUs of 80 GiB cannot be GiB."""


class PublishedFigure(NamedTuple):
    """A published figure per GPU, in the unit of its source, with the training it belongs to."""

    model: str
    method: str
    size: float
    how: dict[str, Any]
    source: str


def _by_hidden(hidden: int) -> dict[str, int]:
    return {
        "reduce_bucket": hidden**2,
        "prefetch": int(0.9 * hidden**2),
        "persistence": 10 * hidden,
    }


ROWS = (
    *(
        PublishedFigure(model, f"LoRA, {seq} tokens", size, {**_LORA, "seq": seq, "autocast": True}, QWEN)
        for model, seq, size in (
            ("Qwen-1.8B", 512, 7.4),
            ("Qwen-1.8B", 8192, 21.8),
            ("Qwen-7B", 512, 20.4),
            ("Qwen-7B", 2048, 23.8),
            ("Qwen-7B", 8192, 36.6),
            ("Qwen-14B", 2048, 37.4),
            ("Qwen-14B", 8192, 55.2),
        )
    ),
    *(
        PublishedFigure(model, f"GPTQ LoRA, ZeRO-2, {seq} tokens", size, {**_GPTQ, "seq": seq}, QWEN)
        for model, seq, size in (
            ("Qwen-7B", 512, 11.5),
            ("Qwen-7B", 2048, 13.9),
            ("Qwen-7B", 8192, 23.5),
            ("Qwen-14B", 8192, 27.9),
        )
    ),
    *(
        PublishedFigure(
            "Qwen-72B",
            f"LoRA, ZeRO-3 on 4, {seq} tokens",
            size / 4,
            {**_LORA, **_ZERO3, **_by_hidden(8192), "seq": seq, "ranks": 4},
            QWEN,
        )
        for seq, size in ((512, 217.7), (8192, 289.2))
    ),
    *(
        PublishedFigure(
            "Qwen-7B",
            f"full, ZeRO-3 on 2, {seq} tokens",
            size / 2,
            {**_CHECKPOINTED, **_ZERO3, **_by_hidden(4096), "seq": seq, "ranks": 2},
            QWEN,
        )
        for seq, size in ((256, 139.2), (1024, 162.0))
    ),
    PublishedFigure("Llama-3.1-8B", "LoRA", 16.2, {**_TORCHTUNE, "targets": _ATTENTION}, TORCHTUNE),
    PublishedFigure(
        "Llama-3.1-8B", "QLoRA", 7.4, {**_TORCHTUNE, "targets": _ATTENTION, "quantised": "nf4"}, TORCHTUNE
    ),
    PublishedFigure(
        "Llama-3.1-70B",
        "LoRA, FSDP2 on 8",
        27.6,
        {
            **_TORCHTUNE,
            "targets": (*_ATTENTION, "k_proj"),
            "rank": 16,
            "parallel": "fsdp2",
            "ranks": 8,
        },
        TORCHTUNE,
    ),
    PublishedFigure(
        "Llama-2-7B", "full, bf16 by autocast", 120, {"seq": 0, "stored": "fp32", "autocast": True}, FACTORY
    ),
    PublishedFigure("Llama-2-7B", "full, pure bf16", 60, {"seq": 0}, FACTORY),
    PublishedFigure("Llama-2-7B", "LoRA", 16, {"seq": 512, **_LORA}, FACTORY),
    PublishedFigure("Llama-2-7B", "QLoRA", 6, {"seq": 512, **_LORA, "quantised": "nf4"}, FACTORY),
    PublishedFigure(
        "2.85B parameters", "full, ZeRO-3 on 8, states", 6.10, {"seq": 0, "ranks": 8, **_ZERO3}, DEEPSPEED
    ),
)


def main() -> None:
    """Print the table."""
    sys.path.insert(0, str(ROOT))
    from envcheck.memory import architecture, estimate
    from envcheck.memory.training import Training

    print("| model | training | published | counted, with a CUDA context | counted / published |")
    print("| --- | --- | --: | --: | --: |")
    for row in ROWS:
        account = estimate.estimate(architecture.described(MODELS[row.model]), Training(**row.how))
        # DeepSpeed publishes only the states, without activations and context.
        tensors = account.rest if row.source == DEEPSPEED else account.total
        least, most = (0, 0) if row.source == DEEPSPEED else estimate.CONTEXT
        low, high = (tensors + least) / UNIT[row.source], (tensors + most) / UNIT[row.source]
        share = f"{low / row.size:.2f} to {high / row.size:.2f}"
        print(f"| {row.model} | {row.method} | {row.size:.1f} | {low:.1f} to {high:.1f} | {share} |")


if __name__ == "__main__":
    main()
