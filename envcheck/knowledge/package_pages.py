"""The pages of `matrix show`, as text: all that is known, a package, or one release of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Known, Tri, is_package_key, package_key, package_name, package_of_key
from envcheck.core.i18n import counted
from envcheck.core.rules import OUTCOMES, Cell, Clause, Matrix, Rule, When
from envcheck.core.suggestions import suggestion
from envcheck.knowledge.tables import ReleaseRow, all_releases
from envcheck.rules import clause_algebra

_MARKS = {Tri.YES: "yes", Tri.MAYBE: "may", Tri.NO: "no"}
_LATEST = 8
"""Releases listed on a package's page; `PACKAGE==V` shows any."""


def matrix_page(wanted: str | None, known: Matrix) -> str:
    """Return the page of `PACKAGE` or `PACKAGE==V`, or the overview if neither is named.

    Raises:
        InputError: nothing is known of such a package, or the argument has another form.
    """
    if wanted is None:
        return "\n".join([*_overview(known), ""])
    name, equals, version = (part.strip() for part in wanted.partition("=="))
    name = name.lower().replace("_", "-")
    packages = _packages(known)
    if name not in packages:
        raise InputError(
            f"matrix show {wanted}", f"no such package in the tables or rules{suggestion(name, packages)}"
        )
    if equals and versions.parse(version) is None:
        raise InputError(f"matrix show {wanted}", f"expected PACKAGE==V with a version; found {version!r}")
    page = _release_page(name, version, known) if equals else _package_page(name, known)
    return "\n".join([*page, ""])


# --- the overview -----------------------------------------------------------------------------------


def _packages(known: Matrix) -> list[str]:
    """Return every package that a rule, a release or `known_through` names."""
    named = {package_of_key(key) for rule in known.rules for key in _keys(rule) if is_package_key(key)}
    return sorted({*named, *(release.package for release in all_releases(known)), *known.known_through})


def _keys(rule: Rule) -> set[str]:
    return {clause.key for table in (*rule.when, rule.require) for clause in table}


def _overview(known: Matrix) -> Iterator[str]:
    yield f"matrix {known.updated}  {known.digest[:19]}"
    for origin in known.origins:
        yield f"overlay {origin.name} ({origin.named_by}): {origin.brings}"
    yield ""
    yield f"{len(known.rules)} known failures"
    for label, tally in (
        ("severity", Counter(rule.severity.value for rule in known.rules)),
        ("known by", Counter(rule.basis.value for rule in known.rules)),
        ("family", Counter(rule.group for rule in known.rules)),
    ):
        yield f"  {label:<9} " + ", ".join(f"{count} {name}" for name, count in tally.most_common())
    yield _tally(known.cells)
    yield f"{len(known.targets)} targets: {', '.join(known.targets)}"
    yield ""
    yield f"{'package':<18} {'releases':<28} {'rules':>5} {'cells':>5}"
    for name in _packages(known):
        releases = _releases_of(name, known)
        span = f"{releases[0].version} to {releases[-1].version} ({len(releases)})" if releases else ""
        rules = sum(package_key(name) in _keys(rule) for rule in known.rules)
        cells = sum(name in cell.pkg for cell in known.cells)
        yield f"{name:<18} {span:<28} {rules:>5} {cells:>5}"


# --- one package ------------------------------------------------------------------------------------


def _package_page(name: str, known: Matrix) -> Iterator[str]:
    releases = _releases_of(name, known)
    through = known.known_through.get(name)
    yield f"{name}" + (f": known through {through}" if through else "")
    if releases:
        span = f"{releases[0].version} to {releases[-1].version}"
        yield f"releases {len(releases)}, {span}; the latest:"
        for release in releases[-_LATEST:]:
            python = f"   Python {release.requires_python}" if release.requires_python else ""
            yanked = "   yanked" if release.yanked else ""
            yield f"    {release.date:<10}  {release.version:<12}{python}{yanked}"
    named = [rule for rule in known.rules if package_key(name) in _keys(rule)]
    yield ""
    yield f"{counted(len(named), 'known failure')} name{'s' * (len(named) == 1)} it"
    for rule in named:
        yield from _rule(rule, name)
    yield from _cells([cell for cell in known.cells if name in cell.pkg])


# --- one release ------------------------------------------------------------------------------------


def _release_page(name: str, version: str, known: Matrix) -> Iterator[str]:
    release = _find_release(name, version, known)
    yield f"{name} {version}" + (f", released {release.date}" if release and release.date else "")
    note = versions.note(version)
    if note:
        yield note
    if release is None:
        yield "not among the releases in the tables" + _beyond(name, version, known)
    else:
        yield from _release(release)
        if name == "torch":
            yield from _torch(release.version, known)
    verdicts = [
        (_concerns(rule, name, version), rule) for rule in known.rules if package_key(name) in _keys(rule)
    ]
    concerned = [rule for verdict, rule in verdicts if verdict is not Tri.NO]
    yield ""
    yield (
        f"{len(concerned)} of {len(verdicts)} known failures that name {name} concern this release, "
        "if their other conditions hold"
    )
    for rule in concerned:
        yield from _rule(rule, name, version)
    if len(concerned) < len(verdicts):
        yield "not concerned: " + ", ".join(rule.id for verdict, rule in verdicts if verdict is Tri.NO)
    base = versions.base_release(version)
    yield from _cells(
        [cell for cell in known.cells if name in cell.pkg and versions.base_release(cell.pkg[name]) == base]
    )


