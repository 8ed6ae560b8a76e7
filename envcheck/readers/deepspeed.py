"""DeepSpeed's JSON configuration, comments allowed.

What a key means and defaults to is DeepSpeed's own (deepspeed/runtime/config.py and
runtime/zero/config.py): no `zero_optimization` is stage 0, no `offload_*` is none, and gradient
clipping is off at 0. `"auto"` leaves a value to the trainer's arguments, so it stays not given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.model import Absent, Fact, InputError, Known, Value
from envcheck.readers import Reader, Tables, loads_commented, without_comments

_MARKS = (
    '"zero_optimization"',
    '"train_micro_batch_size_per_gpu"',
    '"train_batch_size"',
    '"gradient_accumulation_steps"',
    '"gradient_clipping"',
    '"zero_allow_untested_optimizer"',
)

_STAGES = range(4)


def _recognises(text: str) -> bool:
    bare = without_comments(text).lstrip()
    return bare.startswith("{") and any(mark in bare for mark in _MARKS)


def _read(text: str, where: str, tables: Tables) -> list[Fact]:
    del tables
    config = loads_commented(text, where)
    if not isinstance(config, Mapping):
        raise InputError(where, "expected a JSON object")
    facts = [
        Fact(f"train.{key}", Known(value), f"{where}: {path}") for key, value, path in _said(config, where)
    ]
    if "gradient_clipping" not in config:
        # Not "not given": DeepSpeed reads this file alone, so no trainer's default fills the gap.
        facts.append(Fact("train.gradient_clipping", Absent(), f"{where} names none"))
    return [Fact("train.parallel", Known("deepspeed"), where), *facts]


def _said(config: Mapping[str, Any], where: str) -> Iterator[tuple[str, Value, str]]:
    """What the configuration says: (fact, value, path in the file)."""
    zero = _table(config, "zero_optimization", where)
    stage = zero.get("stage", 0)
    if stage != "auto":
        if isinstance(stage, bool) or not isinstance(stage, int) or stage not in _STAGES:
            raise InputError(f"{where}: zero_optimization.stage", f"expected 0, 1, 2 or 3, found {stage!r}")
        yield "zero_stage", stage, "zero_optimization.stage"
    for name in ("offload_optimizer", "offload_param"):
        device = _table(zero, name, where, f"zero_optimization.{name}").get("device", "none")
        if name == "offload_optimizer" and zero.get("cpu_offload") is True:
            device = "cpu"  # the key of DeepSpeed before 0.4
        if device in ("none", "cpu", "nvme"):
            yield name, device, f"zero_optimization.{name}.device"
        elif device != "auto":
            place = f"{where}: zero_optimization.{name}.device"
            raise InputError(place, f"expected none, cpu or nvme, found {device!r}")
    yield from _precision(config, where)
    clipping = config.get("gradient_clipping")
    if isinstance(clipping, int | float) and not isinstance(clipping, bool):
        yield "gradient_clipping", clipping > 0, "gradient_clipping"
    optimizer = _table(config, "optimizer", where).get("type")
    if isinstance(optimizer, str):
        yield "optimizer", optimizer.lower(), "optimizer.type"


def _precision(config: Mapping[str, Any], where: str) -> Iterator[tuple[str, Value, str]]:
    enabled = {name: _table(config, name, where).get("enabled", False) for name in ("bf16", "fp16")}
    if enabled["bf16"] is True and enabled["fp16"] is True:
        raise InputError(f"{where}: fp16.enabled", "bf16 is enabled too; DeepSpeed takes one of them")
    for name, value in enabled.items():
        if value is True:
            yield "precision", name, f"{name}.enabled"
        elif value not in (False, "auto"):
            raise InputError(f"{where}: {name}.enabled", f'expected true, false or "auto", found {value!r}')
    if {"bf16", "fp16"} <= config.keys() and enabled["bf16"] is False and enabled["fp16"] is False:
        # A section left out is not a no: transformers may still switch it on from its own arguments.
        yield "precision", "fp32", "bf16.enabled and fp16.enabled"


def _table(config: Mapping[str, Any], key: str, where: str, path: str = "") -> Mapping[str, Any]:
    table = config.get(key) or {}
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: {path or key}", f"expected an object, found {table!r}")
    return table


READER = Reader("a DeepSpeed configuration", _recognises, _read)
