"""Whether a training fits a machine, the cheapest change that makes it fit, and alternatives. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TypeAlias

from envcheck.core.records import NamedTuple
from envcheck.memory import estimate
from envcheck.memory.training import DDP, DEEPSPEED, FLOAT, FSDP, SHARDING_STAGE, WIDTH, Training

Counter: TypeAlias = Callable[[Training], estimate.Estimate]


class Room(NamedTuple):
    """Memory of a machine, in bytes: `gpu` is that of its smallest visible GPU, `ram` that of the host.

    The ranks on the machine, `ranks` of them, share the host's memory. `free` means that `gpu` is what is
    available now; otherwise it is the total. `ram_free` means the same for `ram`. `declared` means that the
    machine was declared and not read. `shared` means that the GPU has no memory apart from the host's, so
    that both numbers describe one pool.
    """

    gpu: int | None
    free: bool
    name: str
    ram: int | None
    ranks: int
    declared: bool = False
    shared: bool = False
    ram_free: bool = False

    def on_host(self, on_gpu: int) -> int | None:
        """Return the bytes of host memory for all ranks if each GPU holds `on_gpu` bytes.

        If GPU and host share one pool, what the GPU holds is subtracted.
        """
        return max(0, self.gpu - on_gpu) if self.shared and self.gpu is not None else self.ram


class Option(NamedTuple):
    """An alternative training with its estimate and verdict, and its changes in words and as arguments."""

    training: Training
    account: estimate.Estimate
    verdict: str
    changes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


class Options(NamedTuple):
    """Table of ZeRO stages and offloads, and the cheapest change that fits, if one was found."""

    table: tuple[tuple[Option, ...], ...]
    cheapest: Option | None
    refused: int = 0  # number of cheaper changes that would fit but break a rule
    rules: tuple[str, ...] = ()  # rules that those changes break


def verdict_for(training: Training, account: estimate.Estimate, room: Room) -> str:
    """Return the worse of the verdicts on a rank's GPU and on the host that the ranks share.

    If a setting could not be read, return `cannot tell`: it may need more memory than is assumed.
    """
    if training.unread:
        return "cannot tell"
    order = ("fits", "tight", "cannot tell", "does not fit")
    gpu = estimate.verdict(account.total, room.gpu, cuda=training.cuda, partial=bool(account.unknown))
    left = room.on_host(account.total)
    host = estimate.verdict(account.host_total * room.ranks, left, cuda=False) if account.host else "fits"
    return max(gpu, host, key=order.index)


def find_options(
    training: Training,
    count: Counter,
    room: Room,
    broken_rules: Callable[[Training], Sequence[str]],
    installed: frozenset[str],
) -> Options:
    """Return the table of alternatives and the cheapest change that fits.

    `broken_rules` names the rules that a training breaks; it is called only for what fits, cheapest first. An
    NF4 base needs bitsandbytes among the `installed` packages, a fused loss needs liger-kernel.
    """
    table = _table(training, count, room)
    if room.gpu is None or training.unread or verdict_for(training, count(training), room) == "fits":
        return Options(table, None)
    refused, rules = 0, dict[str, None]()
    for other, changes in sorted(_others(training, installed), key=lambda each: _cost(training, *each)):
        account = count(other)
        if verdict_for(other, account, room) != "fits":
            continue
        broken = broken_rules(other)
        if not broken:
            return Options(table, _changed(training, other, account, changes), refused, tuple(rules))
        refused += 1
        rules.update(dict.fromkeys(broken))
    return Options(table, None, refused, tuple(rules))


# --- changes ----------------------------------------------------------------------------------------


class _Change(NamedTuple):
    """A change that needs less memory: its cost, and the argument that makes it.

    Arguments are those of transformers' TrainingArguments and BitsAndBytesConfig, of DeepSpeed's JSON (those
    with a dot) and of accelerate's FSDP plugin.
    """

    name: str
    cost: int
    argument: str


_CHANGES = {
    change.name: change
    for change in (
        # Least costly first: faster computation, a third more computation, another kernel, more but smaller
        # steps, more communication, host traffic in each step, host traffic in each layer, different results.
        # Combinations are ordered by the sum of their costs.
        _Change("16-bit precision", 1, "bf16 true"),
        _Change("gradient checkpointing", 2, "gradient_checkpointing true"),
        _Change("Liger's fused loss", 3, "use_liger_kernel true"),
        _Change(
            "a smaller micro-batch",
            4,
            "per_device_train_batch_size {training.batch}, gradient_accumulation_steps times {times}",
        ),
        _Change("ZeRO", 32, "zero_optimization.stage {training.stage}"),
        _Change("optimizer offload", 128, "zero_optimization.offload_optimizer.device cpu"),
        _Change("parameter offload", 256, "zero_optimization.offload_param.device cpu"),
        _Change("FSDP's offload", 256, "fsdp_offload_params true"),
        _Change("an NF4 base", 512, "load_in_4bit true, bnb_4bit_quant_type nf4"),
    )
}


def _changed(
    training: Training, other: Training, account: estimate.Estimate, changes: tuple[str, ...]
) -> Option:
    times = training.batch // other.batch
    return Option(
        other,
        account,
        "fits",
        tuple(_in_words(change, other) for change in changes),
        tuple(_CHANGES[change].argument.format(training=other, times=times) for change in changes),
    )


def _in_words(change: str, other: Training) -> str:
    detail = {
        "16-bit precision": f" ({other.precision})",
        "a smaller micro-batch": f" of {other.batch}",
        "ZeRO": f"-{other.stage}",
    }
    return change + detail.get(change, "")


def _cost(training: Training, other: Training, changes: tuple[str, ...]) -> int:
    """Return the cost of changes; each extra ZeRO stage and each halving of the micro-batch adds to it."""
    cost = sum(_CHANGES[change].cost for change in changes)
    if other.stage > training.stage:
        cost += _CHANGES["ZeRO"].cost * (other.stage - training.stage - 1)
    return cost + (training.batch // other.batch).bit_length() - 1


def _others(training: Training, installed: frozenset[str]) -> Iterator[tuple[Training, tuple[str, ...]]]:
    """Yield every other training that can be reached by changes, and the names of its changes."""
    batches = [training.batch]
    while batches[-1] > 1:
        batches.append(batches[-1] // 2)
    low = "bf16" if training.precision in ("fp32", "tf32") else training.precision
    fusable = "liger-kernel" in installed
    choices = product(
        dict.fromkeys((training.precision, low)),
        dict.fromkeys((training.checkpointing, True)),
        dict.fromkeys((training.fused_loss, training.fused_loss or fusable)),
        batches,
        _spreads(training),
    )
    for precision, checkpointing, fused_loss, batch, (spread, spread_changes) in choices:
        for quantised in dict.fromkeys((training.quantised, _quantised(training, spread, installed))):
            other = spread._replace(
                precision=precision,
                checkpointing=checkpointing,
                fused_loss=fused_loss,
                batch=batch,
                quantised=quantised,
            )
            changes = [
                ("16-bit precision", precision != training.precision),
                ("gradient checkpointing", checkpointing != training.checkpointing),
                ("Liger's fused loss", fused_loss != training.fused_loss),
                ("a smaller micro-batch", batch != training.batch),
                *((change, True) for change in spread_changes),
                ("an NF4 base", quantised != training.quantised),
            ]
            if made := tuple(change for change, is_made in changes if is_made):
                yield other, made


def _quantised(training: Training, spread: Training, installed: frozenset[str]) -> str:
    """Return `nf4` if LoRA trains on the base, bitsandbytes is installed and no weights are sharded.

    Otherwise return the current quantisation.
    """
    whole = spread.parallel in ("none", DDP) or spread.stage in range(SHARDING_STAGE)
    able = (
        "bitsandbytes" in installed
        and training.adapter
        and training.quantised == "none"
        and whole
        and spread.parallel not in FSDP
    )
    return "nf4" if able else training.quantised


def _spreads(training: Training) -> Iterator[tuple[Training, tuple[str, ...]]]:
    """Yield the training as it is, then with further ZeRO stages and offloads, or FSDP's offload."""
    yield training, ()
    if training.parallel in FSDP:
        if not training.offload_param:
            yield training._replace(offload_param=True), ("FSDP's offload",)
        return
    for stage, optimizer, param in _stages_and_offloads(training):
        changes = (
            *(("ZeRO",) if stage != training.stage else ()),
            *(("optimizer offload",) if optimizer != training.offload_optimizer else ()),
            *(("parameter offload",) if param != training.offload_param else ()),
        )
        if changes:
            other = training._replace(
                parallel=DEEPSPEED,
                stage=stage,
                offload_optimizer=optimizer,
                offload_param=param,
                stored="",
            )
            yield other, changes


