"""Whether a training fits a machine, the cheapest change that makes it, and both as text and JSON; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from envcheck.core.findings import UNREADABLE, Diagnostic
from envcheck.core.i18n import counted, wrapped
from envcheck.core.sanitize import inline
from envcheck.memory import estimate
from envcheck.memory.architecture import Model
from envcheck.reports.formats.json import diagnostic_tree
from envcheck.reports.phrases import diagnostic_line


class Room(NamedTuple):
    """Bytes of the least visible GPU and of the host; `free`, `ram_free`: those to be had now, else all.

    `ranks` share the host. Where the GPU has no memory of its own (`shared`) both are one pool.
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
        """What the host has for the ranks, beside so many bytes on each GPU: one pool is counted once."""
        return max(0, self.gpu - on_gpu) if self.shared and self.gpu is not None else self.ram


class Option(NamedTuple):
    """Another training, what it takes, whether it fits; what it changes, in words and as arguments."""

    how: estimate.Training
    account: estimate.Estimate
    verdict: str
    changes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


class Options(NamedTuple):
    """The table of stages and offloads, and the cheapest change that fits, if one was found."""

    table: tuple[tuple[Option, ...], ...]
    cheapest: Option | None
    refused: int = 0  # cheaper ones that would fit, but that the judge finds broken here
    rules: tuple[str, ...] = ()  # that break them


class MemoryTable(NamedTuple):
    """All that `fit` says."""

    subject: str
    target: str
    model: Model
    how: estimate.Training
    account: estimate.Estimate
    room: Room
    assumed: tuple[str, ...]
    options: Options
    remarks: tuple[Diagnostic, ...] = ()  # on the training configurations, worst first

    @property
    def verdict(self) -> str:
        """fits, tight, does not fit or cannot tell."""
        return judged(self.how, self.account, self.room)

    @property
    def code(self) -> int:
        """The exit code."""
        if any(remark.code == UNREADABLE for remark in self.remarks):
            return 2
        return {"fits": 0, "tight": 0, "does not fit": 1}.get(self.verdict, 3)


def judged(how: estimate.Training, account: estimate.Estimate, room: Room) -> str:
    """The worse of the verdicts on a rank's GPU and on the host that the ranks share.

    What was said and cannot be read may be more than is assumed for it, or less.
    """
    if how.unread:
        return "cannot tell"
    words = ("fits", "tight", "cannot tell", "does not fit")
    gpu = estimate.verdict(account.total, room.gpu, cuda=how.cuda, partial=bool(account.unknown))
    left = room.on_host(account.total)
    host = estimate.verdict(account.host_total * room.ranks, left, cuda=False) if account.host else "fits"
    return max(gpu, host, key=words.index)


# --- the cheapest change ----------------------------------------------------------------------------


class _Change(NamedTuple):
    """A way to take less memory: what it costs, and the argument that makes it.

    Arguments are those of transformers' TrainingArguments and BitsAndBytesConfig, of DeepSpeed's JSON (those
    with a dot) and of accelerate's FSDP plugin.
    """

    name: str
    cost: int
    argument: str


_CHANGES = {
    each.name: each
    for each in (
        # Least first: computing gets faster; a third more of it; another kernel; more and smaller steps; more
        # communication; host traffic in each step, in each layer; other numbers. Sums order combinations.
        _Change("16-bit precision", 1, "bf16 true"),
        _Change("gradient checkpointing", 2, "gradient_checkpointing true"),
        _Change("Liger's fused loss", 3, "use_liger_kernel true"),
        _Change(
            "a smaller micro-batch",
            4,
            "per_device_train_batch_size {how.batch}, gradient_accumulation_steps times {times}",
        ),
        _Change("ZeRO", 32, "zero_optimization.stage {how.stage}"),
        _Change("optimizer offload", 128, "zero_optimization.offload_optimizer.device cpu"),
        _Change("parameter offload", 256, "zero_optimization.offload_param.device cpu"),
        _Change("FSDP's offload", 256, "fsdp_offload_params true"),
        _Change("an NF4 base", 512, "load_in_4bit true, bnb_4bit_quant_type nf4"),
    )
}


