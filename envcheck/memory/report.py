"""The report of `envcheck fit` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envcheck.core.findings import UNREADABLE, Diagnostic, Verbosity
from envcheck.core.i18n import ENGLISH, Language, pad, width, wrap
from envcheck.core.records import NamedTuple
from envcheck.core.sanitize import inline
from envcheck.memory import estimate
from envcheck.memory.architecture import ModelShape
from envcheck.memory.options import Options, Room, verdict_for
from envcheck.memory.training import DDP, DEEPSPEED, GIB, WIDTH, Training
from envcheck.reports.formats.json import diagnostic_tree
from envcheck.reports.phrases import diagnostic_line


class Assumption(NamedTuple):
    """Something that the facts do not say.

    It is `usual` if a library's own code does it, or if config.json states the dtype that is trained in.
    """

    text: str
    usual: bool = False


class MemoryTable(NamedTuple):
    """Everything that `envcheck fit` reports."""

    subject: str
    target: str
    model: ModelShape
    training: Training
    account: estimate.Estimate
    room: Room
    assumed: tuple[Assumption, ...]
    options: Options
    diagnostics: tuple[Diagnostic, ...] = ()  # of the training configurations, worst first
    sources: tuple[str, ...] = ()  # where the facts about the training were read

    @property
    def verdict(self) -> str:
        """`fits`, `tight`, `does not fit` or `cannot tell`."""
        return verdict_for(self.training, self.account, self.room)

    @property
    def code(self) -> int:
        """Return the exit code: 0 fits or tight, 1 does not fit, 2 unreadable file, 3 cannot tell."""
        if any(diagnostic.code == UNREADABLE for diagnostic in self.diagnostics):
            return 2
        return {"fits": 0, "tight": 0, "does not fit": 1}.get(self.verdict, 3)


# --- text -------------------------------------------------------------------------------------------

_COLUMNS = 80

_ANSWERS = {
    "fits": "Fits",
    "tight": "Tight",
    "does not fit": "Does not fit",
    "cannot tell": "Cannot say",
}
"""The verdict as the first word of the report."""


def render(found: MemoryTable, verbosity: Verbosity = Verbosity.USUAL, lang: Language = ENGLISH) -> str:
    """Return the report as text; its first line is the verdict, however long."""
    lines = [lang.say("{}: {}", lang.word(_ANSWERS[found.verdict]), _why(found, lang))]
    if verbosity is not Verbosity.VERDICT:
        lines += _lines(found, lang, in_full=verbosity is Verbosity.ALL)
    return "".join(f"{inline(line)}\n" for line in lines)


def _lines(found: MemoryTable, lang: Language, *, in_full: bool) -> Iterator[str]:
    """Yield all lines below the verdict."""
    yield from _advice(found, lang)
    yield ""
    yield from _inputs(found, lang, in_full=in_full)
    yield from _under("GPU", [_gpu(found.room, lang)])
    yield from _under(lang.word("Host"), _host(found, lang))
    yield ""
    yield from _gpu_parts(found, lang, in_full=in_full)
    if in_full:
        yield ""
        yield from _derivation(found, lang)
    if found.account.host:
        yield ""
        yield from _host_parts(found, lang)
    yield ""
    yield from _table(found, lang)


def _listed(names: Iterable[str], lang: Language) -> str:
    return lang.word(", ").join(map(lang.word, names))


def _ranks(number: int, lang: Language) -> str:
    return lang.say("{} rank" if number == 1 else "{} ranks", number)


def _why(found: MemoryTable, lang: Language) -> str:
    """Return the reason for the verdict: the memory needed and available, or what is not known."""
    account, room = found.account, found.room
    if found.verdict == "cannot tell":
        return _why_unknown(found, lang)
    least, most = estimate.CONTEXT if found.training.cuda else (0, 0)
    low, high = account.total * (1 - estimate.ERROR) + least, account.total * (1 + estimate.ERROR) + most
    need = (
        lang.say("more than {} GiB", gib(low))
        if account.unknown
        else lang.say("{} to {} GiB", gib(low), gib(high))
    )
    if room.gpu is not None:
        need = lang.say("{} of {} on each GPU", need, gib(room.gpu))
    else:
        need = lang.say("{} on each GPU", need)
    if account.host and (left := room.on_host(account.total)) is not None:
        need = lang.say("{}; on the host {} of {}", need, gib(account.host_total * room.ranks), gib(left))
    return need


def _why_unknown(found: MemoryTable, lang: Language) -> str:
    account, room = found.account, found.room
    missing = [*account.unknown, *(["the GPU's memory"] if room.gpu is None else [])]
    missing += ["the host's memory"] if account.host and room.ram is None else []
    size = lang.say("{} GiB on each GPU", gib(account.total))
    if room.gpu is not None:
        size = lang.say("{} of {}", size, gib(room.gpu))
    if found.training.unread:
        names = _listed((*found.training.unread, *missing), lang)
        return lang.say("{} not known; with the assumptions below it takes {}", names, size)
    unknown = lang.say("{} not known", _listed(missing, lang))
    if options := _options_that_tell(found):
        unknown = lang.say("{} (give {})", unknown, lang.word(", ").join(options))
    return lang.say("{}; the rest takes {}", unknown, size)


def _options_that_tell(found: MemoryTable) -> list[str]:
    """Return the command line options that supply what the verdict lacks."""
    account, room = found.account, found.room
    lacks = {
        "--seq N": not found.training.seq and not _OF_SEQUENCES.isdisjoint(account.unknown),
        "--gpu NAME": room.gpu is None,
        "--ram GIB": bool(account.host) and room.ram is None,
    }
    return [option for option, lacking in lacks.items() if lacking]


_OF_SEQUENCES = frozenset({"activations", "logits and loss"})
"""Parts that grow with the length of a sequence."""


def _advice(found: MemoryTable, lang: Language) -> Iterator[str]:
    """Yield the cheapest change, the arguments that make it, and the rules that cheaper changes break."""
    cheapest, refused = found.options.cheapest, found.options.refused
    if found.verdict == "fits":
        return
    unknown = (*found.training.unread, *found.account.unknown)
    if unknown and not found.training.unread and _options_that_tell(found):
        return  # the first line already names the options to give
    if unknown:
        text = lang.say("Which change would fit depends on {}, not known", _listed(unknown, lang))
        yield from wrap(text, _COLUMNS)
        return
    rules = ", ".join(found.options.rules)
    if cheapest is None:
        if found.room.gpu is None:
            return
        if refused == 1:
            why = lang.say("1 would fit, but is known to fail here ({})", rules)
        elif refused:
            why = lang.say("{} would fit, but are known to fail here ({})", refused, rules)
        else:
            why = lang.say("none of the changes that were calculated fits")
        yield from wrap(lang.say("Cheapest change that fits: none ({})", why), _COLUMNS)
        return
    size = gib(cheapest.account.total)
    changes = lang.word(", ").join(map(lang.translate, cheapest.changes))
    text = lang.say("Cheapest change that fits: {} ({} GiB of tensors)", changes, size)
    yield from wrap(text, _COLUMNS)
    yield from (lang.say("  set {}", argument) for argument in cheapest.arguments)
    if refused == 1:
        yield from wrap(lang.say("  1 cheaper one is known to fail here ({})", rules), _COLUMNS)
    elif refused:
        text = lang.say("  {} cheaper ones are known to fail here ({})", refused, rules)
        yield from wrap(text, _COLUMNS)


def gib(size: float) -> str:
    """Return bytes as GiB of 2^30, with two decimals below ten."""
    amount = size / GIB
    return f"{amount:.2f}" if amount < 10 else f"{amount:.1f}"  # noqa: PLR2004


# --- what was estimated, and for which machine ------------------------------------------------------


def _inputs(found: MemoryTable, lang: Language, *, in_full: bool) -> Iterator[str]:
    training, account = found.training, found.account
    total = account.trainable + account.frozen
    size = lang.say("{}: {} parameters", lang.translate(found.model.name), f"{total:,}")
    if "gradients" in account.unknown:
        trains = lang.say("how many train is not known")
    else:
        trains = lang.say("{} train", f"{account.trainable:,}")
    yield from _under(lang.word("Model"), [f"{size}{lang.word(', ')}{trains}"])
    parts = (
        _method(training, lang),
        spread_name(training, lang),
        training.precision,
        lang.word("gradient checkpointing" if training.checkpointing else "no gradient checkpointing"),
        *([lang.say("sequences of {}", training.seq)] if training.seq else []),
        lang.say("micro-batch {}", training.batch),
        _ranks(training.ranks, lang),
    )
    yield from _under(lang.word("Training"), [lang.word(", ").join(parts)])
    yield from _under(lang.word("Judged"), [lang.translate(found.subject)])
    yield from _under(lang.word("Assumed"), _assumed(found.assumed, lang, in_full=in_full))
    if in_full:
        yield from _under(lang.word("Sources"), map(lang.translate, found.sources))
    yield from _under(lang.word("Remarks"), (_remark(each, lang) for each in found.diagnostics))


def _remark(diagnostic: Diagnostic, lang: Language) -> str:
    return diagnostic_line(diagnostic._replace(text=lang.translate(diagnostic.text)))


def _assumed(assumptions: Sequence[Assumption], lang: Language, *, in_full: bool) -> list[str]:
    """Return the assumptions; unless `in_full`, usual defaults are only counted."""
    shown = [lang.translate(each.text) for each in assumptions if in_full or not each.usual]
    if usual := len(assumptions) - len(shown):
        template = "{} usual default, listed with -v" if usual == 1 else "{} usual defaults, listed with -v"
        shown.append(lang.say(template, usual))
    return shown


def _method(training: Training, lang: Language) -> str:
    """Return `LoRA of rank 8 on an nf4 base`, `full fine-tuning`, and the like."""
    adapter = "DoRA" if training.dora else "LoRA"
    rank = lang.say("{} of rank {}", adapter, training.rank)
    method = rank if training.adapter else lang.word("full fine-tuning")
    if training.quantised == "none":
        return method
    an = training.quantised in ("nf4", "int8", "awq", "fp8")
    return lang.say("{} on an {} base" if an else "{} on a {} base", method, training.quantised)


def spread_name(training: Training, lang: Language = ENGLISH) -> str:
    """Return how a training is spread over ranks: `ZeRO-3, optimizer offloaded`."""
    if training.parallel == DEEPSPEED:
        name = f"ZeRO-{training.stage}" if training.stage else lang.word("DeepSpeed without ZeRO")
    else:
        names = {"none": lang.word("one process"), DDP: "DDP", "fsdp1": "FSDP", "fsdp2": "FSDP2"}
        name = names[training.parallel]
    if training.offload_param and training.offload_optimizer:
        return lang.say("{}, all offloaded", name)
    if training.offload_param:
        return lang.say("{}, parameters offloaded", name)
    return lang.say("{}, optimizer offloaded", name) if training.offload_optimizer else name


def _gpu(room: Room, lang: Language) -> str:
    if room.gpu is None:
        return lang.say("memory not known: declare one with --gpu NAME")
    size = gib(room.gpu)
    if room.free:
        return lang.say("{}: {} GiB free now", room.name, size)
    if room.declared:
        return lang.say("{}: {} GiB nominal; the driver reports a few per cent less", room.name, size)
    return lang.say("{}: {} GiB in all", room.name, size)


def _host(found: MemoryTable, lang: Language) -> Iterator[str]:
    ram = found.room.ram
    if ram is None:
        yield lang.say("memory not known: declare it with --ram GIB")
    elif found.room.declared:
        yield lang.say("{} GiB, as declared", gib(ram))
    elif found.room.ram_free:
        yield lang.say("{} GiB available now: free memory, within every cgroup's limit", gib(ram))
    else:
        yield lang.say("{} GiB, the minimum of its memory and every cgroup's limit", gib(ram))
    yield lang.say("loading may take {} GiB for each rank that reads all weights", gib(_loading(found)))


def _loading(found: MemoryTable) -> int:
    """Return the bytes of all weights as they are stored."""
    width = WIDTH[found.model.dtype or found.training.precision]
    return found.model.stored or found.model.parameters * width


def _under(head: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts, wrapped and indented, with a heading before the first line."""
    lines = [line for text in texts for line in wrap(text, _COLUMNS - 9)]
    for index, line in enumerate(lines):
        yield f"{pad('' if index else head, 9)}{line}"


