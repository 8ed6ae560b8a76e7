"""The use case of `matrix measure`: install a combination apart, train its target, write down what came out.

One environment for each torch, changed in place from combination to combination, so that what is downloaded
once is used again; at most two are kept, because one takes 5 GB. A run that was interrupted goes on where
it stopped: combinations that the output file has already, by the same test, are not run again.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envcheck.commands import examine, selftest
from envcheck.commands.selftest.selection import choose_device
from envcheck.core import versions
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.i18n import counted
from envcheck.core.rules import Matrix, Target
from envcheck.host import machine
from envcheck.host.machine import Host
from envcheck.knowledge.rule_pages import nearest
from envcheck.resolver_backends import INSTALL_HINT
from envcheck.resolver_backends.index import engine_environment, one_line, redact, user_index
from envcheck.selftest import outcome

INSTALL_S = 1200.0
"""For one combination: torch and its CUDA packages are 3 GB to load, and DeepSpeed is built from source."""

KEPT = 2
"""Environments kept in the folder, the last used ones: one with CUDA packages takes 5 GB."""

FREE_MIB = 8 * 1024
"""Disk that must be free before a torch is installed: its wheels and what they unpack to."""

BUILD_TOOLS = ("setuptools<81", "wheel", "packaging", "ninja", "py-cpuinfo")
"""What DeepSpeed's setup.py imports beside torch; older ones ask for pkg_resources, gone in setuptools 81."""


PATIENCE = 5.0
"""Times each test's deadline: a series runs for hours on a machine that does other work as well."""


class Combination(NamedTuple):
    """Exact versions by package: those asked for and, for the target's other packages, a cell's."""

    pins: Mapping[str, str]

    def __str__(self) -> str:
        """As people list them."""
        return ", ".join(f"{name} {version}" for name, version in self.pins.items())


class MeasureOptions(NamedTuple):
    """What to measure and where: see the command's options."""

    target: str
    given: tuple[str, ...]
    wanted: selftest.SelftestOptions
    folder: Path | None = None
    output: Path | None = None
    python: str | None = None
    overlays: tuple[str, ...] = ()
    train: tuple[str, ...] = ()


def measure(run: MeasureOptions, host: Host, tell: Callable[[str], None]) -> tuple[str, int]:
    """The cells as TOML, and the exit code: 3 if a combination could not be decided, else 0.

    `tell` is given progress, a line at a time.

    Raises:
        InputError: an option or the output file is wrong.
        ExamineError: there is no uv, or no room on the disk.
    """
    known = examine.knowledge(run.overlays)
    target = examine.find_target(run.target or None, known)
    selftest.refuse_unknown(run.wanted)
    if target is None:
        raise InputError("--target", f"measure needs a target; known are {', '.join(known.targets)}")
    combinations = [_filled(each, target, known) for each in _grid(run.given)]
    if machine.find_program(host, "uv") is None:
        raise ExamineError(f"uv is not installed; {INSTALL_HINT}")
    written = _written(run.output)
    lines, code = [], 0
    with machine.scratch() if run.folder is None else machine.folder_made(run.folder) as folder:
        for each in combinations:
            cells, undecided = _measured(each, run, target, folder, host, written, tell)
            code = 3 if undecided else code
            text = "".join(cell_toml(cell) for cell in cells)
            lines.append(text)
            if run.output is not None and text:
                machine.append_file(run.output, text)
    return ("" if run.output else "".join(lines)), code


# --- which combinations -----------------------------------------------------------------------------


def _grid(given: Sequence[str]) -> Iterator[dict[str, str]]:
    """Every combination of what `--with` names: a package that is named twice is measured in both."""
    choices: dict[str, list[str]] = {}
    for each in given:
        name, _, version = each.partition("==")
        name = name.strip().lower()
        if not name or versions.parse(version.strip()) is None:
            raise InputError("--with", f"expected a release such as torch==2.6.0, found {each!r}")
        choices.setdefault(name, []).append(version.strip())
    if "torch" not in choices:
        raise InputError("--with", "expected at least a torch, such as --with torch==2.6.0")
    for picked in itertools.product(*choices.values()):
        yield dict(zip(choices, picked, strict=True))


