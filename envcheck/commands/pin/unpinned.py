"""Let the backend choose all versions itself, within what the judge allows of each package.

The search knows only the packages of the tables. If a package outside them excludes every choice of the
search, the backend may still find one that the judge accepts, because it reads all metadata.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from envcheck import resolver_backends as backends
from envcheck.commands.pin import writing
from envcheck.commands.pin.completion import Completer, completion_request
from envcheck.commands.pin.target import LockTarget
from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.core.facts import EMPTY_MAPPING, Value
from envcheck.core.rules import UserRequirement
from envcheck.lock import model as lock
from envcheck.lock.install import build_needs
from envcheck.resolution import resolver
from envcheck.resolution.resolver import SearchProblem

ATTEMPTS = 6
"""Maximum number of requests to the backend; each failed one adds a bound for the next."""

_MOST_SOURCES = 20
"""Maximum number of packages without a wheel that are looked for; each takes one request."""

_NO_WHEEL = re.compile(r"Wheels are required for `([^`]+)` because building from")

_MOST_LINES = 5
"""Maximum number of lines shown of the backend's reasons."""


class Unsolvable(NamedTuple):
    """Report in the backend's own words that it found nothing within the judge's bounds.

    `narrowed` has a sentence for each package whose bound follows from other packages. If nothing fits in
    pairs, the backend was not asked and the reason is empty.
    """

    reason: str
    narrowed: Mapping[str, str] = EMPTY_MAPPING


def choose_unpinned(
    goal: LockTarget,
    problem: SearchProblem,
    completer: Completer,
    exact: Mapping[str, str] = EMPTY_MAPPING,
) -> lock.Lock | Unsolvable | None:
    """Return a lock of the backend's choice that the judge accepts; None if the judge refuses all tried.

    The backend gets the judge's bounds on single releases; if the judge refuses its choice, also those from
    pairs of packages, then bounds from the objections. `exact` holds versions by package that it must take.

    Raises:
        ExamineError: the backend failed.
    """
    bounds = [*resolver.judges_bounds(problem), *(f"{name}=={version}" for name, version in exact.items())]
    learnt: list[str] = []
    pairs: resolver.PairBounds | None = None
    for _ in range(ATTEMPTS):
        request = open_request(goal, problem, (*bounds, *learnt))
        try:
            pins = completer.complete(request)
        except backends.YankedError as error:
            bounds.append(f"{error.name}!={error.version}")
            continue
        except NoSolutionError as error:
            return None if learnt else Unsolvable(error.chain, pairs.narrowed if pairs else EMPTY_MAPPING)
        closure = {pin.name: pin.version for pin in pins}
        changed = changed_facts(problem, closure)
        stack = [name for name in resolver.wanted_packages(problem) if name in closure]
        found = resolver.objections(problem, closure, changed, stack)
        if not found:
            return writing.build_lock(goal, pins, request.build, changed)
        if pairs is None:
            pairs = resolver.bounds_of_pairs(problem, exact)
            if pairs is None:
                return Unsolvable("")
            if not set(pairs.constraints) <= set(bounds):
                bounds += pairs.constraints
                continue
        helping = [bound for objection in found for bound in (*objection.bounds, *objection.alternatives)]
        fresh = next((bound for bound in helping if bound not in learnt), "")
        if not fresh:
            return None
        learnt.append(fresh)
    return None


def newest_alone(goal: LockTarget, problem: SearchProblem, completer: Completer) -> Mapping[str, str]:
    """Return the newest release of each required package that the backend can install by itself.

    Raises:
        ExamineError: the backend failed.
    """
    found, bounds = {}, (*resolver.judges_bounds(problem),)
    for name in resolver.required_packages(problem):
        request = replace(
            open_request(goal, problem, bounds), also=(name, *build_needs(problem.target.build))
        )
        try:
            pins = completer.complete(request)
        except NoSolutionError:
            continue
        found.update({pin.name: pin.version for pin in pins if pin.name == name})
    return found


