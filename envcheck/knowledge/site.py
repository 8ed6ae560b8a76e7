"""The page for look-ups: what is known of every pair of packages, for a target and a machine.

`assemble` judges everything beforehand and keeps the answers in plain lists; `render` puts them into the
template. The page decides nothing: it only looks up answers.

An answer depends on few things. A rule about torch and DeepSpeed under ZeRO-3 is the same for every GPU, and
for all torch releases on one side of its bound. So each rule is judged once for every *class* of choices that
it can distinguish. Its entry gives the class of each choice, and the combinations of classes that break the
rule.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, Value, family, package_key, package_name
from envcheck.core.findings import Verdict
from envcheck.core.rules import Clause, Default, Fix, Matrix, NoFix, Ref, Requirement, Rule, Span
from envcheck.knowledge.atlas import VERBS
from envcheck.knowledge.generated_rules import requirement_rules
from envcheck.knowledge.tables import ReleaseRow, all_releases, torch_releases
from envcheck.rules import clause_algebra, derive, judge
from envcheck.rules.atlas import in_spans
from envcheck.rules.clauses import referenced_keys

NONE = "none"
"""The choice of no particular value."""

_MOST_PACKAGES = 2
"""Packages in one combination: the page shows pairs."""


def render(data: Mapping[str, Any], template: str) -> str:
    """Return the template with the data in it, escaped so that no data can act as HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return template.replace("{{DATA}}", text)


def assemble(known: Matrix) -> dict[str, Any]:
    """Return everything that the page shows, as JSON-ready lists."""
    run = tuple(cell for cell in known.cells if cell.outcome in ("ok", "fails"))
    choices = PageChoices(known._replace(cells=run))
    known = choices.known
    entries = [entry for number, rule in enumerate(known.rules) if (entry := _entry(choices, number, rule))]
    return {
        "updated": known.updated,
        "digest": known.digest,
        "overlays": [f"{origin.name} ({origin.named_by}): {origin.brings}" for origin in known.origins],
        "packages": {
            name: [_release(choices, name, release) for release in releases]
            for name, releases in choices.releases.items()
        },
        "choices": {
            "target": [
                {"target": training.target, "label": training.label} for training in choices.trainings
            ],
            "gpu": [{"label": label} for label, _ in choices.gpus],
            "driver": [{"label": label} for label, _ in choices.drivers],
            "python": [{"label": "not said"}, *({"label": label} for label in choices.pythons[1:])],
        },
        "targets": {name: target.title for name, target in known.targets.items()},
        "rules": [_rule(rule) for rule in known.rules],
        "entries": entries,
        "forbids": list(_metadata_bounds(choices)),
        "gaps": {f"{row[0]} {row[1]}": gaps for row, gaps in _gaps(choices)},
        "read": known.atlas().read,
        "cells": [_cell(choices, number) for number in range(len(known.cells))],
    }


# --- what there is to choose ------------------------------------------------------------------------


class _Training(NamedTuple):
    """A target, and one value of a setting that it leaves open; an empty label is the target as it stands."""

    target: str
    label: str
    facts: Mapping[str, str | int | bool]
    free: tuple[str, ...]  # settings that are still open


