"""The report on a fleet as data: findings, differences, and whether a job may start. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from envcheck.core.facts import family, package_name
from envcheck.core.findings import Diagnostic, Evidence, Finding, Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.fleet.collect import Fleet, Judged, RepeatedRecord
from envcheck.fleet.comparisons import FactComparison
from envcheck.fleet.differences import NodeDifference, NodesWithValue, find_differences
from envcheck.fleet.profiles import Profile
from envcheck.fleet.records import RefusedRecord
from envcheck.rules import derive
from envcheck.rules.fixes import origins
from envcheck.rules.judge import errors


class NodeVariant(NamedTuple):
    """Evidence of a finding on some of its nodes; `devices` lists the GPUs concerned if not all are."""

    because: tuple[Evidence, ...]
    devices: tuple[int, ...]
    note: str
    nodes: tuple[str, ...]


class FleetFinding(NamedTuple):
    """A finding with all nodes that have it; `finding` comes from the most common variant.

    `elsewhere` has the packages and the driver on which the finding rests, with the versions that most nodes
    without it have, if those differ.
    """

    finding: Finding
    nodes: tuple[str, ...]
    variants: tuple[NodeVariant, ...]
    elsewhere: tuple[tuple[str, str], ...] = ()


class Missing(NamedTuple):
    """A node or rank without a record, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FleetContext:
    """What a report needs in addition to the records, such as the expected nodes.

    See `FleetReport` for the fields.
    """

    expected: tuple[str, ...] | int | None = None  # names of nodes, or only their number
    missing: tuple[Missing, ...] = ()
    late: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    fail_on: Severity = Severity.ERROR


class FleetProblems(NamedTuple):
    """What is broken, unequal or wrong on a fleet, at or above a severity."""

    broken: tuple[FleetFinding, ...]
    different: tuple[NodeDifference, ...]  # with more than one value
    diagnostics: tuple[Diagnostic, ...]

    def __bool__(self) -> bool:
        """Return whether there is any problem."""
        return any(self)


class FleetReport(NamedTuple):
    """Everything that `envcheck fleet` reports."""

    version: str  # of envcheck
    updated: str  # date of the matrix
    rules: int  # number of rules in the matrix
    nodes: tuple[str, ...]
    expected: int | None
    machines: int  # number that the judge can tell apart
    differences: tuple[NodeDifference, ...]
    findings: tuple[FleetFinding, ...]
    nothing: tuple[NodesWithValue, ...]  # nodes with nothing to judge, by the reason
    waiting: Mapping[str, int]  # number of rules by the facts they wait for, on the most common machine
    missing: tuple[Missing, ...] = ()
    refused: tuple[RefusedRecord, ...] = ()
    twice: tuple[RepeatedRecord, ...] = ()
    late: tuple[str, ...] = ()  # records that came after the verdict
    stale: tuple[str, ...] = ()  # records of other jobs
    left_out: tuple[str, ...] = ()  # nodes that were not examined, with the reason
    diagnostics: tuple[Diagnostic, ...] = ()  # of the training configuration
    fail_on: Severity = Severity.ERROR
    trains: bool = False  # whether any training setting is known on the most common machine

    @property
    def code(self) -> int:
        """Return the exit code: 0 if the job may start, 1 if it may not, 3 if that cannot be decided."""
        if self.problems(self.fail_on):
            return 1
        return 3 if self.unread or self.missing or self.refused or self.nothing or not self.nodes else 0

    def problems(self, threshold: Severity) -> FleetProblems:
        """Return the findings, differences and mistakes in the configuration at or above a severity."""
        return FleetProblems(
            broken=tuple(
                each
                for each in self.findings
                if each.finding.verdict is Verdict.BROKEN and each.finding.severity.rank >= threshold.rank
            ),
            different=tuple(
                each
                for each in self.differences
                if each.severity.rank >= threshold.rank and len(each.values) > 1
            ),
            diagnostics=tuple(each for each in self.diagnostics if each.severity.rank >= threshold.rank),
        )

    @property
    def unread(self) -> tuple[NodeDifference, ...]:
        """Return the facts that must be equal everywhere and that some nodes could not read."""
        return tuple(each for each in self.differences if each.severity is Severity.ERROR and each.unread)

    @property
    def verdict(self) -> str:
        """Return the exit code in words."""
        return {0: "may start", 1: "may not start"}.get(self.code, "cannot tell")


def summarize(
    fleet: Fleet, comparisons: Sequence[FactComparison], known: Matrix, version: str, context: FleetContext
) -> FleetReport:
    """Return the report on the records collected in a fleet."""
    by_machine: dict[int, list[str]] = {}
    by_profile: dict[int, list[str]] = {}
    for name, node in fleet.nodes.items():
        by_machine.setdefault(node.machine, []).append(name)
        by_profile.setdefault(node.profile, []).append(name)
    expected = len(context.expected) if isinstance(context.expected, tuple) else context.expected
    commonest = max(by_machine, key=lambda machine: len(by_machine[machine]), default=None)
    typical = None if commonest is None else fleet.judged[commonest]
    return FleetReport(
        version=version,
        updated=known.updated,
        rules=len(known.rules),
        nodes=tuple(fleet.nodes),
        expected=expected,
        machines=len(by_machine),
        differences=find_differences(fleet.profiles, by_profile, comparisons),
        findings=tuple(_with_elsewhere(each, fleet) for each in _findings(fleet.judged, by_machine)),
        nothing=_nothing_to_judge(fleet.judged, by_machine),
        waiting=Counter(each.reason for each in typical.judgement.waiting) if typical else {},
        missing=(*context.missing, *_missing(fleet, context)),
        refused=tuple(fleet.refused),
        twice=tuple(fleet.twice),
        late=context.late,
        stale=context.stale,
        left_out=context.left_out,
        diagnostics=context.diagnostics,
        fail_on=context.fail_on,
        trains=typical is not None and typical.trains,
    )