def why_older(newest: Mapping[str, str], reason: str, sources: Sequence[str]) -> list[str]:
    """Return a note for each package whose newest installable release is older than the tables' newest.

    `sources` are the packages that newer releases need and that the index has as source only.
    """
    why = "; ".join([*reason_lines(reason)[:2], *source_hint(sources)])
    return [
        f"{name}: {version} is the newest that can be installed: {why}" for name, version in newest.items()
    ]


def why_without_source(problem: SearchProblem, names: Iterable[str], sources: Sequence[str]) -> Iterator[str]:
    """Yield a note for each package whose newer releases need packages that the index has as source only."""
    for name in names:
        left = resolver.candidates(problem, name)[0]
        newest = (
            f"{left[0].version} is the newest that needs none of" if left else "every release needs one of"
        )
        yield "; ".join([f"{name}: {newest} {', '.join(sources)}", *source_hint(sources)])


def named_sources(reason: str) -> tuple[str, ...]:
    """Return the packages that would have to be built, according to a reason."""
    return tuple(dict.fromkeys(_NO_WHEEL.findall(reason)))


def source_only(completer: Completer, request: backends.CompletionRequest, reason: str) -> tuple[str, ...]:
    """Return every package that a request needs and that the index has as source only.

    `reason` is why the backend refused the request. The backend names one package at a time, so each is left
    out of the next request. What these packages need themselves is not known: their code would have to run.
    """
    found: list[str] = []
    while len(found) < _MOST_SOURCES:
        names = [name for name in _NO_WHEEL.findall(reason) if name not in found]
        if not names:
            break
        found += dict.fromkeys(names)
        try:
            completer.complete(replace(request, without=tuple(found)))
        except NoSolutionError as error:
            reason = str(error)
        except ExamineError:  # a package that the user requires was left out, or the backend cannot do that
            break
        else:
            break
    return tuple(sorted(found))


def needs_one(reason: str, name: str, sources: Iterable[str]) -> bool:
    """Return whether a reason states that a package depends on one of these."""
    needed = "|".join(map(re.escape, sources))
    return bool(
        re.search(rf"(?<![\w.-]){re.escape(name)}(?:[<>=!~]\S*)? depends on (?:{needed})(?![\w-])", reason)
    )


def source_hint(names: Sequence[str]) -> list[str]:
    """Return a line on `--allow-source` for packages that the index has as source only; empty for none."""
    if not names:
        return []
    their = "its" if len(names) == 1 else "their"
    runs = f"{their} build code runs now and on installation"
    return [f"{_as_source(names)}: with {allow_source(names)} {runs}"]


def _as_source(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} on the index as source only"


TRIED = "fixes, each of them tried:"
NONE_HELPS = "no change that was tried helps, nor do two together"
UNTRIED = "a fix, not tried because it runs the packages' build code, now and on installation:"


def allow_source(names: Iterable[str]) -> str:
    """Return the options that allow these packages to be built from source."""
    return " ".join(f"--allow-source {name}" for name in names)


def open_request(
    goal: LockTarget, problem: SearchProblem, bounds: Sequence[str]
) -> backends.CompletionRequest:
    """Return the request for the target's and the user's packages within bounds, with no version fixed."""
    names = resolver.wanted_packages(problem)
    newest = {name: found[0].version for name in names if (found := resolver.candidates(problem, name)[0])}
    request = completion_request(goal, {}, resolver.built(problem, newest), ())
    return replace(
        request,
        also=(*request.also, *(name for name in goal.target.packages if name not in request.also)),
        constraints=(*request.constraints, *bounds),
    )


