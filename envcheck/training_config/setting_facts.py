"""The `train.*` facts that the settings of a document state, one by one or together. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from envcheck.core.facts import Absent, Fact, Known, Reading, Tri, Unknown
from envcheck.core.rules import Severity
from envcheck.core.training_facts import KEYS
from envcheck.training_config.dialect_context import DialectContext, bool_as_number, is_named, location
from envcheck.training_config.dialects import (
    Dialect,
    DialectRow,
    Family,
    Implied,
    PartSwitches,
    program_names,
)
from envcheck.training_config.document import Document, Scalar, Section, Setting, SettingValue
from envcheck.training_config.values import FALSE, TRUE, UNDECIDED, alternatives, as_number, spelled

MODEL = "model"
"""The dialect of a model's own configuration, to which settings that name a model refer."""

_LISTS = frozenset({"train.lora_targets"})
"""Facts that are one text in which commas separate the words of a list."""


STEP = "srun"
"""The launcher of a step of Slurm's, which may start a driver alone, such as one of Ray."""


def facts(context: DialectContext) -> Iterator[Fact]:
    """Yield the facts that follow from several settings, then those that settings state, weak ones first."""
    dialect, file = context.dialect, _evidence(context)
    if dialect.trainer and context.proves_trainer():
        yield Fact("train.trainer", Known(dialect.trainer), file)
    yield from _frozen_parts(context)
    yield from _only_encoders_frozen(context)
    yield from _nothing_frozen(context)
    for implied in dialect.implied:
        if context.may_apply(implied.when, implied.versions, implied.package):
            setting = next(
                (context.settings[name] for name in implied.when if name in context.settings), None
            )
            reading: Reading = Absent() if implied.value is None else Known(implied.value)
            if implied.unknown:
                reading = Unknown(implied.unknown)
            yield Fact(implied.key, reading, location(setting) if setting else file)
    yield from _products(context)
    stated = [fact for setting in context.settings.values() for fact in _stated(context, setting, weak=False)]
    weak = [fact for setting in context.settings.values() for fact in _stated(context, setting, weak=True)]
    undecided = {fact.key for fact in (*weak, *stated) if isinstance(fact.reading, Unknown)}
    for fact in weak:
        # bf16 = false means float32 only if fp16 is known too.
        if fact.key not in undecided or fact.value is None:
            yield fact
    yield from stated


def _products(context: DialectContext) -> Iterator[Fact]:
    """Yield the products of settings of which one is given; Unknown if another one is not known.

    Where a launcher starts the processes, settings of the trainer do not decide their number, unless it
    starts a driver, which starts them.
    """
    drives = context.dialect.own_processes and context.document.launcher == STEP
    if context.document.launcher not in ("", "none") and not drives:
        return
    for row in context.dialect.products:
        given = next((context.settings[name] for name in row.of if name in context.settings), None)
        if given is None:
            continue
        assumed = row.otherwise if context.may_apply(row.when, "", row.package) else {}
        values = [_number_of(context, name, assumed) for name in row.of]
        unknown = next((value for value in values if isinstance(value, Unknown)), None)
        numbers = [value for value in values if not isinstance(value, Unknown)]
        yield Fact(row.key, unknown or Known(math.prod(numbers)), location(given))


def _number_of(context: DialectContext, name: str, assumed: Mapping[str, int]) -> int | Unknown:
    """Return the whole number that a setting is, or is assumed to be where it is not given."""
    setting = context.settings.get(name)
    value = setting.value if setting is not None else assumed.get(name)
    if isinstance(value, Unknown):
        return value
    number = as_number(value)
    whole = number is not None and math.isfinite(number) and number == int(number) and number > 0
    return int(number) if whole and number is not None else Unknown(f"{name} is not known")


def _evidence(context: DialectContext) -> str:
    """Return the place of the first setting that proves a document's dialect, or suggests it; or the file."""
    for names in (context.dialect.proofs, context.dialect.marks):
        found = next((setting for name, setting in context.settings.items() if name in names), None)
        if found is not None:
            return location(found)
    first = next(iter(context.settings.values()), None)
    return location(first) if first is not None else context.document.file


