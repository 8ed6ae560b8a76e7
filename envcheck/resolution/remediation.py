"""The smallest change: the fewest, smallest moves from an inventory to one the judge passes. Pure.

A state is the inventory as read with some facts set otherwise; its successors are the ways out of what is
broken there: a rule's own fixes, and for a metadata conflict another release of either side. States are
looked at by the number of their moves, so the first level that has an answer has the smallest one, and of
that level the cheapest is taken (`Cost`).

What a move costs, cheapest first: a patch release, or a configuration change that costs nothing (1); a minor
release (2); a major release, or a package that was not there (3); a configuration change whose text names
a cost, because it trains something else than was asked for (4). Upwards goes before downwards, and then a
combination that was run before one that was not. What only an administrator can change comes last of all.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Tri, Value, family, package_key, package_name
from envcheck.core.findings import Finding, Move, Plan, Unresolved, Verdict
from envcheck.core.rules import Comparison, Matrix, Requirement, Rule, Severity, Target
from envcheck.knowledge.generated_rules import requirement_rules, target_rules
from envcheck.rules import derive, judge
from envcheck.rules.clauses import refs

STATES = 200
"""States judged in one search: at one to three milliseconds each, a third of a second."""

JUMPS = 3
"""Further releases of one bound that are tried where the nearest breaks something else."""

ADMINISTRATOR = frozenset({"driver"})
"""Families of facts that neither an installer nor a configuration changes."""

_OURS = frozenset({"pkg", "train", "env"})

_PATCH, _MINOR, _MAJOR, _OTHER_TRAINING = 1, 2, 3, 4


# --- releases ---------------------------------------------------------------------------------------


class Releases(NamedTuple):
    """The releases that may be advised for one Python, oldest first, and what each requires.

    `every` has all that are listed, those for another Python and the yanked ones too.
    """

    fit: Mapping[str, tuple[str, ...]]
    every: Mapping[str, frozenset[str]]
    requires: Mapping[tuple[str, str], tuple[str, ...]]
    checked: bool  # against a known Python


def releases(known: Matrix, rows: Sequence[Mapping[str, Any]], python: str | None) -> Releases:
    """The releases of the tables that this Python (`3.11.9`; None if unknown) may install.

    `rows` is the table of releases; those of torch are always in the matrix. Nothing that was yanked, and
    nothing beyond what is known, is advised.
    """
    fit: dict[str, set[str]] = {}
    every: dict[str, set[str]] = {}
    requires = {}
    torch = known.tables.get("torch", [])
    belong = [
        {**row, "package": name, "version": row[name]}
        for name in known.moves_with.get("torch", ())
        for row in torch
        if row.get(name)
    ]
    for row in (*({**row, "package": "torch"} for row in torch), *belong, *rows):
        name, version = row["package"], row["version"]
        every.setdefault(name, set()).add(version)
        requires[name, version] = tuple(f"{each}{bound}" for each, bound in row.get("requires", {}).items())
        through = known.known_through.get(name)
        beyond = through is not None and versions.compare(version, ">", through) is Tri.YES
        if not (row.get("yanked") or beyond) and _for_python(row, python):
            fit.setdefault(name, set()).add(version)
    return Releases(
        {name: tuple(sorted(found, key=versions.order)) for name, found in fit.items()},
        {name: frozenset(found) for name, found in every.items()},
        requires,
        python is not None,
    )


def _for_python(row: Mapping[str, Any], python: str | None) -> bool:
    if python is None:
        return True
    listed = row.get("python")
    if isinstance(listed, list):
        return ".".join(python.split(".")[:2]) in listed
    try:
        bounds = versions.parse_specifier(row.get("requires_python", ""))
    except ValueError:
        return True
    return versions.satisfies_all(python, bounds) is not Tri.NO


# --- what a change costs ----------------------------------------------------------------------------


class Proposal(NamedTuple):
    """A value for one fact, who proposes it, what it costs, and how far down the rule's list it stands."""

    value: Value
    text: str  # the bound it is the first release of
    rule: Rule
    cost: str = ""
    place: int = 0


Changes = Mapping[str, Proposal]


class Cost(NamedTuple):
    """What a state costs; compared from the first member on."""

    administrator: int
    moves: int
    size: int
    downwards: int
    not_measured: int
    releases: int  # how many lie between
    place: int


