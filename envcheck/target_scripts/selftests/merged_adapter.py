"""A merged adapter computes what the applied one computed.

A tiny random Qwen2 (see `_worker.py`) with a random adapter that moves the logits, evaluation mode, one
sequence of 16 tokens; the logits before and after `merge_and_unload`. Tolerance, of the largest logit:
float32 1e-5, for W x + B (A x) and (W + B A) x round differently some dozen times at 6e-8 each; bfloat16
3e-2, for every merged weight is rounded once more at 2^-9 = 0.2 %, and so is every activation after it. The
adapter itself must move the logits by ten times the tolerance, else the test would see nothing. Under ZeRO-3
the engine's logits are compared with those of a plain model that got the gathered weights and was merged.
Seconds: 1 to 3. Memory: below 1 GiB, nearly all of it libraries.

A failure means that the model that is shipped is not the model that was trained.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present", "pkg.peft": "present"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "peft", "deepspeed")
SECONDS = 90
RANKS = (1, 64)

# Merging comes after training: without ZeRO, how the model was spread, checkpointed or clipped plays no part.
TRAIN = {
    "adapter": "lora",
    "dora": False,
    "quantization": "none",
}
VARIANTS = {
    "merge-lora-fp32": {"train": {"precision": "fp32"}},
    "merge-lora-bf16": {"train": {"precision": "bf16"}},
    "merge-dora-fp32": {"train": {"dora": True, "precision": "fp32"}},
    "merge-dora-bf16": {"train": {"dora": True, "precision": "bf16"}},
    "merge-zero3-lora-bf16": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {
            "trainer": "deepspeed",
            "parallel": "deepspeed",
            "zero_stage": 3,
            "precision": "bf16",
            "frozen_params": True,
            "offload_optimizer": "none",
            "offload_param": "none",
        },
    },
}

TOLERANCE = {"fp32": 1e-5, "bf16": 3e-2}


def run(stage, variant):
    import torch

    torch.set_float32_matmul_precision("highest")  # TF32 keeps 10 bits, and an environment may turn it on
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    dtype = torch.bfloat16 if train["precision"] == "bf16" else torch.float32
    adapter = "dora" if train["dora"] else "lora"
    tolerance = TOLERANCE[train["precision"]]
    if train.get("parallel") == "deepspeed":
        engine, deepspeed = engine_of(stage, adapter)
        expected = logits(stage, engine, "forward with the adapter")
        model = gathered(stage, deepspeed, engine, adapter, dtype)
        whole = logits(stage, model, "forward of the gathered model")
        stage.close(whole, expected, tolerance, "logits of the gathered model")
    else:
        model = stage.model(adapter, dtype=dtype).to(stage.device).eval()
        if train["dora"]:
            stretch(model)
        expected = logits(stage, model, "forward with the adapter")
    with model.disable_adapter():
        without = logits(stage, model, "forward without the adapter")
    moved = float((expected - without).abs().max() / expected.abs().max())
    if not moved >= 10 * tolerance:
        stage.fail(f"the adapter moves the logits by only {moved:.2g} of the largest")
    with stage.call("merge_and_unload"):
        merged = model.merge_and_unload()
    left = [name for name, _ in merged.named_parameters() if "lora_" in name]
    if left:
        stage.fail(f"merge_and_unload left {left[0]} in the model")
    error = stage.close(
        logits(stage, merged, "forward of the merged model"),
        expected,
        tolerance,
        "logits of the merged model",
    )
    stage.saw(error=error, moved=moved)


def stretch(model):
    """Change DoRA's magnitudes: at first they are such that DoRA computes what LoRA does."""
    import torch

    magnitudes = [each for name, each in model.named_parameters() if "magnitude" in name]
    if not magnitudes:
        raise LookupError("no magnitude vector among the parameters of DoRA")
    with torch.no_grad():
        for each in magnitudes:
            each.mul_(torch.linspace(0.5, 2.0, each.numel(), device=each.device).reshape(each.shape))


def logits(stage, model, call):
    import torch

    with stage.call(call), torch.no_grad():
        return model(input_ids=stage.batch()).logits.float()


def engine_of(stage, adapter):
    """A ZeRO-3 engine after one step, so that the adapter is a trained one."""
    deepspeed = stage.deepspeed()
    engine = stage.engine(deepspeed, stage.model(adapter), stage.deepspeed_config(3, "bf16"))
    ids = stage.batch()
    with stage.call("forward"):
        loss = engine(input_ids=ids, labels=ids).loss
    with stage.call("backward"):
        engine.backward(loss)
    with stage.call("step"):
        engine.step()
    engine.eval()
    return engine, deepspeed


def gathered(stage, deepspeed, engine, adapter, dtype):
    """A plain model of another seed that got the engine's weights."""
    model = stage.model(adapter, dtype=dtype, seed=7).to(stage.device).to(dtype).eval()
    named = dict(engine.module.named_parameters())
    with stage.call("gather"), deepspeed.zero.GatheredParameters(list(named.values())):
        weights = {name: each.detach().clone() for name, each in named.items()}
    said = model.load_state_dict(weights, strict=False)
    missing = sorted(set(dict(model.named_parameters())) & set(said.missing_keys))
    if missing or said.unexpected_keys:
        stage.fail(f"gathered weights: missing {missing[:4]}, unexpected {said.unexpected_keys[:4]}")
    return model
