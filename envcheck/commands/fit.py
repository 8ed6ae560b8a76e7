"""`fit`: the model is read from its folder, the training from its facts, the machine as doctor reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from envcheck import probes
from envcheck.commands import examine
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.facts import Fact, Inventory, Known, Unknown, Value, package_key
from envcheck.core.findings import UNREADABLE, Verdict
from envcheck.core.rules import Matrix, Rule, Severity
from envcheck.core.sanitize import inline
from envcheck.host import machine as host
from envcheck.host.machine import Host
from envcheck.memory import architecture, estimate, report
from envcheck.memory.architecture_table import LARGEST
from envcheck.memory.options import Room, find_options
from envcheck.memory.training import ALL_LINEAR, DDP, DEEPSPEED, GIB, WIDTH, Training
from envcheck.rules import derive, judge

MIB = 1024 * 1024


class FitOptions(NamedTuple):
    """What `fit` is asked beside doctor's question; None is not given."""

    model: str
    gpus: int | None = None
    seq: int | None = None
    batch: int | None = None
    rank: int | None = None
    targets: tuple[str, ...] = ()
    dropout: bool | None = None
    ram: int | None = None  # GiB of the host


def fitted(question: examine.ExamineRequest, wanted: FitOptions, machine: Host) -> report.MemoryTable:
    """The account of a training on a machine, and what would fit.

    Raises:
        InputError: the model or an argument cannot be read.
    """
    tables = _tables()
    model = read_model(wanted.model, tables)
    found = probes.every_probe()
    words = examine.vocabulary(found)
    known = examine.load_matrix(words, question.overlays, errors_only=True)
    subject, read, remarks = examine.take_inventory(question, machine, found, known, words)
    read = _declared(read, wanted, model)
    inventory = derive.derive(read, known)
    judged = _Judge(read, known)
    settings = _Settings(model, wanted, tables, inventory)
    files = tuple(each.places[0].file for each in remarks if each.code == UNREADABLE)
    how = settings.training()
    how = how._replace(unread=(*dict.fromkeys((*files, *settings.unread)),))
    room = _room(inventory, how, elsewhere=bool(question.gpus), ram=wanted.ram)
    count = estimate.counter(model)
    account = count(how)
    options = find_options(
        how,
        count,
        room,
        judged.breaks,
        frozenset(name for name in ("bitsandbytes", "liger-kernel") if inventory.known(package_key(name))),
    )
    assumed = tuple(settings.assumed)
    return report.MemoryTable(
        subject, question.target or "", model, how, account, room, assumed, options, remarks
    )


def _tables() -> dict[str, list[dict[str, Any]]]:
    """The rows of compat/tables/architectures, which judging does without."""
    shipped = host.shipped_text("compat/tables/architectures.json")
    if shipped is not None:
        compiled: dict[str, list[dict[str, Any]]] = json.loads(shipped)
        return compiled
    import tomllib

    texts = host.source_texts("compat/tables", ".toml", "architectures")
    return tomllib.loads(texts["architectures.toml"])


# --- the model --------------------------------------------------------------------------------------

_LARGEST_HEADER = 100 * MIB
"""Bytes of safetensors headers that are read in a folder: the format's own limit of one."""

_DTYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}

_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


