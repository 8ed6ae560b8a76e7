"""Find combinations of the configurations of one launch that a trainer or DeepSpeed refuses. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Severity
from envcheck.training_config.dialects import Dialect, ExcludedRow, FilledRow
from envcheck.training_config.document import Setting, SettingValue
from envcheck.training_config.interpret import Interpretation
from envcheck.training_config.values import TRUE, as_number, shown, spelled

BATCH_ARITHMETIC = "batch-arithmetic"
"""The code of the diagnostic on a batch size that is not the product of its factors."""

_DEEPSPEED = "deepspeed"
_MAX_COUNT = 1 << 53  # a float represents every whole number up to this one exactly


def is_deepspeed_config(part: Interpretation) -> bool:
    """Return whether a part is a DeepSpeed configuration, which overrides the others."""
    return part.dialect is not None and part.dialect.name == _DEEPSPEED


def conflicts(group: Sequence[Interpretation], facts: Mapping[str, Fact]) -> Iterator[Diagnostic]:
    """Yield what is wrong with the combined parts of one launch; `facts` are those that they state."""
    configs = [part for part in group if is_deepspeed_config(part)]
    trainers = [part for part in group if part.dialect is not None and not is_deepspeed_config(part)]
    if len(configs) > 1:
        text = f"{len(configs)} DeepSpeed configurations for one launch: the last one counts here"
        places = tuple(Place(part.document.file) for part in reversed(configs))
        yield Diagnostic(
            Severity.WARNING, "several-configurations", text, places, "name the one that is used"
        )
    for config in configs:
        if config.dialect is not None:
            yield from _DeepSpeedConfig(config, config.dialect, trainers).conflicts(facts)


def _certain_trainer(part: Interpretation) -> bool:
    """Return whether the program that reads the arguments is known; a user's script may act differently."""
    return part.dialect is not None and bool(part.dialect.trainer)


class _Given(NamedTuple):
    """Value of an argument, and the setting that gives it; without a setting it is the default."""

    value: SettingValue
    setting: Setting | None


