"""The verdicts on single releases, as version bounds for an installer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.core import versions
from envcheck.resolution.resolver.candidates import candidates, wanted_packages
from envcheck.resolution.resolver.choice_judge import ChoiceJudge
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
        every = sorted(
            {release.version for release in problem.releases if release.package == name}, key=versions.order
        )
        bound = _bound(allowed, every) if name in wanted else ""
        refused = [release.version for release in offered if release.version not in allowed]
        bound = bound or ",".join(f"!={version}" for version in refused)
        if bound:
            yield f"{name}{bound}"


def _not_refused_alone(problem: SearchProblem, name: str, offered: Sequence[Release]) -> frozenset[str]:
    judge = ChoiceJudge(problem, (), (name,), {})
    return frozenset(
        release.version
        for release in offered
        if next(judge.refusals(name, {name: release.version}), None) is None
    )


def _bound(allowed: frozenset[str], every: Sequence[str]) -> str:
    """Return the bound that admits only the allowed releases; empty if none is allowed.

    `every` has all releases, oldest first.
    """
    if not allowed:
        return ""
    places = [place for place, version in enumerate(every) if version in allowed]
    first, last = places[0], places[-1]
    gaps = (version for version in every[first:last] if version not in allowed)
    return ",".join((f">={every[first]}", f"<={every[last]}", *(f"!={version}" for version in gaps)))
