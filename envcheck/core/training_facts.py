"""The declarations of `train.*` facts, which readers of configurations yield and rules name."""

from __future__ import annotations

from envcheck.core.facts import Key, Kind

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
            "verl",
            "nemo_rl",
            "sentence_transformers",
            "custom",
        ),
    ),
    "train.zero_stage": Key(
        Kind.NUMBER,
        "DeepSpeed ZeRO stage, 0 to 3",
        words=("0", "1", "2", "3"),
        phrases={"present": "any ZeRO stage", "0": "no ZeRO", "1": "ZeRO-1", "2": "ZeRO-2", "3": "ZeRO-3"},
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
        (
            "none",
            "lora",
            "adalora",
            "ia3",
            "prompt",
            "prefix",
            "p_tuning",
            "multitask_prompt",
            "oft",
            "boft",
            "vera",
            "loha",
            "lokr",
            "hra",
            "ln_tuning",
            "poly",
            "xlora",
            "fourierft",
            "vblora",
            "bone",
            "miss",
            "randlora",
            "shira",
            "c3a",
            "road",
            "waveft",
            "cpt",
            "adaption_prompt",
            "trainable_tokens",
            "delora",
        ),
        {
            "none": "full fine-tuning",
            "!=none": "an adapter",
            "lora": "LoRA",
            "adalora": "AdaLoRA",
            "ia3": "IA3",
            "prompt": "prompt tuning",
            "prefix": "prefix tuning",
            "oft": "OFT",
            "boft": "BOFT",
            "vera": "VeRA",
            "loha": "LoHa",
            "lokr": "LoKr",
            "miss": "MiSS",
            "shira": "SHiRA",
        },
    ),
    "train.dora": Key(
        Kind.FLAG, "LoRA with weight decomposition", phrases={"true": "DoRA", "false": "no DoRA"}
    ),
    "train.lora_rank": Key(Kind.NUMBER, "rank of LoRA's matrices"),
    "train.lora_targets": Key(
        Kind.WORD, "modules that LoRA adapts, in lower case with commas between; all-linear: every linear one"
    ),
    "train.lora_dropout": Key(Kind.FLAG, "LoRA drops inputs at random, and so keeps masks"),
    "train.quantization": Key(
        Kind.WORD,
        "how the base model is quantised",
        (
            "none",
            "nf4",
            "fp4",
            "int8",
            "int4",
            "gptq",
            "awq",
            "aqlm",
            "eetq",
            "quanto",
            "fp8",
            "mxfp4",
            "hqq",
        ),
        {"none": "an unquantised base", "nf4": "an NF4 base", "fp4": "an FP4 base", "int8": "an int8 base"},
    ),
    "train.frozen_params": Key(
        Kind.FLAG,
        "whether some parameters do not train",
        phrases={"true": "frozen parameters", "false": "no frozen parameters"},
    ),
    "train.frozen_encoders_only": Key(
        Kind.FLAG,
        "flags freeze only encoders that no gradient passes; an adapter's base counts apart",
        phrases={"true": "only encoders of images or sound frozen", "false": "more than encoders frozen"},
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
        ("none", "ddp", "deepspeed", "fsdp1", "fsdp2", "megatron"),
        {
            "megatron": "Megatron",
            "none": "one process",
            "ddp": "DDP",
            "deepspeed": "DeepSpeed",
            "fsdp1": "FSDP",
            "fsdp2": "FSDP2",
        },
    ),
    "train.fsdp_unversioned": Key(
        Kind.FLAG, "the Trainer's `fsdp` is given without a version of FSDP, which the release decides"
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
        phrases={
            "eager": "eager attention",
            "sdpa": "SDPA attention",
            "flash_attention_2": "FlashAttention 2",
            "flash_attention_3": "FlashAttention 3",
            "flex_attention": "FlexAttention",
            "xformers": "xFormers attention",
        },
    ),
    "train.gradient_clipping": Key(
        Kind.FLAG,
        "whether gradients are clipped by norm",
        phrases={"true": "gradient clipping", "false": "no gradient clipping"},
    ),
    "train.optimizer": Key(Kind.WORD, "optimizer by the trainer's name for it, in lower case"),
    "train.model_type": Key(Kind.WORD, "`model_type` of the model's config.json"),
    "train.report_to": Key(
        Kind.WORDS, "experiment trackers that the Trainer reports to, by its names for them"
    ),
    "train.trust_remote_code": Key(
        Kind.FLAG,
        "code that the model itself brings may run (auto_map in its config.json)",
        phrases={"true": "the model's own code", "false": "none of the model's own code"},
    ),
    "train.packing": Key(
        Kind.FLAG,
        "several examples packed into one sequence",
        phrases={"true": "packing", "false": "no packing"},
    ),
    "train.modules_to_save": Key(
        Kind.FLAG,
        "PEFT trains and saves whole modules beside the adapter",
        phrases={"true": "modules saved beside the adapter", "false": "nothing saved beside the adapter"},
    ),
    "train.resume": Key(
        Kind.FLAG,
        "training continues from a saved checkpoint",
        phrases={"true": "a resumed run", "false": "a fresh run"},
    ),
    "train.world_size": Key(Kind.NUMBER, "processes in all", phrases={"1": "1 process", "*": "{} processes"}),
    "train.torch_compile": Key(
        Kind.FLAG, "the model is compiled", phrases={"true": "torch.compile", "false": "no torch.compile"}
    ),
    # --- method and data types
    "train.method": Key(
        Kind.WORD,
        "what the loop optimises",
        ("pretrain", "sft", "dpo", "kto", "orpo", "reward", "ppo", "grpo", "rloo", "online_dpo", "embedding"),
        phrases={
            "pretrain": "pretraining",
            "sft": "SFT",
            "dpo": "DPO",
            "kto": "KTO",
            "orpo": "ORPO",
            "reward": "a reward model",
            "ppo": "PPO",
            "grpo": "GRPO",
            "rloo": "RLOO",
            "online_dpo": "online DPO",
            "embedding": "an embedding model",
        },
    ),
    "train.base_dtype": Key(
        Kind.WORD,
        "dtype the base model is loaded in",
        ("float32", "float16", "bfloat16", "auto"),
        phrases={"*": "a base in {}"},
    ),
    "train.quant_storage": Key(
        Kind.WORD,
        "dtype in which 4-bit weights are stored (bnb_4bit_quant_storage)",
        ("uint8", "float32", "float16", "bfloat16"),
        phrases={"*": "4-bit weights stored as {}"},
    ),
    "train.compute_dtype": Key(
        Kind.WORD,
        "dtype that 4-bit weights are multiplied in (bnb_4bit_compute_dtype)",
        ("float32", "float16", "bfloat16"),
        phrases={"*": "4-bit weights multiplied in {}"},
    ),
    "train.tf32": Key(
        Kind.FLAG, "float32 matrix products in TF32", phrases={"true": "TF32", "false": "no TF32"}
    ),
    "train.vllm_device": Key(
        Kind.WORD, "the GPU on which TRL 0.14 and 0.15 start vLLM; auto is the one after the last process"
    ),
    "train.device_map": Key(Kind.WORD, "device_map the model is loaded with; none if it is given none"),
    "train.liger_kernel": Key(
        Kind.FLAG,
        "kernels of Liger replace the model's own",
        phrases={"true": "Liger kernels", "false": "no Liger kernels"},
    ),
    "train.liger_plugin": Key(
        Kind.FLAG,
        "axolotl's Liger plugin patches the model by options of its own",
        phrases={"true": "axolotl's Liger plugin", "false": "no Liger plugin of axolotl"},
    ),
    "train.unsloth": Key(Kind.FLAG, "Unsloth loads and patches the model"),
    "train.padding_free": Key(
        Kind.FLAG,
        "a batch is flattened into one sequence without padding",
        phrases={"true": "batches without padding", "false": "padded batches"},
    ),
    "train.vllm": Key(
        Kind.FLAG,
        "vLLM generates the completions that are trained on",
        phrases={"true": "generation with vLLM", "false": "generation without vLLM"},
    ),
    # --- size of a step
    "train.micro_batch_size": Key(
        Kind.NUMBER, "examples that a process takes at once", phrases={"*": "micro batch {}"}
    ),
    "train.sequence_length": Key(
        Kind.NUMBER, "tokens that an example is cut to", phrases={"*": "sequences of {}"}
    ),
    "train.gradient_accumulation_steps": Key(
        Kind.NUMBER,
        "micro batches for each optimizer step",
        phrases={"1": "no accumulation", "*": "{} accumulation steps"},
    ),
    "train.global_batch_size": Key(
        Kind.NUMBER,
        "examples for each optimizer step, all processes together, as the configuration says",
        phrases={"*": "global batch {}"},
    ),
    "train.tensor_parallel": Key(Kind.NUMBER, "processes that share each layer"),
    "train.sequence_parallel": Key(Kind.NUMBER, "processes that share each sequence by heads (Ulysses)"),
    "train.context_parallel": Key(Kind.NUMBER, "processes that share each sequence by position (ring)"),
    "train.group_by_length": Key(
        Kind.FLAG, "the Trainer puts examples of like length together, and measures them itself"
    ),
    "train.label_smoothing": Key(
        Kind.FLAG, "the trainer smooths the labels (label_smoothing_factor above 0)"
    ),
    "train.sft_loss": Key(
        Kind.WORD, "loss of TRL's supervised training (loss_type)", ("nll", "dft", "chunked_nll")
    ),
    "train.auto_find_batch_size": Key(Kind.FLAG, "the trainer halves the batch until it fits"),
    # --- DeepSpeed
    "train.zero_sub_group_size": Key(Kind.NUMBER, "elements of a tile in ZeRO-3's optimizer step"),
    "train.zero_persistence_threshold": Key(
        Kind.NUMBER,
        "elements below which ZeRO-3 leaves a parameter whole (stage3_param_persistence_threshold)",
    ),
    "train.zero_reduce_bucket": Key(Kind.NUMBER, "elements that ZeRO reduces at once (reduce_bucket_size)"),
    "train.zero_prefetch_bucket": Key(
        Kind.NUMBER, "elements that ZeRO-3 gathers ahead (stage3_prefetch_bucket_size)"
    ),
    "train.zero_max_live": Key(
        Kind.NUMBER, "gathered elements above which ZeRO-3 gathers none ahead (stage3_max_live_parameters)"
    ),
    "train.zero_max_reuse": Key(
        Kind.NUMBER, "elements within which a parameter used again stays (stage3_max_reuse_distance)"
    ),
    "train.zero_sized_by_model": Key(
        Kind.FLAG,
        "ZeRO's bucket sizes and thresholds are \"auto\": the trainer makes them of the model's hidden_size",
    ),
    "train.zero_prefetch_by_model": Key(
        Kind.FLAG, 'stage3_prefetch_bucket_size is "auto": the trainer makes it of the model\'s hidden_size'
    ),
    "train.zero_overlap_comm": Key(
        Kind.FLAG,
        "ZeRO reduces gradients during the backward pass",
        phrases={"true": "overlapped communication", "false": "no overlapped communication"},
    ),
    "train.zero_contiguous_gradients": Key(Kind.FLAG, "ZeRO copies gradients into one buffer"),
    "train.zero_reduce_scatter": Key(Kind.FLAG, "ZeRO reduces and scatters gradients in one call"),
    "train.zero_hpz_partition_size": Key(
        Kind.NUMBER, "processes of ZeRO++'s secondary partition (zero_hpz_partition_size); 1 is none"
    ),
    "train.zero_quantized_weights": Key(Kind.FLAG, "ZeRO++ gathers quantised weights"),
    "train.zero_quantized_gradients": Key(Kind.FLAG, "ZeRO++ reduces quantised gradients"),
    "train.zero_allow_untested_optimizer": Key(
        Kind.FLAG, "ZeRO takes optimizers nobody tested with it (zero_allow_untested_optimizer)"
    ),
    "train.zero_force_cpu_optimizer": Key(
        Kind.FLAG, "offload insists on DeepSpeed's CPU optimizer (zero_force_ds_cpu_optimizer)"
    ),
    "train.deepspeed_optimizer": Key(
        Kind.FLAG,
        "the DeepSpeed configuration itself names the optimizer, not the trainer",
        phrases={"true": "DeepSpeed's own optimizer", "false": "the trainer's optimizer"},
    ),
    "train.zero3_init": Key(
        Kind.FLAG,
        "the model is loaded while transformers knows of ZeRO-3, and so in parts (zero3_init_flag)",
        phrases={"true": "a model partitioned while it is loaded", "false": "a model loaded whole"},
    ),
    "train.deepspeed_scheduler": Key(
        Kind.FLAG,
        "the DeepSpeed configuration itself names the schedule of the learning rate, not the trainer",
        phrases={"true": "DeepSpeed's own scheduler", "false": "the trainer's scheduler"},
    ),
    "train.gather_on_save": Key(
        Kind.FLAG,
        "ZeRO-3 gathers weights for a save (stage3_gather_16bit_weights_on_model_save)",
        phrases={"true": "weights gathered for a save", "false": "weights not gathered for a save"},
    ),
    # --- FSDP and DDP
    "train.fsdp_state_dict": Key(
        Kind.WORD, "how FSDP saves: one file, a shard a rank, or local views", ("full", "sharded", "local")
    ),
    "train.fsdp_sharding": Key(
        Kind.WORD,
        "FSDP1's sharding strategy",
        ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"),
    ),
    "train.fsdp_forward_prefetch": Key(Kind.FLAG, "FSDP gathers the next unit during the forward pass"),
    "train.fsdp_offload": Key(
        Kind.FLAG,
        "FSDP keeps parameters and gradients on the CPU",
        phrases={"true": "FSDP offload", "false": "no FSDP offload"},
    ),
    "train.fsdp_activation_checkpointing": Key(
        Kind.FLAG, "FSDP's own activation checkpointing, beside the trainer's gradient_checkpointing"
    ),
    "train.fsdp_cpu_ram_efficient_loading": Key(Kind.FLAG, "only rank 0 reads the weights"),
    "train.fsdp_sync_module_states": Key(Kind.FLAG, "FSDP broadcasts rank 0's weights when it wraps"),
    "train.ddp_find_unused_parameters": Key(Kind.FLAG, "DDP looks for parameters without a gradient"),
    "train.ddp_static_graph": Key(Kind.FLAG, "DDP takes the graph of the first step for that of all"),
    # --- saving, evaluation, data
    "train.load_best_model": Key(
        Kind.FLAG,
        "the best checkpoint is loaded at the end",
        phrases={"true": "the best checkpoint loaded at the end", "false": "the best checkpoint not loaded"},
    ),
    "train.save_only_model": Key(Kind.FLAG, "checkpoints without optimizer, scheduler and random state"),
    "train.save_strategy": Key(
        Kind.WORD,
        "when a checkpoint is saved",
        ("no", "steps", "epoch", "best"),
        phrases={"no": "no checkpoints", "*": "checkpoints by {}"},
    ),
    "train.eval_strategy": Key(
        Kind.WORD,
        "when the model is evaluated",
        ("no", "steps", "epoch"),
        phrases={"no": "no evaluation", "*": "evaluation by {}"},
    ),
    "train.save_steps": Key(Kind.NUMBER, "optimizer steps between two checkpoints"),
    "train.eval_steps": Key(Kind.NUMBER, "optimizer steps between two evaluations"),
    "train.lr_scheduler": Key(Kind.WORD, "learning-rate schedule by the trainer's name for it"),
    "train.dataloader_workers": Key(Kind.NUMBER, "processes that prepare batches; 0 is none"),
    "train.dataloader_prefetch_factor": Key(Kind.NUMBER, "batches that each of them prepares ahead"),
    "train.dataloader_persistent_workers": Key(Kind.FLAG, "they are kept from epoch to epoch"),
}
"""The meaning of each fact of a training configuration, and the phrases that sentences use for its values."""
