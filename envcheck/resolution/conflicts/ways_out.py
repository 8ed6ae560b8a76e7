"""Try changes to a problem without a solution, and describe those with which a lock is found."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import Fact, Known, Value, family
from envcheck.core.rules import Rule
from envcheck.resolution import resolver
from envcheck.resolution.conflicts.view import FACT_NAMES, ConflictView, gpu_name
from envcheck.resolution.resolver import Reason, SearchProblem
from envcheck.rules import clauses, judge
from envcheck.rules.fixes import bind_fix, trial_value

_MOST_PAIRS = 40
"""Number of pairs of changes that are tried; each takes one search."""


class _FutileChange(NamedTuple):
    """Hold a changed problem without a lock: what was changed, in words, and what refuses every choice."""

    change: Reason
    label: str
    problem: SearchProblem
    reasons: frozenset[Reason]


class _Trials:
    """Try changes, and keep those that do not help; `after` is a change that was made before.

    A change is identified by what it changes: no trial changes the same thing again, or in another order.
    """

    def __init__(
        self, left: int, after: _FutileChange | None = None, known: Collection[frozenset[Reason]] = ()
    ) -> None:
        """Allow `left` more searches; changes of `known` were tried."""
        self.left, self._after, self._known = left, after, known
        self.tried: set[frozenset[Reason]] = set()
        self.futile: list[_FutileChange] = []

    def change(self, change: Reason, label: str, changed: SearchProblem) -> Iterator[str]:
        """Yield a sentence if the search finds a lock for the changed problem."""
        changes = frozenset({change, *((self._after.change,) if self._after else ())})
        if self._after and (len(changes) == 1 or changes in self._known):
            return
        if not self.left:
            return
        self.left -= 1
        self.tried.add(changes)
        try:
            answer = resolver.solve(changed)
        except NoSolutionError:
            return
        if answer.versions is None:
            self.futile.append(_FutileChange(change, label, changed, answer.reasons))
            return
        chosen = ", ".join(f"{name} {version}" for name, version in answer.versions.items())
        settings = "".join(
            f", {key} = {clauses.format_value(value)}" for key, value in answer.changed.items()
        )
        before = f"{self._after.label}, and " if self._after else ""
        yield f"{before}{label}: {chosen}{settings}"


def ways_out(view: ConflictView) -> Iterator[str]:
    """Yield a sentence for each change with which the search finds a lock, and that lock.

    If no change to what refuses the choices helps, each package that the user added is left out, with its
    bounds before and as a whole then. If no single change helps, two together are tried: a second one for
    what is in the way after the first.
    """
    single = _Trials(sys.maxsize)
    helped = False
    for sentence in _changes(view, single):
        helped = True
        yield sentence
    for sentence in () if helped else _without_additions(view.problem, single):
        helped = True
        yield sentence
    left, known = _MOST_PAIRS, set[frozenset[Reason]]()
    for first in () if helped else single.futile:
        second = _Trials(left, first, known)
        yield from _changes(ConflictView(first.problem, first.reasons), second)
        left = second.left
        known |= second.tried


def _changes(view: ConflictView, trials: _Trials) -> Iterator[str]:
    problem = view.problem
    for kind, *arguments in view.ordered_reasons():
        match kind:
            case "requirement":
                yield from _without_bound(problem, int(arguments[0]), trials)
            case "until":
                label = f"without {problem.until_by}"
                yield from trials.change(("until",), label, problem._replace(until=""))
            case "python":
                yield from _other_python(problem, trials)
            case "rule":
                yield from _for_rule(view, view.rule(arguments[0]), trials)
            case _:
                pass  # no person can change the other reasons


def _without_bound(problem: SearchProblem, number: int, trials: _Trials) -> Iterator[str]:
    """Try a requirement without its bound, unless the target bounds it; the package is still required."""
    requirement = problem.requirements[number]
    if requirement.by_target or not requirement.specifier:
        return
    unbound = requirement._replace(specifier="")
    requirements = (*problem.requirements[:number], unbound, *problem.requirements[number + 1 :])
    label = f"without the bound {requirement.package}{requirement.specifier} ({requirement.origin})"
    yield from trials.change(("requirement", str(number)), label, problem._replace(requirements=requirements))


def _without_additions(problem: SearchProblem, trials: _Trials) -> Iterator[str]:
    """Try each package that the user added: without its bounds, then without the package.

    What a completed lock was refused for with this package no longer counts. The target's packages stay.
    """
    numbered = [
        (number, each)
        for number, each in enumerate(problem.requirements)
        if each.wanted and not each.by_target and each.package not in problem.target.packages
    ]
    for package in dict.fromkeys(each.package for _, each in numbered):
        mine = {number: each for number, each in numbered if each.package == package}
        others = tuple(each for number, each in enumerate(problem.requirements) if number not in mine)
        objections = tuple(each for each in problem.objections if package not in dict(each.added))
        freed = problem._replace(objections=objections)
        named = ", ".join(f"{each.package}{each.specifier} ({each.origin})" for each in mine.values())
        found: list[str] = []
        known = {frozenset({("requirement", str(number))}) for number in mine} & trials.tried
        if any(each.specifier for each in mine.values()) and not known:
            unbound = (*others, next(iter(mine.values()))._replace(specifier=""))
            label = f"without the {'bound' if len(mine) == 1 else 'bounds'} {named}"
            found += trials.change(("unbound", package), label, freed._replace(requirements=unbound))
        if not found:
            found += trials.change(
                ("dropped", package), f"without {named}", freed._replace(requirements=others)
            )
        yield from found


def _other_python(problem: SearchProblem, trials: _Trials) -> Iterator[str]:
    """Try the other Pythons with wheels, nearest first, until one helps."""

    def minor(python: str) -> int:
        return int(python.partition(".")[2])

    current = minor(problem.python)
    listed = {python for release in problem.releases for python in release.pythons if python[-1].isdecimal()}
    for python in sorted(listed, key=lambda python: (abs(minor(python) - current), python)):
        if python == problem.python:
            continue
        fact = Fact("python.version", Known(f"{python}.0"), "the lock's Python")
        changed = problem._replace(python=python, machine=problem.machine.with_facts([fact]))
        found = list(trials.change(("python",), f"Python {python}", changed))
        yield from found
        if found:
            return


# --- ways out of a rule -----------------------------------------------------------------------------


def _for_rule(view: ConflictView, rule: Rule, trials: _Trials) -> Iterator[str]:
    """Try the rule's fixes that change the machine or the training, then drop facts of its evidence."""
    problem = view.problem
    helped = False
    for key, value in _changes_in_fixes(view, rule):
        label = _change_label(problem, key, value)
        found = list(trials.change(("fact", key), label, _with_fact(problem, key, trial_value(value))))
        yield from found
        helped = helped or bool(found)
        if found and key == "driver.version":
            break  # the oldest driver that helps is enough
    evidence = view.evidence(rule)
    if any(each.device is not None for each in evidence):
        yield from _without_a_gpu(problem, trials)
    elif not helped:
        for key in (each.fact.key for each in evidence):
            if key in problem.machine.facts and key != "python.version":
                yield from _without_fact(problem, key, trials)


