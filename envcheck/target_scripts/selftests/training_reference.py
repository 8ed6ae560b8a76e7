"""Training gives the losses of a reference that anyone can check, and they fall.

A tiny random Qwen2 (see `_worker.py`), six steps on one sequence of 16 tokens, rate 0.01 for an adapter and
0.001 for a whole model, gradients clipped at a norm of 1. The reference is one process on the CPU without
DeepSpeed, whose clipping and AdamW are written out below; in bfloat16 it keeps masters of what trains in a
wider type, as ZeRO does. All ranks train on the same batch, so their mean gradient is the reference's
whatever their number.

Tolerance of each loss, which begins near 4.85: float32 1e-4, for sums are taken in another order; bfloat16
0.01, for kernels round to 2^-9 in different places. Twice the rate moves a loss by three times that. The
last loss must be at least 0.1 below the first. Seconds: 1 to 4. Memory: below 1 GiB, nearly all of it
libraries.

A failure means that the optimizer takes other steps than it was told to: another rate, another gradient,
none.
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
# No `quantization` where an adapter trains without ZeRO: the optimizer sees the adapter alone.
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
RATE = {"lora": 1e-2, "none": 1e-3}
TOLERANCE = {"fp32": 1e-4, "bf16": 0.01}


def run(stage, variant):
    import torch

    torch.set_float32_matmul_precision("highest")  # TF32 keeps 10 bits, and an environment may turn it on
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    expected = reference(stage, train)
    losses = plain(stage, train) if train["parallel"] == "none" else sharded(stage, train)
    stage.saw(losses=losses, reference=expected)
    stage.losses_finite(losses)
    tolerance = TOLERANCE[train["precision"]]
    for step, (found, loss) in enumerate(zip(losses, expected)):
        if abs(found - loss) > tolerance:
            stage.fail(
                f"the loss of step {step} is {found:.6f}, the reference has {loss:.6f}, allowed {tolerance:g}"
            )
    if not losses[-1] < losses[0] - FALL:
        stage.fail(
            f"the loss does not fall: {losses[0]:.4f} at first, {losses[-1]:.4f} after {STEPS - 1} steps"
        )


def made(stage, train, whole):
    """The model; in bfloat16 all of it (`whole`), or the base alone, under a float32 adapter."""
    import torch

    dtype = torch.bfloat16 if train["precision"] == "bf16" else None
    model = stage.model(train["adapter"], checkpointing=True, dtype=dtype)
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.to(dtype if whole and dtype else torch.float32)
    return model


def reference(stage, train):
    """The losses of one process on the CPU, clipping and AdamW (Loshchilov and Hutter, 2019) written out."""
    import torch

    model = made(stage, train, whole=train["parallel"] == "deepspeed")
    trained = [each for each in model.parameters() if each.requires_grad]
    masters = [each.detach().double() for each in trained]
    means = [torch.zeros_like(each) for each in masters]
    squares = [torch.zeros_like(each) for each in masters]
    ids = stage.batch(device="cpu")
    rate = RATE[train["adapter"]]
    losses = []
    with stage.call("reference on the CPU"):
        for step in range(1, STEPS + 1):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            losses.append(float(loss))
            gradients = [each.grad.double() for each in trained]
            norm = sum(float(each.pow(2).sum()) for each in gradients) ** 0.5
            shrink = min(1.0, LIMIT / (norm + 1e-6))
            for each, master, mean, square, gradient in zip(trained, masters, means, squares, gradients):
                clipped = gradient * shrink
                mean.mul_(0.9).add_(clipped, alpha=0.1)
                square.mul_(0.999).add_(clipped**2, alpha=0.001)
                master.mul_(1 - rate * 0.01)
                master.sub_(rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8))
                each.data.copy_(master)
                each.grad = None
    return losses


def plain(stage, train):
    import torch

    model = made(stage, train, whole=False).to(stage.device)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE[train["adapter"]])
    ids = stage.batch()
    losses = []
    for _ in range(STEPS):
        with stage.call("forward"):
            loss = model(input_ids=ids, labels=ids).loss
        with stage.call("backward"):
            loss.backward()
        with stage.call("clip"):
            torch.nn.utils.clip_grad_norm_(trained, LIMIT)
        with stage.call("step"):
            optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def sharded(stage, train):
    deepspeed = stage.deepspeed()
    offload = [part for part in ("optimizer", "param") if train[f"offload_{part}"] == "cpu"]
    config = stage.deepspeed_config(train["zero_stage"], train["precision"], clipping=LIMIT, offload=offload)
    model = stage.model(train["adapter"], checkpointing=True)
    engine = stage.engine(deepspeed, model, config, rate=RATE[train["adapter"]])
    ids = stage.batch()
    losses = []
    for _ in range(STEPS):
        with stage.call("forward"):
            loss = engine(input_ids=ids, labels=ids).loss
        with stage.call("backward"):
            engine.backward(loss)
        with stage.call("step"):
            engine.step()
        losses.append(float(loss))
    return losses
