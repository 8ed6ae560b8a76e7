"""The page people look things up in: what is known of every pair of packages, for a target and a machine.

`assemble` asks the judge beforehand and keeps its answers in plain lists; `render` puts them into the
template. The page itself decides nothing: it looks answers up.

An answer depends on few things. A rule about torch and DeepSpeed under ZeRO-3 is the same for every GPU,
and for all torch releases on one side of its bound. So each rule is judged once for every *class* of
choices it can tell apart, and its entry says which class each choice is in and which combinations break.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, Value, family, package_key, package_name
from envcheck.core.findings import Verdict
from envcheck.core.rules import Clause, Fix, Matrix, NoFix, Ref, Requirement, Rule
from envcheck.knowledge.generated_rules import requirement_rules
from envcheck.rules import clause_algebra, derive, judge
from envcheck.rules.clauses import refs

NONE = "none"
"""A choice not made: nobody said which."""

_MOST_PACKAGES = 2  # the page shows pairs


def render(data: Mapping[str, Any], template: str) -> str:
    """The page: the template with the data in it, harmless in HTML whatever the data says."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return template.replace("{{DATA}}", text)


def assemble(known: Matrix) -> dict[str, Any]:
    """Everything the page shows, as JSON-ready lists."""
    run = tuple(cell for cell in known.cells if cell.outcome in ("ok", "fails"))
    world = _World(known._replace(cells=run))
    known = world.known
    entries = [entry for number, rule in enumerate(known.rules) for entry in _entry(world, number, rule)]
    return {
        "updated": known.updated,
        "digest": known.digest,
        "overlays": [f"{each.name} ({each.named_by}): {each.brings}" for each in known.origins],
        "packages": {name: [_release(world, row) for row in rows] for name, rows in world.shown.items()},
        "choices": {
            "target": [{"target": each.target, "label": each.label} for each in world.trainings],
            "gpu": [{"label": label} for label, _ in world.gpus],
            "driver": [{"label": label} for label, _ in world.drivers],
            "python": [{"label": "not said"}, *({"label": label} for label in world.pythons[1:])],
        },
        "targets": {name: target.title for name, target in known.targets.items()},
        "rules": [_rule(rule) for rule in known.rules],
        "entries": entries,
        "forbids": list(_forbids(world)),
        "cells": [_cell(world, number) for number in range(len(known.cells))],
    }


# --- what there is to choose ------------------------------------------------------------------------


class _Training(NamedTuple):
    """A target, and one value of what it leaves open; an empty label is the target as it stands."""

    target: str
    label: str
    facts: Mapping[str, str | int | bool]
    free: tuple[str, ...]  # what is still open


class _World:
    """The matrix with the choices of the page: each a list whose first item is "not said"."""

    def __init__(self, known: Matrix) -> None:
        self.known = known
        self.shown = {name: _worth_showing(name, rows, known) for name, rows in _releases(known).items()}
        self.trainings = list(_trainings(known))
        self.gpus = list(_gpus(known))
        self.drivers = list(_drivers(known))
        minors = {minor for row in known.tables.get("torch", []) for minor in row.get("python", [])}
        minors = {minor for minor in minors if versions.parse(minor)}  # 3.14t is another build, not a version
        self.pythons = [NONE, *sorted(minors, key=versions.order)]

    def options(self, dimension: str) -> int:
        """How many choices there are."""
        sizes = {
            "target": len(self.trainings),
            "gpu": len(self.gpus),
            "driver": len(self.drivers),
            "python": len(self.pythons),
        }
        return sizes.get(dimension) or 1 + len(self.shown[dimension])

    def version(self, package: str, option: int) -> str:
        """The version an option of a package stands for; option 0 is none."""
        return str(self.shown[package][option - 1]["version"])

    def inventory(self, chosen: Mapping[str, int]) -> Inventory:
        """The facts that these options give, and what follows from them."""
        facts: dict[str, Fact] = {}
        devices: tuple[dict[str, Fact], ...] = ()

        def put(key: str, value: Value) -> None:
            facts[key] = Fact(key, Known(value), "chosen")

        for dimension, option in chosen.items():
            if dimension == "target":
                for key, value in self.trainings[option].facts.items():
                    put(key, value)
            elif option == 0:
                continue
            elif dimension == "gpu":
                devices = ({"gpu.name": Fact("gpu.name", Known(self.gpus[option][1]), "chosen")},)
                put("gpus.count", 1)
            elif dimension == "driver":
                put("driver.version", self.drivers[option][1])
            elif dimension == "python":
                put("python.version", f"{self.pythons[option]}.0")
            else:
                put(package_key(dimension), self.version(dimension, option))
        return derive.derive(Inventory(facts, devices), self.known)