class PageChoices:
    """Matrix with the choices of the page.

    A *dimension* is a setting (target, gpu, driver, python) or a package, and an *option* is the number of
    one of its choices. Option 0 of everything but targets means that no value is chosen.
    """

    def __init__(self, known: Matrix) -> None:
        self.known = known
        self.releases = {
            name: _worth_showing(name, releases, known)
            for name, releases in _releases_by_package(known).items()
        }
        self.trainings = list(_trainings(known))
        self.gpus = list(_gpus(known))
        self.drivers = list(_drivers(known))
        minors = {minor for release in torch_releases(known) for minor in release.pythons or ()}
        minors = {minor for minor in minors if versions.parse(minor)}  # 3.14t is another build, not a version
        self.pythons = [NONE, *sorted(minors, key=versions.order)]
        self._machines: dict[frozenset[tuple[str, int]], Inventory] = {}

    def option_count(self, dimension: str) -> int:
        """Return how many choices a dimension has."""
        sizes = {
            "target": len(self.trainings),
            "gpu": len(self.gpus),
            "driver": len(self.drivers),
            "python": len(self.pythons),
        }
        return sizes.get(dimension) or 1 + len(self.releases[dimension])

    def version(self, package: str, option: int) -> str:
        """Return the version that an option of a package stands for."""
        return self.releases[package][option - 1].version

    def inventory(self, chosen: Mapping[str, int], defaults: tuple[Default, ...]) -> Inventory:
        """Return the facts that these options give, with what follows from them and some defaults."""
        machine = self._machine({each: option for each, option in chosen.items() if each != "target"})
        training = self.values({each: option for each, option in chosen.items() if each == "target"})
        given = machine.with_facts(Fact(key, Known(value), "chosen") for key, value in training)
        return derive.derive_training(given, self.known._replace(defaults=defaults))

    def _machine(self, chosen: Mapping[str, int]) -> Inventory:
        """Return the facts that these options give, with what follows from them, whatever the target is."""
        key = frozenset((each, option) for each, option in chosen.items() if option)
        if key not in self._machines:
            facts = {key: Fact(key, Known(value), "chosen") for key, value in self.values(chosen)}
            gpu = chosen.get("gpu", 0)
            devices = ({"gpu.name": Fact("gpu.name", Known(self.gpus[gpu][1]), "chosen")},) if gpu else ()
            self._machines[key] = derive.derive_machine(Inventory(facts, devices), self.known)
        return self._machines[key]

    def values(self, chosen: Mapping[str, int]) -> Iterator[tuple[str, Value]]:
        """Yield the values of machine-wide facts that these options give."""
        for dimension, option in chosen.items():
            if dimension == "target":
                yield from self.trainings[option].facts.items()
            elif option == 0:
                continue
            elif dimension == "gpu":
                yield "gpus.count", 1
            elif dimension == "driver":
                yield "driver.version", self.drivers[option][1]
            elif dimension == "python":
                yield "python.version", f"{self.pythons[option]}.0"
            else:
                yield package_key(dimension), self.version(dimension, option)


def _releases_by_package(known: Matrix) -> dict[str, list[ReleaseRow]]:
    """Return the releases of each package, oldest first."""
    found: dict[str, list[ReleaseRow]] = {}
    for release in all_releases(known):
        found.setdefault(release.package, []).append(release)
    for name in _packages_with_gaps(known):
        listed = {versions.parse(release.version) for release in found.get(name, ())}
        read = known.atlas().releases.get(name, ())
        rows = [ReleaseRow.of({}, name, version) for version in read if versions.parse(version) not in listed]
        found.setdefault(name, []).extend(rows)
    return {
        name: sorted(releases, key=lambda release: versions.order(release.version))
        for name, releases in found.items()
    }


def _packages_with_gaps(known: Matrix) -> list[str]:
    """Return the packages whose code the atlas compares with that of another package."""
    rows = known.atlas().rows
    return sorted({*rows, *(partner for partners in rows.values() for partner in partners)})


def _worth_showing(name: str, releases: Sequence[ReleaseRow], known: Matrix) -> list[ReleaseRow]:
    """Return the newest patch of each minor, measured releases, and those on both sides of every bound."""
    shown = {cell.pkg[name] for cell in known.cells if name in cell.pkg}
    ordered = [release.version for release in releases if not release.yanked]
    newest: dict[tuple[str, ...], str] = {}
    for version in ordered:
        parts = versions.base_release(version).split(".")
        newest[tuple(parts[: 3 if parts[:2] == ["0", "0"] else 2])] = version
    shown |= set(newest.values())
    places = [versions.order(version) for version in ordered]
    for bound in _bounds(known, package_key(name)):
        place = bisect_left(places, versions.order(bound))
        shown |= {*ordered[max(place - 1, 0) : place + 1]}
    parsed = {versions.parse(version) for version in shown}
    return [release for release in releases if versions.parse(release.version) in parsed]


def _bounds(known: Matrix, key: str) -> set[str]:
    """Return every version with which a rule or default compares a package."""
    tables = [table for rule in known.rules for table in (*rule.when, rule.require)]
    tables += [default.when for default in known.defaults]
    return {
        str(test.operand).removesuffix(".*")
        for table in tables
        for clause in table
        if clause.key == key
        for alternative in clause.any_of
        for test in alternative
        if test.op not in ("present", "absent") and not isinstance(test.operand, Ref)
    } | _ends_of_spans(known, package_name(key))


def _ends_of_spans(known: Matrix, package: str) -> set[str]:
    """Return the first and the last release of every span that a row of the atlas gives for a package."""
    rows = known.atlas().rows
    spans = [span for of_pair in rows.get(package, {}).values() for row in of_pair for span in row.releases]
    for partners in rows.values():
        spans += [span for row in partners.get(package, ()) for span in row.lacking]
    return {end for span in spans for end in span}


