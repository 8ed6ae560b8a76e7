"""The memory of one rank under each kind of parallelism: one process, DDP, DeepSpeed with ZeRO, FSDP.

The formulas were taken from the code that each function names: torch 2.13.0, accelerate, DeepSpeed 0.19.8.
"""

from __future__ import annotations

from envcheck.core.records import NamedTuple
from envcheck.memory.training import (
    DDP,
    DEEPSPEED,
    FLOAT,
    FSDP,
    SHARDING_STAGE,
    WIDTH,
    Account,
    Training,
    sum_accounts,
)
from envcheck.memory.weights import Weights


class Gradients(NamedTuple):
    """Bytes of gradients during the backward pass, which goes from the last layer to the first."""

    all: float  # at the end of the backward pass
    late: float  # the part of `all` that does not exist yet when the first layer's turn begins
    early: float  # what exists when the last layer's turn begins
    tied: float = 0.0  # the second gradient of an embedding that is also the head


class RankMemory(NamedTuple):
    """Memory of a rank, in bytes.

    `rest` is allocated between steps, `live` while layers run, `communication` during the backward pass and
    `step` during the optimizer's step. `host` is allocated in the memory of the host.
    """

    rest: Account
    live: Account
    communication: Account
    gradients: Gradients
    step: Account
    host: Account


def rank_memory(weights: Weights, training: Training) -> RankMemory:
    """Return the memory of one rank of a training."""
    if training.parallel == DEEPSPEED and training.stage == SHARDING_STAGE:
        return _zero3(weights, training)
    if training.parallel == DEEPSPEED:
        return _zero12(weights, training) if training.stage else _deepspeed(weights, training)
    if training.parallel in FSDP:
        return _fsdp(weights, training)
    return _replicated(weights, training)


# --- parts common to all ----------------------------------------------------------------------------

_LEAST_8BIT = 4096  # elements; bitsandbytes does not quantise the states of smaller weights
_STATE_BLOCK = 256  # elements that share one fp32 scale in 8-bit states


def _optimizer_states(weights: Weights, training: Training, width: int = 0) -> float:
    """Return the bytes of optimizer states at `width` bytes an element; 0 means the weight's own width."""
    row, total = training.optimizer, 0.0
    for each in weights.list:
        if not each.trains:
            continue
        if row.get("factored"):
            total += 4 * each.copies * (each.rows + each.columns if each.columns > 1 else each.numel)
        elif row.get("bits") and each.numel >= _LEAST_8BIT:
            total += row["states"] * each.copies * each.numel * (row["bits"] / 8 + 4 / _STATE_BLOCK)
        else:
            total += row["states"] * each.copies * (each.numel * width or each.size)
    return total


def _step_memory(training: Training, width: int, largest: float, everything: float) -> float:
    """Return the bytes that an optimizer's step works with, for weights of `width` bytes an element.

    On CUDA, a foreach optimizer makes one copy of everything. On a CPU, the loop over the weights makes two
    copies of the largest one.
    """
    if training.cuda:
        return everything * width if training.optimizer.get("together") else 0.0
    return 2.0 * largest * width if training.optimizer.get("states") else 0.0


def _whole_gradients(weights: Weights) -> Gradients:
    """Return the gradients if each is as large as its weight."""
    layer = weights.bytes(trains=True, where="layer") / weights.layers
    outside = [each for each in weights.list if each.trains and each.where == "outside"]
    embedding = sum(each.all for each in outside if each.kind == "embedding")
    head = sum(each.all for each in outside if each.kind == "head")
    return Gradients(
        all=weights.bytes(trains=True),
        late=layer + embedding,
        early=head or embedding,
        tied=0.0 if head else embedding,
    )


def _whole_weights(weights: Weights) -> Account:
    return {
        "frozen weights": weights.bytes(trains=False),
        "trainable weights": weights.bytes(trains=True),
    }


# --- one process, DDP -------------------------------------------------------------------------------


def _replicated(weights: Weights, training: Training) -> RankMemory:
    """Return the memory of one process, or of DDP.

    DDP's buckets are a second copy of all gradients (gradient_as_bucket_view). A paged optimizer keeps its
    states on the host.
    """
    gradients = _whole_gradients(weights)
    states = {"optimizer states": _optimizer_states(weights, training)}
    paged = bool(training.optimizer.get("paged"))
    on_gpu, on_host = ({}, states) if paged else (states, {})
    width = FLOAT if training.adapter and training.fp32_adapters else weights.width
    working = _step_memory(training, width, weights.largest, weights.trainable)
    buckets: Account = {"communication buffers": gradients.all} if training.parallel == DDP else {}
    return RankMemory(
        rest=sum_accounts(_whole_weights(weights), on_gpu, buckets),
        live=_autocast_copies(weights, training),
        communication={},
        gradients=gradients,
        step={"gradients": gradients.all, "working memory": working},
        host=on_host,
    )


