"""The trainers of TRL train: supervised, from preferences, and by rewards.

A tiny random Qwen2 (see `_training.py`) takes two steps through `Trainer.train` with a LoRA, as TRL's own
examples set it up: `SFTTrainer` on texts, `DPOTrainer` on pairs of answers, `GRPOTrainer` on prompts whose
completions transformers generates. The tokenizer, one word a token, and the data are made in memory. TRL's
defaults hold, among them bfloat16 and gradient checkpointing. The trainer must have taken the steps, the
losses must be finite, the steps must have moved the adapter and nothing else, and GRPO must have asked the
reward function. Seconds: 3 to 20. Memory: below 1 GiB, nearly all of it libraries.

A failure in `train` means that TRL, transformers, PEFT, accelerate, datasets and torch do not fit together,
although each of them imports.
"""

LEVEL = 2
NEEDS = {
    "pkg.torch": "present",
    "pkg.transformers": ">=4.56.2",
    "pkg.accelerate": "present",
    "pkg.peft": "present",
    "pkg.trl": ">=0.22.0",
}
IMPORTS = (
    "torch",
    "torch._dynamo",
    "torch._inductor.scheduler",
    "transformers",
    "peft",
    "accelerate",
    "datasets",
)
SECONDS = 240

# No `use_reentrant`: releases of TRL set it differently. No `adapter`: the targets leave it to the user.
TRAIN = {
    "trainer": "trl",
    "parallel": "none",
    "quantization": "none",
    "gradient_checkpointing": True,
    "precision": "bf16",
}
VARIANTS = {
    "trl-sft": {"train": {"method": "sft"}},
    "trl-dpo": {"train": {"method": "dpo"}},
    "trl-grpo": {"train": {"method": "grpo"}},
}

STEPS = 2
WORDS = ("yes", "no", "one", "two", "three", "red", "blue", "green", "is", "the", "answer", "question")


def run(test, variant):
    test.require_bf16()
    method = VARIANTS[variant]["train"]["method"]
    with test.call("import trl"):
        import trl  # noqa: F401
    # bfloat16, as TRL loads a model: a float32 model under autocast would hide what does not fit.
    build = {"sft": sft_trainer, "dpo": dpo_trainer, "grpo": grpo_trainer}[method]
    trainer = build(test)
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    with test.call(f"{type(trainer).__name__}.train"):
        try:
            trainer.train()
        except RuntimeError as error:
            # Releases of TRL with Triton kernels start them on the CPU too.
            test.skip_without_gpu(error)
            raise
    if trainer.state.global_step != STEPS:
        test.fail(f"{STEPS} steps were asked for, the trainer took {trainer.state.global_step}")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if len(losses) != STEPS:
        test.fail(f"expected a loss for each of {STEPS} steps, found {len(losses)}")
    test.check_losses_finite(losses)
    moved = {
        name: bool((weight.detach() != before[name]).any())
        for name, weight in trainer.model.named_parameters()
    }
    strange = [name for name, changed in moved.items() if changed and "lora_" not in name]
    if strange:
        test.fail(f"{STEPS} steps moved {strange[0]}, which is frozen")
    if not any(moved.values()):
        test.fail(f"{STEPS} steps did not move the adapter")
    test.record(losses=losses)


def common(test):
    """Return the settings of every trainer; all else is as TRL has it."""
    return {
        "output_dir": f"{test.scratch}/{test.key}.{test.rank}.out",
        "max_steps": STEPS,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": test.device_type == "cpu",
        "bf16": True,
        "gradient_checkpointing": True,
    }


def parts(test):
    """Return what every trainer is given: the model, the tokenizer and the adapter."""
    import peft
    import torch

    return {
        "model": test.tiny_model(dtype=torch.bfloat16),
        "processing_class": test.word_tokenizer(WORDS),
        "peft_config": peft.LoraConfig(
            task_type="CAUSAL_LM", r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False
        ),
    }


def dataset(**columns):
    import datasets

    return datasets.Dataset.from_dict(columns)


def sft_trainer(test):
    import trl

    texts = [f"the answer is {word}" for word in WORDS[:8]]
    with test.call("SFTTrainer"):
        arguments = trl.SFTConfig(**common(test), dataset_text_field="text")
        return trl.SFTTrainer(args=arguments, train_dataset=dataset(text=texts), **parts(test))


def dpo_trainer(test):
    import trl

    rows = dataset(
        prompt=["the question is"] * 8,
        chosen=[f"answer {word}" for word in WORDS[:8]],
        rejected=[f"no {word}" for word in WORDS[:8]],
    )
    with test.call("DPOTrainer"):
        arguments = trl.DPOConfig(**common(test))
        return trl.DPOTrainer(args=arguments, train_dataset=rows, **parts(test))


def grpo_trainer(test):
    import trl

    rows = dataset(prompt=[f"the question is {word}" for word in WORDS[:8]])
    asked = []

    def length_of(completions, **_):
        asked.append(len(completions))
        # A constant reward has no advantage, and so no gradient.
        return [float(number % 2) for number, _ in enumerate(completions)]

    with test.call("GRPOTrainer"):
        arguments = trl.GRPOConfig(**common(test), num_generations=2, max_completion_length=6, use_vllm=False)
        trainer = trl.GRPOTrainer(reward_funcs=length_of, args=arguments, train_dataset=rows, **parts(test))
    trained = trainer.train

    def train():
        trained()
        if not asked:
            test.fail("the reward function was never asked")

    trainer.train = train
    return trainer
