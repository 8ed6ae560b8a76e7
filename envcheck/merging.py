"""Several configurations of one launch, merged the way the trainer merges them. Pure.

A DeepSpeed configuration has the last word on what it sets. What it leaves `"auto"` the trainer's arguments
fill in, and what it sets otherwise than they do the trainer refuses (`filled` rows of the dialect).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.model import Fact, Place, Remark, Severity, Unknown
from envcheck.settings import Said, Setting
from envcheck.understanding import Understood
from envcheck.values import TRUE, as_number, shown, spelled

_LAST_WORD = "deepspeed"


def merged(parts: Sequence[Understood]) -> tuple[list[Fact], list[Remark]]:
    """The facts that all parts together state, and what is wrong with them together.

    Parts come in the order in which they count, the last one most. Launches of one script that disagree
    leave a fact Unknown.
    """
    launches = sorted({part.document.launch for part in parts} - {0}) or [0]
    outcomes = []
    remarks: dict[tuple[object, ...], Remark] = {}
    for launch in launches:
        group = [part for part in parts if part.document.launch in (0, launch)]
        outcomes.append(_facts(group))
        for remark in _contradictions(group):
            remarks.setdefault((remark.code, remark.text, remark.places), remark)
    return _agreed(outcomes), list(remarks.values())


def _facts(group: Sequence[Understood]) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for part in sorted(group, key=_has_the_last_word):
        own: set[str] = set()
        for fact in part.facts:
            # Within one document a decided fact is not taken back by what leaves it open.
            if fact.key not in own or fact.value is not None:
                facts[fact.key] = fact
                own.add(fact.key)
    return facts


def _has_the_last_word(part: Understood) -> bool:
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
        said = ", ".join(dict.fromkeys(f"{shown_fact(each)} in {each.source}" for each in found))
        missing = " and nothing elsewhere" if len(found) < len(outcomes) else ""
        agreed.append(Fact(key, Unknown(f"the launches differ: {said}{missing}"), found[0].source))
    return agreed


def shown_fact(fact: Fact) -> str:
    """A fact's value, in a sentence."""
    return str(fact.value).lower() if fact.value is not None else "unknown"


# --- what the trainer refuses -----------------------------------------------------------------------


def _contradictions(group: Sequence[Understood]) -> Iterator[Remark]:
    for inner in filter(_has_the_last_word, group):
        fillers = [part for part in group if part is not inner and part.dialect is not None]
        yield from _form(inner, fillers)
        filled: set[str] = set()
        for filler in fillers:
            for row in inner.dialect.filled if inner.dialect else ():
                if filler.dialect is not None and row["by"] in filler.dialect.lineage:
                    filled.add(str(row["setting"]))
                    yield from _filled(row, inner, filler)
        yield from _left_open(inner, fillers, filled)


def _form(inner: Understood, fillers: Sequence[Understood]) -> Iterator[Remark]:
    """What is more than JSON, where a program reads the file that takes plain JSON only."""
    for what, place in inner.document.liberties:
        strict = next((part.dialect.strict for part in fillers if part.dialect and part.dialect.strict), "")
        lenient = inner.dialect.strict if inner.dialect else ""
        if strict:
            text = f"{what}: {strict}"
            yield Remark(Severity.ERROR, "not-plain-json", text, (place,), "take it out")
        elif lenient and not fillers:
            yield Remark(Severity.NOTE, "not-plain-json", f"{what}: {lenient}", (place,))


def _filled(row: Mapping[str, Any], inner: Understood, filler: Understood) -> Iterator[Remark]:
    ours = _settings(inner).get(str(row["setting"]))
    if ours is None or ours.value is None or ours.value == "auto" or isinstance(ours.value, Unknown):
        return
    theirs = [_argument(filler, str(name)) for name in row["from"]]
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
    said = ", ".join(_said(value) for value in values)
    is_default = "" if given else ", which is its default"
    text = f"{ours.name} is {_said(ours.value)} here, and {names} is {said}{is_default}: {row['refuses']}"
    places = (ours.place, *(setting.place for setting in given))
    named = () if given else (Place(filler.document.file),)
    # A script of one's own may set another default than the trainer's.
    sure = bool(given) or (filler.dialect is not None and bool(filler.dialect.trainer))
    yield Remark(
        Severity.ERROR if sure and not (filler.document.open_end and not given) else Severity.WARNING,
        "contradicts-arguments", text, (*places, *named), 'write "auto", and the argument decides',
        str(row.get("source", "")),
    )  # fmt: skip


def _settings(part: Understood) -> dict[str, Setting]:
    return {setting.name: setting for setting in part.document.settings}


def _argument(part: Understood, name: str) -> tuple[Said, Setting | None]:
    """What a trainer's argument is, by its name in transformers, and the setting if one says so."""
    dialect = part.dialect
    rows = dialect.rows if dialect else {}
    for setting in reversed(part.document.settings):
        for row in rows.get(setting.name, ()):
            if name in (row.argument, "" if row.argument else setting.name):
                return setting.value, setting
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


def _left_open(inner: Understood, fillers: Sequence[Understood], filled: set[str]) -> Iterator[Remark]:
    """What is "auto" and nobody fills in."""
    rows = inner.dialect.filled if inner.dialect else ()
    fillable = {str(row["setting"]) for row in rows}
    left = [each for each in inner.document.settings if each.value == "auto" and each.name not in filled]
    waiting = [each for each in left if each.name in fillable]
    if waiting and not fillers:
        names = waiting[0].name if len(waiting) == 1 else f"{waiting[0].name} and {len(waiting) - 1} more"
        text = f'"auto" for {names}: a Hugging Face trainer fills it in, DeepSpeed alone does not'
        advice = "name the launch script or its arguments with --train too"
        yield Remark(Severity.NOTE, "left-to-the-trainer", text, (waiting[0].place,), advice)
