"""Estimate the memory of a training and what would fit.

`estimate_memory` reads the model from its folder (`model_folder`), the training from its facts (`training`)
and the machine as `doctor` does (`room`); `envcheck.memory` computes the estimate. It may import what
`commands` may. It must not know how the table is shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from envcheck.commands import examine, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.fit.model_folder import read_model
from envcheck.commands.fit.room import read_room
from envcheck.commands.fit.training import TrainingRules, read_training
from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Value, package_key
from envcheck.core.findings import UNREADABLE
from envcheck.core.rules import Matrix, Target
from envcheck.host.machine import Host
from envcheck.host.package_files import shipped_text, source_texts
from envcheck.memory import architecture, estimate, report
from envcheck.memory.options import find_options
from envcheck.rules import derive

__all__ = ["FitOptions", "estimate_memory", "read_model"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FitOptions:
    """Options of `fit` besides those of `doctor`; None means that an option was not given.

    Attributes:
        model: a folder with a config.json, a config.json itself, a model in the hub's cache, a
            well-known one, or `params=7.6e9,…`.
        gpus: the number of ranks.
        seq: tokens of a sequence.
        batch: sequences of a micro-batch.
        rank: the rank of LoRA's matrices.
        targets: the modules that LoRA adapts.
        dropout: whether LoRA uses dropout.
        ram: GiB of the host's memory.
    """

    model: str
    gpus: int | None = None
    seq: int | None = None
    batch: int | None = None
    rank: int | None = None
    targets: tuple[str, ...] = ()
    dropout: bool | None = None
    ram: int | None = None


def estimate_memory(request: ExamineRequest, options: FitOptions, host: Host) -> report.MemoryTable:
    """Return the memory that a training needs on a machine, and what would fit.

    Raises:
        InputError: the model or an argument cannot be read.
        ExamineError: a fact that decides most of the memory is not known.
    """
    tables = _tables()
    model = read_model(options.model, tables, host.environ)
    all_probes, keys = examine.probes_and_vocabulary(request)
    matrix = loading.load_matrix(keys, request.overlays, errors_only=True)
    subject, read, diagnostics = examine.take_inventory(request, host, all_probes, matrix, keys)
    if isinstance(read.fact("pkg.torch").reading, Absent):
        subject, read = _with_packages_of_target(
            subject, read, loading.find_target(request.target, matrix), matrix
        )
    read = read.with_facts(_facts_of_options(options, model))
    inventory = derive.derive(read, matrix)

    training, assumed = read_training(inventory, model, options.targets, tables)
    unreadable = (each.places[0].file for each in diagnostics if each.code == UNREADABLE)
    training = training._replace(unread=tuple(dict.fromkeys((*unreadable, *training.unread))))
    room = read_room(inventory, training.ranks, elsewhere=bool(request.gpus), ram=options.ram)
    count = estimate.counter(model)
    account = count(training)
    installed = frozenset(
        name for name in ("bitsandbytes", "liger-kernel") if inventory.known(package_key(name))
    )
    broken_by = TrainingRules(read, matrix).broken_by
    changes = find_options(training, count, room, broken_by, installed)
    return report.MemoryTable(
        subject,
        request.target or "",
        model,
        training,
        account,
        room,
        assumed,
        changes,
        diagnostics,
        sources=_sources_of_training(read),
    )


def _sources_of_training(read: Inventory) -> tuple[str, ...]:
    """Return a line for each source of facts about the training, with the facts read from it."""
    given: dict[str, list[str]] = {}
    for key, fact in read.facts.items():
        if key.startswith("train.") and isinstance(fact.reading, Known):
            value = fact.reading.value
            text = str(value).lower() if isinstance(value, bool) else str(value)
            given.setdefault(fact.source, []).append(f"{key.removeprefix('train.')} {text}")
    return tuple(f"{source}: {', '.join(facts)}" for source, facts in given.items())


def _with_packages_of_target(
    subject: str, read: Inventory, target: Target | None, matrix: Matrix
) -> tuple[str, Inventory]:
    """Return the name and the facts to judge in place of an environment that has no torch.

    The packages are those of the target's newest combination that was measured as good. Without a target or
    such a combination, no package is known.
    """
    kept = {
        key: fact
        for key, fact in read.facts.items()
        if not key.startswith(("pkg.", "build.", "cuda.runtime"))
    }
    empty = read._replace(facts=kept, complete=read.complete - {"pkg"})
    good = [cell for cell in matrix.cells if target and cell.target == target.name and cell.outcome == "ok"]
    if not good or target is None:
        return f"no packages: there is no torch in {subject}", empty
    cell = max(good, key=lambda each: (each.date, versions.order(each.pkg.get("torch", ""))))
    source = f"measured for {target.name} on {cell.date}"
    packages = [Fact(package_key(name), Known(version), source) for name, version in cell.pkg.items()]
    return f"the packages {source}: there is no torch in {subject}", empty.with_facts(packages)


def _tables() -> dict[str, list[dict[str, Any]]]:
    """Read the rows of compat/tables/architectures, which the matrix does not hold."""
    shipped = shipped_text("compat/tables/architectures.json")
    if shipped is not None:
        compiled: dict[str, list[dict[str, Any]]] = json.loads(shipped)
        return compiled
    import tomllib

    texts = source_texts("compat/tables", ".toml", "architectures")
    return tomllib.loads(texts["architectures.toml"])


def _facts_of_options(options: FitOptions, model: architecture.ModelShape) -> list[Fact]:
    """Return the facts about training that the options and the model's folder give."""
    given: list[tuple[str, Value | None]] = [
        ("train.world_size", options.gpus),
        ("train.micro_batch_size", options.batch),
        ("train.sequence_length", options.seq),
        ("train.lora_rank", options.rank),
        ("train.lora_dropout", options.dropout),
        ("train.model_type", None if model.name == architecture.DESCRIBED else model.name),
        ("train.quantization", model.quantised or None),
    ]
    return [Fact(key, Known(value), "given to fit") for key, value in given if value is not None]
