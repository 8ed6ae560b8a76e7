"""Inventory and tables → inventory: what follows from the facts that were read.

Pure, so it holds for a probed machine, a facts file and a resolver's candidate alike. A derived fact
never replaces one that was read; it is Unknown for the reason its inputs are, and Absent if they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from envcheck.core import markers, versions
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Key,
    Kind,
    Known,
    Reading,
    Tri,
    Unknown,
    Value,
    normalised,
    package_key,
    package_name,
)
from envcheck.core.nvidia import has_code, has_ptx, is_capability
from envcheck.core.rules import Matrix, Requirement
from envcheck.rules.clauses import ask

KEYS = {
    "cuda.runtime": Key(Kind.VERSION, "CUDA the installed torch was built with; Absent for a CPU build"),
    "cuda.minimum_driver": Key(Kind.VERSION, "oldest Linux driver of that CUDA's major family"),
    "cuda.full_driver": Key(Kind.VERSION, "driver that ships with that CUDA: from it on nothing is limited"),
    "cuda.driver": Key(Kind.VERSION, "newest CUDA the driver speaks"),
    "driver.torch_last": Key(Kind.VERSION, "newest torch whose default build this driver can run"),
    "build.torch.architectures": Key(
        Kind.WORDS, "GPU architectures torch has code for: sm_80, …; compute_90 is PTX"
    ),
    "build.torch.torchvision": Key(Kind.VERSION, "torchvision that belongs to this torch"),
    "build.torch.torchaudio": Key(Kind.VERSION, "torchaudio that belongs to this torch"),
    "build.torch.triton": Key(Kind.VERSION, "triton that belongs to this torch"),
    "gpus.visible": Key(
        Kind.NUMBER, "GPUs that CUDA_VISIBLE_DEVICES leaves to programs; all if it is not set"
    ),
    "gpu.kind": Key(Kind.WORD, "datacenter, geforce, workstation, jetson, …"),
    "gpu.in_torch_build": Key(Kind.FLAG, "whether the installed torch has code that this GPU can run"),
    "gpu.torch_first": Key(Kind.VERSION, "first torch whose default build has machine code for this GPU"),
    "gpu.torch_nearest": Key(Kind.VERSION, "release with machine code for this GPU nearest to the installed"),
    "gpu.torch_last": Key(Kind.VERSION, "newest torch whose default build has machine code for this GPU"),
    "gpu.packages_without_code": Key(
        Kind.WORDS, "compiled packages that have neither machine code for this GPU nor PTX it could compile"
    ),
    "train.minimum_transformers": Key(
        Kind.VERSION, "first transformers with code for the model_type; Absent if all that are known have it"
    ),
    "train.examples_per_step": Key(
        Kind.NUMBER, "micro batch size x accumulation steps x processes that see other data"
    ),
    "train.saves_at_evaluations": Key(
        Kind.FLAG, "whether every checkpoint is saved at a step that evaluates, where both go by steps"
    ),
    "train.install_transformers": Key(
        Kind.VERSION,
        "first transformers to install for the model_type: that one, or the next if it was yanked",
    ),
}
"""What deriving adds to the vocabulary."""

_STEP = (
    "train.micro_batch_size",
    "train.gradient_accumulation_steps",
    "train.world_size",
    "train.tensor_parallel",
    "train.sequence_parallel",
)

FOLLOWS_FROM: Mapping[str, tuple[str, ...]] = {
    "cuda.runtime": ("pkg.torch", "build.torch.cuda"),
    "cuda.minimum_driver": ("cuda.runtime", "driver.version"),
    "cuda.full_driver": ("cuda.runtime",),
    "cuda.driver": ("driver.version",),
    "driver.torch_last": ("driver.version",),
    "driver.library": ("driver.version",),
    "driver.libcuda": ("driver.version",),
    "driver.error": ("driver.version",),
    "driver.passed_over": ("driver.version",),
    "build.torch.architectures": ("cuda.runtime",),
    "build.torch.torchvision": ("pkg.torch",),
    "build.torch.torchaudio": ("pkg.torch",),
    "build.torch.triton": ("pkg.torch",),
    "gpu.in_torch_build": ("build.torch.architectures",),
    "gpu.torch_nearest": ("pkg.torch",),
    "train.examples_per_step": _STEP,
    "train.saves_at_evaluations": ("train.save_steps", "train.eval_steps"),
    "train.minimum_transformers": ("train.model_type",),
    "train.install_transformers": ("train.model_type",),
}
"""What each derived fact follows from, of all that a change may set; defaults say it themselves."""

BESIDE_TORCH, CODE = ".unresolved", ".architectures"
"""How facts of a package end that its files and the installed torch's tell together, and its files alone."""

