"""The estimate of a training's memory: its parts on each GPU and on the host, at the peak. Pure.

All sizes are bytes; a GiB, where one is shown, is 2^30. The formulas were read from the code that they name,
in the releases of FORMULAS_OF, and compared with peaks measured on a CPU (benchmarks/fit.md). What only a
GPU does (fused kernels, its allocator) is derived, not measured. No constant was fitted to a measurement.

A step has four phases, and different parts dominate the peak of each. `forward` ends with the loss. `loss`
is the start of the backward pass. `backward` is the larger of two moments: a layer's turn, and the end of
the backward pass. `step` is the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envcheck.core.records import NamedTuple
from envcheck.memory.activations import layer_bytes, loss_bytes
from envcheck.memory.architecture import Decoder, ModelShape
from envcheck.memory.parallelism import RankMemory, rank_memory
from envcheck.memory.training import DEEPSPEED, FSDP, Account, Training, sum_accounts
from envcheck.memory.weights import DEPENDS_ON, Weights

FORMULAS_OF = "torch 2.13.0, transformers 5.23.0, peft 0.21.2, DeepSpeed 0.19.8"
"""The releases whose code the formulas were read from."""

ERROR = 0.15
"""How far a measured peak may be from the estimate, as a share; benchmarks/fit.md lists the measurements."""

CONTEXT = (287_047_680, 1343 * 1024**2)
"""Least and most bytes of a CUDA context, which comes in addition to all tensors.

