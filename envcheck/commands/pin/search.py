"""Resolve a lock: choose versions, complete them with a backend, judge the whole, and search again.

Each round asks `resolution.resolver` for versions of the target's packages, and a backend for all their
dependencies. Then the completed lock is judged, and the objections constrain the next round. If the
violated rule has a bound on a package that the backend chooses, the backend gets that bound. Otherwise, or if
the bound cannot be met, the search refuses every choice that breaks the rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from envcheck import resolver_backends as backends
from envcheck.commands.pin import other_cuda, writing
from envcheck.commands.pin.completion import Completer, completion_request
from envcheck.commands.pin.index_offer import compare_with_index, with_offered_wishes
from envcheck.commands.pin.releases import needing_source, searched_releases
from envcheck.commands.pin.target import LockTarget, describe
from envcheck.core import versions
from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.core.facts import Tri
from envcheck.core.rules import Matrix, UserRequirement
from envcheck.host.machine import Host
from envcheck.knowledge import atlas_rules
from envcheck.lock import model as lock
from envcheck.resolution import resolver
from envcheck.resolution.resolver import Answer, Objection, Reason, Release, SearchProblem
from envcheck.resolution.stated_requirements import stated_requirements, with_stated
from envcheck.resolver_backends.index.extra_indexes import read_extra_indexes, why_unavailable

ROUNDS = 10
"""Number of rounds after which one search gives up."""

_MOST_AVOIDED = 6
"""Number of warnings for which other dependencies are tried; each takes one request to the backend."""


def resolve_lock(
    goal: LockTarget,
    host: Host,
    engine: str,
    notes: list[str],
    *,
    rejected: list[str] | None = None,
    extra_indexes: bool = True,
) -> lock.Lock:
    """Return a newly resolved lock.

    `engine` names a backend, `both` to compare two, or is empty for the best installed one. If only a
    torch for another CUDA fits, it is taken from one of the user's extra indexes, unless `extra_indexes`
    is False. Differences between the answers of two backends are added to `notes`, and the versions that were
    tried in vain to `rejected`.

    Raises:
        NoSolutionError: no versions fit, or the judge objected to every completed lock.
        ExamineError: no backend is installed, or it failed.
    """
    rejected = [] if rejected is None else rejected
    backend = backends.select_backends(host, backends.every_backend(), engine)
    problem = search_problem(goal)
    found = _Search(goal, problem, Completer(host, backend, goal.matrix, notes), rejected).run()
    if isinstance(found, lock.Lock):
        return found
    variant = other_cuda.fitting_versions(found.problem)
    why_not: list[str] = []
    if variant and extra_indexes:
        made, why_not = _search_other_cuda(goal, host, found.problem, variant["torch"], backend, notes)
        if made is not None:
            return made
    if not variant:  # otherwise that torch is the way out, whatever the index has of the user's packages
        found = found._replace(problem=with_offered_wishes(found.problem, goal, host))
    raise NoSolutionError(_explain_dead_end(goal, found, variant, why_not))


def search_problem(goal: LockTarget) -> SearchProblem:
    """Return the search's input: the goal, and every release to choose from."""
    offered = searched_releases(goal)
    required = {each.package for each in goal.requirements if each.wanted}
    packages = required or {release.package for release in offered.releases}
    return SearchProblem(
        # Without cells, the search prefers new releases to measured ones.
        known=_with_atlas(
            goal.matrix._replace(cells=()) if goal.newest else goal.matrix,
            {*packages, *goal.target.packages, *offered.dependencies},
        ),
        target=goal.target,
        machine=goal.machine,
        python=goal.python,
        releases=offered.releases,
        requirements=goal.requirements,
        until=goal.until,
        until_by=goal.until_by,
        dependencies=offered.dependencies,
    )


def _with_atlas(known: Matrix, packages: Collection[str]) -> Matrix:
    """Return the knowledge with the atlas's rules on the searched packages."""
    return known._replace(rules=(*known.rules, *atlas_rules.rules_of(known.atlas(), packages)))


# --- the rounds -------------------------------------------------------------------------------------


class _NeedsSource(NamedTuple):
    """Releases (`ms-swift 4.6.0`) that need packages which the index has as source only."""

    releases: tuple[str, ...]
    packages: tuple[str, ...]