def _filled(given: Mapping[str, str], target: Target, known: Matrix) -> Combination:
    """The combination with the target's packages that were not named, from the nearest measured-good cell.

    Raises:
        InputError: no cell of the target names one of them.
    """
    facts = {package_key(name): Fact(package_key(name), Known(version)) for name, version in given.items()}
    near = examine.nearest_cell(Inventory(facts, complete=frozenset({"pkg"})), known, target)
    from_cell = near.cell.pkg if near is not None else {}
    pins = {}
    for name in target.packages:
        version = given.get(name) or from_cell.get(name)
        if version is None:
            raise InputError("--with", f"no measured cell says which {name} to take; name one: {name}==…")
        pins[name] = version
    return Combination({**pins, **given})


def _train_given(given: Sequence[str]) -> dict[str, str | int | bool]:
    """Training facts that differ from the target's: `dora=true`.

    Raises:
        InputError: not a training fact.
    """
    from envcheck.core.training_facts import KEYS

    found: dict[str, str | int | bool] = {}
    for each in given:
        name, _, value = each.partition("=")
        key = f"train.{name.strip()}"
        if key not in KEYS:
            raise InputError("--set", f"no training fact {name!r}{nearest(key, list(KEYS), list_all=False)}")
        words: dict[str, str | int | bool] = {"true": True, "false": False}
        found[key] = int(value) if value.isdigit() else words.get(value, value)
    return found


# --- an environment ---------------------------------------------------------------------------------


class _NotInstallableError(Exception):
    """No installer can bring these releases together."""


def _environment(
    each: Combination, run: MeasureOptions, folder: Path, host: Host, tell: Callable[[str], None]
) -> Path:
    """The environment of this torch with exactly these releases.

    Raises:
        _NotInstallableError: the releases exclude one another, or one has no file for this Python.
        ExamineError: the network or the disk.
    """
    place = folder / f"torch-{each.pins['torch']}"
    if not place.is_dir():
        for old in machine.least_recently_used(folder, "torch-*", KEPT - 1):
            tell(f"removing {old.name}: at most {KEPT} environments are kept")
            machine.remove_folder(old)
        if (free := machine.free_mib(folder)) < FREE_MIB:
            raise ExamineError(
                f"{folder}: {free} MiB are free, a torch with its CUDA packages needs {FREE_MIB}"
            )
    python = place / "env/bin/python"
    if not python.exists():
        _uv(
            ["venv", "--quiet", str(place / "env"), *(["--python", run.python] if run.python else [])],
            place,
            host,
        )
    machine.touch(place)
    torch = f"torch=={each.pins['torch']}"
    aim = ["pip", "install", "--quiet", "--python", str(python)]
    # DeepSpeed's setup.py imports torch: that comes first, and nothing is built apart from it.
    _uv([*aim, torch, *BUILD_TOOLS], place, host)
    exact = [f"{name}=={version}" for name, version in each.pins.items()]
    _uv([*aim, "--no-build-isolation", *exact], place, host)
    return place / "env"


def _uv(arguments: Sequence[str], place: Path, host: Host) -> None:
    program = machine.find_program(host, "uv")
    index = user_index(host)
    extra = {
        "UV_NO_PROGRESS": "1",
        "UV_CACHE_DIR": str(place / "cache"),
        "DS_BUILD_OPS": "0",
        "DS_SKIP_CUDA_CHECK": "1",
    }
    if index.url:
        extra["UV_DEFAULT_INDEX"] = index.url
    if links := host.environ.get("UV_FIND_LINKS") or host.environ.get("PIP_FIND_LINKS"):
        extra["UV_FIND_LINKS"] = links
    ran = host.run([str(program), *arguments], INSTALL_S, engine_environment(host, index, extra))
    if ran.code is None:
        raise ExamineError(f"uv did not finish within {INSTALL_S:g} s")
    if ran.code:
        said = one_line(redact(ran.err, index, [str(place)]))
        if _EXCLUDES.search(said) and not _UNREACHED.search(said):
            raise _NotInstallableError(said[:300])
        raise ExamineError(f"uv could not install: {said[:300]}")