def changed_facts(problem: SearchProblem, closure: dict[str, str]) -> dict[str, Value]:
    """Return the training facts that the search changes for these versions; none if it refuses them."""
    exact = tuple(
        UserRequirement(name, f"=={closure[name]}", "the backend's choice")
        for name in resolver.wanted_packages(problem)
        if name in closure
    )
    alone = problem._replace(
        requirements=(*problem.requirements, *exact), dependencies=(), known=problem.known._replace(cells=())
    )
    try:
        return dict(resolver.solve(alone).changed)
    except NoSolutionError:
        return {}


def describe_clash(
    goal: LockTarget, problem: SearchProblem, completer: Completer, unsolvable: Unsolvable, *, most: int
) -> Iterator[str]:
    """Yield `most` of the backend's reasons, one per line, and the user's bounds whose removal would help."""
    lines = reason_lines(unsolvable.reason)
    named = (name for name in unsolvable.narrowed if any(_names(line, name) for line in lines))
    request = open_request(goal, problem, (*resolver.judges_bounds(problem),))
    sources = source_only(completer, request, unsolvable.reason)
    reasons = (*(unsolvable.narrowed[name] for name in named), *lines)[: most - bool(sources)]
    yield from (f"  - {line}" for line in reasons)
    if sources:
        yield f"  - {_as_source(sources)}"
    ways = list(_ways_out(goal, problem, completer, unsolvable.reason))
    yield TRIED if ways else NONE_HELPS
    yield from (f"  - {way}" for way in ways)
    if sources:
        yield UNTRIED
        yield f"  - {allow_source(sources)}"


def reason_lines(reason: str) -> list[str]:
    """Return the premises in a resolver's chain of reasons as a few lines, without intermediate steps."""
    steps = re.split(r"\s*\(\d+\)|,? we can conclude that |(?:^|\. )(?:And )?[Bb]ecause ", reason)
    facts = [text.strip(" .,") for text in steps]
    kept = [
        text for text in dict.fromkeys(facts) if re.search(r"depends on|you require|requires|has no", text)
    ]
    lines = kept or [reason]
    more = [f"and {len(lines) - _MOST_LINES} more reasons"] if len(lines) > _MOST_LINES else []
    return [line[:300] for line in (*lines[:_MOST_LINES], *more)]


def _names(text: str, package: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(package)}(?![\w-])", text) is not None


def _ways_out(goal: LockTarget, problem: SearchProblem, completer: Completer, reason: str) -> Iterator[str]:
    """Yield the user's bounds without which the backend finds something that the judge accepts.

    Only bounds that the reason names are tried, three at most. If none of them helps alone, each is tried
    together with another bound, in three pairs at most.
    """
    named = set(re.findall(r"[\w-]+(?=[=<>!~]=|[<>])", reason))
    bounds = [each for each in goal.requirements if each.wanted and each.specifier]
    blamed = [each for each in bounds if each.package in named][:3]
    pairs = [pair for pair in itertools.combinations(bounds, 2) if any(each in blamed for each in pair)]
    for changes in ([(each,) for each in blamed], pairs[:3]):
        found = [way for dropped in changes for way in _without(goal, problem, completer, dropped)]
        yield from found
        if found:
            return


def _without(
    goal: LockTarget, problem: SearchProblem, completer: Completer, dropped: Sequence[UserRequirement]
) -> Iterator[str]:
    """Yield a sentence if the backend finds something without these bounds that the judge accepts."""
    others = tuple(each._replace(specifier="") if each in dropped else each for each in goal.requirements)
    try:
        found = choose_unpinned(
            replace(goal, requirements=others), problem._replace(requirements=others), completer
        )
    except ExamineError:
        return
    if isinstance(found, lock.Lock):
        pins = {pin.name: pin.version for pin in found.pins}
        names = (*goal.target.packages, *(each.package for each in dropped))
        chosen = ", ".join(f"{name} {pins[name]}" for name in dict.fromkeys(names) if name in pins)
        bound = ", and ".join(
            f"without the bound {each.package}{each.specifier} ({each.origin})" for each in dropped
        )
        yield f"{bound}: {chosen}"
