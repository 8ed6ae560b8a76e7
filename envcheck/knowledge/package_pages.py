"""The pages of `matrix show`, as text: all that is known, a package, or one release of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Known, Tri, is_package_key, package_key, package_name, package_of_key
from envcheck.core.i18n import ENGLISH, Language, pad, width
from envcheck.core.rules import OUTCOMES, Cell, Clause, Matrix, Rule, When
from envcheck.core.suggestions import suggestion
from envcheck.knowledge.tables import ReleaseRow, all_releases
from envcheck.rules import clause_algebra

MARKS = {Tri.YES: "yes", Tri.MAYBE: "may", Tri.NO: "no"}
OUTCOME_WORDS = {
    "ok": "trained",
    "fails": "failed",
    "imports": "only imported",
    "not-installable": "not installable",
}
"""Phrases for the outcomes of measured combinations."""

_LATEST = 8
"""Releases listed on a package's page; `PACKAGE==V` shows any."""


def matrix_page(wanted: str | None, known: Matrix, language: Language = ENGLISH) -> str:
    """Return the page of `PACKAGE` or `PACKAGE==V`, or the overview if neither is named.

    Raises:
        InputError: nothing is known of such a package, or the argument has another form.
    """
    lang = language.without(known.overlaid())
    if wanted is None:
        return "\n".join([*_overview(known, lang), ""])
    name, equals, version = (part.strip() for part in wanted.partition("=="))
    name = name.lower().replace("_", "-")
    packages = _packages(known)
    if name not in packages:
        raise InputError(
            f"matrix show {wanted}", f"no such package in the tables or rules{suggestion(name, packages)}"
        )
    if equals and versions.parse(version) is None:
        raise InputError(f"matrix show {wanted}", f"expected PACKAGE==V with a version; found {version!r}")
    page = _release_page(name, version, known, lang) if equals else _package_page(name, known, lang)
    return "\n".join([*page, ""])


# --- the overview -----------------------------------------------------------------------------------


def _packages(known: Matrix) -> list[str]:
    """Return every package that a rule, a release or `known_through` names."""
    named = {package_of_key(key) for rule in known.rules for key in _keys(rule) if is_package_key(key)}
    return sorted({*named, *(release.package for release in all_releases(known)), *known.known_through})


def _keys(rule: Rule) -> set[str]:
    return {clause.key for table in (*rule.when, rule.require) for clause in table}


def _overview(known: Matrix, lang: Language) -> Iterator[str]:
    yield lang.say("matrix {}  {}", known.updated, known.digest[:19])
    for origin in known.origins:
        yield lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings)
    yield ""
    yield lang.say("{} known failures", len(known.rules))
    for label, tally in (
        ("severity", Counter(rule.severity.value for rule in known.rules)),
        ("known by", Counter(rule.basis.value for rule in known.rules)),
        ("family", Counter(rule.group for rule in known.rules)),
    ):
        named = label != "family"  # the names of families are those of files
        counts = lang.word(", ").join(
            f"{count} {lang.word(name) if named else name}" for name, count in tally.most_common()
        )
        yield f"  {pad(lang.word(label), 9)} {counts}"
    yield _tally(known.cells, lang)
    yield lang.say("{} targets: {}", len(known.targets), ", ".join(known.targets))
    yield ""
    heads = [lang.word(head) for head in ("package", "releases", "rules", "cells")]
    yield f"{pad(heads[0], 18)} {pad(heads[1], 28)} {_right(heads[2], 5)} {_right(heads[3], 5)}"
    for name in _packages(known):
        releases = _releases_of(name, known)
        span = f"{_span(releases, lang)} ({len(releases)})" if releases else ""
        rules = sum(package_key(name) in _keys(rule) for rule in known.rules)
        cells = sum(name in cell.pkg for cell in known.cells)
        yield f"{name:<18} {pad(span, 28)} {rules:>5} {cells:>5}"


def _span(releases: Sequence[ReleaseRow], lang: Language) -> str:
    return lang.say("{} to {}", releases[0].version, releases[-1].version)