def _stages_and_offloads(training: Training) -> Iterator[tuple[int, bool, bool]]:
    """Yield each ZeRO stage from the training's own, with and without offload of optimizer and parameters.

    Parameters are offloaded only with the stage that shards them, and only together with the optimizer.
    """
    for stage in range(max(training.stage, 1), _highest_stage(training) + 1):
        shards = stage == SHARDING_STAGE
        for optimizer in dict.fromkeys((training.offload_optimizer, True)):
            params = dict.fromkeys((training.offload_param, optimizer and shards))
            yield from ((stage, optimizer, param) for param in params if not param or shards)


def _highest_stage(training: Training) -> int:
    """Return the highest ZeRO stage to consider: weights that bitsandbytes quantises cannot be sharded."""
    return SHARDING_STAGE if training.quantised == "none" else SHARDING_STAGE - 1


# --- the table --------------------------------------------------------------------------------------


def _table(training: Training, count: Counter, room: Room) -> tuple[tuple[Option, ...], ...]:
    """Return rows of stages and offloads; the columns are precisions, without and with checkpointing."""
    low = training.precision if WIDTH[training.precision] < FLOAT else "bf16"
    rows = []
    for row in _table_rows(training):
        columns = [
            row._replace(precision=precision, checkpointing=checkpointing)
            for precision in ("fp32", low)
            for checkpointing in (False, True)
        ]
        rows.append(tuple(_option(each, count, room) for each in columns))
    return tuple(rows)


def _table_rows(training: Training) -> Iterator[Training]:
    if training.parallel in FSDP:
        for offload in (False, True):
            yield training._replace(offload_param=offload)
        return
    zero = training._replace(
        parallel=DEEPSPEED,
        stored="",
        autocast=False,
        offload_optimizer=False,
        offload_param=False,
    )
    yield training if training.parallel != DEEPSPEED else zero._replace(stage=0)
    for stage in range(1, _highest_stage(training) + 1):
        yield zero._replace(stage=stage)
        yield zero._replace(stage=stage, offload_optimizer=True)
    if _highest_stage(training) == SHARDING_STAGE:
        yield zero._replace(stage=SHARDING_STAGE, offload_optimizer=True, offload_param=True)


def _option(training: Training, count: Counter, room: Room) -> Option:
    account = count(training)
    return Option(training, account, verdict_for(training, account, room))