def moves(changes: Changes) -> int:
    """How many moves these are: packages, and settings, where those of one way out are one change."""
    settings = [(each.rule.id, each.place) for key, each in changes.items() if not key.startswith("pkg.")]
    return len(changes) - len(settings) + len(set(settings))


def size(key: str, before: Value | None, after: Value, cost: str = "") -> tuple[int, bool]:
    """The size of one move, as this module's first lines have it, and whether it goes downwards."""
    if not key.startswith("pkg."):
        return (_OTHER_TRAINING if cost else _PATCH), False
    here = versions.parse(str(before)) if before is not None else None
    there = versions.parse(str(after))
    if here is None or there is None:
        return _MAJOR, False
    for number, (one, other) in enumerate(zip(_three(here.release), _three(there.release), strict=True)):
        if one != other:
            return (_MAJOR, _MINOR, _PATCH)[number], other < one
    return _PATCH, there < here


def _three(release: tuple[int, ...]) -> tuple[int, ...]:
    return (*release, 0, 0, 0)[:3]


def nearest_first(releases: Sequence[str], name: str, here: Value | None) -> tuple[str, ...]:
    """Other releases than the installed one (oldest first), nearest to it first; newest if there is none."""
    if here is None:
        return tuple(reversed(releases))
    order = versions.order(str(here))
    up = [each for each in releases if versions.order(each) > order]
    down = [each for each in reversed(releases) if versions.order(each) < order]
    return tuple(sorted((*up, *down), key=lambda version: size(package_key(name), here, version)))


# --- states -----------------------------------------------------------------------------------------


class _State(NamedTuple):
    changes: Changes
    settled: Inventory
    open: tuple[Finding, ...]  # what still has to go

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(finding.rule.id for finding in self.open)


