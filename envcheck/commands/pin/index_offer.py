"""Compare the releases of a search with what the user's index offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from envcheck import resolver_backends as backends
from envcheck.commands.pin.completion import completion_request
from envcheck.commands.pin.target import LockTarget
from envcheck.core import versions
from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.core.rules import UserRequirement
from envcheck.host.machine import Host
from envcheck.resolution.resolver import Release, SearchProblem
from envcheck.resolver_backends.index.availability import describe_offer

if TYPE_CHECKING:
    from envcheck.resolver_backends.index import availability


class IndexOffer(NamedTuple):
    """Hold the releases that the index still has, and a line for each pinned one that is not offered."""

    releases: tuple[Release, ...]
    lacking: list[str]


def compare_with_index(
    releases: Sequence[Release], goal: LockTarget, request: backends.CompletionRequest, host: Host
) -> IndexOffer:
    """Compare the tables' releases of the pinned packages with what the index offers.

    Raises:
        NoSolutionError: the index has nothing that satisfies a requirement of the user.
    """
    from envcheck.resolver_backends.index import availability

    outside = [each for each in goal.requirements if each.wanted and each.package not in request.pins]
    offers = availability.offers(host, request, [each.package for each in outside])
    if lacking := list(_lacking_requirements(outside, offers, goal)):
        raise NoSolutionError("\n".join(lacking))
    return IndexOffer(tuple(_still_offered(releases, offers)), _lacking(request, offers))


def with_offered_wishes(problem: SearchProblem, goal: LockTarget, host: Host) -> SearchProblem:
    """Return the problem with those releases of the user's packages that the index has, so that fixes exist.

    If the index cannot be read, the problem is returned as it is.

    Raises:
        NoSolutionError: the index has nothing that satisfies a requirement of the user.
    """
    if not any(each.wanted for each in goal.requirements):
        return problem
    try:
        offer = compare_with_index(problem.releases, goal, completion_request(goal, {}, (), ()), host)
    except ExamineError:
        return problem
    return problem._replace(releases=offer.releases)


def _lacking_requirements(
    outside: Iterable[UserRequirement], offers: Mapping[str, availability.Offer], goal: LockTarget
) -> Iterator[str]:
    """Yield a line for each requirement of the user that nothing usable on the index meets."""
    from envcheck.resolution import user_requirements

    for requirement in outside:
        offer, name = offers[requirement.package], requirement.package
        usable = offer.usable - offer.yanked
        if any(user_requirements.admits(requirement, str(version)) for version in usable):
            continue
        asks = f"{requirement.origin} asks for {name}{requirement.specifier}, and your index has"
        where = f"Python {goal.python} on {goal.platform}"
        if any(user_requirements.admits(requirement, str(version)) for version in offer.source_only):
            yield (
                f"{asks} it as source only for {where}: --allow-source {name} runs its build code, now "
                "and on installation"
            )
        else:
            yield f"{asks} none for {where}: {describe_offer(offer)}"


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