def _trainings(known: Matrix) -> Iterator[_Training]:
    """Yield every target as it stands, and with each value of each flag that it leaves open."""
    for target in known.targets.values():
        yield _Training(target.name, "", target.train, target.free)
        for key in target.free:
            for value in (False, True):
                label = f"{key.removeprefix('train.')} = {str(value).lower()}"
                still_free = tuple(other for other in target.free if other != key)
                yield _Training(target.name, label, {**target.train, key: value}, still_free)


def _gpus(known: Matrix) -> Iterator[tuple[str, str]]:
    """Yield a label and a name: one GPU for each compute capability, and each that a rule names."""
    yield "not said", NONE
    named = {
        str(test.operand)
        for rule in known.rules
        for table in rule.when
        for clause in table
        if clause.key == "gpu.name"
        for alternative in clause.any_of
        for test in alternative
    }
    groups: dict[str, list[str]] = {}
    singles = []
    for gpu in known.tables.gpu_models:
        if gpu.name in named:
            singles.append((gpu.compute_capability, gpu.name))
        elif gpu.kind != "jetson":
            groups.setdefault(gpu.compute_capability, []).append(gpu.name)
    found = [(capability, names[0], names) for capability, names in groups.items()]
    found += [(capability, name, [name]) for capability, name in singles]
    for capability, name, names in sorted(found, key=lambda group: (versions.order(group[0]), group[1])):
        yield f"{capability}: {_model_names(names)}", name


_MAKERS = frozenset({"NVIDIA", "Tesla", "Quadro"})
_MOST_MODELS = 3


def _model_names(names: Sequence[str]) -> str:
    """Return the models in some GPU names, without what the names share: `A100, A800, A30`."""
    models: list[str] = []
    for name in names:
        words = [word for word in name.replace("-", " ").split() if word not in _MAKERS]
        models.append(" ".join(words[:3] if words[0] in ("GeForce", "RTX", "GTX", "TITAN") else words[:1]))
    distinct = list(dict.fromkeys(model.removeprefix("GeForce ") for model in models))
    return ", ".join(distinct[:_MOST_MODELS]) + (", …" if len(distinct) > _MOST_MODELS else "")


def _drivers(known: Matrix) -> Iterator[tuple[str, str]]:
    """Yield a label and a version for each driver branch: the newest in a CUDA toolkit, else the oldest."""
    yield "not said", NONE
    shipped = [toolkit.driver for toolkit in known.tables.cuda_toolkits if toolkit.driver]
    shipped += [cuda.minimum_driver for cuda in known.tables.cuda_families]
    for branch, cuda_version in known.tables.driver_branches:
        of_branch = [driver for driver in shipped if driver.partition(".")[0] == branch]
        version = max(of_branch, key=versions.order) if of_branch else f"{branch}.0"
        yield f"R{branch}, speaks CUDA {cuda_version}", version


# --- the judge's answers ----------------------------------------------------------------------------

_FROM_TORCH = frozenset({"cuda.runtime", "cuda.minimum_driver", "cuda.full_driver", "gpu.in_torch_build"})
"""Facts that follow from the release of torch."""


def _entry(choices: PageChoices, number: int, rule: Rule) -> dict[str, Any] | None:
    """Return a rule's answers: the class of every choice, and the combinations that break the rule.

    Return None if the rule needs more packages than the page combines, or if nothing breaks it. A combination
    is one number: its classes in the order of `dims`, in the mixed base of `sizes`.
    """
    needs = _Needs.of_rule(rule, choices)
    if len(needs.required) > _MOST_PACKAGES:
        return None
    dimensions = [*needs.settings, *needs.packages]
    classes = {name: _classes(choices, needs, name) for name in dimensions}
    sizes = [max(classes[name]) + 1 for name in dimensions]
    first_option = {
        name: {class_: option for option, class_ in reversed(list(enumerate(classes[name])))}
        for name in dimensions
    }
    found: dict[Tri, list[int]] = {Tri.YES: [], Tri.MAYBE: [], Tri.NO: []}
    for combination in _combinations(needs, classes):
        chosen = {name: first_option[name][class_] for name, class_ in combination.items()}
        place = 0
        for name, size in zip(dimensions, sizes, strict=True):
            place = place * size + combination[name]
        found[_is_broken(choices, rule, needs, chosen)].append(place)
    if not (found[Tri.YES] or found[Tri.MAYBE]):
        return None
    return {
        "rule": number,
        "dims": dimensions,
        "sizes": sizes,
        "classes": [classes[name] for name in dimensions],
        "broken": sorted(found[Tri.YES]),
        "open": sorted(found[Tri.MAYBE]),
    }


