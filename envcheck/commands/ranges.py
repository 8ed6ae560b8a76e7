"""Judge what dependency files leave open by what an installer takes for it today.

A range is one form. The other is a bare name that a pinned package requires in an exact version: `torch`
beside `vllm==0.8.5` is torch 2.6.0. Only an installer that starts from nothing has to follow such a pin; an
installed environment may violate it, so a facts file without torch's version says nothing about torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.findings import Evidence, Finding, Report, Verdict
from envcheck.core.rules import Severity
from envcheck.dependency_files import DependencyList, ListedPackage
from envcheck.policy.generated_findings import generated_finding
from envcheck.resolution.installer_choice import InstallerChoice, RangeConflict, choose_releases
from envcheck.rules import derive

_MOST_TRIED = 60
"""Releases of a range that are judged, to say whether all of them fail."""


class RangesRead(NamedTuple):
    """The ranges of a list by package, and what an installer takes for them."""

    ranges: Mapping[str, ListedPackage]
    choice: InstallerChoice


def read_ranges(dependencies: DependencyList, python: str) -> RangesRead | None:
    """Return what an installer takes for the ranges of a list; None if it has none that are known."""
    open_lines = {one.name: one for one in dependencies.lines if not one.version}
    if not open_lines or not dependencies.fresh:
        return None
    from envcheck.commands.atlas_tables import release_table

    pinned = {one.name: one.version for one in dependencies.lines if one.version}
    bare = {name for name, one in open_lines.items() if not one.specifier} - dependencies.overridden
    specifiers = {name: one.specifier for name, one in open_lines.items() if one.specifier}
    specifiers |= _specifiers_of_pins(bare, pinned, python)
    if not specifiers:
        return None
    choice = choose_releases(pinned, specifiers, release_table(), python)
    ranges = {name: open_lines[name] for name in specifiers}
    return RangesRead(ranges, choice) if choice.admitted else None


def _specifiers_of_pins(bare: Collection[str], pinned: Mapping[str, str], python: str) -> dict[str, str]:
    """Return the exact versions that the pinned releases require of some packages."""
    if not bare or not pinned:
        return {}
    from envcheck.commands.atlas_tables import release_table
    from envcheck.core.markers import environment
    from envcheck.knowledge.requirement_windows import implied_versions

    known = environment(python or "3.11", architecture="x86_64")
    implied = implied_versions(pinned, release_table(), known)
    return {
        name: f"=={implied[name].version}"
        for name in bare
        if name in implied and (python or "python" not in implied[name].because.text.partition(";")[2])
    }


def with_choice(read: Inventory, found: RangesRead) -> Inventory:
    """Return the inventory with the releases that an installer takes."""
    return read.with_facts(
        Fact(package_key(name), Known(version), found.ranges[name].place)
        for name, version in found.choice.chosen.items()
    )


def conflict_findings(found: RangesRead, dependencies: DependencyList) -> list[Finding]:
    """Return an error for each range that cannot be installed beside a pin."""
    places = {one.name: one for one in dependencies.lines}
    return [_conflict_finding(one, places) for one in found.choice.conflicts]


def _conflict_finding(conflict: RangeConflict, packages: Mapping[str, ListedPackage]) -> Finding:
    one, other = packages[conflict.package], packages[conflict.of]
    title = f"{_spelled(one)} and {_spelled(other)} cannot be installed together: {conflict.requires}"
    evidence = [
        Evidence(Fact(f"requirement.{each.name}", Known(_spelled(each)), each.place)) for each in (other, one)
    ]
    return generated_finding("listing:range-conflict", Severity.ERROR, title, evidence, group="listing")


def _spelled(package: ListedPackage) -> str:
    return f"{package.name}=={package.version}" if package.version else f"{package.name}{package.specifier}"


def explain_ranges(
    report: Report, found: RangesRead, read: Inventory, judge: Callable[[Inventory], Report]
) -> Report:
    """Return the report with a note on each finding that follows from a range: what else the range admits."""
    tried: dict[tuple[str, str], frozenset[str]] = {}
    findings = []
    for finding in report.judgement.findings:
        names = [name for name in found.choice.chosen if _rests_on(finding, name)]
        notes = [finding.note] if finding.note else []
        if finding.verdict is Verdict.BROKEN:
            notes += [_note(finding, name, found, read, judge, tried) for name in names]
        findings.append(finding._replace(note="; ".join(notes)))
    return report._replace(judgement=report.judgement._replace(findings=tuple(findings)))


def _rests_on(finding: Finding, name: str) -> bool:
    """Return whether the evidence of a finding is a package, or follows from it."""
    to_visit = [evidence.fact.key for evidence in finding.evidence]
    visited: set[str] = set()
    while to_visit:
        key = to_visit.pop()
        if key in visited:
            continue
        visited.add(key)
        to_visit += derive.FOLLOWS_FROM.get(key, ())
    return package_key(name) in visited


def _note(
    finding: Finding,
    name: str,
    found: RangesRead,
    read: Inventory,
    judge: Callable[[Inventory], Report],
    tried: dict[tuple[str, str], frozenset[str]],
) -> str:
    """Return what an installer takes for a range, and which other releases in it do not fail."""
    chosen, admitted = found.choice.chosen[name], found.choice.admitted[name]
    taken = f"for {name}{found.ranges[name].specifier} an installer takes {chosen} today"
    if len(admitted) > _MOST_TRIED:
        return taken
    for version in admitted:
        key = (name, version)
        if key not in tried:
            fact = Fact(package_key(name), Known(version), found.ranges[name].place)
            broken = judge(read.with_facts([fact])).judgement.findings
            tried[key] = frozenset(one.rule.id for one in broken if one.verdict is Verdict.BROKEN)
        if finding.rule.id not in tried[key]:
            return f"{taken}, which fails; {version}, also in the range, does not"
    return f"{taken}; every release in the range fails" if len(admitted) > 1 else taken
