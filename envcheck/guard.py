"""The same checks inside a user's own training: watch the first steps, name the first tensor that strays.

    with envcheck.guard.watch(model, optimizer, steps=2):
        train()

Needs torch, and nothing else of envcheck, so it works where only this package's files are. It reads, never
writes: losses and weights are those of an unguarded run, bit for bit. It adds no collective. When the steps
are over, or training raises, every hook and patch is gone. On several ranks a finding is raised on the rank
that has it, like any exception of training; the launcher then ends the others.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    import torch

# --- what is said -----------------------------------------------------------------------------------

KINDS: Mapping[str, str] = {
    "device": "a tensor is on another device than it should be",
    "dtype": "a tensor has another dtype than it should have",
    "unit-dtype": "trainable parameters of one FSDP unit differ in dtype",
    "meta": "a parameter was never given memory",
    "empty": "a parameter has no elements, and no sharding explains it",
    "unconnected": "the optimizer does not hold a trainable parameter",
    "unchanged": "steps were taken, and no parameter changed",
    "no-gradient": "a trainable parameter got no gradient in any watched step",
    "zero-gradient": "the gradient of a trainable parameter was zero in every watched step",
    "frozen-gradient": "a frozen parameter has a gradient",
    "non-finite": "NaN or Inf in the loss, a gradient or a parameter",
    "recompute": "gradient checkpointing recomputed a tensor that differs from the saved one",
    "no-deepspeed": "a DeepSpeed configuration was given, and DeepSpeed does not drive",
    "exception": "training raised what a known failure raises",
}
"""Every kind of finding; `allow` takes these words."""

AFTER: Mapping[str, str] = {
    "forward": "by the end of the forward",
    "backward": "by the end of the backward",
    "clip": "between backward and step (clip)",
    "step": "by the end of the step",
    "between": "between two steps",
}
"""The calls a finding may name: what ran since the guard last looked. "forward": all since the last step."""


class GuardFinding(NamedTuple):
    """One thing that is not as it should be, and the tensor it was first seen on.

    `more` counts further tensors with the same difference; `call` is a key of `AFTER`, or "" for how things
    stood at the start; `rule` is the id of a likely rule, or "".
    """

    kind: str
    where: str
    expected: str
    found: str
    call: str = ""
    rule: str = ""
    more: int = 0
    rank: int | None = None

    def __str__(self) -> str:
        rank = f"rank {self.rank}: " if self.rank is not None else ""
        more = f" (and {self.more} more)" if self.more else ""
        call = f", {AFTER[self.call]}" if self.call else ""
        rule = f"; likely rule {self.rule} (envcheck rule {self.rule})" if self.rule else ""
        seen = f"expected {self.expected}, found {self.found}{call}"
        return f"{rank}{self.kind}: {self.where}{more}: {seen}{rule}"


class GuardError(RuntimeError):
    """Training is not as it should be; `findings` say how, the first of each kind."""

    def __init__(self, findings: Iterable[GuardFinding]) -> None:
        """List the findings, one a line."""
        self.findings = tuple(findings)
        super().__init__("\n".join(map(str, self.findings)))


class GuardWarning(UserWarning):
    """A finding under `on="warn"`, or the guard itself gave up watching."""


# --- likely rules -----------------------------------------------------------------------------------


class Likely(NamedTuple):
    """A rule of compat/ that explains what was seen.

    It is named if all `traits` are there, `text` is found, and the loaded packages lie within `versions`,
    which are clauses of the rule itself (a test compares them). `text` is searched in "kind call" of a
    finding, or in "Type: message in function function …" of an exception.
    """

    rule: str
    traits: frozenset[str]
    text: str
    versions: Mapping[str, str]


def _likely(rule: str, traits: str, text: str, **versions: str) -> Likely:
    return Likely(rule, frozenset(traits.split()), text, versions)


LIKELY: tuple[Likely, ...] = (
    _likely(
        "zero3-frozen-nonreentrant-checkpoint",
        "zero3 frozen",
        r"CheckpointError: .*recomputed metadata: [^}]*Size\(\[0\]\)",
        torch=">=2.5",
        deepspeed="<0.19.3",
    ),
    _likely(
        "zero3-cpu-offload-grad-norm-device",
        "zero3 offload_optimizer",
        r"RuntimeError: Expected all tensors to be on the same device.* unscale_and_clip_grads\b",
        deepspeed=">=0.14.1,<0.14.3",
    ),
    _likely(
        "fsdp-dora-recompute-dtype",
        "fsdp1 dora",
        r"CheckpointError: .*torch\.float32[^}]*\}\s*recomputed metadata: [^}]*torch\.bfloat16",
        peft=">=0.12.0",
    ),
    _likely(
        "deepspeed-0192-zero3-adapter-dtype",
        "zero3 bf16",
        r"output tensor must have the same type as input tensor.* _?_allgather_params_coalesced\b",
        deepspeed="==0.19.2",
        peft=">=0.12.0",
    ),
    _likely(
        "deepspeed-zero3-nan-torch210",
        "zero3 bf16",
        r"^non-finite (backward|clip|step)$",
        deepspeed="<0.18.8",
        torch=">=2.10",
    ),
    _likely("fsdp2-nan-transformers54", "fsdp2", r"^non-finite forward$", transformers=">=5.4,<5.6"),
    _likely(
        "deepspeed-zero3-modules-to-save",
        "zero3",
        r"has no attribute 'ds_grads_remaining'",
        deepspeed="<0.19.3",
    ),
    _likely(
        "deepspeed-no-sync-gradient-accumulation",
        "deepspeed",
        r"no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage [23]",
        deepspeed=">=0.16.0",
        transformers=">=4.46.2,<4.47.1",
    ),
    _likely(
        "transformers-510-deepspeed",
        "deepspeed",
        r"AttributeError: 'NoneType' object has no attribute 'backward'",
        transformers="==5.1.0",
    ),
    _likely(
        "zero-adapter-torch210-transformers-lt51",
        "deepspeed",
        r"ValueError: zip\(\) argument 2 is (longer|shorter) than argument 1",
        torch=">=2.10",
        transformers="<5.1.0",
    ),
)
"""Signatures of known failures, by what the guard can see. Nothing is named where nothing is known."""


def likely_rule(text: str, traits: Collection[str], versions: Mapping[str, str]) -> str:
    """The id of the first row of `LIKELY` that holds, or ""; a version that is not given holds nothing."""
    for row in LIKELY:
        if (
            row.traits <= set(traits)
            and re.search(row.text, text, re.DOTALL)
            and all(_within(versions.get(name, ""), bounds) for name, bounds in row.versions.items())
        ):
            return row.rule
    return ""


def _within(version: str, bounds: str) -> bool:
    """Whether the release of a version (`2.13.0+cpu` → 2.13.0) lies within bounds such as `>=2.5,<2.6`."""
    if not version[:1].isdigit():
        return False
    here = _release(version)
    compare: Mapping[str, Callable[[tuple[int, ...]], bool]] = {
        ">=": lambda there: here >= there,
        "<": lambda there: here < there,
        "==": lambda there: here == there,
    }
    return all(compare[op](_release(bound)) for op, bound in re.findall(r"(>=|<|==)\s*([\d.]+)", bounds))


def _release(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = tuple(int(number) for number in found[0].split(".")) if found else ()
    return (*numbers, 0, 0, 0)[:3]


def _loaded_versions() -> dict[str, str]:
    """Versions of what is loaded already; nothing is imported to ask."""
    names = {name for row in LIKELY for name in row.versions}
    return {name: str(getattr(sys.modules.get(name), "__version__", "")) for name in names}


# --- what is watched --------------------------------------------------------------------------------

_WRAPPERS = ("DeepSpeedEngine", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
_INNER = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def _kin(thing: object) -> set[str]:
    """Names of a thing's classes: wrappers are known by name, so that nothing is imported to ask."""
    return {kind.__name__ for kind in type(thing).__mro__}