class _Needs(NamedTuple):
    """What a rule's answer can depend on: settings (target, gpu, driver, python) and packages.

    `required` are the packages that must be chosen before the rule can be broken. `defaults` are those that
    may give one of `keys`; the others would be decided in vain for each choice.
    """

    settings: tuple[str, ...]
    packages: tuple[str, ...]
    required: frozenset[str]
    clauses: tuple[Clause, ...]
    keys: frozenset[str]
    defaults: tuple[Default, ...]

    @property
    def torch_build(self) -> bool:
        """Return whether the answer depends on torch's build, so that no two releases are in one class."""
        return _depends_on_torch_build(self.keys)

    @classmethod
    def of_rule(cls, rule: Rule, choices: PageChoices) -> _Needs:
        """Find what a rule's answer can depend on."""
        required = frozenset.intersection(*map(_packages_of, rule.when)) | _packages_of(rule.require)
        clauses, keys = _with_defaults(rule, choices.known)
        packages = {package_name(key) for key in keys if key.startswith("pkg.")}
        if _depends_on_torch_build(keys):
            packages.add("torch")
        return cls(
            settings=tuple(_settings_behind(keys)),
            packages=tuple(sorted(packages & choices.releases.keys())),
            required=required,
            clauses=tuple(clauses),
            keys=frozenset(keys),
            defaults=_defaults_behind(keys, choices.known),
        )


def _with_defaults(rule: Rule, known: Matrix) -> tuple[list[Clause], set[str]]:
    """Return a rule's clauses and facts, with those of the defaults on which its facts depend, in turn."""
    clauses = [clause for table in (*rule.when, rule.require) for clause in table]
    keys = {key for clause in clauses for key in (clause.key, *referenced_keys(clause))}
    growing = True
    while growing:
        growing = False
        for default in known.defaults:
            more = {clause.key for clause in default.when}
            if default.key in keys and not (more <= keys and set(default.when) <= set(clauses)):
                keys |= more
                clauses += [clause for clause in default.when if clause not in clauses]
                growing = True
    return clauses, keys


def _defaults_behind(keys: Collection[str], known: Matrix) -> tuple[Default, ...]:
    """Return the defaults that may give one of these facts, or a fact from which one of them follows."""
    wanted: set[str] = set()
    more = set(keys)
    while more:
        wanted |= more
        given = (clause.key for default in known.defaults if default.key in more for clause in default.when)
        more = {*given, *(key for each in more for key in derive.FOLLOWS_FROM.get(each, ()))} - wanted
    return tuple(default for default in known.defaults if default.key in wanted)


def _settings_behind(keys: Collection[str]) -> Iterator[str]:
    """Yield the settings of the page that give any of these facts."""
    families = {family(key) for key in keys}
    if families & {"train", "training"}:
        yield "target"
    if families & {"gpu", "gpus"}:
        yield "gpu"
    if "driver" in families or "cuda.driver" in keys:
        yield "driver"
    if "python.version" in keys:
        yield "python"


def _depends_on_torch_build(keys: Collection[str]) -> bool:
    return any(key in _FROM_TORCH or key.startswith("build.torch.") for key in keys)


def _packages_of(table: Iterable[Clause]) -> frozenset[str]:
    """Return the packages without which these clauses cannot be decided."""
    keys = {key for clause in table for key in (clause.key, *referenced_keys(clause))}
    named = {package_name(key) for key in keys if key.startswith("pkg.")}
    return frozenset(named | {"torch"} if _depends_on_torch_build(keys) else named)


def _classes(choices: PageChoices, needs: _Needs, dimension: str) -> list[int]:
    """Return the class of every option: options that no clause distinguishes are in one class."""
    numbers: dict[Any, int] = {}
    return [
        numbers.setdefault(_class_key(choices, needs, dimension, option), len(numbers))
        for option in range(choices.option_count(dimension))
    ]


