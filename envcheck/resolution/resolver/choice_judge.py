"""The judge of partial choices: what refuses a value that is added to a choice. Verdicts are cached."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Known,
    Tri,
    Unknown,
    Value,
    family,
    package_key,
    package_name,
)
from envcheck.core.findings import Finding
from envcheck.core.rules import Clause, Requirement, Rule, When
from envcheck.resolution.resolver.problem import Objection, Reason, SearchProblem
from envcheck.resolution.resolver.refusing_rules import (
    depends_on_any,
    derived_from,
    reason_of,
    refusing_rules,
    scope,
)
from envcheck.rules import clauses, derive, judge
from envcheck.rules.fixes import bind_fix
from envcheck.rules.requirements import installed_requirements

Choice = Mapping[str, Value | None]
"""Chosen values by variable: a package's version, or the value of a free training fact.

None means a dependency that no chosen release requires, or a training fact that stays as it is.
"""


class Refusal(NamedTuple):
    """Why a value cannot be added to a choice: the reasons, the variables concerned, fixes by variable."""

    reasons: tuple[Reason, ...]
    concerns: frozenset[str]
    fixes: tuple[tuple[str, Value], ...] = ()


class _VersionClasses:
    """Groups the versions of a package that no clause distinguishes, so that each group is judged once."""

    def __init__(self, rules: Sequence[Rule], problem: SearchProblem, order: Sequence[str]) -> None:
        tables = [table for rule in rules for table in (*rule.when, rule.require)]
        tables += [default.when for default in problem.known.defaults]
        found: dict[str, list[Clause]] = {}
        indivisible = {"torch"}  # not grouped, because its builds are looked up by the exact release
        for clause in (clause for table in tables for clause in table):
            keys = (clause.key, *clauses.referenced_keys(clause))
            names = [key.split(".")[1] for key in keys if family(key) == "pkg"]
            indivisible.update(names if len(keys) > 1 else ())
            for name in names:
                found.setdefault(name, []).append(clause)
        self._tests = {name: tuple(found.get(name, ())) for name in order if name not in indivisible}
        self._classes: dict[tuple[str, Value | None], Any] = {}

    def class_of(self, name: str, value: Value | None) -> Any:
        """Return a key shared by versions that no clause distinguishes, or a value that is not grouped."""
        if name not in self._tests or family(name) == "train" or value is None:
            return value
        if (name, value) not in self._classes:
            alone = Inventory({package_key(name): fact_in_lock(name, str(value))})
            self._classes[name, value] = tuple(clauses.evaluate(test, alone) for test in self._tests[name])
        return self._classes[name, value]


class ChoiceJudge:
    """Judges partial choices for one problem, and caches each verdict.

    `order` lists the variables: packages, and the keys of free training facts. A partial choice has values
    for the first few of them. `requires` has the metadata lines of each offered release. `broken` is a rule
    that is broken whatever is chosen, or None.
    """

    def __init__(
        self,
        problem: SearchProblem,
        without: Container[Reason],
        order: tuple[str, ...],
        requires: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> None:
        self.problem, self.without, self.order, self.requires = problem, without, order, requires
        self._inventories: dict[tuple[Any, ...], Inventory] = {}
        self._refusals: dict[tuple[Any, ...], Refusal | None] = {}
        self._requirements: dict[tuple[str, str], list[Requirement]] = {}
        self._met: dict[tuple[str, tuple[str, ...]], frozenset[Value | None]] = {}
        known, machine = problem.known, self._settled({})
        rules = [rule for rule in refusing_rules(problem) if ("rule", rule.id) not in without]
        findings = judge.judge(machine, rules).findings
        self.broken = next((finding.rule for finding in findings if judge.forbids_lock(finding)), None)
        rules = [rule for rule in rules if any(self._may_match(table, machine) for table in rule.when)]
        deriving = {"torch"}.union(*(derived_from(rule, known) for rule in rules))
        self._deriving = tuple(name for name in order if name in deriving or family(name) == "train")
        self._classes = _VersionClasses(rules, problem, order)
        self._rules: dict[str, list[tuple[Rule, tuple[str, ...]]]] = {}
        for rule in rules:
            concerned = scope(rule, known)
            ordered = tuple(name for name in order if name in concerned)
            for name in ordered:
                self._rules.setdefault(name, []).append((rule, ordered))

    def _may_match(self, table: When, machine: Inventory) -> bool:
        """Return whether any choice can make a table match; clauses that no choice affects must match now."""
        devices: tuple[int | None, ...] = machine.visible_devices() or (None,)
        return all(self._clause_may_match(clause, machine, devices) for clause in table)

    def _clause_may_match(self, clause: Clause, machine: Inventory, devices: Sequence[int | None]) -> bool:
        keys = (clause.key, *clauses.referenced_keys(clause))
        fixed = [key for key in keys if not depends_on_any(key, self.order, self.problem.known)]
        if len(fixed) == len(keys):
            return any(clauses.evaluate(clause, machine, device) is Tri.YES for device in devices)
        # A comparison with an unknown fact that no choice affects stays undecided.
        return all(any(machine.known(key, device) is not None for device in devices) for key in fixed)

    # --- inventories

    def inventory(self, chosen: Choice) -> Inventory:
        """Return the inventory of a partial choice; a free fact not chosen is unknown, not the default."""
        deciding = {name: chosen[name] for name in self._deriving if name in chosen}
        key = tuple(self._classes.class_of(name, value) for name, value in deciding.items())
        settled = self._inventories.get(key)
        if settled is None:
            settled = self._inventories[key] = self._settled(deciding)
        return settled.with_facts(
            fact_in_lock(name, str(version))
            for name, version in chosen.items()
            if family(name) != "train" and version is not None
        )

    def _settled(self, chosen: Choice) -> Inventory:
        source = f"target {self.problem.target.name}"
        facts = [Fact(key, Known(value), source) for key, value in self.problem.target.train.items()]
        open_facts = (name for name in self.order if family(name) == "train" and name not in chosen)
        facts += [Fact(name, Unknown("not chosen yet")) for name in open_facts]
        for name, value in chosen.items():
            if value is None:
                continue
            if family(name) != "train":
                facts.append(fact_in_lock(name, str(value)))
            else:
                facts.append(Fact(name, Known(value), "chosen by the search"))
        return derive.derive(self.problem.machine.with_facts(facts), self.problem.known)

    # --- refusals

    def refusals(self, name: str, chosen: Choice) -> Iterator[Refusal]:
        """Yield what refuses a choice because of `name`, the variable that was added last."""
        for rule, ordered in self._rules.get(name, ()):
            present = [other for other in ordered if other in chosen]
            key = (rule.id, *((other, self._classes.class_of(other, chosen[other])) for other in present))
            if key not in self._refusals:
                self._refusals[key] = self._judge_rule(rule, ordered, chosen)
            refusal = self._refusals[key]
            if refusal is not None:
                yield refusal
        yield from self._refused_by_metadata(name, chosen)
        yield from self._refused_by_want(name, chosen)
        for number, objection in enumerate(self.problem.objections):
            refusal = self._refused_by_objection(number, objection, name, chosen)
            if refusal is not None:
                yield refusal

    def _judge_rule(self, rule: Rule, ordered: Sequence[str], chosen: Choice) -> Refusal | None:
        inventory = self.inventory(chosen)
        for finding in judge.judge(inventory, [rule]).findings:
            if judge.forbids_lock(finding):
                concerned = frozenset(name for name in ordered if name in chosen)
                return Refusal((reason_of(rule),), concerned, tuple(_fixes(finding, inventory, self.order)))
        return None

    def _refused_by_metadata(self, name: str, chosen: Choice) -> Iterator[Refusal]:
        """Yield a refusal for each unmet requirement between the new variable and another chosen package."""
        for package, version in chosen.items():
            for requirement in self._required(package, str(version)):
                if name not in (package, requirement.requires) or requirement.requires not in chosen:
                    continue
                reason = ("metadata", package, requirement.requires)
                other = chosen[requirement.requires]
                unmet = other is None or (
                    versions.satisfies(str(other), requirement.specifier, unknown=Tri.YES) is Tri.NO
                )
                if unmet and reason not in self.without:
                    fixes = ((requirement.requires, requirement.specifier),)
                    yield Refusal((reason,), frozenset(reason[1:]), fixes)

    def meeting_requirements(
        self, name: str, chosen: Choice
    ) -> Iterator[tuple[str, frozenset[Value | None]]]:
        """Yield each chosen package that requires `name`, and the releases of `name` that it accepts."""
        for package, version in chosen.items():
            bounds = self._bounds_on(name, package, str(version))
            if bounds and ("metadata", package, name) not in self.without:
                yield package, self._meeting(name, tuple(bounds))

    def _refused_by_want(self, name: str, chosen: Choice) -> Iterator[Refusal]:
        """Yield a refusal for each package not yet chosen of which the chosen packages accept no release."""
        for wanted in dict.fromkeys(each.requires for each in self._required(name, str(chosen[name]))):
            if wanted in chosen:
                continue
            meeting = {
                package: self._meeting(wanted, tuple(bounds))
                for package, version in chosen.items()
                if ("metadata", package, wanted) not in self.without
                and (bounds := self._bounds_on(wanted, package, str(version)))
            }
            if name not in meeting or frozenset.intersection(*meeting.values()):
                continue
            blamed = [name]
            left = meeting.pop(name)
            while left:  # blame the most restrictive of the chosen releases first
                package = min(meeting, key=lambda each: len(left & meeting[each]))
                left &= meeting.pop(package)
                blamed.append(package)
            reasons = tuple(("metadata", package, wanted) for package in blamed)
            yield Refusal(reasons, frozenset(blamed))

    def _bounds_on(self, wanted: str, package: str, version: str) -> list[str]:
        return [each.specifier for each in self._required(package, version) if each.requires == wanted]

    def _meeting(self, name: str, bounds: tuple[str, ...]) -> frozenset[Value | None]:
        """Return the offered releases of a package that meet all bounds."""
        key = (name, bounds)
        if key not in self._met:
            self._met[key] = frozenset(
                release
                for package, release in self.requires
                if package == name
                and all(versions.satisfies(release, bound, unknown=Tri.YES) is not Tri.NO for bound in bounds)
            )
        return self._met[key]

    def _required(self, package: str, version: str) -> list[Requirement]:
        """Return the requirements of a release on other packages of the search."""
        if (package, version) not in self._requirements:
            lines = self.requires.get((package, version), ())
            alone = Fact(package_key(package, "requires"), Known(lines), "metadata")
            self._requirements[package, version] = [
                requirement
                for requirement in installed_requirements(self.problem.machine.with_facts([alone]))
                if requirement.requires in self.order and requirement.package == package
            ]
        return self._requirements[package, version]

    def _refused_by_objection(
        self, number: int, objection: Objection, name: str, chosen: Choice
    ) -> Refusal | None:
        stack, reason = dict(objection.stack), ("objection", str(number))
        if reason in self.without or name not in stack or not stack.keys() <= chosen.keys():
            return None
        rule = self.problem.known.rule(objection.rule)
        if not objection.wide or rule is None:
            return Refusal((reason,), frozenset(stack)) if stack.items() <= chosen.items() else None
        added = (fact_in_lock(*pair) for pair in objection.added)
        judgement = judge.judge(self.inventory(chosen).with_facts(added), [rule])
        if not any(judge.forbids_lock(finding) for finding in judgement.findings):
            return None
        concerned = scope(rule, self.problem.known) & chosen.keys()
        return Refusal((reason,), concerned | {name})


def _fixes(finding: Finding, inventory: Inventory, order: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Yield the rule's fixes that set exactly one package of the search, in order, with facts filled in."""
    for fix in finding.rule.fixes:
        bound = bind_fix(fix, inventory, judge.device_of(finding))
        if bound is not None and len(bound.set) == 1:
            key, value = bound.set[0]
            if package_name(key) in order:
                yield package_name(key), value


def fact_in_lock(name: str, version: str) -> Fact:
    """Return the fact of a package in a lock; an empty version means that the lock does not hold it."""
    return Fact(package_key(name), Known(version) if version else Absent(), "the lock")
