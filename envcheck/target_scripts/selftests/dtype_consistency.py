"""Autocast and FSDP mixed precision give a tensor one dtype in the forward, its recompute and the AdamW step.

A tiny random Llama (see `_worker.py`), one sequence of 16 tokens, LoRA on q_proj and v_proj, autocast to bf16
around the forward as accelerate does, gradient checkpointing, two AdamW steps; then the same weights and the
same batch without checkpointing.

Holds if, in both steps, linear layers gave bf16 and computed with the weights they should (fp32 under
autocast alone, FSDP's bf16 copies under its mixed precision); each decoder layer ran twice, the second time
with the shapes, dtypes, devices and values of the first; adapters had the dtype that PEFT gives them; AdamW
took the gradients; what trains moved and nothing else did; and in the first step the loss and every
gradient are those of the run without checkpointing.

Tolerance: 2^-5 of a tensor's largest magnitude, eight rounding errors of bf16; on a CPU the difference is 0.
Under FSDP gradients are compared shard by shard: both runs shard alike.

Most `fsdp1` variants use PEFT's own wrap policy, which puts each adapter into a unit of its own, over a
base in bf16 whose adapters PEFT lifts to fp32 (not so in `bf16-adapter` variants). `layers` variants wrap
decoder layers only; FSDP1 wants one dtype in a unit, so their base is fp32. Dropout is 0.05, the one of
PEFT's examples. LoRA with dropout and without reentrancy is asked on CUDA only: there dropout saves a mask
of Booleans; a CPU saves one in the dtype of its input, which PEFT's policy makes fp32 first and bf16 later.
One rank is enough to see all this, though FSDP1 then keeps parameters whole.

Seconds: about 1 a variant on a CPU. Memory: below 1 GiB.

A failure means that training with these facts stops in the first backward pass or the first step.
"""

LEVEL = 2
NEEDS = {"pkg.torch": ">=2.3", "pkg.transformers": ">=4.41", "pkg.peft": ">=0.11"}
IMPORTS = ("torch", "torch._dynamo", "transformers", "peft")
SECONDS = 90
RANKS = (1, 64)

TRAIN = {
    "parallel": "fsdp1",
    "adapter": "lora",
    "dora": False,
    "quantization": "none",
    "frozen_params": True,
    "gradient_checkpointing": True,
    "precision": "bf16",
    "gradient_clipping": False,
    "autocast_adapter_dtype": True,
}
VARIANTS = {
    "autocast-none-nonreentrant": {
        "train": {"use_reentrant": False, "parallel": "none", "adapter": "none", "frozen_params": False}
    },
    "autocast-none-reentrant": {
        "train": {"use_reentrant": True, "parallel": "none", "adapter": "none", "frozen_params": False}
    },
    "autocast-lora-nonreentrant": {"train": {"use_reentrant": False, "parallel": "none"}},
    "autocast-lora-reentrant": {"train": {"use_reentrant": True, "parallel": "none"}},
    "autocast-dora-nonreentrant": {"train": {"use_reentrant": False, "parallel": "none", "dora": True}},
    "autocast-dora-reentrant": {"train": {"use_reentrant": True, "parallel": "none", "dora": True}},
    "fsdp1-lora-nonreentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
        },
    },
    "fsdp1-lora-reentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
        },
    },
    "fsdp1-lora-dropout-nonreentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "devices": ("cuda",),
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
        },
    },
    "fsdp1-lora-dropout-reentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
        },
    },
    "fsdp1-dora-nonreentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "dora": True,
        },
    },
    "fsdp1-dora-reentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "dora": True,
        },
    },
    "fsdp1-dora-dropout-nonreentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "dora": True,
        },
    },
    "fsdp1-dora-dropout-reentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "dora": True,
        },
    },
    "fsdp1-lora-bf16-adapter-nonreentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "autocast_adapter_dtype": False,
        },
    },
    "fsdp1-lora-bf16-adapter-reentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "autocast_adapter_dtype": False,
        },
    },
    "fsdp1-dora-bf16-adapter-nonreentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "dora": True,
            "autocast_adapter_dtype": False,
        },
    },
    "fsdp1-dora-bf16-adapter-reentrant": {
        "needs": {"pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "peft",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": False,
            "dora": True,
            "autocast_adapter_dtype": False,
        },
    },
    "fsdp1-layers-lora-nonreentrant": {
        "dropout": 0.05,
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": True,
        },
    },
    "fsdp1-layers-lora-reentrant": {
        "dropout": 0.05,
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": True,
        },
    },
    "fsdp1-layers-dora-nonreentrant": {
        "dropout": 0.05,
        "train": {
            "use_reentrant": False,
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": True,
            "dora": True,
        },
    },
    "fsdp1-layers-dora-reentrant": {
        "dropout": 0.05,
        "train": {
            "use_reentrant": True,
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
            "fsdp_use_orig_params": True,
            "dora": True,
        },
    },
    "fsdp2-lora-nonreentrant": {
        "needs": {"pkg.torch": ">=2.6", "pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": False,
            "parallel": "fsdp2",
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
        },
    },
    "fsdp2-lora-reentrant": {
        "needs": {"pkg.torch": ">=2.6", "pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": True,
            "parallel": "fsdp2",
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
        },
    },
    "fsdp2-dora-nonreentrant": {
        "needs": {"pkg.torch": ">=2.6", "pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": False,
            "parallel": "fsdp2",
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
            "dora": True,
        },
    },
    "fsdp2-dora-reentrant": {
        "needs": {"pkg.torch": ">=2.6", "pkg.peft": ">=0.12.0"},
        "base": "bfloat16",
        "dropout": 0.05,
        "train": {
            "use_reentrant": True,
            "parallel": "fsdp2",
            "fsdp_wrap": "transformer",
            "fsdp_mixed_precision": True,
            "dora": True,
        },
    },
}