def _releases(known: Matrix) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {"torch": list(known.tables.get("torch", []))}
    for row in known.tables.get("release", []):
        found.setdefault(str(row["package"]), []).append(row)
    return {
        name: sorted(rows, key=lambda row: versions.order(str(row["version"])))
        for name, rows in found.items()
        if rows
    }


def _worth_showing(name: str, rows: Sequence[Mapping[str, Any]], known: Matrix) -> list[Mapping[str, Any]]:
    """The newest patch of each minor, what was measured, and the releases on both sides of every bound."""
    key = package_key(name)
    wanted = {cell.pkg[name] for cell in known.cells if name in cell.pkg}
    ordered = [str(row["version"]) for row in rows if not row.get("yanked")]
    newest: dict[tuple[str, ...], str] = {}
    for version in ordered:
        parts = versions.base_release(version).split(".")
        newest[tuple(parts[: 3 if parts[:2] == ["0", "0"] else 2])] = version
    wanted |= set(newest.values())
    for bound in _bounds(known, key):
        below = [each for each in ordered if versions.order(each) < versions.order(bound)]
        above = [each for each in ordered if versions.order(each) >= versions.order(bound)]
        wanted |= {*below[-1:], *above[:1]}
    parsed = {versions.parse(each) for each in wanted}
    return [row for row in rows if versions.parse(str(row["version"])) in parsed]


def _bounds(known: Matrix, key: str) -> set[str]:
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
    }


def _trainings(known: Matrix) -> Iterator[_Training]:
    """Every target as it stands, and with each value of each flag it leaves open."""
    for target in known.targets.values():
        yield _Training(target.name, "", target.train, target.free)
        for key in target.free:
            for value in (False, True):
                label = f"{key.removeprefix('train.')} = {str(value).lower()}"
                open_ = tuple(each for each in target.free if each != key)
                yield _Training(target.name, label, {**target.train, key: value}, open_)


def _gpus(known: Matrix) -> Iterator[tuple[str, str]]:
    """One GPU for each compute capability, and every one that a rule knows by name."""
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
    for row in known.tables.get("gpu", []):
        if row["name"] in named:
            singles.append((str(row["compute_capability"]), str(row["name"])))
        elif row.get("kind") != "jetson":
            groups.setdefault(str(row["compute_capability"]), []).append(str(row["name"]))
    found = [(capability, names[0], names) for capability, names in groups.items()]
    found += [(capability, name, [name]) for capability, name in singles]
    for capability, name, names in sorted(found, key=lambda each: (versions.order(each[0]), each[1])):
        yield f"{capability}: {_short(names)}", name


def _short(names: Sequence[str]) -> str:
    """The models behind some names, without what they share: `A100, A800, A30`."""
    models: list[str] = []
    for name in names:
        words = [word for word in name.replace("-", " ").split() if word not in _MAKERS]
        models.append(" ".join(words[:3] if words[0] in ("GeForce", "RTX", "GTX", "TITAN") else words[:1]))
    distinct = list(dict.fromkeys(model.removeprefix("GeForce ") for model in models))
    most = 3
    return ", ".join(distinct[:most]) + (", …" if len(distinct) > most else "")


_MAKERS = frozenset({"NVIDIA", "Tesla", "Quadro"})


def _drivers(known: Matrix) -> Iterator[tuple[str, str]]:
    """One driver for each branch: the newest that a CUDA toolkit ships, or the branch's own floor."""
    yield "not said", NONE
    shipped = [str(row["driver"]) for row in known.tables.get("toolkit", []) if row.get("driver")]
    shipped += [str(row["minimum_driver"]) for row in known.tables.get("family", [])]
    for row in known.tables.get("branch", []):
        branch = str(row["branch"])
        own = [each for each in shipped if each.partition(".")[0] == branch]
        version = max(own, key=versions.order) if own else f"{branch}.0"
        yield f"R{branch}, speaks CUDA {row['cuda']}", version


# --- what the judge says ----------------------------------------------------------------------------

_FROM_TORCH = frozenset({"cuda.runtime", "cuda.minimum_driver", "cuda.full_driver", "gpu.in_torch_build"})