def options(
    how: estimate.Training,
    count: Callable[[estimate.Training], estimate.Estimate],
    room: Room,
    breaks: Callable[[estimate.Training], Sequence[str]],
    installed: frozenset[str],
) -> Options:
    """The table and the cheapest change. `breaks` names the rules that a training breaks.

    It is asked only of what fits, cheapest first.

    Of `installed`, bitsandbytes and liger-kernel make NF4 and the fused loss possible.
    """
    table = _table(how, count, room)
    if room.gpu is None or how.unread or judged(how, count(how), room) == "fits":
        return Options(table, None)
    refused, rules = 0, dict[str, None]()
    for other, changes in sorted(_others(how, installed), key=lambda each: _cost(how, *each)):
        account = count(other)
        if judged(other, account, room) != "fits":
            continue
        if not (broken := breaks(other)):
            times = how.batch // other.batch
            arguments = tuple(_CHANGES[name].argument.format(how=other, times=times) for name in changes)
            cheapest = Option(
                other, account, "fits", tuple(_worded(each, other) for each in changes), arguments
            )
            return Options(table, cheapest, refused, tuple(rules))
        refused += 1
        rules.update(dict.fromkeys(broken))
    return Options(table, None, refused, tuple(rules))


def _worded(change: str, other: estimate.Training) -> str:
    detail = {
        "16-bit precision": f" ({other.precision})",
        "a smaller micro-batch": f" of {other.batch}",
        "ZeRO": f"-{other.stage}",
    }
    return change + detail.get(change, "")


def _cost(how: estimate.Training, other: estimate.Training, changes: tuple[str, ...]) -> int:
    cost = sum(_CHANGES[name].cost for name in changes)
    if other.stage > how.stage:
        cost += _CHANGES["ZeRO"].cost * (other.stage - how.stage - 1)
    return cost + (how.batch // other.batch).bit_length() - 1


def _others(
    how: estimate.Training, installed: frozenset[str]
) -> Iterator[tuple[estimate.Training, tuple[str, ...]]]:
    """Every other training that changes only what costs something, and the names of its changes."""
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
                ("16-bit precision", precision != how.precision),
                ("gradient checkpointing", checkpointing != how.checkpointing),
                ("Liger's fused loss", loss != how.fused_loss),
                ("a smaller micro-batch", batch != how.batch),
                *((word, True) for word in words),
                ("an NF4 base", quantised != how.quantised),
            ]
            if made := tuple(change for change, changed in changes if changed):
                yield other, made


def _quantised(how: estimate.Training, engine: estimate.Training, installed: frozenset[str]) -> str:
    """NF4 where LoRA trains beside it, bitsandbytes is there and no weights are sharded."""
    whole = engine.parallel in ("none", estimate.DDP) or engine.stage in range(3)
    able = (
        "bitsandbytes" in installed
        and how.adapter
        and how.quantised == "none"
        and whole
        and engine.parallel not in estimate.FSDP
    )
    return "nf4" if able else how.quantised


_SHARDED = 3  # the ZeRO stage that shards weights


def _stages(how: estimate.Training) -> int:
    """The highest ZeRO stage that is looked at: weights that bitsandbytes quantises are not sharded."""
    return _SHARDED if how.quantised == "none" else _SHARDED - 1


def _engines(how: estimate.Training) -> Iterator[tuple[estimate.Training, tuple[str, ...]]]:
    """The same, and DeepSpeed's further stages and offloads; FSDP's offload."""
    yield how, ()
    if how.parallel in estimate.FSDP:
        if not how.offload_param:
            yield how._replace(offload_param=True), ("FSDP's offload",)
        return
    for stage in range(max(how.stage, 1), _stages(how) + 1):
        for optimizer in dict.fromkeys((how.offload_optimizer, True)):
            for param in dict.fromkeys((how.offload_param, optimizer and stage == _SHARDED)):
                if param and stage < _SHARDED:
                    continue
                other = how._replace(
                    parallel=estimate.DEEPSPEED,
                    stage=stage,
                    offload_optimizer=optimizer,
                    offload_param=param,
                    stored="",
                )
                words = (
                    *(("ZeRO",) if stage != how.stage else ()),
                    *(("optimizer offload",) if optimizer != how.offload_optimizer else ()),
                    *(("parameter offload",) if param != how.offload_param else ()),
                )
                if words:
                    yield other, words


