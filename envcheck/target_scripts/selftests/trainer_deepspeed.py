"""The transformers Trainer trains a LoRA under DeepSpeed when it is given a DeepSpeed configuration.

A tiny random Qwen2 (see `_worker.py`), two steps of one sequence of 16 tokens through `Trainer.train`, with
the Trainer's own optimizer and schedule. The engine must be DeepSpeed's, of the stage asked for, and have
taken two steps that moved the adapter and nothing else: a Trainer that finds no use for the configuration
trains under DistributedDataParallel without a word. bfloat16 on a GPU that has it, else float32: on a CPU the
Trainer takes bfloat16 only with DeepSpeed switched off. Seconds: 3 to 8. Memory: below 1 GiB, nearly all of
it libraries.

A failure in `Trainer.train` means that transformers, accelerate, DeepSpeed and torch do not fit together,
although each of them imports.
"""

LEVEL = 2
NEEDS = {
    "pkg.torch": "present",
    "pkg.transformers": "present",
    "pkg.peft": "present",
    "pkg.accelerate": "present",
    "pkg.deepspeed": ">=0.14.1",
}
IMPORTS = (
    "torch",
    "torch._dynamo",
    "torch._inductor.scheduler",
    "transformers",
    "peft",
    "accelerate",
    "deepspeed",
)
SECONDS = 120
RANKS = (1, 64)

# No `precision`: it follows from the device.
TRAIN = {
    "trainer": "transformers",
    "parallel": "deepspeed",
    "adapter": "lora",
    "dora": False,
    "quantization": "none",
    "frozen_params": True,
    "gradient_checkpointing": True,
    "use_reentrant": True,
    "gradient_clipping": True,
    "offload_optimizer": "none",
    "offload_param": "none",
}
VARIANTS = {
    "trainer-zero2-lora": {"train": {"zero_stage": 2}},
    "trainer-zero3-lora": {"train": {"zero_stage": 3}},
}

STEPS = 2


def run(stage, variant):
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    deepspeed = stage.deepspeed()
    config = stage.deepspeed_config(train["zero_stage"])
    # What the Trainer's own arguments say as well is left to them.
    for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
        config[key] = "auto"
    config["zero_allow_untested_optimizer"] = True
    config["bf16"] = {"enabled": "auto"}
    trainer = trainer_of(stage, config)

    def parameters():
        named = dict(trainer.model.named_parameters())
        with deepspeed.zero.GatheredParameters(list(named.values())):
            return {name: each.detach().cpu().float().clone() for name, each in named.items()}

    before = parameters()
    with stage.call("Trainer.train"):
        try:
            trainer.train()
        except Exception:
            # What another engine raises is not the news; before there is an engine, it is.
            if trainer.model_wrapped is not trainer.model:
                under_deepspeed(stage, deepspeed, trainer)
            raise
    under_deepspeed(stage, deepspeed, trainer)
    engine = trainer.model_wrapped
    found = engine.zero_optimization_stage()
    if found != train["zero_stage"]:
        stage.fail(f"ZeRO stage {train['zero_stage']} was asked for, the engine has {found}")
    if (engine.global_steps, trainer.state.global_step) != (STEPS, STEPS):
        stage.fail(f"{STEPS} steps were asked for, the engine took {engine.global_steps}")
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    stage.losses_finite(losses)
    after = parameters()
    for name, was in before.items():
        moved = bool((after[name] != was).any())
        if moved and "lora_" not in name:
            stage.fail(f"{STEPS} steps moved {name}, which is frozen")
        if not moved and "lora_" in name:
            stage.fail(f"{STEPS} steps did not move {name}")
    stage.saw(losses=losses)


def under_deepspeed(stage, deepspeed, trainer):
    engine = trainer.model_wrapped
    if not isinstance(engine, deepspeed.DeepSpeedEngine):
        stage.fail(
            f"the Trainer did not train under DeepSpeed: its engine is a {type(engine).__name__}, "
            f"its process of the kind {getattr(trainer.accelerator, 'distributed_type', '?')}"
        )


def trainer_of(stage, config):
    import torch
    import transformers

    with stage.call("TrainingArguments"):
        arguments = transformers.TrainingArguments(
            output_dir=f"{stage.scratch}/{stage.mark}.out",
            deepspeed=config,
            max_steps=STEPS,
            per_device_train_batch_size=1,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            bf16=stage.device_type != "cpu" and torch.cuda.is_bf16_supported(),
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": True},
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
    model = stage.model("lora", checkpointing=True)
    rows = [stage.batch(step, device="cpu")[0] for step in range(STEPS * stage.world)]
    with stage.call("Trainer"):
        return transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=[{"input_ids": each, "labels": each} for each in rows],
        )
