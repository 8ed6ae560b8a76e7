"""Two inventories side by side: which facts differ, and which findings that brings or takes away. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, family, package_name
from envcheck.core.findings import Finding, Report, Verdict
from envcheck.core.i18n import counted
from envcheck.core.sanitize import inline
from envcheck.reports.render import shown

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
_FOLLOWING = ("derived from", "default")  # sources of facts that only follow from others
_OF_THE_MOMENT = frozenset({"host.ram_free_mib", "gpu.memory_free_mib", "gpu.memory_used_mib"})
"""What is another at every look, and tells no machine from another."""


class FactDifference(NamedTuple):
    """A fact that is another on the two sides: its name (`gpu[0].name`), and what it is on each."""

    name: str
    one: str
    other: str


class InventoryDiff(NamedTuple):
    """What differs, by group, and what became of the findings."""

    groups: Mapping[str, tuple[FactDifference, ...]]
    appear: tuple[Finding, ...]
    disappear: tuple[Finding, ...]
    stay: tuple[Finding, ...]


def contrast(one: Report, other: Report) -> InventoryDiff:
    """What is another in `other` than in `one`."""
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
    sides = []
    for inventory in (one, other):
        if device is None:
            sides.append(inventory.facts)
        else:
            sides.append(inventory.devices[device] if device < len(inventory.devices) else {})
    for key in dict.fromkeys((*sides[0], *sides[1])):
        if key in _OF_THE_MOMENT:
            continue
        facts = [_side(each, side, key, device) for each, side in zip((one, other), sides, strict=True)]
        if all(
            fact.source.startswith(_FOLLOWING) or key not in side
            for fact, side in zip(facts, sides, strict=True)
        ):
            continue
        if key.endswith(".requires") and key.removesuffix(".requires") in sides[0].keys() & sides[1].keys():
            continue  # of another release they are others
        values = [_said(fact) for fact in facts]
        if values[0] != values[1] and not {*values} <= {"-", "not given"}:
            name = key if device is None else key.replace("gpu.", f"gpu[{device}].", 1)
            yield FactDifference(name, *values)


def _side(inventory: Inventory, side: Mapping[str, Fact], key: str, device: int | None) -> Fact:
    if key in side:
        return side[key]
    return inventory.fact(key) if device is None else Fact(key, Absent())


def _said(fact: Fact) -> str:
    match fact.reading:
        case Known(value):
            return shown(value)
        case Absent():
            return "-"
        case Unknown(why, asked):
            return f"not known: {why}" if asked else "not given"


# --- showing ----------------------------------------------------------------------------------------


def page(found: InventoryDiff, one: Report, other: Report) -> str:
    """The contrast for people."""
    return "".join(f"{inline(line).rstrip()}\n" for line in _lines(found, one, other))


def _lines(found: InventoryDiff, one: Report, other: Report) -> Iterator[str]:
    yield f"A  {one.subject}"
    yield f"B  {other.subject}"
    for name, differences in found.groups.items():
        yield ""
        yield name
        names = [package_name(each.name) for each in differences]
        wide = min(max(map(len, names)), 40)
        for label, each in zip(names, differences, strict=True):
            yield f"    {label:<{wide}}  {each.one} -> {each.other}"
    for title, findings in (
        ("Only in A", found.disappear),
        ("Only in B", found.appear),
        ("In both", found.stay),
    ):
        if findings:
            yield ""
            yield title
            yield from (f"    {_word(each)}: {each.rule.title} [{each.rule.id}]" for each in findings)
    yield ""
    total = sum(map(len, found.groups.values()))
    gone = counted(len(found.disappear), "finding")
    yield (
        f"{counted(total, 'fact')} differ{'s' * (total == 1)} · {gone} only in A · "
        f"{len(found.appear)} only in B · {len(found.stay)} in both"
    )


def _word(finding: Finding) -> str:
    return "undecided" if finding.verdict is Verdict.UNDECIDED else finding.severity.value


def tree(found: InventoryDiff, one: Report, other: Report) -> dict[str, Any]:
    """The contrast for programs."""
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