class _Setup(NamedTuple):
    """A model, what steps it, and how they are driven.

    `driver` is the object whose step updates the parameters: a torch optimizer, or one of DeepSpeed's; None
    if there is none.
    """

    model: Any
    driver: Any
    traits: frozenset[str]

    @classmethod
    def of(cls, model: Any, optimizer: Any) -> _Setup:
        if not callable(getattr(model, "named_parameters", None)):
            raise TypeError(f"expected a torch.nn.Module, found {type(model).__name__}")
        if optimizer is None and "DeepSpeedEngine" in _kin(model):
            optimizer = model.optimizer
        driver, seen = optimizer, []
        while driver is not None and not _steps_itself(driver):
            seen.append(driver)  # accelerate's and other wrappers hold the real one
            driver = getattr(driver, "optimizer", None)
        if optimizer is not None and driver is None:
            raise TypeError(f"expected an optimizer, found {type(optimizer).__name__}")
        return cls(model, driver, frozenset(_traits(model, driver, seen)))

    @property
    def zero(self) -> bool:
        """Whether the driver is one of DeepSpeed's, whose gradients never reach `.grad`."""
        return self.driver is not None and not hasattr(self.driver, "_optimizer_step_pre_hooks")

    @property
    def sharded(self) -> bool:
        """Whether FSDP swaps the parameters' storage while a step runs."""
        return bool(self.traits & {"fsdp1", "fsdp2"})

    def name(self, name: str) -> str:
        """A name as the user's own model has it, without what wrappers put before or between."""
        parts = name.split(".")
        inner: Any = self.model
        while parts and inner is not None:
            if parts[0] in _INNER or (parts[0] == "module" and _kin(inner) & set(_WRAPPERS)):
                inner = getattr(inner, parts.pop(0), None)
            else:
                break
        return ".".join(part for part in parts if part not in _INNER) or name

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Parameters that exist: a lazy module's come later."""
        for name, parameter in self.model.named_parameters():
            if "UninitializedTensorMixin" not in _kin(parameter):
                yield self.name(name), parameter

    def trainable(self) -> Iterator[tuple[str, Any]]:
        return ((name, parameter) for name, parameter in self.parameters() if parameter.requires_grad)

    def buffers(self) -> Iterator[tuple[str, Any]]:
        return ((self.name(name), buffer) for name, buffer in self.model.named_buffers())

    def states(self) -> Iterator[tuple[str, Any, str, Any]]:
        """(name, tensor it belongs to, word, state) of optimizer states as large as what they belong to."""
        base = getattr(self.driver, "optimizer", None) if self.zero else self.driver
        names = {id(parameter): f"parameter {name}" for name, parameter in self.parameters()}
        names |= {id(part): where for where, part in self.masters()}
        for owner, state in dict(getattr(base, "state", None) or {}).items():
            for word, tensor in state.items() if isinstance(state, dict) else ():
                if getattr(tensor, "shape", None) == getattr(owner, "shape", ()) and tensor.dim():
                    where = names.get(id(owner), "a parameter of no name")
                    yield f"optimizer state {word} of {where}", owner, word, tensor

    def masters(self) -> Iterator[tuple[str, Any]]:
        """This rank's partitions of ZeRO's master weights."""
        for attribute in ("fp32_partitioned_groups_flat", "single_partition_of_fp32_groups"):
            parts = getattr(self.driver, attribute, None)
            for index, part in enumerate(parts if isinstance(parts, list) else ()):
                if part.numel():  # NVMe offload leaves empty ones
                    yield f"master weights, partition {index}", part

    def held(self) -> set[int] | None:
        """Ids of the parameters the optimizer holds; None if it does not say."""
        if self.driver is None:
            return None
        if not self.zero:
            groups = [group["params"] for group in self.driver.param_groups]
        else:
            names = ("fp16_groups", "bit16_groups", "bf16_groups")
            groups = next((found for name in names if (found := getattr(self.driver, name, None))), [])
            if not groups:
                return None
        return {id(parameter) for group in groups for parameter in group}


