"""Derive the trainer's defaults and what follows from the configuration of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Tri, Unknown
from envcheck.core.rules import Clause, Default, Matrix, When
from envcheck.core.tables import Tables
from envcheck.rules.clauses import evaluate
from envcheck.rules.derive.inputs import is_not_given, missing_input, text_of, with_derived
from envcheck.rules.derive.keys import BATCH_KEYS, COMPONENTS, IMPORTS, MODEL_CODE, MODEL_CODE_PREFIX
from envcheck.rules.derive.optimizers import derive_optimizer


def derive_training(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Add the trainer's defaults and what follows from the configuration, if there is a configuration.

    A trainer that the configuration does not name is Absent.
    """
    inventory = with_derived(inventory, [_described(inventory)])
    if not any(key.startswith("train.") for key in inventory.facts):
        return with_derived(inventory, (Fact(key, Absent(), "no training is described") for key in IMPORTS))
    inventory = with_derived(inventory, [Fact("train.trainer", Absent(), "the configuration names none")])
    trainer = inventory.fact("train.trainer")
    if isinstance(trainer.reading, Absent):
        inventory = with_derived(
            inventory, (Fact(key, Absent(), trainer.source) for key in (*COMPONENTS, *IMPORTS))
        )
    inventory = with_derived(inventory, derive_optimizer(inventory, matrix.tables))
    inventory = _with_defaults(inventory, matrix)
    first, install = _first_transformers(inventory, matrix.tables)
    refused, accepted = _attention(inventory, matrix.tables)
    facts = [
        Fact("train.minimum_transformers", first, "derived from train.model_type"),
        Fact("train.install_transformers", install, "derived from train.model_type"),
        Fact("train.attention_refused", refused, "derived from train.attention"),
        Fact("train.attention_accepted", accepted, "derived from train.model_type"),
        Fact("train.examples_per_step", _examples_per_step(inventory), "derived from the batch sizes"),
        Fact("train.saves_at_evaluations", _saves_at_evaluations(inventory), "derived from train.save_steps"),
        *_model_code(inventory, matrix.tables),
        *_components_without_row(inventory),
    ]
    return with_derived(inventory, facts)


def _described(inventory: Inventory) -> Fact:
    known = any(key.startswith("train.") for key in inventory.facts)
    return Fact("training.described", Known(known), "derived from the facts of the training")


def _components_without_row(inventory: Inventory) -> Iterator[Fact]:
    """Yield the components that no row of the table decides for this trainer and these releases."""
    trainer = inventory.fact("train.trainer")
    unread = Unknown(f"not known of {trainer.value} in these releases")
    declared = (*COMPONENTS, *IMPORTS)
    return (Fact(key, unread, trainer.source) for key in declared if key not in inventory.facts)