def _right(text: str, columns: int) -> str:
    return " " * (columns - width(text)) + text


# --- one package ------------------------------------------------------------------------------------


def _package_page(name: str, known: Matrix, lang: Language) -> Iterator[str]:
    releases = _releases_of(name, known)
    through = known.known_through.get(name)
    yield lang.say("{}: known through {}", name, through) if through else name
    if releases:
        yield lang.say("releases {}, {}; the latest:", len(releases), _span(releases, lang))
        for release in releases[-_LATEST:]:
            python = f"   Python {release.requires_python}" if release.requires_python else ""
            yanked = f"   {lang.say('yanked')}" if release.yanked else ""
            yield f"    {release.date:<10}  {release.version:<12}{python}{yanked}"
    named = [rule for rule in known.rules if package_key(name) in _keys(rule)]
    yield ""
    yield lang.say(
        "{} known failure names it" if len(named) == 1 else "{} known failures name it", len(named)
    )
    for rule in named:
        yield from _rule(rule, name, lang)
    yield from _cells([cell for cell in known.cells if name in cell.pkg], lang)


# --- one release ------------------------------------------------------------------------------------


def _release_page(name: str, version: str, known: Matrix, lang: Language) -> Iterator[str]:
    release = _find_release(name, version, known)
    date = release.date if release else ""
    yield lang.say("{} {}, released {}", name, version, date) if date else f"{name} {version}"
    note = versions.note(version)
    if note:
        yield lang.translate(note)
    if release is None:
        yield _not_listed(name, version, known, lang)
    else:
        yield from _release(release, lang)
        if name == "torch":
            yield from _torch(release.version, known, lang)
    verdicts = [
        (_concerns(rule, name, version), rule) for rule in known.rules if package_key(name) in _keys(rule)
    ]
    concerned = [rule for verdict, rule in verdicts if verdict is not Tri.NO]
    yield ""
    yield lang.say(
        "{} of {} known failures that name {} concern this release, if their other conditions hold",
        len(concerned),
        len(verdicts),
        name,
    )
    for rule in concerned:
        yield from _rule(rule, name, lang, version)
    if len(concerned) < len(verdicts):
        others = ", ".join(rule.id for verdict, rule in verdicts if verdict is Tri.NO)
        yield lang.say("not concerned: {}", others)
    base = versions.base_release(version)
    yield from _cells(
        [cell for cell in known.cells if name in cell.pkg and versions.base_release(cell.pkg[name]) == base],
        lang,
    )


def _find_release(name: str, version: str, known: Matrix) -> ReleaseRow | None:
    """Return a release without regard to its build: `2.6.0+cu124` is the release 2.6.0."""
    wanted = versions.parse(version.partition("+")[0])
    of_package = _releases_of(name, known)
    return next((release for release in of_package if versions.parse(release.version) == wanted), None)


def _not_listed(name: str, version: str, known: Matrix, lang: Language) -> str:
    through = known.known_through.get(name)
    if through and versions.compare(version, ">", through) is Tri.YES:
        text = "not among the releases in the tables: newer than {}, the last one looked at"
        return lang.say(text, through)
    return lang.say("not among the releases in the tables")


def _labelled(label: str, text: str, lang: Language) -> str:
    return f"{pad(lang.word(label), 9)} {text}"


def _release(release: ReleaseRow, lang: Language) -> Iterator[str]:
    if release.yanked:
        yield lang.say("yanked: never proposed")
    if release.requires_python:
        yield f"python    {release.requires_python}"
    if release.pythons:
        yield _labelled("wheels", f"Python {', '.join(release.pythons)}", lang)
    if release.requires:
        yield _labelled("requires", _joined(release.requires), lang)
    for extra, required in release.extras.items():
        yield f"[{extra}]".ljust(9) + " " + _joined(required)
    if release.sdist:
        yield lang.say("published as source only: built on installation")


def _joined(requires: Mapping[str, str]) -> str:
    return ", ".join(f"{name}{bound}" for name, bound in requires.items())