def read_model(named: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> architecture.Model:
    """The model of a config.json, of a folder that holds one, or of `params=7.6e9,…`.

    Raises:
        InputError: it is none of these, or what it says is absurd.
    """
    if named.startswith("params="):
        return architecture.described(named)
    path = Path(named)
    folder = path if path.is_dir() else path.parent
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise InputError(named, "no config.json in this folder")
    config = _json(host.read_file(file), str(file))
    headers = dict(_headers(folder)) if path.is_dir() else {}
    found = architecture.model(config, tables, str(file))
    stored = sum(tensor.stored for tensor in headers.values())
    if found is None:
        kind = config.get("model_type")
        if not headers:
            raise InputError(
                str(file),
                f"model_type {str(kind)[:40]!r} is not described, and no safetensors files lie beside it; "
                "say its size: --model params=7.6e9,layers=28,hidden=3584,heads=28,mlp=18944,vocab=152064",
            )
        found = architecture.listed(str(kind), [(name, each.shape) for name, each in headers.items()])
    notes = found.notes
    dtype = config.get("dtype", config.get("torch_dtype"))
    if not isinstance(dtype, str) and isinstance(config.get("text_config"), dict):
        inner = config["text_config"]
        dtype = inner.get("dtype", inner.get("torch_dtype"))
    return found._replace(
        dtype=_DTYPES.get(str(dtype), ""),
        quantised=_quantised(config, str(file)),
        stored=stored,
        notes=notes,
    )


def _json(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        raise InputError(where, f"not JSON: {why}") from None
    if not isinstance(found, dict):
        raise InputError(where, "expected a JSON object")
    return found


def _quantised(config: Mapping[str, Any], where: str) -> str:
    """How the weights are quantised as they are stored, by transformers' quantization_config."""
    said = config.get("quantization_config")
    if said is None:
        return ""
    if not isinstance(said, dict):
        raise InputError(f"{where}: quantization_config", "expected an object")
    method = str(said.get("quant_method", ""))
    if said.get("load_in_4bit") is True or said.get("_load_in_4bit") is True:
        kind = str(said.get("bnb_4bit_quant_type", "fp4"))
        return kind if kind in ("nf4", "fp4") else "fp4"
    if said.get("load_in_8bit") is True or said.get("_load_in_8bit") is True:
        return "int8"
    if method in ("gptq", "awq", "fp8"):
        if method != "fp8" and said.get("bits", 4) != 4:  # noqa: PLR2004
            raise InputError(f"{where}: quantization_config.bits", "only 4 bit is counted")
        return method
    raise InputError(
        f"{where}: quantization_config", f"quant_method {method[:40]!r} is not one that is counted"
    )


class _Stored(NamedTuple):
    shape: tuple[int, ...]
    stored: int


def _headers(folder: Path) -> Iterator[tuple[str, _Stored]]:
    """Every tensor of a folder's safetensors files by their headers; nothing else of them is read.

    Raises:
        InputError: a header is no header.
    """
    names = [name for name in host.names(folder) if name.endswith(".safetensors")]
    left = _LARGEST_HEADER
    for name in names:
        length = int.from_bytes(host.read_start(folder / name, 8), "little")
        if not 2 <= length <= left:  # noqa: PLR2004 - `{}`
            raise InputError(str(folder / name), f"not safetensors: a header of {length} bytes")
        left -= length
        yield from _header(folder / name, length)


def _header(path: Path, length: int) -> Iterator[tuple[str, _Stored]]:
    where = str(path)
    data = host.read_start(path, 8 + length)[8:]
    if len(data) < length:
        raise InputError(where, f"not safetensors: it ends within its header of {length} bytes")
    for name, entry in _json(data, where).items():
        if name == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, dict) else None
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        whole = isinstance(shape, list) and all(type(each) is int and 0 <= each <= LARGEST for each in shape)
        if not whole or dtype not in _BITS:
            raise InputError(where, f"not safetensors: {name[:60]!r} has no shape or dtype that is known")
        sizes = tuple(shape or ())
        numel = math.prod(sizes)
        if numel > architecture.MOST_PARAMETERS:
            raise InputError(where, f"{name[:60]!r} has {numel:.1e} elements, which is not believed")
        yield name, _Stored(sizes, numel * _BITS[str(dtype)] // 8)


# --- the training -----------------------------------------------------------------------------------


def _declared(read: Inventory, wanted: FitOptions, model: architecture.Model) -> Inventory:
    """The inventory with what `fit`'s own options say of training."""
    said: list[tuple[str, Value | None]] = [
        ("train.world_size", wanted.gpus),
        ("train.micro_batch_size", wanted.batch),
        ("train.sequence_length", wanted.seq),
        ("train.lora_rank", wanted.rank),
        ("train.lora_dropout", wanted.dropout),
        ("train.model_type", None if model.name == architecture.DESCRIBED else model.name),
        ("train.quantization", model.quantised or None),
    ]
    return read.with_facts(
        Fact(key, Known(value), "given to fit") for key, value in said if value is not None
    )


_NO_MODULE = "-"

_RANK = 8  # LoraConfig's own (peft/tuners/lora/config.py)

_SIZES = {
    "reduce_bucket": ("zero_reduce_bucket", "reduce_bucket_size", 1),
    "sub_group": ("zero_sub_group_size", "sub_group_size", 3),
    "prefetch": ("zero_prefetch_bucket", "prefetch_bucket_size", 3),
    "persistence": ("zero_persistence_threshold", "param_persistence_threshold", 3),
    "live": ("zero_max_live", "max_live_parameters", 3),
    "reuse": ("zero_max_reuse", "max_reuse_distance", 3),
}
"""Fields of a training that are sizes of ZeRO: their facts, their settings, the first stage they matter in.

"auto" is filled in by HfTrainerDeepSpeedConfig.trainer_config_finalize (transformers,
integrations/deepspeed.py), and in the same way by Accelerator._prepare_deepspeed.
"""


class _Settings:
    """What facts and options say of a training, what is assumed where they are silent, what is unread."""

    def __init__(
        self,
        model: architecture.Model,
        wanted: FitOptions,
        tables: Mapping[str, Sequence[Mapping[str, Any]]],
        inventory: Inventory,
    ) -> None:
        self.counted, self.wanted, self.tables, self.inventory = model, wanted, tables, inventory
        self.assumed: list[str] = []
        self.unread: list[str] = []

    def training(self) -> Training:
        """The training; `assumed` then says what was not given.

        Raises:
            InputError: it is of a kind that is not counted.
            ExamineError: what decides most of it is not known.
        """
        adapter = self.given("adapter", "none", "no adapter: all weights train")
        quantised = self.given("quantization", "none")
        if adapter not in ("none", "lora"):
            raise InputError(f"adapter {adapter}", "only LoRA, DoRA and full fine-tuning are counted")
        if quantised not in ("none", "nf4", "fp4", "int8", "gptq", "awq", "fp8"):
            raise InputError(f"quantization {quantised}", "not one that is counted")
        if self.flag("unsloth"):
            self.assumed.append("what Unsloth saves is not counted")
        how = self._spread()
        for key in ("tensor_parallel", "sequence_parallel", "context_parallel"):
            if self._count(key, 1) > 1:
                raise InputError(key.replace("_", " "), "is not counted: only data parallel is")
        how = how._replace(
            seq=self._count("sequence_length", 0, "activations and logits not counted: no --seq"),
            batch=self._count("micro_batch_size", 1, "micro-batch 1 (--micro-batch)"),
            adapter=adapter == "lora",
            rank=self._count("lora_rank", _RANK) if adapter == "lora" else _RANK,
            dropout=self.flag("lora_dropout"),
            targets=self._targets() if adapter == "lora" else (),
            saved=("embed_tokens", "lm_head") if self.flag("modules_to_save") else (),
            dora=self.flag("dora"),
            fp32_adapters=self.flag("autocast_adapter_dtype", default=True),
            quantised=quantised,
            checkpointing=self.flag("gradient_checkpointing"),
            attention=self.given("attention", "sdpa", "attention sdpa"),
            optimizer=self._optimizer(),
            activation=self._activation(),
            fused_loss=self.flag("liger_kernel"),
        )
        self._remark(how)
        return how

    def given(self, key: str, default: str | int, why: str = "") -> Any:
        """A fact of training, or the default; `why` is what is then assumed."""
        reading = self.inventory.fact(f"train.{key}").reading
        if isinstance(reading, Known):
            return reading.value
        if isinstance(reading, Unknown) and reading.asked:
            said = str(default).lower() if isinstance(default, bool) else default
            self.assumed.append(f"{f'{key} {said}'.rstrip()}: {reading.why}")
            self.unread.append(key)
        elif why:
            self.assumed.append(why)
        return default

    def _count(self, key: str, default: int, why: str = "") -> int:
        """A fact that counts something.

        Raises:
            InputError: it is no count, or more than is believed.
        """
        value = int(self.given(key, default, why))
        if value != default and not 1 <= value <= LARGEST:
            source = self.inventory.fact(f"train.{key}").source
            raise InputError(source, f"{key} {value:.10g}: expected a whole number from 1 to {LARGEST}")
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A fact that holds or does not."""
        return self.given(key, default) is True

    def _spread(self) -> Training:
        """Ranks, engine, dtypes and buckets."""
        found = self.inventory.fact("train.zero_stage").reading
        if isinstance(found, Unknown) and found.asked:
            raise ExamineError(f"cannot tell: the ZeRO stage is not known ({inline(found.why)})")
        stage = int(self.given("zero_stage", 0))
        parallel = str(self.given("parallel", DEEPSPEED if stage else "none"))
        visible = len(self.inventory.visible_devices()) or 1
        ranks = self._count("world_size", visible, f"ranks: {visible} (--gpus)")
        precision = str(self.given("precision", "bf16", "bf16"))
        stored = _DTYPES.get(str(self.given("base_dtype", "")), "") or self.counted.dtype
        engine = parallel == DEEPSPEED
        if not engine:
            why = "as config.json says" if stored else "for nothing says in what"
            self.assumed.append(f"weights loaded in {stored or precision}, {why}")
        return Training(
            seq=0,
            ranks=ranks,
            precision=precision,
            stored="" if engine or stored == precision else stored,
            parallel=DDP if parallel == "none" and ranks > 1 else parallel,
            stage=stage,
            offload_optimizer=self.given("offload_optimizer", "none") != "none",
            offload_param=self.given("offload_param", "none") != "none" or self.flag("fsdp_offload"),
            overlap=self.flag("zero_overlap_comm"),
            **(self._sizes(stage) if engine and stage else {}),
            autocast=not engine and WIDTH[precision] == WIDTH["bf16"],
        )

    def _sizes(self, stage: int) -> dict[str, Any]:
        """ZeRO's buckets and thresholds in elements: as said, by the model where "auto", DeepSpeed's own."""
        hidden = self.counted.decoder.hidden if self.counted.decoder else 0
        by_model = {
            "reduce_bucket": hidden * hidden,
            "prefetch": int(0.9 * hidden * hidden),
            "persistence": 10 * hidden,
        }
        found: dict[str, int] = {}
        sources: dict[str, list[str]] = {}
        for name, (key, setting, least_stage) in _SIZES.items():
            fact = self.inventory.fact(f"train.{key}")
            if isinstance(fact.value, int):
                if fact.value < 0:
                    raise InputError(fact.source, f"{key} {fact.value}: expected 0 or more elements")
                found[name] = min(fact.value, architecture.MOST_PARAMETERS)
                continue
            auto = hidden and name in by_model and self.flag("zero_sized_by_model")
            found[name] = by_model[name] if auto else int(Training._field_defaults[name])
            if stage >= least_stage:
                whose = '"auto" as transformers fills it in' if auto else "DeepSpeed's own"
                sources.setdefault(whose, []).append(f"{setting} {found[name]:,}")
        self.assumed.extend(f"{whose}: {', '.join(sizes)}" for whose, sizes in sources.items())
        return found

    def _optimizer(self) -> Mapping[str, Any]:
        named = str(self.given("optimizer", "adamw"))
        for row in self.tables["optimizer"]:
            if named in row["names"]:
                return row
        self.assumed.append(f"optimizer {named}: not described, counted as AdamW")
        return {"states": 2}

    def _activation(self) -> int:
        shape = self.counted.decoder
        named = shape.activation if shape else "silu"
        for row in self.tables["activation"]:
            if named in row["names"]:
                return int(row["kept"])
        self.assumed.append(f"activation {named[:20]}: not described, counted as four tensors")
        return 4

    def _targets(self) -> tuple[str, ...]:
        modules = sorted(
            {
                tensor.module
                for tensor in self.counted.tensors
                if tensor.kind == "linear" and tensor.where == "layer"
            }
        )
        if self.counted.name == architecture.DESCRIBED and self.counted.decoder is None:
            self.assumed.append(
                "adapters not counted: params= alone names no modules, say layers= and widths"
            )
            return (_NO_MODULE,)
        for name in self.wanted.targets:
            if name not in modules and name != ALL_LINEAR:
                raise InputError(f"--lora-target {name[:40]}", f"the linear modules are {', '.join(modules)}")
        if self.wanted.targets:
            return self.wanted.targets
        if said := self.given("lora_targets", ""):
            by_name = {name.lower(): name for name in (*modules, ALL_LINEAR)}
            named = str(said).split(",")
            if all(name in by_name for name in named):
                return tuple(by_name[name] for name in named)
            self.assumed.append(f"LoRA's targets {str(said)[:40]!r} are not all known modules: not used")
        if not self.counted.lora:
            self.assumed.append("LoRA on all linear modules (--lora-target): PEFT has no choice of its own")
            return (ALL_LINEAR,)
        own = ", ".join(self.counted.lora)
        self.assumed.append(f"LoRA on {own}, PEFT's own choice (--lora-target)")
        return ()

    def _remark(self, how: Training) -> None:
        if how.saved:
            self.assumed.append("modules_to_save: the embedding and the head (which ones is not known)")
        if how.quantised in ("nf4", "fp4", "int8"):
            self.assumed.append("what bitsandbytes leaves is cast to fp32, as PEFT prepares it")
        if any(tensor.where == "tower" for tensor in self.counted.tensors):
            self.assumed.append("the vision tower's weights are counted, what an image makes of them is not")
        self.assumed.extend(self.counted.notes)


# --- the machine ------------------------------------------------------------------------------------


def _room(inventory: Inventory, how: Training, *, elsewhere: bool, ram: int | None) -> Room:
    """The least memory of a visible GPU, and of the host: `ram` GiB, else this one's if the GPUs are here."""
    sizes, visible = [], inventory.visible_devices()
    for number in visible:
        free = inventory.known("gpu.memory_free_mib", number)
        whole = inventory.known("gpu.memory_mib", number)
        if isinstance(found := free if free is not None else whole, int):
            sizes.append((found * MIB, free is not None, str(inventory.known("gpu.name", number) or "GPU")))
    least = min(sizes, default=None) if len(sizes) == len(visible) else None  # one not known may be less
    free_mib = None if elsewhere else inventory.known("host.ram_free_mib")
    here_mib = free_mib if free_mib is not None or elsewhere else inventory.known("host.ram_limit_mib")
    here = inventory.known("gpus.count")
    ranks = min(how.ranks, here) if isinstance(here, int) and here > 1 else how.ranks
    return Room(
        gpu=least[0] if least else None,
        free=bool(least and least[1]),
        name=least[2] if least else "",
        ram=ram * GIB if ram is not None else here_mib * MIB if isinstance(here_mib, int) else None,
        ranks=ranks,
        declared=elsewhere,
        ram_free=ram is None and free_mib is not None,
        shared=any(inventory.known("gpu.memory_shared", n) is True for n in inventory.visible_devices()),
    )


class _Judge:
    """Whether a training is broken by a rule about training, in this environment."""

    def __init__(self, read: Inventory, known: Matrix) -> None:
        self.read, self.known = read, known
        self.rules: tuple[Rule, ...] = tuple(
            rule
            for rule in known.rules
            if rule.severity is Severity.ERROR
            and any(clause.key.startswith("train.") for when in rule.when for clause in when)
        )

    def breaks(self, how: Training) -> tuple[str, ...]:
        """The ids of such rules that are broken."""
        changes: list[tuple[str, Value]] = [
            ("train.precision", how.precision),
            ("train.parallel", how.parallel),
            ("train.gradient_checkpointing", how.checkpointing),
            ("train.quantization", how.quantised),
            ("train.liger_kernel", how.fused_loss),
        ]
        if how.parallel == "deepspeed":
            changes += [
                ("train.zero_stage", how.stage),
                ("train.offload_optimizer", "cpu" if how.offload_optimizer else "none"),
                ("train.offload_param", "cpu" if how.offload_param else "none"),
            ]
        changed = derive.derive(derive.changed(self.read, changes, self.known), self.known)
        found = judge.judge(replace(changed), self.rules)
        return tuple(each.rule.id for each in found.findings if each.verdict is Verdict.BROKEN)