def _class_key(choices: PageChoices, needs: _Needs, dimension: str, option: int) -> Any:
    """Return a value that is equal for options that no clause distinguishes."""
    if dimension == "target":
        training = choices.trainings[option]
        given = tuple(sorted((key, value) for key, value in training.facts.items() if key in needs.keys))
        described = "training.described" in needs.keys and bool(training.facts)
        return given, tuple(key for key in training.free if key in needs.keys), described
    if option == 0 or dimension in ("gpu", "driver") or (dimension == "torch" and needs.torch_build):
        return option
    if dimension == "python":
        key, value = "python.version", f"{choices.pythons[option]}.0"
    else:
        key, value = package_key(dimension), choices.version(dimension, option)
    answers = tuple(
        clause_algebra.answer(clause, Known(value)) for clause in needs.clauses if clause.key == key
    )
    compared = any(key in referenced_keys(clause) for clause in needs.clauses)
    # Whether a companion loads beside torch depends on its release, whatever the clauses say of it.
    compared = compared or f"build.{dimension}.fits" in needs.keys
    return (answers, value if compared else "")


def _combinations(needs: _Needs, classes: Mapping[str, list[int]]) -> Iterator[dict[str, int]]:
    """Yield every class of the settings with every class of up to two packages; others are not chosen."""
    required = [name for name in needs.packages if name in needs.required]
    if len(required) < len(needs.required):
        return  # the tables list no releases of a required package
    not_chosen = {name: classes[name][0] for name in needs.packages}
    optional = [name for name in needs.packages if name not in needs.required]
    room = _MOST_PACKAGES - len(needs.required)
    seen = set()
    for extra in (packages for size in range(room + 1) for packages in combinations(optional, size)):
        names = (*needs.settings, *required, *extra)
        for numbers in product(*(range(max(classes[name]) + 1) for name in names)):
            combination = {**not_chosen, **dict(zip(names, numbers, strict=True))}
            key = tuple(sorted(combination.items()))
            if key not in seen:
                seen.add(key)
                yield combination


def _is_broken(choices: PageChoices, rule: Rule, needs: _Needs, chosen: Mapping[str, int]) -> Tri:
    """Return whether a choice breaks a rule; MAYBE if that depends only on what the target leaves open."""
    values = dict(choices.values(chosen))
    if not any(_may_match(table, values) for table in rule.when):
        return Tri.NO  # most choices end here, without the facts that follow from them
    judgement = judge.judge(choices.inventory(chosen, needs.defaults), [rule])
    if any(finding.verdict is Verdict.BROKEN for finding in judgement.findings):
        return Tri.YES
    undecided = [evidence.fact.key for finding in judgement.findings for evidence in finding.evidence]
    undecided += [clause.key for waiting in judgement.waiting for clause in waiting.open]
    free = choices.trainings[chosen["target"]].free if "target" in chosen else ()
    return Tri.MAYBE if undecided and all(key in free for key in undecided) else Tri.NO


def _may_match(table: Iterable[Clause], values: Mapping[str, Value]) -> bool:
    """Return False if one of the chosen values alone contradicts one of the clauses.

    A derived fact never replaces a chosen one.
    """
    return not any(
        clause.key in values
        and not any(referenced_keys(clause))
        and clause_algebra.answer(clause, Known(values[clause.key])) is Tri.NO
        for clause in table
    )


# --- rows of the page -------------------------------------------------------------------------------


def _release(choices: PageChoices, name: str, release: ReleaseRow) -> dict[str, Any]:
    """Return a release: version, date, whether it is yanked and whether its code was read.

    A digit for each Python is 1 if that Python may install the release; without digits, every Python may.
    """
    shown: dict[str, Any] = {"v": release.version, "date": release.date}
    if release.yanked:
        shown["yanked"] = True
    if release.version in choices.known.atlas().releases.get(name, ()):
        shown["read"] = True
    admitted = "".join(str(int(_admits(release, python))) for python in choices.pythons)
    if "0" in admitted:
        shown["python"] = admitted
    return shown


def _admits(release: ReleaseRow, python: str) -> bool:
    """Return whether some patch release of a Python (`3.11`) may install a release."""
    if python == NONE:
        return True
    if release.pythons is not None:
        return python in release.pythons
    try:
        bounds = versions.parse_specifier(release.requires_python)
    except ValueError:
        return True
    return versions.satisfies_all(f"{python}.99", bounds) is not Tri.NO


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "title": rule.title,
        "why": rule.why,
        "severity": rule.severity.value,
        "basis": rule.basis.value,
        "when": [[f"{clause.key} {clause.raw}" for clause in table] for table in rule.when],
        "unless": [f"{clause.key} {clause.raw}" for clause in rule.require],
        "fixes": [{"set": _changes(fix), "cost": fix.cost} for fix in rule.fixes],
        "no_fixes": [
            {"set": _changes(no_fix), "why": no_fix.why, "source": no_fix.source} for no_fix in rule.no_fixes
        ],
        "sources": [
            {"url": source.url, "kind": source.kind, "checked": source.checked} for source in rule.sources
        ],
    }