TOLERANCE = 2.0**-5


def run(stage, variant):
    about = VARIANTS[variant]
    train = {**TRAIN, **about["train"]}
    stage.needs_bf16()
    if train["parallel"] != "none":
        stage.join()
    losses, gradients, worst = trained(stage, about, train, steps=2)
    stage.losses_finite(losses)
    (loss, *_), expected, _ = trained(stage, about, {**train, "gradient_checkpointing": False}, steps=0)
    if set(gradients) != set(expected) or not gradients:
        odd = sorted(set(gradients) ^ set(expected)) or ["any parameter"]
        stage.fail(f"no gradient for {odd[0]} in one of the runs with and without checkpointing")
    error = max(
        stage.close(gradients[name], expected[name], TOLERANCE, f"the gradient of {name}")
        for name in sorted(expected)
    )
    if not abs(losses[0] - loss) <= TOLERANCE * abs(loss):
        stage.fail(f"the loss is {losses[0]:.6g} with checkpointing, {loss:.6g} without")
    stage.saw(recompute_error=worst, gradient_error=error, loss=loss, gradients=len(gradients))


def trained(stage, about, train, steps):
    """The losses, the first gradients and how far a recompute was off; no step is taken if `steps` is 0."""
    import torch

    checkpointed = train["gradient_checkpointing"]
    name = "with checkpointing" if checkpointed else "without checkpointing, to compare"
    with stage.call(f"building the model {name}"):
        model, passes, base = built(stage, about, train)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW([p for p in parameters.values() if p.requires_grad], lr=1e-2)
    before = {each: whole(p).clone() for each, p in parameters.items()}
    losses, gradients, worst = [], {}, 0.0
    for step in range(max(1, steps)):
        passes.clear()
        torch.manual_seed(100 + step)  # what dropout draws is the same in both runs
        ids = stage.batch(step)
        with stage.call(f"forward {name}"), torch.autocast(stage.device_type, dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        with stage.call(f"backward {name}"):
            loss.backward()
        losses.append(float(loss.detach()))
        passes.ran(2 if checkpointed else 1)
        if checkpointed:
            worst = max(worst, passes.same(whole=train["use_reentrant"], tolerance=TOLERANCE))
        mixed(stage, passes, "bfloat16" if train["parallel"] != "none" else base)
        if step == 0:
            gradients = {each: whole(p.grad).clone() for each, p in parameters.items() if p.grad is not None}
            for each, found in gradients.items():
                if not bool(torch.isfinite(found).all()):
                    stage.fail(f"the gradient of {each} {name} is not finite")
        if steps:
            with stage.call(f"step {name}"):
                optimizer.step()
            optimizer.zero_grad()
    if steps:
        moved(stage, before, parameters)
        stage.saw(
            gradients_in=sorted({str(each.dtype)[6:] for each in gradients.values()}),
            weights_in=sorted({str(p.dtype)[6:] for p in parameters.values() if p.requires_grad}),
        )
    return losses, gradients, worst


def built(stage, about, train):
    """The model, wrapped as the variant says, the record of its passes, and the dtype of its base."""
    import torch

    base = about.get("base", "float32")
    model = stage.model(
        "dora" if train["dora"] else train["adapter"],
        checkpointing=train["use_reentrant"] if train["gradient_checkpointing"] else None,
        family="llama",
        dtype=getattr(torch, base),
        dropout=about.get("dropout", 0.0),
        **({} if train["autocast_adapter_dtype"] else {"autocast_adapter_dtype": False}),
    )
    wanted = "float32" if train["autocast_adapter_dtype"] else base
    for name, each in model.named_parameters():
        if each.requires_grad and str(each.dtype) != f"torch.{wanted}":
            stage.fail(f"{name} is {str(each.dtype)[6:]}, expected {wanted}")
    if train["adapter"] != "none" and not any(p.requires_grad for p in model.parameters()):
        stage.fail("nothing trains")
    passes = stage.passes(model)
    if train["parallel"] == "none":
        return model.to(stage.device), passes, base
    wrap = sharded_by_fsdp1 if train["parallel"] == "fsdp1" else sharded_by_fsdp2
    with stage.call("wrapping in FSDP"):
        return wrap(stage, model, train), passes, base


def sharded_by_fsdp1(stage, model, train):
    """The model in FullyShardedDataParallel with bf16 mixed precision, as accelerate wraps it."""
    import functools
    import os

    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    layers = {type(each) for each in model.modules() if type(each).__name__.endswith("DecoderLayer")}
    if train["fsdp_wrap"] == "peft":
        from peft.utils.other import fsdp_auto_wrap_policy

        os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = next(iter(layers)).__name__
        policy = fsdp_auto_wrap_policy(model)
    else:
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers)
    bf16 = torch.bfloat16
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(param_dtype=bf16, reduce_dtype=bf16, buffer_dtype=bf16),
        use_orig_params=train["fsdp_use_orig_params"],
        device_id=stage.device,
    )


