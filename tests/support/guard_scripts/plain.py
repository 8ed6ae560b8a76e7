"""A plain training loop: what the guard reports, what remains of it, and what it costs after its watch."""

from __future__ import annotations

import copy
import functools
import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

import envcheck.guard
from envcheck import guard
from tests.support.guard_scripts.trials import BACKWARD, Bad, adam, loop, model, result, same, tell

Maker = Callable[[Any], Any]
TRANSFORMERS_LOADED = "transformers" in sys.modules


def trial(bad: dict[str, Bad], make: Maker = adam, change: Maker | None = None, **options: Any) -> str:
    """Train 4 steps under the guard with the given faults, and return what it reported."""
    net = model()
    if change:
        net = change(net) or net
    optimizer = make(net)

    def run() -> guard.StepWatch:
        with guard.watch(net, optimizer, **options) as watch:
            loop(net, optimizer, bad)
        return watch

    said = result(run)
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        said += "\nhooks of the optimizer remain"
    return said


def parameter_moved(net: Any, _: Any) -> None:
    net[3]._parameters["weight"] = torch.nn.Parameter(net[3].weight.detach().to("meta"))


def parameter_cast(net: Any, _: Any) -> None:
    net[3].weight.data = net[3].weight.data.to(torch.bfloat16)


def state_moved(net: Any, optimizer: Any) -> None:
    state = optimizer.state[net[3].weight]
    state["exp_avg"] = state["exp_avg"].to("meta")


def state_cast(net: Any, optimizer: Any) -> None:
    state = optimizer.state[net[3].weight]
    state["exp_avg_sq"] = state["exp_avg_sq"].to(torch.bfloat16)


def buffer_moved(net: Any, _: Any) -> None:
    net[1].running_mean = net[1].running_mean.to("meta")


def gradient_cast(net: Any, _: Any) -> None:
    net[0].weight.grad.data = net[0].weight.grad.data.to(torch.bfloat16)


def gradient_nan(net: Any, _: Any) -> None:
    net[3].bias.grad[0] = float("nan")


def backward_makes_nan(net: Any, _: Any) -> None:
    net[3].bias.register_hook(lambda gradient: gradient * float("nan"))


def gradient_for_frozen(net: Any, _: Any) -> None:
    net[0].weight.grad = torch.ones_like(net[0].weight)


def freeze(net: Any) -> None:
    net[0].weight.requires_grad_(False)


def unused(net: Any) -> None:
    net[0].register_parameter("spare", torch.nn.Parameter(torch.ones(3)))


def dead(net: Any) -> None:
    net[3].bias.register_hook(lambda gradient: gradient * 0)


def raised(_: Any, __: Any) -> None:
    raise ZeroDivisionError


def onto_meta(net: Any) -> None:
    net[3].to("meta")


def emptied(net: Any) -> None:
    net[0].register_parameter("lost", torch.nn.Parameter(torch.empty(0)))


class Idle(torch.optim.AdamW):  # type: ignore[misc]
    """An optimizer whose step changes nothing."""

    def step(self, closure: Any = None) -> None:
        pass


def warned() -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trial({"backward": gradient_nan}, on="warn")
    return "\n".join(f"{w.category.__name__}: {w.message} at {w.filename}" for w in caught)


def leaves_nothing(bad: dict[str, Bad]) -> bool:
    """Return whether model and optimizer are freed while the watch object still exists."""
    net = model()
    optimizer = adam(net)
    watch = guard.watch(net, optimizer)
    before = {name: dict(vars(thing)) for name, thing in (("net", net), ("optimizer", optimizer))}

    def run() -> guard.StepWatch:
        with watch:
            loop(net, optimizer, bad)
        return watch

    result(run)
    del run
    untouched = before == {"net": dict(vars(net)), "optimizer": dict(vars(optimizer))}
    hooked = any(parameter._backward_hooks for parameter in net.parameters())
    gone = [weakref.ref(net), weakref.ref(optimizer)]
    before.clear()
    net = optimizer = None
    gc.collect()
    return untouched and not hooked and not watch.watching and not any(ref() for ref in gone)


def calls_of_a_step(guarded: bool) -> int:
    """Return the number of Python calls of one step; with the guard, of the first step after its watch."""
    net = model()
    optimizer = adam(net)
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    def measure() -> None:
        loop(net, optimizer, steps=2)
        sys.setprofile(counted)
        try:
            loop(net, optimizer, steps=1)
        finally:
            sys.setprofile(None)

    if guarded:
        with guard.watch(net, optimizer, steps=2):
            measure()
    else:
        measure()
    return count