def _with_defaults(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Give each fact that was not given the default of the first row that matches.

    A row that may match leaves the fact open, unless a later row certainly matches and gives the same value.
    """
    settled: set[str] = set()
    possible: dict[str, Default] = {}
    # Rows are about facts of earlier rows too, so all of them read one mapping that grows.
    facts = dict(inventory.facts)
    inventory = inventory._replace(facts=facts)
    for default in _rows_for(_Rows(matrix.defaults), inventory.reading("train.trainer")):
        key = default.key
        if key in settled:
            continue
        if default.replaces is not None:
            if inventory.reading(key) == Known(default.replaces):
                certain = _matches(default.when, inventory)[0] is Tri.YES
                facts[key] = _replaced(facts[key], default) if certain else facts[key]
            continue
        if key not in possible and not is_not_given(inventory.reading(key)):
            settled.add(key)
            continue
        matches, undecided = _matches(default.when, inventory)
        if matches is Tri.NO:
            continue
        earlier = possible.setdefault(key, default)
        if matches is Tri.YES or earlier.value != default.value:
            settled.add(key)
        if matches is Tri.YES and earlier.value == default.value:
            reading: Reading = Known(default.value)
        elif earlier is default:
            reading = _unsettled(inventory, undecided)
        else:
            continue
        facts[key] = Fact(key, reading, f"default: {default.source}")
    return inventory


class _Rows:
    """Hold rows of defaults; they equal only themselves, because to compare hundreds takes long."""

    def __init__(self, rows: tuple[Default, ...]) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and self.rows is other.rows

    def __hash__(self) -> int:
        return id(self.rows)


@lru_cache(maxsize=128)
def _rows_for(defaults: _Rows, trainer: Reading) -> tuple[Default, ...]:
    """Return the rows that this trainer does not refuse; a plan asks for them a thousand times."""
    alone = Inventory({"train.trainer": Fact("train.trainer", trainer)})

    def refused(clause: Clause) -> bool:
        return clause.key == "train.trainer" and evaluate(clause, alone) is Tri.NO

    return tuple(row for row in defaults.rows if not any(map(refused, row.when)))


def _replaced(fact: Fact, default: Default) -> Fact:
    """Return a fact as it is meant in these releases."""
    return Fact(fact.key, Known(default.value), f"{fact.source}, as {default.source} reads it")


def _matches(when: When, inventory: Inventory) -> tuple[Tri, list[str]]:
    """Return whether all clauses hold, and the keys of those that are not decided."""
    undecided = []
    for clause in when:
        answer = evaluate(clause, inventory)
        if answer is Tri.NO:
            return answer, []
        if answer is Tri.MAYBE:
            undecided.append(clause.key)
    return (Tri.MAYBE if undecided else Tri.YES), undecided


def _unsettled(inventory: Inventory, undecided: Sequence[str]) -> Unknown:
    asked = not any(is_not_given(inventory.reading(key)) for key in undecided)
    return Unknown(f"its default depends on {' and '.join(sorted(set(undecided)))}", asked)


def _examples_per_step(inventory: Inventory) -> Reading:
    """Return the examples in one optimizer step.

    Processes that share a sequence see the same examples. Where processes share layers, releases count in
    different ways, so the number is Unknown.
    """
    missing = missing_input(inventory, *BATCH_KEYS)
    if missing is not None:
        return missing
    micro, accumulated, processes, layers, share = (int(text_of(inventory, key)) for key in BATCH_KEYS)
    if layers != 1:
        return Unknown(f"{layers} processes share each layer, and releases count them in different ways")
    if share < 1 or processes % share:
        return Unknown(f"{processes} processes do not divide into sequences shared by {share}")
    return Known(micro * accumulated * (processes // share))


def _saves_at_evaluations(inventory: Inventory) -> Reading:
    missing = missing_input(inventory, "train.save_steps", "train.eval_steps")
    if missing is not None:
        return missing
    save, evaluate = (int(text_of(inventory, f"train.{each}_steps")) for each in ("save", "eval"))
    return Known(save % evaluate == 0) if evaluate > 0 else Unknown("train.eval_steps is not above 0")


_ONE_FLASH_CHECK = ">=4.54"
"""The releases of transformers in which one attribute of a class decides on FlashAttention 2 and 3.

Read in `_flash_attn_3_can_dispatch` of modeling_utils.py, 4.53.3 to 5.24.0; 4.53 has an attribute of its own.
"""


def _attention(inventory: Inventory, tables: Tables) -> tuple[Reading, Reading]:
    """Return whether transformers refuses the attention for the model type, and one that it accepts."""
    missing = missing_input(inventory, "train.model_type", "pkg.transformers")
    if missing is not None:
        return missing, missing
    model_type, version = text_of(inventory, "train.model_type"), text_of(inventory, "pkg.transformers")
    row = next((row for row in tables.get("attention", ()) if row["model_type"] == model_type), {})

    flash3_as_flash2 = versions.satisfies(version, _ONE_FLASH_CHECK, unknown=Tri.NO) is Tri.YES

    def refuses(attention: str) -> bool:
        bounds = row.get(attention, ())
        if attention == "flash_attention_3" and flash3_as_flash2:
            bounds = row.get("flash_attention_2", ())
        return any(versions.satisfies(version, each, unknown=Tri.NO) is Tri.YES for each in bounds)

    refused = missing_input(inventory, "train.attention") or Known(
        refuses(text_of(inventory, "train.attention"))
    )
    return refused, Known("eager" if refuses("sdpa") else "sdpa")


def _model_code(inventory: Inventory, tables: Tables) -> Iterator[Fact]:
    """Yield what transformers' code of the model type does.

    Without the release of transformers, what every release with the model does is known.
    """
    source = "derived from train.model_type"
    missing = missing_input(inventory, "train.model_type")
    version = missing_input(inventory, "pkg.transformers")
    if missing is not None or isinstance(version, Absent):
        yield from (Fact(key, missing or Absent(), source) for key in MODEL_CODE)
        return
    model_type = text_of(inventory, "train.model_type")
    row = next((row for row in tables.get("model_code", ()) if row["model_type"] == model_type), {})
    first = _first_transformers(inventory, tables)[0]
    for key in MODEL_CODE:
        bounds = row.get(key.removeprefix(MODEL_CODE_PREFIX), ())
        if version is None:
            stated = text_of(inventory, "pkg.transformers")
            true = any(versions.satisfies(stated, each, unknown=Tri.NO) is Tri.YES for each in bounds)
        elif bounds and not (isinstance(first, Known) and list(bounds) == [f">={first.value}"]):
            yield Fact(key, version, source)
            continue
        else:
            true = bool(bounds)
        yield Fact(key, Known(true), source)


def _first_transformers(inventory: Inventory, tables: Tables) -> tuple[Reading, Reading]:
    """Return the first transformers with code for the model, and the first to install for it."""
    missing = missing_input(inventory, "train.model_type")
    if missing is not None:
        return missing, missing
    model_type = text_of(inventory, "train.model_type")
    row = next((row for row in tables.get("model", []) if row["model_type"] == model_type), None)
    if row is None:
        unlisted = Unknown(f"{model_type} is not among the model types that are known")
        return unlisted, unlisted
    if row.get("before"):
        return Absent(), Absent()
    # The code may be older than the model_type: releases between the two may load the model by its class.
    first = str(row.get("code") or row["transformers"])
    return Known(first), Known(str(row.get("install") or first))