# --- the parts --------------------------------------------------------------------------------------


def _part(name: str, size: str, lang: Language, what: str = "") -> str:
    """Return a line of a table: the name of a part, its size, and an explanation."""
    columns = 30 - max(8, width(size))
    return f"  {pad(lang.word(name), columns)}{' ' * (8 - width(size))}{size}{'  ' if what else ''}{what}"


_SMALL = 0.01
"""Share of the total below which a part is added to the others that are as small, unless all are listed."""


def _small_parts(account: estimate.Estimate) -> set[str]:
    """Return the names of the parts below _SMALL; none if there is only one, which takes a line anyway."""
    small = {part.name for part in account.parts if part.bytes < _SMALL * account.total}
    small.difference_update(account.unknown)
    return small if len(small) > 1 else set()


def _gpu_parts(found: MemoryTable, lang: Language, *, in_full: bool) -> Iterator[str]:
    account = found.account
    small = set() if in_full else _small_parts(account)
    yield lang.say("GiB (2^30 bytes) on each GPU {}, at the peak", lang.word(estimate.PHASES[account.phase]))
    for name, what in estimate.PARTS.items():
        size = next((part.bytes for part in account.parts if part.name == name), 0)
        if (size or name in account.unknown) and name not in small:
            yield _part(name, "?" if name in account.unknown else gib(size), lang, lang.word(what))
    if small:
        size = sum(part.bytes for part in account.parts if part.name in small)
        what = lang.say("{} of them, each below {}; -v lists them", len(small), f"{_SMALL:.0%}")
        yield _part("smaller parts", gib(size), lang, what)
    total = "tensors, at least" if account.unknown else "tensors in all"
    error = lang.say("a measured peak may be {} off", f"{estimate.ERROR:.0%}")
    yield _part(total, gib(account.total), lang, error)
    least, most = estimate.CONTEXT
    if found.training.cuda:
        context = f"{gib(least)}-{gib(most)}"
        yield _part("CUDA context", context, lang, lang.say("fragmentation is not included"))
    if missing := estimate.unmeasured(found.model, found.training):
        text = lang.say("  not measured, only derived: {}", _listed(missing, lang))
        yield from wrap(text, _COLUMNS)


