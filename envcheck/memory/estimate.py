"""What memory a training takes: a model's weights and widths and the training's settings → parts; pure.

Bytes throughout; a GiB, where one is shown, is 2^30. The formulas are read out of the code they name (torch
2.13.0, transformers 5.23.0, peft 0.21.2, DeepSpeed 0.19.8) and held against measured peaks in
benchmarks/fit.md, on a CPU: what a GPU alone does (fused kernels, its allocator) is derived, not measured.

A step is looked at in phases, for they peak on different things: `forward` ends with the loss, `loss` begins
the backward pass, `backward` is a layer's turn or its end, `step` the optimizer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from envcheck.memory.architecture import Decoder, Model, Tensor

GIB = 1024**3

ERROR = 0.15
"""How far a measured peak may lie from the estimate; benchmarks/fit.md says how far those measured do."""

CONTEXT = (287_047_680, 1343 * 1024**2)
"""Least and most bytes of a CUDA context beside all tensors: with kernels loaded lazily as measured in
https://github.com/pytorch/pytorch/pull/86509, with all of them as in
https://huggingface.co/docs/transformers/v4.49.0/model_memory_anatomy."""

WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of an element by precision; fp8 trainings keep weights and activations in 16 bit."""

DEEPSPEED, DDP, FSDP = "deepspeed", "ddp", ("fsdp1", "fsdp2")

PARTS = {
    "frozen weights": "that do not train",
    "trainable weights": "that train",
    "gradients": "of what trains",
    "optimizer states": "moments, fp32 copies of what trains",
    "activations": "kept for the backward pass",
    "logits and loss": "a score for each word of the vocabulary",
    "gathered parameters": "weights made whole, or cast, for use",
    "communication buffers": "what gradients are reduced in",
    "working memory": "of one layer's turn, or of the step",
}
"""What a rank's memory is divided into, in the order shown, and what each is."""

PHASES = {
    "forward": "at the end of the forward pass",
    "loss": "in the backward pass of the loss",
    "backward": "in the backward pass of the layers",
    "step": "in the optimizer's step",
}


class Training(NamedTuple):
    """How it is trained. Buckets and thresholds count elements; no `targets` means PEFT's own choice."""

    seq: int
    batch: int = 1
    ranks: int = 1
    precision: str = "bf16"
    stored: str = ""  # dtype the weights are loaded in, where it is not the precision: autocast
    parallel: str = "none"
    stage: int = 0
    offload_optimizer: bool = False
    offload_param: bool = False
    adapter: bool = False
    rank: int = 8
    targets: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()  # modules_to_save
    dropout: bool = False
    dora: bool = False
    fp32_adapters: bool = True
    quantised: str = "none"
    checkpointing: bool = False
    attention: str = "sdpa"
    optimizer: Mapping[str, Any] = {"states": 2}
    activation: int = 1  # tensors that the MLP's activation keeps
    fused_loss: bool = False  # logits are made and dropped by pieces (Liger)
    # What DeepSpeed presets (runtime/zero/config.py), in its order and under its names but for stage3_.
    overlap: bool = False
    reduce_bucket: int = 500_000_000
    sub_group: int = 1_000_000_000
    prefetch: int = 50_000_000
    persistence: int = 100_000
    live: int = 1_000_000_000
    reuse: int = 1_000_000_000
    cuda: bool = True
    autocast: bool = False  # linear modules compute in the precision, whatever they are given
    unread: tuple[str, ...] = ()  # what was said and cannot be read: the rest is counted as if it were not


class Part(NamedTuple):
    """One line of the account."""

    name: str
    bytes: int


