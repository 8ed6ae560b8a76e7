"""Merge the configurations of one launch the way the trainer merges them. Pure.

A setting in a DeepSpeed configuration overrides the trainer's argument. A setting that is `"auto"` is filled
in from the trainer's arguments. If a setting differs from the argument that would fill it in, the trainer
refuses it (`filled` rows of the dialect).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from envcheck.core.facts import Fact, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.patterns import pattern
from envcheck.training_config.dialects import Dialect
from envcheck.training_config.interpret import Interpretation
from envcheck.training_config.merge_conflicts import BATCH_ARITHMETIC, conflicts, is_deepspeed_config
from envcheck.training_config.setting_facts import STEP


def merged(
    parts: Sequence[Interpretation], unread: Sequence[tuple[int, Fact]] = ()
) -> tuple[list[Fact], list[Diagnostic]]:
    """Return the facts that the combined parts state, and what is wrong with the combination.

    Later parts override earlier ones, and DeepSpeed configurations override all others. `unread` are facts of
    files that could not be read, each with the number of the launch that names the file (0 for all launches);
    any part that states the fact overrides them. If the launches of one script disagree on a fact, it is
    Unknown.
    """
    outcomes = []
    diagnostics: dict[tuple[object, ...], Diagnostic] = {}
    for launch, group in _launches(parts):
        outcomes.append(_facts(group, [fact for number, fact in unread if number in (0, launch)]))
        for diagnostic in conflicts(group, outcomes[-1]):
            diagnostics.setdefault((diagnostic.code, diagnostic.text, diagnostic.places), diagnostic)
            # A refused value states no fact, so it is reported only once.
            if diagnostic.code == BATCH_ARITHMETIC:
                outcomes[-1].pop("train.global_batch_size", None)
    return _agreed(outcomes), list(diagnostics.values())


def _launches(parts: Sequence[Interpretation]) -> Iterator[tuple[int, list[Interpretation]]]:
    """Yield each launch with its own parts and those common to all launches, in order; 0 without launches."""
    numbered: dict[int, list[tuple[int, Interpretation]]] = {}
    for index, part in enumerate(parts):
        numbered.setdefault(part.document.launch, []).append((index, part))
    common = numbered.pop(0, [])
    for launch, own in sorted(numbered.items(), key=itemgetter(0)) or [(0, [])]:
        yield launch, [part for _, part in sorted([*common, *own], key=itemgetter(0))]


def _facts(group: Sequence[Interpretation], unread: Sequence[Fact]) -> dict[str, Fact]:
    """Return the facts of one launch by key."""
    facts: dict[str, Fact] = {fact.key: fact for fact in unread}
    # Known from the name of a file alone, although its content could not be read.
    named = {key for key, fact in facts.items() if fact.value is not None}
    for part in sorted(group, key=is_deepspeed_config):
        own = set(named)
        for fact in part.facts:
            if (
                _says_less(fact, facts, part)
                or _is_switched_on(fact, group)
                or _knows_less(fact, part, group)
                or _counts_drivers(fact, part, group)
            ):
                continue
            if _is_not_passed_on(fact, part, group) or _is_of_unused_section(fact, part, group):
                continue
            # Within one document, a fact without a value does not replace one with a value.
            if fact.key not in own or fact.value is not None:
                facts[fact.key] = fact
                own.add(fact.key)
    _add_open_and_defaults(facts, group)
    return facts


def _add_open_and_defaults(facts: dict[str, Fact], group: Sequence[Interpretation]) -> None:
    """Add the facts that nothing states: first those that are left open, then the defaults of programs."""
    opened = [fact for part in group for fact in part.open_facts]
    defaults = [fact for part in reversed(group) for fact in part.defaults]
    # An adapter freezes the base model, whatever the flags for its parts say.
    if _has_adapter([*facts.values(), *defaults]):
        opened = [fact for fact in opened if fact.key != _FROZEN]
        defaults = [fact for fact in defaults if fact.key != _FROZEN]
        if _FROZEN in facts and facts[_FROZEN].value is False:
            del facts[_FROZEN]
    elif not _trains_whole([*facts.values(), *defaults]):
        defaults = [fact for fact in defaults if fact.key != _FROZEN or fact.value is not False]
    for fact in opened:
        facts.setdefault(fact.key, fact)
    frozen = {_FROZEN} if _has_adapter([*facts.values(), *defaults]) else set()
    for part in group:
        for key in sorted(_possible_keys(part) - facts.keys() - frozen):
            facts[key] = Fact(key, Unknown(part.document.incomplete), part.document.file)
    for fact in _suggested(group):
        facts.setdefault(fact.key, fact)
    if "train.zero_stage" in facts:  # ZeRO implies DeepSpeed, whatever the launcher
        defaults = [fact for fact in defaults if fact.key != "train.parallel"]
    for fact in defaults:
        facts.setdefault(fact.key, fact)


def _suggested(group: Sequence[Interpretation]) -> Iterator[Fact]:
    """Yield what only names suggest, after what the code of a program says of it."""
    suggested = [fact for part in group for fact in part.suggested]
    keys = {fact.key for fact in suggested}
    for part in group:
        if part.dialect is not None and part.dialect.name == _CODE:
            yield from (fact for fact in part.defaults if fact.key in keys)
    yield from suggested


def _says_less(fact: Fact, facts: Mapping[str, Fact], part: Interpretation) -> bool:
    """Return whether arguments only show transformers' Trainer, of which the program's own is a kind.

    Code that makes an object of this very class says more than the class of its arguments.
    """
    before = facts.get(_TRAINER)
    generic = fact.key == _TRAINER and fact.value == _GENERIC
    if part.dialect is not None and part.dialect.name == _CODE and _MAKES_TRAINER in part.document.names():
        return False
    return generic and before is not None and before.value in _BUILT_ON_TRANSFORMERS


def _knows_less(fact: Fact, part: Interpretation, group: Sequence[Interpretation]) -> bool:
    """Return whether the code of the launched program says more about a fact than this part.

    Names of arguments only suggest a trainer that the code may not use; transformers' Trainer is the base of
    others. accelerate's `mixed_precision: no` gives way to the arguments of a Trainer that are not read. Its
    other values hold beside `bf16 = false`: TrainingArguments only switch a precision on (training_args.py,
    transformers 4.30 to 5.23).
    """
    if part.dialect is None:
        return False
    if fact.key == _TRAINER and part.dialect.name != _CODE:
        return _has_another_trainer(fact, part, group)
    if fact.key != _PRECISION or fact.value != "fp32":
        return False
    if _GENERIC in part.dialect.lineage:
        launchers = (each for each in group if each.dialect and each.dialect.name == _ACCELERATE)
        return any(
            other.key == _PRECISION and other.value not in (None, "fp32")
            for each in launchers
            for other in each.facts
        )
    if part.dialect.name == _ACCELERATE:
        programs = (each for each in group if each.dialect and each.dialect.name == _ANY)
        return any(_may_ask_for_precision(each) for each in programs)
    return False


def _counts_drivers(fact: Fact, part: Interpretation, group: Sequence[Interpretation]) -> bool:
    """Return whether a number of processes is that of drivers which Slurm starts.

    The trainers start their processes themselves.
    """
    if fact.key != _WORLD_SIZE or part.dialect is None or part.dialect.name != _LAUNCHER:
        return False
    return any(
        each.dialect is not None and each.dialect.own_processes and each.document.launcher == STEP
        for each in group
    )


def _has_another_trainer(fact: Fact, part: Interpretation, group: Sequence[Interpretation]) -> bool:
    """Return whether the whole code of the launched program makes the object of another trainer.

    Classes of arguments in the code say more about its trainer than names of options do.
    """
    codes = [each for each in group if each.document.partial and each.document.whole]
    made = {
        other.value
        for each in codes
        if each.dialect is not None and each.dialect.name == _CODE
        for other in (*each.facts, *each.open_facts)
        if other.key == _TRAINER
    }
    if made != {_GENERIC}:
        return bool(made - {None, _GENERIC, fact.value})
    by_classes = {other.value for each in codes for other in each.facts if other.key == _TRAINER}
    return part not in codes and by_classes == {_GENERIC}


def _may_ask_for_precision(program: Interpretation) -> bool:
    """Return whether the code of a program may have arguments of a Trainer; True if some was not read."""
    source, dialect = program.document.source, program.dialect
    if source is None or dialect is None:
        return True
    unread = source.unresolved - {*dialect.libraries}
    return bool(unread) or any(_TRAINER_ARGUMENTS.search(name) for name in source.names)


def _is_not_passed_on(fact: Fact, part: Interpretation, group: Sequence[Interpretation]) -> bool:
    """Return whether settings ask for a quantisation or attention, and the program loads its model without.

    That is known if all of its code could be read.
    """
    if part.dialect is None or part.dialect.name == _CODE:
        return False
    if fact.key == _ATTENTION:
        return any(_loads_with_default_attention(each) or _loads_with_attention(each) for each in group)
    return fact.key == _QUANTIZATION and any(
        other.key == _QUANTIZATION and other.value == "none"
        for each in group
        if each.dialect is not None and each.dialect.name == _CODE and each.document.whole
        for other in each.defaults
    )


def _loads_with_default_attention(part: Interpretation) -> bool:
    """Return whether a part is the whole code of a program that loads its models and names no attention."""
    if part.dialect is None or part.dialect.name != _CODE or not part.document.whole:
        return False
    names = part.document.names()
    loads = [each for each in (_LOADS, _LOADS_BY_UNSLOTH) if each in names]
    return bool(loads) and names.isdisjoint(f"{each}.{name}" for each in loads for name in _DECIDE_ATTENTION)


def _loads_with_attention(part: Interpretation) -> bool:
    """Return whether a part is the code of a program, and a call that loads a model names its attention."""
    if part.dialect is None or part.dialect.name != _CODE:
        return False
    found = [fact for fact in part.facts if fact.key == _ATTENTION]
    return any(fact.value is not None and f" {_LOADS}." in fact.source for fact in found)


def _is_of_unused_section(fact: Fact, part: Interpretation, group: Sequence[Interpretation]) -> bool:
    """Return whether a configuration of accelerate states a fact in a section that its launch does not use.

    An option such as `--multi_gpu` decides how processes work together (_validate_launch_command in
    launch.py, accelerate 1.0 to 1.12): the sections on DeepSpeed and FSDP then change nothing.
    """
    if part.dialect is None or part.dialect.name != _ACCELERATE or part.document.form == "arguments":
        return False
    launches = [each for each in group if each.dialect is part.dialect and each.document.form == "arguments"]
    asked = {str(other.value) for each in launches for other in each.facts if other.key == _PARALLEL}
    if not asked - {"None"} or fact.key == _PARALLEL:
        return False
    unused = [
        section
        for section, way in _SECTIONS_OF_ACCELERATE.items()
        if not any(each.startswith(way) for each in asked)
    ]
    rows = (row for name, rows in part.dialect.rows.items() if name.startswith((*unused,)) for row in rows)
    return any(row.key == fact.key for row in rows)


def _is_switched_on(fact: Fact, group: Sequence[Interpretation]) -> bool:
    """Return whether arguments leave off what the code switches on in the model, whatever they say.

    What it does by default is a call that switches it on, such as prepare_model_for_kbit_training.
    """
    if fact.key != _CHECKPOINTING or fact.value is not False:
        return False
    codes = [part for part in group if part.dialect is not None and part.dialect.name == _CODE]
    enabled = [
        other for part in codes for other in part.facts if any(name in other.source for name in _ENABLES)
    ]
    by_default = [other for part in codes if _PREPARES & part.document.names() for other in part.defaults]
    return any(other.key == _CHECKPOINTING and other.value is True for other in (*enabled, *by_default))


_CODE = "python"
"""The dialect of calls in a program, which say more than the program's name."""

