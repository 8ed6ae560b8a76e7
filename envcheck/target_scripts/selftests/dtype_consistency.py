"""Autocast and FSDP mixed precision give a tensor one dtype in the forward, its recompute and the AdamW step.

A tiny random Llama (see `_training.py`) with LoRA on q_proj and v_proj takes two AdamW steps on one sequence
of 16 tokens, with gradient checkpointing and with autocast to bf16 around the forward, as accelerate does.
Then the same weights and the same batch run without checkpointing.

The claim holds if, in both steps, linear layers returned bf16 and computed with the right weights (fp32 under
autocast alone, FSDP's bf16 copies under its mixed precision); each decoder layer ran twice, the second time
with the shapes, dtypes, devices and values of the first; adapters had the dtype that PEFT gives them; AdamW
accepted the gradients; trainable parameters moved and no others did; and in the first step the loss and every
gradient equal those of the run without checkpointing.

Tolerance: 2^-5 of a tensor's largest magnitude, eight rounding errors of bf16; on a CPU the difference is 0.
Under FSDP gradients are compared shard by shard, because both runs shard alike.

Most `fsdp1` variants use PEFT's own wrap policy, which wraps each adapter as a separate unit, over a bf16
base whose adapters PEFT lifts to fp32 (except in `bf16-adapter` variants). `layers` variants wrap decoder
layers only; FSDP1 requires one dtype per unit, so their base is fp32. Dropout is 0.05, as in PEFT's examples.
LoRA with dropout and without reentrancy is tested on CUDA only: there dropout saves a mask of Booleans, while
a CPU saves a mask in the dtype of its input, which PEFT's policy makes fp32 at first and bf16 later. One rank
is enough to see all this, although FSDP1 then keeps parameters whole.

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
"""Of a tensor's largest magnitude: eight rounding errors of bf16."""


def run(test, variant):
    about = VARIANTS[variant]
    train = {**TRAIN, **about["train"]}
    test.require_bf16()
    if train["parallel"] != "none":
        test.join_process_group()
    losses, gradients, worst = train_steps(test, about, train, steps=2)
    test.check_losses_finite(losses)
    reference = {**train, "gradient_checkpointing": False}
    (loss, *_), expected, _ = train_steps(test, about, reference, steps=0)
    odd = sorted(set(gradients) ^ set(expected))
    if not odd and not any(gradients_by_rank(test, train, len(gradients))):
        odd = ["any parameter"]
    if odd:
        test.fail(f"no gradient for {odd[0]} in one of the runs with and without checkpointing")
    errors = [
        test.check_close(gradients[name], expected[name], TOLERANCE, f"the gradient of {name}")
        for name in sorted(expected)
    ]
    error = max(errors, default=0.0)
    if not abs(losses[0] - loss) <= TOLERANCE * abs(loss):
        test.fail(f"the loss is {losses[0]:.6g} with checkpointing, {loss:.6g} without")
    test.record(recompute_error=worst, gradient_error=error, loss=loss, gradients=len(gradients))


def gradients_by_rank(test, train, number):
    """Return the number of gradients of every rank: the shard of one may hold frozen weights only."""
    return [number] if train["parallel"] == "none" else test.exchange(number, "gradients")