def _steps_itself(optimizer: Any) -> bool:
    # accelerate's wrapper inherits from torch's Optimizer without initialising it.
    return "_optimizer_step_pre_hooks" in vars(optimizer) or type(optimizer).__module__.startswith(
        "deepspeed.runtime"
    )


def _traits(model: Any, driver: Any, wrappers: Iterable[Any]) -> Iterator[str]:
    """Words for how training is driven, as `Likely` asks them."""
    parameters = list(model.parameters())
    of_deepspeed = type(driver).__module__.startswith("deepspeed.runtime")
    zero3 = any(hasattr(parameter, "ds_id") for parameter in parameters)
    if (
        of_deepspeed
        or zero3
        or "DeepSpeedEngine" in _kin(model)
        or any("DeepSpeedOptimizerWrapper" in _kin(wrapper) for wrapper in wrappers)
    ):
        yield "deepspeed"
    words = {
        "zero3": zero3,
        "offload_optimizer": of_deepspeed
        and True in (getattr(driver, "offload_optimizer", None), getattr(driver, "cpu_offload", None)),
        "offload_param": of_deepspeed and getattr(driver, "offload_param", None) is True,
        "fsdp1": any("FullyShardedDataParallel" in _kin(module) for module in model.modules()),
        "fsdp2": any("FSDPModule" in _kin(module) for module in model.modules()),
        "frozen": any(not parameter.requires_grad for parameter in parameters),
        "bf16": any(str(parameter.dtype) == "torch.bfloat16" for parameter in parameters),
        "dora": any("lora_magnitude_vector" in name for name, _ in model.named_parameters()),
        "spread": len({str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}) > 1,
    }
    yield from (word for word, there in words.items() if there)


# --- how things stand -------------------------------------------------------------------------------


def _standing(setup: _Setup, call: str, deepspeed: bool = False) -> Iterator[GuardFinding]:
    """What is wrong with this state of model and optimizer, whatever it was before."""
    if deepspeed and "deepspeed" not in setup.traits:
        kind = type(setup.driver)
        found = f"the Trainer ran without DeepSpeed, its optimizer is {kind.__module__}.{kind.__qualname__}"
        yield GuardFinding("no-deepspeed", type(setup.model).__name__, "DeepSpeed to drive", found, call)
    home = _home(setup)
    yield from _parameters_standing(setup, home, call)
    for name, buffer in setup.buffers():
        # A 0-dim tensor of the CPU may meet any other.
        if home and not setup.sharded and buffer.device.type != home and (buffer.dim() or _is_meta(buffer)):
            yield GuardFinding("device", f"buffer {name}", home, str(buffer.device), call)
    yield from _optimizer_standing(setup, home, call)
    yield from _units_standing(setup, call)


def _parameters_standing(setup: _Setup, home: str, call: str) -> Iterator[GuardFinding]:
    held = setup.held()
    for name, parameter in setup.parameters():
        where, of_zero3 = f"parameter {name}", hasattr(parameter, "ds_id")
        if _is_meta(parameter) and "spread" not in setup.traits:
            yield GuardFinding("meta", where, f"memory on {home or 'a device'}", "device meta", call)
        elif home and not of_zero3 and parameter.device.type != home:
            yield GuardFinding("device", where, home, str(parameter.device), call)
        if not of_zero3 and not setup.sharded and not parameter.numel():
            yield GuardFinding("empty", where, "elements", f"shape {list(parameter.shape)}", call)
        if of_zero3:
            yield from _partition_standing(setup, where, parameter, home, call)
        if parameter.grad is not None:
            yield from _gradient_standing(setup, name, parameter, call)
        if parameter.requires_grad and held is not None and id(parameter) not in held:
            yield GuardFinding(
                "unconnected", where, "to be in the optimizer", "it is in no parameter group", call
            )


def _gradient_standing(setup: _Setup, name: str, parameter: Any, call: str) -> Iterator[GuardFinding]:
    gradient, where = parameter.grad, f"gradient of {name}"
    if not parameter.requires_grad:
        expected = "no gradient (requires_grad is False)"
        yield GuardFinding("frozen-gradient", f"parameter {name}", expected, "a gradient", call)
    if gradient.device != parameter.device:
        yield GuardFinding("device", where, str(parameter.device), str(gradient.device), call)
    wanted = getattr(parameter, "grad_dtype", None) or parameter.dtype
    if gradient.dtype != wanted and not setup.sharded:
        yield GuardFinding("dtype", where, str(wanted), str(gradient.dtype), call)


def _partition_standing(
    setup: _Setup, where: str, parameter: Any, home: str, call: str
) -> Iterator[GuardFinding]:
    """ZeRO-3 keeps this rank's part in `ds_tensor`; persistent parameters stay where they are used."""
    part = getattr(parameter, "ds_tensor", None)
    if part is None or not part.numel() or getattr(parameter, "ds_persist", False):
        return
    wanted = "cpu" if "offload_param" in setup.traits else home
    if wanted and part.device.type != wanted:
        why = " (offload_param)" if "offload_param" in setup.traits else ""
        yield GuardFinding("device", f"partition of {where}", wanted + why, str(part.device), call)


