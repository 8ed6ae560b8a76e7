"""The verdicts on releases, alone and in pairs, as version bounds for an installer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import EMPTY_MAPPING
from envcheck.resolution.resolver.candidates import candidates, wanted_packages
from envcheck.resolution.resolver.choice_judge import ChoiceJudge
from envcheck.resolution.resolver.consistency import consistent_releases
from envcheck.resolution.resolver.problem import Release, SearchProblem


def judges_bounds(problem: SearchProblem) -> Iterator[str]:
    """Yield a constraint for each package, such as `torch>=2.2,<=2.10.0,!=2.5.0`: what may be chosen.

    A release is left out if it may not be chosen at all, or if a rule refuses it here whatever else is
    chosen. Of a dependency, only releases that a rule refuses are left out, because the installer checks the
    rest.
    """
    wanted = wanted_packages(problem)
    for name in dict.fromkeys((*wanted, *problem.dependencies)):
        offered = candidates(problem, name)[0]
        allowed = _not_refused_alone(problem, name, offered)
        bound = bound_on(allowed, every_release(problem, name)) if name in wanted else ""
        refused = [release.version for release in offered if release.version not in allowed]
        bound = bound or ",".join(f"!={version}" for version in refused)
        if bound:
            yield f"{name}{bound}"


class PairBounds(NamedTuple):
    """A constraint for each package that must be chosen; in words, by package, which others narrow it."""

    constraints: tuple[str, ...]
    narrowed: Mapping[str, str]


def bounds_of_pairs(problem: SearchProblem, exact: Mapping[str, str] = EMPTY_MAPPING) -> PairBounds | None:
    """Return constraints that leave out the releases for which another package has no partner.

    `exact` has versions that are fixed. The result is None if nothing can be chosen.
    """
    wanted = wanted_packages(problem)
    order = (*wanted, *(name for name in problem.dependencies if name not in wanted))
    offered = {name: candidates(problem, name)[0] for name in order}
    requires = {(each.package, each.version): each.requires for found in offered.values() for each in found}
    releases = {
        name: [each.version for each in offered[name] if exact.get(name, each.version) == each.version]
        for name in wanted
    }
    left = consistent_releases(ChoiceJudge(problem, (), order, requires), releases)
    if left.releases is None:
        return None
    constraints, narrowed = [], {}
    for name, found in left.releases.items():
        kept = sorted(map(str, found), key=versions.order)
        constraints.append(f"{name}{bound_on(frozenset(kept), every_release(problem, name))}")
        if others := ", ".join(sorted(left.partners.get(name, ()))):
            span = kept[0] if len(kept) == 1 else f"{kept[0]} to {kept[-1]}"
            narrowed[name] = f"only {name} {span} fits {others}, by their requirements and code"
    return PairBounds(tuple(constraints), narrowed)


def every_release(problem: SearchProblem, name: str) -> list[str]:
    """Return all releases of a package that the problem has, oldest first."""
    found = {release.version for release in problem.releases if release.package == name}
    return sorted(found, key=versions.order)


def _not_refused_alone(problem: SearchProblem, name: str, offered: Sequence[Release]) -> frozenset[str]:
    judge = ChoiceJudge(problem, (), (name,), {})
    return frozenset(
        release.version
        for release in offered
        if next(judge.refusals(name, {name: release.version}), None) is None
    )


def bound_on(allowed: Collection[str], every: Sequence[str]) -> str:
    """Return the bound that admits only the allowed releases; empty if none is allowed.

    `every` has all releases, oldest first.
    """
    if not allowed:
        return ""
    places = [place for place, version in enumerate(every) if version in allowed]
    first, last = places[0], places[-1]
    gaps = (version for version in every[first:last] if version not in allowed)
    return ",".join((f">={every[first]}", f"<={every[last]}", *(f"!={version}" for version in gaps)))
