"""Resolve a lock: choose versions, complete them with a backend, judge the whole, and search again.

Each round asks `resolution.resolver` for versions of the target's packages, and a backend for everything
these bring along. What the judge objects to in the completed lock binds the next round: the backend gets
the violated rule's own bound if that is on a package of the backend's choosing; otherwise, or if the bound
cannot be met, the search refuses every choice that breaks the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from envcheck import resolver_backends as backends
from envcheck.commands import examine
from envcheck.commands.pin import other_cuda, writing
from envcheck.commands.pin.completion import Completer, completion_request
from envcheck.commands.pin.target import LockTarget, describe
from envcheck.core import versions
from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.core.facts import Value
from envcheck.core.rules import Matrix, UserRequirement
from envcheck.host.machine import Host
from envcheck.knowledge import atlas_rules
from envcheck.lock import model as lock
from envcheck.resolution import resolver
from envcheck.resolution.resolver import Objection, Reason, Release, SearchProblem
from envcheck.resolver_backends.index.availability import describe_offer
from envcheck.resolver_backends.index.extra_indexes import read_extra_indexes, why_unavailable

if TYPE_CHECKING:
    from envcheck.resolver_backends.index import availability

ROUNDS = 5
"""How many rounds one search takes before it gives up."""


def resolve_lock(
    goal: LockTarget, host: Host, engine: str, notes: list[str], *, extra_indexes: bool = True
) -> lock.Lock:
    """Return a lock made now.

    `engine` names a backend, `both` to compare two, or is empty for the best installed one. If only a
    torch for another CUDA fits, it is taken from one of the user's extra indexes, unless `extra_indexes`
    is False. What two backends answer differently is added to `notes`.

    Raises:
        NoSolutionError: no versions fit, or the judge objected to every completed lock.
        ExamineError: no backend is installed, or it failed.
    """
    backend = backends.select_backends(host, backends.every_backend(), engine)
    problem = search_problem(goal)
    found = _Search(goal, problem, Completer(host, backend, goal.matrix, notes)).run()
    if isinstance(found, lock.Lock):
        return found
    variant = other_cuda.fitting_versions(found.problem)
    why_not: list[str] = []
    if variant and extra_indexes:
        made, why_not = _search_other_cuda(goal, host, found.problem, variant["torch"], backend, notes)
        if made is not None:
            return made
    raise NoSolutionError(_explain_dead_end(goal, found, variant, why_not))


def search_problem(goal: LockTarget) -> SearchProblem:
    """Return the search's input: the goal, and every release in the tables."""
    rows: list[Mapping[str, Any]] = [
        *({**row, "package": "torch"} for row in goal.matrix.tables.get("torch", [])),
        *examine.source_tree()["tables"].get("release", []),
    ]
    return SearchProblem(
        # Only cells make the search prefer what was measured to what is new.
        known=_with_atlas(goal.matrix._replace(cells=()) if goal.newest else goal.matrix, rows),
        target=goal.target,
        machine=goal.machine,
        python=goal.python,
        releases=tuple(map(_release, rows)),
        requirements=goal.requirements,
        until=goal.until,
        until_by=goal.until_by,
    )


def _with_atlas(known: Matrix, rows: Iterable[Mapping[str, Any]]) -> Matrix:
    """Return the knowledge with what the releases of the searched packages ask of one another."""
    packages = {str(row["package"]) for row in rows}
    return known._replace(rules=(*known.rules, *atlas_rules.rules_of(known.atlas(), packages)))


def _release(row: Mapping[str, Any]) -> Release:
    return Release(
        package=row["package"],
        version=row["version"],
        requires=tuple(f"{name}{bound}" for name, bound in row.get("requires", {}).items()),
        pythons=tuple(row.get("python", ())),
        requires_python=row.get("requires_python", ""),
        date=str(row.get("date", "")),
        yanked=bool(row.get("yanked")),
        sdist=row.get("kinds") == ["sdist"],
    )


# --- the rounds -------------------------------------------------------------------------------------


class _DeadEnd(NamedTuple):
    """A search without an answer: the problem, what ruled it out, and how the last completed lock failed."""

    problem: SearchProblem
    reasons: frozenset[Reason]
    last_failure: str


