"""Several configurations of one launch, merged the way the trainer merges them. Pure.

A DeepSpeed configuration has the last word on what it sets. What it leaves `"auto"` the trainer's arguments
fill in, and what it sets otherwise than they do the trainer refuses (`filled` rows of the dialect).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Severity
from envcheck.training_config.document import Said, Setting
from envcheck.training_config.interpret import Interpretation
from envcheck.training_config.values import TRUE, as_number, shown, spelled

_LAST_WORD = "deepspeed"


def merged(parts: Sequence[Interpretation]) -> tuple[list[Fact], list[Diagnostic]]:
    """The facts that all parts together state, and what is wrong with them together.

    Parts come in the order in which they count, the last one most. Launches of one script that disagree
    leave a fact Unknown.
    """
    launches = sorted({part.document.launch for part in parts} - {0}) or [0]
    outcomes = []
    remarks: dict[tuple[object, ...], Diagnostic] = {}
    for launch in launches:
        group = [part for part in parts if part.document.launch in (0, launch)]
        outcomes.append(_facts(group))
        for remark in _contradictions(group, outcomes[-1]):
            remarks.setdefault((remark.code, remark.text, remark.places), remark)
            if remark.code == _BATCH:  # a value that is refused states no fact, nor is it told twice
                outcomes[-1].pop("train.global_batch_size", None)
    return _agreed(outcomes), list(remarks.values())


def _facts(group: Sequence[Interpretation]) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for part in sorted(group, key=_has_the_last_word):
        own: set[str] = set()
        for fact in part.facts:
            # Within one document a decided fact is not taken back by what leaves it open.
            if fact.key not in own or fact.value is not None:
                facts[fact.key] = fact
                own.add(fact.key)
    for part in group:
        for key in sorted(_may_be_said(part) - facts.keys()):
            facts[key] = Fact(key, Unknown(part.document.open_end), part.document.file)
    return facts


def _may_be_said(part: Interpretation) -> set[str]:
    """The facts that arguments which cannot be read here may state."""
    if not part.document.open_end or part.dialect is None:
        return set()
    return {row.key for rows in part.dialect.rows.values() for row in rows if row.key}


def _has_the_last_word(part: Interpretation) -> bool:
    return part.dialect is not None and part.dialect.name == _LAST_WORD


def _agreed(outcomes: Sequence[Mapping[str, Fact]]) -> list[Fact]:
    """One fact a key; where launches differ, nobody knows which one is meant."""
    agreed = []
    for key in dict.fromkeys(key for facts in outcomes for key in facts):
        found = [facts[key] for facts in outcomes if key in facts]
        values = list(dict.fromkeys(str(each.value) for each in found))
        if len(values) == 1 and len(found) == len(outcomes):
            agreed.append(found[0])
            continue
        said = ", ".join(dict.fromkeys(f"{_shown(each)} in {each.source}" for each in found))
        missing = " and nothing elsewhere" if len(found) < len(outcomes) else ""
        agreed.append(Fact(key, Unknown(f"the launches differ: {said}{missing}"), found[0].source))
    return agreed


def _shown(fact: Fact) -> str:
    return str(fact.value).lower() if fact.value is not None else "unknown"


# --- what the trainer refuses -----------------------------------------------------------------------


def _contradictions(group: Sequence[Interpretation], facts: Mapping[str, Fact]) -> Iterator[Diagnostic]:
    several = [part for part in group if _has_the_last_word(part)]
    if len(several) > 1:
        text = f"{len(several)} DeepSpeed configurations for one launch: the last one counts here"
        places = tuple(Place(part.document.file) for part in reversed(several))
        yield Diagnostic(
            Severity.WARNING, "several-configurations", text, places, "name the one that is used"
        )
    for inner in several:
        trainers = [part for part in group if part.dialect is not None and not _has_the_last_word(part)]
        yield from _form(inner, trainers)
        for row in inner.dialect.filled if inner.dialect else ():
            asked = [part for part in trainers if part.dialect and row["by"] in part.dialect.lineage]
            yield from _filled(row, inner, asked) if asked else ()
        for row in inner.dialect.excluded if inner.dialect else ():
            asked = [part for part in trainers if part.dialect and row["by"] in part.dialect.lineage]
            yield from _excluded(row, inner, asked)
        yield from _left_open(inner, trainers)
        yield from _batch(inner, trainers, facts)


def _sure(part: Interpretation) -> bool:
    """Whether it is known whose arguments these are: a script of one's own may do otherwise."""
    return part.dialect is not None and bool(part.dialect.trainer)