def _find_release(name: str, version: str, known: Matrix) -> ReleaseRow | None:
    """Return a release without regard to its build: `2.6.0+cu124` is the release 2.6.0."""
    wanted = versions.parse(version.partition("+")[0])
    of_package = _releases_of(name, known)
    return next((release for release in of_package if versions.parse(release.version) == wanted), None)


def _beyond(name: str, version: str, known: Matrix) -> str:
    through = known.known_through.get(name)
    if through and versions.compare(version, ">", through) is Tri.YES:
        return f": newer than {through}, the last one looked at"
    return ""


def _release(release: ReleaseRow) -> Iterator[str]:
    if release.yanked:
        yield "yanked: never proposed"
    if release.requires_python:
        yield f"python    {release.requires_python}"
    if release.pythons:
        yield f"wheels    Python {', '.join(release.pythons)}"
    if release.requires:
        yield "requires  " + _joined(release.requires)
    for extra, required in release.extras.items():
        yield f"[{extra}]".ljust(9) + " " + _joined(required)
    if release.sdist:
        yield "published as source only: built on installation"


def _joined(requires: Mapping[str, str]) -> str:
    return ", ".join(f"{name}{bound}" for name, bound in requires.items())


def _torch(version: str, known: Matrix) -> Iterator[str]:
    """Yield what the builds of a torch release were made for."""
    build = next(build for build in known.tables.torch_builds if build.version == version)
    yield f"CUDA      {build.cuda}{_oldest_driver(build.cuda, known)}"
    yield f"code for  {' '.join(build.architectures)}"
    yield f"with      {', '.join(f'{name} {release}' for name, release in build.companions.items())}"
    libraries = {"cuDNN": build.cudnn, "NCCL": build.nccl}
    yield f"brings    {', '.join(f'{name} {release}' for name, release in libraries.items() if release)}"
    abi = "C++ ABI not known" if build.cxx11_abi is None else f"{'new' if build.cxx11_abi else 'old'} C++ ABI"
    yield f"needs     glibc {build.glibc or 'not known'}, {abi}"
    for variant in known.tables.torch_variants:
        if variant.torch == version:
            driver = _oldest_driver(variant.cuda, known)
            yield f"also for  CUDA {variant.cuda}{driver}: {' '.join(variant.architectures)}"


def _oldest_driver(cuda: str, known: Matrix) -> str:
    """Return `, driver V or newer` for the major version of a CUDA; empty where that is not known."""
    for row in known.tables.cuda_families:
        if row.major == cuda.partition(".")[0]:
            return f", driver {row.minimum_driver} or newer"
    return ""


# --- parts of both ----------------------------------------------------------------------------------


def _concerns(rule: Rule, name: str, version: str) -> Tri:
    """Return whether a rule can be broken with this version, if its other clauses match."""
    key, reading = package_key(name), Known(version)
    answers = [clause_algebra.answer(clause, reading) for clause in rule.require if clause.key == key]
    unmet = max((answer.negated() for answer in answers), default=Tri.YES)
    if any(clause.key != key for clause in rule.require):
        unmet = Tri.YES  # another fact may fail the requirement
    return min(max(_table_concerns(table, name, version) for table in rule.when), unmet)


def _table_concerns(table: When, name: str, version: str) -> Tri:
    return min(
        (
            clause_algebra.answer(clause, Known(version))
            for clause in table
            if clause.key == package_key(name)
        ),
        default=Tri.YES,
    )


def _rule(rule: Rule, name: str, version: str = "") -> Iterator[str]:
    """Yield a rule with the `when` tables that concern a version, or with all of them if none is given."""
    mark = f"{_MARKS[_concerns(rule, name, version)]:<4}" if version else ""
    yield f"  {mark}{rule.id}  [{rule.severity.value}, {rule.basis.value}]"
    yield f"      {rule.title}"
    tables = [
        table for table in rule.when if not version or _table_concerns(table, name, version) is not Tri.NO
    ]
    for number, table in enumerate(tables):
        package_first = sorted(table, key=lambda clause: clause.key != package_key(name))
        yield f"      {'or' if number else 'if'} {_clauses(package_first)}"
    if rule.require:
        yield f"      unless {_clauses(rule.require)}"


def _clauses(table: Sequence[Clause]) -> str:
    return ", ".join(f"{package_name(clause.key)} {clause.raw}" for clause in table)


def _tally(cells: Sequence[Cell]) -> str:
    """Return `74 measured combinations: 50 trained, 24 failed`, and the counts of other outcomes."""
    counts = Counter(cell.outcome for cell in cells)
    words = {
        "ok": "trained",
        "fails": "failed",
        "imports": "only imported",
        "not-installable": "not installable",
    }
    parts = [
        f"{counts[outcome]} {words[outcome]}"
        for outcome in OUTCOMES
        if counts[outcome] or outcome in ("ok", "fails")
    ]
    return f"{counted(len(cells), 'measured combination')}: {', '.join(parts)}"


def _cells(cells: Sequence[Cell]) -> Iterator[str]:
    yield ""
    yield _tally(cells)
    for cell in cells:
        packages = ", ".join(f"{name} {version}" for name, version in cell.pkg.items())
        train = "".join(
            f", {key.removeprefix('train.')} {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in cell.train.items()
        )
        outcome = f"{cell.outcome:<5}"
        rule = f"  [{cell.rule}]" if cell.rule else ""
        yield f"    {cell.date} {cell.device} {outcome} {cell.target}: {packages}{train}{rule}"


def _releases_of(name: str, known: Matrix) -> list[ReleaseRow]:
    return [release for release in all_releases(known) if release.package == name]