_CUDA_LABEL = re.compile(r"cu[0-9]{3}")


def derive(read: Inventory, matrix: Matrix) -> Inventory:
    """The inventory with everything that follows from it and the tables."""
    tables = matrix.tables
    inventory = _add(_devices_by_name(read, tables), [_visible(read)])
    for step in (_torch_build, _drivers):
        inventory = step(inventory, tables)
    inventory = _devices_and_torch(inventory, tables)
    return _training(inventory, matrix)


# --- carrying ignorance along -----------------------------------------------------------------------


def _missing(inventory: Inventory, *keys: str, device: int | None = None) -> Reading | None:
    """Why a fact that needs these cannot be derived: the first reading that is not Known."""
    for key in keys:
        reading = inventory.fact(key, device).reading
        match reading:
            case Known():
                continue
            case Absent():
                return reading
            case Unknown(why, asked):
                return Unknown(f"{key}: {why}", asked)
    return None


def _add(inventory: Inventory, derived: Iterable[Fact]) -> Inventory:
    """With the derived facts, except where the machine or the user already spoke."""
    return inventory.with_facts(fact for fact in derived if _open(inventory.fact(fact.key).reading))


def _open(reading: Reading) -> bool:
    return isinstance(reading, Unknown) and not reading.asked


def _text(inventory: Inventory, key: str, device: int | None = None) -> str:
    return str(inventory.known(key, device))


# --- torch ------------------------------------------------------------------------------------------


def _torch_build(inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]) -> Inventory:
    missing = _missing(inventory, "pkg.torch")
    names = ("torchvision", "torchaudio", "triton")
    if missing is not None:
        keys = ("cuda.runtime", "build.torch.architectures", *(f"build.torch.{name}" for name in names))
        return _add(inventory, (Fact(key, missing, "derived from pkg.torch") for key in keys))
    torch = _text(inventory, "pkg.torch")
    row = _row_of(tables.get("torch", []), "version", torch)
    runtime = _runtime(inventory, torch, row)
    source = f"derived from torch {torch}"
    facts = [Fact("cuda.runtime", runtime, source)]
    built = _arm_unread(inventory) if isinstance(runtime, Known) else None
    built_for = built or _architectures(torch, runtime, row, tables)
    facts.append(Fact("build.torch.architectures", built_for, source))
    facts += [Fact(f"build.torch.{name}", _partner(torch, row, name), source) for name in names]
    return _add(inventory, facts)


def _row_of(rows: Sequence[Mapping[str, Any]], column: str, version: str) -> Mapping[str, Any] | None:
    """The row of exactly this release, whatever its local label; none for snapshots and pre-releases."""
    parsed = versions.parse(version)
    if parsed is None or parsed.is_prerelease:
        return None
    return next((row for row in rows if versions.parse(row[column]) == versions.parse(parsed.public)), None)


def _outside(torch: str) -> Unknown:
    return Unknown(f"torch {torch} is not among the releases whose builds are known")