def _autocast_copies(weights: Weights, training: Training) -> Account:
    """Return the weights that autocast casts and keeps for the backward pass.

    With checkpointing and a frozen base, whose casts are not cached, only the head's cast outlives its layer.
    """
    if not training.stored or WIDTH[training.stored] == WIDTH[training.precision]:
        return {}
    kinds = ("head",) if training.checkpointing and training.adapter else ("head", "linear")
    copies = WIDTH[training.precision] * sum(
        each.numel * each.copies for each in weights.list if each.kind in kinds and each.where != "tower"
    )
    return {"gathered parameters": copies}


# --- DeepSpeed --------------------------------------------------------------------------------------

_REDUCED_AT_ONCE = 500_000_000
"""Elements that DeepSpeed reduces at once without ZeRO (MEMORY_OPT_ALLREDUCE_SIZE, runtime/engine.py)."""


def _deepspeed(weights: Weights, training: Training) -> RankMemory:
    """Return the memory of DeepSpeed without ZeRO (fp16/unfused_optimizer.py).

    Every rank has all weights, gradients and states, and in mixed precision also fp32 master weights. A step
    casts the gradients to fp32.
    """
    width, trainable = weights.width, weights.trainable
    mixed = width < FLOAT
    master = 4 * trainable if mixed else 0
    states = _optimizer_states(weights, training, FLOAT) * trainable / max(trainable, 1)
    gradients = _whole_gradients(weights)
    reduced = min(_REDUCED_AT_ONCE, trainable) * width if training.ranks > 1 else 0
    return RankMemory(
        rest=sum_accounts(_whole_weights(weights), {"optimizer states": master + states}),
        live={},
        communication={},
        gradients=gradients._replace(all=gradients.all + reduced, late=gradients.late + reduced),
        step={
            "gradients": gradients.all + (4 * trainable if mixed else 0),
            "working memory": _step_memory(training, FLOAT, weights.largest, trainable),
        },
        host={},
    )


def _zero12(weights: Weights, training: Training) -> RankMemory:
    """Return the memory of ZeRO-1 and -2 (runtime/zero/stage_1_and_2.py).

    Every rank has all weights, but only its share of the fp32 master weights and states. Gradients are
    reduced into that share bucket by bucket. A step flattens the share and casts it to fp32. With offload,
    the share is on the host with its fp32 gradient and a 16-bit copy, and the GPU keeps one buffer of the
    size of the largest gradient.
    """
    width = weights.width
    share = weights.trainable / training.ranks
    states = _optimizer_states(weights, training, FLOAT) * share / max(weights.trainable, 1)
    optimizer = {"optimizer states": 4 * share + states}
    largest = weights.largest * width
    buckets = training.reduce_bucket * width * (2 if training.overlap else 1)
    if training.offload_optimizer:
        return RankMemory(
            rest=sum_accounts(_whole_weights(weights), {"communication buffers": largest}),
            live={},
            communication={"communication buffers": buckets},
            gradients=Gradients(all=2 * largest, late=0, early=largest),
            step={"gradients": largest},
            host={
                **optimizer,
                "gradients": 4 * share,
                "copies of the weights": width * share,
                "buffers": largest,
            },
        )
    own = width * share
    working = max(own + 4 * share, 4 * share + _step_memory(training, FLOAT, share, share) - own)
    return RankMemory(
        rest=sum_accounts(_whole_weights(weights), optimizer),
        live={},
        communication={"communication buffers": buckets},
        gradients=Gradients(
            all=own + largest, late=0, early=own + largest, tied=_whole_gradients(weights).tied
        ),
        step={"gradients": own, "working memory": working},
        host={},
    )