def _optimizer_standing(setup: _Setup, home: str, call: str) -> Iterator[GuardFinding]:
    if setup.zero:
        offload = "offload_optimizer" in setup.traits
        partly = getattr(setup.driver, "partial_offload", 1.0) != 1.0
        away = bool(getattr(setup.driver, "offloaded_states", None))  # the user called offload_states()
        wanted = "cpu" if offload else home
        dtype = getattr(setup.driver, "master_weights_and_grads_dtype", None)
        if dtype is None and getattr(setup.driver, "fp16_master_weights_and_gradients", False) is False:
            dtype = "torch.float32"
        for where, part in setup.masters():
            if wanted and not partly and not away and part.device.type != wanted:
                why = " (offload_optimizer)" if offload else ""
                yield GuardFinding("device", where, wanted + why, str(part.device), call)
            if dtype and str(part.dtype) != str(dtype):
                yield GuardFinding("dtype", where, str(dtype), str(part.dtype), call)
    base = getattr(setup.driver, "optimizer", None) if setup.zero else setup.driver
    if not type(base).__module__.startswith("torch.optim"):
        return  # 8-bit, paged and offloading optimizers keep states of their own kinds
    for where, owner, _, state in setup.states():
        if state.device != owner.device:
            yield GuardFinding("device", where, str(owner.device), str(state.device), call)
        if state.is_floating_point() and state.dtype != owner.dtype and not setup.zero:
            yield GuardFinding("dtype", where, str(owner.dtype), str(state.dtype), call)


def _units_standing(setup: _Setup, call: str) -> Iterator[GuardFinding]:
    """FSDP keeps one flat buffer a unit, so its trainable parameters must agree."""
    if not setup.sharded:
        return
    units = {
        name: module
        for name, module in setup.model.named_modules()
        if _kin(module) & {"FullyShardedDataParallel", "FSDPModule"}
    }
    first: dict[str, tuple[str, Any]] = {}
    for name, parameter in setup.model.named_parameters():
        inside = [unit for unit in units if not unit or name.startswith(f"{unit}.")]
        if not parameter.requires_grad or not inside:
            continue
        unit = max(inside, key=len)
        leader, dtype = first.setdefault(unit, (setup.name(name), parameter.dtype))
        if parameter.dtype != dtype:
            expected = f"{dtype}, as {leader} in the same FSDP unit"
            yield GuardFinding(
                "unit-dtype", f"parameter {setup.name(name)}", expected, str(parameter.dtype), call
            )


def _home(setup: _Setup) -> str:
    """The kind of device most elements are on; "" where several are right (FSDP's offload, a device map)."""
    if setup.sharded or "spread" in setup.traits:
        return ""
    count: Counter[str] = Counter()
    for _, parameter in setup.parameters():
        if _is_meta(parameter):
            continue
        count[parameter.device.type] += getattr(parameter, "ds_numel", None) or parameter.numel()
    return count.most_common(1)[0][0] if count else ""


def _is_meta(tensor: Any) -> bool:
    return bool(tensor.device.type == "meta")


# --- what changed -----------------------------------------------------------------------------------


class _Looks(NamedTuple):
    device: Any
    dtype: Any


def _looks(setup: _Setup) -> dict[str, _Looks]:
    """Device and dtype of every tensor, by what a finding calls it."""
    named = [
        *((f"parameter {name}", parameter) for name, parameter in setup.parameters()),
        *((f"buffer {name}", buffer) for name, buffer in setup.buffers()),
        *((f"gradient of {name}", p.grad) for name, p in setup.parameters() if p.grad is not None),
        *((where, state) for where, _, _, state in setup.states()),
        *setup.masters(),
    ]
    return {where: _Looks(tensor.device, tensor.dtype) for where, tensor in named}


def _moved(before: Mapping[str, _Looks], now: Mapping[str, _Looks], call: str) -> Iterator[GuardFinding]:
    for where, look in now.items():
        was = before.get(where, look)
        if was.device != look.device:
            yield GuardFinding("device", where, str(was.device), str(look.device), call)
        if was.dtype != look.dtype:
            yield GuardFinding("dtype", where, str(was.dtype), str(look.dtype), call)


def _gathered(findings: Iterable[GuardFinding], setup: _Setup) -> tuple[GuardFinding, ...]:
    """The first finding of each difference with the count of the others, its likely rule and the rank."""
    first: dict[tuple[str, ...], GuardFinding] = {}
    said: set[tuple[str, str]] = set()
    for finding in findings:
        kind = "device" if finding.kind == "meta" else finding.kind  # a parameter sent to meta is said once
        if (kind, finding.where) in said:
            continue
        said.add((kind, finding.where))
        role = finding.where.partition(" ")[0]
        key = (finding.kind, role, finding.expected, finding.found, finding.call)
        known = first.get(key)
        first[key] = known._replace(more=known.more + 1) if known else finding
    versions, rank = _loaded_versions(), _rank()
    return tuple(
        finding._replace(
            rule=finding.rule or likely_rule(f"{finding.kind} {finding.call}", setup.traits, versions),
            rank=rank,
        )
        for finding in first.values()
    )