class _DeadEnd(NamedTuple):
    """A search without an answer: the problem, what ruled it out, and why the last completed lock failed.

    If newer releases were excluded because they need packages without wheels, `needs_source` has both, the
    newest first.
    """

    problem: SearchProblem
    reasons: frozenset[Reason]
    last_failure: str
    needs_source: tuple[_NeedsSource, ...] = ()


class _Search:
    """One search in rounds; the results of a round are added to the problem and the bounds."""

    def __init__(
        self, goal: LockTarget, problem: SearchProblem, completer: Completer, rejected: list[str]
    ) -> None:
        """Take what the lock must serve, the first problem, and the backend that completes choices.

        Choices that the backend cannot complete or the judge refuses are added to `rejected`, each with the
        reason.
        """
        self._rejected = rejected
        self._goal, self._problem, self._completer = goal, problem, completer
        self._bounding: list[Objection] = []  # objections that the backend gets as bounds
        self._last_failure = ""
        self._asked_backend = False
        self._known_newest: Mapping[str, str] = {}
        self._spare: lock.Lock | None = None
        self._needs_source: tuple[_NeedsSource, ...] = ()

    def run(self) -> lock.Lock | _DeadEnd:
        """Return a lock, or the first dead end if there was one.

        Raises:
            NoSolutionError: no lock after ROUNDS rounds.
            ExamineError: the backend failed.
        """
        dead_end: tuple[SearchProblem, frozenset[Reason]] | None = None
        for _ in range(ROUNDS):
            try:
                answer = resolver.solve(self._problem)
            except NoSolutionError:  # the search gave up; the backend may find a choice
                made = None if self._asked_backend else self._choose_all()
                if made is None:
                    raise
                return made
            if answer.versions is not None:
                made = self._try(answer)
                if made is not None:
                    return made
                continue
            dead_end = dead_end or (self._problem, answer.reasons)
            if not any(objection.wide for objection in self._problem.objections):
                break
            self._narrow_objections()
        if self._spare is not None:
            return self._spare
        if dead_end is not None:
            return _DeadEnd(*dead_end, self._last_failure, self._needs_source)
        raise NoSolutionError(f"no lock after {ROUNDS} rounds; {self._last_failure}")

    def _try(self, answer: Answer) -> lock.Lock | None:
        """Complete a choice and return the lock; if that fails, constrain the next round and return None."""
        choice = dict(answer.versions or {})
        build = resolver.built(self._problem, {**choice, **answer.brought})
        request = self._completer.prepare(completion_request(self._goal, choice, build, self._bounding))
        try:
            pins = self._complete(request, answer.brought)
        except NoSolutionError as error:
            made = self._learn_from_failure(error, request, choice)
            self._reject(choice)
            return made
        closure = {pin.name: pin.version for pin in pins}
        found = resolver.objections(self._problem, closure, answer.changed, choice)
        if not found:
            pins = self._without_warnings(pins, request, answer)
            return writing.build_lock(self._goal, pins, request.build, answer.changed)
        self._learn_from_objections(found)
        self._reject(choice)
        return None

    def _reject(self, choice: Mapping[str, str]) -> None:
        """Note a choice, and the failure after it."""
        packages = ", ".join(f"{name} {version}" for name, version in choice.items())
        self._rejected.append(f"rejected: {packages}: {self._last_failure}")

    def _complete(
        self, request: backends.CompletionRequest, brought: Mapping[str, str]
    ) -> tuple[lock.Pin, ...]:
        """Complete a request with the dependencies that the search chose, or else with any others."""
        if brought:
            exact = (f"{name}=={version}" for name, version in brought.items())
            try:
                return self._completer.complete(replace(request, constraints=(*request.constraints, *exact)))
            except NoSolutionError:
                pass  # other packages or the index may need other versions of these dependencies
        return self._completer.complete(request)

    def _without_warnings(
        self, pins: tuple[lock.Pin, ...], request: backends.CompletionRequest, answer: Answer
    ) -> tuple[lock.Pin, ...]:
        """Return a completed choice again, with other dependencies where these avoid a warning.

        A package that only the user requires counts as a dependency here; their bounds on it stay.
        """
        choice = dict(answer.versions or {})
        fixed = choice.keys() & {*self._goal.target.packages}
        closure = {pin.name: pin.version for pin in pins}
        count = len(resolver.warnings(self._problem, closure, answer.changed))
        avoiding = resolver.avoidable_warnings(self._problem, closure, answer.changed, fixed)
        for bounds in avoiding[:_MOST_AVOIDED]:
            stricter = _with_bounds(request, bounds, fixed, self._goal)
            try:
                other = self._complete(stricter, answer.brought)
            except NoSolutionError:
                continue
            closure = {pin.name: pin.version for pin in other}
            left = len(resolver.warnings(self._problem, closure, answer.changed))
            if left < count and not resolver.objections(self._problem, closure, answer.changed, choice):
                request, pins, count = stricter, other, left
        return pins

    def _learn_from_failure(
        self, error: NoSolutionError, request: backends.CompletionRequest, choice: Mapping[str, str]
    ) -> lock.Lock | None:
        """Learn requirements that the reason states, or what the index lacks; else let the backend choose.

        Raises:
            NoSolutionError: nothing satisfies the requirements of the user.
        """
        self._last_failure = str(error)
        if self._exclude_needing_source(error, request, choice) or self._join_disputed(error, request):
            return None
        learned = with_stated(self._problem.releases, stated_requirements(error.chain), choice)
        if learned is not None and learned != self._problem.releases:
            self._problem = self._problem._replace(releases=learned)
            return None
        offer = compare_with_index(self._problem.releases, self._goal, request, self._completer.host)
        if offer.lacking:
            self._problem = self._problem._replace(releases=offer.releases)
            self._last_failure = "; ".join(offer.lacking)
            self._completer.notes.extend(offer.lacking)
        elif isinstance(error, backends.YankedError):
            # The search does not choose this package, so the backend has to choose another release of it.
            self._goal = replace(self._goal, requirements=(*self._goal.requirements, _another_release(error)))
        elif self._bounding:
            self._refuse(self._bounding)
            self._bounding = []
        elif request.given:
            self._refuse([Objection("", tuple(choice.items()), message=self._last_failure)])
        else:
            return self._let_backend_choose(error, request, choice)
        return None

    def _join_disputed(self, error: NoSolutionError, request: backends.CompletionRequest) -> bool:
        """Let packages join the search that the reason names as required and the tables do not have.

        What the releases of other packages require of them is known; which releases they have, the index
        says. Return whether any joined.
        """
        from envcheck.resolver_backends.index import availability

        known = {release.package for release in self._problem.releases} | {*request.build, *request.also}
        names = {each.required for each in stated_requirements(error.chain)} - known
        offers = availability.offers(self._completer.host, request, names) if names else {}
        releases = [
            Release(name, str(version))
            for name in sorted(names)
            for version in offers[name].usable - offers[name].yanked
        ]
        joined = dict.fromkeys(release.package for release in releases)
        self._problem = self._problem._replace(
            releases=(*self._problem.releases, *releases),
            dependencies=(*self._problem.dependencies, *joined),
        )
        return bool(joined)

    def _exclude_needing_source(
        self, error: NoSolutionError, request: backends.CompletionRequest, choice: Mapping[str, str]
    ) -> bool:
        """Exclude every release that needs a package without wheels; return whether the choice has one.

        The backend names such a package only for the releases that it was asked for, one after another.
        """
        from envcheck.commands.pin import unpinned
        from envcheck.resolver_backends.index import availability

        if not unpinned.named_sources(error.chain):
            return False
        found = unpinned.source_only(self._completer, request, error.chain)
        offers = availability.offers(self._completer.host, request, found)
        sources = [name for name in found if not offers[name].usable and offers[name].source_only]
        releases = tuple(needing_source(self._problem.releases, sources, self._goal.machine))
        excluded = {(each.package, each.version) for each in releases if each.no_wheel}
        excluded -= {(each.package, each.version) for each in self._problem.releases if each.no_wheel}
        if not excluded & choice.items():
            return False
        self._problem = self._problem._replace(releases=releases)
        needing = [
            name for name in resolver.required_packages(self._problem) if (name, choice[name]) in excluded
        ]
        if needing:
            named = tuple(f"{name} {choice[name]}" for name in needing)
            self._needs_source += (_NeedsSource(named, tuple(sources)),)
            self._completer.notes += unpinned.why_without_source(self._problem, needing, sources)
        return True

    def _let_backend_choose(
        self, error: NoSolutionError, request: backends.CompletionRequest, choice: Mapping[str, str]
    ) -> lock.Lock | None:
        """Return a lock in which the backend chose all but the required packages, or None.

        If there is none, the next round is constrained.

        Raises:
            NoSolutionError: the backend finds nothing within what the judge allows of each package.
        """
        from envcheck.commands.pin import unpinned

        asked = {name: choice[name] for name in resolver.required_packages(self._problem)}
        if asked and not self._known_newest:
            self._known_newest = unpinned.newest_alone(self._goal, self._problem, self._completer)
            older = {
                name: newest
                for name, version in asked.items()
                if (newest := self._known_newest.get(name, version)) != version
            }
            if older:
                sources = unpinned.source_only(self._completer, request, error.chain)
                if sources:
                    needing = [name for name in older if unpinned.needs_one(error.chain, name, sources)]
                    releases = tuple(f"{name} {asked[name]}" for name in needing or older)
                    self._needs_source += (_NeedsSource(releases, sources),)
                self._exclude_newer(older)
                self._completer.notes += unpinned.why_older(older, self._last_failure, sources)
                return None
        if not self._asked_backend:
            self._asked_backend = True
            self._spare = self._choose_all()
            pins = {pin.name: pin.version for pin in self._spare.pins} if self._spare else {}
            if self._spare is not None and asked.items() <= pins.items():
                return self._spare
        found = unpinned.choose_unpinned(self._goal, self._problem, self._completer, asked)
        if isinstance(found, lock.Lock):
            return found
        refused = asked if asked and isinstance(found, unpinned.Unsolvable) else named_in(error.chain, choice)
        self._refuse([Objection("", tuple(refused.items()), message=self._last_failure)])
        return None

    def _choose_all(self) -> lock.Lock | None:
        from envcheck.commands.pin import unpinned
        from envcheck.resolution import conflicts

        found = unpinned.choose_unpinned(self._goal, self._problem, self._completer)
        if not isinstance(found, unpinned.Unsolvable):
            return found
        if not found.reason:  # nothing fits in pairs, so the search finds the reasons itself
            return None
        name, machine = self._goal.target.name, describe(self._goal)
        lines = [f"no versions for {name} fit {machine}; these requirements conflict:"]
        reasons = (*_known_reason(self._goal), *_needing_source_lines(self._needs_source))
        needing = [f"  - {line}" for line in reasons]
        lines += needing
        lines += unpinned.describe_clash(
            self._goal, self._problem, self._completer, found, most=conflicts.MOST_LINES - len(needing)
        )
        raise NoSolutionError("\n".join(lines))

    def _exclude_newer(self, newest: Mapping[str, str]) -> None:
        """Exclude releases newer than the newest installable one: the index lacks something they need."""
        kept = tuple(
            release
            for release in self._problem.releases
            if release.package not in newest
            or versions.compare(release.version, "<=", newest[release.package]) is not Tri.NO
        )
        self._problem = self._problem._replace(releases=kept)

    def _learn_from_objections(self, found: Sequence[Objection]) -> None:
        """Give the backend the bounds of new objections; add the other objections to the search's problem."""
        self._last_failure = f"the completed lock was refused by: {found[0].message} ({found[0].rule})"
        tried = {objection.rule for objection in self._bounding}
        bounding = [each for each in found if each.bounds and each.rule not in tried]
        self._refuse([each for each in found if each not in bounding])
        self._bounding += bounding

    def _refuse(self, objections: Sequence[Objection]) -> None:
        self._problem = self._problem._replace(objections=(*self._problem.objections, *objections))

    def _narrow_objections(self) -> None:
        """Refuse only the exact versions that failed: another stack may have other dependencies."""
        narrow = tuple(each._replace(wide=False) for each in self._problem.objections)
        self._problem = self._problem._replace(objections=narrow)


