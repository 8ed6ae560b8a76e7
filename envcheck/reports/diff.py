"""The difference between two reports: the facts that differ, and the findings of only one of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, family, package_name
from envcheck.core.findings import Finding, Report, Verdict
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.sanitize import inline
from envcheck.rules.fix_words import value_text

_FAMILIES = {
    "host": "Machine",
    "driver": "Driver",
    "cuda": "Driver",
    "gpus": "GPU",
    "gpu": "GPU",
    "python": "Python",
    "pkg": "Packages",
    "build": "Builds",
    "train": "Training",
    "env": "Environment variables",
    "selftest": "Self-tests",
}
_DERIVED_SOURCES = ("derived from", "default")  # prefixes of the sources of derived facts
_MOMENTARY = frozenset({"host.ram_free_mib", "gpu.memory_free_mib", "gpu.memory_used_mib"})
"""Facts that change from moment to moment, so that a difference says nothing about the machines."""


class FactDifference(NamedTuple):
    """A fact that differs: its name (`gpu[0].name`), and its value on each side as text."""

    name: str
    one: str
    other: str


class InventoryDiff(NamedTuple):
    """Facts that differ, by group, and the findings: new, gone, or in both reports."""

    groups: Mapping[str, tuple[FactDifference, ...]]
    appear: tuple[Finding, ...]
    disappear: tuple[Finding, ...]
    stay: tuple[Finding, ...]


def compare(one: Report, other: Report) -> InventoryDiff:
    """Return the differences between two reports; `one` is the first, `other` the second."""
    groups: dict[str, list[FactDifference]] = {}
    for number in (None, *range(max(len(one.inventory.devices), len(other.inventory.devices)))):
        for each in _differences(one.inventory, other.inventory, number):
            groups.setdefault(_FAMILIES.get(family(each.name).partition("[")[0], "Other"), []).append(each)
    before, after = _by_id(one), _by_id(other)
    return InventoryDiff(
        {
            name: tuple(groups[name])
            for name in (*dict.fromkeys(_FAMILIES.values()), "Other")
            if name in groups
        },
        tuple(each for key, each in after.items() if key not in before),
        tuple(each for key, each in before.items() if key not in after),
        tuple(each for key, each in after.items() if key in before),
    )


def _by_id(report: Report) -> dict[tuple[str, Verdict], Finding]:
    return {(each.rule.id, each.verdict): each for each in report.judgement.findings}


def _differences(one: Inventory, other: Inventory, device: int | None) -> Iterator[FactDifference]:
    """Yield the facts that differ: those of one GPU, or all others if `device` is None."""
    left, right = _facts(one, device), _facts(other, device)
    for key in dict.fromkeys((*left, *right)):
        if key in _MOMENTARY or _only_derived(key, left, right):
            continue
        if key.endswith(".requires") and key.removesuffix(".requires") in left.keys() & right.keys():
            continue  # the requirements differ because the releases differ
        values = [
            _state(_fact(inventory, facts, key, device)) for inventory, facts in ((one, left), (other, right))
        ]
        if values[0] != values[1] and not {*values} <= {"-", "not given"}:
            name = key if device is None else key.replace("gpu.", f"gpu[{device}].", 1)
            yield FactDifference(name, *values)


def _facts(inventory: Inventory, device: int | None) -> Mapping[str, Fact]:
    if device is None:
        return inventory.facts
    return inventory.devices[device] if device < len(inventory.devices) else {}


def _only_derived(key: str, *sides: Mapping[str, Fact]) -> bool:
    """Return whether a fact is derived on each side that has it."""
    return all(key not in facts or facts[key].source.startswith(_DERIVED_SOURCES) for facts in sides)


def _fact(inventory: Inventory, facts: Mapping[str, Fact], key: str, device: int | None) -> Fact:
    if key in facts:
        return facts[key]
    return inventory.fact(key) if device is None else Fact(key, Absent())


def _state(fact: Fact) -> str:
    match fact.reading:
        case Known(value):
            return value_text(value)
        case Absent():
            return "-"
        case Unknown(why, asked):
            return f"not known: {why}" if asked else "not given"


# --- output ------------------------------------------------------------------------------------------


def page(found: InventoryDiff, one: Report, other: Report, language: Language = ENGLISH) -> str:
    """Return the difference as text."""
    overlaid = one.matrix.overlaid() | other.matrix.overlaid()
    lines = _lines(found, one, other, language.without(overlaid))
    return "".join(f"{inline(line).rstrip()}\n" for line in lines)


def _lines(found: InventoryDiff, one: Report, other: Report, lang: Language) -> Iterator[str]:
    yield lang.say("A  {}", lang.translate(one.subject))
    yield lang.say("B  {}", lang.translate(other.subject))
    for name, differences in found.groups.items():
        yield ""
        yield lang.word(name)
        names = [package_name(each.name) for each in differences]
        columns = min(max(map(len, names)), 40)
        for label, each in zip(names, differences, strict=True):
            yield f"    {label:<{columns}}  {_value(each.one, lang)} -> {_value(each.other, lang)}"
    for title, findings in (
        ("Only in A", found.disappear),
        ("Only in B", found.appear),
        ("In both", found.stay),
    ):
        if findings:
            yield ""
            yield lang.word(title)
            yield from (f"    {_finding(each, lang)}" for each in findings)
    yield ""
    total, gone = sum(map(len, found.groups.values())), len(found.disappear)
    yield " · ".join(
        (
            lang.say("{} fact differs" if total == 1 else "{} facts differ", total),
            lang.say("{} finding only in A" if gone == 1 else "{} findings only in A", gone),
            lang.say("{} only in B", len(found.appear)),
            lang.say("{} in both", len(found.stay)),
        )
    )


def _finding(finding: Finding, lang: Language) -> str:
    rule = finding.rule
    return f"{lang.word(_severity(finding))}: {lang.title(rule.id, rule.title)} [{rule.id}]"


def _value(text: str, lang: Language) -> str:
    """Translate the state of a fact that has no value; a value stays as it is."""
    why = text.removeprefix("not known: ")
    if why != text:
        return lang.say("not known: {}", lang.translate(why))
    return lang.word(text) if text == "not given" else text


def _severity(finding: Finding) -> str:
    return "undecided" if finding.verdict is Verdict.UNDECIDED else finding.severity.value


def tree(found: InventoryDiff, one: Report, other: Report) -> dict[str, Any]:
    """Return the difference as the tree of its JSON."""
    return {
        "schema_version": 1,
        "a": one.subject,
        "b": other.subject,
        "facts": [
            {"key": each.name, "group": name, "a": each.one, "b": each.other}
            for name, differences in found.groups.items()
            for each in differences
        ],
        "findings": {
            side: [
                {
                    "rule": each.rule.id,
                    "severity": each.severity.value,
                    "verdict": each.verdict.value,
                    "title": each.rule.title,
                }
                for each in findings
            ]
            for side, findings in (
                ("only_a", found.disappear),
                ("only_b", found.appear),
                ("both", found.stay),
            )
        },
    }