def _entry(world: _World, number: int, rule: Rule) -> Iterator[dict[str, Any]]:
    """A rule's answers: the class of every choice it can tell apart, and the combinations that break it."""
    needs = _Needs.of(rule, world)
    if len(needs.required) > _MOST_PACKAGES:
        return  # no pair decides it
    dimensions = [*needs.settings, *needs.packages]
    maps = {name: _classes(world, needs, name) for name in dimensions}
    sizes = [max(maps[name]) + 1 for name in dimensions]
    first = {
        name: {cls: option for option, cls in reversed(list(enumerate(maps[name])))} for name in dimensions
    }
    broken: list[int] = []
    open_: list[int] = []
    for combination in _combinations(needs, maps):
        chosen = {name: first[name][cls] for name, cls in combination.items()}
        verdict = _verdict(world, rule, chosen)
        place = 0
        for name, size in zip(dimensions, sizes, strict=True):
            place = place * size + combination[name]
        if verdict is Tri.YES:
            broken.append(place)
        elif verdict is Tri.MAYBE:
            open_.append(place)
    if broken or open_:
        yield {
            "rule": number,
            "dims": dimensions,
            "sizes": sizes,
            "classes": [maps[name] for name in dimensions],
            "broken": sorted(broken),
            "open": sorted(open_),
        }


class _Needs(NamedTuple):
    """What a rule's answer can depend on: settings (target, GPU, driver, Python) and packages.

    `required` are the packages that must be chosen before it can be broken at all.
    """

    settings: tuple[str, ...]
    packages: tuple[str, ...]
    required: frozenset[str]
    clauses: tuple[Clause, ...]
    keys: frozenset[str]

    @staticmethod
    def of(rule: Rule, world: _World) -> _Needs:
        clauses = [clause for table in (*rule.when, rule.require) for clause in table]
        own = [_packages_of(table) for table in rule.when]
        required = frozenset.intersection(*own) | _packages_of(rule.require)
        keys = {key for clause in clauses for key in (clause.key, *refs(clause))}
        # What nobody gave has a default, which depends on further facts.
        growing = True
        while growing:
            growing = False
            for default in world.known.defaults:
                more = {clause.key for clause in default.when}
                if default.key in keys and not (more <= keys and set(default.when) <= set(clauses)):
                    keys |= more
                    clauses += [clause for clause in default.when if clause not in clauses]
                    growing = True
        settings = []
        if any(family(key) == "train" for key in keys):
            settings.append("target")
        if any(family(key) in ("gpu", "gpus") for key in keys):
            settings.append("gpu")
        if any(family(key) == "driver" or key == "cuda.driver" for key in keys):
            settings.append("driver")
        if "python.version" in keys:
            settings.append("python")
        packages = {package_name(key) for key in keys if key.startswith("pkg.")}
        if _FROM_TORCH & keys or any(key.startswith("build.torch.") for key in keys):
            packages.add("torch")
        shown = sorted(packages & world.shown.keys())
        return _Needs(tuple(settings), tuple(shown), required, tuple(clauses), frozenset(keys))


def _packages_of(table: Iterable[Clause]) -> frozenset[str]:
    """Packages without which these clauses cannot be decided."""
    found = set()
    for clause in table:
        for key in (clause.key, *refs(clause)):
            if key.startswith("pkg."):
                found.add(package_name(key))
            elif key in _FROM_TORCH or key.startswith("build.torch."):
                found.add("torch")
    return frozenset(found)


def _classes(world: _World, needs: _Needs, dimension: str) -> list[int]:
    """The class of every option: options that no clause can tell apart are in one."""
    numbers: dict[Any, int] = {}
    return [
        numbers.setdefault(_signature(world, needs, dimension, option), len(numbers))
        for option in range(world.options(dimension))
    ]


def _signature(world: _World, needs: _Needs, dimension: str, option: int) -> Any:
    if dimension == "target":
        training = world.trainings[option]
        said = tuple(sorted((key, value) for key, value in training.facts.items() if key in needs.keys))
        return said, tuple(key for key in training.free if key in needs.keys)
    if option == 0 or dimension in ("gpu", "driver"):
        return option
    if dimension == "python":
        key, value = "python.version", f"{world.pythons[option]}.0"
    else:
        key, value = package_key(dimension), world.version(dimension, option)
    if dimension == "torch" and (
        _FROM_TORCH & needs.keys or any(each.startswith("build.torch.") for each in needs.keys)
    ):
        return option
    answers = tuple(
        clause_algebra.answer(clause, Known(value)) for clause in needs.clauses if clause.key == key
    )
    compared = any(True for clause in needs.clauses if key in refs(clause))
    return (answers, value if compared else "")