def _runtime(inventory: Inventory, torch: str, row: Mapping[str, Any] | None) -> Reading:
    built = inventory.fact("build.torch.cuda").reading
    if not _open(built):
        return built
    label = versions.local_label(torch).partition(".")[0]
    if label:
        return _runtime_of_label(torch, label)
    if row is None:
        return _outside(torch)
    return _default_runtime(inventory, row)


def _default_runtime(inventory: Inventory, row: Mapping[str, Any]) -> Reading:
    """The CUDA of the build that a plain `pip install` of this torch brings on this platform."""
    system, arch = (inventory.known(key) for key in ("host.os", "host.arch"))
    if system in (None, "linux") and arch in (None, "x86_64") and row.get("cuda"):
        return Known(str(row["cuda"]))
    if system in (None, "linux") and arch == "aarch64" and row.get("aarch64"):
        return _runtime_of_label(str(row["version"]), str(row["aarch64"]))
    return Unknown("only the default builds for Linux on x86_64 and aarch64 are known")


def _arm_unread(inventory: Inventory) -> Unknown | None:
    """Why the machine code of a build is not known here: only the wheels for x86_64 were opened."""
    if inventory.known("host.arch") in (None, "x86_64"):
        return None
    return Unknown("only the wheels for x86_64 were opened to see which GPUs they serve")


def _runtime_of_label(torch: str, label: str) -> Reading:
    if label == "cpu" or label.startswith(("rocm", "xpu")):
        return Absent()
    if _CUDA_LABEL.fullmatch(label):
        return Known(f"{label[2:-1]}.{label[-1]}")
    return Unknown(f"torch {torch} is a build of somebody's own: its label names no CUDA")


def _architectures(
    torch: str, runtime: Reading, row: Mapping[str, Any] | None, tables: Mapping[str, list[dict[str, Any]]]
) -> Reading:
    if not isinstance(runtime, Known):
        return runtime
    if row is None:
        return _outside(torch)
    if row["cuda"] == runtime.value:
        return Known(tuple(row["architectures"]))
    for variant in tables.get("variant", []):
        if variant["torch"] == row["version"] and variant["cuda"] == runtime.value:
            return Known(tuple(variant["architectures"]))
    return Unknown(f"no torch {row['version']} for CUDA {runtime.value} is among the builds that are known")


def _partner(torch: str, row: Mapping[str, Any] | None, name: str) -> Reading:
    if row is None:
        return _outside(torch)
    return (
        Known(str(row[name])) if row.get(name) else Unknown(f"no {name} is known to belong to torch {torch}")
    )


# --- drivers and CUDA -------------------------------------------------------------------------------


def _drivers(inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]) -> Inventory:
    facts = [
        Fact("cuda.driver", _cuda_of_driver(inventory, tables), "derived from driver.version"),
        Fact("driver.torch_last", _torch_of_driver(inventory, tables), "derived from driver.version"),
    ]
    missing = _missing(inventory, "cuda.runtime")
    if missing is not None:
        floors: tuple[Reading, Reading] = (missing, missing)
    else:
        runtime = _text(inventory, "cuda.runtime")
        elsewhere = _other_numbers(inventory)
        floors = (
            (elsewhere, elsewhere)
            if elsewhere
            else (_with_compat(inventory, _floor(tables, runtime)), _shipped_driver(tables, runtime))
        )
    facts.append(Fact("cuda.minimum_driver", floors[0], "derived from cuda.runtime"))
    facts.append(Fact("cuda.full_driver", floors[1], "derived from cuda.runtime"))
    return _add(inventory, facts)


