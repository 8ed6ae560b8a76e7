"""A matrix product on this device equals the same product on the CPU.

Shapes: 64 by 64, float32. Tolerance: 1e-3 of the largest element, because TF32 keeps 10 bits of the mantissa.
Seconds: 1. Memory: 1 MiB. A failure means that kernels run but compute wrong results.
"""

# Literals only: envcheck reads them without running this file.
LEVEL = 1  # 1 a second or two, 2 a training step, 3 several ranks
NEEDS = {"pkg.torch": "present"}  # facts without which the test is skipped
IMPORTS = ("torch",)  # imported once, before the processes of the variants fork
SECONDS = 30  # deadline
# RANKS = (2, 2)                          # processes, at least and at most
# VARIANTS = {"name": {"train": {"zero_stage": 3}}}   # training facts a variant stands for


def run(stage, variant):
    """Do the work; `stage` fails, skips and records. Import libraries inside functions only."""
    torch = stage.torch()
    one = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64) / 4096
    expected = one @ one
    for device in stage.devices():
        with stage.must(f"matmul on {device}"):
            found = (one.to(device) @ one.to(device)).cpu()
        error = float((found - expected).abs().max() / expected.abs().max())
        if not error < 1e-3:
            stage.fail(f"{device}: relative error {error:.1e}, expected below 1e-3")
