"""Judge version ranges and bare names in dependency files by the releases that an installer takes today.

This applies only to installations from nothing, where an installer must follow the pins of the packages that
it installs: `torch` beside `vllm==0.8.5` is torch 2.6.0. An installed environment may violate such pins, so a
facts file without torch's version says nothing about torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.findings import Evidence, Finding, Report, Verdict
from envcheck.core.rules import Fix, Severity
from envcheck.dependency_files import ANY_RELEASE, DependencyList, ListedPackage
from envcheck.knowledge.release_metadata import ReleaseTable
from envcheck.policy.generated_findings import generated_finding
from envcheck.resolution.installer_choice import InstallerChoice, RangeConflict, choose_releases
from envcheck.rules import derive

_MOST_FIXES = 3
"""Number of releases on one side of a pin that are tried as a fix."""

_MOST_TRIED = 60
"""Maximum size of a range whose releases are all judged, to find out whether all of them fail."""


class RangesRead(NamedTuple):
    """Ranges of a list by package, and the releases that an installer takes for them."""

    ranges: Mapping[str, ListedPackage]
    choice: InstallerChoice


def read_ranges(dependencies: DependencyList, python: str) -> RangesRead | None:
    """Return the releases that an installer takes for a list's ranges.

    Return None if the list is not installed from nothing, or if no release fits any range.
    """
    ranges = {one.name: one for one in dependencies.lines if one.specifier and not one.version}
    if not ranges or not dependencies.fresh:
        return None
    from envcheck.commands.atlas_tables import release_table

    pinned = {one.name: one.version for one in dependencies.lines if one.version}
    choice = _chosen(pinned, ranges, release_table(), python)
    return RangesRead(ranges, choice) if choice.admitted else None


def _chosen(
    pinned: Mapping[str, str], ranges: Mapping[str, ListedPackage], table: ReleaseTable, python: str
) -> InstallerChoice:
    """Return the releases that an installer takes.

    If the newest releases of bare names exclude each other, these names are left open, because installers
    differ in which one they take in an older release.
    """
    specifiers = {name: one.specifier for name, one in ranges.items()}
    bare = [name for name, specifier in specifiers.items() if specifier == ANY_RELEASE]
    # Narrow ranges come first, as in installers: a bare name admits almost any release.
    ordered = dict(sorted(specifiers.items(), key=lambda pair: pair[1] == ANY_RELEASE))
    choice = choose_releases(pinned, ordered, table, python)
    if all(choice.chosen.get(name) in choice.admitted.get(name, (None,))[:1] for name in bare):
        return choice
    bound = {name: specifier for name, specifier in ordered.items() if specifier != ANY_RELEASE}
    return choose_releases(pinned, bound, table, python)


def with_choice(read: Inventory, found: RangesRead) -> Inventory:
    """Return the inventory with the releases that an installer takes."""
    return read.with_facts(
        Fact(package_key(name), Known(version), found.ranges[name].place)
        for name, version in found.choice.chosen.items()
    )


def conflict_findings(
    found: RangesRead, dependencies: DependencyList, read: Inventory, judge: Callable[[Inventory], Report]
) -> list[Finding]:
    """Return an error for each range that cannot be installed beside a pin, with the releases that can."""
    packages = {one.name: one for one in dependencies.lines}
    findings = []
    for conflict in found.choice.conflicts:
        if not dependencies.overridden.isdisjoint((conflict.package, conflict.of)):
            continue
        finding = _conflict_finding(conflict, packages)
        fixes = tuple(_conflict_fixes(conflict, packages, read, judge))
        findings.append(finding._replace(rule=finding.rule._replace(fixes=fixes), fixes=fixes))
    return findings


def _conflict_fixes(
    conflict: RangeConflict,
    packages: Mapping[str, ListedPackage],
    read: Inventory,
    judge: Callable[[Inventory], Report],
) -> Iterator[Fix]:
    """Yield for each of the two packages the nearest release beside which the other can stay.

    A release counts only if no error follows from it.
    """
    from envcheck.commands.atlas_tables import release_table

    table = release_table()
    python = str(read.known("python.version") or "")
    pinned = {name: one.version for name, one in packages.items() if one.version}
    before = _errors(judge(read))
    for name, other in ((conflict.of, conflict.package), (conflict.package, conflict.of)):
        rest = {each: version for each, version in pinned.items() if each != name}
        stays = {} if other in pinned else {other: packages[other].specifier}
        choice = choose_releases(rest, {name: ANY_RELEASE, **stays}, table, python)
        fitting = [
            version
            for version in choice.admitted.get(name, ())
            if not choose_releases({**rest, name: version}, stays, table, python).conflicts
        ]
        now = (packages[name].version,) if name in pinned else _admitted(packages[name], table, python)
        for version in _nearest_first(fitting, now):
            key = package_key(name)
            beside = choose_releases({**rest, name: version}, stays, table, python).chosen
            facts = [Fact(key, Known(version)), *(Fact(package_key(n), Known(v)) for n, v in beside.items())]
            if _errors(judge(read.with_facts(facts))) <= before:
                yield Fix(((key, f"=={version}"),), tried=((key, version),))
                break


def _admitted(package: ListedPackage, table: ReleaseTable, python: str) -> Sequence[str]:
    """Return the releases that a range admits, newest first."""
    return choose_releases({}, {package.name: package.specifier}, table, python).admitted[package.name]


def _nearest_first(releases: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the few releases, given newest first, that are nearest to those of a pin or a range."""
    newest, oldest = versions.order(now[0]), versions.order(now[-1])
    newer = [each for each in reversed(releases) if versions.order(each) > newest]
    older = [each for each in releases if versions.order(each) < oldest]
    return [*newer[:_MOST_FIXES], *older[:_MOST_FIXES]]