def _combinations(needs: _Needs, maps: Mapping[str, list[int]]) -> Iterator[dict[str, int]]:
    """Every class of the settings with every class of at most two packages; the others are not said."""
    unsaid = {name: maps[name][0] for name in needs.packages}
    optional = [name for name in needs.packages if name not in needs.required]
    room = _MOST_PACKAGES - len(needs.required)
    required = [name for name in needs.packages if name in needs.required]
    if len(required) < len(needs.required):
        return  # about a package whose releases are not in the tables
    seen = set()
    for extra in (chosen for size in range(room + 1) for chosen in combinations(optional, size)):
        said = [*required, *extra]
        for classes in product(*(range(max(maps[name]) + 1) for name in (*needs.settings, *said))):
            combination = {**unsaid, **dict(zip((*needs.settings, *said), classes, strict=True))}
            key = tuple(sorted(combination.items()))
            if key not in seen:
                seen.add(key)
                yield combination


def _verdict(world: _World, rule: Rule, chosen: Mapping[str, int]) -> Tri:
    """Yes if the judge says broken; maybe if only what the target leaves open is not known."""
    judgement = judge.judge(world.inventory(chosen), [rule])
    for finding in judgement.findings:
        if finding.verdict is Verdict.BROKEN:
            return Tri.YES
    undecided = [each.fact.key for finding in judgement.findings for each in finding.evidence]
    undecided += [clause.key for waiting in judgement.waiting for clause in waiting.open]
    free = world.trainings[chosen["target"]].free if "target" in chosen else ()
    return Tri.MAYBE if undecided and all(key in free for key in undecided) else Tri.NO


# --- rows of the page -------------------------------------------------------------------------------


def _release(world: _World, row: Mapping[str, Any]) -> dict[str, Any]:
    """A release: its version, its day, whether it was yanked, and for which Pythons it may be installed."""
    shown: dict[str, Any] = {"v": str(row["version"]), "date": str(row.get("date", ""))}
    if row.get("yanked"):
        shown["yanked"] = True
    admitted = "".join(str(int(_admits(row, python))) for python in world.pythons)
    if "0" in admitted:
        shown["python"] = admitted
    return shown


def _admits(row: Mapping[str, Any], python: str) -> bool:
    if python == NONE:
        return True
    if isinstance(row.get("python"), list):
        return python in row["python"]
    try:
        bounds = versions.parse_specifier(row.get("requires_python", ""))
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
            {"set": _changes(vain), "why": vain.why, "source": vain.source} for vain in rule.no_fixes
        ],
        "sources": [
            {"url": source.url, "kind": source.kind, "checked": source.checked} for source in rule.sources
        ],
    }


def _changes(fix: Fix | NoFix) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in fix.set
    )


def _cell(world: _World, number: int) -> dict[str, Any]:
    """A measured combination, with the trainings it is one of: its own, or one that leaves more open."""
    cell = world.known.cells[number]
    train = {**world.known.targets[cell.target].train, **cell.train}
    ids = {rule.id: place for place, rule in enumerate(world.known.rules)}
    exact = [
        place
        for place, each in enumerate(world.trainings)
        if each.target == cell.target and each.facts == train
    ]
    near = [
        place
        for place, each in enumerate(world.trainings)
        if each.target == cell.target
        and place not in exact
        and all(train.get(key) in (None, value) for key, value in each.facts.items())
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
        "rule": ids.get(cell.rule, -1),
        "exact": exact,
        "near": near,
    }


def _forbids(world: _World) -> Iterator[dict[str, Any]]:
    """What a package's own metadata says of another: the bound of each release, and whom it admits."""
    for name, rows in world.shown.items():
        for other, others in world.shown.items():
            bounds = [str(row.get("requires", {}).get(other, "")) for row in rows]
            distinct = sorted(set(bounds))
            if distinct == [""]:
                continue
            admitted = [
                "".join(str(int(_meets(name, other, bound, str(row["version"])))) for row in others)
                for bound in distinct
            ]
            if any("0" in each for each in admitted):
                yield {
                    "by": name,
                    "of": other,
                    "bounds": distinct,
                    "bound": [distinct.index(bound) for bound in bounds],
                    "admits": admitted,
                }


def _meets(name: str, other: str, bound: str, version: str) -> bool:
    """Whether the judge finds nothing against this version in the other's requirement."""
    facts = [Fact(package_key(name), Known("1"), ""), Fact(package_key(other), Known(version), "")]
    inventory = Inventory({fact.key: fact for fact in facts})
    rules = list(requirement_rules([Requirement(name, other, bound, "metadata")]))
    return not any(each.verdict is Verdict.BROKEN for each in judge.judge(inventory, rules).findings)
