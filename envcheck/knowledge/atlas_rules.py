"""Make rules from the rows of the atlas: a package uses something that a release of another lacks.

Doctor imports this module only if some row is broken; `envcheck.rules.atlas` finds that out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from envcheck.core.elf import demangle, describe_symbol
from envcheck.core.facts import PYTHON, Kind, Tri, package_key, release_key
from envcheck.core.rules import (
    ABSENT,
    Atlas,
    AtlasRow,
    Basis,
    Clause,
    Comparison,
    Fix,
    Rule,
    Severity,
    Source,
    Span,
)
from envcheck.core.training_facts import KEYS
from envcheck.core.versions import compare
from envcheck.knowledge.atlas import BESIDE, companion_of
from envcheck.rules.atlas import (
    JudgedReleases,
    broken_rows,
    fitting_releases,
    in_spans,
    is_pre_release,
    judged_versions,
)

_COMPILED = frozenset({"binary", "symbol"})
"""The kinds of rows about compiled modules."""


def _never(_package: str, _partner: str) -> bool:
    return False


def rules_here(
    atlas: Atlas,
    versions: Mapping[str, str],
    fitting: Callable[[str, str], bool] = _never,
    withdrawn: Collection[tuple[str, str]] = (),
) -> Iterator[Rule]:
    """Yield a rule for each pair of installed packages whose code does not fit, worded for these releases.

    Only the worst import and call of a pair are yielded: if `import peft` fails, there is no need to report
    that its trainers fail too. `fitting` returns whether compiled modules of a package are known to load
    beside the installed release of another one, whatever its wheels on the index pin and need. No fix names a
    release of `withdrawn`, which has packages and versions.
    """
    judged = judged_versions(atlas, versions)
    shown = {**judged.releases, **{package: versions[package] for package in judged.before}}
    fits = _fitting_or_unused(atlas, versions, fitting)
    for rule, worst, same in _broken_rules(atlas, judged, fits, versions):
        package, partner = worst.package, worst.partner
        release, other = judged.releases[package], judged.releases[partner]
        yield _at_pre_releases(rule, judged, versions)._replace(
            title=_title(same, shown[package], shown[partner]),
            why=who_has_it(worst, atlas),
            fixes=tuple(_fixes(atlas, (package, release), (partner, other), withdrawn)),
            sources=tuple(_places(same, release, atlas)),
        )


def unworded_rules_here(
    atlas: Atlas, versions: Mapping[str, str], fitting: Callable[[str, str], bool] = _never
) -> Iterator[Rule]:
    """Yield the rules of `rules_here` without their texts, because trying fixes makes hundreds."""
    judged = judged_versions(atlas, versions)
    fits = _fitting_or_unused(atlas, versions, fitting)
    for rule, _, _ in _broken_rules(atlas, judged, fits, versions):
        yield _at_pre_releases(rule, judged, versions)


def _fitting_or_unused(
    atlas: Atlas, installed: Collection[str], fitting: Callable[[str, str], bool]
) -> Callable[[str, str], bool]:
    return lambda package, partner: fitting(package, partner) or _unused(atlas, package, installed)


def _unused(atlas: Atlas, package: str, installed: Collection[str]) -> bool:
    """Return whether a plugin is here beside which the compiled modules of a package are not loaded."""
    return any(each in installed for each in atlas.unused_with.get(package, ()))


def _at_pre_releases(rule: Rule, judged: JudgedReleases, versions: Mapping[str, str]) -> Rule:
    """Return the rule with that version instead of its bounds on a pre-release, which they do not decide."""
    undecided = [name for name in judged.releases if name in judged.before or _is_candidate(name, judged)]
    exact = {release_key(name): versions[name] for name in undecided}
    tables = tuple(
        tuple(
            each._replace(any_of=((Comparison("==", exact[each.key]),),), raw=f"=={exact[each.key]}")
            if each.key in exact
            else each
            for each in table
        )
        for table in rule.when
    )
    return rule._replace(when=tables)


def _is_candidate(name: str, judged: JudgedReleases) -> bool:
    return is_pre_release(judged.releases[name])


def _broken_rules(
    atlas: Atlas, judged: JudgedReleases, fitting: Callable[[str, str], bool], installed: Collection[str]
) -> Iterator[tuple[Rule, AtlasRow, list[AtlasRow]]]:
    """Yield the rules of each pair of packages that do not fit, with the worst row and all of its entry.

    An import that not everybody makes does not hide a call that fails, nor does the call, which needs its
    trainer, hide the import. Of the calls, the worst for each training method is yielded, and of the imports
    the worst of all and the worst for each class that only some trainings import.
    """
    for package, partner, broken in broken_rows(atlas, judged):
        fits = any(row.kind in _COMPILED for row in broken) and fitting(package, partner)
        rows = [
            row
            for row in broken
            if not (fits and row.kind in _COMPILED)
            and not _provided(row, atlas, installed)
            and _has_companion(row, installed)
        ]
        imports = [row for row in rows if not _is_call(row.entry)]
        worst = min(imports, key=lambda row: _reach(row, atlas), default=None)
        if worst is not None:
            same = [row for row in imports if row.entry == worst.entry]
            yield _import_rule(same, atlas), worst, same
            if worst.entry not in atlas.optional:
                continue
        for reached in _by_training(rows, atlas):
            worst = min(reached, key=lambda row: _reach(row, atlas))
            same = [row for row in reached if row.entry == worst.entry]
            yield _training_rule(same, atlas), worst, same


def _provided(row: AtlasRow, atlas: Atlas, installed: Collection[str]) -> bool:
    """Return whether a package is here that brings what the partner lacks.

    setuptools has the distutils that Python dropped, and Unsloth puts a name back into vLLM. A search
    does not know the releases of the packages that are here: there, any release counts.
    """
    lacks = row.needs.split(".", 1)[0] if row.partner == PYTHON else row.needs
    return any(_is_here(each, installed) for each in atlas.provided_by.get(lacks, ()))


def _is_here(provider: str, installed: Collection[str]) -> bool:
    """Return whether `unsloth>=2025.11.6` is here, or may be."""
    name, _, first = provider.partition(">=")
    release = installed.get(name) if isinstance(installed, Mapping) else None
    return name in installed and not (first and release and compare(release, ">=", first) is Tri.NO)


def _has_companion(row: AtlasRow, installed: Collection[str]) -> bool:
    """Return whether the third package is here, beside which alone the entry fails, or there is none."""
    companion = companion_of(row.entry)
    return not companion or companion in installed


def _by_training(rows: Sequence[AtlasRow], atlas: Atlas) -> list[list[AtlasRow]]:
    """Return the rows of calls, and of imports that only some trainings make, by the trainings that do so."""
    groups: dict[tuple[bool, tuple[str, ...]], list[AtlasRow]] = {}
    for row in rows:
        if _is_call(row.entry):
            groups.setdefault((True, _methods(row.package, row.entry, atlas)), []).append(row)
        elif made_by := _made_by(row.package, row.entry, atlas):
            groups.setdefault((False, tuple(f"{each.key}={each.raw}" for each in made_by)), []).append(row)
    return [groups[key] for key in sorted(groups)]


def rules_of(atlas: Atlas, packages: Iterable[str]) -> Iterator[Rule]:
    """Yield a rule for each pair of these packages and each entry, for all their releases.

    The searches use these: they judge releases that are not installed.
    """
    present = set(packages)
    for package in sorted(present & atlas.rows.keys()):
        for partner in sorted(present & atlas.rows[package].keys()):
            rows = [
                row
                for row in atlas.rows[package][partner]
                if not (row.kind in _COMPILED and _unused(atlas, package, present))
                and not _provided(row, atlas, present)
                and _has_companion(row, present)
            ]
            for entry in dict.fromkeys(row.entry for row in rows):
                of_entry = [row for row in rows if row.entry == entry]
                if not _is_call(entry):
                    yield _import_rule(of_entry, atlas, searched=True)
                if _is_call(entry) or _made_by(package, entry, atlas):
                    yield _training_rule(of_entry, atlas)


_TRAINERS = frozenset(KEYS["train.trainer"].words)


def _import_rule(rows: Sequence[AtlasRow], atlas: Atlas, *, searched: bool = False) -> Rule:
    """Return the rule of two packages at one import, from the rows of this import.

    It is for trainings that do not leave out the import of the package. If only some trainings make it, it is
    for environments without a training, or whose training names no trainer. A trainer that is `searched` was
    asked for, so its import counts whatever trains.
    """
    package, entry = rows[0].package, rows[0].entry
    trainings: tuple[tuple[Clause, ...], ...] = ((),)
    described, undescribed = (_flag("training.described", value=value) for value in (True, False))
    imported = atlas.imported_if.get(package, "")
    if imported and not (searched and imported.removeprefix("training.imports_") in _TRAINERS):
        trainings = ((_unless_false(imported),),)
    if _made_by(package, entry, atlas):
        no_trainer = Clause("train.trainer", Kind.WORD, ((ABSENT,),), "absent")
        trainings = ((undescribed,), (described, no_trainer))
    elif makes_it := _entry_fact(package, entry, atlas):
        trainings = ((undescribed,), (described, _unless_false(makes_it)))
    severity = Severity.WARNING if entry in atlas.optional else Severity.ERROR
    return _rule_on(rows, _entry_name(entry, package), severity, trainings)


def _unless_false(fact: str) -> Clause:
    return Clause(fact, Kind.FLAG, ((ABSENT,), (Comparison("==", True),)), "absent or true")


def _training_rule(rows: Sequence[AtlasRow], atlas: Atlas) -> Rule:
    """Return the rule of two packages at a call, or at an import that only some trainings make."""
    package, entry = rows[0].package, rows[0].entry
    name = _entry_name(entry, package)
    if made_by := _made_by(package, entry, atlas):
        makes_it = (_flag("training.described", value=True), *made_by)
        return _rule_on(rows, [*name, "training"], Severity.ERROR, (makes_it,))
    severity = Severity.WARNING if _is_optional(package, entry, atlas) else Severity.ERROR
    return _rule_on(rows, name, severity, (_trainer_clauses(package, entry, atlas),))


def _rule_on(
    rows: Sequence[AtlasRow], name: Sequence[str], severity: Severity, trainings: Sequence[Sequence[Clause]]
) -> Rule:
    """Return the rule on rows of one entry: a table for each combination of spans and each training."""
    package, partner, entry = rows[0].package, rows[0].partner, rows[0].entry
    spans = dict.fromkeys((row.releases, row.lacking) for row in rows)
    companion = companion_of(entry)
    there = Clause(package_key(companion), Kind.VERSION, ((Comparison("present", True),),), "present")
    beside = (there,) if companion else ()
    tables = tuple(
        (_within(package_key(package), releases), _within_partner(partner, lacking), *beside, *training)
        for releases, lacking in spans
        for training in trainings
    )
    return Rule(
        id=":".join(["atlas", package, partner, *name]),
        severity=severity,
        basis=Basis.SOURCE,
        title=f"{entry}: code of {package} asks {partner} for what it does not have",
        when=tables,
        group="atlas",
    )


def _made_by(package: str, entry: str, atlas: Atlas) -> tuple[Clause, ...]:
    """Return the conditions that a training makes an import; none if everybody may, and for a call.

    Either a fact says so, or the entry names a trainer that the package imports for some methods.
    """
    if _is_call(entry) or entry not in atlas.optional:
        return ()
    if component := _entry_fact(package, entry, atlas):
        return (_flag(component, value=True),)
    trainers = [word for word in atlas.trainers.get(package, ()) if word != "absent"]
    methods = _methods_named(package, entry, atlas)
    if not (trainers and methods):
        return ()
    return (_one_of("train.trainer", trainers), _one_of("train.method", methods))


def _entry_fact(package: str, entry: str, atlas: Atlas) -> str:
    """Return the fact about the training that makes one import of a package; empty if there is none."""
    found = (fact for part, fact in atlas.entry_imported_if.get(package, {}).items() if part in entry)
    return next(found, "")


def _flag(key: str, *, value: bool) -> Clause:
    return Clause(key, Kind.FLAG, ((Comparison("==", value),),), "true" if value else "false")


def _trainer_clauses(package: str, entry: str, atlas: Atlas) -> tuple[Clause, ...]:
    """Return the conditions that the training calls the entry."""
    clauses = []
    if key := atlas.called_if.get(package):
        clauses.append(_flag(key, value=True))
    if trainers := atlas.trainers.get(package):
        clauses.append(_one_of("train.trainer", trainers))
    if methods := _methods(package, entry, atlas):
        clauses.append(_one_of("train.method", methods))
    return tuple(clauses)


def _methods(package: str, entry: str, atlas: Atlas) -> tuple[str, ...]:
    """Return the values of `train.method` under which an entry is called; empty if that is not known."""
    return _methods_named(package, entry, atlas) if _is_call(entry) else ()


def _methods_named(package: str, entry: str, atlas: Atlas) -> tuple[str, ...]:
    """Return the values of `train.method` that need what an entry names; empty if that is not known."""
    found = (words for part, words in atlas.methods.get(package, {}).items() if part in entry)
    return next(found, ())


def _is_call(entry: str) -> bool:
    return entry.endswith("(...)")


def _one_of(key: str, words: Sequence[str]) -> Clause:
    alternatives = tuple((ABSENT if word == "absent" else Comparison("==", word),) for word in words)
    return Clause(key, Kind.WORD, alternatives, " or ".join(words))


def _within(key: str, spans: Iterable[Span]) -> Clause:
    found = tuple((Comparison(">=", first), Comparison("<=", last)) for first, last in spans)
    raw = " or ".join(f"=={first}" if first == last else f">={first},<={last}" for first, last in spans)
    return Clause(key, Kind.VERSION, found, raw)


def _within_partner(partner: str, spans: Iterable[Span]) -> Clause:
    """Return the clause on a partner; a release of Python stands for all its patch releases."""
    if partner != PYTHON:
        return _within(package_key(partner), spans)
    ranges = [(first, _next_minor(last)) for first, last in spans]
    found = tuple((Comparison(">=", first), Comparison("<", end)) for first, end in ranges)
    raw = " or ".join(f">={first},<{end}" for first, end in ranges)
    return Clause(release_key(PYTHON), Kind.VERSION, found, raw)


def _next_minor(release: str) -> str:
    major, _, minor = release.partition(".")
    return f"{major}.{int(minor) + 1}"


def _entry_name(entry: str, package: str) -> list[str]:
    """Return the last parts of an id: none for `import peft`, `SFTTrainer.train` for a method."""
    entry, _, companion = entry.partition(BESIDE)
    if companion:
        return [*_entry_name(entry, package), companion]
    if entry == f"import {package.replace('-', '_')}":
        return []
    *owner, name = entry.partition("(")[0].split()[-1].split(".")
    return [f"{owner[-1]}.{name}" if owner and owner[-1][:1].isupper() else name]


def _is_optional(package: str, entry: str, atlas: Atlas) -> bool:
    """Return whether few users reach an entry; a training whose method calls it does."""
    return entry in atlas.optional and not _methods(package, entry, atlas)


def _reach(row: AtlasRow, atlas: Atlas) -> tuple[bool, bool, int, str]:
    """Return a sort key: what more users reach first, an import before a call, a module before its names."""
    return row.entry in atlas.optional, not row.entry.startswith("import "), len(row.needs), row.needs


def _title(rows: Sequence[AtlasRow], release: str, other: str) -> str:
    first = min(rows, key=lambda row: (len(row.needs), row.needs))
    package, partner = f"{first.package} {release}", f"{_spelled(first.partner)} {other}"
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    if first.kind == "binary":
        return f"{package} was compiled for {first.needs}, not for {partner}"
    return f"`{first.entry.partition(BESIDE)[0]}` fails: {_failure(first, package, partner, more)}"


def _spelled(package: str) -> str:
    return package.capitalize() if package == PYTHON else package


_FAILURES = {
    "name": "{package} needs {needs}, which {partner} lacks",
    "guard": "{package} refuses {partner} and asks for {needs}",
    "keyword": "{package} passes {needs}, unknown to {partner}",
    "register": "{package} makes the call {needs}, which {partner} refuses",
    "override": "{package} does not accept the call {needs} of {partner}",
    "symbol": "{package} needs the symbol {needs}, which {partner} does not define",
}
"""How a package fails beside its partner, by the kind of row."""


def _failure(first: AtlasRow, package: str, partner: str, more: str) -> str:
    if first.kind == "guard" and first.needs == first.partner:  # its code lists the versions one by one
        return f"{package} refuses {partner}{more}"
    template = _FAILURES.get(first.kind, _FAILURES["name"])
    needs = first.needs
    if first.kind == "symbol" and demangle(needs) != needs:  # others of this name may be there
        template, needs = f"{template} in this form", describe_symbol(needs)
    return template.format(package=package, partner=partner, needs=f"{needs}{more}")


def who_has_it(row: AtlasRow, atlas: Atlas) -> str:
    """Return which releases of the partner have what is asked for, and which releases ask, as text."""
    every = atlas.releases.get(row.partner, ())
    having = [release for release in every if not in_spans(release, row.lacking)]
    where = f"in {_spelled(row.partner)} {readable_releases(having, every)}" if having else "in none"
    if row.kind == "name" and having and _lies_on_both_sides(having, every):
        # A guard may skip the code in the older releases, so that they are no proof that the name is there.
        lacking = [release for release in every if in_spans(release, row.lacking)]
        where = f"not in {_spelled(row.partner)} {readable_releases(lacking, every)}"
    own = atlas.releases.get(row.package, ())
    asking = [release for release in own if in_spans(release, row.releases)]
    if row.kind == "register":
        taken = [release for release in every if in_spans(release, row.lacking)]
        refused = f"{row.partner} {readable_releases(taken, every)}"
        return (
            f"{row.needs}: refused by {refused}, which has this name itself; "
            f"called in {row.package} {readable_releases(asking, own)}"
        )
    if row.kind == "override":
        calling = [release for release in every if in_spans(release, row.lacking)]
        who_calls = f"{row.partner} {readable_releases(calling, every)}"
        who_takes = f"{row.package} {readable_releases(asking, own)}"
        return f"{row.needs}: called in {who_calls}; not accepted in {who_takes}"
    return f"{row.needs}: {where}; asked for by {row.package} {readable_releases(asking, own)}"


def _lies_on_both_sides(having: Sequence[str], every: Sequence[str]) -> bool:
    """Return whether releases include the first and the last of all, and leave out some between them."""
    return having[0] == every[0] and having[-1] == every[-1] and len(having) < len(every)


def readable_releases(releases: Sequence[str], every: Sequence[str]) -> str:
    """Return releases as ranges: `4.39.0 to 4.43.4, and from 4.46.0 on`."""
    ranges, start = [], 0
    positions = {release: place for place, release in enumerate(every)}
    for place in range(1, len(releases) + 1):
        if place < len(releases) and positions[releases[place]] == positions[releases[place - 1]] + 1:
            continue
        first, last = releases[start], releases[place - 1]
        if last == every[-1] and first != last:
            ranges.append(f"from {first} on" if first != every[0] else "every release")
        else:
            ranges.append(first if first == last else f"{first} to {last}")
        start = place
    return ", ".join(ranges)


def _places(rows: Iterable[AtlasRow], release: str, atlas: Atlas) -> Iterator[Source]:
    """Yield where the code asks, for at most three rows, in the newest release of the span of `release`."""
    for row in list(rows)[:3]:
        for (first, last), place in zip(row.releases, row.places, strict=False):
            if in_spans(release, [(first, last)]):
                yield Source(f"{row.package} {last}: {place}", "archive", atlas.read)


_MINORS_TRIED = 3
"""The series of minor releases on each side of the installed release from which a fix is tried."""


def _fixes(
    atlas: Atlas, asking: tuple[str, str], partner: tuple[str, str], withdrawn: Collection[tuple[str, str]]
) -> Iterator[Fix]:
    """Yield fixes: nearby releases of the partner, then of the asking package, that fit the other.

    Of each minor release it is the one nearest to what is installed: the nearest of all may break another
    rule. Withdrawn releases are left out.
    """
    sides = ((partner, asking), (asking, partner))
    if partner[0] == PYTHON:  # another release is easier to have than another interpreter
        sides = sides[::-1]
    for (moving, installed), (fixed, fixed_release) in sides:
        every = atlas.releases[moving]
        fitting = [
            release
            for release in fitting_releases(atlas, moving, fixed, fixed_release)
            if (moving, release) not in withdrawn
        ]
        at = every.index(installed)
        newer = [release for release in fitting if every.index(release) > at]
        older = [release for release in reversed(fitting) if every.index(release) < at]
        for release in (*_first_of_minors(newer), *_first_of_minors(older)):
            yield Fix(((release_key(moving), f"=={release}"),))


def _first_of_minors(releases: Sequence[str]) -> list[str]:
    """Return the first release of each of the first minor series, in the order given."""
    found: dict[tuple[str, ...], str] = {}
    for release in releases:
        found.setdefault(tuple(release.split(".")[:2]), release)
    return list(found.values())[:_MINORS_TRIED]