def _errors(report: Report) -> frozenset[str]:
    return frozenset(
        one.rule.id
        for one in report.judgement.findings
        if one.verdict is Verdict.BROKEN and one.severity is Severity.ERROR
    )


def _conflict_finding(conflict: RangeConflict, packages: Mapping[str, ListedPackage]) -> Finding:
    one, other = packages[conflict.package], packages[conflict.of]
    title = f"{one.requirement} and {other.requirement} cannot be installed together: {conflict.requires}"
    evidence = [
        Evidence(Fact(f"requirement.{each.name}", Known(each.requirement), each.place))
        for each in (other, one)
    ]
    return generated_finding("listing:range-conflict", Severity.ERROR, title, evidence, group="listing")


def explain_ranges(
    report: Report, found: RangesRead, read: Inventory, judge: Callable[[Inventory], Report]
) -> Report:
    """Return the report with a note on each finding that rests on a range: whether all releases fail.

    A release does not pass if it avoids the finding but brings an error that the report does not have.
    """
    errors = _errors(report)
    tried: dict[tuple[str, str], Report] = {}

    def passes(name: str, version: str, finding: Finding) -> bool:
        key = (name, version)
        if key not in tried:
            fact = Fact(package_key(name), Known(version), found.ranges[name].place)
            tried[key] = judge(read.with_facts([fact]))
        broken = (one for one in tried[key].judgement.findings if one.verdict is Verdict.BROKEN)
        return all(one.rule.id != finding.rule.id for one in broken) and _errors(tried[key]) <= errors

    findings = []
    for finding in report.judgement.findings:
        names = [name for name in found.choice.chosen if _rests_on(finding, name)]
        notes = [finding.note] if finding.note else []
        if finding.verdict is Verdict.BROKEN:
            notes += [_note(finding, name, found, passes) for name in names]
        findings.append(finding._replace(note="; ".join(notes)))
    return report._replace(judgement=report.judgement._replace(findings=tuple(findings)))


def _rests_on(finding: Finding, name: str) -> bool:
    """Return whether the evidence of a finding is a package's version, or derived from it."""
    to_visit = [evidence.fact.key for evidence in finding.evidence]
    visited: set[str] = set()
    while to_visit:
        key = to_visit.pop()
        if key in visited:
            continue
        visited.add(key)
        to_visit += derive.FOLLOWS_FROM.get(key, ())
    return package_key(name) in visited


def _note(finding: Finding, name: str, found: RangesRead, passes: Callable[[str, str, Finding], bool]) -> str:
    """Return a note: the release that an installer takes for a range, and one in the range that passes."""
    chosen, admitted = found.choice.chosen[name], found.choice.admitted[name]
    taken = f"for {found.ranges[name].requirement} an installer takes {chosen} today"
    if len(admitted) > _MOST_TRIED:
        return taken
    for version in admitted:
        if passes(name, version, finding):
            return f"{taken}, which fails; {version}, also in the range, does not"
    return f"{taken}; every release of {name} in the range fails" if len(admitted) > 1 else taken