class RemediationSpace:
    """One inventory, what is known, and what of it is to be mended; remembers every state it judged."""

    def __init__(
        self,
        read: Inventory,
        known: Matrix,
        target: Target | None,
        listed: Releases,
        level: Severity,
        *,
        strict: bool = False,
    ) -> None:
        """Judge the inventory as it is; `level` is the least severity that is to be mended."""
        self.read, self.known, self.target, self.listed, self.level = read, known, target, listed, level
        self.rules = [
            *(rule for rule in known.rules if rule.severity.rank >= level.rank),
            *target_rules(target),
        ]
        self.start = derive.derive(read, known)
        self._asked_of: dict[str, set[int]] = {}
        for number, rule in enumerate(self.rules):
            for key in _keys(rule):
                self._asked_of.setdefault(key, set()).add(number)
        written = judge.judge(self.start, self.rules).findings
        self._written = {finding.rule.id: finding for finding in written}
        self._unmet = derive.unmet(self.start)[0]
        self._requirers: dict[str, set[str]] = {}
        for each in derive.requirements(self.start):
            self._requirers.setdefault(each.requires, set()).add(each.package)
        metadata = judge.judge(self.start, requirement_rules(self._unmet)).findings
        found = (*written, *metadata)
        broken = [finding for finding in found if finding.verdict is Verdict.BROKEN]
        self.before = {finding.rule.id: finding.severity.rank for finding in broken}
        self.broken = tuple(
            finding
            for finding in broken
            if finding.severity.rank >= level.rank
            or (strict and (finding.rule.severity is level or finding.rule.group == "requires-dist"))
        )
        self.states = 0
        self._judged: dict[tuple[tuple[str, Value], ...], tuple[Inventory, tuple[Finding, ...]]] = {}
        self._measured_of: dict[str, tuple[str, ...]] = {}
        self._accepted: dict[tuple[str, Value | None, str, Value | None], bool] = {}
        self._fitting: dict[tuple[str, str], tuple[str, ...]] = {}
        self._orders: dict[str, list[tuple[bool, Any]]] = {}
        self._scopes: dict[str, frozenset[str]] = {}
        self._good = [
            cell.pkg for cell in known.cells if cell.outcome == "ok" and target and cell.target == target.name
        ]
        self._tried: dict[str, set[str]] = {}
        self._settable = set(target.train) if target is not None else set()
        for rule in known.rules:
            for fix in rule.fixes:
                for key, value in fix.set:
                    self._settable.add(key)
                    if isinstance(value, str) and "{" not in value and key.startswith("pkg."):
                        self._tried.setdefault(key, set()).add(str(judge.trial(value)))

    # --- judging

    def state(self, changes: Changes, wanted: frozenset[str]) -> _State:
        """The state after these changes, with what is open of `wanted` and of what they broke anew."""
        values = tuple(sorted((key, proposal.value) for key, proposal in changes.items()))
        if values not in self._judged:
            self.states += 1
            self._judged[values] = self._judge(changes)
        settled, found = self._judged[values]
        still = tuple(each for each in found if each.rule.id in wanted or self._is_new(each, changes))
        return _State(changes, settled, still)

    def _judge(self, changes: Changes) -> tuple[Inventory, tuple[Finding, ...]]:
        settled = self.settled(changes)
        touched = set(self._touched(settled))
        unmet = (
            each
            for each in self._unmet_after(settled, touched)
            # An installer brings what the packages it installs lack.
            if not (
                package_key(each.package) in changes
                and isinstance(settled.fact(package_key(each.requires)).reading, Absent)
            )
        )
        metadata = judge.judge(settled, requirement_rules(unmet)).findings
        # Only rules about what the change touches are asked again.
        asked = {number for key in touched for number in self._asked_of.get(key, ())}
        again = [self.rules[number] for number in sorted(asked)]
        kept = dict(self._written)
        for rule in again:
            kept.pop(rule.id, None)
        return settled, (*kept.values(), *judge.judge(settled, again).findings, *metadata)

    def _unmet_after(self, settled: Inventory, touched: Collection[str]) -> Iterator[Requirement]:
        """The requirements not met after a change; only those that it concerns are looked at again."""
        names = {key.split(".")[1] for key in touched if key.startswith("pkg.")}
        again = names.union(*(self._requirers.get(name, ()) for name in names))
        facts = {
            key: fact
            for key, fact in settled.facts.items()
            if not key.endswith(".requires") or key.split(".")[1] in again
        }
        yield from (each for each in self._unmet if each.package not in again)
        yield from derive.unmet(replace(settled, facts=facts))[0]

    def _touched(self, settled: Inventory) -> Iterator[str]:
        """Keys of the facts that are not as they were at the start."""
        pairs = [(self.start.facts, settled.facts), *zip(self.start.devices, settled.devices, strict=True)]
        for before, after in pairs:
            for key in before.keys() | after.keys():
                one, other = before.get(key), after.get(key)
                if one is not other and (one is None or other is None or one.reading != other.reading):
                    yield key

    def _is_new(self, finding: Finding, changes: Changes) -> bool:
        """Whether a finding speaks against the state although nobody asked for it to go."""
        if finding.verdict is not Verdict.BROKEN:
            return False
        rule = finding.rule
        if rule.group == "requires-dist" and package_key(rule.id.split(":")[1]) in changes:
            return True  # an installer would not leave it so either
        worse = finding.severity.rank > self.before.get(rule.id, -1)
        return worse and (rule.severity.rank >= self.level.rank or rule.group in ("requires-dist", "target"))

    def settled(self, changes: Changes) -> Inventory:
        """The inventory after these changes, with what follows: requirements, companions, derived facts."""
        leaders = [key for key in changes if package_name(key) in self.known.moves_with]
        ordered = [*leaders, *(key for key in changes if key not in leaders)]
        read = derive.changed(self.read, [(key, changes[key].value) for key in ordered], self.known)
        facts = [
            Fact(key, Known(version), "moves along")
            for key, version in self.companions(changes).items()
            if version
        ]
        for key, proposal in changes.items():
            name = package_name(key)
            lines = self.listed.requires.get((name, str(proposal.value)))
            if name != key and lines:
                source = f"metadata of {name} {proposal.value}"
                facts.append(Fact(f"{key}.requires", Known(lines), source))
        return derive.derive(read.with_facts(facts), self.known)

    def companions(self, changes: Changes) -> dict[str, str]:
        """Installed packages that move because another one does, and to which release; empty if unknown."""
        found = {}
        for name, others in self.known.moves_with.items():
            if package_key(name) not in changes:
                continue
            version = str(changes[package_key(name)].value)
            row = next(
                (row for row in self.known.tables.get(name, []) if row["version"] == version),
                {},
            )
            for other in others:
                key = package_key(other)
                if key not in changes and self.read.known(key) is not None:
                    found[key] = str(row.get(other, ""))
        return found

    # --- cost

    def cost(self, changes: Changes) -> Cost:
        """What these changes cost."""
        sizes = [
            size(key, self.read.known(key), proposal.value, proposal.cost)
            for key, proposal in changes.items()
        ]
        return Cost(
            administrator=sum(family(key) in ADMINISTRATOR for key in changes),
            moves=moves(changes),
            size=sum(each for each, _ in sizes),
            downwards=sum(down for _, down in sizes),
            not_measured=not self._measured(changes),
            releases=sum(self._between(key, proposal) for key, proposal in changes.items()),
            place=sum(proposal.place for proposal in changes.values()),
        )

    def _measured(self, changes: Changes) -> bool:
        def here(name: str) -> str:
            key = package_key(name)
            return versions.base_release(
                str(changes[key].value if key in changes else self.read.known(key) or "")
            )

        return any(
            all(here(name) == versions.base_release(there) for name, there in pkg.items())
            for pkg in self._good
        )

    def _between(self, key: str, proposal: Proposal) -> int:
        """How many listed releases a move passes, its own included."""
        name = package_name(key)
        if name == key or name not in self.listed.fit:
            return 0
        if name not in self._orders:
            self._orders[name] = [versions.order(each) for each in self.listed.fit[name]]
        orders = self._orders[name]
        start = self.read.known(key) or next(iter(self._as_measured(name)), self.listed.fit[name][-1])
        return abs(
            bisect(orders, versions.order(str(proposal.value))) - bisect(orders, versions.order(str(start)))
        )

    def needed_still(self, state: _State) -> int:
        """How many facts beyond those changed must change at least: open rules that share no fact."""
        taken = set(state.changes)
        number = 0
        for scope in sorted((self._scope(finding.rule) for finding in state.open), key=len):
            if taken.isdisjoint(scope):
                taken |= scope
                number += 1
        return number

    def administrator_needed(self, state: _State) -> bool:
        """Whether something open follows from nothing that an installer or a configuration changes."""
        return any(
            not any(family(key) in _OURS for key in scope)
            and any(family(key) in ADMINISTRATOR for key in scope)
            for scope in (self._scope(finding.rule) for finding in state.open)
        )

    def _scope(self, rule: Rule) -> frozenset[str]:
        """Every fact that a move may set and that can bear on this rule, however indirectly."""
        if rule.id not in self._scopes or rule.group == "requires-dist":
            keys = _keys(rule)
            found: set[str] = set()
            while keys:
                key = keys.pop()
                found.add(key)
                keys |= set(self._bears_on(key)) - found
            settable = (each for each in found if each.startswith("pkg.") or each in self._settable)
            self._scopes[rule.id] = frozenset(settable)
        return self._scopes[rule.id]

    def _bears_on(self, key: str) -> Iterator[str]:
        yield from derive.FOLLOWS_FROM.get(key, ())
        if key.endswith(derive.BESIDE_TORCH):
            yield "pkg.torch"
        elif key == "gpu.packages_without_code":
            yield from (
                each for each in self.read.facts if each.startswith("pkg.") and each.endswith(derive.CODE)
            )
        if family(key) in ("pkg", "build"):
            name = key.split(".")[1]
            yield package_key(name)
            yield from (
                package_key(leader) for leader, others in self.known.moves_with.items() if name in others
            )
        for default in self.known.defaults:
            if default.key == key:
                yield from (each for clause in default.when for each in (clause.key, *refs(clause)))

    # --- successors

    def successors(self, state: _State, wanted: frozenset[str], *, any_release: bool) -> Iterator[_State]:
        """The states one way out further; with `any_release` those too that no rule lists."""
        for finding in state.open:
            for place, (fix, cost) in enumerate(self.ways_out(finding, state)):
                yield from self._taken(state, finding.rule, fix, cost, place, wanted)
            if any_release:
                for key, version in self._unlisted(finding, state):
                    proposal = Proposal(version, "", finding.rule, "", len(finding.rule.fixes))
                    yield self.state({**state.changes, key: proposal}, wanted)

    def _unlisted(self, finding: Finding, state: _State) -> Iterator[tuple[str, str]]:
        """Of each package a rule asks of, the nearest releases, one of each size, that the rule lets be."""
        for key in sorted(_keys(finding.rule)):
            name = package_name(key)
            here = self.read.known(key)
            if here is None or name not in self.listed.fit:
                continue
            nearest: dict[tuple[int, bool], str] = {}
            for version in self.fitting(name, ">=0"):
                step = size(key, here, version)
                if step not in nearest and not self._still([finding], key, version, state):
                    nearest[step] = version
            yield from ((key, version) for version in nearest.values())

    def _taken(
        self,
        state: _State,
        rule: Rule,
        fix: Sequence[tuple[str, Sequence[Value], str]],
        cost: str,
        place: int,
        wanted: frozenset[str],
    ) -> Iterator[_State]:
        """The states a way out leads to: by the first release, and by further ones where that breaks more."""

        def moved(pick: int) -> Changes | None:
            changes = dict(state.changes)
            for key, values, text in fix:
                value = values[min(pick, len(values) - 1)]
                if key in changes and value == self.read.known(key):
                    return None  # back to where the fault was
                if not self._is_so(state.settled, key, value, text):
                    changes[key] = Proposal(value, text, rule, cost, place)
            return changes if changes != state.changes else None

        pick, jumps = 0, 0
        while (changes := moved(pick)) is not None:
            after = self.state(changes, wanted)
            yield after
            new = [each for each in after.open if each.rule.id not in state.ids]
            if not new or len(fix) > 1 or jumps >= JUMPS:
                return
            (key, values, _), jumps = fix[0], jumps + 1
            pick = next(
                (n for n in range(pick + 1, len(values)) if not self._still(new, key, values[n], after)),
                len(values),
            )
            if pick >= len(values):
                return

    def _is_so(self, inventory: Inventory, key: str, value: Value, bound: str) -> bool:
        """Whether nothing has to change to have a fact so: the release that is here may do as well."""
        here = inventory.known(key)
        if here is None or here == value or not key.startswith("pkg.") or versions.local_label(str(here)):
            return here == value
        try:
            limits = versions.parse_specifier(bound or f"=={value}")
        except ValueError:
            return False
        return versions.satisfies_all(str(here), limits) is Tri.YES

    def _still(self, new: Sequence[Finding], key: str, value: Value, after: _State) -> bool:
        """Whether one of these would be broken by that release too, by its own version and metadata alone."""
        name = package_name(key)
        trial = after.settled.with_facts([Fact(key, Known(value))])
        for finding in new:
            if finding.rule.group == "requires-dist":
                _, package, required = finding.rule.id.split(":")
                here, there = trial.known(package_key(package)), trial.known(package_key(required))
                if name not in (package, required) or not self._accepts(package, here, required, there):
                    return True
            elif any(each.verdict is Verdict.BROKEN for each in judge.judge(trial, [finding.rule]).findings):
                return True
        return False

    def ways_out(
        self, finding: Finding, state: _State
    ) -> Iterator[tuple[list[tuple[str, Sequence[Value], str]], str]]:
        """Ways out of a finding: for each fact the values to try, nearest first, and the bound; the cost."""
        rule = finding.rule
        if rule.group == "requires-dist":
            yield from (([way], "") for way in self._metadata(rule, state))
            return
        if rule.group == "target":
            yield from (([way], "") for way in self._target(rule))
            return
        for fix in rule.fixes:
            bound = judge.bind(fix, state.settled, judge.device_of(finding))
            if bound is None:
                continue
            sets = [(key, self._values(key, value), str(value)) for key, value in bound.set]
            if all(values for _, values, _ in sets):
                yield sets, fix.cost

    def _values(self, key: str, value: str | int | bool) -> Sequence[Value]:
        first = judge.trial(value)
        name = package_name(key)
        if name == key or name not in self.listed.fit or not isinstance(value, str):
            return (first,)
        fitting = self.fitting(name, value)
        if first in fitting:
            return (first, *(each for each in fitting if each != first))
        # Older than the tables, or newer: nobody said that it does not exist.
        return fitting if first in self.listed.every[name] else (first, *fitting)

    def fitting(self, name: str, bound: str) -> tuple[str, ...]:
        """Releases within a bound that this Python may install, nearest to the installed one first."""
        if (name, bound) not in self._fitting:
            self._fitting[name, bound] = self._nearest_first(name, bound)
        return self._fitting[name, bound]

    def _nearest_first(self, name: str, bound: str) -> tuple[str, ...]:
        try:
            limits = versions.parse_specifier(bound)
        except ValueError:
            return ()
        candidates: Iterable[str] = self.listed.fit.get(name, ())
        if name not in self.listed.every:
            candidates = sorted(self._tried.get(package_key(name), ()), key=versions.order)
        found = [each for each in candidates if versions.satisfies_all(each, limits) is Tri.YES]
        return nearest_first(found, name, self.read.known(package_key(name)))

    def _metadata(self, rule: Rule, state: _State) -> Iterator[tuple[str, Sequence[Value], str]]:
        """Another release of what is required, within all that is asked of it; or of what requires it."""
        _, package, required = rule.id.split(":")
        bounds = [each for each in derive.requirements(state.settled) if each.requires == required]
        own = next((each.specifier for each in bounds if each.package == package), "")
        together = ",".join(dict.fromkeys(each.specifier for each in bounds if each.specifier))
        for bound in dict.fromkeys((together, own)):
            values = self.fitting(required, bound) or self._lowest(required, bound)
            if values:
                yield package_key(required), values[:1], bound if required not in self.listed.every else ""
        here = state.settled.known(package_key(required))
        accepting = [
            version
            for version in self.fitting(package, ">=0")
            if here is not None and self._accepts(package, version, required, here)
        ]
        nearest: dict[tuple[int, bool], str] = {}
        for version in accepting:
            step = size(package_key(package), self.read.known(package_key(package)), version)
            nearest.setdefault(step, version)
        for version in nearest.values():
            yield package_key(package), (version,), ""

    def _lowest(self, name: str, bound: str) -> Sequence[str]:
        """The lower bound of what is asked, for a package whose releases nobody lists here."""
        first = judge.trial(bound) if bound and name not in self.listed.every else bound
        if first == bound or not isinstance(first, str):
            return ()
        limits = versions.parse_specifier(bound)
        here = self.read.known(package_key(name))
        upwards = here is not None and versions.order(first) > versions.order(str(here))
        return (first,) if upwards and versions.satisfies_all(first, limits) is Tri.YES else ()

    def _accepts(self, package: str, version: Value | None, required: str, there: Value | None) -> bool:
        """Whether a release takes another package as it is; by the tables, or by what is installed."""
        if (known := self._accepted.get((package, version, required, there))) is not None:
            return known
        lines = self.listed.requires.get((package, str(version)))
        if lines is None:
            installed = self.read.known(package_key(package, "requires"))
            lines = installed if isinstance(installed, tuple) else ()
        mini = {package_key(package, "requires"): Fact(package_key(package, "requires"), Known(lines))}
        asked = (each.specifier for each in derive.requirements(Inventory(mini)) if each.requires == required)
        taken = there is None or all(
            versions.satisfies(str(there), specifier, unknown=Tri.YES) is not Tri.NO for specifier in asked
        )
        self._accepted[package, version, required, there] = taken
        return taken

    def _target(self, rule: Rule) -> Iterator[tuple[str, Sequence[Value], str]]:
        """What a target wants: a package (as it was measured, newest first; else the newest) or a fact."""
        clause = rule.when[0][0]
        test = clause.any_of[0][0]
        name = package_name(clause.key)
        if name == clause.key:
            if isinstance(test, Comparison) and not isinstance(test.operand, tuple):
                yield clause.key, (test.operand,), ""
            return
        newest = self.fitting(name, ">=0")
        for values in (self._as_measured(name), newest):
            if values:
                yield clause.key, values, ""

    def _as_measured(self, name: str) -> tuple[str, ...]:
        """The release of a package that was run with most of what is here; none if none was."""
        if name not in self._measured_of:
            self._measured_of[name] = self._nearest_run(name)
        return self._measured_of[name]

    def _nearest_run(self, name: str) -> tuple[str, ...]:
        ran = [pkg for pkg in self._good if pkg.get(name) in self.listed.fit.get(name, ())]

        def agreement(pkg: Mapping[str, str]) -> tuple[int, Any]:
            same = sum(
                versions.base_release(str(self.read.known(package_key(each)))) == versions.base_release(there)
                for each, there in pkg.items()
            )
            return same, versions.order(pkg[name])

        return (max(ran, key=agreement)[name],) if ran else ()