def _derivation(found: MemoryTable, lang: Language) -> Iterator[str]:
    """Yield the sum of each phase, what the verdict's range is computed from, and the formulas' sources."""
    account = found.account
    yield lang.say("GiB of tensors on each GPU in each phase of a step")
    for phase, where in estimate.PHASES.items():
        if phase in account.phases:
            yield f"  {pad(lang.word(where), 39)}{gib(account.phases[phase]):>8}"
    error = f"{estimate.ERROR:.0%}"
    if found.training.cuda:
        text = "range in the first line: the largest, {} less or more, plus a CUDA context"
    else:
        text = "range in the first line: the largest, {} less or more"
    texts = (
        *([] if account.unknown or found.verdict == "cannot tell" else [lang.say(text, error)]),
        lang.say("formulas: read from the code of {}", estimate.FORMULAS_OF),
        lang.say("error: from peaks measured on a CPU (benchmarks/fit.md)"),
    )
    for text in texts:
        yield from (f"  {line}" for line in wrap(text, _COLUMNS - 2))


def _host_parts(found: MemoryTable, lang: Language) -> Iterator[str]:
    account, ranks = found.account, found.room.ranks
    yield lang.say("GiB on the host for each of {} (pinned where so configured)", _ranks(ranks, lang))
    for part in account.host:
        yield _part(part.name, gib(part.bytes), lang)
    yield _part("in all, all ranks", gib(account.host_total * ranks), lang)


