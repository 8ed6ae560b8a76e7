"""Why nothing fits, in words: the least set of reasons that clash, and ways out that were tried. Pure.

Derived from the search and nothing else. A reason is dropped if the search still finds nothing without it;
what cannot be dropped is the proof. A way out is one change, shown only if the search finds a lock with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import Fact, Inventory, Known, Value, family, is_device_key, package_key
from envcheck.core.findings import Evidence, Finding
from envcheck.core.rules import Rule
from envcheck.resolution import resolver
from envcheck.resolution.resolver import Reason, Release, SearchProblem
from envcheck.rules import derive, judge
from envcheck.rules.clauses import format_value
from envcheck.rules.fixes import bind_fix, trial_value

MOST_WAYS = 6
"""Ways out that are shown: more than that is a catalogue."""

_ORDER = (
    "yanked",
    "pre-release",
    "through",
    "metadata",
    "until",
    "rule",
    "wants",
    "objection",
    "python",
    "wish",
)
"""What is dropped first, if it can be: what a person can do least about."""


class ConflictProof(NamedTuple):
    """Sentences: what clashes, each a reason; what would help, each tried."""

    clash: tuple[str, ...]
    ways: tuple[str, ...]
    reasons: frozenset[Reason]


class _AllBut(Container[Reason]):
    """Every reason but these."""

    def __init__(self, kept: Iterable[Reason]) -> None:
        self.kept = frozenset(kept)

    def __contains__(self, reason: object) -> bool:
        return reason not in self.kept


def prove(problem: SearchProblem, reasons: frozenset[Reason]) -> ConflictProof:
    """The least of these reasons that refuse everything, in words, and what would help."""
    least = _least(problem, reasons)
    teller = _Teller(problem, least)
    return ConflictProof(tuple(teller.clash()), tuple(_distinct(teller.ways())), least)


def _distinct(ways: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for way in ways:
        if way not in seen:
            seen.add(way)
            yield way
        if len(seen) == MOST_WAYS:
            return


def _least(problem: SearchProblem, reasons: frozenset[Reason]) -> frozenset[Reason]:
    kept = reasons
    for reason in sorted(reasons, key=lambda each: (_ORDER.index(each[0]), each)):
        if reason not in kept:
            continue
        try:
            answer = resolver.solve(problem, _AllBut(kept - {reason}))
        except NoSolutionError:
            continue  # too long a search to say that the rest is enough
        if answer.versions is None:
            kept = answer.reasons & kept
    return kept


# --- telling it -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Teller:
    problem: SearchProblem
    least: frozenset[Reason]
    others: _AllBut = field(init=False)
    packages: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Look at the clash alone: its packages, and only its reasons."""
        self.others = _AllBut(self.least)
        self.packages = resolver.wanted_packages(self.problem, self.others)

    # --- what clashes -----------------------------------------------------------------------------

    def clash(self) -> Iterator[str]:
        """Each reason as a sentence: the wants, what limits them from outside, then the rules."""
        target = self.problem.target
        needed = [name for name in self.packages if name in target.packages and ("wants", name) in self.least]
        if needed:
            yield f"{target.name} needs {_listed(needed)}"
        tell: Mapping[str, Callable[..., str]] = {
            "wish": self._wish,
            "wants": self._wants,
            "python": self._python,
            "until": self._until,
            "through": self._through,
            "yanked": self._yanked,
            "pre-release": self._pre_release,
            "metadata": self._metadata,
            "objection": self._objection,
            "rule": self._rule_in_words,
        }
        for reason in self._sorted():
            if told := tell[reason[0]](*reason[1:]):
                yield told

    def _sorted(self) -> list[Reason]:
        return sorted(self.least, key=lambda each: (-_ORDER.index(each[0]), each))

    def _wish(self, number: str) -> str:
        wish = self.problem.wishes[int(number)]
        left = self._leaves(("wish", number), wish.package)
        return f"{wish.origin} asks for {wish.package}{wish.specifier}: {left}"

    def _wants(self, name: str) -> str:
        asked = [wish.origin for wish in self.problem.wishes if wish.package == name and wish.wanted]
        told = [number for kind, *number in self.least if kind == "wish"]
        if name in self.problem.target.packages or any(
            self.problem.wishes[int(number)].package == name for (number,) in told
        ):
            return ""  # said already
        return f"{_listed(asked)} asks for {name}"

    def _python(self) -> str:
        return f"Python {self.problem.python}: {self._leaves_each(('python',))}"

    def _until(self) -> str:
        return (
            f"nothing after {self.problem.until} ({self.problem.until_by}): {self._leaves_each(('until',))}"
        )

    def _through(self, name: str) -> str:
        known = self.problem.known.known_through[name]
        return f"{name} is known through {known}: {self._leaves(('through', name), name)}"

    def _yanked(self, name: str) -> str:
        return f"yanked releases of {name} are never taken: {self._leaves(('yanked', name), name)}"

    def _pre_release(self, name: str) -> str:
        return f"pre-releases are taken only if asked for: {self._leaves(('pre-release', name), name)}"

    def _objection(self, number: str) -> str:
        each = self.problem.objections[int(number)]
        stack = ", ".join(f"{name} {version}" for name, version in each.stack)
        added = ", ".join(f"{name} {version}" for name, version in each.added if version)
        return f"completed, {stack}{f' beside {added}' if added else ''} was refused: {each.words}"

    def _refused(self, reason: Reason, name: str) -> list[Release]:
        """Releases of a package that this reason keeps out by itself."""
        alone = resolver.candidates(self.problem, name, _AllBut([reason]))[0]
        return [each for each in self._all(name) if each not in alone]

    def _all(self, name: str) -> list[Release]:
        """Every release of a package, oldest first."""
        found = [each for each in self.problem.releases if each.package == name]
        return sorted(found, key=lambda each: versions.order(each.version))

    def _leaves(self, reason: Reason, name: str) -> str:
        refused = self._refused(reason, name)
        every = self._all(name)
        return _left(name, [each.version for each in every if each not in refused], every)

    def _leaves_each(self, reason: Reason) -> str:
        limited = [name for name in self.packages if self._refused(reason, name)]
        return "; ".join(self._leaves(reason, name) for name in limited)

    def _metadata(self, name: str, required: str) -> str:
        offered = resolver.candidates(self.problem, name, self.others)[0]
        asks: dict[str, list[str]] = {}
        for release in offered:
            for line in release.requires:
                package, specifier = _split(line)
                if package == required and specifier:
                    asks.setdefault(specifier, []).append(release.version)
        told = [f"{name} {_span(found)} asks for {required}{bound}" for bound, found in asks.items()]
        if not told:
            return f"the metadata of {name} asks for another {required}"
        more = f", and older ones likewise ({len(told) - 2} more bounds)" if len(told) > 2 else ""  # noqa: PLR2004
        return "; ".join(told[:2]) + more

    # --- rules ------------------------------------------------------------------------------------

    def _rule(self, rule_id: str) -> Rule:
        return next(rule for rule in resolver.asked_rules(self.problem) if rule.id == rule_id)

    def _rule_in_words(self, rule_id: str) -> str:
        rule = self._rule(rule_id)
        concerned = [name for name in self.packages if name in resolver.scope(rule, self.problem.known)]
        told = f"{rule.title} ({rule.id})"
        said = list(self._facts_of(rule))
        because = f"{', '.join(said)}: " if said else ""
        for name in concerned:
            broken = self._broken_alone(rule, name)
            if not broken:
                continue
            every = self._all(name)
            left = [each.version for each in every if each.version not in broken]
            return f"{because}{told}; {_left(name, left, every)}{self._nearest(broken, left, name)}"
        pair = self._broken_together(rule, concerned)
        return f"{because}{told}{f'; it refuses {pair}' if pair else ''}"

    def _finding(self, rule: Rule, chosen: Mapping[str, str]) -> tuple[Finding, Inventory] | None:
        inventory = _settled(self.problem, chosen)
        for finding in judge.judge(inventory, [rule]).findings:
            if judge.forbids_lock(finding):
                return finding, inventory
        return None

    def _broken_alone(self, rule: Rule, name: str) -> dict[str, Finding]:
        """Releases of a package that break the rule whatever else is chosen."""
        found = {}
        for release in self._all(name):
            broken = self._finding(rule, {name: release.version})
            if broken is not None:
                found[release.version] = broken[0]
        return found

    def _nearest(self, broken: Mapping[str, Finding], left: Sequence[str], name: str) -> str:
        """What is derived of the refused release nearest to what is left: where the line runs, and why."""
        newer = [
            version for version in broken if not left or versions.order(version) > versions.order(left[-1])
        ]
        version = newer[0] if newer else next(iter(broken))
        settled = _settled(self.problem, {name: version})
        if not any(each.fact.key == "cuda.minimum_driver" for each in broken[version].evidence):
            return ""
        cuda, floor = (settled.known(key) for key in ("cuda.runtime", "cuda.minimum_driver"))
        return f": {name} {version} has CUDA {cuda}, whose oldest driver is {floor}"

    def _broken_together(self, rule: Rule, concerned: Sequence[str]) -> str:
        """The newest releases that break the rule together, of those nothing else refuses."""
        offered = {name: resolver.candidates(self.problem, name, self.others)[0] for name in concerned}
        newest = {name: found[0].version for name, found in offered.items() if found}
        for name, found in offered.items():
            for release in found:
                chosen = {**newest, name: release.version}
                if self._finding(rule, chosen) is not None:
                    return " with ".join(f"{each} {version}" for each, version in chosen.items())
        return ""

    def _facts_of(self, rule: Rule) -> Iterator[str]:
        """The machine's and the training's facts that the rule holds against, as a person gave them."""
        seen: set[str] = set()
        for because in self._because(rule):
            fact = because.fact
            plain = not fact.source.startswith("derived") or is_device_key(fact.key)
            if fact.value is None or family(fact.key) in ("pkg", "build") or not plain:
                continue
            text = self._said(because)
            if text not in seen:
                seen.add(text)
                yield text

    def _because(self, rule: Rule) -> tuple[Evidence, ...]:
        """Of the first choice found that breaks the rule."""
        found = self._finding(rule, {})
        for name in self.packages:
            for release in resolver.candidates(self.problem, name, self.others)[0]:
                found = found or self._finding(rule, {name: release.version})
        if found is None:
            offered = [
                (name, resolver.candidates(self.problem, name, self.others)[0]) for name in self.packages
            ]
            found = self._finding(rule, {name: each[0].version for name, each in offered if each})
        return found[0].evidence if found else ()

    def _said(self, because: Evidence) -> str:
        fact = because.fact
        if because.device is not None or (fact.key == "gpus.count" and self.problem.machine.devices):
            return _listed(_gpus(self.problem.machine))
        origin = f" ({fact.source})" if fact.source.startswith(("declared", "target", "default")) else ""
        return f"{_NAMES.get(fact.key, fact.key)} {format_value(fact.value or '')}{origin}"

    # --- ways out ---------------------------------------------------------------------------------

    def ways(self) -> Iterator[str]:
        """Changes that let the search find something, and what it finds; each is one change."""
        for reason in self._sorted():
            if reason[0] == "wish":
                yield from self._without_wish(int(reason[1]))
            elif reason[0] == "until":
                yield from self._tried(f"without {self.problem.until_by}", self.problem._replace(until=""))
            elif reason[0] == "python":
                yield from self._other_pythons()
            elif reason[0] == "rule":
                yield from self._ways_of(self._rule(reason[1]))

    def _tried(self, label: str, changed: SearchProblem) -> Iterator[str]:
        try:
            answer = resolver.solve(changed)
        except NoSolutionError:
            return
        if answer.versions is not None:
            found = ", ".join(f"{name} {version}" for name, version in answer.versions.items())
            said = "".join(f", {key} = {format_value(value)}" for key, value in answer.changed.items())
            yield f"{label}: {found}{said}"

    def _without_wish(self, number: int) -> Iterator[str]:
        """Without its bound: whoever asks for a package still gets it."""
        wish = self.problem.wishes[number]
        freed = wish._replace(specifier="")
        wishes = (*self.problem.wishes[:number], freed, *self.problem.wishes[number + 1 :])
        label = f"without the bound {wish.package}{wish.specifier} ({wish.origin})"
        yield from self._tried(label, self.problem._replace(wishes=wishes))

    def _other_pythons(self) -> Iterator[str]:
        minor = int(self.problem.python.partition(".")[2])
        listed = {
            each for release in self.problem.releases for each in release.pythons if each[-1].isdecimal()
        }
        for python in sorted(listed, key=lambda each: (abs(int(each.partition(".")[2]) - minor), each)):
            if python == self.problem.python:
                continue
            fact = Fact("python.version", Known(f"{python}.0"), "the lock's Python")
            changed = self.problem._replace(python=python, machine=self.problem.machine.with_facts([fact]))
            found = list(self._tried(f"Python {python}", changed))
            yield from found
            if found:
                return

    def _ways_of(self, rule: Rule) -> Iterator[str]:
        """The rule's own ways out that change the machine or the training; then being without its facts."""
        helped = False
        for key, value in self._changes(rule):
            found = list(
                self._tried(self._change(key, value), _with_fact(self.problem, key, trial_value(value)))
            )
            yield from found
            helped = helped or bool(found)
            if found and key == "driver.version":
                break  # the oldest that will do
        because = self._because(rule)
        if any(each.device is not None for each in because):
            yield from self._without_a_gpu()
        elif not helped:
            for key in (each.fact.key for each in because):
                if key in self.problem.machine.facts and key != "python.version":
                    yield from self._without_fact(key)

    def _change(self, key: str, value: str | int | bool) -> str:
        if key == "driver.version":
            lower, _, upper = str(value).removeprefix(">=").partition(",<")
            return f"driver {lower} or newer" + (f", below {upper}" if upper else "")
        before = self.problem.target.train.get(key)
        instead = f" instead of {format_value(before)}" if before is not None else ""
        return f"with {key} = {format_value(value)}{instead}"

    def _without_a_gpu(self) -> Iterator[str]:
        machine = self.problem.machine
        for device in range(len(machine.devices)):
            rest = machine.devices[:device] + machine.devices[device + 1 :]
            label = (
                f"without the {_gpu(machine, device)}"
                if rest
                else f"with another GPU than {_gpu(machine, 0)}"
            )
            yield from self._tried(label, self.problem._replace(machine=replace(machine, devices=rest)))

    def _without_fact(self, key: str) -> Iterator[str]:
        value = format_value(self.problem.machine.known(key) or "")
        label = (
            "without a GPU" if key == "gpus.count" else f"with another {_NAMES.get(key, key)} than {value}"
        )
        yield from self._tried(label, self.problem._replace(machine=self.problem.machine.without(key)))

    def _changes(self, rule: Rule) -> list[tuple[str, str | int | bool]]:
        """Single facts that the rule's ways out set, but for packages: drivers oldest first."""
        found: dict[tuple[str, str | int | bool], None] = {}
        parts: list[dict[str, str]] = [{}]
        parts += [{name: each.version} for name in self.packages for each in self._all(name)]
        for chosen in parts:
            broken = self._finding(rule, chosen)
            if broken is None:
                continue
            for fix in rule.fixes:
                bound = bind_fix(fix, broken[1], judge.device_of(broken[0]))
                if bound is not None and len(bound.set) == 1 and family(bound.set[0][0]) != "pkg":
                    found[bound.set[0]] = None
        return sorted(found, key=lambda each: (each[0], versions.order(str(trial_value(each[1])))))


