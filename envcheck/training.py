"""The vocabulary of training configurations: every `train.*` fact a reader may yield or a rule may ask."""

from __future__ import annotations

from envcheck.model import Key, Kind

_OFFLOAD = ("none", "cpu", "nvme")

KEYS = {
    "train.trainer": Key(
        Kind.WORD,
        "what runs the loop; Absent once a configuration is given that names none",
        words=(
            "transformers",
            "trl",
            "openrlhf",
            "llamafactory",
            "axolotl",
            "swift",
            "accelerate",
            "deepspeed",
            "torchtune",
            "custom",
        ),
    ),
    "train.zero_stage": Key(
        Kind.NUMBER,
        "DeepSpeed ZeRO stage, 0 to 3",
        words=("0", "1", "2", "3"),
        phrases={"0": "no ZeRO", "1": "ZeRO-1", "2": "ZeRO-2", "3": "ZeRO-3"},
    ),
    "train.offload_optimizer": Key(
        Kind.WORD,
        "where ZeRO keeps optimizer states",
        _OFFLOAD,
        {"none": "no optimizer offload", "cpu": "CPU optimizer offload", "nvme": "NVMe optimizer offload"},
    ),
    "train.offload_param": Key(
        Kind.WORD,
        "where ZeRO-3 keeps parameters",
        _OFFLOAD,
        {"none": "no parameter offload", "cpu": "CPU parameter offload", "nvme": "NVMe parameter offload"},
    ),
    "train.adapter": Key(
        Kind.WORD,
        "PEFT method, none for full fine-tuning",
        ("none", "lora", "adalora", "ia3", "prompt", "prefix", "oft", "vera", "loha", "lokr"),
        {"none": "full fine-tuning", "lora": "LoRA"},
    ),
    "train.dora": Key(
        Kind.FLAG, "LoRA with weight decomposition", phrases={"true": "DoRA", "false": "no DoRA"}
    ),
    "train.quantization": Key(
        Kind.WORD,
        "how the base model is quantised",
        ("none", "nf4", "fp4", "int8", "gptq", "awq", "fp8", "hqq"),
        {"none": "an unquantised base", "nf4": "an NF4 base", "int8": "an int8 base"},
    ),
    "train.frozen_params": Key(
        Kind.FLAG,
        "whether some parameters do not train",
        phrases={"true": "frozen parameters", "false": "no frozen parameters"},
    ),
    "train.gradient_checkpointing": Key(
        Kind.FLAG,
        "activation checkpointing: recompute in the backward pass",
        phrases={"true": "gradient checkpointing", "false": "no gradient checkpointing"},
    ),
    "train.use_reentrant": Key(
        Kind.FLAG,
        "which of torch's two checkpoint implementations",
        phrases={"true": "reentrant checkpointing", "false": "non-reentrant checkpointing"},
    ),
    "train.precision": Key(Kind.WORD, "compute precision", ("fp32", "fp16", "bf16", "fp8", "tf32")),
    "train.parallel": Key(
        Kind.WORD,
        "how the model is spread",
        ("none", "ddp", "deepspeed", "fsdp1", "fsdp2"),
        {"none": "one process", "ddp": "DDP", "deepspeed": "DeepSpeed", "fsdp1": "FSDP", "fsdp2": "FSDP2"},
    ),
    "train.fsdp_wrap": Key(
        Kind.WORD,
        "FSDP auto-wrap policy; peft wraps each adapter in a unit of its own",
        ("none", "peft", "transformer", "size"),
    ),
    "train.fsdp_use_orig_params": Key(Kind.FLAG, "FSDP1's use_orig_params"),
    "train.fsdp_mixed_precision": Key(
        Kind.FLAG,
        "FSDP casts parameters itself (MixedPrecision policy)",
        phrases={"true": "FSDP mixed precision", "false": "no FSDP mixed precision"},
    ),
    "train.autocast_adapter_dtype": Key(
        Kind.FLAG,
        "PEFT keeps adapter weights in float32 (its default)",
        phrases={"true": "float32 adapters", "false": "adapters in the base dtype"},
    ),
    "train.attention": Key(
        Kind.WORD,
        "attention implementation",
        ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers"),
    ),
    "train.gradient_clipping": Key(Kind.FLAG, "whether gradients are clipped by norm"),
    "train.optimizer": Key(Kind.WORD, "optimizer by the trainer's name for it, in lower case"),
    "train.model_type": Key(Kind.WORD, "`model_type` of the model's config.json"),
    "train.trust_remote_code": Key(
        Kind.FLAG,
        "code that the model itself brings may run (auto_map in its config.json)",
        phrases={"true": "the model's own code", "false": "no code of the model's own"},
    ),
    "train.packing": Key(Kind.FLAG, "several examples packed into one sequence"),
    "train.modules_to_save": Key(Kind.FLAG, "PEFT trains and saves whole modules beside the adapter"),
    "train.resume": Key(Kind.FLAG, "training continues from a saved checkpoint"),
    "train.world_size": Key(Kind.NUMBER, "processes in all"),
    "train.torch_compile": Key(Kind.FLAG, "the model is compiled"),
}
"""What the facts of a training configuration mean, and how a sentence names their values."""