def _stated(context: DialectContext, setting: Setting, *, weak: bool) -> Iterator[Fact]:
    """Yield the facts that one setting states by its weak rows, or by the others.

    A row states nothing if the installed release ignores its name. In a partial document, a weak row counts
    only for what an argument of a trainer switches on: what is off says something only beside others.
    """
    decided: set[str] = set()
    partial = weak and context.document.partial
    for row in context.rows(setting.name):
        if _is_ignored(context, setting, row):
            continue
        if partial and (not context.dialect.trainer or row.when == "false"):
            continue
        if any(name in context.settings and _is_off(context.settings[name].value) for name in row.off):
            continue
        if row.key in decided or (reading := _reading(context, row, _value(row, setting))) is None:
            continue
        if setting.perhaps and isinstance(setting.value, Unknown):
            reading = setting.value
        decided.add(row.key)
        if row.weak is weak and not _outside_vocabulary(row, reading):
            yield Fact(row.key, reading, location(setting))


def _is_ignored(context: DialectContext, setting: Setting, row: DialectRow) -> bool:
    """Return whether the installed release does not read this name in its section, and does not refuse it.

    A refused name still states what its author means. Outside of sections, a script may add the name itself.
    """
    section = setting.name.rpartition(".")[0]
    return bool(section) and (
        context.release_matches(row.versions, row.package) is Tri.NO
        and context.refuses_unknown(section) is not Tri.YES
    )


def _value(row: DialectRow, setting: Setting) -> SettingValue:
    """Return the value of a setting; of a list on a command line, all its words."""
    takes_several = row.kind == "words" or row.key in _LISTS
    if not takes_several or not setting.more or isinstance(setting.value, tuple | Section):
        return setting.value
    words = (setting.value, *setting.more)
    unknown = next((word for word in words if isinstance(word, Unknown)), None)
    return unknown or tuple(word for word in words if not isinstance(word, Unknown))


def _frozen_parts(context: DialectContext) -> Iterator[Fact]:
    """Yield that a part of the model is frozen, for each flag that freezes one."""
    for switches, setting, frozen in _switched(context):
        if frozen and not (context.dialect.name in switches.present_in and _has_no_parts(context, switches)):
            yield Fact(switches.key, Known(True), location(setting))


def _only_encoders_frozen(context: DialectContext) -> Iterator[Fact]:
    """Yield that nothing but encoders is frozen, with what connects them, and that no gradient passes them.

    It is not known if another flag, whose value is not known, may freeze more, or if code that is not read
    may ask for gradients of what an encoder is given.
    """
    found = list(_switched(context))
    for switches in context.dialect.switches:
        frozen = [setting for of, setting, frozen in found if of is switches and frozen]
        encoders, connectors = re.compile(switches.encoders), re.compile(switches.connectors)
        first = next((each for each in frozen if encoders.search(_leaf(each))), None)
        all_before = all(encoders.search(_leaf(each)) or connectors.search(_leaf(each)) for each in frozen)
        if first is not None and all_before:
            yield Fact(
                switches.only_encoders,
                _undecided_flag(context, switches) or _gradients_of_inputs(context, switches) or Known(True),
                location(first),
            )


def _undecided_flag(context: DialectContext, switches: PartSwitches) -> Unknown | None:
    """Return the value of a flag that freezes or trains a part and is not known, or None."""
    flags = re.compile(f"(?:{switches.freezes})|(?:{switches.trains})")
    values = (each.value for each in context.settings.values() if flags.fullmatch(_leaf(each)))
    return next((value for value in values if isinstance(value, Unknown)), None)


def _gradients_of_inputs(context: DialectContext, switches: PartSwitches) -> Unknown | None:
    """Return why inputs of encoders may need gradients, or None if the code that was read asks for none."""
    source = context.document.source
    if source is None or _unread(context):
        return Unknown("code that is not read may ask for gradients of what an encoder is given")
    names = source.names if source.reached is None else source.reached
    asks = next((name for name in sorted(names) if name.lower() in switches.gradients), None)
    return Unknown(f"{asks} may ask for gradients of what an encoder is given") if asks else None


def _leaf(setting: Setting) -> str:
    """Return the last part of a name, in lower case."""
    return setting.name.lower().rpartition(".")[2]


def _has_no_parts(context: DialectContext, switches: PartSwitches) -> bool:
    """Return whether the name of the model is known and does not suggest parts that can be frozen."""
    models = [
        setting.value.lower()
        for setting in context.settings.values()
        if isinstance(setting.value, str) and any(row.refers == MODEL for row in context.rows(setting.name))
    ]
    patterns = [family.models for family in context.dialect.families if family.key == switches.key]
    return bool(models) and not any(re.search(pattern, model) for pattern in patterns for model in models)