# --- words ------------------------------------------------------------------------------------------


def _settled(problem: SearchProblem, chosen: Mapping[str, str]) -> Inventory:
    train = [
        Fact(key, Known(value), f"target {problem.target.name}")
        for key, value in problem.target.train.items()
    ]
    packages = [Fact(package_key(name), Known(version), "the lock") for name, version in chosen.items()]
    return derive.derive(problem.machine.with_facts([*train, *packages]), problem.known)


def _with_fact(problem: SearchProblem, key: str, value: Value) -> SearchProblem:
    if family(key) == "train" and not isinstance(value, tuple):
        target = problem.target._replace(train={**problem.target.train, key: value})
        return problem._replace(target=target)
    return problem._replace(machine=problem.machine.with_facts([Fact(key, Known(value), "proposed")]))


def _gpu(machine: Inventory, device: int) -> str:
    name = machine.known("gpu.name", device)
    capability = machine.known("gpu.compute_capability", device)
    return str(name or f"the GPU of compute capability {capability}")


def _gpus(machine: Inventory) -> list[str]:
    return sorted({_gpu(machine, device) for device in machine.visible_devices()})


_NAMES = {"driver.version": "driver", "host.glibc": "glibc", "python.version": "Python"}
"""Facts by the names that people use."""


def _left(name: str, left: Sequence[str], every: Sequence[Release]) -> str:
    if not every:
        return f"no release of {name} is in the tables"
    if not left:
        return f"that leaves no {name} (known are {_span([each.version for each in every])})"
    return f"that leaves {name} {_span(left)} ({len(left)} of {len(every)} releases)"


def _span(found: Sequence[str]) -> str:
    ordered = sorted(found, key=versions.order)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def _split(line: str) -> tuple[str, str]:
    end = next((i for i, char in enumerate(line) if char in "<>=!~ ;"), len(line))
    return line[:end], line[end:].partition(";")[0].strip()


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