def _table(
    how: estimate.Training, count: Callable[[estimate.Training], estimate.Estimate], room: Room
) -> tuple[tuple[Option, ...], ...]:
    """Rows of stage and offload; columns of precision and checkpointing."""
    if how.parallel in estimate.FSDP:
        engines = [how._replace(offload_param=offload) for offload in (False, True)]
    else:
        zero = how._replace(
            parallel=estimate.DEEPSPEED,
            stored="",
            autocast=False,
            offload_optimizer=False,
            offload_param=False,
        )
        engines = [how] if how.parallel != estimate.DEEPSPEED else [zero._replace(stage=0)]
        for stage in range(1, _stages(how) + 1):
            engines.append(zero._replace(stage=stage))
            engines.append(zero._replace(stage=stage, offload_optimizer=True))
        if _stages(how) == _SHARDED:
            engines.append(zero._replace(stage=_SHARDED, offload_optimizer=True, offload_param=True))
    low = how.precision if estimate.WIDTH[how.precision] < 4 else "bf16"  # noqa: PLR2004
    rows = []
    for engine in engines:
        columns = [
            engine._replace(precision=precision, checkpointing=checkpointing)
            for precision in ("fp32", low)
            for checkpointing in (False, True)
        ]
        rows.append(tuple(_option(each, count, room) for each in columns))
    return tuple(rows)


def _option(
    how: estimate.Training, count: Callable[[estimate.Training], estimate.Estimate], room: Room
) -> Option:
    account = count(how)
    return Option(how, account, judged(how, account, room))


# --- as text ----------------------------------------------------------------------------------------

_MARKS = {"fits": "", "tight": "~", "does not fit": "x", "cannot tell": "?"}


def gib(size: float) -> str:
    """Bytes as GiB of 2^30, two decimals below ten."""
    amount = size / estimate.GIB
    return f"{amount:.2f}" if amount < 10 else f"{amount:.1f}"  # noqa: PLR2004


def name_of(how: estimate.Training) -> str:
    """What spreads the model, as people say it."""
    if how.parallel == estimate.DEEPSPEED:
        words = f"ZeRO-{how.stage}" if how.stage else "DeepSpeed without ZeRO"
    else:
        words = {"none": "one process", estimate.DDP: "DDP", "fsdp1": "FSDP", "fsdp2": "FSDP2"}[how.parallel]
    if how.offload_param and how.offload_optimizer:
        return f"{words}, all offloaded"
    if how.offload_param:
        return f"{words}, parameters offloaded"
    return f"{words}, optimizer offloaded" if how.offload_optimizer else words


_COLUMNS = 80


def render(found: MemoryTable) -> str:
    """The report: the verdict and the cheapest change, what was counted, parts, the machine, the table."""
    return "".join(f"{inline(line)}\n" for line in _lines(found))


def _lines(found: MemoryTable) -> Iterator[str]:
    account, room = found.account, found.room
    yield from wrapped(f"{found.verdict}: {_why(found)}", _COLUMNS)
    yield from _advice(found)
    yield ""
    yield from _asked(found)
    yield from _under("GPU", [_gpu(room)])
    yield from _under("Host", _host(found))
    yield ""
    yield f"GiB (2^30 bytes) on each GPU {estimate.PHASES[account.phase]}, where it is most"
    for name, what in estimate.PARTS.items():
        size = next((part.bytes for part in account.parts if part.name == name), 0)
        if size or name in account.unknown:
            yield f"  {name:<22}{'?' if name in account.unknown else gib(size):>8}  {what}"
    whole = "tensors, at the least" if account.unknown else "tensors in all"
    yield f"  {whole:<22}{gib(account.total):>8}  a measured peak may lie {estimate.ERROR:.0%} off"
    least, most = estimate.CONTEXT
    if found.how.cuda:
        yield f"  {'CUDA context':<21}{f'{gib(least)}-{gib(most)}':>9}  fragmentation comes on top"
    if missing := estimate.unmeasured(found.model, found.how):
        yield from wrapped(f"  not measured, only derived: {', '.join(missing)}", _COLUMNS)
    if account.host:
        yield ""
        yield f"GiB on the host for each of {counted(room.ranks, 'rank')} (pinned where so configured)"
        for part in account.host:
            yield f"  {part.name:<22}{gib(part.bytes):>8}"
        yield f"  {'in all, all ranks':<22}{gib(account.host_total * room.ranks):>8}"
    yield ""
    yield from _table_lines(found)