def _switched(context: DialectContext) -> Iterator[tuple[PartSwitches, Setting, bool]]:
    """Yield the flags that freeze or train a part, and whether each leaves its part frozen."""
    for switches in context.dialect.switches:
        freezes, trains = re.compile(switches.freezes), re.compile(switches.trains)
        for setting in context.settings.values():
            text = spelled(setting.value)
            if isinstance(setting.value, Section | Unknown) or text not in TRUE | FALSE:
                continue
            name = _leaf(setting)
            if freezes.fullmatch(name):
                yield switches, setting, text in TRUE
            elif trains.fullmatch(name) and not _trains_alone(context, switches, setting):
                yield switches, setting, text in FALSE


def _trains_alone(context: DialectContext, switches: PartSwitches, setting: Setting) -> bool:
    """Return whether a flag that is on trains its part alone: off, it freezes nothing."""
    rows = context.rows(setting.name)
    return any(row.key == switches.key and row.value is True and row.when == "true" for row in rows)


def _nothing_frozen(context: DialectContext) -> Iterator[Fact]:
    """Yield that nothing is frozen, if enough flags are given and none freezes its part."""
    found = list(_switched(context))
    for switches in context.dialect.switches:
        own = [setting for of, setting, frozen in found if of is switches and not frozen]
        if len(own) >= switches.enough and len(own) == sum(of is switches for of, _, _ in found):
            yield Fact(switches.key, Known(False), location(own[0]))


def default_facts(context: DialectContext) -> Iterator[Fact]:
    """Yield the defaults of the program; Unknown if a default depends on a release that is not known."""
    possible: dict[str, list[Implied]] = {}
    settled: set[str] = set()
    for row in context.dialect.defaults:
        if row.key in settled or not context.may_apply(row.when, row.versions, row.package):
            continue
        possible.setdefault(row.key, []).append(row)
        if context.release_matches(row.versions, row.package) is Tri.YES:
            settled.add(row.key)
    source = f"default of {context.dialect.title}"
    refused = _refused(context)
    for key, rows in possible.items():
        if key in refused:
            yield Fact(key, Unknown("its value is not one that can be read", asked=False), refused[key])
            continue
        value, *others = dict.fromkeys(row.value for row in rows)
        if rows[0].unknown:
            reading: Reading = Unknown(rows[0].unknown)
        elif others:
            reading = Unknown(f"its default depends on the release of {rows[0].package}", asked=False)
        else:
            reading = Absent() if value is None else Known(value)
        yield Fact(key, reading, source)
    yield from _absent_from_code(context)
    yield from _never_imported(context)


def _refused(context: DialectContext) -> dict[str, str]:
    """Return the places of values that are invalid or not listed, by the fact that they would decide.

    The default of such a fact would be false: the program either stops or knows a value that is unknown here.
    """
    found: dict[str, str] = {}
    for setting in context.settings.values():
        if isinstance(setting.value, Unknown | Section) or spelled(setting.value) in UNDECIDED | FALSE:
            continue
        for row in context.rows(setting.name):
            if not row.key or row.weak:
                continue
            wrong, severity = context.problem(row, setting.value)
            unlisted = bool(row.values or row.patterns) and _reading(context, row, setting.value) is None
            if (wrong and severity is Severity.ERROR) or (unlisted and row.kind == "word"):
                found.setdefault(row.key, location(setting))
    return found


def _never_imported(context: DialectContext) -> Iterator[Fact]:
    """Yield that the program does not run a library, where its whole code was read and cannot lead to it."""
    source = context.document.source
    dialect = context.dialect
    if source is None:
        return
    names = source.names | source.packages | {name.rpartition(".")[2] for name in source.calls}
    if names & {*dialect.hidden} or not names & {*dialect.own_loop}:
        return
    imported = source.unresolved | source.outside
    for row in dialect.never_imported:
        if imported <= {*dialect.plain, *row.packages} and not names & {*row.names}:
            for key in row.keys:
                yield Fact(key, Known(False), f"{source.file}, which does not import it")


def _absent_from_code(context: DialectContext) -> Iterator[Fact]:
    """Yield facts that are absent because the code never names them, or because its flags are off by default.

    Yield nothing if some of the program's code could not be read.
    """
    source = context.document.source
    if source is None or _unread(context):
        return
    for family in context.dialect.families:
        if family.absent is None or not {*family.anywhere}.isdisjoint(map(str.lower, source.names)):
            continue
        if _code_never_names(context, family):
            yield Fact(family.key, Known(family.absent), f"{source.file}, which does not name it")
        elif any(is_named(family, name.lower()) for name in source.seen):
            continue  # the program reaches it, perhaps under a condition
        elif family.switch and (switches := _switches_of(family, source.options)) and not any(switches):
            yield Fact(family.key, Known(family.absent), f"{source.file}, where it is off by default")