def _other_numbers(inventory: Inventory) -> Reading | None:
    """Why the drivers of the tables, which are Linux', are no bounds here; None where they are.

    Under WSL the driver is Windows' own, on a Jetson it is part of the board's system: both count in
    another way. Absent where something else decides: rules on the CUDA that a driver under WSL speaks,
    or that the driver itself speaks torch's CUDA major.
    """
    if inventory.known("host.wsl") is True:
        return Absent()
    if inventory.known("host.tegra") is not None:
        whose = "a Jetson's driver is part of its system, and is not numbered as others are"
    elif inventory.known("host.os") not in (None, "linux"):
        whose = f"only the drivers of Linux are known, and this is {inventory.known('host.os')}"
    else:
        return None
    speaks, built = (str(inventory.known(key) or "") for key in ("cuda.driver", "cuda.runtime"))
    majors = [text.partition(".")[0] for text in (speaks, built)]
    enough = all(major.isdecimal() for major in majors) and int(majors[0]) >= int(majors[1])
    return Absent() if enough else Unknown(whose)


def _floor(tables: Mapping[str, list[dict[str, Any]]], cuda: str) -> Reading:
    """The family floor: since CUDA 11 a build of 12.x runs on any driver from the first one of 12."""
    major = cuda.partition(".")[0]
    for row in tables.get("family", []):
        if str(row["major"]) == major:
            return Known(str(row["minimum_driver"]))
    return Unknown(f"the driver floor of CUDA {major}.x is not known")


def _with_compat(inventory: Inventory, floor: Reading) -> Reading:
    """The floor, unless a cuda-compat package in this image may stand in for a driver below it."""
    compat, driver = inventory.known("cuda.compat"), inventory.known("driver.version")
    if compat is None or not isinstance(floor, Known) or driver is None:
        return floor
    if versions.compare(str(driver), "<", str(floor.value)) is Tri.NO:
        return floor
    return Unknown(f"cuda-compat ({compat}) may stand in for the driver, on data-centre GPUs only")


def _shipped_driver(tables: Mapping[str, list[dict[str, Any]]], cuda: str) -> Reading:
    drivers = [
        str(row["driver"]) for row in tables.get("toolkit", []) if row["cuda"] == cuda and row.get("driver")
    ]
    if not drivers:
        return Unknown(f"the driver that ships with CUDA {cuda} is not known")
    return Known(min(drivers, key=versions.order))


def _cuda_of_driver(inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]) -> Reading:
    missing = _missing(inventory, "driver.version")
    if missing is not None:
        return missing
    branch = _text(inventory, "driver.version").partition(".")[0]
    for row in tables.get("branch", []):
        if str(row["branch"]) == branch:
            return Known(str(row["cuda"]))
    return Unknown(f"driver branch R{branch} is not known")


def _torch_of_driver(inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]) -> Reading:
    missing = _missing(inventory, "driver.version")
    if missing is not None:
        return missing
    if _other_numbers(inventory) is not None:
        return Unknown("only the drivers of Linux on servers and workstations are known")
    driver = _text(inventory, "driver.version")

    def runs(row: Mapping[str, Any]) -> bool:
        runtime = _default_runtime(inventory, row)
        floor = _floor(tables, str(runtime.value)) if isinstance(runtime, Known) else runtime
        return isinstance(floor, Known) and versions.compare(driver, ">=", str(floor.value)) is Tri.YES

    fitting = [str(row["version"]) for row in tables.get("torch", []) if runs(row)]
    return Known(max(fitting, key=versions.order)) if fitting else Absent()


# --- GPUs -------------------------------------------------------------------------------------------


def _each_device(inventory: Inventory, facts_of: Callable[[int], Iterable[Fact]]) -> Inventory:
    devices = []
    for number, device in enumerate(inventory.devices):
        derived = {
            fact.key: fact for fact in facts_of(number) if _open(inventory.fact(fact.key, number).reading)
        }
        devices.append({**device, **derived})
    return replace(inventory, devices=tuple(devices))


def _visible(inventory: Inventory) -> Fact:
    if inventory.devices:
        return Fact("gpus.visible", Known(len(inventory.visible_devices())), "derived from gpu.visible")
    missing = _missing(inventory, "gpus.count")
    reading = missing or inventory.fact("gpus.count").reading
    return Fact("gpus.visible", reading, "derived from gpus.count")