class _Search:
    """One search in rounds; what a round learns is kept in the problem and the bounds."""

    def __init__(self, goal: LockTarget, problem: SearchProblem, completer: Completer) -> None:
        """Take what the lock must serve, the first problem, and the backend that completes choices."""
        self._goal, self._problem, self._completer = goal, problem, completer
        self._bounding: list[Objection] = []  # objections that the backend gets as bounds
        self._last_failure = ""

    def run(self) -> lock.Lock | _DeadEnd:
        """Return a lock, or the first dead end if there was one.

        Raises:
            NoSolutionError: no lock after ROUNDS rounds.
            ExamineError: the backend failed.
        """
        dead_end: tuple[SearchProblem, frozenset[Reason]] | None = None
        for _ in range(ROUNDS):
            answer = resolver.solve(self._problem)
            if answer.versions is not None:
                made = self._try(dict(answer.versions), answer.changed)
                if made is not None:
                    return made
                continue
            dead_end = dead_end or (self._problem, answer.reasons)
            if not any(objection.wide for objection in self._problem.objections):
                break
            self._narrow_objections()
        if dead_end is not None:
            return _DeadEnd(*dead_end, self._last_failure)
        raise NoSolutionError(f"no lock after {ROUNDS} rounds; {self._last_failure}")

    def _try(self, choice: dict[str, str], changed: Mapping[str, Value]) -> lock.Lock | None:
        """Complete a choice and return the lock, or learn from its failure and return None.

        `changed` holds the training facts that go with the choice and differ from the target's.
        """
        build = resolver.built(self._problem, choice)
        request = self._completer.prepare(completion_request(self._goal, choice, build, self._bounding))
        try:
            pins = self._completer.complete(request)
        except NoSolutionError as error:
            self._learn_from_failure(error, request, choice)
            return None
        closure = {pin.name: pin.version for pin in pins}
        found = resolver.objections(self._problem, closure, changed, choice)
        if not found:
            return writing.build_lock(self._goal, pins, request.build, changed)
        self._learn_from_objections(found)
        return None

    def _learn_from_failure(
        self, error: NoSolutionError, request: backends.CompletionRequest, choice: Mapping[str, str]
    ) -> None:
        """Exclude what the index lacks, a yanked release, or else this choice.

        Raises:
            NoSolutionError: the index has nothing that satisfies a requirement of the user.
        """
        self._last_failure = str(error)
        offer = _compare_with_index(self._problem.releases, self._goal, request, self._completer.host)
        if offer.lacking:
            self._problem = self._problem._replace(releases=offer.releases)
            self._last_failure = "; ".join(offer.lacking)
            self._completer.notes.extend(offer.lacking)
        elif isinstance(error, backends.YankedError):
            # The search does not choose this package, so the backend has to choose another release of it.
            self._goal = replace(self._goal, requirements=(*self._goal.requirements, _another_release(error)))
        else:
            refused = self._bounding or [Objection("", tuple(choice.items()), message=self._last_failure)]
            self._refuse(refused)
            self._bounding = []

    def _learn_from_objections(self, found: Sequence[Objection]) -> None:
        """Give the backend the bounds of new objections, and refuse whatever breaks the others."""
        self._last_failure = f"the completed lock was objected to: {found[0].message} ({found[0].rule})"
        tried = {objection.rule for objection in self._bounding}
        bounding = [each for each in found if each.bounds and each.rule not in tried]
        self._refuse([each for each in found if each not in bounding])
        self._bounding += bounding

    def _refuse(self, objections: Sequence[Objection]) -> None:
        self._problem = self._problem._replace(objections=(*self._problem.objections, *objections))

    def _narrow_objections(self) -> None:
        """Refuse only the exact versions seen to fail: another stack may bring other packages along."""
        narrow = tuple(each._replace(wide=False) for each in self._problem.objections)
        self._problem = self._problem._replace(objections=narrow)


def _another_release(yanked: backends.YankedError) -> UserRequirement:
    return UserRequirement(yanked.name, f"!={yanked.version}", str(yanked), wanted=False)


# --- what the index has -----------------------------------------------------------------------------


class _IndexOffer(NamedTuple):
    """The releases that the index still has, and which pinned ones it lacks or has withdrawn, in words."""

    releases: tuple[Release, ...]
    lacking: list[str]


def _compare_with_index(
    releases: Sequence[Release], goal: LockTarget, request: backends.CompletionRequest, host: Host
) -> _IndexOffer:
    """Compare the tables' releases of the pinned packages with what the index offers.

    Raises:
        NoSolutionError: the index has nothing that satisfies a requirement of the user.
    """
    from envcheck.resolution import user_requirements
    from envcheck.resolver_backends.index import availability

    outside = [each for each in goal.requirements if each.wanted and each.package not in request.pins]
    offers = availability.offers(host, request, [each.package for each in outside])
    for requirement in outside:
        offer = offers[requirement.package]
        usable = offer.usable - offer.yanked
        if not any(user_requirements.admits(requirement, str(version)) for version in usable):
            raise NoSolutionError(
                f"{requirement.origin} asks for {requirement.package}{requirement.specifier}, and your index "
                f"has none for Python {goal.python} on {goal.platform}: {describe_offer(offer)}"
            )
    return _IndexOffer(tuple(_still_offered(releases, offers)), _lacking(request, offers))


def _still_offered(
    releases: Sequence[Release], offers: Mapping[str, availability.Offer]
) -> Iterator[Release]:
    """Yield the releases that the index has, marked as yanked where it has withdrawn them."""
    for release in releases:
        offer, version = offers.get(release.package), versions.parse(release.version)
        if offer is None or version in offer.usable - offer.yanked:
            yield release
        elif version in offer.yanked:
            yield release._replace(yanked=True)


def _lacking(request: backends.CompletionRequest, offers: Mapping[str, availability.Offer]) -> list[str]:
    """Return a line for each pinned release that the index lacks or has withdrawn."""
    lines = []
    for name, pinned in request.pins.items():
        if request.gives(name):
            continue
        offer, version = offers[name], versions.parse(pinned)
        if version not in offer.usable:
            lines.append(f"your index has no usable {name} {version}: {describe_offer(offer)}")
        elif version in offer.yanked:
            lines.append(f"your index has withdrawn {name} {version}")
    return lines


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

    All other packages come from the default index, and the backend sees no other.
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
        found = _Search(goal, variants, Completer(host, backend, goal.matrix, search_notes, shelves)).run()
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
    """Explain what conflicts and which single changes would help.

    `variant` holds versions with a torch for another CUDA, and `why_not` why no lock has it.
    """
    from envcheck.resolution import conflicts

    found = conflicts.prove(dead_end.problem, dead_end.reasons)
    lines = [f"no versions for {goal.target.name} fit {describe(goal)}; these clash:"]
    lines += [f"  - {reason}" for reason in found.conflict]
    lines += [f"  the last one tried: {dead_end.last_failure}"] if dead_end.last_failure else []
    ways = [*([other_cuda.manual_install(variant, why_not)] if variant else []), *found.ways_out]
    lines += ["ways out, each tried:" if ways else "no single change that was tried helps"]
    lines += [f"  - {way}" for way in ways]
    return "\n".join(lines)