class _DeepSpeedConfig:
    """One DeepSpeed configuration and the trainers of its launch."""

    def __init__(self, part: Interpretation, dialect: Dialect, trainers: Sequence[Interpretation]) -> None:
        self.part, self.dialect, self.trainers = part, dialect, trainers
        self.settings = _by_name(part)
        self.fillers = [trainer for trainer in trainers if trainer.dialect and trainer.dialect.fills]

    def conflicts(self, facts: Mapping[str, Fact]) -> Iterator[Diagnostic]:
        """Yield what is wrong with this configuration, given the trainers' arguments."""
        yield from self._not_plain_json()
        for filled in self.dialect.filled:
            if trainers := self._trainers_of(filled.by):
                yield from self._differs_from_arguments(filled, trainers)
        for excluded in self.dialect.excluded:
            yield from self._set_beside_the_file(excluded)
        yield from self._auto_without_trainer()
        yield from self._auto_not_filled()
        yield from self._batch_arithmetic(facts)

    def _trainers_of(self, dialect: str) -> list[Interpretation]:
        """Return the trainers of a dialect or of one that extends it."""
        return [
            trainer for trainer in self.trainers if trainer.dialect and dialect in trainer.dialect.lineage
        ]

    # --- form ---------------------------------------------------------------------------------------

    def _not_plain_json(self) -> Iterator[Diagnostic]:
        """Yield syntax beyond JSON if a program of this launch accepts plain JSON only."""
        strict = next(
            (part.dialect.strict for part in self.trainers if part.dialect and part.dialect.strict), ""
        )
        certain = any(
            part.dialect and part.dialect.strict and _certain_trainer(part) for part in self.trainers
        )
        for what, place in self.part.document.deviations:
            if strict:
                severity = Severity.ERROR if certain else Severity.WARNING
                yield Diagnostic(severity, "not-plain-json", f"{what}: {strict}", (place,), "remove it")
            elif self.dialect.strict and not self.trainers:
                text = f"{what}: {self.dialect.strict}"
                yield Diagnostic(Severity.NOTE, "not-plain-json", text, (place,))

    # --- values that differ -------------------------------------------------------------------------

    def _differs_from_arguments(
        self, row: FilledRow, trainers: Sequence[Interpretation]
    ) -> Iterator[Diagnostic]:
        """Yield a setting that differs from the arguments that it is filled in from."""
        own = self.settings.get(row.setting)
        if own is None or own.value == "auto" or _is_open(own.value):
            return
        given = _arguments(row, trainers)
        values = [argument.value for argument in given]
        if any(map(_is_open, values)) or _equal(own.value, values):
            return
        settings = [argument.setting for argument in given if argument.setting is not None]
        if not settings and not any(map(_certain_trainer, trainers)):
            return  # a script without arguments may have other defaults, or no Trainer
        origin, severity = ("", Severity.ERROR) if settings else _default_origin(trainers)
        names = " and ".join(row.arguments[: 1 if row.any else None])
        arguments = f"{names} is {', '.join(map(_quoted, values))}{origin}"
        places = [setting.place for setting in settings] or [Place(trainers[-1].document.file)]
        yield Diagnostic(
            severity,
            "contradicts-arguments",
            f"{own.name} is {_quoted(own.value)} here and {arguments}: {row.refuses}",
            (own.place, *places),
            'write "auto", and the argument decides',
            row.source,
        )

    def _set_beside_the_file(self, row: ExcludedRow) -> Iterator[Diagnostic]:
        """Yield settings of other files that must not be combined with this one."""
        for part in self._trainers_of(row.by):
            settings = _by_name(part)
            applies = all(
                name in settings and spelled(settings[name].value) == value
                for name, value in row.when.items()
            )
            both = [settings[name] for name in row.settings if name in settings]
            if part.document.form == "arguments" or not applies or not both:
                continue
            names = ", ".join(setting.name for setting in both)
            text = f"{names} beside {self.part.document.file}: {row.refuses}"
            places = tuple(setting.name_place for setting in both)
            yield Diagnostic(Severity.ERROR, "set-beside-the-file", text, places, row.advice, row.source)

    # --- "auto" -------------------------------------------------------------------------------------

    def _auto_settings(self) -> list[Setting]:
        settings = self.part.document.settings
        return [
            setting for setting in settings if setting.value == "auto" and setting.name in self.dialect.rows
        ]

    def _auto_without_trainer(self) -> Iterator[Diagnostic]:
        """Yield settings that are "auto" without a trainer that fills them in."""
        waiting = [setting for setting in self._auto_settings() if setting.name in self.dialect.auto]
        if not waiting or self.fillers:
            return
        names = waiting[0].name if len(waiting) == 1 else f"{waiting[0].name} and {len(waiting) - 1} more"
        known = next(
            (part.dialect.trainer for part in self.trainers if part.dialect and part.dialect.trainer), ""
        )
        reason = "a Hugging Face trainer fills it in, DeepSpeed alone does not"
        yield Diagnostic(
            Severity.WARNING if known else Severity.NOTE,
            "left-to-the-trainer",
            f'"auto" for {names}: {reason}{f", and {known} is none" if known else ""}',
            (waiting[0].place,),
            "write the values" if known else "name the launch script or its arguments with --train too",
        )

    def _auto_not_filled(self) -> Iterator[Diagnostic]:
        """Yield settings that are "auto" although no trainer ever fills them in."""
        for setting in self._auto_settings():
            if setting.name not in self.dialect.auto:
                refused = "accelerate, through which the Trainer starts DeepSpeed, refuses that"
                text = f'"auto" for {setting.name}: nothing fills it in; {refused}'
                severity = Severity.ERROR if any(map(_certain_trainer, self.fillers)) else Severity.WARNING
                advice = "write a value, or leave it out"
                yield Diagnostic(severity, "auto-that-nobody-fills", text, (setting.place,), advice)

    # --- batch size ---------------------------------------------------------------------------------

    def _batch_arithmetic(self, facts: Mapping[str, Fact]) -> Iterator[Diagnostic]:
        """Yield a train_batch_size that is not micro batch size x accumulation steps x processes."""
        whole = self.settings.get("train_batch_size")
        total = None if whole is None else _count(whole.value)
        if whole is None or total is None:
            return
        factors = list(self._batch_factors(facts))
        complete = len(factors) == len(_BATCH_FACTORS) + 1
        product = math.prod(factor.number for factor in factors)
        if product == 0:  # no process, or no step: such a batch size cannot be checked
            return
        if total == product or (not complete and total % product == 0):
            return
        spelled_out = " x ".join(f"{factor.number} {factor.name}" for factor in factors)
        verb = "is not" if complete else "is not a multiple of"
        text = f"train_batch_size {total} {verb} {spelled_out}: DeepSpeed refuses that"
        places = (whole.place, *(factor.place for factor in factors if factor.place is not None))
        advice = "leave train_batch_size out"
        yield Diagnostic(Severity.ERROR, BATCH_ARITHMETIC, text, places, advice, _BATCH_SOURCE)

    def _batch_factors(self, facts: Mapping[str, Fact]) -> Iterator[_Factor]:
        """Yield the factors of the batch size that are known."""
        for name, argument in _BATCH_FACTORS:
            setting = self.settings.get(name)
            if setting is None or setting.value == "auto":
                setting = _argument(self.fillers, argument).setting
            if setting is not None and (count := _count(setting.value)) is not None:
                yield _Factor(name, count, setting.place)
        world = facts.get("train.world_size")
        shares_batches = any(key in facts for key in _SHARES_BATCHES)
        if world is not None and isinstance(world.value, int) and not shares_batches:
            yield _Factor("processes", world.value, None)