def _rank() -> int | None:
    """This process's rank, if there are several; a local question, never a collective."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None


# --- values -----------------------------------------------------------------------------------------


def _local(tensor: Any) -> Any:
    """What of a tensor lies on this rank, without gathering the rest."""
    tensor = tensor.detach()
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return tensor._values() if tensor.is_sparse else tensor  # noqa: SLF001 - values() wants a coalesced one


def _readable(tensor: Any) -> bool:
    return not _is_meta(tensor) and bool(tensor.numel())


def _finite(tensor: Any) -> bool:
    return not _readable(tensor) or bool(tensor.isfinite().all())


def _scaled(driver: Any) -> bool:
    """Whether a loss scaler stands behind this step: it expects NaN and Inf, and skips them itself."""
    return (
        getattr(driver, "found_inf", None) is not None or str(getattr(driver, "dtype", "")) == "torch.float16"
    )


_SMALL = 4096  # elements kept whole: 16 KiB of fp32


def _fingerprint(tensor: Any) -> Any:
    """A copy of a small tensor, the sum of the bit patterns of a large one: no second model in memory."""
    import torch

    if tensor.numel() <= _SMALL:
        return tensor.clone()
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}.get(tensor.element_size(), torch.int64)
    return tensor.view(bits).sum(dtype=torch.int64)


def _weights(parameter: Any) -> Any:
    """This rank's own elements of a parameter, or None if there are none to compare.

    A partition of ZeRO-3 that may be padding alone never changes.
    """
    if not hasattr(parameter, "ds_id"):
        own = _local(parameter)
        return own if _readable(own) else None
    part = getattr(parameter, "ds_tensor", None)
    if part is None or not _readable(part) or parameter.ds_numel % part.numel():
        return None
    return part.detach()


# --- the watch --------------------------------------------------------------------------------------

_WATCHING: list[StepWatch] = []
_PATCH: list[tuple[Any, Any]] = []  # what stands for Tensor.backward while anybody watches, and the original


class StepWatch:
    """Watches the first steps; made by `watch`. `findings` are all so far, also after it ended."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        *,
        steps: int = 2,
        on: Literal["raise", "warn"] = "raise",
        allow: Collection[str] = (),
        deepspeed: bool = False,
    ) -> None:
        """Check the arguments; nothing is hooked before the block is entered."""
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"steps: expected a whole number from 1 on, found {steps!r}")
        if on not in ("raise", "warn"):
            raise ValueError(f"on: expected 'raise' or 'warn', found {on!r}")
        if unknown := [word for word in allow if word not in KINDS]:
            raise ValueError(f"allow: {unknown[0]!r} is no kind of finding; there are {', '.join(KINDS)}")
        setup = _Setup.of(model, optimizer)
        if setup.driver is None:
            raise ValueError("watch needs the optimizer that steps this model")
        self.findings: tuple[GuardFinding, ...] = ()
        self._steps, self._on, self._allow, self._deepspeed = steps, on, frozenset(allow), deepspeed
        self._setup: _Setup | None = setup
        self._undo: list[Callable[[], None]] = []
        self._before: dict[str, _Looks] = {}
        self._restart()

    def _restart(self) -> None:
        self._stepped = self._effective = self._backwards = 0
        self._since_step = False  # a backward ran since the last step
        self._ever: set[str] = set()  # parameters that got a gradient
        self._zero: dict[str, bool] = {}  # whether all their counted gradients were zero
        self._non_finite: dict[str, str] = {}  # gradient → the call after which it was
        self._live: set[str] = set()  # parameters whose gradient in this step is not all zero
        self._loss_finite = self._changed = True
        self._prints: dict[str, Any] = {}

    # -- life ------------------------------------------------------------------------------------

    @property
    def watching(self) -> bool:
        """Whether hooks are in place."""
        return self in _WATCHING

    def __enter__(self) -> Self:
        if self._setup is None:
            raise RuntimeError("this watch has ended; make a new one")
        self._say(_standing(self._setup, "", self._deepspeed))
        if self._setup is not None:
            self._changed = False
            self._before = _looks(self._setup)
            self._hook(self._setup)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.failed(error)
        elif self.watching:
            self._finish()

    def close(self) -> None:
        """Remove every hook and let go of the model. May be called at any time, and twice."""
        if self in _WATCHING:
            _WATCHING.remove(self)
        while self._undo:
            self._undo.pop()()
        self._setup = None
        self._before, self._prints = {}, {}

    def failed(self, error: BaseException) -> None:
        """Add to an exception what is known of it (`add_note`), and close."""
        setup = self._setup
        try:
            if setup is not None and isinstance(error, Exception) and not isinstance(error, GuardError):
                found = _explained(error, setup, self._before)
                self.findings += found
                for finding in found:
                    error.add_note(f"envcheck guard: {finding}")
        except Exception as bug:  # noqa: BLE001 - the user's own exception matters more than ours
            error.add_note(f"envcheck guard: could not explain this: {bug!r}")
        finally:
            self.close()

    def _hook(self, setup: _Setup) -> None:
        import torch

        driver = setup.driver
        _WATCHING.append(self)
        self._undo.append(_patch_backward(torch.Tensor))
        if setup.zero:
            self._undo.append(self._around_step(driver))
            for name, parameter in setup.trainable():
                handle = parameter.register_hook(functools.partial(self._arrived, name))
                self._undo.append(handle.remove)
            return
        self._undo.append(driver.register_step_pre_hook(lambda *_: self._before_step()).remove)
        # torch iterates over these hooks when the last one ends the watch, and they must not change then: it
        # gets a copy for the time of a step.
        hooks = driver._optimizer_step_post_hooks  # noqa: SLF001 - what register_step_post_hook fills

        def lend_copy(*_: Any) -> None:
            driver._optimizer_step_post_hooks = OrderedDict(hooks)  # noqa: SLF001

        def give_back(*_: Any) -> None:
            driver._optimizer_step_post_hooks = hooks  # noqa: SLF001

        self._undo.append(driver.register_step_pre_hook(lend_copy).remove)
        self._undo.append(driver.register_step_post_hook(lambda *_: self._after_step()).remove)
        self._undo.append(driver.register_step_post_hook(give_back).remove)
        hooks.move_to_end(next(reversed(hooks)), last=False)
        self._undo.append(give_back)

    def _around_step(self, driver: Any) -> Callable[[], None]:
        def step(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._before_step()
            result = method(*args, **kwargs)
            self._after_step()
            return result

        return _patched(driver, "step", step)

    def shield(self, owner: Any, method: str) -> None:
        """Close when this method of an object raises: for callers that no block encloses."""

        def call(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            try:
                return inner(*args, **kwargs)
            except BaseException as error:
                self.failed(error)
                raise

        if callable(getattr(owner, method, None)):
            self._undo.append(_patched(owner, method, call))

    # -- events ----------------------------------------------------------------------------------

    def _sweep(self, call: str, values: Iterable[GuardFinding] = ()) -> None:
        """Look at every tensor after a call, and say what strays."""
        setup = self._setup
        if setup is None:
            return
        found: list[GuardFinding] = list(values)
        # FSDP swaps the storage of its parameters between forward and backward: looked at around steps only.
        if not setup.sharded or call in ("clip", "step"):
            now = _looks(setup)
            found = [*_moved(self._before, now, call), *_standing(setup, call), *found]
            self._before = {**now, **self._before}
        self._say(found)

    @contextlib.contextmanager
    def _safely(self) -> Iterator[None]:
        """A mistake of the guard ends the guard, never the training, and never silently."""
        try:
            yield
        except GuardError:
            raise
        except Exception as bug:  # noqa: BLE001
            self.close()
            said = GuardWarning(f"the guard stopped watching: {bug!r}")
            warnings.warn(said, stacklevel=_users_level())

    def before_backward(self, loss: Any) -> None:
        """The forward is over: `loss` is what backward is called on."""
        with self._safely():
            own = _local(loss)
            self._loss_finite = self._setup is None or _finite(own)
            found = "NaN" if bool(own.isnan().any()) else "Inf" if not self._loss_finite else ""
            values = (
                [GuardFinding("non-finite", "the loss", "a finite number", found, "forward")] if found else []
            )
            self._sweep("forward", values)

    def after_backward(self) -> None:
        """Backward is over; gradients may still be accumulated or scaled."""
        with self._safely():
            if (setup := self._setup) is None:
                return
            self._backwards += 1
            self._since_step = True
            if not setup.zero:
                for name, parameter in setup.trainable():
                    if parameter.grad is not None and not _finite(_local(parameter.grad)):
                        self._non_finite.setdefault(name, "backward")
            self._sweep("backward")

    def _arrived(self, name: str, gradient: Any) -> None:
        """A gradient under ZeRO, on its way to the partition; sees it before it is reduced."""
        with self._safely():
            if self._setup is None:
                return
            own = _local(gradient)
            self._weigh(name, own)
            if not _finite(own):
                self._non_finite.setdefault(name, "backward")

    def _weigh(self, name: str, gradient: Any) -> None:
        self._ever.add(name)
        if not _readable(gradient):
            return
        zero = not bool(gradient.any())
        if not zero:
            self._live.add(name)
        # Before the first real step a zero is normal: half of every fresh LoRA pair starts at zero.
        if self._effective:
            self._zero[name] = self._zero.get(name, True) and zero

    def _before_step(self) -> None:
        with self._safely():
            if (setup := self._setup) is None:
                return
            values = list(self._gradients(setup))
            self._sweep("clip" if self._since_step else "between", values)
            if self._setup is not None and self._rates(setup):
                self._prints = {
                    name: _fingerprint(own)
                    for name, parameter in setup.trainable()
                    if name in self._live and (own := _weights(parameter)) is not None
                }

    def _gradients(self, setup: _Setup) -> Iterator[GuardFinding]:
        """NaN and Inf that reach a step; a loss scaler skips such steps, or hands them to a fused one."""
        if setup.zero:
            bad = dict(self._non_finite)
        else:
            bad = {}
            for name, parameter in setup.trainable():
                if parameter.grad is not None:
                    own = _local(parameter.grad)
                    self._weigh(name, own)
                    if not _finite(own):
                        bad[name] = self._non_finite.get(name, "clip")
        self._non_finite = {}
        if not _scaled(setup.driver):
            for name, call in sorted(bad.items(), key=lambda item: item[1]):  # backward before clip
                yield GuardFinding("non-finite", f"gradient of {name}", "finite numbers", "NaN or Inf", call)

    def _rates(self, setup: _Setup) -> bool:
        """Whether this step can change weights: no learning rate is zero (a warm-up may start there)."""
        groups = getattr(setup.driver, "param_groups", ())
        return bool(groups) and all(float(group.get("lr", 0)) > 0 for group in groups)

    def _after_step(self) -> None:
        with self._safely():
            if (setup := self._setup) is None:
                return
            skipped = bool(getattr(setup.driver, "overflow", False))
            values: list[GuardFinding] = []
            if skipped and not _scaled(setup.driver):
                found = "NaN or Inf, for which DeepSpeed skipped the step"
                values.append(GuardFinding("non-finite", "some gradient", "finite numbers", found, "step"))
            if self._prints and not skipped:
                self._effective += 1
                for name, parameter in setup.trainable():
                    own = _weights(parameter)
                    if own is None or name not in self._prints:
                        continue
                    if not _finite(own):
                        values.append(
                            GuardFinding(
                                "non-finite", f"parameter {name}", "finite numbers", "NaN or Inf", "step"
                            )
                        )
                    was = self._prints[name]
                    now = _fingerprint(own)
                    same = was.shape == now.shape and was.device == now.device and bool((was == now).all())
                    self._changed = self._changed or not same
            self._prints, self._live, self._since_step = {}, set(), False
            self._stepped += 1
            self._sweep("step", values)
            if self._stepped == self._steps:
                self._finish()

    def _finish(self) -> None:
        """The steps are over, or the block is: what only all of them together show."""
        setup = self._setup
        try:
            if setup is not None and self._stepped:
                self._say(self._overall(setup))
        finally:
            self.close()

    def _overall(self, setup: _Setup) -> Iterator[GuardFinding]:
        held = setup.held()
        count = f"{self._stepped} step{'s' if self._stepped > 1 else ''}"
        for name, parameter in setup.trainable() if self._backwards else ():
            if held is not None and id(parameter) not in held:
                continue  # said already
            if name not in self._ever and (setup.zero or _readable(_local(parameter))):
                yield GuardFinding(
                    "no-gradient", f"parameter {name}", "a gradient", f"none in {count}", "backward"
                )
            elif self._zero.get(name):
                yield GuardFinding(
                    "zero-gradient", f"gradient of {name}", "non-zero values", "zeros alone", "backward"
                )
        if self._effective and not self._changed:
            expected = "some to change, for there were gradients"
            yield GuardFinding(
                "unchanged", "all trainable parameters", expected, f"no change in {count}", "step"
            )

    def _say(self, findings: Iterable[GuardFinding]) -> None:
        """Raise or warn of what was not said before and is not allowed."""
        if (setup := self._setup) is None:
            return
        said = {(finding.kind, finding.where) for finding in self.findings}
        fresh = tuple(
            finding
            for finding in _gathered(findings, setup)
            if finding.kind not in self._allow and (finding.kind, finding.where) not in said
        )
        self.findings += fresh
        if fresh and self._on == "raise":
            self.close()
            raise GuardError(fresh)
        for finding in fresh:
            warnings.warn(GuardWarning(str(finding)), stacklevel=_users_level())


def _users_level() -> int:
    """The `stacklevel` of the line of training that led here, past torch and the guard."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001
    own = {"torch", "contextlib", "deepspeed", "accelerate", "transformers"}
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.partition(".")[0] not in own:
            break
        frame, level = frame.f_back, level + 1
    return level


def _patched(owner: Any, name: str, call: Callable[..., Any]) -> Callable[[], None]:
    """Let `call(method, …)` stand for a method of one object; returns what undoes it."""
    method, own = getattr(owner, name), vars(owner).get(name)

    @functools.wraps(method)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return call(method, *args, **kwargs)

    vars(owner)[name] = patched

    def undo() -> None:
        if vars(owner).get(name) is not patched:
            return  # somebody wrapped it meanwhile; ours passes through once its watch has ended
        if own is None:
            del vars(owner)[name]
        else:
            vars(owner)[name] = own

    return undo


def _patch_backward(tensor: Any) -> Callable[[], None]:
    """Tell every watch when `Tensor.backward` begins and ends; returns what undoes it with the last watch."""

    def undo() -> None:
        if not _WATCHING and _PATCH:
            patched, original = _PATCH.pop()
            if tensor.backward is patched:  # else somebody wrapped it meanwhile, and ours passes through
                tensor.backward = original

    if _PATCH:
        return undo
    original = tensor.backward

    @functools.wraps(original)
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        watching = tuple(_WATCHING)
        for watch in watching:
            watch.before_backward(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            for watch in watching:
                watch.failed(error)
            raise
        for watch in watching:
            watch.after_backward()
        return result

    _PATCH.append((backward, original))
    tensor.backward = backward
    return undo


# --- exceptions -------------------------------------------------------------------------------------


def _explained(error: Exception, setup: _Setup, before: Mapping[str, _Looks]) -> tuple[GuardFinding, ...]:
    """What the guard can add to an exception of training: a recomputed tensor, a stray, a likely rule."""
    module, functions = _failing(error, setup)
    kind, text = type(error).__name__, str(error)
    rule = likely_rule(f"{kind}: {text} in {' '.join(functions)}", setup.traits, _loaded_versions())
    if kind == "CheckpointError":
        saved, recomputed = _metadata(text)
        return (GuardFinding("recompute", module, saved, recomputed, "backward", rule, 0, _rank()),)
    strays = [*_moved(before, _looks(setup), ""), *_standing(setup, "")]
    findings = _gathered((stray for stray in strays if stray.kind in ("device", "dtype", "meta")), setup)
    if rule:
        where = f"{module}, {functions[-1]}" if functions else module
        findings += (GuardFinding("exception", where, "none", kind, "", rule, 0, _rank()),)
    return findings


def _metadata(text: str) -> tuple[str, str]:
    """What torch said of the first tensor that differs: as it was saved, as it was recomputed."""
    found = re.search(r"saved metadata: (\{.*?\})\s*recomputed metadata: (\{.*?\})", text, re.DOTALL)
    if not found:
        return "the saved tensors again", text.strip().splitlines()[0] if text.strip() else "others"
    count = text.count("recomputed metadata:")
    others = f" (the first of {count})" if count > 1 else ""
    return _short(found[1]), _short(found[2]) + others


def _short(metadata: str) -> str:
    fields = re.search(
        r"'shape': torch\.Size\((\[.*?\])\), 'dtype': ([\w.]+), 'device': device\(type='(\w+)'", metadata
    )
    return f"shape {fields[1]}, {fields[2]}, {fields[3]}" if fields else metadata


def _failing(error: BaseException, setup: _Setup) -> tuple[str, list[str]]:
    """The innermost module of the model in a traceback (or what it recomputed), and its functions' names."""
    names = {id(module): setup.name(name) or "the model" for name, module in setup.model.named_modules()}
    module, functions, trace = "the model", [], error.__traceback__
    while trace is not None:
        here = trace.tb_frame.f_locals
        functions.append(trace.tb_frame.f_code.co_name)
        recompute = getattr(here.get("frame") or here.get("self"), "recompute_fn", None)
        for candidate in (here.get("self"), *_checkpointed(recompute)):
            module = names.get(id(candidate), module)
        trace = trace.tb_next
    return module, functions


def _checkpointed(recompute: Any) -> Iterator[Any]:
    """What may be the module whose call non-reentrant checkpointing repeats; torch keeps it in a closure."""
    code, cells = getattr(recompute, "__code__", None), getattr(recompute, "__closure__", None)
    kept = dict(zip(code.co_freevars, cells, strict=True)) if code and cells else {}
    called = kept["fn"].cell_contents if "fn" in kept else None
    while isinstance(called, functools.partial):
        yield from called.args[:1]  # transformers 5 passes the layer to a plain function
        called = called.func
    yield getattr(called, "__self__", called)


# --- for users --------------------------------------------------------------------------------------


def assert_same_device(*tensors: torch.Tensor, **named: torch.Tensor) -> None:
    """Raise if a tensor is on another device than the first: `assert_same_device(hidden, mask=mask)`.

    Raises:
        GuardError: names the first such tensor, by its keyword or its position from 0.
    """
    every = [*((f"tensor {index}", tensor) for index, tensor in enumerate(tensors)), *named.items()]
    for name, tensor in every[1:]:
        if tensor.device != every[0][1].device:
            expected = f"{every[0][1].device}, as {every[0][0]}"
            raise GuardError([GuardFinding("device", name, expected, str(tensor.device), rank=_rank())])


def check_model(
    model: torch.nn.Module, optimizer: Any = None, *, deepspeed: bool = False
) -> tuple[GuardFinding, ...]:
    """Findings on how model and optimizer stand now: devices, dtypes, meta tensors, what is not connected.

    Reads no values. `deepspeed` says that DeepSpeed is expected to drive.

    Raises:
        TypeError: the first is no module, or the second no optimizer.
    """
    setup = _Setup.of(model, optimizer)
    return _gathered(_standing(setup, "", deepspeed), setup)


def watch(
    model: torch.nn.Module,
    optimizer: Any = None,
    *,
    steps: int = 2,
    on: Literal["raise", "warn"] = "raise",
    allow: Collection[str] = (),
    deepspeed: bool = False,
) -> StepWatch:
    """A context manager that watches the first `steps` optimizer steps inside it, then removes itself.

    `model` and `optimizer` are those of the loop: the module or its wrapper, DeepSpeed's engine (then the
    optimizer may be left out), accelerate's optimizer. `allow` are kinds of findings (`KINDS`) not to report.
    Reading every gradient costs a pass over each and a synchronisation with the GPU, in these steps only.

    Raises:
        TypeError, ValueError: an argument is wrong.
        GuardError: from inside the block, at the call after which something is not as it should be.
    """
    return StepWatch(model, optimizer, steps=steps, on=on, allow=allow, deepspeed=deepspeed)


@functools.cache
def _callback() -> type:
    from transformers import TrainerCallback

    class GuardCallback(TrainerCallback):  # type: ignore[misc]  # no types without transformers
        """Watches the first steps of a Trainer: `trainer.add_callback(GuardCallback(steps=2))`.

        Takes what `watch` takes but model and optimizer, and knows from the Trainer's arguments whether
        DeepSpeed should drive. A callback is not told of exceptions: those in a training step and in fetching
        batches end the watch; after any other (in another callback, say), call `close()`.
        """

        def __init__(
            self,
            *,
            steps: int = 2,
            on: Literal["raise", "warn"] = "raise",
            allow: Collection[str] = (),
        ) -> None:
            self._options: dict[str, Any] = {"steps": steps, "on": on, "allow": allow}
            self.watch: StepWatch | None = None

        def on_train_begin(
            self,
            args: Any,
            state: Any,  # noqa: ARG002 - transformers passes them by position
            control: Any,  # noqa: ARG002
            model: Any = None,
            optimizer: Any = None,
            **_: Any,
        ) -> None:
            self.close()
            wanted = bool(getattr(args, "deepspeed", None))
            self.watch = StepWatch(model, optimizer, deepspeed=wanted, **self._options)
            self.watch.__enter__()
            for method in ("training_step", "get_batch_samples"):
                self.watch.shield(_trainer(), method)
            self.watch.shield(optimizer, "step")

        def on_train_end(self, *_: Any, **__: Any) -> None:
            if self.watch is not None:
                self.watch.__exit__(None, None, None)

        @property
        def findings(self) -> tuple[GuardFinding, ...]:
            """All findings so far."""
            return self.watch.findings if self.watch is not None else ()

        def close(self) -> None:
            """Remove every hook; for after an exception that the callback could not see."""
            if self.watch is not None:
                self.watch.close()

    GuardCallback.__qualname__ = "GuardCallback"
    return GuardCallback


def _trainer() -> Any:
    """The Trainer that is calling a callback: it hands itself to none, but stands on the stack."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        caller = frame.f_locals.get("self")
        if {"callback_handler", "accelerator"} <= set(getattr(caller, "__dict__", ())):
            return caller
        frame = frame.f_back
    return None


def __getattr__(name: str) -> Any:
    """`GuardCallback`, made when it is asked for, because that imports transformers."""
    if name == "GuardCallback":
        return _callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