_TRAINER = "train.trainer"
_GENERIC = "transformers"
_ANY = "arguments"
"""The dialect of a program that is not known."""

_MAKES_TRAINER = "transformers.Trainer"
"""The setting of code that was followed to an object of transformers' Trainer, or of a derived class."""

_BUILT_ON_TRANSFORMERS = ("trl", "sentence_transformers")
_FROZEN = "train.frozen_params"
_CHECKPOINTING = "train.gradient_checkpointing"
_ENABLES = ("gradient_checkpointing_enable", "enable_gradient_checkpointing")
_PREPARES = frozenset({"prepare_model_for_kbit_training", "prepare_model_for_int8_training"})
_PRECISION = "train.precision"
_QUANTIZATION = "train.quantization"
_ATTENTION = "train.attention"
_LOADS = "from_pretrained"
_LOADS_BY_UNSLOTH = "unsloth.from_pretrained"
_DECIDE_ATTENTION = (
    "attn_implementation", "_attn_implementation", "use_flash_attention_2", "config", "unread",
)  # fmt: skip
"""Arguments of the call that loads a model which may say how it computes attention; unread ones may, too."""

_PARALLEL = "train.parallel"
_ACCELERATE = "accelerate"
_LAUNCHER = "launcher"
_WORLD_SIZE = "train.world_size"
_SECTIONS_OF_ACCELERATE = {"deepspeed_config.": "deepspeed", "fsdp_config.": "fsdp"}
"""The sections of its file that only one way of working together uses."""
_TRAINER_ARGUMENTS = pattern(r"TrainingArguments$|^(?:SFT|[A-Z]{1,5}O|Reward|PRM|GKD)Config$")
"""Classes with the arguments of a Trainer, which may ask for a precision."""


