"""The successors of a state: the ways out of its unresolved findings, and the states to which they lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from envcheck.core import versions
from envcheck.core.facts import (
    Fact,
    Inventory,
    Known,
    Reading,
    Tri,
    Value,
    is_device_key,
    package_key,
    package_name,
)
from envcheck.core.findings import Finding
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Ref, Rule, uninstalls
from envcheck.resolution.remediation.moves import Changes, Proposal
from envcheck.resolution.remediation.releases import ReleaseChoices
from envcheck.resolution.remediation.state import RemediationState, StateJudge
from envcheck.rules import judge
from envcheck.rules.clauses import keys_in
from envcheck.rules.fixes import bind_fix
from envcheck.rules.requirements import installed_requirements

JUMPS = 3
"""How many further releases within one bound are tried if the nearest one breaks something else."""


class WayOutStep(NamedTuple):
    """One fact to change: the values to try, nearest first, and the bound that they satisfy."""

    key: str
    values: Sequence[Value]
    bound: str = ""


class WayOut(NamedTuple):
    """Facts that have to change together, and the cost of that in words."""

    steps: Sequence[WayOutStep]
    cost: str = ""


class Neighbourhood:
    """Finds the successors of a state: the states to which its ways out lead."""

    def __init__(self, judge_: StateJudge, choices: ReleaseChoices, breaking: BreakingReleases) -> None:
        self.judge, self.choices, self.breaking = judge_, choices, breaking
        self.read, self.listed = choices.read, choices.listed

    def successors(
        self,
        state: RemediationState,
        goal: frozenset[str],
        *,
        any_release: bool,
        worthwhile: Callable[[Changes], bool] = lambda _: True,
    ) -> Iterator[RemediationState]:
        """Yield the successors of a state; with `any_release`, also those with releases that no fix lists.

        `worthwhile` says whether changes are worth judging; it may look at no value, only at what changes.
        """
        for finding in state.unresolved:
            for place, way_out in enumerate(self.ways_out(finding, state)):
                yield from self._follow(state, finding.rule, way_out, place, goal, worthwhile)
            if any_release:
                for changes in self._with_other_releases(finding, state, worthwhile):
                    yield self.judge.state(changes, goal)

    # --- the ways out of a finding

    def ways_out(self, finding: Finding, state: RemediationState) -> Iterator[WayOut]:
        """Yield the ways out of a finding, in the order of its rule."""
        rule = finding.rule
        if rule.group == "requires-dist":
            yield from (WayOut([step]) for step in self._for_metadata(rule, state))
            return
        if rule.group == "target":
            yield from (WayOut([step]) for step in self._for_target(rule))
            return
        if rule.group == "atlas":
            yield from (WayOut([step]) for step in self._for_code(finding, state))
            return
        for fix in rule.fixes:
            bound = bind_fix(fix, state.settled, judge.device_of(finding))
            if bound is None:
                continue
            steps = [
                WayOutStep(key, self.choices.for_fix(key, value), str(value))
                for key, value in bound.set
                if not (uninstalls(key, value) and self.read.known(key) is None)
            ]
            if steps and all(step.values for step in steps):
                yield WayOut(steps, fix.cost)

    def _for_metadata(self, rule: Rule, state: RemediationState) -> Iterator[WayOutStep]:
        """Yield ways out of a metadata conflict.

        First another release of the required package, within all requirements on it or within this one alone;
        then releases of the requiring package that accept the required one.
        """
        package, required = conflicting_packages(rule)
        requirements = [
            requirement
            for requirement in installed_requirements(state.settled)
            if requirement.requires == required
        ]
        own = next((each.specifier for each in requirements if each.package == package), "")
        together = ",".join(dict.fromkeys(each.specifier for each in requirements if each.specifier))
        for bound in dict.fromkeys((together, own)):
            values = self.choices.within(required, bound) or self.choices.lowest(required, bound)
            if values:
                text = bound if required not in self.listed.packages else ""
                yield WayOutStep(package_key(required), values[:1], text)
        installed = state.settled.known(package_key(required))
        if installed is not None:

            def accepting(version: str) -> bool:
                return self.choices.accepts(package, version, required, installed)

            for version in self.choices.nearest_of_each_size(package, accepting):
                yield WayOutStep(package_key(package), (version,))

    def _for_code(self, finding: Finding, state: RemediationState) -> Iterator[WayOutStep]:
        """Yield ways out if the code of two packages does not fit: other releases of either package.

        The package that lacks something comes before the one that uses it.
        """
        _, package, partner, *_ = finding.rule.id.split(":")
        for name in (partner, package):
            for version in self._nearest_passing(finding, package_key(name), state):
                yield WayOutStep(package_key(name), (version,))

    def _for_target(self, rule: Rule) -> Iterator[WayOutStep]:
        """Yield what a target asks for: a setting, or a package (the measured release, then the newest)."""
        clause = rule.when[0][0]
        test = clause.any_of[0][0]
        name = package_name(clause.key)
        if name == clause.key:
            if not isinstance(test.operand, Ref):
                yield WayOutStep(clause.key, (test.operand,))
            return
        for values in (self.choices.as_measured(name), self.choices.within(name, ">=0")):
            if values:
                yield WayOutStep(clause.key, values)

    def _with_other_releases(
        self, finding: Finding, state: RemediationState, worthwhile: Callable[[Changes], bool]
    ) -> Iterator[Changes]:
        """Yield the changes with another release of one package of the rule.

        For each package, these are the nearest release of each move size that satisfies the rule. A package
        in `no_cure` of the rule is left alone: its other releases fail in another form.
        """
        for key in sorted(keys_in(finding.rule).difference(finding.rule.no_cure)):
            name = package_name(key)
            installed = self.read.known(key)
            if installed is None or not self.listed.fit(name):
                continue
            proposal = Proposal(installed, "", finding.rule, "", len(finding.rule.fixes))
            if not worthwhile({**state.changes, key: proposal}):
                continue
            for version in self._nearest_passing(finding, key, state):
                yield {**state.changes, key: proposal._replace(value=version)}

    def _nearest_passing(self, finding: Finding, key: str, state: RemediationState) -> tuple[str, ...]:
        """Return the nearest release for each size of a move of a package that leaves a rule unbroken."""

        def passes(version: str) -> bool:
            return not self._breaks_one([finding], key, version, state)

        def nearest() -> tuple[str, ...]:
            return self.choices.nearest_of_each_size(package_name(key), passes)

        if finding.rule.group == "requires-dist":
            return nearest()
        return self.breaking.kept(finding.rule, key, state.settled, nearest)

    # --- where a way out leads

    def _follow(
        self,
        state: RemediationState,
        rule: Rule,
        way_out: WayOut,
        place: int,
        goal: frozenset[str],
        worthwhile: Callable[[Changes], bool],
    ) -> Iterator[RemediationState]:
        """Yield the state after a way out with its first values; if they break something, also later ones."""
        steps = way_out.steps
        pick = 0
        for jumps in range(JUMPS + 1):
            changes = self._changes_after(state, rule, way_out, place, pick)
            if changes is None or not worthwhile(changes):
                return
            after = self.judge.state(changes, goal)
            yield after
            new = [finding for finding in after.unresolved if finding.rule.id not in state.rule_ids]
            if not new or len(steps) > 1 or jumps == JUMPS:
                return
            key, values = steps[0].key, steps[0].values
            later = range(pick + 1, len(values))
            pick = next((at for at in later if not self._breaks_one(new, key, values[at], after)), -1)
            if pick < 0:
                return

    def _changes_after(
        self, state: RemediationState, rule: Rule, way_out: WayOut, place: int, pick: int
    ) -> Changes | None:
        """Return the changes after a way out with the values at `pick`.

        None if it would change nothing, or would undo an earlier change.
        """
        changes = dict(state.changes)
        for key, values, bound in way_out.steps:
            value = values[min(pick, len(values) - 1)]
            if key in changes and value == self.read.known(key):
                return None  # it would undo an earlier change
            if not _satisfied(state.settled, key, value, bound):
                changes[key] = Proposal(value, bound, rule, way_out.cost, place)
        return changes if changes != state.changes else None

    def _breaks_one(
        self, findings: Sequence[Finding], key: str, value: Value, state: RemediationState
    ) -> bool:
        """Return whether a release breaks a rule of the findings, by its version and metadata alone."""
        return any(self._breaks(finding.rule, Fact(key, Known(value)), state) for finding in findings)

    def _breaks(self, rule: Rule, changed: Fact, state: RemediationState) -> bool:
        if rule.group != "requires-dist":
            return self.breaking.breaks(rule, changed, state.settled)
        package, required = conflicting_packages(rule)
        if package_name(changed.key) not in (package, required):
            return True
        trial = state.settled.with_facts([changed])
        version, other = trial.known(package_key(package)), trial.known(package_key(required))
        return not self.choices.accepts(package, version, required, other)


class BreakingReleases:
    """Keep which values of facts break a rule, for one inventory and its changes.

    Many states differ only in facts that a rule does not read: a list of three packages took 38,000
    judgements without this, and takes fewer than 8,000.
    """

    def __init__(self) -> None:
        """Start without answers."""
        self._rules: dict[int, tuple[Rule, tuple[str, ...], dict[tuple[Reading, ...], bool]]] = {}
        self._releases: dict[tuple[int, str, tuple[Reading, ...]], tuple[str, ...]] = {}

    def breaks(self, rule: Rule, changed: Fact, inventory: Inventory) -> bool:
        """Return whether the rule is broken once this fact is changed, and nothing else."""
        keys, answers = self._of(rule)
        if any(map(is_device_key, keys)):
            return judge.is_broken(inventory.with_facts([changed]), rule)
        asked = tuple(changed.reading if key == changed.key else inventory.reading(key) for key in keys)
        if asked not in answers:
            answers[asked] = judge.is_broken(inventory.with_facts([changed]), rule)
        return answers[asked]

    def kept(
        self, rule: Rule, key: str, inventory: Inventory, find: Callable[[], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return what `find` returns, which depends only on what else the rule reads."""
        keys, _ = self._of(rule)
        if any(map(is_device_key, keys)):
            return find()
        asked = id(rule), key, tuple(inventory.reading(other) for other in keys if other != key)
        if asked not in self._releases:
            self._releases[asked] = find()
        return self._releases[asked]

    def _of(self, rule: Rule) -> tuple[tuple[str, ...], dict[tuple[Reading, ...], bool]]:
        """Return the keys that a rule reads, and the answers for it."""
        if id(rule) not in self._rules:  # the rule is kept beside its answers, so its identity stays its own
            self._rules[id(rule)] = (rule, tuple(sorted(keys_in(rule))), {})
        _, keys, answers = self._rules[id(rule)]
        return keys, answers


def conflicting_packages(rule: Rule) -> tuple[str, str]:
    """Return the requiring and the required package of a rule that stands for a metadata requirement."""
    _, package, required = rule.id.split(":")
    return package, required


def _satisfied(inventory: Inventory, key: str, value: Value, bound: str) -> bool:
    """Return whether the current value already satisfies the bound."""
    current = inventory.known(key)
    if (
        current is None
        or current == value
        or not key.startswith("pkg.")
        or versions.local_label(str(current))
    ):
        return current == value
    try:
        limits = versions.parse_specifier(bound or f"=={value}")
    except ValueError:
        return False
    return versions.satisfies_all(str(current), limits) is Tri.YES
