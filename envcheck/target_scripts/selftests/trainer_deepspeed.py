"""The transformers Trainer trains a LoRA under DeepSpeed when it is given a DeepSpeed configuration.

A tiny random Qwen2 (see `_training.py`) takes two steps of one sequence of 16 tokens through `Trainer.train`,
with the Trainer's own optimizer and schedule. The engine must be DeepSpeed's, with the configured ZeRO stage,
and have taken two steps that moved the adapter and nothing else: a Trainer that ignores the configuration
silently trains under DistributedDataParallel. The test uses bfloat16 on a GPU that supports it, otherwise
float32: on a CPU the Trainer accepts bfloat16 only with DeepSpeed switched off. Seconds: 3 to 8. Memory:
below 1 GiB, nearly all of it libraries.

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

# No `precision`: it depends on the device.
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


def run(test, variant):
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    deepspeed = test.import_deepspeed()
    config = test.deepspeed_config(train["zero_stage"])
    # The Trainer's own arguments set these values too, so the configuration leaves them to it.
    for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
        config[key] = "auto"
    config["zero_allow_untested_optimizer"] = True
    config["bf16"] = {"enabled": "auto"}
    trainer = build_trainer(test, config)

    def parameters():
        named = dict(trainer.model.named_parameters())
        with deepspeed.zero.GatheredParameters(list(named.values())):
            test.settle()
            return {name: weight.detach().cpu().float().clone() for name, weight in named.items()}

    before = parameters()
    with test.call("Trainer.train"):
        try:
            trainer.train()
        except Exception:
            # If another engine than DeepSpeed's raised, the wrong engine is the result; without any engine,
            # the error is.
            if trainer.model_wrapped is not trainer.model:
                check_engine(test, deepspeed, trainer)
            raise
    check_engine(test, deepspeed, trainer)
    engine = trainer.model_wrapped
    found = engine.zero_optimization_stage()
    if found != train["zero_stage"]:
        test.fail(f"ZeRO stage {train['zero_stage']} was asked for, the engine has {found}")
    if (engine.global_steps, trainer.state.global_step) != (STEPS, STEPS):
        test.fail(f"{STEPS} steps were asked for, the engine took {engine.global_steps}")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    test.check_losses_finite(losses)
    after = parameters()
    for name, was in before.items():
        moved = bool((after[name] != was).any())
        if moved and "lora_" not in name:
            test.fail(f"{STEPS} steps moved {name}, which is frozen")
        if not moved and "lora_" in name:
            test.fail(f"{STEPS} steps did not move {name}")
    test.record(losses=losses)


def check_engine(test, deepspeed, trainer):
    """Fail unless the Trainer trained with DeepSpeed's engine."""
    engine = trainer.model_wrapped
    if not isinstance(engine, deepspeed.DeepSpeedEngine):
        test.fail(
            f"the Trainer did not train under DeepSpeed: its engine is a {type(engine).__name__}, "
            f"its process of the kind {getattr(trainer.accelerator, 'distributed_type', '?')}"
        )


def build_trainer(test, config):
    import torch
    import transformers

    with test.call("TrainingArguments"):
        arguments = transformers.TrainingArguments(
            output_dir=f"{test.scratch}/{test.key}.out",
            deepspeed=config,
            max_steps=STEPS,
            per_device_train_batch_size=1,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            bf16=test.device_type != "cpu" and torch.cuda.is_bf16_supported(),
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": True},
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
    model = test.tiny_model("lora", checkpointing=True)
    rows = [test.batch(step, device="cpu")[0] for step in range(STEPS * test.world)]
    with test.call("Trainer"):
        return transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        )
