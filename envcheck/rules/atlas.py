"""Find in the atlas which installed packages use something of each other that is missing.

Doctor does this at every start: for a hundred packages it takes less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from envcheck.core import versions
from envcheck.core.facts import EMPTY_MAPPING, Inventory, Tri, family, package_key, release_key
from envcheck.core.findings import Finding, Judgement, Verdict
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Atlas, AtlasRow, Matrix, Severity, Span

_GENERATED = ("atlas", "requires-dist")


class JudgedReleases(NamedTuple):
    """Installed packages whose code is known: the release of each, and others for a pre-release.

    A pre-release whose code was read is judged as any release. One that was not, such as a nightly build or a
    checkout, lies between two final releases: what fails with both of them, and with all pre-releases between
    them that were read, fails with it. `releases` has the final release after it, `before` all the others.
    """

    releases: Mapping[str, str]
    before: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING


def judged_versions(atlas: Atlas, installed: Mapping[str, str]) -> JudgedReleases:
    """Return the installed packages whose release was read, with the release as the atlas spells it.

    A release that the harvest did not see is left out, and a pre-release with no final release on one side:
    nothing is known of their code. A vendor's build counts as its base release.
    """
    found: dict[str, str] = {}
    before: dict[str, tuple[str, ...]] = {}
    for package, version in installed.items():
        if package not in atlas.releases:
            continue
        if release := _release_read(version, atlas.releases[package]):
            found[package] = release
        elif sides := _releases_around(version, atlas.releases[package]):
            *others, found[package] = sides
            before[package] = tuple(others)
    return JudgedReleases(found, before)


def compiled_for(inventory: Inventory, matrix: Matrix, package: str, partner: str) -> bool:
    """Return whether what a package was compiled for does not follow from its published release.

    conda compiled both for each other, a lock takes the package from a repository, so that its installation
    compiles it, the release has wheels for other processors only, so that it was compiled on one like this,
    or the probe has looked up every symbol that its modules need of torch.
    """
    by_conda = inventory.known("packages.from_conda")
    from_source = inventory.known("packages.from_source")
    return (
        (isinstance(by_conda, tuple) and {package, partner} <= {*by_conda})
        or (isinstance(from_source, tuple) and package in from_source)
        or (partner == "torch" and inventory.known(f"{package_key(package)}.resolved") is True)
        or _has_wheels_for_others_only(inventory, matrix, package)
    )


def _has_wheels_for_others_only(inventory: Inventory, matrix: Matrix, package: str) -> bool:
    system, architecture = (inventory.known(key) for key in ("host.os", "host.arch"))
    version = inventory.known(package_key(package))
    if architecture != "aarch64" or system not in (None, "linux") or not isinstance(version, str):
        return False  # the wheels that are known are those for Linux, most of them for x86_64
    published = (matrix.builds(package, version) or {}).get("wheel", ())
    return bool(published) and not any(wheel == "any" or wheel.startswith("aarch64 ") for wheel in published)


def _release_read(installed: str, releases: Sequence[str]) -> str:
    if installed in releases:
        return installed
    version = versions.parse(installed)
    if version is None:
        return ""
    public = versions.parse(version.base_version if versions.is_vendor_build(version) else version.public)
    return next((release for release in releases if versions.parse(release) == public), "")


def _releases_around(installed: str, releases: Sequence[str]) -> tuple[str, ...]:
    """Return the releases from the last final one before a pre-release to the first final one after it.

    Empty if there is none on one side. A checkout says 5.0.0.dev0 before the first candidate and after the
    last one, so that all candidates count.
    """
    version = versions.parse(installed)
    if version is None or not version.is_prerelease:
        return ()
    ordered = [(parsed, each) for each in releases if (parsed := versions.parse(each)) is not None]
    ordered.sort()
    final = [place for place, (parsed, _) in enumerate(ordered) if not parsed.is_prerelease]
    first = max((place for place in final if ordered[place][0] < version), default=None)
    last = min((place for place in final if ordered[place][0] > version), default=None)
    if first is None or last is None:
        return ()
    return tuple(each for _, each in ordered[first : last + 1])


def is_pre_release(release: str) -> bool:
    """Return whether a release of the atlas is a pre-release."""
    version = versions.parse(release)
    return version is not None and version.is_prerelease


def newer_releases(atlas: Atlas, installed: Mapping[str, str]) -> dict[str, str]:
    """Return the installed releases that came out after the harvest: nothing is known of their code."""
    return {
        package: version
        for package, version in installed.items()
        if (releases := atlas.releases.get(package))
        and version not in releases
        and _is_newer(version, releases[-1])
    }


def _is_newer(installed: str, newest: str) -> bool:
    version = versions.parse(installed)
    return version is not None and versions.compare(version.base_version, ">", newest) is Tri.YES


def broken_rows(atlas: Atlas, judged: JudgedReleases) -> Iterator[tuple[str, str, list[AtlasRow]]]:
    """Yield each package and partner that do not fit, with the rows that show it."""
    for package, partner, rows in _broken_rows(atlas, judged.releases):
        if package in judged.before or partner in judged.before:
            rows = _broken_on_every_side(atlas, rows, judged)  # noqa: PLW2901 - fewer of them
        if rows:
            yield package, partner, rows


def _broken_on_every_side(atlas: Atlas, rows: list[AtlasRow], judged: JudgedReleases) -> list[AtlasRow]:
    """Return the rows whose kind of entry also fails with the other releases around the pre-releases."""
    package, partner = rows[0].package, rows[0].partner
    asking, lacking = ((judged.releases[name], *judged.before.get(name, ())) for name in (package, partner))
    for release, other in product(asking, lacking):
        failing = {
            _entry_kind(row, atlas) for row in atlas.rows[package][partner] if is_broken(row, release, other)
        }
        rows = [row for row in rows if _entry_kind(row, atlas) in failing]
    return rows


def _entry_kind(row: AtlasRow, atlas: Atlas) -> tuple[bool, bool]:
    return row.entry in atlas.optional, row.entry.startswith("import ")


def _broken_rows(atlas: Atlas, installed: Mapping[str, str]) -> Iterator[tuple[str, str, list[AtlasRow]]]:
    places = {
        package: {release: place for place, release in enumerate(atlas.releases[package])}
        for package in installed
    }
    for package, release in installed.items():
        partners = atlas.rows.get(package, {})
        for partner in partners:
            if partner in installed:
                broken = [
                    row
                    for row in partners[partner]
                    if _between(release, row.releases, places[package])
                    and _between(installed[partner], row.lacking, places[partner])
                ]
                if broken:
                    yield package, partner, broken


def _between(release: str, spans: Sequence[Span], places: Mapping[str, int]) -> bool:
    """Return the same as `in_spans`, from the places of the releases: no version is parsed."""
    place = places[release]
    for first, last in spans:  # not `any`: a generator for each row takes longer than the comparison
        low, high = places.get(first), places.get(last)
        if low is None or high is None:
            return in_spans(release, spans)
        if low <= place <= high:
            return True
    return False


def is_broken(row: AtlasRow, release: str, partner_release: str) -> bool:
    """Return whether this release asks for what that release of the partner lacks."""
    return in_spans(release, row.releases) and in_spans(partner_release, row.lacking)


def in_spans(release: str, spans: Iterable[Span]) -> bool:
    """Return whether a release lies in one of the spans, in the order of PEP 440."""
    place = versions.order(release)
    return any(versions.order(first) <= place <= versions.order(last) for first, last in spans)


def fitting_releases(atlas: Atlas, moving: str, fixed: str, fixed_release: str) -> list[str]:
    """Return the releases of one package that no row excludes beside a release of another, oldest first.

    Pre-releases are left out: they are proposed to nobody.
    """
    rows = [
        (row, row.package == moving)
        for asking, partner in ((moving, fixed), (fixed, moving))
        for row in atlas.rows.get(asking, {}).get(partner, ())
    ]
    concerned = [
        (row.releases if asks else row.lacking)
        for row, asks in rows
        if in_spans(fixed_release, row.lacking if asks else row.releases)
    ]
    return [
        release
        for release in atlas.releases.get(moving, ())
        if not is_pre_release(release) and not any(in_spans(release, spans) for spans in concerned)
    ]


def without_repetitions(judgement: Judgement) -> Judgement:
    """Return the judgement without generated findings on two packages that a written rule names.

    Instead of an atlas finding, the written rule is one at error level that names both, or one about these
    two alone that is as severe. Instead of an unmet requirement, it is one at error level about these two
    alone: installers refuse what a warning lets pass. A written rule states the symptom, which the generated
    finding would repeat with less detail. A written rule that names another one in `repeats` is left out too
    where that one is broken by the same packages. The omitted findings are kept as `repeated`.
    """
    written = [
        (finding, keys_of(finding))
        for finding in judgement.findings
        if finding.verdict is Verdict.BROKEN and finding.rule.group not in _GENERATED
    ]

    def repeats(finding: Finding) -> bool:
        pair = set(map(release_key, finding.rule.id.split(":")[1:3]))
        if finding.rule.group == "requires-dist":
            return any(pair == keys and other.severity is Severity.ERROR for other, keys in written)
        return any(
            pair <= keys
            if other.severity is Severity.ERROR
            else pair == keys and finding.severity.rank <= other.severity.rank
            for other, keys in written
        )

    dropped = tuple(
        finding
        for finding in judgement.findings
        if (finding.rule.group in _GENERATED and repeats(finding)) or _is_subsumed(finding, judgement)
    )
    if not dropped:
        return judgement
    kept = tuple(finding for finding in judgement.findings if finding not in dropped)
    return judgement._replace(
        findings=kept, applied=judgement.applied - len(dropped), repeated=(*judgement.repeated, *dropped)
    )


def _is_subsumed(finding: Finding, judgement: Judgement) -> bool:
    """Return whether the rule in `repeats` is broken here by all the packages that break this one."""
    return bool(finding.rule.repeats) and any(
        other.rule.id == finding.rule.repeats
        and other.verdict is Verdict.BROKEN
        and _evidence_keys(finding) <= _evidence_keys(other)
        for other in judgement.findings
    )


def _evidence_keys(finding: Finding) -> set[str]:
    keys = {each.fact.key for each in finding.evidence}
    return {
        key
        for key in keys
        if family(key) not in ("train", "training", "host") and not key.endswith(".resolved")
    }


def keys_of(finding: Finding) -> set[str]:
    """Return the keys that a finding's rule names, without those that say for whom it is.

    These are the trainings, the machine, and the builds whose symbols were all found.
    """
    rule = finding.rule
    keys = {clause.key for table in (*rule.when, rule.require) for clause in table}
    return {key for key in keys if family(key) not in ("training", "host") and not key.endswith(".resolved")}