def _changes(fix: Fix | NoFix) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in fix.set
    )


def _cell(choices: PageChoices, number: int) -> dict[str, Any]:
    """Return a measured combination with its trainings: `exact` ones, and `near` ones with more left open."""
    cell = choices.known.cells[number]
    train = {**choices.known.targets[cell.target].train, **cell.train}
    rule_numbers = {rule.id: place for place, rule in enumerate(choices.known.rules)}
    of_target = [
        (place, training)
        for place, training in enumerate(choices.trainings)
        if training.target == cell.target
    ]
    exact = [place for place, training in of_target if training.facts == train]
    near = [
        place
        for place, training in of_target
        if place not in exact
        and all(train.get(key) in (None, value) for key, value in training.facts.items())
    ]
    return {
        "target": cell.target,
        "ok": cell.outcome == "ok",
        "pkg": dict(cell.pkg),
        "train": [
            f"{key.removeprefix('train.')} = {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in cell.train.items()
        ],
        "device": cell.device,
        "date": cell.date,
        "test": cell.test,
        "rule": rule_numbers.get(cell.rule, -1),
        "exact": exact,
        "near": near,
    }


def _metadata_bounds(choices: PageChoices) -> Iterator[dict[str, Any]]:
    """Yield each package's requirements on another: the bound in each release, and what it admits."""
    for name, releases in choices.releases.items():
        for other, other_releases in choices.releases.items():
            bounds = [release.requires.get(other, "") for release in releases]
            distinct = sorted(set(bounds))
            if distinct == [""]:
                continue
            admitted = [_admitted(name, other, bound, other_releases) for bound in distinct]
            if any("0" in digits for digits in admitted):
                yield {
                    "by": name,
                    "of": other,
                    "bounds": distinct,
                    "bound": [distinct.index(bound) for bound in bounds],
                    "admits": admitted,
                }


def _gaps(choices: PageChoices) -> Iterator[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """Yield each package and partner with what the code asks for: the shown releases as ranges of places."""
    atlas = choices.known.atlas()

    @cache  # most rows share their releases with others
    def ranges(package: str, spans: tuple[Span, ...]) -> list[list[int]]:
        return _ranges(choices.releases[package], spans)

    for package, partners in atlas.rows.items():
        for partner in partners:
            gaps = []
            for row in partners[partner]:
                asking, lacking = ranges(package, row.releases), ranges(partner, row.lacking)
                if asking and lacking:
                    gaps.append(
                        {
                            "text": f"`{row.entry}` {VERBS[row.kind]} {row.needs}",
                            "place": f"{row.places[-1]} in {package} {row.releases[-1][1]}",
                            "error": row.entry not in atlas.optional,
                            "asking": asking,
                            "lacking": lacking,
                        }
                    )
            yield (package, partner), gaps


def _ranges(shown: Sequence[ReleaseRow], spans: Iterable[Span]) -> list[list[int]]:
    """Return the places of the shown releases that lie in the spans, as first and last of each range."""
    inside = [in_spans(release.version, spans) for release in shown]
    ranges: list[list[int]] = []
    for place, yes in enumerate(inside):
        if yes and ranges and ranges[-1][1] == place - 1:
            ranges[-1][1] = place
        elif yes:
            ranges.append([place, place])
    return ranges


def _admitted(name: str, other: str, bound: str, releases: Iterable[ReleaseRow]) -> str:
    """Return a digit for each release: 1 if the judge finds nothing against it in another's requirement."""
    rules = list(requirement_rules([Requirement(name, other, bound, "metadata")]))
    asking = Fact(package_key(name), Known("1"), "")
    return "".join("1" if _satisfies(rules, asking, other, release.version) else "0" for release in releases)


def _satisfies(rules: Sequence[Rule], asking: Fact, other: str, version: str) -> bool:
    required = Fact(package_key(other), Known(version), "")
    findings = judge.judge(Inventory({fact.key: fact for fact in (asking, required)}), rules).findings
    return not any(finding.verdict is Verdict.BROKEN for finding in findings)
