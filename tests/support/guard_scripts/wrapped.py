"""Wrapped models and optimizers: guarded and unguarded training are equal, and a NaN is reported."""

from __future__ import annotations

import copy
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, fully_shard
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel

from envcheck import guard
from tests.support.guard_scripts.trials import adam, result, tell

warnings.simplefilter("ignore")
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=0, world_size=1
)

Maker = Callable[[Any], Any]


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def sharded(inner: Any) -> Any:
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(inner[0], mesh=mesh)
    return fully_shard(inner, mesh=mesh) or inner


def fsdp(**options: Any) -> Maker:
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    return lambda inner: FullyShardedDataParallel(
        inner, device_id=torch.device("cpu"), auto_wrap_policy=policy, **options
    )


def local(tensor: Any) -> Any:
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def train(
    wrapped: Any, optimizer: Any, *, nan: bool = False, scale: float = 0.0, warm_up: bool = False
) -> list[float]:
    """Train four steps of two accumulated batches each."""
    batches, losses = torch.Generator().manual_seed(1), []
    scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10) if warm_up else None
    for step in range(4):
        for _ in range(2):
            loss = wrapped(torch.randn(16, 8, generator=batches)).square().mean()
            (scaler.scale(loss) if scaler else loss).backward()
            losses.append(float(loss.detach()))
        if nan and step == 1:
            local(list(wrapped.parameters())[-1].grad).view(-1)[0] = float("nan")
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if rates:
            rates.step()
        optimizer.zero_grad()
    return losses


def outcome(wrap: Maker, make: Maker = adam, **options: Any) -> str:
    """Return "silent" if guarded and unguarded training are equal, else what was reported."""

    def run() -> guard.StepWatch:
        plain = wrap(net())
        losses = train(plain, make(plain), **options)
        watched = wrap(net())
        optimizer = make(watched)
        with guard.watch(watched, optimizer) as watch:
            equal = losses == train(watched, optimizer, **options)
        pairs = zip(plain.parameters(), watched.parameters(), strict=True)
        if not equal or not all(torch.equal(local(a), local(b)) for a, b in pairs):
            raise ArithmeticError("the guard changed the numbers")
        return watch

    return result(run)


def spoilt(wrap: Maker) -> str:
    wrapped = wrap(net())
    optimizer = adam(wrapped)

    def run() -> guard.StepWatch:
        with guard.watch(wrapped, optimizer) as watch:
            train(wrapped, optimizer, nan=True)
        return watch

    return result(run)


def mixed_unit() -> str:
    inner = sharded(net())
    inner[2].bias = torch.nn.Parameter(inner[2].bias.detach().to(torch.bfloat16))
    return "\n".join(map(str, guard.check_model(inner)))


BF16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
WRAPS: dict[str, Maker] = {
    "ddp": DistributedDataParallel,
    "fsdp1": fsdp(),
    "fsdp1, original parameters": fsdp(use_orig_params=True),
    "fsdp1, bf16": fsdp(mixed_precision=BF16),
    "fsdp2": sharded,
    # This backend captures and differentiates like the default one, but does not compile kernels.
    "compiled": lambda inner: torch.compile(inner, backend="aot_eager"),
    "compiled ddp": lambda inner: torch.compile(DistributedDataParallel(inner), backend="aot_eager"),
}


def alone(inner: Any) -> Any:
    return inner


tell(
    {
        **{name: outcome(wrap) for name, wrap in WRAPS.items()},
        **{f"{name}: nan": spoilt(wrap) for name, wrap in WRAPS.items()},
        "warm-up from rate 0": outcome(alone, warm_up=True),
        "loss scaler": outcome(alone, scale=2.0**16),
        "loss scaler that skips": outcome(alone, scale=2.0**127),
        "fused, scaler that skips": outcome(
            alone, lambda wrapped: torch.optim.AdamW(wrapped.parameters(), fused=True), scale=2.0**127
        ),
        "optimizer made before fsdp": result(
            lambda: guard.watch(fsdp()(net()), adam(copy.deepcopy(net()))).__enter__()
        ),
        "mixed unit": mixed_unit(),
    }
)
torch.distributed.destroy_process_group()