def train_steps(test, about, train, steps):
    """Train, and return the losses, the gradients of the first step and the worst error of a recompute.

    If `steps` is 0, one forward and backward pass runs and no step is taken.
    """
    import torch

    checkpointed = train["gradient_checkpointing"]
    name = "with checkpointing" if checkpointed else "without checkpointing, to compare"
    with test.call(f"building the model {name}"):
        model, passes, base = build(test, about, train)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW([p for p in parameters.values() if p.requires_grad], lr=1e-2)
    before = {key: local(p).clone() for key, p in parameters.items()}
    losses, gradients, worst = [], {}, 0.0
    for step in range(max(1, steps)):
        passes.clear()
        torch.manual_seed(100 + step)  # so that dropout draws the same numbers in both runs
        ids = test.batch(step)
        with test.call(f"forward {name}"), torch.autocast(test.device_type, dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        with test.call(f"backward {name}"):
            loss.backward()
        losses.append(float(loss.detach()))
        passes.check_count(2 if checkpointed else 1)
        if checkpointed:
            error = passes.check_recompute(complete=train["use_reentrant"], tolerance=TOLERANCE)
            worst = max(worst, error)
        check_mixed_precision(test, passes, "bfloat16" if train["parallel"] != "none" else base)
        if step == 0:
            gradients = finite_gradients(test, parameters, name)
        if steps:
            with test.call(f"step {name}"):
                optimizer.step()
            optimizer.zero_grad()
    if steps:
        check_moved(test, before, parameters)
        test.record(
            gradients_in=sorted({str(gradient.dtype)[6:] for gradient in gradients.values()}),
            weights_in=sorted({str(p.dtype)[6:] for p in parameters.values() if p.requires_grad}),
        )
    return losses, gradients, worst


def finite_gradients(test, parameters, run_name):
    """Return the gradients by parameter; fail if one is not finite."""
    import torch

    gradients = {name: local(p.grad).clone() for name, p in parameters.items() if p.grad is not None}
    for name, gradient in gradients.items():
        if not bool(torch.isfinite(gradient).all()):
            test.fail(f"the gradient of {name} {run_name} is not finite")
    return gradients


def build(test, about, train):
    """Return the model wrapped as the variant says, the record of its passes, and the dtype of its base."""
    import torch

    base = about.get("base", "float32")
    model = test.tiny_model(
        "dora" if train["dora"] else train["adapter"],
        checkpointing=train["use_reentrant"] if train["gradient_checkpointing"] else None,
        family="llama",
        dtype=getattr(torch, base),
        dropout=about.get("dropout", 0.0),
        **({} if train["autocast_adapter_dtype"] else {"autocast_adapter_dtype": False}),
    )
    expected = "float32" if train["autocast_adapter_dtype"] else base
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and str(parameter.dtype) != f"torch.{expected}":
            test.fail(f"{name} is {str(parameter.dtype)[6:]}, expected {expected}")
    if train["adapter"] != "none" and not any(p.requires_grad for p in model.parameters()):
        test.fail("nothing trains")
    passes = test.record_passes(model)
    if train["parallel"] == "none":
        return model.to(test.device), passes, base
    wrap = wrap_in_fsdp1 if train["parallel"] == "fsdp1" else wrap_in_fsdp2
    with test.call("wrapping in FSDP"):
        return wrap(test, model, train), passes, base


def wrap_in_fsdp1(test, model, train):
    """Return the model in FullyShardedDataParallel with bf16 mixed precision, as accelerate wraps it."""
    import functools
    import os

    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    layers = {type(module) for module in model.modules() if is_decoder_layer(module)}
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
        device_id=test.device,
    )


def wrap_in_fsdp2(test, model, _train):
    """Return the model under FSDP2, one unit per decoder layer and one for the rest, cast to bf16."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = model.to(test.device)
    mesh = init_device_mesh(test.device_type, (test.world,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in list(model.modules()):
        if is_decoder_layer(module):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def is_decoder_layer(module):
    return type(module).__name__.endswith("DecoderLayer")


def check_mixed_precision(test, passes, weights):
    """Fail unless linear layers returned bf16 and computed with weights of the dtype `weights`."""
    for what, expected in (("computes with a weight of", weights), ("mlp.down_proj gives", "bfloat16")):
        seen = passes.dtypes(what)
        if seen != {expected}:
            test.fail(f"a linear layer {what} {' and '.join(sorted(seen))}, expected {expected}")


def local(tensor):
    """Return the tensor that this rank holds: of a DTensor, its local shard."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()


def check_moved(test, before, parameters):
    """Fail unless trainable parameters moved and are finite, and no others moved, where this rank can see."""
    import torch

    for name, parameter in parameters.items():
        now = local(parameter)
        if now.shape != before[name].shape or not now.numel():
            continue  # FSDP1 keeps small parameters on one rank only
        if not bool(torch.isfinite(now).all()):
            test.fail(f"{name} is not finite after the step")
        if bool((now != before[name]).any()) != parameter.requires_grad:
            test.fail(
                f"{name} {'did not move' if parameter.requires_grad else 'is frozen and moved'} in the step"
            )
