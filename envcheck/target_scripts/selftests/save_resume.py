"""Training that resumes from a checkpoint goes on as if it had never stopped.

A tiny random Qwen2 (see `_worker.py`), one sequence of 16 tokens a step. Two steps, save, two more; then a
model and an optimizer made from another seed load what was saved and take the same two steps. Losses, and
parameters before and after these steps, must be equal: tolerance 0, because both runs do the same operations
in the same order on the same device from the same bits. (Attention runs in torch's plain form: the fused ones
add up in an order that varies on CUDA.) DeepSpeed saves and loads with `save_checkpoint` and
`load_checkpoint`; without it the adapter is saved with PEFT's `save_pretrained` and the optimizer with
`torch.save`. Seconds: 2 to 5. Memory: below 1 GiB, nearly all of it libraries.

A failure means that a resumed run is another run: optimizer states or an adapter that were not loaded, or not
saved.
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
# No `quantization` for the plain variant: an adapter and its optimizer are saved in one way over any base.
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


def run(stage, variant):
    import torch

    if stage.device_type != "cpu":
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    kind = Plain if train["parallel"] == "none" else Sharded
    first = kind(stage, train, seed=0)
    start = first.parameters()
    for step in (0, 1):
        first.step(step)
    with stage.call("save"):
        first.save()
    saved = first.parameters()
    if all(bool((saved[name] == start[name]).all()) for name in start):
        stage.fail("two steps changed no parameter: there is nothing to resume")
    on = [first.step(step) for step in (2, 3)]
    ended = first.parameters()
    first.end()

    second = kind(stage, train, seed=7)
    if all(bool((value == saved[name]).all()) for name, value in second.parameters().items()):
        raise LookupError("a model of another seed has the same parameters: a load would not show")
    with stage.call("load"):
        second.load()
    same(stage, second.parameters(), saved, "after loading")
    again = [second.step(step) for step in (2, 3)]
    for step in (0, 1):
        if again[step] != on[step]:
            stage.fail(
                f"the loss of step {step + 2} is {again[step]:.9g} after resuming, "
                f"{on[step]:.9g} without stopping"
            )
    same(stage, second.parameters(), ended, "two steps after resuming")
    stage.losses_finite(on)
    stage.saw(losses=on)


def same(stage, found, expected, when):
    """Fail at the first parameter that is missing, new or not equal."""
    if set(found) != set(expected):
        stage.fail(f"{when}, these parameters are not in both: {sorted(set(found) ^ set(expected))[:4]}")
    for name, value in expected.items():
        stage.close(found[name], value, 0.0, f"{name}, {when}")


class Plain:
    """An adapter over a base, AdamW; PEFT saves the adapter, torch the optimizer's states."""

    def __init__(self, stage, train, seed):
        import torch

        self.stage = stage
        self.folder = f"{stage.scratch}/{stage.mark}.{stage.rank}"
        # The base comes from where it came from the first time; the checkpoint does not hold it.
        base = stage.model(checkpointing=True, dtype=torch.bfloat16)
        base.enable_input_require_grads()
        self.model = stage.adapted(base, train["adapter"], seed).to(stage.device).train()
        self.trained = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        self.optimizer = torch.optim.AdamW(self.trained.values(), lr=1e-3)

    def step(self, step):
        ids = self.stage.batch(step)
        with self.stage.call("forward"):
            loss = self.model(input_ids=ids, labels=ids).loss
        with self.stage.call("backward"):
            loss.backward()
        with self.stage.call("step"):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss)

    def parameters(self):
        return {name: each.detach().clone() for name, each in self.trained.items()}

    def save(self):
        import torch

        self.model.save_pretrained(self.folder, safe_serialization=True)
        torch.save(self.optimizer.state_dict(), f"{self.folder}/optimizer.pt")

    def load(self):
        import peft
        import torch

        weights = peft.load_peft_weights(self.folder, device=str(self.stage.device))
        said = peft.set_peft_model_state_dict(self.model, weights)
        missing = [name for name in said.missing_keys if "lora_" in name]
        if missing or said.unexpected_keys:
            wrong = f"missing {missing[:4]}, unexpected {said.unexpected_keys[:4]}"
            self.stage.fail(f"the saved adapter does not fit: {wrong}")
        self.optimizer.load_state_dict(torch.load(f"{self.folder}/optimizer.pt", weights_only=True))

    def end(self):
        pass


class Sharded:
    """A DeepSpeed engine and its own checkpoint."""

    def __init__(self, stage, train, seed):
        self.stage = stage
        self.folder = f"{stage.scratch}/{stage.mark}.saved"
        self.deepspeed = stage.deepspeed()
        offload = [part for part in ("optimizer", "param") if train[f"offload_{part}"] == "cpu"]
        model = stage.model(train["adapter"], checkpointing=True, seed=seed)
        config = stage.deepspeed_config(train["zero_stage"], train["precision"], offload=offload)
        self.engine = stage.engine(self.deepspeed, model, config)

    def step(self, step):
        ids = self.stage.batch(step)
        with self.stage.call("forward"):
            loss = self.engine(input_ids=ids, labels=ids).loss
        with self.stage.call("backward"):
            self.engine.backward(loss)
        with self.stage.call("step"):
            self.engine.step()
        return float(loss)

    def parameters(self):
        """All parameters, frozen ones too, gathered from their shards."""
        named = dict(self.engine.module.named_parameters())
        with self.deepspeed.zero.GatheredParameters(list(named.values())):
            return {name: each.detach().clone() for name, each in named.items()}

    def save(self):
        self.engine.save_checkpoint(self.folder, tag="here")

    def load(self):
        path, _ = self.engine.load_checkpoint(self.folder, tag="here")
        if path is None:
            self.stage.fail("load_checkpoint found nothing to load in the folder save_checkpoint wrote")

    def end(self):
        self.engine.destroy()