def _unread(context: DialectContext) -> bool:
    """Return whether some of the program's code could not be read, apart from known libraries."""
    source = context.document.source
    return source is None or bool(source.unresolved - {*context.dialect.libraries})


def _code_never_names(context: DialectContext, family: Family) -> bool:
    """Return whether the program's code could be read and no name in it affects the fact of a family."""
    source = context.document.source
    if source is None or _unread(context):
        return False
    found = source.names if source.reached is None else source.reached
    found -= source.bodies if family.bodies else frozenset()
    return not any(is_named(family, name.lower()) for name in found)


def _switches_of(family: Family, options: Mapping[str, Scalar]) -> list[bool]:
    """Return whether each option that switches on a family's feature does so by default.

    Such are flags, words such as `none` or `lora`, and numbers that are 0. Any other number, such as a rank,
    is left out: it may take effect only with a flag.
    """
    return [
        bool(default) and spelled(default) not in FALSE | UNDECIDED
        for name, default in options.items()
        if (isinstance(default, bool | str) or (type(default) in (int, float) and not default))
        and re.fullmatch(family.switch, name.lower())
        and is_named(family, name.lower())
    ]


def open_facts(context: DialectContext) -> Iterator[Fact]:
    """Yield as Unknown the facts that the name of a setting, model or program affects in an unknown way.

    A setting that states another fact can leave open only `train.quantization`.
    """
    switched = {setting.name for _, setting, _ in _switched(context)}
    for setting in context.settings.values():
        rows = context.rows(setting.name)
        if setting.name in switched or _is_off(setting.value) or not all(row.key for row in rows):
            continue
        words = setting.name.lower()
        stated = {row.key for row in rows}
        for family in context.dialect.families:
            if stated and (family.key in stated or family.key != "train.quantization"):
                continue
            if any(word in words for word in family.words) and not any(
                word in words for word in family.beside
            ):
                reading = Unknown(f"{setting.name} is not understood")
                yield Fact(family.key, reading, location(setting))
    yield from _opened_by_condition(context)
    yield from _opened_by_model(context)


def facts_in_open_sections(context: DialectContext) -> Iterator[Fact]:
    """Yield as Unknown the facts of settings in the sections of a written file that are not known."""
    for setting in context.settings.values() if context.document.written_as else ():
        if isinstance(setting.value, Unknown):
            for name in sorted(context.dialect.sections.get(setting.name, ())):
                for row in context.rows(f"{setting.name}.{name}"):
                    if row.key:
                        yield Fact(row.key, setting.value, location(setting))


def unread_facts(document: Document, general: Dialect) -> Iterator[Fact]:
    """Yield as Unknown the quantisation that a file without a dialect asks for; `general` has the families.

    Any of its settings may decide it, whether its section has a dialect or not. Without this fact, an adapter
    that one of the sections states would give the default of a program that asks for none. If a file that is
    given alone says nothing of it, the program that reads it decides it.
    """
    families = [family for family in general.families if family.key == "train.quantization"]
    names = [setting.name.lower() for setting in document.settings]
    words = [word for family in families for word in family.words]
    if not document.launch and not any(word in name for word in words for name in names):
        why = "the program that reads this file decides how the base model is loaded"
        yield Fact("train.quantization", Unknown(why), document.file)
    for setting in document.settings:
        name = setting.name.lower()
        if _is_off(setting.value):
            continue
        for family in families:
            if any(word in name for word in family.words) and not any(word in name for word in family.beside):
                yield Fact(family.key, Unknown(f"{setting.name} is not understood"), location(setting))


def _opened_by_condition(context: DialectContext) -> Iterator[Fact]:
    """Yield as Unknown the facts that a setting implies by a value that is known only at run time."""
    for implied in context.dialect.implied:
        setting = context.undecided_by(implied.when)
        if setting is not None and isinstance(setting.value, Unknown):
            yield Fact(implied.key, setting.value, location(setting))