def _under(head: str, texts: Iterable[str]) -> Iterator[str]:
    """Texts beside a heading, each wrapped."""
    lines = [line for text in texts for line in wrapped(text, _COLUMNS - 9)]
    for index, line in enumerate(lines):
        yield f"{'' if index else head:<9}{line}"


def _asked(found: MemoryTable) -> Iterator[str]:
    how, account = found.how, found.account
    total = account.trainable + account.frozen
    trains = (
        "how many train is not known" if "gradients" in account.unknown else f"{account.trainable:,} train"
    )
    yield from _under("Model", [f"{found.model.name}: {total:,} parameters, {trains}"])
    adapter = f"{'DoRA' if how.dora else 'LoRA'} of rank {how.rank}" if how.adapter else "full fine-tuning"
    base = f" on {'an' if how.quantised in ('nf4', 'int8', 'awq', 'fp8') else 'a'} {how.quantised} base"
    size = f"sequences of {how.seq}, " if how.seq else ""
    said = (
        adapter + (base if how.quantised != "none" else ""),
        name_of(how),
        how.precision,
        "gradient checkpointing" if how.checkpointing else "no gradient checkpointing",
        f"{size}micro-batch {how.batch}",
        counted(how.ranks, "rank"),
    )
    yield from _under("Training", [", ".join(said)])
    yield from _under("Judged", [found.subject])
    yield from _under("Assumed", found.assumed)
    yield from _under("Remarks", map(diagnostic_line, found.remarks))


def _gpu(room: Room) -> str:
    if room.gpu is None:
        return "memory not known: declare one with --gpu NAME"
    whole = "as sold; the driver reports a few per cent less" if room.declared else "in all"
    return f"{room.name}: {gib(room.gpu)} GiB {'free now' if room.free else whole}"


def _host(found: MemoryTable) -> Iterator[str]:
    ram = found.room.ram
    if ram is None:
        yield "memory not known: declare it with --ram GIB"
    elif found.room.declared:
        yield f"{gib(ram)} GiB, as declared"
    elif found.room.ram_free:
        yield f"{gib(ram)} GiB to be had now: what is free, and what is left of every cgroup's limit"
    else:
        yield f"{gib(ram)} GiB, the least of its memory and every cgroup's limit"
    yield f"loading may take {gib(_loading(found))} GiB for each rank that reads all weights"


def _loading(found: MemoryTable) -> int:
    width = estimate.WIDTH[found.model.dtype or found.how.precision]
    return found.model.stored or found.model.parameters * width


def _why(found: MemoryTable) -> str:
    account, room = found.account, found.room
    least, most = estimate.CONTEXT if found.how.cuda else (0, 0)
    low, high = account.total * (1 - estimate.ERROR) + least, account.total * (1 + estimate.ERROR) + most
    if found.verdict == "cannot tell":
        missing = [*account.unknown, *(["the GPU's memory"] if room.gpu is None else [])]
        missing += ["the host's memory"] if account.host and room.ram is None else []
        there = f" of {gib(room.gpu)}" if room.gpu is not None else ""
        if found.how.unread:
            names = ", ".join((*found.how.unread, *missing))
            return f"{names} not known; as assumed below it takes {gib(account.total)} GiB on each GPU{there}"
        return f"{', '.join(missing)} not known; the rest takes {gib(account.total)} GiB on each GPU{there}"
    need = f"{gib(low)} to {gib(high)} GiB" if not account.unknown else f"more than {gib(low)} GiB"
    need = f"{need} of {gib(room.gpu)} on each GPU" if room.gpu is not None else f"{need} on each GPU"
    if account.host and (left := room.on_host(account.total)) is not None:
        need += f"; on the host {gib(account.host_total * room.ranks)} of {gib(left)}"
    return need


