"""Training by DeepSpeed with one rank on the CPU: the guard reports each fault, and nothing without a fault."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import deepspeed
import torch

from envcheck import guard
from tests.support.guard_scripts.trials import result, tell

for name in list(deepspeed.ops.__compatible_ops__):
    if "shm" in name:  # gloo is enough, and this backend would have to be compiled
        deepspeed.ops.__compatible_ops__[name] = False
deepspeed.init_distributed("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=0, world_size=1)

Bad = Callable[[Any], object]


def engine(stage: int, precision: str, offload: tuple[str, ...] = ()) -> Any:
    """Return a DeepSpeed engine with three linear layers, the middle one frozen."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
    net[1].requires_grad_(False)
    zero: dict[str, Any] = {"stage": stage, "reduce_scatter": False, "overlap_comm": False}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
    zero |= {what: {"device": "cpu"} for what in offload}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**6,
    }
    if precision != "fp32":
        config[precision] = {"enabled": True}
    trainable = [parameter for parameter in net.parameters() if parameter.requires_grad]
    return deepspeed.initialize(
        model=net, config=config, optimizer=torch.optim.AdamW(trainable, lr=1e-2), model_parameters=trainable
    )[0]


def train(driven: Any, bad: Bad | None = None) -> list[float]:
    """Train four steps of two accumulated batches; the fault is made before the third backward."""
    batches, losses = torch.Generator().manual_seed(1), []
    for batch in range(8):
        x = torch.randn(4, 8, generator=batches).to(next(driven.module.parameters()).dtype)
        loss = driven(x).float().square().mean()
        if bad and batch == 2:
            bad(driven)
        driven.backward(loss)
        driven.step()
        losses.append(float(loss.detach()))
    return losses


def weights(driven: Any) -> list[Any]:
    return [getattr(p, "ds_tensor", p).detach().clone() for p in driven.module.parameters()]


def left(driven: Any) -> bool:
    """Return whether the guard's patch of the step or one of its gradient hooks remains."""
    hooks = [hook for p in driven.module.parameters() for hook in (p._backward_hooks or {}).values()]
    return "step" in vars(driven.optimizer) or any(isinstance(hook, functools.partial) for hook in hooks)


def healthy(stage: int, precision: str, offload: tuple[str, ...] = ()) -> str:
    def run() -> guard.StepWatch:
        plain = engine(stage, precision, offload)
        losses = train(plain)
        watched = engine(stage, precision, offload)
        with guard.watch(watched) as watch:
            equal = losses == train(watched)
        if not equal or not all(map(torch.equal, weights(plain), weights(watched))):
            raise ArithmeticError("the guard changed the numbers")
        if left(watched):
            raise ArithmeticError("the guard left something behind")
        return watch

    return result(run)


def spoilt(bad: Bad, stage: int = 3, offload: tuple[str, ...] = (), early: Bad | None = None) -> str:
    driven = engine(stage, "bf16", offload)
    if early:
        early(driven)

    def run() -> guard.StepWatch:
        with guard.watch(driven) as watch:
            train(driven, bad)
        return watch

    said = result(run)
    return said + ("\nhooks remain" if left(driven) else "")


def master_moved(driven: Any) -> None:
    parts = driven.optimizer.fp32_partitioned_groups_flat
    parts[0] = torch.nn.Parameter(parts[0].detach().to("meta"))


def master_cast(driven: Any) -> None:
    zero = driven.optimizer
    parts = getattr(zero, "fp32_partitioned_groups_flat", None) or zero.single_partition_of_fp32_groups
    parts[0].data = parts[0].data.to(torch.bfloat16)


def state_moved(driven: Any) -> None:
    state = next(iter(driven.optimizer.optimizer.state.values()))
    state["exp_avg"] = state["exp_avg"].to("meta")


def partition_moved(driven: Any) -> None:
    weight = driven.module[0].weight
    weight.ds_tensor = weight.ds_tensor.to("meta")


def added_late(driven: Any) -> None:
    driven.module.register_parameter("late", torch.nn.Parameter(torch.ones(3)))


def nan(driven: Any) -> None:
    driven.module[0].weight.register_hook(lambda gradient: gradient * float("nan"))


def nothing(_: Any) -> None:
    pass


OFFLOAD = ("offload_optimizer", "offload_param")
tell(
    {
        "good, stage 0": healthy(0, "fp32"),
        "good, stage 0, bf16": healthy(0, "bf16"),
        "good, stage 1": healthy(1, "bf16"),
        "good, stage 2, offload": healthy(2, "bf16", OFFLOAD[:1]),
        "good, stage 3, fp32": healthy(3, "fp32"),
        "good, stage 3": healthy(3, "bf16"),
        "good, stage 3, offload": healthy(3, "bf16", OFFLOAD),
        "master moved": spoilt(master_moved, offload=OFFLOAD[:1]),
        "master cast": spoilt(master_cast),
        "master cast, stage 2": spoilt(master_cast, stage=2),
        "state moved": spoilt(state_moved),
        "partition moved": spoilt(partition_moved, offload=OFFLOAD),
        "added late": spoilt(added_late),
        "nan": spoilt(nothing, early=nan),
        "nan that only DeepSpeed sees": spoilt(nan, stage=2),
    }
)
