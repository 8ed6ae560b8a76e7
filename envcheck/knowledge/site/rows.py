"""The rows of the page for look-ups: releases, rules, measured combinations, requirements and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, package_key
from envcheck.core.findings import Verdict
from envcheck.core.rules import Requirement, Rule, Span
from envcheck.knowledge.atlas import VERBS, spelled_need
from envcheck.knowledge.generated_rules import requirement_rules
from envcheck.knowledge.site.choices import NONE, PageChoices
from envcheck.knowledge.tables import ReleaseRow
from envcheck.rules import judge
from envcheck.rules.atlas import in_spans
from envcheck.rules.fix_words import fix_text


def release_row(choices: PageChoices, name: str, release: ReleaseRow) -> dict[str, Any]:
    """Return a release: version, date, whether it is yanked and whether its code was read.

    A digit for each Python is 1 if that Python may install the release; without digits, every Python may.
    """
    shown: dict[str, Any] = {"v": release.version, "date": release.date}
    if release.yanked:
        shown["yanked"] = True
    if release.version in choices.known.atlas().releases.get(name, ()):
        shown["read"] = True
    admitted = "".join(str(int(_admits(release, python))) for python in choices.pythons)
    if "0" in admitted:
        shown["python"] = admitted
    return shown


def _admits(release: ReleaseRow, python: str) -> bool:
    """Return whether some patch release of a Python (`3.11`) may install a release."""
    if python == NONE:
        return True
    if release.pythons is not None:
        return python in release.pythons
    try:
        bounds = versions.parse_specifier(release.requires_python)
    except ValueError:
        return True
    return versions.satisfies_all(f"{python}.99", bounds) is not Tri.NO


def rule_row(rule: Rule) -> dict[str, Any]:
    """Return a rule with its conditions, fixes and sources in words."""
    return {
        "id": rule.id,
        "title": rule.title,
        "why": rule.why,
        "severity": rule.severity.value,
        "basis": rule.basis.value,
        "when": [[f"{clause.key} {clause.raw}" for clause in table] for table in rule.when],
        "unless": [f"{clause.key} {clause.raw}" for clause in rule.require],
        "fixes": [{"set": fix_text(fix), "cost": fix.cost} for fix in rule.fixes],
        "no_fixes": [
            {"set": fix_text(no_fix), "why": no_fix.why, "source": no_fix.source} for no_fix in rule.no_fixes
        ],
        "sources": [
            {"url": source.url, "kind": source.kind, "checked": source.checked} for source in rule.sources
        ],
    }


def cell_row(choices: PageChoices, number: int) -> dict[str, Any]:
    """Return a measured combination with its trainings: `exact` ones, and `near` ones with more left open."""
    cell = choices.known.cells[number]
    train = {**choices.known.targets[cell.target].train, **cell.train}
    rule_numbers = {rule.id: place for place, rule in enumerate(choices.known.rules)}
    of_target = [
        (place, training)
        for place, training in enumerate(choices.trainings)
        if training.target == cell.target
    ]
    exact = [place for place, training in of_target if training.facts == train]
    near = [
        place
        for place, training in of_target
        if place not in exact
        and all(train.get(key) in (None, value) for key, value in training.facts.items())
    ]
    return {
        "target": cell.target,
        "ok": cell.outcome == "ok",
        "pkg": dict(cell.pkg),
        "train": [
            f"{key.removeprefix('train.')} = {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in cell.train.items()
        ],
        "device": cell.device,
        "date": cell.date,
        "test": cell.test,
        "rule": rule_numbers.get(cell.rule, -1),
        "exact": exact,
        "near": near,
    }


def metadata_bounds(choices: PageChoices) -> Iterator[dict[str, Any]]:
    """Yield each package's requirements on another: the bound in each release, and what it admits."""
    for name, releases in choices.releases.items():
        for other, other_releases in choices.releases.items():
            bounds = [release.requires.get(other, "") for release in releases]
            distinct = sorted(set(bounds))
            if distinct == [""]:
                continue
            admitted = [_admitted(name, other, bound, other_releases) for bound in distinct]
            if any("0" in digits for digits in admitted):
                yield {
                    "by": name,
                    "of": other,
                    "bounds": distinct,
                    "bound": [distinct.index(bound) for bound in bounds],
                    "admits": admitted,
                }


def gap_rows(choices: PageChoices) -> Iterator[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """Yield each package and partner with what the code asks for: the shown releases as ranges of places."""
    atlas = choices.known.atlas()

    @cache  # most rows share their releases with others
    def ranges(package: str, spans: tuple[Span, ...]) -> list[list[int]]:
        return _ranges(choices.releases[package], spans)

    for package, partners in atlas.rows.items():
        for partner in partners:
            gaps = []
            for row in partners[partner]:
                asking, lacking = ranges(package, row.releases), ranges(partner, row.lacking)
                if asking and lacking:
                    gaps.append(
                        {
                            "text": f"`{row.entry}` {VERBS[row.kind]} {spelled_need(row.kind, row.needs)}",
                            "place": f"{row.places[-1]} in {package} {row.releases[-1][1]}",
                            "error": row.entry not in atlas.optional,
                            "asking": asking,
                            "lacking": lacking,
                        }
                    )
            yield (package, partner), gaps


def _ranges(shown: Sequence[ReleaseRow], spans: Iterable[Span]) -> list[list[int]]:
    """Return the places of the shown releases that lie in the spans, as first and last of each range."""
    inside = [in_spans(release.version, spans) for release in shown]
    ranges: list[list[int]] = []
    for place, yes in enumerate(inside):
        if yes and ranges and ranges[-1][1] == place - 1:
            ranges[-1][1] = place
        elif yes:
            ranges.append([place, place])
    return ranges


def _admitted(name: str, other: str, bound: str, releases: Iterable[ReleaseRow]) -> str:
    """Return a digit for each release: 1 if the judge finds nothing against it in another's requirement."""
    rules = list(requirement_rules([Requirement(name, other, bound, "metadata")]))
    asking = Fact(package_key(name), Known("1"), "")
    return "".join("1" if _satisfies(rules, asking, other, release.version) else "0" for release in releases)


def _satisfies(rules: Sequence[Rule], asking: Fact, other: str, version: str) -> bool:
    required = Fact(package_key(other), Known(version), "")
    findings = judge.judge(Inventory({fact.key: fact for fact in (asking, required)}), rules).findings
    return not any(finding.verdict is Verdict.BROKEN for finding in findings)