def _form(inner: Interpretation, trainers: Sequence[Interpretation]) -> Iterator[Diagnostic]:
    """What is more than JSON, where a program reads the file that takes plain JSON only."""
    strict = [part for part in trainers if part.dialect and part.dialect.strict]
    lenient = inner.dialect.strict if inner.dialect else ""
    for what, place in inner.document.liberties:
        if strict and strict[0].dialect:
            severity = Severity.ERROR if any(map(_sure, strict)) else Severity.WARNING
            text = f"{what}: {strict[0].dialect.strict}"
            yield Diagnostic(severity, "not-plain-json", text, (place,), "take it out")
        elif lenient and not trainers:
            yield Diagnostic(Severity.NOTE, "not-plain-json", f"{what}: {lenient}", (place,))


def _filled(
    row: Mapping[str, Any], inner: Interpretation, trainers: Sequence[Interpretation]
) -> Iterator[Diagnostic]:
    ours = _settings(inner).get(str(row["setting"]))
    if ours is None or ours.value is None or ours.value == "auto" or isinstance(ours.value, Unknown):
        return
    theirs = [_argument(trainers, str(name)) for name in row["from"]]
    if row.get("any"):
        theirs = [_any(theirs)]
    values = [value for value, _ in theirs]
    if any(value is None or isinstance(value, Unknown) for value in values):
        return
    wanted = ours.value if isinstance(ours.value, tuple) else (ours.value,)
    if len(wanted) == len(values) and all(
        _equal(one, other) for one, other in zip(wanted, values, strict=True)
    ):
        return
    names = " and ".join(str(name) for name in row["from"][: 1 if row.get("any") else None])
    given = [setting for _, setting in theirs if setting is not None]
    if not given and not any(map(_sure, trainers)):
        return  # a script that is told nothing has its own defaults, if it has a Trainer at all
    theirs_is = f"{names} is {', '.join(_said(value) for value in values)}{'' if given else ' by default'}"
    # A script of one's own may have other defaults, and what cannot be read here may give the argument.
    own = not all(part.dialect and part.dialect.programs and not part.document.open_end for part in trainers)
    unless = "" if given or not own else " (unless the script itself sets another)"
    severity = Severity.WARNING if unless else Severity.ERROR
    yield Diagnostic(
        severity,
        "contradicts-arguments",
        f"{ours.name} is {_said(ours.value)} here and {theirs_is}{unless}: {row['refuses']}",
        (
            ours.place,
            *(setting.place for setting in given),
            *(() if given else (Place(trainers[-1].document.file),)),
        ),
        'write "auto", and the argument decides',
        str(row.get("source", "")),
    )


def _excluded(
    row: Mapping[str, Any], inner: Interpretation, trainers: Sequence[Interpretation]
) -> Iterator[Diagnostic]:
    """What another file may not set beside this one."""
    for part in trainers:
        settings = _settings(part)
        wanted = row["when"].items()
        if part.document.form == "arguments" or not all(
            name in settings and spelled(settings[name].value) == value for name, value in wanted
        ):
            continue
        both = [settings[name] for name in row["settings"] if name in settings]
        if both:
            text = f"{', '.join(each.name for each in both)} beside {inner.document.file}: {row['refuses']}"
            places = tuple(each.named for each in both)
            yield Diagnostic(
                Severity.ERROR, "set-beside-the-file", text, places, row["advice"], row["source"]
            )


def _settings(part: Interpretation) -> dict[str, Setting]:
    return {setting.name: setting for setting in part.document.settings}


def _argument(parts: Sequence[Interpretation], name: str) -> tuple[Said, Setting | None]:
    """What an argument is, by its name in transformers, and the last setting that says so, if one does."""
    default: Said = None
    for part in reversed(parts):
        rows = part.dialect.rows if part.dialect else {}
        for setting in reversed(part.document.settings):
            if any(name == (row.argument or setting.name) for row in rows.get(setting.name, ())):
                return setting.value, setting
        if default is None:
            default = next((row.default for row in rows.get(name, ()) if row.default is not None), None)
    return default, None