_EXCLUDES = re.compile(
    r"No solution found|has no wheels|no wheels with a matching|Failed to build|Failed building"
)
# What the network, the disk or a signal did is no property of the releases.
_UNREACHED = re.compile(
    r"could not be queried|[Nn]etwork|Failed to (?:fetch|download)|[Tt]imed? ?out|No space left|signal"
)


# --- a measurement ----------------------------------------------------------------------------------


def _measured(
    each: Combination,
    run: MeasureOptions,
    target: Target,
    folder: Path,
    host: Host,
    written: Sequence[Mapping[str, Any]],
    tell: Callable[[str], None],
) -> tuple[list[dict[str, Any]], bool]:
    """The cells of one combination, and whether something of it could not be decided."""
    digest = _digest(run.wanted)
    changed = target._replace(train={**target.train, **_train_given(run.train)})
    if any(_same(row, each, run, digest) for row in written):
        tell(f"{each}: measured already")
        return [], False
    today = dt.datetime.now(tz=dt.UTC).date()
    head = {"target": target.name, "pkg": dict(each.pins), "date": today, "test": digest}
    try:
        place = _environment(each, run, folder, host, tell)
    except _NotInstallableError as error:
        tell(f"{each}: cannot be installed together")
        return [{**head, "outcome": "not-installable", "device": "none", "signature": str(error)}], False
    # What is measured is this environment and no other: the user's PYTHONPATH stays out.
    host = Host(host.root, {k: v for k, v in host.environ.items() if k != "PYTHONPATH"})
    prepared = selftest.prepare(examine.ExamineRequest(python=str(place), overlays=run.overlays), host)
    _refuse_others(each, prepared.inventory)
    prepared = prepared._replace(target=changed)
    device = choose_device(run.wanted, prepared.inventory)
    outcomes = selftest.run(prepared, run.wanted, device, host)
    python = str(prepared.inventory.known("python.version"))
    gpu = str(prepared.inventory.known("gpu.name", 0) or "cuda") if device == "cuda" else "cpu"
    cells = [{**head, "python": python, "device": gpu, **cell} for cell in _cells(outcomes, target)]
    for cell in cells:
        tell(f"{each}: {_told(cell)}")
    undecided = [one for one in outcomes if one.result == outcome.UNKNOWN]
    for one in undecided:
        tell(f"{each}: {one.claim.name} {one.variant.name} not decided, a fault of the test: {one.why}")
    return cells, bool(undecided)


def _told(cell: Mapping[str, Any]) -> str:
    train = "".join(f" {key}={str(value).lower()}" for key, value in cell.get("train", {}).items())
    run = f"{counted(len(cell['tests']), 'test')}, {cell['seconds']} s"
    return f"{cell['outcome']}{train} ({run}) {cell.get('signature', '')}".rstrip()


def _refuse_others(each: Combination, inventory: Inventory) -> None:
    for name, version in each.pins.items():
        here = str(inventory.known(package_key(name)) or "")
        if versions.base_release(here) != versions.base_release(version):
            raise ExamineError(f"{name} {version} was asked for and {here or 'none'} is installed")


def _digest(wanted: selftest.SelftestOptions) -> str:
    """Of all tests that may be run: a cell tells by which text it was measured."""
    import hashlib

    texts = [each.digest for each in selftest.claims() if not wanted.only or each.name in wanted.only]
    return f"sha256:{hashlib.sha256(''.join(texts).encode()).hexdigest()[:16]}"


