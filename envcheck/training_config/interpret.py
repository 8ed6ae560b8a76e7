"""What a document means in its dialect: `train.*` facts, diagnostics, and the files that it names. Pure.

If the installed release of a package is known, that release decides which settings are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Known, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Severity
from envcheck.training_config.dialect_context import ARGUMENTS, DialectContext, location
from envcheck.training_config.dialects import Dialect, DialectRow, program_names, recognised
from envcheck.training_config.document import Document, Reference, Section, Setting, SettingValue
from envcheck.training_config.setting_diagnostics import SettingDiagnostics
from envcheck.training_config.setting_facts import (
    default_facts,
    facts,
    facts_in_open_sections,
    open_facts,
    suggested_facts,
    unread_facts,
)
from envcheck.training_config.values import FALSE, UNDECIDED, spelled

_MAX_NAMES = 8  # listed in one diagnostic
_MAX_DIAGNOSTICS = 100  # of one document
_GENERIC = ("transformers",)  # dialects of many programs; files of these programs may have sections
_PASSED_ON: Mapping[str, Sequence[str]] = {
    "peft": ("peft_type", "lora_alpha", "lora_dropout", "use_peft", "feedforward_modules"),
    "training_arguments": (
        "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "num_train_epochs",
        "lr_scheduler_type", "save_strategy", "output_dir", "warmup_ratio", "weight_decay",
        "gradient_checkpointing", "logging_steps", "save_steps", "eval_steps", "warmup_steps",
        "max_grad_norm", "bf16", "fp16", "optim",
    ),
    "model_loading": (
        "load_in_4bit", "load_in_8bit", "use_4bit", "bnb_4bit_quant_type", "attn_implementation",
    ),
}  # fmt: skip
"""The dialects of sections, with the setting names by which each is recognised."""

_LORA_SECTION = pattern(r"(?:q?lora|peft|adapter)s?(?:_?(?:config|params|args|settings))?", re.IGNORECASE)
_LORA_OPTIONS = ("r", "rank", "alpha", "target_modules", "lora_r", "lora_rank")
"""Options of LoRA that other sections have too; they count only in a section that is named like one of it."""

_LOADING = "model_loading"
_LOADS_MODEL = frozenset({"load_in_4bit", "load_in_8bit", "use_4bit", "bnb_4bit_quant_type"})
"""Options of loading a quantised model, which a section on the adapter may have as well."""

_BARE_SWITCHES = ("enabled", "enable")

_SWITCHES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "peft": (
        re.compile(r"(?:is|use|enable|with|do|apply)_(?:peft|lora|adapter)|(?:peft|lora)_enabled?"),
        "use_lora",
    ),
    "model_loading": (
        re.compile(
            r"(?:is|use|enable|with|do|apply)_(?:quant(?:ized|ization)?|bnb|qlora)"
            r"|quant(?:ization)?_enabled?|quantize"
        ),
        "use_quant",
    ),
}
"""Settings of a whole file that switch on what one of its sections describes, and their name there."""

_OWN_NAMES = (
    "precision", "mixed_precision", "gradient_checkpointing", "use_gradient_checkpointing",
    "activation_checkpointing",
    "attn_implementation", "use_lora", "use_peft", "lora_enable", "enable_lora", "use_qlora",
)  # fmt: skip
_OF_TRAINING = pattern(r"(?:num_|max_|train_|n_)*(?:epochs?|steps)|learning_rate|lr|(?:\w+_)?batch_size")
"""Names of settings that only a file for a training has."""

_DEEPEST_SECTION = 2  # dots in the name of a section that is passed on

_PATHS = ("config_path", "config_file", "path")
_ENOUGH_MARKS = {"training_arguments": 3}
# Dialects of programs that include configurations, which are named without a file ending.
_SHIPS_CONFIGURATIONS = ("torchtune",)


class Interpretation(NamedTuple):
    """A document with its facts, its diagnostics and the files it names; all are empty without a dialect.

    `defaults`, `open_facts` and `suggested` (both Unknown) apply only to facts that nothing states; the
    latter two override `defaults`, except that what a name only suggests gives way to a program's code.
    """

    document: Document
    dialect: Dialect | None
    facts: tuple[Fact, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    references: tuple[Reference, ...] = ()
    defaults: tuple[Fact, ...] = ()
    open_facts: tuple[Fact, ...] = ()
    suggested: tuple[Fact, ...] = ()


def understood(
    document: Document, dialects: Mapping[str, Dialect], installed: Mapping[str, str]
) -> list[Interpretation]:
    """Return the interpretations of the configurations embedded in a document, then that of the document.

    `installed` are versions of packages, as far as they are known.
    """
    document = _without_unused_deepspeed(document)
    dialect = recognised(document, dialects)
    found = _outermost_sections(_sections(document, dialect) if document.form != "arguments" else ())
    passed_on = {name for name, _ in found}
    inside = (*(section for _, section in found), *_overrides(document, dialect))
    sections = [part for each in inside for part in understood(each, dialects, installed)]
    if dialect is None:
        of_own = _own_names(document)
        by_name = understood(of_own, dialects, installed) if of_own is not None else []
        opened = tuple(unread_facts(document, dialects[ARGUMENTS])) if passed_on else ()
        return [
            *_without_contradictions([*by_name, *sections]),
            Interpretation(document, None, document.environment, open_facts=opened),
        ]
    targets = [each for each in document.settings if each.name.rpartition(".")[2] == "_target_"]
    document_with_sections = document
    document = document._replace(
        settings=tuple(
            each._replace(name=each.name.rpartition(".")[2] if dialect.flat else each.name)
            for each in document.settings
            if not _is_inside(each.name, passed_on)
        )
    )
    context = DialectContext(document, dialect, installed)
    inner = [
        part
        for embedded in _embedded(context, dialects)
        for part in understood(embedded, dialects, installed)
    ]
    if document.partial:
        return [*inner, _of_partial(context)]
    opened = _with_frozen_base(tuple(open_facts(context)), context)
    in_sections = document_with_sections._replace(
        settings=tuple(each for each in document_with_sections.settings if _is_inside(each.name, passed_on))
    )
    unread = tuple(unread_facts(in_sections, dialects[ARGUMENTS])) if passed_on else ()
    own = list(islice(SettingDiagnostics(context).all(), _MAX_DIAGNOSTICS + 1))
    noted = {diagnostic.places[0] for diagnostic in own if diagnostic.code == "unknown-name"}
    certain = bool(dialect.trainer) and context.proves_trainer()
    diagnostics = chain(own, () if certain else _not_understood(context, opened, noted))
    whole = Interpretation(
        document,
        dialect,
        (*_with_trainer_of_target(targets, facts(context)), *document.environment),
        tuple(_limited(diagnostics, document.file)),
        tuple(_references(context)),
        tuple(default_facts(context)),
        (*opened, *unread, *facts_in_open_sections(context), *_of_unread_program(context)),
        tuple(suggested_facts(context)),
    )
    return [*inner, *sections, whole]


def _of_partial(context: DialectContext) -> Interpretation:
    """Return what a document means of which only known values count.

    If it is the whole of a program, what that computes is unknown, whatever another call has by default.
    """
    document = context.document
    stated = [*facts(context)]
    certain = tuple(fact for fact in stated if fact.value is not None)
    named = tuple(each for each in _references(context) if not each.unknown)
    known = {fact.key for fact in certain}
    computed = tuple(fact for fact in stated if isinstance(fact.reading, Unknown) and fact.key not in known)
    if not document.whole:
        asked = tuple(fact for fact in computed if fact.key == _TRUST)
        return Interpretation(
            document,
            context.dialect,
            (*certain, *document.environment),
            references=named,
            open_facts=asked,
        )
    return Interpretation(
        document,
        context.dialect,
        (*certain, *document.environment),
        references=named,
        defaults=tuple(default_facts(context)),
        open_facts=computed,
    )


def _without_contradictions(parts: Sequence[Interpretation]) -> list[Interpretation]:
    """Return parts of one file in which a fact is Unknown that they state differently.

    Only the program that reads the file knows which of its sections counts.
    """
    stated: dict[str, set[object]] = {}
    for part in parts:  # of several facts in one part, the last one counts
        for key, value in {fact.key: fact.value for fact in part.facts if fact.value is not None}.items():
            stated.setdefault(key, set()).add(value)
    unknown = {
        key: Unknown(f"the file says {' and '.join(sorted(map(str, values)))} in two places")
        for key, values in stated.items()
        if len(values) > 1
    }
    return [
        part._replace(
            facts=tuple(fact._replace(reading=unknown.get(fact.key, fact.reading)) for fact in part.facts)
        )
        for part in parts
    ]


def _with_frozen_base(opened: tuple[Fact, ...], context: DialectContext) -> tuple[Fact, ...]:
    """Return open facts with what an adapter decides too, if it is among them and nothing states it."""
    adapter = next((fact for fact in opened if fact.key == "train.adapter"), None)
    if adapter is None or any(fact.key == adapter.key and fact.value is not None for fact in facts(context)):
        return opened
    return (*opened, adapter._replace(key="train.frozen_params"))


def _of_unread_program(context: DialectContext) -> Iterator[Fact]:
    """Yield as Unknown what a program that is not here decides when it loads the model."""
    document = context.document
    own = not {*context.dialect.programs} & program_names(document)
    if document.launcher and document.source is None and own:
        why = f"the code of {document.program[-1]} is not here, which loads the model"
        yield Fact(_TRUST, Unknown(why), document.file)


_TRUST = "train.trust_remote_code"
"""The fact that a library's default decides where nothing states it, also if a program is read in part."""