def _has_adapter(facts: Sequence[Fact]) -> bool:
    """Return whether an adapter is trained."""
    found = next((fact for fact in facts if fact.key == "train.adapter"), None)
    return found is not None and found.value not in (None, "none")


def _trains_whole(facts: Sequence[Fact]) -> bool:
    """Return whether no adapter is trained; one that is not known may leave everything else frozen."""
    found = next((fact for fact in facts if fact.key == "train.adapter"), None)
    return found is not None and found.value == "none"


def _possible_keys(part: Interpretation) -> set[str]:
    """Return the facts that arguments which could not be read may state."""
    if not part.document.incomplete or part.dialect is None:
        return set()
    return stated_keys(part.dialect)


def stated_keys(dialect: Dialect) -> set[str]:
    """Return the facts that a configuration of a dialect may state."""
    of_settings = {row.key for rows in dialect.rows.values() for row in rows if row.key}
    return of_settings | {row.key for row in (*dialect.implied, *dialect.defaults)}


def _agreed(outcomes: Sequence[Mapping[str, Fact]]) -> list[Fact]:
    """Return one fact for each key; it is Unknown if the launches differ."""
    agreed = []
    for key in dict.fromkeys(key for facts in outcomes for key in facts):
        found = [facts[key] for facts in outcomes if key in facts]
        values = {str(fact.value) for fact in found}
        if len(values) == 1 and len(found) == len(outcomes):
            agreed.append(found[0])
            continue
        differences = ", ".join(dict.fromkeys(f"{_shown(fact)} in {fact.source}" for fact in found))
        missing = " and not set elsewhere" if len(found) < len(outcomes) else ""
        reading = Unknown(f"the launches differ: {differences}{missing}")
        agreed.append(Fact(key, reading, found[0].source))
    return agreed


def _shown(fact: Fact) -> str:
    return str(fact.value).lower() if fact.value is not None else "unknown"