# --- the table of alternatives ----------------------------------------------------------------------

_MARKS = {"fits": "", "tight": "~", "does not fit": "x", "cannot tell": "?"}


def _table(found: MemoryTable, lang: Language) -> Iterator[str]:
    training, rows = found.training, found.options.table
    low = rows[0][2].training.precision
    batch = lang.say("micro-batch {}", training.batch)
    if training.seq:
        batch = lang.say("sequences of {} and {}", training.seq, batch)
    yield lang.say("GiB of tensors on each GPU with {};", batch)
    yield lang.say("on the host of {} for {}", _ranks(found.room.ranks, lang), low)
    heads = ("fp32", "fp32 ckpt", low, f"{low} ckpt")
    yield lang.say("  {}      host", f"{'':<28}" + "".join(f"{head:>9} " for head in heads).rstrip())
    for row in rows:
        cells = [f"{gib(option.account.total):>9}{_MARKS[option.verdict]:1}" for option in row]
        on_host = row[2].account.host_total * found.room.ranks
        cells.append(f"{gib(on_host) if on_host else '-':>9}")
        yield f"  {pad(spread_name(row[0].training, lang), 28)}{''.join(cells)}"
    yield lang.say("  no mark: fits   ~ tight   x does not fit   ? cannot tell")
    yield lang.say("  ckpt: gradient checkpointing")