def sharded_by_fsdp2(stage, model, _train):
    """The model with each decoder layer and the rest a unit of FSDP2, parameters cast to bf16."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = model.to(stage.device)
    mesh = init_device_mesh(stage.device_type, (stage.world,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for each in list(model.modules()):
        if type(each).__name__.endswith("DecoderLayer"):
            fully_shard(each, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def mixed(stage, passes, weights):
    """Fail unless linear layers gave bf16, computed with weights of that dtype."""
    for what, wanted in (("computes with a weight of", weights), ("mlp.down_proj gives", "bfloat16")):
        seen = passes.dtypes(what)
        if seen != {wanted}:
            stage.fail(f"a linear layer {what} {' and '.join(sorted(seen))}, expected {wanted}")


def whole(tensor):
    """A tensor as this rank holds it: the local shard of a DTensor."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()


def moved(stage, before, parameters):
    """Fail unless what trains has moved, stayed finite and, if this can be told, nothing else moved."""
    import torch

    for name, each in parameters.items():
        now = whole(each)
        if now.shape != before[name].shape or not now.numel():
            continue  # FSDP1 keeps small parameters on one rank only
        if not bool(torch.isfinite(now).all()):
            stage.fail(f"{name} is not finite after the step")
        if bool((now != before[name]).any()) != each.requires_grad:
            stage.fail(
                f"{name} {'did not move' if each.requires_grad else 'is frozen and moved'} in the step"
            )
