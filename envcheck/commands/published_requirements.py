"""Add the published requirements of its releases to a facts file, a requirements file or a lock.

An installed environment has the metadata of its packages; a list of versions does not. With the published
requirements, `doctor` and `check` report about a list what `pip check` would report after its installation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.commands.atlas_tables import release_table
from envcheck.core import markers, versions
from envcheck.core.facts import (
    NOT_GIVEN,
    Fact,
    Inventory,
    Known,
    Tri,
    is_package_version_key,
    normalised,
    package_key,
    package_name,
)
from envcheck.core.findings import Evidence, Finding, Judgement, Verdict
from envcheck.core.nvidia import cuda_of_libraries
from envcheck.core.rules import Severity
from envcheck.knowledge.requirement_windows import (
    DisjointWindows,
    ExcludedCompanion,
    ImpliedVersion,
    disjoint_windows,
    excluded_companions,
    implied_versions,
)
from envcheck.policy.generated_findings import generated_finding
from envcheck.rules.requirements import PUBLISHED, marker_environment, split_requirement

CUDA_LIBRARIES = ("nvidia-", "cuda-")
"""Beginnings of the names of CUDA's libraries."""

_NAME_ENDS_AT = " <>=!~;[(@"

_PYTHONS = ("3.11", "3.12", "3.10", "3.13", "3.9", "3.14", "3.8")  # the more usual first
_LAST_PATCH = 99  # above every bound that a release puts on the patches of a Python


def with_published_requirements(read: Inventory, python: str = "") -> Inventory:
    """Return the inventory with the requirements of each known release on the other listed packages.

    If the inventory has the requirements of any package, it is an environment and returned unchanged. With a
    Python, the requirements are those for it, without their markers. If no Python is known, a requirement
    that depends on it is added only if its package is violated under every Python that the releases admit.
    """
    listed = {
        package_name(key): str(fact.value)
        for key, fact in read.facts.items()
        if fact.value is not None and is_package_version_key(key)
    }
    if len(listed) < 2 or any(key.endswith(".requires") for key in read.facts):  # noqa: PLR2004 - a pair
        return read
    table = release_table()
    from_conda = read.known("packages.from_conda")
    from_conda = from_conda if isinstance(from_conda, tuple) else ()  # it builds them for one another
    found: dict[str, tuple[str, ...]] = {}
    admitted = []
    for package, version in listed.items():
        row = table.row(package, version)
        admitted.append(row.python if row else "")
        lines = tuple(
            line
            for line in (row.requires if row else ())
            if _required_name(line) in listed and not _depends_on_build(version, line)
        )
        if package in from_conda:
            lines = tuple(line for line in lines if _required_name(line) not in from_conda)
        if package == "torch" and _is_for_another_cuda(lines, listed):
            lines = tuple(line for line in lines if not _required_name(line).startswith(CUDA_LIBRARIES))
        if python:
            lines = _for_python(lines, read, python)
        found[package] = lines
    if not python and read.known("python.version") is None:
        environments = _possible_environments(read, admitted)
        found = {package: _for_any_python(lines, listed, environments) for package, lines in found.items()}
    return read.with_facts(
        Fact(package_key(package, "requires"), Known(lines), f"{PUBLISHED}{package} {listed[package]}")
        for package, lines in found.items()
        if lines
    )


def implied_releases(read: Inventory) -> dict[str, ImpliedVersion]:
    """Return the versions of unlisted packages that follow from exact pins of the listed releases.

    The result is empty for an environment, which lists all its packages. CUDA's libraries and the pins of
    builds without CUDA are left out, because they depend on the index that a release comes from.
    """
    if "pkg" in read.complete or _is_environment(read):
        return {}
    pins = {
        name: version
        for name, version in _listed_versions(read).items()
        if "+" not in version or version.partition("+")[2].startswith("cu")
    }
    cuda = read.facts.get("build.torch.cuda")
    if cuda is not None and cuda.value is None:  # an index brings a build that is another one, or may be
        pins.pop("torch", None)
    found = implied_versions(pins, release_table(), marker_environment(read))
    known = {name for name, implied in found.items() if not name.startswith(CUDA_LIBRARIES)}
    return {name: found[name] for name in sorted(known) if read.reading(package_key(name)) == NOT_GIVEN}


def with_implied_releases(read: Inventory, implied: Mapping[str, ImpliedVersion]) -> Inventory:
    """Return the inventory with the implied versions as facts."""
    return read.with_facts(
        Fact(package_key(name), Known(each.version), f"{each.because.package} requires {each.because.text}")
        for name, each in implied.items()
    )


def implied_findings(
    before: Judgement, after: Judgement, implied: Mapping[str, ImpliedVersion]
) -> list[Finding]:
    """Return the errors that only implied versions cause, as warnings that name the pins behind them.

    They are warnings because the package may have been replaced since the installer followed the exact pin.
    """
    told = {finding.rule.id for finding in before.findings}
    found = []
    for finding in after.findings:
        is_new = finding.verdict is Verdict.BROKEN and finding.rule.id not in told
        if is_new and finding.severity is Severity.ERROR and finding.rule.group != "requires-dist":
            direct = [each.because for each in implied.values() if _rests_on(finding, each.package)]
            reasons = direct or [each.because for name, each in implied.items() if name == "torch"]
            note = "; ".join(f"{each.package} {each.version} requires {each.text}" for each in reasons)
            found.append(finding._replace(severity=Severity.WARNING, note=note))
    return found


def is_implied(finding: Finding) -> bool:
    """Return whether a finding is one of `implied_findings`."""
    lowered = (finding.rule.severity, finding.severity) == (Severity.ERROR, Severity.WARNING)
    return lowered and bool(finding.note) and finding.rule.group != "requires-dist"