def _any(found: Sequence[tuple[Said, Setting | None]]) -> tuple[Said, Setting | None]:
    """Whether one of several flags is on, and the one that decides it."""
    for value, setting in found:
        if isinstance(value, Unknown) or value is None:
            return None, setting
        if spelled(value) in TRUE:
            return True, setting
    return False, next((setting for _, setting in found if setting is not None), None)


def _equal(one: Said, other: Said) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return spelled(one) in TRUE if other is True else spelled(one) not in TRUE
    numbers = as_number(one), as_number(other)
    if numbers[0] is None or numbers[1] is None:
        return one == other
    return numbers[0] == numbers[1]


def _said(value: Said) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_said, value))}]"
    return value if isinstance(value, str) else shown(value)


def _left_open(inner: Interpretation, trainers: Sequence[Interpretation]) -> Iterator[Diagnostic]:
    """What is "auto": who fills it in, and what nobody does."""
    dialect = inner.dialect
    if dialect is None:
        return
    left = [each for each in inner.document.settings if each.value == "auto" and each.name in dialect.rows]
    fillers = [part for part in trainers if part.dialect and part.dialect.fills]
    waiting = [each for each in left if each.name in dialect.auto]
    if waiting and not fillers:
        names = waiting[0].name if len(waiting) == 1 else f"{waiting[0].name} and {len(waiting) - 1} more"
        alone = "a Hugging Face trainer fills it in, DeepSpeed alone does not"
        known = next((part.dialect.trainer for part in trainers if part.dialect and part.dialect.trainer), "")
        yield Diagnostic(
            Severity.WARNING if known else Severity.NOTE,
            "left-to-the-trainer",
            f'"auto" for {names}: {alone}{f", and {known} is none" if known else ""}',
            (waiting[0].place,),
            "write the values" if known else "name the launch script or its arguments with --train too",
        )
    for each in left:
        if each.name not in dialect.auto:
            refused = "accelerate, through which the Trainer starts DeepSpeed, refuses that"
            text = f'"auto" for {each.name}: nothing fills it in; {refused}'
            severity = Severity.ERROR if any(map(_sure, fillers)) else Severity.WARNING
            yield Diagnostic(
                severity, "auto-that-nobody-fills", text, (each.place,), "write a value, or leave it out"
            )


_BATCH = "batch-arithmetic"
_FACTORS = (
    ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
    ("gradient_accumulation_steps", "gradient_accumulation_steps"),
)
_SHARED = ("train.tensor_parallel", "train.sequence_parallel", "train.context_parallel")


def _batch(
    inner: Interpretation, trainers: Sequence[Interpretation], facts: Mapping[str, Fact]
) -> Iterator[Diagnostic]:
    """train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x processes."""
    settings = _settings(inner)
    whole = settings.get("train_batch_size")
    total = None if whole is None else _count(whole.value)
    if whole is None or total is None:
        return
    factors: list[tuple[str, int, Place | None]] = []
    for name, argument in _FACTORS:
        ours = settings.get(name)
        if ours is None or ours.value == "auto":
            fillers = [part for part in trainers if part.dialect and part.dialect.fills]
            _, ours = _argument(fillers, argument)
        if ours is not None and (count := _count(ours.value)) is not None:
            factors.append((name, count, ours.place))
    world = facts.get("train.world_size")
    if world is not None and isinstance(world.value, int) and not any(key in facts for key in _SHARED):
        factors.append(("processes", world.value, None))
    product = math.prod(count for _, count, _ in factors)
    if total % product == 0 and (len(factors) < len(_FACTORS) + 1 or total == product):
        return
    said = " x ".join(f"{count} {name}" for name, count, _ in factors)
    verb = "is not" if len(factors) > len(_FACTORS) else "is no multiple of"
    text = f"train_batch_size {total} {verb} {said}: DeepSpeed refuses that"
    places = (whole.place, *(place for _, _, place in factors if place is not None))
    yield Diagnostic(Severity.ERROR, _BATCH, text, places, "leave train_batch_size out", _BATCH_SOURCE)


_BATCH_SOURCE = "https://github.com/deepspeedai/DeepSpeed/blob/v0.19.5/deepspeed/runtime/config.py"


def _count(value: Said) -> int | None:
    """A whole number above 0, as a count has to be."""
    number = as_number(value)
    return int(number) if number is not None and 0 < number < _MOST and number == int(number) else None


_MOST = 1 << 53
