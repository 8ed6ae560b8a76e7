"""Kernels run on every device, and their results are right.

Small: tanh(a @ b), its row sums, and both gradients, a of (32, 64), b of (64, 48), against the same by
Python's own double arithmetic, which no library has a part in. Large: the product of two (512, 512)
matrices of whole numbers between -3 and 3, which is exact in float32 in whatever order it is summed.

Tolerances, relative to the largest value of a tensor. fp32: 1e-5; the inputs are multiples of 1/16, so the
product is exact, and what is left are some ten roundings of 6e-8 and sums of 64. bf16: 0.015; it has eight
bits (4e-3 a rounding at most), and several roundings meet in a gradient. TF32 is off: its eleven bits
would be 5e-4. bf16 is asked of GPUs of compute capability 8.0 and newer, whose own it is.
Seconds: below 1 on a CPU, 1 to 3 a GPU. Memory: a CUDA context and some MiB of each GPU.
A failure means wrong numbers in training, or a torch that was not built for this GPU.
"""

LEVEL = 1
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
VARIANTS = {"fp32": {}, "bf16": {}}

TOLERANCE = {"fp32": 1e-5, "bf16": 0.015}
ROWS, INNER, COLUMNS = 32, 64, 48
LARGE = 512


def run(stage, variant):
    import os

    # Either would bring TF32 back behind our back; read when CUDA's libraries load.
    for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        os.environ.pop(name, None)
    torch = stage.torch()
    torch.set_float32_matmul_precision("highest")
    devices = stage.devices()
    if variant == "bf16" and stage.device_type == "cuda":
        devices = [each for each in devices if torch.cuda.get_device_capability(each) >= (8, 0)]
        if not devices:
            stage.skip("needs compute capability 8.0: bf16 is not this GPU's own")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[variant]
    a, b, weights, expected = by_hand()
    errors = {}
    for device in devices:
        where = f"{variant} on {device}"
        found = on_device(stage, torch, device, dtype, (a, b, weights), where)
        for name, values in expected.items():
            right = torch.tensor(values, dtype=torch.float64)
            error = stage.close(found[name], right, TOLERANCE[variant], f"{name}, {where}")
            errors[name] = max(error, errors.get(name, 0.0))
        large(stage, torch, device, dtype, TOLERANCE[variant], where)
    stage.saw(devices=[str(each) for each in devices], **errors)


def by_hand():
    """a, b and the row weights as lists of rows, and the results to expect, in double precision."""
    import math
    import operator
    import random

    draw = random.Random(0)  # noqa: S311 - a seed, not a secret

    def matrix(rows, columns):
        return [[draw.randint(-8, 8) / 16 for _ in range(columns)] for _ in range(rows)]

    def product(x, y):
        columns = list(zip(*y))
        return [[sum(map(operator.mul, row, column)) for column in columns] for row in x]

    a, b = matrix(ROWS, INNER), matrix(INNER, COLUMNS)
    weights = [draw.randint(1, 16) / 16 for _ in range(ROWS)]
    c = product(a, b)
    t = [[math.tanh(each) for each in row] for row in c]
    slope = [[weight * (1 - each * each) for each in row] for weight, row in zip(weights, t)]
    expected = {
        "matmul": c,
        "tanh": t,
        "sum": [math.fsum(row) for row in t],
        "gradient of a": product(slope, list(zip(*b))),
        "gradient of b": product(list(zip(*a)), slope),
    }
    return a, b, weights, expected


def on_device(stage, torch, device, dtype, inputs, where):
    """The same by torch: name → tensor on the CPU."""
    with stage.must(f"copying to {device}"):
        a, b, weights = (torch.tensor(each, dtype=dtype, device=device) for each in inputs)
        a.requires_grad_()
        b.requires_grad_()
    with stage.must(f"matmul, {where}"):
        c = a @ b
        stage.settle(device)
    with stage.must(f"tanh, {where}"):
        t = c.tanh()
        stage.settle(device)
    with stage.must(f"sum, {where}"):
        sums = t.sum(dim=1)
        stage.settle(device)
    with stage.must(f"backward, {where}"):
        (sums * weights).sum().backward()
        stage.settle(device)
    with stage.must(f"copying from {device}"):
        found = {"matmul": c, "tanh": t, "sum": sums, "gradient of a": a.grad, "gradient of b": b.grad}
        return {name: each.detach().cpu() for name, each in found.items()}


def large(stage, torch, device, dtype, tolerance, where):
    """Many blocks at once, all over the chip: the small product fits into one."""
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randint(-3, 4, (LARGE, LARGE), generator=draw).double() for _ in range(2))
    with stage.must(f"large matmul, {where}"):
        found = (x.to(device, dtype) @ y.to(device, dtype)).cpu()
    stage.close(found, x @ y, 0.0 if dtype == torch.float32 else tolerance, f"large matmul, {where}")