def _torch(version: str, known: Matrix, lang: Language) -> Iterator[str]:
    """Yield what the builds of a torch release were made for."""
    build = next(build for build in known.tables.torch_builds if build.version == version)
    yield _labelled("CUDA", _with_driver(build.cuda, known, lang), lang)
    yield _labelled("code for", " ".join(build.architectures), lang)
    companions = ", ".join(f"{name} {release}" for name, release in build.companions.items())
    yield _labelled("with", companions, lang)
    libraries = {"cuDNN": build.cudnn, "NCCL": build.nccl}
    brought = ", ".join(f"{name} {release}" for name, release in libraries.items() if release)
    yield _labelled("brings", brought, lang)
    abi = {None: "C++ ABI not known", True: "new C++ ABI", False: "old C++ ABI"}[build.cxx11_abi]
    yield _labelled("needs", f"glibc {build.glibc or lang.word('not known')}, {lang.word(abi)}", lang)
    for variant in known.tables.torch_variants:
        if variant.torch == version:
            cuda = f"CUDA {_with_driver(variant.cuda, known, lang)}"
            yield _labelled("also for", f"{cuda}: {' '.join(variant.architectures)}", lang)


def _with_driver(cuda: str, known: Matrix, lang: Language) -> str:
    """Return a CUDA and the oldest driver of its major version, where that is known."""
    for row in known.tables.cuda_families:
        if row.major == cuda.partition(".")[0]:
            return lang.say("{}, driver {} or newer", cuda, row.minimum_driver)
    return cuda


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


def _rule(rule: Rule, name: str, lang: Language, version: str = "") -> Iterator[str]:
    """Yield a rule with the `when` tables that concern a version, or with all of them if none is given."""
    mark = f"{pad(lang.word(MARKS[_concerns(rule, name, version)]), 3)} " if version else ""
    yield f"  {mark}{rule.id}  [{lang.word(rule.severity.value)}, {lang.word(rule.basis.value)}]"
    yield f"      {lang.title(rule.id, rule.title)}"
    tables = [
        table for table in rule.when if not version or _table_concerns(table, name, version) is not Tri.NO
    ]
    for number, table in enumerate(tables):
        package_first = sorted(table, key=lambda clause: clause.key != package_key(name))
        yield f"      {lang.word('or' if number else 'if')} {_clauses(package_first, lang)}"
    if rule.require:
        yield f"      {lang.word('unless')} {_clauses(rule.require, lang)}"


def _clauses(table: Sequence[Clause], lang: Language) -> str:
    return ", ".join(f"{package_name(clause.key)} {lang.alternatives(clause.raw)}" for clause in table)


def _tally(cells: Sequence[Cell], lang: Language) -> str:
    """Return `74 measured combinations: 50 trained, 24 failed`, and the counts of other outcomes."""
    counts = Counter(cell.outcome for cell in cells)
    parts = [
        f"{counts[outcome]} {lang.word(OUTCOME_WORDS[outcome])}"
        for outcome in OUTCOMES
        if counts[outcome] or outcome in ("ok", "fails")
    ]
    template = "{} measured combination: {}" if len(cells) == 1 else "{} measured combinations: {}"
    return lang.say(template, len(cells), lang.word(", ").join(parts))


def _cells(cells: Sequence[Cell], lang: Language) -> Iterator[str]:
    yield ""
    yield _tally(cells, lang)
    for cell in cells:
        packages = ", ".join(f"{name} {version}" for name, version in cell.pkg.items())
        train = "".join(
            f", {key.removeprefix('train.')} {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in cell.train.items()
        )
        outcome = pad(lang.word(cell.outcome), 5)
        rule = f"  [{cell.rule}]" if cell.rule else ""
        yield f"    {cell.date} {cell.device} {outcome} {cell.target}: {packages}{train}{rule}"


def _releases_of(name: str, known: Matrix) -> list[ReleaseRow]:
    return [release for release in all_releases(known) if release.package == name]