The least was measured with kernels loaded lazily (https://github.com/pytorch/pytorch/pull/86509), the most
with all kernels loaded (https://huggingface.co/docs/transformers/v4.49.0/model_memory_anatomy).
"""

PARTS = {
    "frozen weights": "that do not train",
    "trainable weights": "that train",
    "gradients": "of what trains",
    "optimizer states": "moments and fp32 copies of trained weights",
    "activations": "kept for the backward pass",
    "logits and loss": "a score for each word of the vocabulary",
    "gathered parameters": "weights gathered or cast for use",
    "communication buffers": "buffers in which gradients are reduced",
    "working memory": "temporary, for one layer or for the step",
}
"""The parts of a rank's memory in display order, with a description of each."""

PHASES = {
    "forward": "at the end of the forward pass",
    "loss": "in the backward pass of the loss",
    "backward": "in the backward pass of the layers",
    "step": "in the optimizer's step",
}


class Part(NamedTuple):
    """One line of the estimate."""

    name: str
    bytes: int


class Estimate(NamedTuple):
    """Memory of a training, in bytes.

    `parts` are the parts on a rank's GPU in `phase`, the phase that needs most. `phases` has the sum of each
    phase. `host` are the parts on the host for each rank. `rest` is the memory between two steps. `trainable`
    and `frozen` are numbers of parameters. `unknown` names the parts that could not be counted.
    """

    parts: tuple[Part, ...]
    phase: str
    phases: Mapping[str, int]
    host: tuple[Part, ...]
    rest: int
    trainable: int
    frozen: int
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes of tensors on a rank's GPU at its peak."""
        return sum(part.bytes for part in self.parts)

    @property
    def host_total(self) -> int:
        """Bytes of host memory that each rank needs."""
        return sum(part.bytes for part in self.host)


def estimate(model: ModelShape, training: Training) -> Estimate:
    """Return the estimate of one training."""
    return counter(model)(training)


def counter(model: ModelShape) -> Callable[[Training], Estimate]:
    """Return a function that estimates trainings of one model and reuses the weights where it can."""
    by_kind: dict[tuple[object, ...], Weights] = {}

    def count(training: Training) -> Estimate:
        kind = (training.parallel == DEEPSPEED, *(getattr(training, name) for name in DEPENDS_ON))
        weights = by_kind.get(kind) or by_kind.setdefault(kind, Weights(model, training))
        return _estimate(model, training, weights)

    return count


def _estimate(model: ModelShape, training: Training, weights: Weights) -> Estimate:
    rank = rank_memory(weights, training)
    tokens = training.batch * training.seq
    shape = model.decoder
    if shape is None or not tokens:
        gradients = {"gradients": rank.gradients.all}
        phases = {
            "backward": sum_accounts(rank.rest, rank.communication, gradients),
            "step": sum_accounts(rank.rest, rank.step),
        }
    else:
        phases = _phases(weights, rank, model, shape, training)
    sums = {name: sum(parts.values()) for name, parts in phases.items()}
    peak = max(sums, key=lambda name: sums[name])
    parts = tuple(Part(name, round(phases[peak].get(name, 0))) for name in PARTS)
    # A model given only as a number of parameters has no module that LoRA could adapt.
    adapter_unknown = training.adapter and not weights.trainable
    return Estimate(
        parts=tuple(part for part in parts if part.bytes),
        phase=peak,
        phases={name: round(size) for name, size in sums.items()},
        host=tuple(Part(name, round(size)) for name, size in rank.host.items() if size),
        rest=round(sum(rank.rest.values())),
        trainable=weights.trainable,
        frozen=weights.frozen,
        unknown=(
            *(_OF_TRAINABLE_WEIGHTS if adapter_unknown else ()),
            *(() if shape and tokens else _OF_TOKENS),
        ),
    )


_OF_TRAINABLE_WEIGHTS = ("trainable weights", "gradients", "optimizer states")
_OF_TOKENS = ("activations", "logits and loss")


def _phases(
    weights: Weights, rank: RankMemory, model: ModelShape, shape: Decoder, training: Training
) -> dict[str, Account]:
    """Return the account of each phase."""
    tokens = training.batch * training.seq
    layer, loss = layer_bytes(model, shape, training), loss_bytes(shape, training)
    gradients = rank.gradients
    kept_by_layer = layer.input if training.checkpointing else layer.kept
    kept = {"activations": tokens * (kept_by_layer * shape.layers + layer.final)}
    base = sum_accounts(rank.rest, rank.live)
    # A layer's turn is counted at the first layer, when all gradients exist except its own and the
    # embedding's. With checkpointing it is also counted at the last layer, when all inputs are still kept.
    turns = [sum_accounts({"activations": tokens * layer.kept, "gradients": gradients.all - gradients.late})]
    if training.checkpointing:
        inputs = {"activations": tokens * (layer.kept + layer.input * shape.layers)}
        turns.append(sum_accounts(inputs, {"gradients": gradients.early}))
    turn = max(turns, key=_total)
    working = {"working memory": tokens * layer.working + weights.dequantised}
    end = {"gradients": gradients.all + gradients.tied}
    backward = max(sum_accounts(turn, working), end, key=_total)
    return {
        "forward": sum_accounts(base, kept, {"logits and loss": tokens * loss.forward}),
        "loss": sum_accounts(base, rank.communication, kept, {"logits and loss": tokens * loss.backward}),
        "backward": sum_accounts(base, rank.communication, backward),
        "step": sum_accounts(rank.rest, rank.step),
    }


def _total(account: Account) -> float:
    return sum(account.values())


# --- confidence -------------------------------------------------------------------------------------

_ADAMW_MOMENTS = 2


def unmeasured(model: ModelShape, training: Training) -> tuple[str, ...]:
    """Return the features of a training that no measurement covers; for them, ERROR is not confirmed."""
    shape = model.decoder
    optimizer = training.optimizer
    offloads = training.offload_param or training.offload_optimizer
    is_adamw = optimizer.get("states") == _ADAMW_MOMENTS and "bits" not in optimizer
    features = [
        ("FSDP's offload", training.parallel in FSDP and offloads),
        ("a quantised base", training.quantised != "none"),
        ("a fused loss", training.fused_loss),
        ("experts", bool(shape and shape.experts)),
        ("latent attention", bool(shape and shape.value_size != shape.head_size)),
        ("fp8", training.precision == "fp8"),
        ("an optimizer other than AdamW", not is_adamw),
    ]
    return tuple(name for name, is_used in features if is_used)


def verdict(need: int, free: int | None, *, cuda: bool, partial: bool = False) -> str:
    """Return `fits`, `tight`, `does not fit` or `cannot tell` for `need` bytes of tensors.

    `need` may be off by ERROR. With `cuda`, a CUDA context is added. `free` is in bytes, or None if it is not
    known. `partial` means that something could not be counted; then only `does not fit` is certain.
    """
    least, most = CONTEXT if cuda else (0, 0)
    if free is not None and need * (1 - ERROR) + least > free:
        return "does not fit"
    if free is None or partial:
        return "cannot tell"
    return "fits" if need * (1 + ERROR) + most <= free else "tight"