def _possibly_within(version: str, specifier: str) -> bool:
    return versions.satisfies(version, specifier, unknown=Tri.YES) is not Tri.NO


def _keys(rule: Rule) -> set[str]:
    """The facts a rule asks of, and those it compares with."""
    asked = [clause for table in (*rule.when, rule.require) for clause in table]
    return {key for clause in asked for key in (clause.key, *refs(clause))}


# --- the search -------------------------------------------------------------------------------------


class RemediationResult(NamedTuple):
    """The best changes of a search, None if there are none, and how much is proved of them.

    `fewest` means that no fewer moves will do (or that none will), `smallest` that no as few are smaller.
    """

    changes: Changes | None
    fewest: bool
    smallest: bool


def search(
    world: RemediationSpace,
    wanted: frozenset[str],
    states: int = STATES,
    *,
    more: int = STATES,
    below: tuple[int, int] | None = None,
    any_release: bool = False,
    hurried: bool = False,
) -> RemediationResult:
    """The cheapest changes after which nothing of `wanted` is open and nothing new is broken.

    `states` is how many may be judged, and `more` how many once there is an answer, for a smaller one of as
    many moves. `below` asks for fewer moves than so many (an administrator's counted first), and `hurried`
    takes the first answer, looking first where the least is open.
    """
    serial = count()
    best: Changes | None = None
    queue: list[tuple[Any, ...]] = []
    seen = set()
    limit = world.states + states

    def look_at(state: _State) -> None:
        values = _values(state.changes)
        if values not in seen:
            seen.add(values)
            bound = _bound(world, state)
            if below is None or bound[:2] < below:
                order = (len(state.open), *bound) if hurried else (*bound[:2], len(state.open), *bound[2:])
                heapq.heappush(queue, (*order, next(serial), state))

    look_at(world.state({}, wanted))
    while queue and world.states < limit:
        *order, _, state = heapq.heappop(queue)
        if best is not None and tuple(order[:2]) > world.cost(best)[:2]:
            return RemediationResult(best, fewest=True, smallest=True)
        if not state.open:
            if hurried:
                return RemediationResult(state.changes, fewest=False, smallest=False)
            if best is None:
                limit = min(limit, world.states + more)
            best = min((each for each in (best, state.changes) if each is not None), key=world.cost)
            continue
        for after in world.successors(state, wanted, any_release=any_release):
            look_at(after)
    # The queue is by what an answer costs at least: the first one has the fewest moves.
    return RemediationResult(best, fewest=best is not None or not queue, smallest=not queue)


