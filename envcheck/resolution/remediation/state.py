"""States of the search: the inventory with some facts changed, and the judge's findings on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from copy import copy

from envcheck.core.facts import Absent, Fact, Inventory, Known, Value, package_key, package_name
from envcheck.core.findings import Finding, Verdict
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Matrix, Requirement, Rule
from envcheck.knowledge.generated_rules import requirement_rules
from envcheck.resolution.remediation.moves import Changes
from envcheck.resolution.remediation.problem import RemediationProblem
from envcheck.resolution.remediation.releases import Releases
from envcheck.rules import judge
from envcheck.rules.changed_inventory import ChangedInventory
from envcheck.rules.changes import changed_keys
from envcheck.rules.requirements import check_requirements, installed_requirements
from envcheck.rules.rule_index import ChangedAnswers

_Values = tuple[tuple[str, Value], ...]
"""Changed facts and their values, which tell states apart."""


class RemediationState(NamedTuple):
    """Inventory after some changes (`settled`), and the findings that are still unresolved."""

    changes: Changes
    settled: Inventory
    unresolved: tuple[Finding, ...]

    @property
    def rule_ids(self) -> frozenset[str]:
        """Ids of the rules of the unresolved findings."""
        return frozenset(finding.rule.id for finding in self.unresolved)


class InventoryEditor:
    """Applies changes to the inventory, together with everything that follows from them."""

    def __init__(self, read: Inventory, known: Matrix, listed: Releases) -> None:
        self.read, self.known, self.listed = read, known, listed
        self._trial = ChangedInventory(read, known)

    def apply(self, changes: Changes) -> Inventory:
        """Return the inventory after these changes, with new requirements, companions and derived facts."""
        leaders = [key for key in changes if package_name(key) in self.known.moves_with]
        ordered = [*leaders, *(key for key in changes if key not in leaders)]
        facts = [
            Fact(key, Known(version), "moves along")
            for key, version in self.companions(changes).items()
            if version
        ]
        for key, proposal in changes.items():
            name = package_name(key)
            lines = self.listed.requires(name, str(proposal.value))
            if name != key and lines:
                source = f"metadata of {name} {proposal.value}"
                facts.append(Fact(f"{key}.requires", Known(lines), source))
        return self._trial.after([(key, changes[key].value) for key in ordered], facts)

    def companions(self, changes: Changes) -> dict[str, str]:
        """Return the new releases, by key, of installed packages that move because another package moves.

        A release is empty if no table names it.
        """
        found = {}
        for name, others in self.known.moves_with.items():
            if package_key(name) not in changes:
                continue
            version = str(changes[package_key(name)].value)
            row = next((row for row in self.known.tables.get(name, []) if row["version"] == version), {})
            for other in others:
                key = package_key(other)
                if key not in changes and self.read.known(key) is not None:
                    found[key] = str(row.get(other, ""))
        return found


class StateJudge:
    """Judges states of one problem, and caches each judged state.

    After a change, it evaluates only the rules and requirements of which a condition answers differently. The
    other findings are taken from the start.
    """

    def __init__(self, problem: RemediationProblem, editor: InventoryEditor) -> None:
        self.problem, self.editor = problem, editor
        self.start = problem.start
        self._changed_answers = ChangedAnswers(problem.rules, self.start)
        self.asked: set[_Values] = set()
        self._judged: dict[_Values, tuple[Inventory, tuple[Finding, ...]]] = {}
        self._index_requirements()
        self._judge_start()

    @property
    def states(self) -> int:
        """Return how many different states were asked for so far."""
        return len(self.asked)

    def without_condition(self) -> StateJudge:
        """Return a judge of the same problem without `admitted_only`, which knows the states judged here."""
        other = copy(self)
        other.problem = self.problem.with_condition(admitted_only=False)
        other.asked = set()
        return other

    def _index_requirements(self) -> None:
        """Find the requirements unmet at the start, and the packages that require each package."""
        self.unmet_at_start = check_requirements(self.start).unmet  # before any change
        self._requirers: dict[str, set[str]] = {}
        for requirement in installed_requirements(self.start):
            self._requirers.setdefault(requirement.requires, set()).add(requirement.package)

    def _judge_start(self) -> None:
        written = judge.judge(self.start, self._to_repair(self.problem.rules.rules)).findings
        metadata = judge.judge(self.start, requirement_rules(self.unmet_at_start)).findings
        broken = [finding for finding in (*written, *metadata) if finding.verdict is Verdict.BROKEN]
        self._written_at_start = {finding.rule.id: finding for finding in written}
        self.rank_before = {finding.rule.id: finding.severity.rank for finding in broken}
        """Rank of the severity of each rule that is broken at the start."""
        self.broken = tuple(finding for finding in broken if self._must_be_repaired(finding))
        """The findings at the start that have to be repaired."""

    def _to_repair(self, rules: Iterable[Rule]) -> list[Rule]:
        """Return the rules that a state must not break: those of the level, and all of the target."""
        least = self.problem.level.rank
        return [rule for rule in rules if rule.severity.rank >= least or rule.group == "target"]

    def _must_be_repaired(self, finding: Finding) -> bool:
        level = self.problem.level
        if finding.severity.rank >= level.rank:
            return True
        # If only some GPUs break a rule, the severity is lowered in the finding but not in the rule.
        return self.problem.strict and (
            finding.rule.severity is level or finding.rule.group == "requires-dist"
        )

    def state(self, changes: Changes, goal: frozenset[str]) -> RemediationState:
        """Return the state after these changes.

        Its unresolved findings are those of the rules in `goal`, and those that the changes add.
        """
        values = tuple(sorted((key, proposal.value) for key, proposal in changes.items()))
        self.asked.add(values)
        if values not in self._judged:
            self._judged[values] = self._judge(changes)
        settled, findings = self._judged[values]
        unresolved = tuple(
            finding for finding in findings if finding.rule.id in goal or self._is_new(finding, changes)
        )
        return RemediationState(changes, settled, unresolved)

    def _judge(self, changes: Changes) -> tuple[Inventory, tuple[Finding, ...]]:
        settled = self.editor.apply(changes)
        touched = set(changed_keys(self.start, settled))
        unmet = (
            requirement
            for requirement in self._unmet_after(settled, touched)
            # An installer adds the missing requirements of the packages that it installs.
            if not (
                package_key(requirement.package) in changes
                and package_key(requirement.requires) not in changes
                and isinstance(settled.fact(package_key(requirement.requires)).reading, Absent)
            )
        )
        metadata = judge.judge(settled, requirement_rules(unmet)).findings
        concerned = self._to_repair(self._changed_answers.concerned(touched, settled))
        unchanged = dict(self._written_at_start)
        for rule in concerned:
            unchanged.pop(rule.id, None)
        return settled, (*unchanged.values(), *judge.judge(settled, concerned).findings, *metadata)

    def _unmet_after(self, settled: Inventory, touched: Collection[str]) -> Iterator[Requirement]:
        """Yield the unmet requirements after a change; only those that it concerns are evaluated again."""
        names = {key.split(".")[1] for key in touched if key.startswith("pkg.")}
        concerned = names.union(*(self._requirers.get(name, ()) for name in names))
        facts = {
            key: fact
            for key, fact in settled.facts.items()
            if not key.endswith(".requires") or key.split(".")[1] in concerned
        }
        yield from (
            requirement for requirement in self.unmet_at_start if requirement.package not in concerned
        )
        yield from check_requirements(settled._replace(facts=facts)).unmet

    def _is_new(self, finding: Finding, changes: Changes) -> bool:
        """Return whether the changes caused a finding or made it worse."""
        if finding.verdict is not Verdict.BROKEN:
            return False
        rule = finding.rule
        if rule.group == "requires-dist":
            _, requirer, required = rule.id.split(":")
            if package_key(requirer) in changes:
                return True  # an installer would refuse to leave such a conflict
            if self.problem.admitted_only and package_key(required) in changes:
                return True
        worse = finding.severity.rank > self.rank_before.get(rule.id, -1)
        return worse and (
            rule.severity.rank >= self.problem.level.rank or rule.group in ("requires-dist", "target")
        )