def named_in(chain: str, choice: Mapping[str, str]) -> Mapping[str, str]:
    """Return the part of a choice that a chain of reasons names; all of it if the chain names none.

    Each premise of the chain names its packages, so the others of the choice do not matter.
    """
    named = {
        name: version
        for name, version in choice.items()
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", chain)
    }
    return named or choice


def _another_release(yanked: backends.YankedError) -> UserRequirement:
    return UserRequirement(yanked.name, f"!={yanked.version}", str(yanked), wanted=False)


def _with_bounds(
    request: backends.CompletionRequest, bounds: Sequence[str], fixed: Collection[str], goal: LockTarget
) -> backends.CompletionRequest:
    """Return the request with further bounds; packages that they name outside `fixed` may move."""
    named = {re.split(r"[<>=!~]", bound, maxsplit=1)[0] for bound in bounds}
    moving = {name for name in request.pins if name in named and name not in fixed}
    own = (f"{each.package}{each.specifier}" for each in goal.requirements if each.package in moving)
    return replace(
        request,
        pins={name: version for name, version in request.pins.items() if name not in moving},
        also=(*request.also, *sorted(moving)),
        constraints=(*request.constraints, *own, *bounds),
    )


# --- no versions fit --------------------------------------------------------------------------------


def _search_other_cuda(
    goal: LockTarget,
    host: Host,
    problem: SearchProblem,
    version: str,
    backend: backends.BackendSelection,
    notes: list[str],
) -> tuple[lock.Lock | None, list[str]]:
    """Return a lock with a torch for another CUDA from one of the user's extra indexes, or why there is none.

    All other packages come from the default index, the only one that the backend reads.
    """
    request = completion_request(goal, {}, (), ())
    why_not: list[str] = []
    search_notes: list[str] = []
    try:
        shelves = read_extra_indexes(host, "torch", request)
        why_not += filter(None, (why_unavailable(shelf, version, request) for shelf in shelves))
        offered = {pin for shelf in shelves for pin in shelf.pins}
        if not offered:
            return None, why_not
        variants = resolver.with_variants(problem, offered)
        found = _Search(
            goal, variants, Completer(host, backend, goal.matrix, search_notes, shelves), []
        ).run()
    except (NoSolutionError, ExamineError) as error:
        return None, [*why_not, f"no lock with such a build: {error}"]
    if isinstance(found, lock.Lock):
        notes += search_notes
        return found, why_not
    why_not += [f"no lock with such a build: {found.last_failure}"] if found.last_failure else []
    return None, why_not