def _values(changes: Changes) -> frozenset[tuple[str, Value]]:
    return frozenset((key, proposal.value) for key, proposal in changes.items())


def _bound(world: RemediationSpace, state: _State) -> tuple[int, int, Cost]:
    """What any answer beyond this state costs at least, in moves; and what it costs itself."""
    cost = world.cost(state.changes)
    administrator = max(cost.administrator, world.administrator_needed(state))
    return administrator, cost.moves + world.needed_still(state), cost


# --- the plan ---------------------------------------------------------------------------------------

NO_WAY = "no change of packages or configuration is known to mend it"
NOT_TOGETHER = "no combination of the known ways out passes the judge here"


def plan(
    read: Inventory,
    known: Matrix,
    target: Target | None,
    listed: Releases,
    level: Severity,
    *,
    strict: bool = False,
) -> Plan:
    """The smallest change after which nothing is broken at `level` or above that can be mended.

    `strict` mends as a lock is judged: what packages ask of each other too, and what only some GPUs miss.
    """
    world = RemediationSpace(read, known, target, listed, level, strict=strict)
    start = world.state({}, frozenset())
    mendable = [each for each in world.broken if any(world.ways_out(each, start))]
    wanted = frozenset(each.rule.id for each in mendable)
    found = smallest(world, wanted)
    if found.changes is None:
        wanted, found = _most(world, mendable)
    changes = _needed(world, found.changes or {}, wanted)
    after = world.state(changes, frozenset(world.before))
    left = [each for each in world.broken if each.rule.id in after.ids]
    unmended = (Unresolved(each.rule, NOT_TOGETHER if each in mendable else NO_WAY) for each in left)
    return Plan(
        moves=tuple(_moves(world, changes, wanted)),
        unmended=tuple(unmended),
        level=level,
        brings=tuple(_brings(world, after)) if changes else (),
        added=_added(changes, after.settled),
        proved="smallest" if found.smallest else "fewest" if found.fewest else "",
        states=world.states,
    )