def _devices_by_name(inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]) -> Inventory:
    by_name: dict[str, Mapping[str, Any]] = {}
    if inventory.devices:
        for row in tables.get("gpu", []):
            for name in (row["name"], *row.get("aliases", [])):
                by_name[_plain_name(name)] = row

    def facts_of(number: int) -> Iterator[Fact]:
        source = "derived from gpu.name"
        missing = _missing(inventory, "gpu.name", device=number)
        name = _text(inventory, "gpu.name", number)
        row = None if missing else by_name.get(_plain_name(name))
        unlisted = missing or Unknown(f"{name} is not among the GPUs that are known")
        yield Fact(
            "gpu.compute_capability", Known(str(row["compute_capability"])) if row else unlisted, source
        )
        yield Fact("gpu.kind", Known(str(row["kind"])) if row else unlisted, source)
        memory = row["memory_gb"] if row else []
        if len(memory) == 1:
            # Marketing GB; the driver reports a few per cent less, so this stands only for a declared GPU.
            yield Fact("gpu.memory_mib", Known(memory[0] * 1024), source)

    return _each_device(inventory, facts_of)


@lru_cache(maxsize=1024)
def _plain_name(name: str) -> str:
    return " ".join(name.lower().replace("-", " ").split()).removeprefix("nvidia ").removeprefix("geforce ")


def _devices_and_torch(inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]) -> Inventory:
    default_builds = [(str(row["version"]), tuple(row["architectures"])) for row in tables.get("torch", [])]
    compiled = {
        key.split(".")[1]: fact.value
        for key, fact in inventory.facts.items()
        if key.startswith("pkg.") and key.endswith(CODE) and isinstance(fact.value, tuple)
    }

    def facts_of(number: int) -> Iterator[Fact]:
        missing = _missing(inventory, "gpu.compute_capability", device=number)
        capability = _text(inventory, "gpu.compute_capability", number)
        if missing is None and not is_capability(capability):
            missing = Unknown(f"gpu.compute_capability: {capability!r} is not two numbers such as 9.0")
        untold = missing or _arm_unread(inventory)
        serving = [] if untold else [v for v, built in default_builds if has_code(built, capability)]
        source = "derived from gpu.compute_capability"
        for key, pick in (("gpu.torch_first", min), ("gpu.torch_last", max)):
            found: Reading = untold or (Known(pick(serving, key=versions.order)) if serving else Absent())
            yield Fact(key, found, source)
        yield Fact("gpu.torch_nearest", untold or _nearest(serving, default_builds, inventory), source)
        built_for = inventory.fact("build.torch.architectures").reading
        if missing or not isinstance(built_for, Known):
            inside = missing or _missing(inventory, "build.torch.architectures")
            assert inside is not None  # noqa: S101 - one of the two is missing, or we would not be here
            yield Fact("gpu.in_torch_build", inside, "derived from build.torch.architectures")
        else:
            built = built_for.value if isinstance(built_for.value, tuple) else ()
            runs = has_code(built, capability) or has_ptx(built, capability)
            yield Fact("gpu.in_torch_build", Known(runs), f"{source}, {', '.join(built)}")
        without = missing or _packages_without_code(compiled, capability)
        yield Fact("gpu.packages_without_code", without, "derived from what their files hold")

    return _each_device(inventory, facts_of)


def _packages_without_code(compiled: Mapping[str, tuple[str, ...]], capability: str) -> Reading:
    """The packages whose compiled modules hold nothing that this GPU can run, now or after compiling PTX."""
    names = [
        f"{name} ({', '.join(built)})"
        for name, built in sorted(compiled.items())
        if not has_code(built, capability) and not has_ptx(built, capability)
    ]
    return Known(tuple(names)) if names else Absent()