def _explain_dead_end(
    goal: LockTarget, dead_end: _DeadEnd, variant: Mapping[str, str], why_not: Sequence[str]
) -> str:
    """Explain what conflicts and which changes would help, one or two together.

    `variant` holds versions with a torch for another CUDA, and `why_not` why no lock has it.
    """
    from envcheck.commands.pin import unpinned
    from envcheck.resolution import conflicts

    if dead_end.needs_source:
        return _explain_sources(goal, dead_end.needs_source)
    known = _known_reason(goal)
    most = conflicts.MOST_LINES - bool(dead_end.last_failure) - len(known)
    found = conflicts.prove(dead_end.problem, dead_end.reasons, most)
    lines = [f"no versions for {goal.target.name} fit {describe(goal)}; these requirements conflict:"]
    lines += [f"  - {reason}" for reason in (*known, *found.conflict)]
    lines += [f"  the last attempt: {dead_end.last_failure}"] if dead_end.last_failure else []
    ways = [*([other_cuda.manual_install(variant, why_not)] if variant else []), *found.ways_out]
    lines += [unpinned.TRIED if ways else unpinned.NONE_HELPS]
    lines += [f"  - {way}" for way in ways]
    if sources := unpinned.named_sources(dead_end.last_failure):
        lines += [unpinned.UNTRIED, f"  - {unpinned.allow_source(sources)}"]
    return "\n".join(lines)