def suggested_facts(context: DialectContext) -> Iterator[Fact]:
    """Yield as Unknown the facts that only the name of the file or of the program suggests."""
    names = [context.document.file, *context.document.program]
    for family in context.dialect.families:
        told = next(
            (name for name in names if family.programs and re.search(family.programs, name.lower())), ""
        )
        told = "" if {*context.dialect.programs} & program_names(context.document) else told
        if told:
            reading = Unknown(f"the name of {told} suggests it, and no setting states it")
            yield Fact(family.key, reading, context.document.file)


def _opened_by_model(context: DialectContext) -> Iterator[Fact]:
    """Yield as Unknown the facts that the name of the model affects."""
    for setting in context.settings.values():
        if not isinstance(setting.value, str) or not any(
            row.refers == MODEL for row in context.rows(setting.name)
        ):
            continue
        for family in context.dialect.families:
            if family.models and _may_be_affected(context, family, setting.value):
                reading = Unknown(
                    f"{setting.value} is a model whose name suggests it, and no setting states it"
                )
                yield Fact(family.key, reading, location(setting))


def _may_be_affected(context: DialectContext, family: Family, model: str) -> bool:
    """Return whether the name of a model suggests a fact that nothing else settles."""
    if not re.search(family.models, model.lower()):
        return False
    whole = context.typed and context.dialect.name in family.whole
    return not (family.parts and (whole or _code_never_names(context, family)))


def _is_off(value: SettingValue) -> bool:
    """Return whether a value leaves its setting off, whatever the setting means."""
    if isinstance(value, Section | Unknown):
        return isinstance(value, Section)
    return value != "" and spelled(value) in FALSE | UNDECIDED


def value_outside_fact(context: DialectContext, row: DialectRow, value: SettingValue) -> str:
    """Return what is wrong with a value that the fact of its row cannot have, or ""."""
    reading = _reading(context, row, value)
    return "" if reading is None else _outside_vocabulary(row, reading)


def _reading(context: DialectContext, row: DialectRow, value: SettingValue) -> Reading | None:
    """Return the fact value that a row derives; None if the value states nothing or is of the wrong kind."""
    if not row.key:
        return None
    if isinstance(value, Unknown):
        # A program may compute None, but a command-line argument with an unknown value is given.
        return value if row.when != "given" or row.value is None or context.typed else Known(row.value)
    text = spelled(bool_as_number(value, row))
    if row.values or row.patterns:
        return _listed(row, text)
    if _states_nothing(context, row, value, text):
        return None
    if row.value is None:
        return Known(_words(text) if row.kind == "words" else _as_fact(row.kind, text))
    fact_value = row.value if _meets(row, text) else row.otherwise
    return None if fact_value is None else Known(fact_value)


def _listed(row: DialectRow, text: str) -> Known | None:
    """Return the value that a row lists for a text, one of its words, or the first pattern that matches."""
    texts = [text, *_words(text)] if row.kind == "words" else [text]
    found = [row.values[each] for each in texts if each in row.values]
    found += [value for pattern, value in row.patterns.items() if re.search(pattern, text)]
    return Known(found[0]) if found else None


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"[\s,]+", text))


def _states_nothing(context: DialectContext, row: DialectRow, value: SettingValue, text: str) -> bool:
    """Return whether a value leaves its setting undecided or is refused; a bare flag is true."""
    bare_flag = row.kind == "flag" and text == "" and not context.typed
    if text in UNDECIDED and not bare_flag and not isinstance(value, Section):
        return True
    wrong, severity = context.problem(row, value)
    return bool(wrong) and severity is Severity.ERROR


def _meets(row: DialectRow, text: str) -> bool:
    """Return whether a text meets the row's `when`, so that the fact has the row's `value`."""
    if row.when in ("any", "given"):
        return True
    if row.when == "positive":
        return (as_number(text) or 0) > 0
    return (text in TRUE) == (row.when == "true") if row.kind == "flag" else text not in FALSE


def _as_fact(kind: str, text: str) -> str | int | bool:
    """Return the value of a fact that is the setting's own value."""
    if kind == "flag":
        return text in TRUE
    number = as_number(text) or 0
    if kind == "positive":
        return number > 0
    if kind == "whole":
        return int(text) if text.isdigit() else int(number)
    return text


def _outside_vocabulary(row: DialectRow, reading: Reading) -> str:
    """Return what is wrong with a value that the fact cannot have, or ""."""
    words = KEYS[row.key].words if isinstance(reading, Known) else ()
    if not isinstance(reading, Known) or not words or str(reading.value) in words:
        return ""
    return f"expected {alternatives(words)}, found {reading.value!r}"