def _nearest(serving: Sequence[str], builds: Sequence[tuple[str, Any]], inventory: Inventory) -> Reading:
    """Of the releases that serve a GPU, the one fewest releases away from the installed torch."""
    here = versions.base_release(str(inventory.known("pkg.torch") or ""))
    releases = sorted((version for version, _ in builds), key=versions.order)
    if not serving or here not in releases:
        return Absent()
    place = releases.index(here)
    return Known(min(serving, key=lambda version: abs(releases.index(version) - place)))


# --- training ---------------------------------------------------------------------------------------


def _training(inventory: Inventory, matrix: Matrix) -> Inventory:
    """A trainer's defaults, first row that holds; once anything is given, an unnamed trainer is Absent."""
    given = any(key.startswith("train.") for key in inventory.facts)
    if not given:
        return inventory
    inventory = _add(inventory, [Fact("train.trainer", Absent(), "the configuration names none")])
    settled: set[str] = set()
    for default in matrix.defaults:
        if default.key in settled or not _open(inventory.fact(default.key).reading):
            continue
        answers = {clause.key: ask(clause, inventory) for clause in default.when}
        holds = min(answers.values(), default=Tri.YES)
        if holds is Tri.NO:
            continue
        # A row that may hold bars the later ones: none of them may speak for it.
        settled.add(default.key)
        reading = Known(default.value) if holds is Tri.YES else _unsettled(inventory, answers)
        inventory = inventory.with_facts([Fact(default.key, reading, f"default: {default.source}")])
    first, install = _first_transformers(inventory, matrix.tables)
    facts = [
        Fact("train.minimum_transformers", first, "derived from train.model_type"),
        Fact("train.install_transformers", install, "derived from train.model_type"),
        Fact("train.examples_per_step", _examples_per_step(inventory), "derived from the batch sizes"),
        Fact("train.saves_at_evaluations", _saves_at_evaluations(inventory), "derived from train.save_steps"),
    ]
    return _add(inventory, facts)