# --- JSON -------------------------------------------------------------------------------------------


def tree(found: MemoryTable) -> dict[str, Any]:
    """Return the tree of the JSON report; sizes are bytes."""
    options, cheapest = found.options, found.options.cheapest
    return {
        "subject": found.subject,
        "target": found.target or None,
        "verdict": found.verdict,
        "error": estimate.ERROR,
        "unmeasured": list(estimate.unmeasured(found.model, found.training)),
        "model": _model_tree(found),
        "training": _training_tree(found.training),
        "gpu": _gpu_tree(found),
        "host": _host_tree(found),
        "assumed": [each.text for each in found.assumed],
        "unread": list(found.training.unread),
        "remarks": [diagnostic_tree(each) for each in found.diagnostics],
        "table": [
            {
                **_training_tree(option.training),
                "gpu": option.account.total,
                "host": option.account.host_total,
                "verdict": option.verdict,
            }
            for row in options.table
            for option in row
        ],
        "cheapest": {
            "changes": list(cheapest.changes),
            "arguments": list(cheapest.arguments),
            **_training_tree(cheapest.training),
            "gpu": cheapest.account.total,
            "host": cheapest.account.host_total,
        }
        if cheapest
        else None,
        "refused": options.refused,
        "refused_by": list(options.rules),
    }


def _model_tree(found: MemoryTable) -> dict[str, Any]:
    account = found.account
    return {
        "type": found.model.name,
        "parameters": found.model.parameters,
        "trainable": None if "gradients" in account.unknown else account.trainable,
        "frozen": account.frozen,
    }


def _gpu_tree(found: MemoryTable) -> dict[str, Any]:
    account = found.account
    return {
        "parts": {part.name: part.bytes for part in account.parts},
        "total": account.total,
        "phase": account.phase,
        "phases": dict(account.phases),
        "context": list(estimate.CONTEXT),
        "unknown": list(account.unknown),
        "room": found.room.gpu,
    }


def _host_tree(found: MemoryTable) -> dict[str, Any]:
    account, room = found.account, found.room
    return {
        "parts": {part.name: part.bytes for part in account.host},
        "ranks": room.ranks,
        "total": account.host_total * room.ranks,
        "loading": _loading(found),
        "room": room.ram,
    }


def _training_tree(training: Training) -> dict[str, Any]:
    return {
        "parallel": training.parallel,
        "zero_stage": training.stage,
        "offload_optimizer": training.offload_optimizer,
        "offload_param": training.offload_param,
        "precision": training.precision,
        "gradient_checkpointing": training.checkpointing,
        "micro_batch_size": training.batch,
        "sequence_length": training.seq or None,
        "quantization": training.quantised,
        "ranks": training.ranks,
    }