class Block(torch.nn.Module):  # type: ignore[misc]
    """A layer that can return another dtype or shape in the second call."""

    def __init__(self, other: str) -> None:
        super().__init__()
        self.linear, self.other, self.seen = torch.nn.Linear(8, 8, bias=False), other, 0

    def forward(self, x: Any) -> Any:
        self.seen += 1
        if self.other and self.seen > 1:
            x = x[:2] if self.other == "shape" else x.to(torch.float64)
        return torch.nn.functional.linear(x, self.linear.weight.to(x.dtype)).relu()


class Checkpointed(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, other: str, wrapped: Maker) -> None:
        super().__init__()
        self.wrapped = wrapped
        self.layers = torch.nn.ModuleList([Block(""), Block(other)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = checkpoint(self.wrapped(layer), x.requires_grad_(), use_reentrant=False)
        return x


def recomputed(other: str, wrapped: Maker = lambda layer: layer) -> str:
    return trial({}, change=lambda _: Checkpointed(other, wrapped))


def numerics() -> bool:
    alone, watched = model(), model()
    losses = loop(alone, adam(alone))
    optimizer = adam(watched)
    with guard.watch(watched, optimizer):
        return losses == loop(watched, optimizer) and same(alone, watched)


def own_hooks_survive() -> bool:
    """Return whether hooks that the user adds and removes during a watch are kept."""
    net = model()
    optimizer = adam(net)
    seen: list[str] = []
    first = optimizer.register_step_post_hook(lambda *_: seen.append("first"))
    with guard.watch(net, optimizer):
        optimizer.register_step_post_hook(lambda *_: seen.append("second"))
        loop(net, optimizer)
    first.remove()
    loop(net, optimizer, steps=1)
    return seen == ["first", "second"] * 4 + ["second"]


def nested() -> bool:
    one, two = model(), model()
    first, second = adam(one), adam(two)
    outer, inner = guard.watch(one, first), guard.watch(two, second)
    outer.__enter__()
    inner.__enter__()
    outer.close()
    still = torch.Tensor.backward is not BACKWARD
    inner.close()
    return still and torch.Tensor.backward is BACKWARD


def same_device() -> str:
    here = torch.ones(1)
    envcheck.guard.assert_same_device(here, here, mask=here)
    try:
        envcheck.guard.assert_same_device(here, mask=here.to("meta"))
    except guard.GuardError as error:
        return str(error)
    return "silent"


def checked() -> str:
    net = model()
    quiet = guard.check_model(net, adam(net))
    spoilt = model()
    onto_meta(spoilt)
    return f"{len(quiet)} then {guard.check_model(spoilt, adam(spoilt))[0]}"


tell(
    {
        "good": trial({}),
        "good, half of it frozen": trial({}, change=freeze),
        "good, rate 0": trial({}, make=lambda net: torch.optim.AdamW(net.parameters(), lr=0.0)),
        "good, sgd": trial({}, make=lambda net: torch.optim.SGD(net.parameters(), lr=1e-2)),
        "good, checkpointed": recomputed(""),
        "parameter moved, forward": trial({"forward": parameter_moved}),
        "parameter moved, backward": trial({"backward": parameter_moved}),
        "parameter cast": trial({"clip": parameter_cast}),
        "state moved": trial({"step": state_moved}),
        "state cast": trial({"step": state_cast}),
        "buffer moved": trial({"clip": buffer_moved}),
        "buffer moved, forward raises": trial({"step": buffer_moved}),
        "gradient cast": trial({"clip": gradient_cast}),
        "gradient nan": trial({"clip": gradient_nan}),
        "gradient nan, from backward": trial({"forward": backward_makes_nan}),
        "frozen gradient": trial({"backward": gradient_for_frozen}, change=freeze),
        "unconnected": trial({}, make=lambda net: adam(copy.deepcopy(net))),
        "unchanged": trial({}, make=lambda net: Idle(net.parameters())),
        "no gradient": trial({}, change=unused),
        "no gradient, allowed": trial({}, change=unused, allow=("no-gradient",)),
        "zero gradient": trial({}, change=dead),
        "meta": trial({}, change=onto_meta),
        "empty": trial({}, change=emptied),
        "raised": trial({"backward": raised}),
        "recompute shape": recomputed("shape"),
        "recompute dtype": recomputed("dtype"),
        "recompute, partial": recomputed(
            "shape", lambda layer: functools.partial(type(layer).forward, layer)
        ),
        "recompute, method": recomputed("shape", lambda layer: functools.partial(layer.forward)),
        "warned": warned(),
        "numerics": numerics(),
        "leaves nothing": leaves_nothing({}),
        "leaves nothing, raised": leaves_nothing({"backward": raised}),
        "leaves nothing, finding": leaves_nothing({"clip": gradient_nan}),
        "own hooks survive": own_hooks_survive(),
        "nested": nested(),
        "calls": [calls_of_a_step(guarded=False), calls_of_a_step(guarded=True)],
        "same device": same_device(),
        "checked": checked(),
        "transformers loaded": TRANSFORMERS_LOADED,
    }
)
