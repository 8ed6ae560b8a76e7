"""What the page for look-ups lets its reader choose: targets, GPUs, drivers, Pythons and releases."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Reading, Value, package_key, package_name
from envcheck.core.rules import Default, Matrix, Ref
from envcheck.knowledge.tables import ReleaseRow, all_releases, torch_releases
from envcheck.rules import derive

NONE = "none"
"""The choice of no particular value."""


class PageTraining(NamedTuple):
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
        self._machine_values: dict[frozenset[tuple[str, int]], Mapping[str, Value]] = {}

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

    def readings(
        self, chosen: Mapping[str, int], keys: AbstractSet[str] | None = None
    ) -> tuple[tuple[tuple[str, Reading], ...], ...]:
        """Return what these options say of these facts, or of all: of the machine, and then of its GPU.

        What follows from the training is left out. A rule that depends on these facts alone cannot tell two
        choices with equal results apart.
        """
        machine = self._machine({each: option for each, option in chosen.items() if each != "target"})
        return tuple(
            tuple(
                (key, part[key].reading)
                for key in sorted(part.keys() if keys is None else keys & part.keys())
            )
            for part in (machine.facts, *machine.devices)
        )

    def known_values(self, chosen: Mapping[str, int]) -> Mapping[str, Value]:
        """Return the known facts of these options, but not what follows from the training."""
        of_machine = frozenset(
            (each, option) for each, option in chosen.items() if each != "target" and option
        )
        if of_machine not in self._machine_values:
            machine = self._machine(dict(of_machine))
            facts = {**machine.facts, **(machine.devices[0] if machine.devices else {})}
            self._machine_values[of_machine] = {
                key: fact.value for key, fact in facts.items() if fact.value is not None
            }
        training = self.trainings[chosen["target"]].facts if "target" in chosen else {}
        return {**self._machine_values[of_machine], **training}

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


def _trainings(known: Matrix) -> Iterator[PageTraining]:
    """Yield every target as it stands, and with each value of each flag that it leaves open."""
    for target in known.targets.values():
        yield PageTraining(target.name, "", target.train, target.free)
        for key in target.free:
            for value in (False, True):
                label = f"{key.removeprefix('train.')} = {str(value).lower()}"
                still_free = tuple(other for other in target.free if other != key)
                yield PageTraining(target.name, label, {**target.train, key: value}, still_free)


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