def _table_lines(found: MemoryTable) -> Iterator[str]:
    how, rows = found.how, found.options.table
    low = rows[0][2].how.precision
    size = f"sequences of {how.seq} and " if how.seq else ""
    yield f"GiB of tensors on each GPU with {size}micro-batch {how.batch};"
    yield f"on the host of {counted(found.room.ranks, 'rank')} for {low}"
    heads = ("fp32", "fp32 ckpt", low, f"{low} ckpt", "host")
    yield f"  {'':<28}" + "".join(f"{head:>9} " for head in heads).rstrip()
    for row in rows:
        cells = [f"{gib(each.account.total):>9}{_MARKS[each.verdict]:1}" for each in row]
        held = row[2].account.host_total * found.room.ranks
        cells.append(f"{gib(held) if held else '-':>9}")
        yield f"  {name_of(row[0].how):<28}{''.join(cells)}"
    yield "  no mark: fits   ~ tight   x does not fit   ? cannot tell"
    yield "  ckpt: gradient checkpointing"


def _advice(found: MemoryTable) -> Iterator[str]:
    """The cheapest change, the arguments that make it, and the rules that broke cheaper ones."""
    cheapest, refused = found.options.cheapest, found.options.refused
    if found.verdict == "fits":
        return
    if unknown := (*found.how.unread, *found.account.unknown):
        yield from wrapped(f"What would fit depends on {', '.join(unknown)}, not known", _COLUMNS)
        return
    rules = ", ".join(found.options.rules)
    if cheapest is None:
        if found.room.gpu is None:
            return
        others = f"{refused} would fit, but {'is' if refused == 1 else 'are'} known to fail here ({rules})"
        why = others if refused else "no change that was counted fits"
        yield from wrapped(f"Cheapest change that fits: none ({why})", _COLUMNS)
        return
    size = gib(cheapest.account.total)
    words = ", ".join(cheapest.changes)
    yield from wrapped(f"Cheapest change that fits: {words} ({size} GiB of tensors)", _COLUMNS)
    yield from (f"  set {argument}" for argument in cheapest.arguments)
    if refused:
        others = "1 cheaper one is" if refused == 1 else f"{refused} cheaper ones are"
        yield from wrapped(f"  {others} known to fail here ({rules})", _COLUMNS)


# --- as JSON ----------------------------------------------------------------------------------------


def tree(found: MemoryTable) -> dict[str, Any]:
    """The same for programs; sizes in bytes."""
    account, room, cheapest = found.account, found.room, found.options.cheapest
    return {
        "subject": found.subject,
        "target": found.target or None,
        "verdict": found.verdict,
        "error": estimate.ERROR,
        "unmeasured": list(estimate.unmeasured(found.model, found.how)),
        "model": {
            "type": found.model.name,
            "parameters": found.model.parameters,
            "trainable": None if "gradients" in account.unknown else account.trainable,
            "frozen": account.frozen,
        },
        "training": _training(found.how),
        "gpu": {
            "parts": {part.name: part.bytes for part in account.parts},
            "total": account.total,
            "phase": account.phase,
            "phases": dict(account.phases),
            "context": list(estimate.CONTEXT),
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
        "unread": list(found.how.unread),
        "remarks": [diagnostic_tree(each) for each in found.remarks],
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
            "arguments": list(cheapest.arguments),
            **_training(cheapest.how),
            "gpu": cheapest.account.total,
            "host": cheapest.account.host_total,
        }
        if cheapest
        else None,
        "refused": found.options.refused,
        "refused_by": list(found.options.rules),
    }


def _training(how: estimate.Training) -> dict[str, Any]:
    return {
        "parallel": how.parallel,
        "zero_stage": how.stage,
        "offload_optimizer": how.offload_optimizer,
        "offload_param": how.offload_param,
        "precision": how.precision,
        "gradient_checkpointing": how.checkpointing,
        "micro_batch_size": how.batch,
        "sequence_length": how.seq or None,
        "quantization": how.quantised,
        "ranks": how.ranks,
    }
