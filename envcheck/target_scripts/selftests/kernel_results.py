"""Kernels run on every device, and their results are right.

Small: tanh(a @ b), its row sums and both gradients, with a of shape (32, 64) and b of (64, 48), are compared
with the same computation in Python's own double arithmetic, which uses no library. Large: the product of two
(512, 512) matrices of whole numbers between -3 and 3, which is exact in float32 in any order of summing.

Tolerances are relative to the largest value of a tensor. fp32: 1e-5; the inputs are multiples of 1/16, so the
product is exact, and what remains are about ten roundings of 6e-8 and sums of 64 terms. bf16: 0.015; it has
eight bits (at most 4e-3 a rounding), and several roundings add up in a gradient. TF32 is switched off: its
eleven bits would be 5e-4. bf16 is tested on GPUs of compute capability 8.0 and newer, which compute it
natively.

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


def run(test, variant):
    import os

    # Either of them would switch TF32 on again; they are read when CUDA's libraries load.
    for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        os.environ.pop(name, None)
    torch = test.import_torch()
    torch.set_float32_matmul_precision("highest")
    devices = test.devices()
    if variant == "bf16" and test.device_type == "cuda":
        devices = [device for device in devices if torch.cuda.get_device_capability(device) >= (8, 0)]
        if not devices:
            test.skip("needs compute capability 8.0: bf16 is not this GPU's own")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[variant]
    a, b, weights, expected = in_plain_python()
    errors = {}
    for device in devices:
        where = f"{variant} on {device}"
        found = in_torch(test, torch, device, dtype, (a, b, weights), where)
        for name, values in expected.items():
            exact = torch.tensor(values, dtype=torch.float64)
            error = test.check_close(found[name], exact, TOLERANCE[variant], f"{name}, {where}")
            errors[name] = max(error, errors.get(name, 0.0))
        check_large(test, torch, device, dtype, TOLERANCE[variant], where)
    test.record(devices=[str(device) for device in devices], **errors)


def in_plain_python():
    """Return a, b, the row weights and the expected results, as lists of rows in double precision."""
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
    t = [[math.tanh(value) for value in row] for row in c]
    slope = [[weight * (1 - value * value) for value in row] for weight, row in zip(weights, t)]
    expected = {
        "matmul": c,
        "tanh": t,
        "sum": [math.fsum(row) for row in t],
        "gradient of a": product(slope, list(zip(*b))),
        "gradient of b": product(list(zip(*a)), slope),
    }
    return a, b, weights, expected


def in_torch(test, torch, device, dtype, inputs, where):
    """Compute the same with torch on a device; return the results by name, as tensors on the CPU."""
    with test.must_succeed(f"copying to {device}"):
        a, b, weights = (torch.tensor(rows, dtype=dtype, device=device) for rows in inputs)
        a.requires_grad_()
        b.requires_grad_()
    with test.must_succeed(f"matmul, {where}"):
        c = a @ b
        test.synchronize(device)
    with test.must_succeed(f"tanh, {where}"):
        t = c.tanh()
        test.synchronize(device)
    with test.must_succeed(f"sum, {where}"):
        sums = t.sum(dim=1)
        test.synchronize(device)
    with test.must_succeed(f"backward, {where}"):
        (sums * weights).sum().backward()
        test.synchronize(device)
    with test.must_succeed(f"copying from {device}"):
        found = {"matmul": c, "tanh": t, "sum": sums, "gradient of a": a.grad, "gradient of b": b.grad}
        return {name: tensor.detach().cpu() for name, tensor in found.items()}


def check_large(test, torch, device, dtype, tolerance, where):
    """Check a product that occupies many blocks of the GPU at once; the small product fits into one."""
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randint(-3, 4, (LARGE, LARGE), generator=draw).double() for _ in range(2))
    with test.must_succeed(f"large matmul, {where}"):
        found = (x.to(device, dtype) @ y.to(device, dtype)).cpu()
    test.check_close(found, x @ y, 0.0 if dtype == torch.float32 else tolerance, f"large matmul, {where}")