def _rests_on(finding: Finding, package: str) -> bool:
    return any(item.fact.key == package_key(package) for item in finding.evidence)


def missing_releases(read: Inventory) -> list[Finding]:
    """Return a warning for each unlisted package of which no release meets what two listed ones require.

    An installer refuses such a list, or has violated the metadata of one of the two.
    """
    if "pkg" in read.complete or _is_environment(read):
        return []
    pins = _listed_versions(read)
    if len(pins) < 2:  # noqa: PLR2004 - no two packages
        return []
    asked = (pins, release_table(), marker_environment(read))
    windows, companions = disjoint_windows(*asked), excluded_companions(*asked)
    return [
        *(_no_release(window, read) for window in windows),
        *(_no_companion(companion, read) for companion in companions),
    ]


def _is_environment(read: Inventory) -> bool:
    """Return whether the requirements of some package were read from an installation."""
    return any(
        key.endswith(".requires") and not fact.source.startswith(PUBLISHED)
        for key, fact in read.facts.items()
    )


def _listed_versions(read: Inventory) -> dict[str, str]:
    return {
        package_name(key): str(fact.value)
        for key, fact in read.facts.items()
        if fact.value is not None and is_package_version_key(key)
    }


def _no_release(window: DisjointWindows, read: Inventory) -> Finding:
    asks = " and ".join(f"{ask.package} {ask.version} ({ask.specifier})" for ask in window.asks)
    return generated_finding(
        f"no-release:{window.package}",
        Severity.WARNING,
        f"no release of {window.package} meets what {asks} require",
        [Evidence(read.fact(package_key(ask.package))) for ask in window.asks],
        group="no-release",
    )


def _no_companion(companion: ExcludedCompanion, read: Inventory) -> Finding:
    ask, other = companion.ask, companion.release
    listed = f"{other.requires} {read.known(package_key(other.requires))}"
    return generated_finding(
        f"no-release:{companion.package}",
        Severity.WARNING,
        f"no release of {companion.package} that {ask.package} {ask.version} admits "
        f"({ask.specifier or 'any'}) admits {listed}: "
        f"{other.package} {other.version} requires {other.requires} {other.specifier}",
        [Evidence(read.fact(package_key(name))) for name in (ask.package, other.requires)],
        group="no-release",
    )


def _environment_with(read: Inventory, python: str) -> dict[str, str]:
    return marker_environment(read.with_facts([Fact("python.version", Known(python), "lock")]))


def _possible_environments(read: Inventory, admitted: Sequence[str]) -> list[dict[str, str]]:
    """Return the marker variables under each Python that all releases admit, or under all if none is."""
    asked = set(filter(None, admitted))
    shared = [
        python
        for python in _PYTHONS
        if all(
            versions.satisfies(f"{python}.{_LAST_PATCH}", each, unknown=Tri.YES) is Tri.YES for each in asked
        )
    ]
    return [_environment_with(read, python) for python in shared or _PYTHONS]


def _for_any_python(
    lines: Sequence[str], listed: Mapping[str, str], environments: Sequence[Mapping[str, str]]
) -> tuple[str, ...]:
    """Return what applies under every Python, and of the rest what the first Python asks for.

    Requirements that the listed version violates under some Pythons only are left out.
    """
    always, sometimes = [], []
    for line in lines:
        bare, _, marker = line.partition(";")
        answers = [not marker or markers.matches(marker, each) for each in environments]
        if None in answers:
            always.append(line)  # a marker that cannot be read is reported
        elif all(answers):
            always.append(bare)
        elif any(answers):
            sometimes.append((bare, answers))
    for name in dict.fromkeys(_required_name(bare) for bare, _ in sometimes):
        asked = [
            (bare, answers, _is_violated(bare, listed[name]))
            for bare, answers in sometimes
            if _required_name(bare) == name
        ]
        by_python = zip(*(answers for _, answers, violated in asked if violated), strict=True)
        everywhere = [any(answers) for answers in by_python]
        told = bool(everywhere) and all(everywhere)
        always += [bare for bare, answers, violated in asked if answers[0] and (told or not violated)]
    return tuple(always)


def _is_violated(requirement: str, version: str) -> bool:
    specifier = split_requirement(requirement)[1]
    return versions.satisfies(version, specifier, unknown=Tri.YES) is Tri.NO


def _for_python(lines: Sequence[str], read: Inventory, python: str) -> tuple[str, ...]:
    environment = _environment_with(read, python)
    split = [line.partition(";") for line in lines]
    return tuple(bare for bare, _, marker in split if not marker or markers.matches(marker, environment))


def _is_for_another_cuda(lines: Sequence[str], listed: Mapping[str, str]) -> bool:
    """Return whether a list has the CUDA libraries of another build of torch than the public index has."""
    required = {_required_name(line): line.partition("==")[2].partition(";")[0].strip() for line in lines}
    own, default = cuda_of_libraries(listed), cuda_of_libraries(required)
    return own is not None and default is not None and own != default


def _depends_on_build(version: str, line: str) -> bool:
    """Return whether the requirement may be missing in this build of the release.

    A build with a local label, such as `2.9.0+cu129`, is for another CUDA than the build on the public index,
    or for none. A build without CUDA does not require Triton either.
    """
    label = version.partition("+")[2]
    name = _required_name(line)
    return bool(label) and (
        name.startswith(CUDA_LIBRARIES) or (name == "triton" and not label.startswith("cu"))
    )


def _required_name(line: str) -> str:
    end = min((place for mark in _NAME_ENDS_AT if (place := line.find(mark)) >= 0), default=len(line))
    return normalised(line[:end])
