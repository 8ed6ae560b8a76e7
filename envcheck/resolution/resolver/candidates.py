"""The releases and values from which the search chooses, and the reasons that exclude others beforehand."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Tri, Value, package_name
from envcheck.core.rules import Fix, UserRequirement
from envcheck.resolution.resolver.problem import Reason, Release, SearchProblem
from envcheck.resolution.resolver.refusing_rules import refusing_rules


def wanted_packages(problem: SearchProblem, without: Container[Reason] = ()) -> tuple[str, ...]:
    """Return the packages whose versions are searched: the user's that the tables list, then the target's.

    The first package gets the newest release for which the others have a fitting one. The user's packages
    come first because a user wants the named package as new as possible; the target's packages only have to
    fit it.
    """
    required = required_packages(problem)
    names = dict.fromkeys((*required, *problem.target.packages))
    return tuple(name for name in names if ("wants", name) not in without)


def required_packages(problem: SearchProblem) -> tuple[str, ...]:
    """Return the packages that the user requires besides the target's; only those that the tables list."""
    listed = {release.package for release in problem.releases}
    names = dict.fromkeys(each.package for each in problem.requirements if each.wanted)
    return tuple(name for name in names if name in listed and name not in problem.target.packages)


def built(problem: SearchProblem, chosen: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages built on installation: those the target builds, and chosen ones without wheels."""
    sdists = {(release.package, release.version) for release in problem.releases if release.sdist}
    without_wheels = (name for name, version in chosen.items() if (name, version) in sdists)
    return tuple(dict.fromkeys((*problem.target.build, *without_wheels)))


# --- releases ---------------------------------------------------------------------------------------


def candidates(
    problem: SearchProblem, package: str, without: Container[Reason] = ()
) -> tuple[list[Release], frozenset[Reason]]:
    """Return the releases of a package that may be chosen, newest first, and what excluded the others.

    Reasons in `without` exclude nothing.
    """
    kept, excluding = [], set()
    for release in problem.releases:
        if release.package != package:
            continue
        reason = next((each for each in _exclusions(problem, release) if each not in without), None)
        if reason is None:
            kept.append(release)
        else:
            excluding.add(reason)
    kept.sort(key=lambda release: versions.order(release.version), reverse=True)
    return kept, frozenset(excluding)


def _exclusions(problem: SearchProblem, release: Release) -> Iterator[Reason]:
    """Yield every reason against a release that can be found without judging rules."""
    through = problem.known.known_through.get(release.package)
    if release.yanked:
        yield "yanked", release.package
    if through is not None and versions.compare(release.version, "<=", through) is not Tri.YES:
        yield "through", release.package
    binding = [
        (number, requirement)
        for number, requirement in enumerate(problem.requirements)
        if requirement.package == release.package
    ]
    version = versions.parse(release.version)
    pre_release = version is None or version.is_prerelease
    if pre_release and not any(names_pre_release(requirement) for _, requirement in binding):
        yield "pre-release", release.package
    for number, requirement in binding:
        if not _allows(requirement, release.version):
            yield "requirement", str(number)
    if not admits(release, problem.python):
        yield ("python",)
    if release.no_wheel:
        yield "wheel", release.package
    if problem.until and release.date > problem.until:
        yield ("until",)


def names_pre_release(requirement: UserRequirement) -> bool:
    """Return whether a requirement names a pre-release; otherwise, pre-releases are not used."""
    try:
        bounds = versions.parse_specifier(requirement.specifier)
    except ValueError:
        return False
    for bound in bounds:
        named = versions.parse(str(bound.operand).removesuffix(".*"))
        if named is not None and named.is_prerelease:
            return True
    return False


def _allows(requirement: UserRequirement, version: str) -> bool:
    """Return whether a requirement allows a version; `packaging` decides if our comparison cannot."""
    answer = versions.satisfies(version, requirement.specifier, unknown=Tri.YES)
    if answer is not Tri.MAYBE:
        return answer is Tri.YES
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(requirement.specifier).contains(version, prereleases=True)


def admits(release: Release, python: str) -> bool:
    """Return whether a release may be installed on this Python (`3.11`)."""
    if release.pythons:
        return python in release.pythons
    try:
        bounds = versions.parse_specifier(release.requires_python)
    except ValueError:
        return True
    # `>=3.11.4` admits 3.11: a lock is for the minor version, and the installer checks the patch version.
    return any(versions.satisfies_all(f"{python}.{patch}", bounds) is not Tri.NO for patch in (0, 99))


def with_variants(problem: SearchProblem, only: Container[str] | None = None) -> SearchProblem:
    """Return the problem with torch's builds for other CUDA versions instead of those of a plain install.

    Such a build is `2.7.1+cu118`. Each CUDA version has its own index; `only` has the torch versions for
    which an index is known. The tables list builds for x86_64 only, so other architectures get none.
    """
    plain = {release.version: release for release in problem.releases if release.package == "torch"}
    variants: list[Release] = []
    if problem.machine.known("host.arch") in (None, "x86_64"):
        variants = [
            plain[variant.torch]._replace(version=f"{variant.torch}+{variant.tag}")
            for variant in problem.known.tables.torch_variants
            if variant.torch in plain and not variant.default
        ]
    if only is not None:
        variants = [release for release in variants if release.version in only]
    others = [release for release in problem.releases if release.package != "torch"]
    return problem._replace(releases=(*others, *variants))


# --- values of free training facts ------------------------------------------------------------------


def free_values(
    problem: SearchProblem, *, reluctant: bool, without: Container[Reason] = ()
) -> dict[str, tuple[Value, ...]]:
    """Return the values that free training facts may take: those that rules' fixes set, in their order.

    With `reluctant`, such a fix counts only if the rule lists no earlier fix that offered releases satisfy.
    """
    offered = {
        name: [release.version for release in candidates(problem, name, without)[0]]
        for name in wanted_packages(problem, without)
    }
    found: dict[str, dict[Value, None]] = {key: {} for key in problem.target.free}
    for rule in refusing_rules(problem):
        for fix in rule.fixes:
            changes = [(key, value) for key, value in fix.set if key in found]
            for key, value in changes:
                found[key][value] = None
            if reluctant and not changes and _reachable(fix, offered):
                break
    return {key: tuple(values) for key, values in found.items() if values}


def _reachable(fix: Fix, offered: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a fix sets packages only, and some offered release satisfies each of its bounds."""
    for key, value in fix.set:
        releases = offered.get(package_name(key), ())
        if not key.startswith("pkg.") or not any(surely_satisfies(version, value) for version in releases):
            return False
    return True


def surely_satisfies(version: str, bound: Value) -> bool:
    """Return whether a version satisfies a bound; False if the bound names a fact (`=={gpu.torch_last}`)."""
    return versions.satisfies(version, str(bound), unknown=Tri.NO) is Tri.YES
