"""A merged adapter computes what the applied one computed.

A tiny random Qwen2 (see `_training.py`) with a random adapter computes the logits of one sequence of 16
tokens in evaluation mode, before and after `merge_and_unload`. Under ZeRO-3 the engine's logits are compared
with those of a plain model that received the gathered weights and was merged.

Tolerance, relative to the largest logit: float32 1e-5, because W x + B (A x) and (W + B A) x round
differently about a dozen times at 6e-8 each; bfloat16 3e-2, because every merged weight is rounded once more
at 2^-9 = 0.2 %, and so is every activation after it. The adapter must change the logits by at least ten times
the tolerance, otherwise the test would prove nothing. Seconds: 1 to 3. Memory: below 1 GiB, nearly all of it
libraries.

A failure means that the merged model is not the model that was trained.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present", "pkg.peft": "present"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "peft", "deepspeed")
SECONDS = 90
RANKS = (1, 64)

# Merging comes after training: without ZeRO, sharding, checkpointing and clipping do not affect it.
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


def run(test, variant):
    import torch

    torch.set_float32_matmul_precision("highest")  # an environment may switch on TF32, which keeps 10 bits
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    dtype = torch.bfloat16 if train["precision"] == "bf16" else torch.float32
    adapter = "dora" if train["dora"] else "lora"
    tolerance = TOLERANCE[train["precision"]]
    if train.get("parallel") == "deepspeed":
        engine, deepspeed = trained_engine(test, adapter)
        expected = logits(test, engine, "forward with the adapter")
        model = gathered_model(test, deepspeed, engine, adapter, dtype)
        whole = logits(test, model, "forward of the gathered model")
        test.check_close(whole, expected, tolerance, "logits of the gathered model")
    else:
        model = test.tiny_model(adapter, dtype=dtype).to(test.device).eval()
        if train["dora"]:
            change_magnitudes(model)
        expected = logits(test, model, "forward with the adapter")
    with model.disable_adapter():
        without = logits(test, model, "forward without the adapter")
    moved = float((expected - without).abs().max() / expected.abs().max())
    if not moved >= 10 * tolerance:
        test.fail(f"the adapter moves the logits by only {moved:.2g} of the largest")
    with test.call("merge_and_unload"):
        merged = model.merge_and_unload()
    left = [name for name, _ in merged.named_parameters() if "lora_" in name]
    if left:
        test.fail(f"merge_and_unload left {left[0]} in the model")
    error = test.check_close(
        logits(test, merged, "forward of the merged model"),
        expected,
        tolerance,
        "logits of the merged model",
    )
    test.record(error=error, moved=moved)


def change_magnitudes(model):
    """Change DoRA's magnitudes, which are initialized so that DoRA computes the same as LoRA."""
    import torch

    magnitudes = [weight for name, weight in model.named_parameters() if "magnitude" in name]
    if not magnitudes:
        raise LookupError("no magnitude vector among the parameters of DoRA")
    with torch.no_grad():
        for weight in magnitudes:
            factors = torch.linspace(0.5, 2.0, weight.numel(), device=weight.device)
            weight.mul_(factors.reshape(weight.shape))


def logits(test, model, call):
    import torch

    with test.call(call), torch.no_grad():
        return model(input_ids=test.batch()).logits.float()


def trained_engine(test, adapter):
    """Return a ZeRO-3 engine after one step, so that the adapter is a trained one."""
    deepspeed = test.import_deepspeed()
    engine = test.deepspeed_engine(deepspeed, test.tiny_model(adapter), test.deepspeed_config(3, "bf16"))
    ids = test.batch()
    with test.call("forward"):
        loss = engine(input_ids=ids, labels=ids).loss
    with test.call("backward"):
        engine.backward(loss)
    with test.call("step"):
        engine.step()
        test.settle()
    engine.eval()
    return engine, deepspeed


def gathered_model(test, deepspeed, engine, adapter, dtype):
    """Return a plain model, made from another seed, with the weights of the engine."""
    model = test.tiny_model(adapter, dtype=dtype, seed=7).to(test.device).to(dtype).eval()
    named = dict(engine.module.named_parameters())
    with test.call("gather"), deepspeed.zero.GatheredParameters(list(named.values())):
        test.settle()
        weights = {name: weight.detach().clone() for name, weight in named.items()}
    loaded = model.load_state_dict(weights, strict=False)
    missing = sorted(set(dict(model.named_parameters())) & set(loaded.missing_keys))
    if missing or loaded.unexpected_keys:
        test.fail(f"gathered weights: missing {missing[:4]}, unexpected {loaded.unexpected_keys[:4]}")
    return model