def _missing(fleet: Fleet, context: FleetContext) -> list[Missing]:
    """Return the expected nodes without a record, or one entry for all if only their number is known."""
    expected, accounted_for = context.expected, context.missing
    if isinstance(expected, tuple):
        present = {*fleet.nodes, *(name.partition(".")[0] for name in fleet.nodes)}
        present |= {each.name for each in accounted_for} | {each.name for each in fleet.refused}
        return [Missing(name, "expected, and did not report") for name in expected if name not in present]
    if expected is None:
        return []
    lacking = expected - len(fleet.nodes) - len(accounted_for) - len(fleet.refused)
    return [Missing("", f"{lacking} of {expected} expected nodes did not report")] if lacking > 0 else []


def _findings(judged: Sequence[Judged], nodes: Mapping[int, list[str]]) -> tuple[FleetFinding, ...]:
    """Return each finding once with all its nodes: broken rules first, the most severe and common first."""
    by_rule: dict[tuple[str, Verdict, Severity], dict[Any, tuple[Finding, list[str]]]] = {}
    for machine, names in nodes.items():
        for finding in judged[machine].judgement.findings:
            variants = by_rule.setdefault((finding.rule.id, finding.verdict, finding.severity), {})
            # The source of a fact is a path on the node, so it is ignored; only key and reading are compared.
            variant = (
                tuple((*each.fact[:2], each.device, each.note) for each in finding.evidence),
                finding.devices,
            )
            variants.setdefault(variant, (finding, []))[1].extend(names)
    found = [_fleet_finding(variants.values()) for variants in by_rule.values()]
    found.sort(
        key=lambda each: (
            each.finding.verdict is not Verdict.BROKEN,
            -each.finding.severity.rank,
            -len(each.nodes),
            each.finding.rule.id,
        )
    )
    return tuple(found)


def _with_elsewhere(found: FleetFinding, fleet: Fleet) -> FleetFinding:
    """Return an error with the values that the other nodes have, if those nodes have no error."""
    affected = {*found.nodes}
    others = Counter(
        (node.machine, node.profile) for name, node in fleet.nodes.items() if name not in affected
    )
    if not others or found.finding.verdict is not Verdict.BROKEN:
        return found
    (machine, profile), count = others.most_common(1)[0]
    if count < 2 or errors(fleet.judged[machine].judgement):  # noqa: PLR2004 - one node is no standard
        return found
    here = _software(fleet.profiles[fleet.nodes[found.nodes[0]].profile])
    standard = _software(fleet.profiles[profile])
    keys = origins(found.finding)
    differing = [key for key in sorted(keys) if standard.get(key) and standard[key] != here.get(key)]
    compared = (*_COMPARED, "training")  # for which trainings a rule is, not what fails
    unclear = {key for key in keys if family(key) not in compared and key not in derive.FOLLOWS_FROM}
    if "pkg.torch" in differing:
        unclear.discard("build.torch.cuda")
    if unclear or any(key.startswith("gpu.") for key in keys):
        return found  # the nodes may also differ in something else that the finding rests on
    return found._replace(elsewhere=tuple((_name(key), standard[key]) for key in differing))


def _software(profile: Profile) -> Mapping[str, str]:
    """Return the versions of the packages and of the driver in a profile."""
    packages = {f"pkg.{name}": value for parts in profile.parts.values() for name, value in parts.items()}
    others = {key: value for key, value in profile.values.items() if isinstance(value, str)}
    return {**packages, **others}


_COMPARED = frozenset({"pkg", "driver"})
"""Families of facts of which all values on a node are known here."""


def _name(key: str) -> str:
    """Return the name of a package, or `driver`."""
    name = package_name(key)
    return name if name != key else key.partition(".")[0]


def _fleet_finding(variants: Iterable[tuple[Finding, list[str]]]) -> FleetFinding:
    ordered = sorted(variants, key=lambda variant: -len(variant[1]))
    node_variants = tuple(
        NodeVariant(finding.evidence, finding.devices, finding.note, tuple(names))
        for finding, names in ordered
    )
    all_nodes = tuple(name for variant in node_variants for name in variant.nodes)
    return FleetFinding(ordered[0][0], all_nodes, node_variants)


def _nothing_to_judge(judged: Sequence[Judged], nodes: Mapping[int, list[str]]) -> tuple[NodesWithValue, ...]:
    by_reason: dict[str, list[str]] = {}
    for machine, names in nodes.items():
        if judged[machine].nothing:
            by_reason.setdefault(judged[machine].nothing, []).extend(names)
    return tuple(NodesWithValue(why, tuple(names)) for why, names in by_reason.items())