class Estimate(NamedTuple):
    """Parts of a rank's memory in the phase that takes most; of the host for each rank; each phase's sum.

    `rest` is what lies between two steps. `unknown` says which parts could not be counted.
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
        """Bytes of the host that each rank holds."""
        return sum(part.bytes for part in self.host)


def counter(model: Model) -> Callable[[Training], Estimate]:
    """`estimate` for many trainings of one model, whose weights are then looked at once for each kind."""
    kinds: dict[tuple[object, ...], _Weights] = {}

    def count(how: Training) -> Estimate:
        kind = (how.parallel == DEEPSPEED, *(getattr(how, name) for name in _OF_WEIGHTS))
        weights = kinds.get(kind) or kinds.setdefault(kind, _Weights(model, how))
        return _estimate(model, how, weights)

    return count


_OF_WEIGHTS = (
    "precision", "stored", "adapter", "rank", "targets", "saved", "dora", "fp32_adapters", "quantised",
)  # fmt: skip
"""The fields of a training that its weights depend on, beside DeepSpeed."""


def estimate(model: Model, how: Training) -> Estimate:
    """The account of a training."""
    return counter(model)(how)


def _estimate(model: Model, how: Training, weights: _Weights) -> Estimate:
    engine = _engine(weights, how)
    tokens = how.batch * how.seq
    shape = model.decoder
    if shape is None or not tokens:
        phases = {
            "backward": _sum(engine.rest, engine.communication, {"gradients": engine.gradients}),
            "step": _sum(engine.rest, engine.step),
        }
    else:
        phases = _phases(weights, engine, model, shape, how, tokens)
    # A bare count of parameters names no module that LoRA could adapt.
    unplaced = how.adapter and not weights.trainable
    sums = {name: sum(parts.values()) for name, parts in phases.items()}
    peak = max(sums, key=lambda name: sums[name])
    parts = tuple(Part(name, round(phases[peak].get(name, 0))) for name in PARTS)
    return Estimate(
        parts=tuple(part for part in parts if part.bytes),
        phase=peak,
        phases={name: round(size) for name, size in sums.items()},
        host=tuple(Part(name, round(size)) for name, size in engine.host.items() if size),
        rest=round(sum(engine.rest.values())),
        trainable=weights.trainable,
        frozen=weights.frozen,
        unknown=(*(_OF_ADAPTERS if unplaced else ()), *(() if shape and tokens else _OF_TOKENS)),
    )


_OF_ADAPTERS = ("trainable weights", "gradients", "optimizer states")
_OF_TOKENS = ("activations", "logits and loss")


_Account = dict[str, float]


def _sum(*accounts: _Account) -> _Account:
    total: _Account = {}
    for account in accounts:
        for name, size in account.items():
            total[name] = total.get(name, 0) + size
    return total


def _phases(
    weights: _Weights, engine: _Engine, model: Model, shape: Decoder, how: Training, tokens: int
) -> dict[str, _Account]:
    layer = _layer(model, shape, how)
    loss = _loss(shape, how)
    held = layer.input if how.checkpointing else layer.kept
    kept = {"activations": tokens * (held * shape.layers + layer.final)}
    base = _sum(engine.rest, engine.live)
    working = tokens * layer.working + weights.dequantised
    # A layer's turn. Before the first layer's, all gradients are there but its own and the embedding's.
    turns = [_sum({"activations": tokens * layer.kept, "gradients": engine.gradients - engine.late})]
    if how.checkpointing:
        inputs = {"activations": tokens * (layer.kept + layer.input * shape.layers)}
        turns.append(_sum(inputs, {"gradients": engine.early}))
    turn = max(turns, key=lambda account: sum(account.values()))
    end = {"gradients": engine.gradients + engine.tied}
    backward = max(_sum(turn, {"working memory": working}), end, key=lambda account: sum(account.values()))
    return {
        "forward": _sum(base, kept, {"logits and loss": tokens * loss.forward}),
        "loss": _sum(base, engine.communication, kept, {"logits and loss": tokens * loss.backward}),
        "backward": _sum(base, engine.communication, backward),
        "step": _sum(engine.rest, engine.step),
    }


# --- weights ----------------------------------------------------------------------------------------


class _Weight(NamedTuple):
    """Equal weights: elements and bytes of one of them."""

    numel: int
    copies: int
    size: float
    trains: bool
    where: str
    kind: str
    rows: int = 0
    columns: int = 0

    @property
    def all(self) -> float:
        return self.size * self.copies


class _Weights:
    """A model's weights in this training, those of adapters with them, and sums over them."""

    def __init__(self, model: Model, how: Training) -> None:
        self.width = WIDTH[how.precision] if how.parallel == DEEPSPEED else WIDTH[how.stored or how.precision]
        self.list = list(_each(model, how, self.width))
        self.layers = model.decoder.layers if model.decoder else 1
        self.trainable = sum(each.numel * each.copies for each in self.list if each.trains)
        self.frozen = sum(each.numel * each.copies for each in self.list if not each.trains)
        quantised = how.quantised != "none" and model.decoder is not None
        linear = [tensor.numel for tensor in model.tensors if _quantises(tensor)]
        # The backward pass makes one linear module's weights whole at a time (bitsandbytes/autograd).
        self.dequantised = WIDTH[how.precision] * max(linear, default=0) if quantised else 0

    def bytes(self, *, trains: bool, where: str = "") -> float:
        """Of all that train or do not."""
        return sum(each.all for each in self.list if each.trains is trains and where in ("", each.where))

    def sharded(self, ranks: int, *, trains: bool) -> float:
        """Bytes of a rank's share where each weight is divided by itself."""
        return sum(
            each.all * -(-each.numel // ranks) / each.numel for each in self.list if each.trains is trains
        )

    @property
    def largest(self) -> int:
        """Elements of the largest weight that trains."""
        return max((each.numel for each in self.list if each.trains), default=0)


def _each(model: Model, how: Training, width: int) -> Iterator[_Weight]:
    adapter = 4 if how.fp32_adapters and how.parallel != DEEPSPEED else width
    for tensor in model.tensors:
        size = _stored(tensor, how.quantised, width)
        shape = (tensor.rows, tensor.columns)
        yield _Weight(tensor.numel, tensor.copies, size, not how.adapter, tensor.where, tensor.kind, *shape)
        if how.adapter and _targeted(tensor, model, how):
            pairs = [(how.rank, tensor.columns), (tensor.rows, how.rank)]
            for rows, columns in [*pairs, (tensor.rows, 1)][: 3 if how.dora else 2]:
                numel = rows * columns
                yield _Weight(
                    numel, tensor.copies, numel * adapter, True, tensor.where, "adapter", rows, columns
                )
        if how.adapter and tensor.module in how.saved:
            # A copy trains beside the original: ModulesToSaveWrapper, peft/utils/other.py.
            numel = tensor.numel
            yield _Weight(numel, tensor.copies, numel * width, True, tensor.where, tensor.kind, *shape)


ALL_LINEAR = "all-linear"
"""PEFT's word for every linear module but the head."""


def _targeted(tensor: Tensor, model: Model, how: Training) -> bool:
    if tensor.kind != "linear" or tensor.where != "layer":
        return False
    targets = how.targets or model.lora
    return ALL_LINEAR in targets or tensor.module in targets


_BLOCK, _NESTED, _GROUP = 64, 256, 128


def _stored(tensor: Tensor, quantised: str, width: int) -> float:
    """Bytes of one weight as it is kept. Linear modules of layers are quantised, nothing else.

    bitsandbytes: 4 bit, one scale in 8 bit for a block of 64 and one in 32 bit for 256 of those
    (bitsandbytes/functional.py, quantize_4bit with double quantisation); int8, one fp32 scale for a row. GPTQ
    and AWQ: 4 bit, for a group of 128 a scale in 16 bit and a zero in 4. fp8: a scale for 128 by 128. What
    bitsandbytes leaves is cast to fp32 by prepare_model_for_kbit_training (peft/utils/other.py).
    """
    numel = tensor.numel
    if quantised == "none":
        return numel * width
    if not _quantises(tensor):
        return numel * (4 if quantised in ("nf4", "fp4", "int8") else width)
    if quantised in ("nf4", "fp4"):
        return numel / 2 + numel / _BLOCK + 4 * numel / (_BLOCK * _NESTED)
    if quantised == "int8":
        return numel + 4 * tensor.rows
    if quantised == "fp8":
        return numel + 4 * numel / _GROUP**2
    return numel / 2 + 2.5 * numel / _GROUP


def _quantises(tensor: Tensor) -> bool:
    return tensor.kind == "linear" and tensor.where == "layer"


# --- engines ----------------------------------------------------------------------------------------


class _Engine(NamedTuple):
    """What an engine holds: between steps, while layers run, in the backward pass, in a step; on the host.

    `gradients` are those there at the end of the backward pass, `late` the part that comes after the first
    layer's turn began, `early` what is there at the last layer's; `tied` is the second gradient of a shared
    embedding.
    """

    rest: _Account
    live: _Account
    communication: _Account
    gradients: float
    late: float
    early: float
    tied: float
    step: _Account
    host: _Account


def _engine(weights: _Weights, how: Training) -> _Engine:
    if how.parallel == DEEPSPEED:
        return _stage3(weights, how) if how.stage == 3 else _stages(weights, how)  # noqa: PLR2004
    if how.parallel in FSDP:
        return _fsdp(weights, how)
    return _plain(weights, how)


def _states(weights: _Weights, how: Training, width: int = 0) -> float:
    """Bytes of optimizer states, kept in `width` bytes an element or the weight's own."""
    row, total = how.optimizer, 0.0
    for each in weights.list:
        if not each.trains:
            continue
        if row.get("factored"):
            total += 4 * each.copies * (each.rows + each.columns if each.columns > 1 else each.numel)
        elif row.get("bits") and each.numel >= _LEAST_8BIT:
            total += row["states"] * each.copies * each.numel * (row["bits"] / 8 + 4 / _NESTED)
        else:
            total += row["states"] * each.copies * (each.numel * width or each.size)
    return total


_LEAST_8BIT = 4096


def _stepping(how: Training, width: int, largest: float, everything: float) -> float:
    """Bytes that a step works with: CUDA's foreach a copy of all, the loop of a CPU two of the largest."""
    if how.cuda:
        return everything * width if how.optimizer.get("together") else 0.0
    return 2.0 * largest * width if how.optimizer.get("states") else 0.0


def _grads(weights: _Weights) -> tuple[float, float, float, float]:
    """Gradients as large as their weights: all, those after the first layer, the head's, a tied one."""
    everything = weights.bytes(trains=True)
    layers = weights.bytes(trains=True, where="layer") / weights.layers
    outside = [each for each in weights.list if each.trains and each.where == "outside"]
    embedding = sum(each.all for each in outside if each.kind == "embedding")
    head = sum(each.all for each in outside if each.kind == "head")
    return everything, layers + embedding, head or embedding, 0.0 if head else embedding


def _split(account: _Account, *, paged: bool) -> tuple[_Account, _Account]:
    """Optimizer states on the GPU, or on the host."""
    return ({}, account) if paged else (account, {})


def _plain(weights: _Weights, how: Training) -> _Engine:
    """One process, or DDP with its buckets: a second copy of all gradients (gradient_as_bucket_view)."""
    gradients, late, early, tied = _grads(weights)
    states = {"optimizer states": _states(weights, how)}
    here, host = _split(states, paged=bool(how.optimizer.get("paged")))
    width = 4 if how.adapter and how.fp32_adapters else weights.width
    working = _stepping(how, width, weights.largest, weights.trainable)
    buckets: _Account = {"communication buffers": gradients} if how.parallel == DDP else {}
    lying = {
        "frozen weights": weights.bytes(trains=False),
        "trainable weights": weights.bytes(trains=True),
    }
    # Autocast casts a weight for each use and keeps that for the backward pass: with checkpointing and a
    # frozen base (whose casts are not cached) only the head's outlives its layer.
    autocast = how.stored and WIDTH[how.stored] != WIDTH[how.precision]
    kinds = ("head",) if how.checkpointing and how.adapter else ("head", "linear")
    copies = WIDTH[how.precision] * sum(
        each.numel * each.copies for each in weights.list if each.kind in kinds and each.where != "tower"
    )
    return _Engine(
        rest=_sum(lying, here, buckets),
        live={"gathered parameters": copies} if autocast else {},
        communication={},
        gradients=gradients,
        late=late,
        early=early,
        tied=tied,
        step={"gradients": gradients, "working memory": working},
        host=host,
    )


def _stages(weights: _Weights, how: Training) -> _Engine:
    """DeepSpeed without ZeRO, ZeRO-1 and -2 (runtime/zero/stage_1_and_2.py, fp16/unfused_optimizer.py).

    Weights stay whole. Master weights in fp32 and states are a rank's share, gradients are reduced bucket by
    bucket into its share. A step flattens that and casts it to fp32. Offloaded, the share lies on the host
    with its fp32 gradient and a 16-bit copy, and the GPU keeps one buffer of the largest gradient.
    """
    width, trainable = weights.width, weights.trainable
    share = trainable / (how.ranks if how.stage else 1)
    mixed = width < 4  # noqa: PLR2004 - of fp32
    master = 4 * share if mixed or how.stage else 0
    states = _states(weights, how, 4) * share / max(trainable, 1)
    kept = {"optimizer states": master + states}
    gradients, late, early, tied = _grads(weights)
    lying = {
        "frozen weights": weights.bytes(trains=False),
        "trainable weights": weights.bytes(trains=True),
    }
    largest = weights.largest * width
    if not how.stage:
        single = _stepping(how, 4, weights.largest, trainable)
        reduced = min(_REDUCED, trainable) * width if how.ranks > 1 else 0
        step = {"gradients": gradients + (4 * trainable if mixed else 0), "working memory": single}
        return _Engine(
            rest=_sum(lying, kept),
            live={},
            communication={},
            gradients=gradients + reduced,
            late=late + reduced,
            early=early,
            tied=tied,
            step=step,
            host={},
        )
    buckets = how.reduce_bucket * width * (2 if how.overlap else 1)
    if how.offload_optimizer:
        host = {
            "optimizer states": master + states,
            "gradients": 4 * share,
            "copies of the weights": width * share,
            "buffers": largest,
        }
        return _Engine(
            rest=_sum(lying, {"communication buffers": largest}),
            live={},
            communication={"communication buffers": buckets},
            gradients=2 * largest,
            late=0,
            early=largest,
            tied=0,
            step={"gradients": largest},
            host=host,
        )
    own = width * share
    working = max(own + 4 * share, 4 * share + _stepping(how, 4, share, share) - own)
    return _Engine(
        rest=_sum(lying, kept),
        live={},
        communication={"communication buffers": buckets},
        gradients=own + largest,
        late=0,
        early=own + largest,
        tied=tied,
        step={"gradients": own, "working memory": working},
        host={},
    )


_REDUCED = 500_000_000
"""Elements that DeepSpeed reduces at once without ZeRO (MEMORY_OPT_ALLREDUCE_SIZE, runtime/engine.py)."""


def _stage3(weights: _Weights, how: Training) -> _Engine:
    """ZeRO-3 (runtime/zero/stage3.py, partitioned_param_coordinator.py).

    A rank keeps its share of each weight; those under the persistence threshold are gathered once and stay.
    The others are gathered for use and stay while they are used again within max_reuse_distance: half of that
    at the turn from forward to backward; beside them the largest module and what is prefetched, unless that
    were more than max_live_parameters (partitioned_param_coordinator.py, fetch_sub_module). The bucket
    for gradients is made whole at the start, whatever the model's size, and so is the share's gradient.
    """
    width, ranks, trainable = weights.width, how.ranks, weights.trainable
    share = sum(-(-each.numel // ranks) * each.copies for each in weights.list if each.trains)
    master = 4 * share
    states = _states(weights, how, 4) * share / max(trainable, 1)
    whole = {
        trains: sum(
            each.all for each in weights.list if each.trains is trains and each.numel < how.persistence
        )
        for trains in (True, False)
    }
    gathered = [each for each in weights.list if each.numel >= how.persistence]
    moving = sum(each.numel * each.copies for each in gathered)
    one = max((each.numel for each in gathered), default=0)
    held = how.reuse // 2 + one
    live = min(moving, held + min(how.prefetch, max(how.live - held, 0))) * width
    lying = {
        "frozen weights": weights.sharded(ranks, trains=False),
        "trainable weights": weights.sharded(ranks, trains=True),
    }
    persistent = {"gathered parameters": whole[True] + whole[False]}
    buckets = {"communication buffers": float(how.reduce_bucket * width)}
    largest = float(weights.largest * width)
    gradient = {"gradients": float(width * share)}
    kept = {"optimizer states": master + states}
    host: _Account = {}
    rest = _sum(persistent, buckets)
    if how.offload_param:
        host = _sum(host, lying)
    else:
        rest = _sum(rest, lying)
    part = min(share, max(how.sub_group, weights.largest // ranks))
    if how.offload_optimizer:
        host = _sum(host, kept, {"gradients": 4.0 * share}, gradient)
        step: _Account = {"working memory": 0.0}
    else:
        rest = _sum(rest, kept, gradient)
        stepping = _stepping(how, 4, part, part)
        step = {"working memory": max(width * part + 4 * part, 4 * part + stepping)}
    return _Engine(
        rest=rest,
        live={"gathered parameters": live},
        communication={},
        gradients=largest,
        late=0,
        early=largest,
        tied=0,
        step=step,
        host=host,
    )


def _fsdp(weights: _Weights, how: Training) -> _Engine:
    """FSDP, a unit a layer: shares of weights, gradients and states; two units whole at once (prefetch).

    accelerate keeps what trains in fp32 when precision is mixed and lets FSDP cast what it gathers
    (accelerator.py, _prepare_fsdp); a unit's gradient is whole before it is scattered.
    """
    ranks, width = how.ranks, WIDTH[how.precision]
    trainable, frozen = weights.trainable / ranks, weights.bytes(trains=False) / ranks
    layer = sum(each.numel * each.copies for each in weights.list if each.where == "layer") / weights.layers
    outside = sum(each.numel * each.copies for each in weights.list if each.where == "outside")
    training = weights.bytes(trains=True, where="layer") / weights.layers
    kept = {
        "frozen weights": frozen,
        "trainable weights": 4 * trainable,
        "optimizer states": _states(weights, how, 4) / ranks,
    }
    states, host = {"gradients": 4 * trainable}, {}
    # FSDP2 shards each weight, FSDP1 a unit's weights laid end to end: one may lie on one rank.
    one = min(weights.largest / (ranks if how.parallel == "fsdp2" else 1), trainable)
    step = {"gradients": 4 * trainable, "working memory": _stepping(how, 4, one, trainable)}
    if how.offload_param or how.offload_optimizer:
        host = _sum(kept, states)
        kept, step = {}, {}
        states = {"gradients": 0.0}
    return _Engine(
        rest=kept,
        live={"gathered parameters": (2 * layer + outside) * width},
        communication={},
        gradients=states["gradients"] + training,
        late=0,
        early=training,
        tied=0,
        step=step,
        host=host,
    )


# --- activations ------------------------------------------------------------------------------------


class _Layer(NamedTuple):
    """Bytes for one token: kept by a layer, kept behind the last, worked with in a turn, a layer's input."""

    kept: float
    final: float
    working: float
    input: float


class _Loss(NamedTuple):
    """Bytes for one token, in the forward and in the backward pass."""

    forward: float
    backward: float


_FLOAT = 4


def _loss(shape: Decoder, how: Training) -> _Loss:
    """Logits in the precision, their fp32 copy, its log-softmax; in the backward pass two gradients of it.

    The model's output is dropped when the loss is there, as the trainers do. A fused loss makes the logits of
    as many tokens at once as keep them near the size of the hidden states (liger_kernel/ops/
    fused_linear_cross_entropy.py): counted as two of those.
    """
    width = WIDTH[how.precision]
    if how.fused_loss:
        return _Loss(2.0 * _FLOAT * shape.hidden, 2.0 * _FLOAT * shape.hidden)
    copied = _FLOAT if width < _FLOAT else 0
    capped = width if shape.capped else 0
    forward = shape.vocab * (width + copied + _FLOAT + capped)
    return _Loss(float(forward), float(shape.vocab * (3 * _FLOAT + capped)))


def _layer(model: Model, shape: Decoder, how: Training) -> _Layer:
    """What the operations of a layer keep, as modeling_llama.py and its kin have them.

    A product keeps its factors, SiLU and GELU their input, softmax and tanh their output, a norm its input;
    a linear module its input, if its weight trains. A frozen base keeps the less, and each adapter of LoRA
    keeps its input in its own dtype, with dropout also the mask (a byte on CUDA, the dtype elsewhere).
    """
    width, full = WIDTH[how.precision], not how.adapter
    stored = how.stored if how.parallel != DEEPSPEED else ""
    residual = WIDTH[stored or how.precision]
    hidden, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    values, attended = shape.kv_heads * shape.value_size, shape.heads * shape.value_size
    read = _ModelReader(model, how, width, residual, shape)

    def norm(size: int) -> float:
        if not shape.rms:
            return float(residual * size + 8)  # the input, mean and deviation of native_layer_norm
        scaled = (_FLOAT if shape.float_norm else residual) if full else 0
        return float((_FLOAT + scaled) * size + _FLOAT)  # its fp32 copy, the scaled one, rsqrt

    eager = how.attention == "eager"
    scores = how.seq * shape.heads
    cast = width if width < _FLOAT else 0
    kept = norm(hidden) + read("normed", hidden, shared=False)
    kept += norm(hidden) + read("normed again", hidden, shared=False) if shape.norms > 1 else 0
    kept += 2 * norm(hidden) if shape.norms > 3 else 0  # noqa: PLR2004 - behind attention and MLP too
    kept += norm(queries) + norm(keys) if shape.qk_norm else 0
    if eager:
        repeated = queries + attended if shape.kv_heads < shape.heads else keys + values
        kept += width * (queries + repeated) + scores * (_FLOAT + cast + (width if shape.capped else 0))
        kept += read("attended", attended, shared=False)
    else:
        kept += width * (queries + keys + values + attended) + _FLOAT * shape.heads
        kept += read("attended", attended, shared=True)
    kept += read("query", queries, shared=False) + read("latent", keys, shared=False)
    kept += width * inner * (how.activation + (2 if shape.gated else 0))
    kept += read("inner", inner, shared=shape.activation == "relu" and not shape.gated)
    kept += shape.active * 2 * width * hidden + _FLOAT * shape.experts if shape.experts else 0
    final = norm(hidden) + (width * hidden if full else 0)
    mlp = width * inner * ((2 if full else 3) if shape.gated else 1)
    attention = width * (queries + keys + values + attended)
    attention += scores * (2 * _FLOAT + width) if eager else 0
    working = max(mlp, attention) + 2 * residual * hidden
    return _Layer(kept, final, float(working), float(residual * hidden))


class _ModelReader:
    """What linear modules keep of the tensors they read, in bytes for one token."""

    def __init__(self, model: Model, how: Training, width: int, residual: int, shape: Decoder) -> None:
        self.how, self.width, self.cast = how, width, residual != width
        self.modules: dict[str, list[tuple[Tensor, bool]]] = {}
        for tensor in model.tensors:
            if tensor.reads and tensor.kind == "linear" and tensor.copies >= shape.layers:
                adapted = how.adapter and _targeted(tensor, model, how)
                self.modules.setdefault(tensor.reads, []).append((tensor, adapted))

    def __call__(self, name: str, size: int, *, shared: bool) -> float:
        """Of the tensor `name`; `shared` where another operation keeps it anyway."""
        how, readers = self.how, self.modules.get(name, [])
        if not how.adapter:
            return self._whole(name, size, readers=len(readers), shared=shared)
        adapted = [tensor for tensor, targeted in readers if targeted]
        if not adapted:
            return 0.0
        # Under autocast the adapters' inputs are cast down again, whatever dtype the adapters are kept in.
        width = _FLOAT if how.fp32_adapters and how.parallel != DEEPSPEED and not how.autocast else self.width
        kept = float(how.rank * width * len(adapted))
        if how.dora:
            # The magnitude multiplies what the base and what the adapter gave; both are kept.
            kept += sum(float((width + self.width) * tensor.rows) for tensor in adapted)
        if how.dropout:
            return kept + len(adapted) * (width + (1 if how.cuda else width)) * size
        if width == self.width and not self.cast and not (how.autocast and how.fp32_adapters):
            return kept + (0.0 if shared else width * size)
        return kept + len(adapted) * width * size

    def _whole(self, name: str, size: int, *, readers: int, shared: bool) -> float:
        """Where all weights train."""
        if not readers and name != "inner":
            return 0.0
        # Autocast casts for each module that reads, but what attention and MLP computed is cast already.
        if self.cast and name.startswith("normed"):
            return float(self.width * size * readers)
        return 0.0 if shared else float(self.width * size)


def unmeasured(model: Model, how: Training) -> tuple[str, ...]:
    """What of a training no measurement backs: its error is as derived as its size."""
    shape = model.decoder
    found = [
        ("FSDP's offload", how.parallel in FSDP and (how.offload_param or how.offload_optimizer)),
        ("a quantised base", how.quantised != "none"),
        ("a fused loss", how.fused_loss),
        ("experts", bool(shape and shape.experts)),
        ("latent attention", bool(shape and shape.value_size != shape.head_size)),
        ("fp8", how.precision == "fp8"),
        ("an optimizer other than AdamW", how.optimizer.get("states") != _MOMENTS or "bits" in how.optimizer),
    ]
    return tuple(name for name, there in found if there)


_MOMENTS = 2  # AdamW's

# --- does it fit ------------------------------------------------------------------------------------


def verdict(need: int, free: int | None, *, cuda: bool, partial: bool = False) -> str:
    """fits, tight, does not fit or cannot tell: `need` bytes of tensors within ERROR, and a CUDA context.

    `partial` says that something could not be counted: then only what does not fit is certain.
    """
    least, most = CONTEXT if cuda else (0, 0)
    if free is not None and need * (1 - ERROR) + least > free:
        return "does not fit"
    if free is None or partial:
        return "cannot tell"
    return "fits" if need * (1 + ERROR) + most <= free else "tight"
