"""Training that resumes from a checkpoint goes on as if it had never stopped.

A tiny random Qwen2 (see `_training.py`) takes two steps, of one sequence of 16 tokens each, is saved, and
takes two more. Then a model and an optimizer made from another seed load what was saved and take the same two
steps. Losses, and parameters before and after these steps, must be equal: the tolerance is 0, because both
runs do the same operations in the same order on the same device from the same bits. (Attention runs in
torch's plain form, because the fused forms add up in an order that varies on CUDA.)

DeepSpeed saves and loads with `save_checkpoint` and `load_checkpoint`. Without DeepSpeed, the adapter is
saved with PEFT's `save_pretrained` and the optimizer with `torch.save`. Seconds: 2 to 5. Memory: below 1 GiB,
nearly all of it libraries.

A failure means that a resumed run differs from an uninterrupted one: optimizer states or an adapter were not
saved, or not loaded.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "peft", "deepspeed")
SECONDS = 120
RANKS = (1, 64)

TRAIN = {
    "trainer": "deepspeed",
    "parallel": "deepspeed",
    "adapter": "lora",
    "dora": False,
    "frozen_params": True,
    "gradient_checkpointing": True,
    "use_reentrant": True,
    "precision": "bf16",
    "gradient_clipping": True,
    "offload_optimizer": "none",
    "offload_param": "none",
    "resume": True,
}
# No `quantization` for the plain variant: an adapter and its optimizer are saved alike over any base.
VARIANTS = {
    "resume-plain-lora": {
        "needs": {"pkg.peft": "present"},
        "train": {"trainer": "custom", "parallel": "none", "gradient_clipping": False},
    },
    "resume-zero2-lora": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 2, "quantization": "none"},
    },
    "resume-zero3-lora": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none"},
    },
    "resume-zero3-lora-offload": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none", "offload_optimizer": "cpu"},
    },
}


def run(test, variant):
    import torch

    if test.device_type != "cpu":
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    trainer_class = PlainTrainer if train["parallel"] == "none" else DeepSpeedTrainer
    first = trainer_class(test, train, seed=0)
    start = first.parameters()
    for step in (0, 1):
        first.step(step)
    with test.call("save"):
        first.save()
    saved = first.parameters()
    if all(bool((saved[name] == start[name]).all()) for name in start):
        test.fail("two steps changed no parameter: there is nothing to resume")
    uninterrupted = [first.step(step) for step in (2, 3)]
    ended = first.parameters()
    first.end()

    second = trainer_class(test, train, seed=7)
    if all(bool((value == saved[name]).all()) for name, value in second.parameters().items()):
        raise LookupError("a model of another seed has the same parameters: a load would not show")
    with test.call("load"):
        second.load()
    check_equal(test, second.parameters(), saved, "after loading")
    resumed = [second.step(step) for step in (2, 3)]
    for step in (0, 1):
        if resumed[step] != uninterrupted[step]:
            test.fail(
                f"the loss of step {step + 2} is {resumed[step]:.9g} after resuming, "
                f"{uninterrupted[step]:.9g} without stopping"
            )
    check_equal(test, second.parameters(), ended, "two steps after resuming")
    test.check_losses_finite(uninterrupted)
    test.record(losses=uninterrupted)


def check_equal(test, found, expected, when):
    """Fail at the first parameter that is missing, new or not equal."""
    if set(found) != set(expected):
        test.fail(f"{when}, these parameters are not in both: {sorted(set(found) ^ set(expected))[:4]}")
    for name, value in expected.items():
        test.check_close(found[name], value, 0.0, f"{name}, {when}")


class PlainTrainer:
    """An adapter over a base, trained with AdamW; PEFT saves the adapter, torch the optimizer's states."""

    def __init__(self, test, train, seed):
        import torch

        self.test = test
        self.folder = f"{test.scratch}/{test.key}.{test.rank}"
        # Every run makes the same base (seed 0); the checkpoint does not hold it.
        base = test.tiny_model(checkpointing=True, dtype=torch.bfloat16)
        base.enable_input_require_grads()
        self.model = test.with_adapter(base, train["adapter"], seed).to(test.device).train()
        self.trained = {
            name: weight for name, weight in self.model.named_parameters() if weight.requires_grad
        }
        self.optimizer = torch.optim.AdamW(self.trained.values(), lr=1e-3)

    def step(self, step):
        ids = self.test.batch(step)
        with self.test.call("forward"):
            loss = self.model(input_ids=ids, labels=ids).loss
        with self.test.call("backward"):
            loss.backward()
        with self.test.call("step"):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss)

    def parameters(self):
        return {name: weight.detach().clone() for name, weight in self.trained.items()}

    def save(self):
        import torch

        self.model.save_pretrained(self.folder, safe_serialization=True)
        torch.save(self.optimizer.state_dict(), f"{self.folder}/optimizer.pt")

    def load(self):
        import peft
        import torch

        weights = peft.load_peft_weights(self.folder, device=str(self.test.device))
        loaded = peft.set_peft_model_state_dict(self.model, weights)
        missing = [name for name in loaded.missing_keys if "lora_" in name]
        if missing or loaded.unexpected_keys:
            problem = f"missing {missing[:4]}, unexpected {loaded.unexpected_keys[:4]}"
            self.test.fail(f"the saved adapter does not fit: {problem}")
        self.optimizer.load_state_dict(torch.load(f"{self.folder}/optimizer.pt", weights_only=True))

    def end(self):
        pass


class DeepSpeedTrainer:
    """A DeepSpeed engine with its own checkpoint."""

    def __init__(self, test, train, seed):
        self.test = test
        self.folder = f"{test.scratch}/{test.key}.saved"
        self.deepspeed = test.import_deepspeed()
        offload = [part for part in ("optimizer", "param") if train[f"offload_{part}"] == "cpu"]
        model = test.tiny_model(train["adapter"], checkpointing=True, seed=seed)
        config = test.deepspeed_config(train["zero_stage"], train["precision"], offload=offload)
        self.engine = test.deepspeed_engine(self.deepspeed, model, config)

    def step(self, step):
        ids = self.test.batch(step)
        with self.test.call("forward"):
            loss = self.engine(input_ids=ids, labels=ids).loss
        with self.test.call("backward"):
            self.engine.backward(loss)
        with self.test.call("step"):
            self.engine.step()
            self.test.settle()
        return float(loss)

    def parameters(self):
        """Return all parameters, frozen ones too, gathered from their shards."""
        named = dict(self.engine.module.named_parameters())
        with self.deepspeed.zero.GatheredParameters(list(named.values())):
            self.test.settle()
            return {name: weight.detach().clone() for name, weight in named.items()}

    def save(self):
        self.engine.save_checkpoint(self.folder, tag="here")
        self.test.settle()

    def load(self):
        path, _ = self.engine.load_checkpoint(self.folder, tag="here")
        self.test.settle()
        if path is None:
            self.test.fail("load_checkpoint found nothing to load in the folder save_checkpoint wrote")

    def end(self):
        self.engine.destroy()