def _zero3(weights: Weights, training: Training) -> RankMemory:
    """Return the memory of ZeRO-3 (runtime/zero/stage3.py).

    A rank keeps its share of each weight. The whole gradient bucket is allocated at the start, whatever the
    model's size, and so is the gradient of the share.
    """
    width, ranks = weights.width, training.ranks
    share = sum(-(-each.numel // ranks) * each.copies for each in weights.list if each.trains)
    states = _optimizer_states(weights, training, FLOAT) * share / max(weights.trainable, 1)
    shards = {
        "frozen weights": weights.sharded(ranks, trains=False),
        "trainable weights": weights.sharded(ranks, trains=True),
    }
    largest = float(weights.largest * width)
    gradient = {"gradients": float(width * share)}
    optimizer = {"optimizer states": 4 * share + states}
    host: Account = {}
    rest = sum_accounts(
        {"gathered parameters": _persistent(weights, training)},
        {"communication buffers": float(training.reduce_bucket * width)},
    )
    if training.offload_param:
        host = sum_accounts(host, shards)
    else:
        rest = sum_accounts(rest, shards)
    if training.offload_optimizer:
        host = sum_accounts(host, optimizer, {"gradients": 4.0 * share}, gradient)
        step: Account = {"working memory": 0.0}
    else:
        rest = sum_accounts(rest, optimizer, gradient)
        group = min(share, max(training.sub_group, weights.largest // ranks))
        stepping = _step_memory(training, FLOAT, group, group)
        step = {"working memory": max(width * group + 4 * group, 4 * group + stepping)}
    return RankMemory(
        rest=rest,
        live={"gathered parameters": _gathered(weights, training)},
        communication={},
        gradients=Gradients(all=largest, late=0, early=largest),
        step=step,
        host=host,
    )


def _persistent(weights: Weights, training: Training) -> float:
    """Return the bytes of weights below the persistence threshold, which are gathered once and kept."""
    persistent = {
        trains: sum(
            each.all for each in weights.list if each.trains is trains and each.numel < training.persistence
        )
        for trains in (True, False)
    }
    return persistent[True] + persistent[False]


def _gathered(weights: Weights, training: Training) -> int:
    """Return the bytes of weights that ZeRO-3 has gathered at one time (partitioned_param_coordinator.py).

    A weight stays gathered if it is used again within max_reuse_distance. At the turn from forward to
    backward, these are the weights in the last half of that distance. The largest weight is added, and what
    is prefetched within max_live_parameters (fetch_sub_module).
    """
    gathered = [each for each in weights.list if each.numel >= training.persistence]
    moving = sum(each.numel * each.copies for each in gathered)
    largest = max((each.numel for each in gathered), default=0)
    reused = training.reuse // 2 + largest
    prefetched = min(training.prefetch, max(training.live - reused, 0))
    return min(moving, reused + prefetched) * weights.width


# --- FSDP -------------------------------------------------------------------------------------------


def _fsdp(weights: Weights, training: Training) -> RankMemory:
    """Return the memory of FSDP with one unit for each layer.

    A rank has its share of weights, gradients and states. Two units are gathered at a time, because the next
    one is prefetched. In mixed precision, accelerate keeps trainable weights in fp32, and FSDP casts what it
    gathers (accelerator.py, _prepare_fsdp). A unit's gradient is complete before it is scattered.
    """
    ranks = training.ranks
    trainable = weights.trainable / ranks
    layer_trainable = weights.bytes(trains=True, where="layer") / weights.layers
    kept = {
        "frozen weights": weights.bytes(trains=False) / ranks,
        "trainable weights": 4 * trainable,
        "optimizer states": _optimizer_states(weights, training, FLOAT) / ranks,
    }
    gradients = 4 * trainable
    # FSDP2 shards each weight. FSDP1 concatenates a unit's weights, so a rank may have one of them whole.
    largest = min(weights.largest / (ranks if training.parallel == "fsdp2" else 1), trainable)
    step: Account = {
        "gradients": gradients,
        "working memory": _step_memory(training, FLOAT, largest, trainable),
    }
    host: Account = {}
    if training.offload_param or training.offload_optimizer:
        host = sum_accounts(kept, {"gradients": gradients})
        kept, step, gradients = {}, {}, 0.0
    return RankMemory(
        rest=kept,
        live={"gathered parameters": _units(weights, training)},
        communication={},
        gradients=Gradients(all=gradients + layer_trainable, late=0, early=layer_trainable),
        step=step,
        host=host,
    )


def _units(weights: Weights, training: Training) -> float:
    """Return the bytes of two layers' weights and of those outside layers, in the training precision."""
    layer = sum(each.numel * each.copies for each in weights.list if each.where == "layer") / weights.layers
    outside = sum(each.numel * each.copies for each in weights.list if each.where == "outside")
    return (2 * layer + outside) * WIDTH[training.precision]
