"""Whether a training fits a machine, the cheapest change that makes it, and both as text and JSON; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from envcheck import fit
from envcheck.geometry import Model


class Room(NamedTuple):
    """Bytes of the least visible GPU (`free`: what nobody uses now, else the whole) and of the host.

    `ranks` share the host.
    """

    gpu: int | None
    free: bool
    name: str
    ram: int | None
    ranks: int
    declared: bool = False


class Option(NamedTuple):
    """Another training, what it takes, whether it fits; `allowed` is the judge's word, None if not asked."""

    how: fit.Training
    account: fit.Estimate
    verdict: str
    allowed: bool | None
    changes: tuple[str, ...] = ()


class Options(NamedTuple):
    """The table of stages and offloads, and the cheapest change that fits, if one was found."""

    table: tuple[tuple[Option, ...], ...]
    cheapest: Option | None
    refused: int  # cheaper ones that would fit, but that the judge finds broken here


class Fitting(NamedTuple):
    """All that `fit` says."""

    subject: str
    target: str
    model: Model
    how: fit.Training
    account: fit.Estimate
    room: Room
    assumed: tuple[str, ...]
    options: Options

    @property
    def verdict(self) -> str:
        """fits, tight, does not fit or cannot tell."""
        return judged(self.how, self.account, self.room)

    @property
    def code(self) -> int:
        """The exit code."""
        return {"fits": 0, "tight": 0, "does not fit": 1}.get(self.verdict, 3)


def judged(how: fit.Training, account: fit.Estimate, room: Room) -> str:
    """The worse of the verdicts on a rank's GPU and on the host that the ranks share."""
    words = ("fits", "tight", "cannot tell", "does not fit")
    gpu = fit.verdict(account.total, room.gpu, cuda=how.cuda, partial=bool(account.unknown))
    host = fit.verdict(account.host_total * room.ranks, room.ram, cuda=False) if account.host else "fits"
    return max(gpu, host, key=words.index)


# --- the cheapest change ----------------------------------------------------------------------------

# What a change costs, least first: computing gets faster; a third more of it; more and smaller steps; more
# communication; host traffic in each step, in each layer; other numbers. Their sum orders combinations.
_COSTS = {
    "16-bit precision": 1,
    "gradient checkpointing": 2,
    "Liger's fused loss": 3,
    "a smaller micro-batch": 4,
    "ZeRO": 32,
    "optimizer offload": 128,
    "parameter offload": 256,
    "an NF4 base": 512,
}


def options(
    how: fit.Training,
    count: Callable[[fit.Training], fit.Estimate],
    room: Room,
    allows: Callable[[fit.Training], bool],
    installed: frozenset[str],
) -> Options:
    """The table and the cheapest change. `allows` is asked only of what fits, cheapest first.

    Of `installed`, bitsandbytes and liger-kernel make NF4 and the fused loss possible.
    """
    if room.gpu is None:
        return Options(_table(how, count, room), None, 0)
    cheapest, refused = None, 0
    if judged(how, count(how), room) != "fits":
        for other, changes in sorted(_others(how, installed), key=lambda each: _cost(how, *each)):
            account = count(other)
            if judged(other, account, room) != "fits":
                continue
            if allows(other):
                cheapest = Option(other, account, "fits", allowed=True, changes=changes)
                break
            refused += 1
    return Options(_table(how, count, room), cheapest, refused)