def _examples_per_step(inventory: Inventory) -> Reading:
    """Processes that share a sequence see the same examples; those that share layers count variously."""
    missing = _missing(inventory, *_STEP)
    if missing is not None:
        return missing
    micro, accumulated, processes, layers, share = (int(_text(inventory, key)) for key in _STEP)
    if layers != 1:
        return Unknown(f"{layers} processes share each layer, and releases count them in different ways")
    if share < 1 or processes % share:
        return Unknown(f"{processes} processes do not divide into sequences shared by {share}")
    return Known(micro * accumulated * (processes // share))


def _saves_at_evaluations(inventory: Inventory) -> Reading:
    missing = _missing(inventory, "train.save_steps", "train.eval_steps")
    if missing is not None:
        return missing
    save, evaluate = (int(_text(inventory, f"train.{each}_steps")) for each in ("save", "eval"))
    return Known(save % evaluate == 0) if evaluate > 0 else Unknown("train.eval_steps is not above 0")


def _first_transformers(
    inventory: Inventory, tables: Mapping[str, list[dict[str, Any]]]
) -> tuple[Reading, Reading]:
    """The first transformers with code for the model, and the first to install for it."""
    missing = _missing(inventory, "train.model_type")
    if missing is not None:
        return missing, missing
    model_type = _text(inventory, "train.model_type")
    row = next((row for row in tables.get("model", []) if row["model_type"] == model_type), None)
    if row is None:
        unlisted = Unknown(f"{model_type} is not among the model types that are known")
        return unlisted, unlisted
    if row.get("before"):
        return Absent(), Absent()
    # Where its code is older than its name, loading by class may work between the two.
    first = str(row.get("code") or row["transformers"])
    return Known(first), Known(str(row.get("install") or first))


def _unsettled(inventory: Inventory, answers: Mapping[str, Tri]) -> Unknown:
    waits_for = sorted(key for key, answer in answers.items() if answer is Tri.MAYBE)
    asked = not any(_open(inventory.fact(key).reading) for key in waits_for)
    return Unknown(f"its default depends on {' and '.join(waits_for)}", asked)


# --- what installed packages ask of each other ------------------------------------------------------


def requirements(inventory: Inventory) -> Iterator[Requirement]:
    """Every requirement of every installed package whose marker holds for this environment."""
    environment: dict[str, str] | None = None
    for key, fact in inventory.facts.items():
        if not key.endswith(".requires") or not isinstance(fact.value, tuple):
            continue
        package = package_name(key).removesuffix(".requires")
        for line in fact.value:
            bare, _, marker = line.partition(";")
            if marker:
                environment = environment or _marker_environment(inventory)
                if not markers.holds(marker, environment):
                    continue
            name, specifier = _split_requirement(bare)
            if name:
                yield Requirement(package, name, specifier, fact.source)


def unmet(inventory: Inventory) -> tuple[list[Requirement], int]:
    """The requirements that are not plainly met, and how many are.

    Hundreds are met and a few are not: only those few are worth a rule of their own.
    """
    found, met = [], 0
    for each in requirements(inventory):
        here = inventory.fact(package_key(each.requires)).reading
        # A specifier that cannot be read binds nothing.
        if isinstance(here, Known) and (
            versions.satisfies(str(here.value), each.specifier, unknown=Tri.YES) is Tri.YES
        ):
            met += 1
        else:
            found.append(each)
    return found, met


_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


def _split_requirement(text: str) -> tuple[str, str]:
    """`('huggingface-hub', '>=0.23,<1')` of `huggingface_hub[cli] (>=0.23,<1)`; no name for a URL."""
    if "@" in text:
        return "", ""
    text = text.strip()
    rest = text.lstrip(_NAME)
    name, rest = text.removesuffix(rest), rest.strip()
    if rest.startswith("["):
        rest = rest.partition("]")[2].strip()
    return normalised(name), rest.strip("()").replace(" ", "")


def _marker_environment(inventory: Inventory) -> dict[str, str]:
    return markers.environment(
        str(inventory.known("python.version") or "3.11.0"),
        architecture=str(inventory.known("host.arch") or "x86_64"),
        system=str(inventory.known("host.os") or "linux"),
        implementation=str(inventory.known("python.implementation") or "cpython"),
    )


OF_DRIVER = frozenset(
    {"cuda.driver", "driver.library", "driver.libcuda", "driver.error", "driver.passed_over"}
)
"""Facts that were read off the driver that is here, and say nothing of another one."""

# --- trying a change --------------------------------------------------------------------------------


def changed(read: Inventory, changes: Sequence[tuple[str, Value]], matrix: Matrix) -> Inventory:
    """The inventory as read, after a change: what the change makes stale is forgotten.

    A package that is replaced takes its build facts and its requirements along; packages that move
    with it (torchvision with torch) are then of a version nobody knows yet.
    """
    facts = dict(read.facts)
    for key, value in changes:
        name = package_name(key)
        if name == "torch":
            facts = {
                k: _unread_again(fact) if k.endswith(BESIDE_TORCH) else fact for k, fact in facts.items()
            }
        if name != key:
            for other in (name, *matrix.moves_with.get(name, ())):
                prefixes = (f"pkg.{other}.", f"build.{other}.")
                facts = {k: fact for k, fact in facts.items() if not k.startswith(prefixes)}
                if other != name and isinstance(read.fact(package_key(other)).reading, Known):
                    moved = Unknown(f"moves with {name}", asked=False)
                    facts[package_key(other)] = Fact(package_key(other), moved)
        elif key == "driver.version":
            facts = {k: fact for k, fact in facts.items() if k not in OF_DRIVER}
        facts[key] = Fact(key, Known(value), "proposed")
    return replace(read, facts=facts)


def _unread_again(fact: Fact) -> Fact:
    """What compiled packages lack in one torch says nothing of another."""
    return Fact(fact.key, Unknown("read beside another torch", asked=False))