def _cells(outcomes: Sequence[outcome.Outcome], target: Target) -> Iterator[dict[str, Any]]:
    """A cell for each training configuration that was run: it fails if one of its tests does.

    A variant that says all the target says stands for a configuration; one that leaves something open
    (checkpointing, say) counts towards each of them. Where none stands for one, only imports were tried.
    """
    decided = [each for each in outcomes if each.result in (outcome.PASS, outcome.FAIL)]
    whole = [each for each in decided if _says_all(each.variant, target)]
    trains: list[dict[str, Any]] = []
    for each in whole:
        if (train := _beyond(each.variant, target)) not in trains:
            trains.append(train)
    for train in trains or ([{}] if decided else []):
        group = [each for each in decided if each not in whole or _beyond(each.variant, target) == train]
        failed = [each for each in group if each.result == outcome.FAIL]
        yield {
            "outcome": "fails" if failed else "ok" if trains else "imports",
            **({"rule": rule} if (rule := next((each.rule for each in failed if each.rule), "")) else {}),
            **({"signature": failed[0].why[:200], "failed": sorted(map(_named, failed))} if failed else {}),
            **({"train": train} if train else {}),
            "ranks": max(each.ranks for each in group),
            "seconds": round(sum(each.seconds for each in group), 1),
            "tests": sorted(map(_named, group)),
        }


def _named(each: outcome.Outcome) -> str:
    return f"{each.claim.name}/{each.variant.name}"


_UNSAID = {
    "dora": False,
    "offload_optimizer": "none",
    "offload_param": "none",
    "gradient_clipping": True,
    "parallel": "deepspeed",
    "quantization": "none",
    "frozen_params": True,
}
"""Values a cell does not repeat: what a configuration that does not name them has anyhow."""

_OPEN = frozenset({"train.precision", "train.gradient_clipping"})
"""What a variant need not say to stand for a target: the failures known do not depend on it."""


def _says_all(variant: outcome.SelftestVariant, target: Target) -> bool:
    stated = {f"train.{key}" for key in variant.train}
    return bool(variant.train) and stated >= set(target.train) - _OPEN


def _beyond(variant: outcome.SelftestVariant, target: Target) -> dict[str, Any]:
    """The training facts of a variant that its target does not say."""
    return {
        key: value
        for key, value in variant.train.items()
        if target.train.get(f"train.{key}") != value and _UNSAID.get(key) != value
    }


# --- the file of cells ------------------------------------------------------------------------------


def _written(output: Path | None) -> list[Mapping[str, Any]]:
    if output is None or not output.exists():
        return []
    try:
        rows = tomllib.loads(machine.read_file(output).decode("utf-8", "replace")).get("cell", [])
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(output), f"not TOML: {error}") from None
    return [row for row in rows if isinstance(row, dict)]


def _same(row: Mapping[str, Any], each: Combination, run: MeasureOptions, digest: str) -> bool:
    asked = {key.removeprefix("train."): value for key, value in _train_given(run.train).items()}
    return (
        row.get("target") == run.target
        and row.get("pkg") == dict(each.pins)
        and row.get("test") == digest
        and (row.get("ranks", run.wanted.ranks) == run.wanted.ranks or run.wanted.ranks is None)
        and (row.get("outcome") == "not-installable" or _unusual(row.get("train", {})) == _unusual(asked))
    )


def _unusual(train: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell says of training because it was asked for with `--set`, or a variant brings it."""
    return {key: value for key, value in train.items() if _UNSAID.get(key, value) != value}


_ORDER = (
    *("target", "outcome", "rule", "signature", "failed", "pkg", "python", "train"),
    *("device", "ranks", "seconds", "date", "test", "tests"),
)


def cell_toml(cell: Mapping[str, Any]) -> str:
    """A `[[cell]]` as compat/matrix.toml writes it."""
    return "\n[[cell]]\n" + "".join(f"{key} = {toml_value(cell[key])}\n" for key in _ORDER if key in cell)


def toml_value(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date | int | float):
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {toml_value(each)}" for key, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    return _quoted(str(value))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """A string of TOML in ASCII; it has no surrogates, which JSON writes for what is beyond 16 bits."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(
        r"[^\x20-\x7e]",
        lambda each: f"\\u{ord(each[0]):04x}" if each[0] <= "\uffff" else f"\\U{ord(each[0]):08x}",
        json.dumps(whole, ensure_ascii=False),
    )
