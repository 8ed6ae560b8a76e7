"""Training gives the losses of a reference that anyone can check, and they fall.

A tiny random Qwen2 (see `_training.py`) takes six steps on one sequence of 16 tokens, with rate 0.01 for an
adapter and 0.001 for a whole model, and gradients clipped at a norm of 1. It trains alone, under DDP, under
FSDP2 (`fully_shard` around each layer and the whole) or under DeepSpeed. The reference is one process on the
CPU without any of these, with the clipping and AdamW implemented below; in bfloat16 it keeps master weights
in a wider type, as ZeRO and FSDP2 do. All ranks train on the same batch, so that their mean gradient equals
the reference's for any number of ranks.

Tolerance of each loss, which starts near 4.85: float32 1e-4, because sums are taken in another order;
bfloat16 0.01, because kernels round to 2^-9 in different places. Twice the rate changes a loss by three times
that. The last loss must be at least 0.1 below the first. Seconds: 1 to 4. Memory: below 1 GiB, nearly all of
it libraries.

A failure means that the optimizer does not take the configured steps: another rate, another gradient, or no
step.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "peft", "deepspeed")
SECONDS = 90
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
}
# No `quantization` where an adapter trains without ZeRO: the optimizer only sees the adapter.
VARIANTS = {
    "reference-plain-lora": {
        "needs": {"pkg.peft": "present"},
        "train": {"trainer": "custom", "parallel": "none"},
    },
    "reference-plain-full-fp32": {
        "train": {
            "trainer": "custom",
            "parallel": "none",
            "adapter": "none",
            "quantization": "none",
            "frozen_params": False,
            "precision": "fp32",
        }
    },
    "reference-zero2-lora": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 2, "quantization": "none"},
    },
    "reference-zero2-lora-fp32": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 2, "quantization": "none", "precision": "fp32"},
    },
    "reference-zero3-lora": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none"},
    },
    "reference-zero3-lora-fp32": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none", "precision": "fp32"},
    },
    "reference-zero3-lora-offload": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none", "offload_optimizer": "cpu"},
    },
    "reference-zero3-full": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "adapter": "none", "quantization": "none", "frozen_params": False},
    },
    "reference-zero3-full-offload": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {
            "zero_stage": 3,
            "adapter": "none",
            "quantization": "none",
            "frozen_params": False,
            "offload_optimizer": "cpu",
        },
    },
    "reference-ddp-lora": {
        "needs": {"pkg.peft": "present"},
        "ranks": (2, 64),
        "train": {"trainer": "custom", "parallel": "ddp", "quantization": "none"},
    },
    "reference-fsdp2-lora": {
        "needs": {"pkg.torch": ">=2.6", "pkg.peft": "present"},
        "ranks": (2, 64),
        "train": {"trainer": "custom", "parallel": "fsdp2", "quantization": "none"},
    },
    "reference-fsdp2-full": {
        "needs": {"pkg.torch": ">=2.6"},
        "ranks": (2, 64),
        "train": {
            "trainer": "custom",
            "parallel": "fsdp2",
            "adapter": "none",
            "quantization": "none",
            "frozen_params": False,
        },
    },
    "reference-zero3-full-fp32": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {
            "zero_stage": 3,
            "adapter": "none",
            "quantization": "none",
            "frozen_params": False,
            "precision": "fp32",
        },
    },
}

STEPS, LIMIT, FALL = 6, 1.0, 0.1
"""Steps, the norm at which gradients are clipped, and by how much the loss must fall."""
RATE = {"lora": 1e-2, "none": 1e-3}
TOLERANCE = {"fp32": 1e-4, "bf16": 0.01}


def run(test, variant):
    import torch

    torch.set_float32_matmul_precision("highest")  # an environment may switch on TF32, which keeps 10 bits
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    expected = reference(test, train)
    zero = train["parallel"] == "deepspeed"
    losses = train_with_deepspeed(test, train) if zero else train_with_torch(test, train)
    test.record(losses=losses, reference=expected)
    test.check_losses_finite(losses)
    tolerance = TOLERANCE[train["precision"]]
    for step, (found, loss) in enumerate(zip(losses, expected)):
        if abs(found - loss) > tolerance:
            test.fail(
                f"the loss of step {step} is {found:.6f}, the reference has {loss:.6f}, allowed {tolerance:g}"
            )
    if not losses[-1] < losses[0] - FALL:
        test.fail(
            f"the loss does not fall: {losses[0]:.4f} at first, {losses[-1]:.4f} after {STEPS - 1} steps"
        )


def build(test, train, whole):
    """Return the model; in bfloat16 all of it (`whole`), or only the base, under a float32 adapter."""
    import torch

    dtype = torch.bfloat16 if train["precision"] == "bf16" else None
    model = test.tiny_model(train["adapter"], checkpointing=True, dtype=dtype)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.to(dtype if whole and dtype else torch.float32)
    return model


def reference(test, train):
    """Return the losses of one process on the CPU, with clipping and AdamW (Loshchilov and Hutter, 2019)."""
    import torch

    model = build(test, train, whole=train["parallel"] in ("deepspeed", "fsdp2"))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [weight.detach().double() for weight in trained]
    means = [torch.zeros_like(master) for master in masters]
    squares = [torch.zeros_like(master) for master in masters]
    ids = test.batch(device="cpu")
    rate = RATE[train["adapter"]]
    losses = []
    with test.call("reference on the CPU"):
        for step in range(1, STEPS + 1):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            losses.append(float(loss))
            gradients = [weight.grad.double() for weight in trained]
            norm = sum(float(gradient.pow(2).sum()) for gradient in gradients) ** 0.5
            shrink = min(1.0, LIMIT / (norm + 1e-6))
            for weight, master, mean, square, gradient in zip(trained, masters, means, squares, gradients):
                clipped = gradient * shrink
                mean.mul_(0.9).add_(clipped, alpha=0.1)
                square.mul_(0.999).add_(clipped**2, alpha=0.001)
                master.mul_(1 - rate * 0.01)
                master.sub_(rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8))
                weight.data.copy_(master)
                weight.grad = None
    return losses


def wrap(test, train):
    """Return the model on its device, alone or as the ranks share it."""
    import torch

    if train["parallel"] == "none":
        return build(test, train, whole=False).to(test.device)
    test.join_process_group()
    if train["parallel"] == "ddp":
        model = build(test, train, whole=False).to(test.device)
        with test.call("DistributedDataParallel"):
            return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    # FSDP2 keeps float32 weights, and casts what it gathers.
    model = test.tiny_model(train["adapter"], checkpointing=True).float().to(test.device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = [module for module in model.modules() if type(module).__name__.endswith("DecoderLayer")]
    with test.call("fully_shard"):
        for part in (*layers, model):
            fully_shard(part, mp_policy=policy)
    return model


def train_with_torch(test, train):
    import torch

    model = wrap(test, train)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE[train["adapter"]])
    ids = test.batch()
    losses = []
    for _ in range(STEPS):
        with test.call("forward"):
            loss = model(input_ids=ids, labels=ids).loss
        with test.call("backward"):
            loss.backward()
        with test.call("clip"):
            torch.nn.utils.clip_grad_norm_(trained, LIMIT)
        with test.call("step"):
            optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def train_with_deepspeed(test, train):
    deepspeed = test.import_deepspeed()
    offload = [part for part in ("optimizer", "param") if train[f"offload_{part}"] == "cpu"]
    config = test.deepspeed_config(train["zero_stage"], train["precision"], clipping=LIMIT, offload=offload)
    model = test.tiny_model(train["adapter"], checkpointing=True)
    engine = test.deepspeed_engine(deepspeed, model, config, rate=RATE[train["adapter"]])
    ids = test.batch()
    losses = []
    for _ in range(STEPS):
        with test.call("forward"):
            loss = engine(input_ids=ids, labels=ids).loss
        with test.call("backward"):
            engine.backward(loss)
        with test.call("step"):
            engine.step()
            test.settle()
        losses.append(float(loss))
    return losses
