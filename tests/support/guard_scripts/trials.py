"""What the guard's scripts share: a small training loop, and its outcome as text.

The scripts run with the interpreter of a real training stack, never with that of the tests.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch

from envcheck import guard

BACKWARD = torch.Tensor.backward

Bad = Callable[[Any, Any], object]
"""A function that damages a model and its optimizer."""


def model() -> Any:
    """Return a model of 8, 16 and 4 features with a batch norm for its buffers; its weights are always the same."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    )


def adam(net: Any) -> Any:
    return torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)


def loop(net: Any, optimizer: Any, bad: Mapping[str, Bad] | None = None, steps: int = 4) -> list[float]:
    """Train and return the losses; `bad[call]` runs once, after that call in the first step."""
    bad, losses = dict(bad or {}), []
    batches = torch.Generator().manual_seed(1)

    def spoil(call: str) -> None:
        bad.pop(call, lambda *_: None)(net, optimizer)

    for _ in range(steps):
        loss = net(torch.randn(16, 8, generator=batches)).square().mean()
        spoil("forward")
        loss.backward()
        spoil("backward")
        torch.nn.utils.clip_grad_norm_([p for p in net.parameters() if p.grad is not None], 1.0)
        spoil("clip")
        optimizer.step()
        spoil("step")
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def result(run: Callable[[], guard.StepWatch | None]) -> str:
    """Return "silent", the findings of a watch that only warns, or the exception with its notes."""
    try:
        watch = run()
    except Exception as error:  # noqa: BLE001 - the test reads it
        notes = "\n".join(getattr(error, "__notes__", ()))
        said = f"{type(error).__name__}: {error}\n{notes}".strip()
        if not isinstance(error, guard.GuardError) and not notes:
            said += "\n" + "".join(traceback.format_exception(error))
    else:
        said = "\n".join(map(str, watch.findings)) if watch and watch.findings else "silent"
    left = "" if torch.Tensor.backward is BACKWARD else "\nTensor.backward is still patched"
    return said + left


def same(one: Any, other: Any) -> bool:
    """Return whether two models have the same weights and buffers, bit for bit."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def tell(results: Mapping[str, Any]) -> None:
    """Print the results for the test on one line."""
    sys.stdout.write(f"\nRESULTS {json.dumps(results)}\n")