def _changes_in_fixes(view: ConflictView, rule: Rule) -> list[tuple[str, str | int | bool]]:
    """Return the single facts other than packages that the rule's fixes set; drivers oldest first."""
    found: dict[tuple[str, str | int | bool], None] = {}
    choices: list[dict[str, str]] = [{}]
    choices += [{name: release.version} for name in view.packages for release in view.releases(name)]
    for chosen in choices:
        broken = view.finding(rule, chosen)
        if broken is None:
            continue
        for fix in rule.fixes:
            bound = bind_fix(fix, broken[1], judge.device_of(broken[0]))
            if bound is not None and len(bound.set) == 1 and family(bound.set[0][0]) != "pkg":
                found[bound.set[0]] = None
    return sorted(found, key=lambda change: (change[0], versions.order(str(trial_value(change[1])))))


def _change_label(problem: SearchProblem, key: str, value: str | int | bool) -> str:
    if key == "driver.version":
        lower, _, upper = str(value).removeprefix(">=").partition(",<")
        return f"driver {lower} or newer" + (f", below {upper}" if upper else "")
    before = problem.target.train.get(key)
    instead = f" instead of {clauses.format_value(before)}" if before is not None else ""
    return f"with {key} = {clauses.format_value(value)}{instead}"


def _with_fact(problem: SearchProblem, key: str, value: Value) -> SearchProblem:
    if family(key) == "train" and not isinstance(value, tuple):
        target = problem.target._replace(train={**problem.target.train, key: value})
        return problem._replace(target=target)
    return problem._replace(machine=problem.machine.with_facts([Fact(key, Known(value), "proposed")]))


def _without_a_gpu(problem: SearchProblem, trials: _Trials) -> Iterator[str]:
    """Try the machine without each of its GPUs in turn."""
    machine = problem.machine
    for device in range(len(machine.devices)):
        rest = machine.devices[:device] + machine.devices[device + 1 :]
        name = gpu_name(machine, device)
        label = f"without the {name}" if rest else f"with another GPU than {name}"
        changed = problem._replace(machine=machine._replace(devices=rest))
        yield from trials.change(("gpu", str(device)), label, changed)


def _without_fact(problem: SearchProblem, key: str, trials: _Trials) -> Iterator[str]:
    value = clauses.format_value(problem.machine.known(key) or "")
    label = (
        "without a GPU" if key == "gpus.count" else f"with another {FACT_NAMES.get(key, key)} than {value}"
    )
    changed = problem._replace(machine=problem.machine.without(key))
    yield from trials.change(("fact", key), label, changed)