class _Factor(NamedTuple):
    """A factor of the batch size."""

    name: str
    number: int
    place: Place | None


_BATCH_FACTORS = (
    ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
    ("gradient_accumulation_steps", "gradient_accumulation_steps"),
)
"""DeepSpeed's settings, and the arguments that fill them in."""

_SHARES_BATCHES = ("train.tensor_parallel", "train.sequence_parallel", "train.context_parallel")
"""Facts under which several processes share one batch, so that their number is not a factor."""

_BATCH_SOURCE = "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.5/deepspeed/runtime/config.py"


# --- arguments --------------------------------------------------------------------------------------


def _by_name(part: Interpretation) -> dict[str, Setting]:
    return {setting.name: setting for setting in part.document.settings}


def _argument(parts: Sequence[Interpretation], name: str) -> _Given:
    """Return an argument by its name in transformers: the last setting that gives it, else the default."""
    default: SettingValue = None
    for part in reversed(parts):
        rows = part.dialect.rows if part.dialect else {}
        for setting in reversed(part.document.settings):
            if any(name == (row.argument or setting.name) for row in rows.get(setting.name, ())):
                return _Given(setting.value, setting)
        if default is None:
            default = next((row.default for row in rows.get(name, ()) if row.default is not None), None)
    return _Given(default, None)


def _arguments(row: FilledRow, parts: Sequence[Interpretation]) -> list[_Given]:
    """Return the arguments that a setting is filled in from."""
    given = [_argument(parts, name) for name in row.arguments]
    return [_any_of(given)] if row.any else given


def _any_of(given: Sequence[_Given]) -> _Given:
    """Return whether any of several flags is on, with the setting that decides it."""
    for argument in given:
        if _is_open(argument.value):
            return _Given(None, argument.setting)
        if spelled(argument.value) in TRUE:
            return _Given(True, argument.setting)
    return _Given(False, next((each.setting for each in given if each.setting is not None), None))


def _default_origin(trainers: Sequence[Interpretation]) -> tuple[str, Severity]:
    """Return how a message qualifies arguments that are not given, and how severe a difference from them is.

    A script of the user may have other defaults, and arguments that could not be read may set them.
    """
    if all(part.dialect and part.dialect.programs and not part.document.incomplete for part in trainers):
        return " by default", Severity.ERROR
    return " by default (unless the script itself sets another)", Severity.WARNING


def _is_open(value: SettingValue) -> bool:
    """Return whether a value is null or Unknown."""
    return value is None or isinstance(value, Unknown)


def _equal(own: SettingValue, arguments: Sequence[SettingValue]) -> bool:
    """Return whether a setting, or each item of a list, equals its argument."""
    own_values = own if isinstance(own, tuple) else (own,)
    return len(own_values) == len(arguments) and all(map(_equal_values, own_values, arguments))


def _equal_values(one: SettingValue, other: SettingValue) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return spelled(one) in TRUE if other is True else spelled(one) not in TRUE
    numbers = as_number(one), as_number(other)
    if numbers[0] is None or numbers[1] is None:
        return one == other
    return numbers[0] == numbers[1]


def _quoted(value: SettingValue) -> str:
    """Return a value as a message shows it: a text without quotes, a list with all its items."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    return value if isinstance(value, str) else shown(value)


def _count(value: SettingValue) -> int | None:
    """Return a value that is a whole number above 0, else None."""
    number = as_number(value)
    return int(number) if number is not None and 0 < number < _MAX_COUNT and number == int(number) else None