def smallest(world: RemediationSpace, wanted: frozenset[str]) -> RemediationResult:
    """The cheapest changes by ways out that rules list; by other releases where those need fewer moves."""
    # The more is broken, the longer a state takes to judge, and the less an exhaustive search is worth.
    states = STATES * 8 // (8 + len(wanted))
    listed = search(world, wanted, states, more=states // 4)
    if listed.changes is None and listed.fewest:  # no rule's way out helps: any release then
        listed = search(world, wanted, states, more=states // 4, any_release=True)
        if listed.changes is not None:
            return listed
    if listed.changes is None:
        listed = search(world, wanted, STATES // 4, hurried=True)
    if listed.changes is None:
        return search(world, wanted, STATES // 4, any_release=True, hurried=True)
    listed = listed._replace(changes=_needed(world, listed.changes, wanted))
    if moves(listed.changes or {}) <= 1:
        return listed
    below = world.cost(listed.changes or {})[:2]
    other = search(world, wanted, states // 2, more=states // 4, below=below, any_release=True)
    if other.changes is not None:
        return other
    fewest = listed.fewest and other.fewest
    return listed._replace(fewest=fewest, smallest=fewest and listed.smallest)


def _most(world: RemediationSpace, findings: Sequence[Finding]) -> tuple[frozenset[str], RemediationResult]:
    """As many of the findings as can be mended together, worst first, and how."""
    wanted: frozenset[str] = frozenset()
    best = RemediationResult({}, fewest=True, smallest=True)
    for finding in findings:
        found = search(world, wanted | {finding.rule.id}, STATES // 10, hurried=True)
        if found.changes is not None:
            wanted, best = wanted | {finding.rule.id}, found
    return wanted, best


def _needed(world: RemediationSpace, changes: Changes, wanted: frozenset[str]) -> Changes:
    """The changes without those that turned out needless; settings that belong together stay together."""
    for key, needless in changes.items():
        fewer = {
            each: proposal
            for each, proposal in changes.items()
            if each != key
            and (
                key.startswith("pkg.")
                or (proposal.rule.id, proposal.place) != (needless.rule.id, needless.place)
            )
        }
        if not world.state(fewer, wanted).open:
            return _needed(world, fewer, wanted)
    return changes


def _moves(world: RemediationSpace, changes: Changes, wanted: frozenset[str]) -> Iterator[Move]:
    companions = world.companions(changes)
    # What an installer does first, then the configuration, then what only an administrator can do.
    kinds = {"pkg": 0, "train": 1, "env": 1}
    leads = world.known.moves_with
    for key in sorted(
        changes, key=lambda each: (kinds.get(family(each), 2), package_name(each) not in leads, each)
    ):
        proposal = changes[key]
        fewer = {each: other for each, other in changes.items() if each != key}
        yield Move(
            key=key,
            before=world.start.known(key),
            after=proposal.value,
            bound=proposal.text,
            rules=tuple(each.rule for each in world.state(fewer, wanted).open) or (proposal.rule,),
            cost=proposal.cost,
            proposed_by=proposal.rule,
            install=_install(world, key, proposal),
            unchecked=_unchecked(world.listed, key, str(proposal.value)),
            administrator=family(key) in ADMINISTRATOR,
        )
        name = package_name(key)
        for other, version in companions.items():
            before = world.read.known(other)
            if package_name(other) in world.known.moves_with.get(name, ()) and version != before:
                install = package_name(other) + (f"=={version}" if version else "")
                yield Move(other, before, version or None, "", (), leader=name, install=install)


def _install(world: RemediationSpace, key: str, proposal: Proposal) -> str:
    name = package_name(key)
    if name == key:
        return ""
    # What other packages ask of one that no table lists need not begin at a release.
    guessed = proposal.rule.group == "requires-dist" and proposal.value not in world.fitting(name, ">=0")
    return (
        f"{name}{proposal.text}"
        if guessed and name not in world.listed.every
        else f"{name}=={proposal.value}"
    )


def _unchecked(listed: Releases, key: str, version: str) -> str:
    name = package_name(key)
    if name == key or version in listed.fit.get(name, ()):
        return "" if name == key or listed.checked else "not checked for your Python"
    return "not checked: no table lists its releases" if name not in listed.every else "not checked"


def _added(changes: Changes, settled: Inventory) -> tuple[str, ...]:
    lacking = (
        each.requires
        for each in derive.unmet(settled)[0]
        if package_key(each.package) in changes
        and isinstance(settled.fact(package_key(each.requires)).reading, Absent)
    )
    return tuple(sorted(set(lacking)))


def _brings(world: RemediationSpace, after: _State) -> Iterator[Rule]:
    """Rules, at any level, that are broken after the change and were not before."""

    def broken(settled: Inventory) -> dict[str, Rule]:
        rules = [*world.known.rules, *target_rules(world.target)]
        found = judge.judge(settled, rules).findings
        return {each.rule.id: each.rule for each in found if each.verdict is Verdict.BROKEN}

    before = broken(world.start)
    for rule_id, rule in broken(after.settled).items():
        if rule_id not in before:
            yield rule