def _without_unused_deepspeed(document: Document) -> Document:
    """Return a file without its section on DeepSpeed if its `strategy` names another way to train."""
    if document.form == "arguments" or document.dialect:
        return document
    strategy = next((each.value for each in document.settings if each.name in _STRATEGIES), None)
    if not isinstance(strategy, str) or strategy.lower() not in _OTHER_STRATEGIES:
        return document
    kept = (each for each in document.settings if each.name.partition(".")[0] != "deepspeed")
    return document._replace(settings=tuple(kept))


_STRATEGIES = ("strategy", "distributed_strategy")
_OTHER_STRATEGIES = ("none", "auto", "single", "ddp", "dp", "fsdp")


def _with_trainer_of_target(targets: Iterable[Setting], stated: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return facts with the trainer whose class a `_target_` names, instead of one that names suggest.

    In TRL the class of the arguments belongs to one trainer, too.
    """
    for setting in targets:
        package, _, rest = setting.value.partition(".") if isinstance(setting.value, str) else ("", "", "")
        classes = ("Trainer", "Config") if package == "trl" else ("Trainer",)
        if rest.endswith(classes) and package in _PACKAGES_OF_TRAINERS:
            named = Fact("train.trainer", Known(package), location(setting))
            return (*(fact for fact in stated if fact.key != named.key), named)
    return tuple(stated)


_PACKAGES_OF_TRAINERS = ("trl", "transformers", "sentence_transformers")


def _is_inside(name: str, sections: Container[str]) -> bool:
    """Return whether a setting is one of these sections or inside one."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in sections for count in range(1, len(parts) + 1))


def _sections(document: Document, dialect: Dialect | None) -> Iterator[tuple[str, Document]]:
    """Yield (name, section) of the sections of a program's own file that contain arguments of a known class.

    Examples are `training_args`, with the arguments of TrainingArguments, and `peft_config`.
    """
    if (
        document.form == "arguments"
        or document.dialect
        or (dialect is not None and dialect.name not in _GENERIC)
    ):
        return
    named: dict[str, list[Setting]] = {}
    for each in document.settings:
        named.setdefault(each.name.rpartition(".")[2], []).append(each)
    given = {name: found for name, several in named.items() if (found := _outermost(several)) is not None}
    for setting in document.settings:
        if not isinstance(setting.value, Section) or setting.name.count(".") > _DEEPEST_SECTION:
            continue
        prefix = f"{setting.name}."
        inside = [
            each._replace(name=each.name.removeprefix(prefix))
            for each in document.settings
            if each.name.startswith(prefix)
        ]
        own = {each.name for each in inside}
        for name in _dialects_of_section(setting.name.rpartition(".")[2], own):
            switch, known_as = _SWITCHES.get(name, (None, ""))
            switches = [each for each in given if switch is not None and switch.fullmatch(each)]
            more = [given[each]._replace(name=known_as) for each in switches[:1] if not own & {*switches}]
            settings = (*(each for each in inside if _is_of_section(each, name, own)), *more)
            yield (
                setting.name,
                Document(
                    document.file, document.form, settings, launch=document.launch, dialect=name,
                    folder=document.folder,
                ),
            )  # fmt: skip


def _is_of_section(setting: Setting, dialect: str, names: set[str]) -> bool:
    """Return whether a setting belongs to what a section says in a dialect.

    In a section on an adapter, a bare switch is that of the adapter.
    """
    return dialect != _LOADING or setting.name not in _BARE_SWITCHES or not _is_on_adapter(names)


def _outermost_sections(sections: Iterable[tuple[str, Document]]) -> list[tuple[str, Document]]:
    """Return sections with their names, without those of which one further out is of the same kind.

    Its last name and its dialect are the same. Profiles of a file repeat its sections with what they change,
    as in `profiles.small.training`.
    """
    found = list(sections)
    fewest: dict[tuple[str, str], int] = {}
    for name, section in found:
        kind = (name.rpartition(".")[2], section.dialect)
        fewest[kind] = min(name.count("."), fewest.get(kind, name.count(".")))
    return [
        (name, section)
        for name, section in found
        if name.count(".") == fewest[(name.rpartition(".")[2], section.dialect)]
    ]


def _overrides(document: Document, dialect: Dialect | None) -> Iterator[Document]:
    """Yield what Hydra's overrides, such as `training.bf16=true`, set in sections of a program's own.

    Only names that say by themselves what they mean count, and arguments of a known class of which there are
    enough. What is not overridden is in files that the program names.
    """
    if document.form != "arguments" or document.dialect or dialect is None or dialect.name != ARGUMENTS:
        return
    groups: dict[str, list[Setting]] = {}
    for each in document.settings:
        section, _, name = each.name.rpartition(".")
        if section:
            groups.setdefault(section, []).append(each._replace(name=name))
    own = [each for inside in groups.values() for each in inside if each.name in _OWN_NAMES]
    named = {each.name for each in own}
    if len(named) == len(own):
        groups[""] = own
    for section, inside in groups.items():
        of_section = next(_dialects_of_section(section.rpartition(".")[2], {*map(_name, inside)}), "")
        of_section = of_section if section else "own" if own else ""
        if of_section:
            yield document._replace(
                settings=tuple(inside), dialect=of_section, program=(), partial=True, source=None
            )


def _dialects_of_section(section: str, names: set[str]) -> Iterator[str]:
    """Yield the dialects of a section with these names in it: its own, and that of loading the model."""
    of_adapter = _LORA_SECTION.fullmatch(section) and any(option in names for option in _LORA_OPTIONS)
    found = ["peft"] if of_adapter else []
    for dialect, marks in _PASSED_ON.items():
        if sum(mark in names for mark in marks) >= _ENOUGH_MARKS.get(dialect, 1):
            found.append(dialect)
    yield from found[:1]
    if found[:1] == ["peft"] and _LOADS_MODEL & names:
        yield _LOADING


def _is_on_adapter(names: set[str]) -> bool:
    return any(option in names for option in (*_LORA_OPTIONS, *_PASSED_ON["peft"]))


def _name(setting: Setting) -> str:
    return setting.name


def _own_names(document: Document) -> Document | None:
    """Return the settings of a program's own file whose names say by themselves what they mean, or None.

    They may be inside sections. Of a name that the file has several times, the outermost one counts, if it is
    the only one there. A file without a setting of training has none.
    """
    if document.form == "arguments" or document.partial:
        return None
    last = [each.name.rpartition(".")[2].lower() for each in document.settings]
    if not any(_OF_TRAINING.fullmatch(name) for name in last):
        return None
    found: dict[str, list[Setting]] = {}
    for each, name in zip(document.settings, last, strict=True):
        if name in _OWN_NAMES and not isinstance(each.value, Section):
            found.setdefault(name, []).append(each)
    settings = tuple(
        outermost._replace(name=name)
        for name, given in found.items()
        if (outermost := _outermost(given)) is not None
    )
    part = Document(document.file, document.form, settings, launch=document.launch, dialect="own")
    return part if settings else None


def _not_understood(
    context: DialectContext, opened: Sequence[Fact], noted: set[Place]
) -> Iterator[Diagnostic]:
    """Yield one note on the settings that affect facts in an unknown way and have no other diagnostic."""
    sources = {fact.source for fact in opened}
    settings = [
        each
        for each in context.settings.values()
        if location(each) in sources and not context.rows(each.name) and each.name_place not in noted
    ]
    if settings:
        names = [*dict.fromkeys(setting.name.partition(".")[0] for setting in settings)]
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        listed = f"{', '.join(names[:_MAX_NAMES])}{more}"
        text = f"not understood: {listed}; what they affect is unknown unless another setting states it"
        yield Diagnostic(Severity.NOTE, "not-understood", text, (settings[0].name_place,))


def _limited(diagnostics: Iterator[Diagnostic], file: str) -> Iterator[Diagnostic]:
    yield from islice(diagnostics, _MAX_DIAGNOSTICS)
    if next(diagnostics, None) is not None:
        text = f"more than {_MAX_DIAGNOSTICS} mistakes: the others are not shown"
        yield Diagnostic(Severity.WARNING, "too-many", text, (Place(file),))


def _outermost(given: Sequence[Setting]) -> Setting | None:
    """Return the setting inside the fewest sections, or None if there are several."""
    fewest = min(each.name.count(".") for each in given)
    outermost = [each for each in given if each.name.count(".") == fewest]
    return outermost[0] if len(outermost) == 1 else None


# --- other configurations ---------------------------------------------------------------------------


def _references(context: DialectContext) -> Iterator[Reference]:
    """Yield the files that settings name."""
    launch = context.document.launch
    unreadable = {name.removeprefix("./") for name, _ in context.document.unreadable_files}
    written = context.document.written_files
    readable = {name for name in written if name.removeprefix("./") not in unreadable}
    for setting in context.settings.values():
        rows = (*context.rows(setting.name), *context.rows(_without_path(setting.name)))
        row = next((row for row in rows if row.refers), None)
        if row is None or setting.value in readable:
            continue
        if isinstance(setting.value, Unknown):
            optional = context.typed or setting.perhaps
            yield Reference("", setting.place, row.refers, launch, setting.value.why, optional=optional)
        elif _names_a_file(setting.value, row) and not _is_shipped(str(setting.value), dialect=row.refers):
            yield Reference(str(setting.value), setting.place, row.refers, launch)


def _without_path(name: str) -> str:
    """Return `deepspeed` for `deepspeed.config_path`, which names the file in a section."""
    outer, _, inner = name.rpartition(".")
    return outer if outer and inner in _PATHS else name


def _is_shipped(name: str, *, dialect: str) -> bool:
    """Return whether a name is that of a configuration included in its program, such as `llama3/8B_lora`."""
    return dialect in _SHIPS_CONFIGURATIONS and not name.endswith((".yaml", ".yml", ".json"))


def _names_a_file(value: SettingValue, row: DialectRow) -> bool:
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return False
    return spelled(value) not in {*row.values, *UNDECIDED, *FALSE, "true"}


def _embedded(context: DialectContext, dialects: Mapping[str, Dialect]) -> Iterator[Document]:
    """Yield the configurations inside this one, with names relative to the setting that contains them."""
    document = context.document
    for name in context.settings:
        dialect = next((row.refers for row in context.rows(name) if row.refers), "")
        prefix = f"{name}."
        inside = [
            setting._replace(name=inner.removeprefix(prefix))
            for inner, setting in (context.settings.items() if dialect else ())
            if inner.startswith(prefix)
        ]
        if inside and any(each.name in dialects[dialect].rows for each in inside):
            yield Document(document.file, "json", tuple(inside), launch=document.launch, dialect=dialect)