def _cost(how: fit.Training, other: fit.Training, changes: tuple[str, ...]) -> int:
    cost = sum(next(cost for name, cost in _COSTS.items() if each.startswith(name)) for each in changes)
    if other.stage > how.stage:
        cost += _COSTS["ZeRO"] * (other.stage - how.stage - 1)
    return cost + (how.batch // other.batch).bit_length() - 1


def _others(how: fit.Training, installed: frozenset[str]) -> Iterator[tuple[fit.Training, tuple[str, ...]]]:
    """Every other training that changes only what costs something, and in words what it changes."""
    batches = [how.batch]
    while batches[-1] > 1:
        batches.append(batches[-1] // 2)
    low = "bf16" if how.precision in ("fp32", "tf32") else how.precision
    fused = "liger-kernel" in installed
    choices = product(
        dict.fromkeys((how.precision, low)),
        dict.fromkeys((how.checkpointing, True)),
        dict.fromkeys((how.fused_loss, how.fused_loss or fused)),
        batches,
        _engines(how),
    )
    for precision, checkpointing, loss, batch, (engine, words) in choices:
        for quantised in dict.fromkeys((how.quantised, _quantised(how, engine, installed))):
            other = engine._replace(
                precision=precision,
                checkpointing=checkpointing,
                fused_loss=loss,
                batch=batch,
                quantised=quantised,
            )
            changes = [
                ("16-bit precision (bf16)", precision != how.precision),
                ("gradient checkpointing", checkpointing != how.checkpointing),
                ("Liger's fused loss", loss != how.fused_loss),
                (f"a smaller micro-batch of {batch}", batch != how.batch),
                *((word, True) for word in words),
                ("an NF4 base", quantised != how.quantised),
            ]
            if made := tuple(change for change, changed in changes if changed):
                yield other, made


def _quantised(how: fit.Training, engine: fit.Training, installed: frozenset[str]) -> str:
    """NF4 where LoRA trains beside it, bitsandbytes is there and no weights are sharded."""
    whole = engine.parallel in ("none", fit.DDP) or engine.stage in range(3)
    able = (
        "bitsandbytes" in installed
        and how.adapter
        and how.quantised == "none"
        and whole
        and engine.parallel not in fit.FSDP
    )
    return "nf4" if able else how.quantised


_SHARDED = 3  # the ZeRO stage that shards weights


def _stages(how: fit.Training) -> int:
    """The highest ZeRO stage that is looked at: weights that bitsandbytes quantises are not sharded."""
    return _SHARDED if how.quantised == "none" else _SHARDED - 1


def _engines(how: fit.Training) -> Iterator[tuple[fit.Training, tuple[str, ...]]]:
    """The same, and DeepSpeed's further stages and offloads; FSDP's offload."""
    yield how, ()
    if how.parallel in fit.FSDP:
        if not how.offload_param:
            yield how._replace(offload_param=True), ("parameter offload",)
        return
    for stage in range(max(how.stage, 1), _stages(how) + 1):
        for optimizer in dict.fromkeys((how.offload_optimizer, True)):
            for param in dict.fromkeys((how.offload_param, optimizer and stage == _SHARDED)):
                if param and stage < _SHARDED:
                    continue
                other = how._replace(
                    parallel=fit.DEEPSPEED,
                    stage=stage,
                    offload_optimizer=optimizer,
                    offload_param=param,
                    stored="",
                )
                words = (
                    *((f"ZeRO-{stage}",) if stage != how.stage else ()),
                    *(("optimizer offload",) if optimizer != how.offload_optimizer else ()),
                    *(("parameter offload",) if param != how.offload_param else ()),
                )
                if words:
                    yield other, words


def _table(
    how: fit.Training, count: Callable[[fit.Training], fit.Estimate], room: Room
) -> tuple[tuple[Option, ...], ...]:
    """Rows of stage and offload; columns of precision and checkpointing."""
    if how.parallel in fit.FSDP:
        engines = [how._replace(offload_param=offload) for offload in (False, True)]
    else:
        zero = how._replace(
            parallel=fit.DEEPSPEED, stored="", autocast=False, offload_optimizer=False, offload_param=False
        )
        engines = [how] if how.parallel != fit.DEEPSPEED else [zero._replace(stage=0)]
        for stage in range(1, _stages(how) + 1):
            engines.append(zero._replace(stage=stage))
            engines.append(zero._replace(stage=stage, offload_optimizer=True))
        if _stages(how) == _SHARDED:
            engines.append(zero._replace(stage=_SHARDED, offload_optimizer=True, offload_param=True))
    low = how.precision if fit.WIDTH[how.precision] < 4 else "bf16"  # noqa: PLR2004
    rows = []
    for engine in engines:
        columns = [
            engine._replace(precision=precision, checkpointing=checkpointing)
            for precision in ("fp32", low)
            for checkpointing in (False, True)
        ]
        rows.append(tuple(_option(each, count, room) for each in columns))
    return tuple(rows)


def _option(how: fit.Training, count: Callable[[fit.Training], fit.Estimate], room: Room) -> Option:
    account = count(how)
    return Option(how, account, judged(how, account, room), None)


# --- as text ----------------------------------------------------------------------------------------

_MARKS = {"fits": "", "tight": "~", "does not fit": "x", "cannot tell": "?"}


def gib(size: float) -> str:
    """Bytes as GiB of 2^30, two decimals below ten."""
    amount = size / fit.GIB
    return f"{amount:.2f}" if amount < 10 else f"{amount:.1f}"  # noqa: PLR2004


def name_of(how: fit.Training) -> str:
    """What spreads the model, as people say it."""
    if how.parallel == fit.DEEPSPEED:
        words = f"ZeRO-{how.stage}" if how.stage else "DeepSpeed without ZeRO"
    else:
        words = {"none": "one process", fit.DDP: "DDP", "fsdp1": "FSDP", "fsdp2": "FSDP2"}[how.parallel]
    if how.offload_param and how.offload_optimizer:
        return f"{words}, all offloaded"
    if how.offload_param:
        return f"{words}, parameters offloaded"
    return f"{words}, optimizer offloaded" if how.offload_optimizer else words


def render(found: Fitting) -> str:
    """The report: what was counted, parts, the machine, the verdict, the table, the cheapest change."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Fitting) -> Iterator[str]:
    how, account, room = found.how, found.account, found.room
    total = account.trainable + account.frozen
    yield f"Model    {found.model.name}: {total:,} parameters, {account.trainable:,} of them train"
    adapter = f"{'DoRA' if how.dora else 'LoRA'} of rank {how.rank}" if how.adapter else "full fine-tuning"
    base = f" on an {how.quantised} base" if how.quantised != "none" else ""
    size = f"sequences of {how.seq}, micro-batch {how.batch}" if how.seq else f"micro-batch {how.batch}"
    ckpt = "checkpointing" if how.checkpointing else "no checkpointing"
    yield f"Training {adapter}{base}, {name_of(how)}, {how.precision}, {ckpt}, {size}"
    yield f"         {how.ranks} rank{'s' if how.ranks > 1 else ''}"
    yield f"Judged   {found.subject}"
    for index, each in enumerate(found.assumed):
        yield f"{'Assumed ' if index == 0 else '        '} {each}"
    yield ""
    yield f"GiB (2^30 bytes) on each GPU, {fit.PHASES[account.phase]}, where it is most"
    for part in account.parts:
        yield f"  {part.name:<24}{gib(part.bytes):>8}"
    for name in account.unknown:
        yield f"  {name:<24}{'?':>8}"
    whole = "tensors, at the least" if account.unknown else "tensors in all"
    yield f"  {whole:<24}{gib(account.total):>8}   ±{fit.ERROR:.0%}"
    least, most = fit.CONTEXT
    if how.cuda:
        yield f"  {'CUDA context':<24}{f'{gib(least)}-{gib(most)}':>13}   fragmentation comes on top"
    if missing := fit.unmeasured(found.model, how):
        yield f"  not measured, only derived: {', '.join(missing)}"
    if account.host:
        yield ""
        yield f"GiB on the host for each rank, of {room.ranks} there (pinned where so configured)"
        for part in account.host:
            yield f"  {part.name:<24}{gib(part.bytes):>8}"
        yield f"  {'in all, all ranks':<24}{gib(account.host_total * room.ranks):>8}"
    yield ""
    yield f"GPU      {_gpu(room)}"
    limit = f"{gib(room.ram or 0)} GiB, the least of its memory and every cgroup's limit"
    ram = "memory not known (of this machine it is where no GPU is declared)" if room.ram is None else limit
    yield f"Host     {ram}; loading may take {gib(_loading(found))} GiB for each rank that reads all weights"
    yield f"{found.verdict}: {_why(found)}"
    yield ""
    yield from _table_lines(found)
    yield ""
    yield from _advice(found)


def _gpu(room: Room) -> str:
    if room.gpu is None:
        return "memory not known: declare one with --gpu NAME"
    whole = "as sold; the driver reports a few per cent less" if room.declared else "in all"
    return f"{room.name}: {gib(room.gpu)} GiB {'free now' if room.free else whole}"


def _loading(found: Fitting) -> int:
    width = fit.WIDTH[found.model.dtype or found.how.precision]
    return found.model.stored or found.model.parameters * width


def _why(found: Fitting) -> str:
    account, room = found.account, found.room
    least, most = fit.CONTEXT if found.how.cuda else (0, 0)
    low, high = account.total * (1 - fit.ERROR) + least, account.total * (1 + fit.ERROR) + most
    if found.verdict == "cannot tell":
        missing = [*account.unknown, *(["the GPU's memory"] if room.gpu is None else [])]
        missing += ["the host's memory"] if account.host and room.ram is None else []
        return f"{', '.join(missing)} not known"
    need = f"{gib(low)} to {gib(high)} GiB of {gib(room.gpu or 0)}"
    if account.host and room.ram is not None:
        need += f"; on the host {gib(account.host_total * room.ranks)} of {gib(room.ram)}"
    return need


def _table_lines(found: Fitting) -> Iterator[str]:
    rows = found.options.table
    low = rows[0][2].how.precision
    yield f"GiB of tensors on each GPU, and on the host for {low}; {found.room.ranks} there"
    heads = ("fp32", "fp32 ckpt", low, f"{low} ckpt", "host")
    yield f"  {'':<32}" + "".join(f"{head:>12}" for head in heads)
    for row in rows:
        cells = [f"{gib(each.account.total)}{_MARKS[each.verdict]:1}" for each in row]
        held = row[2].account.host_total * found.room.ranks
        cells.append(f"{gib(held)} " if held else "- ")
        yield f"  {name_of(row[0].how):<32}" + "".join(f"{cell:>12}" for cell in cells)
    yield "  ~ within the error, x does not fit, ? cannot tell; ckpt is gradient checkpointing"


def _advice(found: Fitting) -> Iterator[str]:
    if found.verdict == "fits":
        yield "Nothing need change."
        return
    cheapest = found.options.cheapest
    if found.verdict == "cannot tell":
        yield "What would fit cannot be told either."
        return
    if cheapest is None:
        broken = f"{found.options.refused} would, and known failures of this environment break each"
        why = broken if found.options.refused else "none of those counted does"
        yield f"Cheapest change that fits: none ({why})"
        return
    size = gib(cheapest.account.total)
    yield f"Cheapest change that fits: {', '.join(cheapest.changes)} ({size} GiB of tensors)"
    if found.options.refused:
        count = found.options.refused
        which = "one was" if count == 1 else "ones were"
        yield f"  {count} cheaper {which} passed over: known failures of this environment"
    yield "  cheap to dear: " + ", ".join(_COSTS)


# --- as JSON ----------------------------------------------------------------------------------------


def tree(found: Fitting) -> dict[str, Any]:
    """The same for programs; sizes in bytes."""
    account, room, cheapest = found.account, found.room, found.options.cheapest
    return {
        "subject": found.subject,
        "target": found.target or None,
        "verdict": found.verdict,
        "error": fit.ERROR,
        "unmeasured": list(fit.unmeasured(found.model, found.how)),
        "model": {
            "type": found.model.name,
            "parameters": found.model.parameters,
            "trainable": account.trainable,
            "frozen": account.frozen,
        },
        "training": _training(found.how),
        "gpu": {
            "parts": {part.name: part.bytes for part in account.parts},
            "total": account.total,
            "phase": account.phase,
            "phases": dict(account.phases),
            "context": list(fit.CONTEXT),
            "unknown": list(account.unknown),
            "room": room.gpu,
        },
        "host": {
            "parts": {part.name: part.bytes for part in account.host},
            "ranks": room.ranks,
            "total": account.host_total * room.ranks,
            "loading": _loading(found),
            "room": room.ram,
        },
        "assumed": list(found.assumed),
        "table": [
            {
                **_training(each.how),
                "gpu": each.account.total,
                "host": each.account.host_total,
                "verdict": each.verdict,
            }
            for row in found.options.table
            for each in row
        ],
        "cheapest": {
            "changes": list(cheapest.changes),
            **_training(cheapest.how),
            "gpu": cheapest.account.total,
            "host": cheapest.account.host_total,
        }
        if cheapest
        else None,
        "refused": found.options.refused,
    }


def _training(how: fit.Training) -> dict[str, Any]:
    return {
        "parallel": how.parallel,
        "zero_stage": how.stage,
        "offload_optimizer": how.offload_optimizer,
        "offload_param": how.offload_param,
        "precision": how.precision,
        "gradient_checkpointing": how.checkpointing,
        "micro_batch_size": how.batch,
        "quantization": how.quantised,
        "ranks": how.ranks,
    }