def _known_reason(goal: LockTarget) -> list[str]:
    """Return the reason that the target states for having no lock for this Python or machine, if any."""
    why = goal.target.why_none(goal.python, goal.platform.partition("-")[2])
    return [f"{goal.target.name} has no lock here: {why}"] if why else []


def _needing_source_lines(needs: Sequence[_NeedsSource]) -> Iterator[str]:
    for each in needs[:2]:
        newest, packages = ", ".join(each.releases), ", ".join(each.packages)
        yield f"{newest} needs what the index has as source only: {packages}"


def _explain_sources(goal: LockTarget, needs: Sequence[_NeedsSource]) -> str:
    """Explain that newer releases need packages without wheels, and that no older release fits."""
    from envcheck.commands.pin import unpinned

    named = (release.rpartition(" ")[0] for each in needs for release in each.releases)
    older = ", ".join(dict.fromkeys(named))
    lines = (
        f"no versions for {goal.target.name} fit {describe(goal)}; these requirements conflict:",
        *(f"  - {line}" for line in (*_known_reason(goal), *_needing_source_lines(needs))),
        f"  - no older release of {older} that can be installed from wheels fits",
        unpinned.UNTRIED,
        f"  - {unpinned.allow_source(needs[0].packages)}",
        "    (what these packages require in turn is known only after that)",
    )
    return "\n".join(lines)
