"""Measure combinations for the matrix: install each in an environment, train its target, write the cells.

There is one environment for each torch. It is changed in place from combination to combination, so that
downloads are reused. At most two are kept, because one takes 5 GB.

An interrupted run continues where it stopped: combinations that the output file already holds, measured by
the same tests, are not run again.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from envcheck.commands import examine, loading, selftest
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.measured_cells import cell_toml, cells_of, has_measured
from envcheck.commands.selftest.selection import choose_device
from envcheck.core import versions
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.i18n import counted
from envcheck.core.parsing import parse_toml
from envcheck.core.rules import Matrix, Target
from envcheck.core.suggestions import suggestion
from envcheck.host import machine
from envcheck.host.files import (
    append_file,
    free_mib,
    least_recently_used,
    locked_folder,
    mark_used,
    read_file,
    remove_folder,
    scratch_folder,
)
from envcheck.host.machine import Host
from envcheck.resolver_backends import INSTALL_HINT
from envcheck.resolver_backends.index.redaction import one_line, redact
from envcheck.resolver_backends.index.settings import backend_environment, user_index
from envcheck.selftest import outcome as selftest_outcome

INSTALL_S = 1200.0
"""Seconds for one combination: torch and its CUDA packages are a 3 GB download, DeepSpeed is compiled."""

KEPT = 2
"""Number of environments kept in the folder, the last used ones: one with CUDA packages takes 5 GB."""

FREE_MIB = 8 * 1024
"""MiB of disk that must be free before torch is installed, for its wheels and their unpacked files."""

BUILD_TOOLS = ("setuptools<81", "wheel", "packaging", "ninja", "py-cpuinfo")
"""What DeepSpeed's setup.py imports besides torch; older ones need pkg_resources, gone in setuptools 81."""

PATIENCE = 5.0
"""The factor on each test's deadline: a series runs for hours on a machine that does other work as well."""

Tell = Callable[[str], None]
"""A function that receives progress, one line at a time."""


class Combination(NamedTuple):
    """Exact versions by package: the given ones, and a cell's for the target's other packages."""

    pins: Mapping[str, str]

    def __str__(self) -> str:
        """Return the versions as one line of text."""
        return ", ".join(f"{name} {version}" for name, version in self.pins.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureOptions:
    """What to measure and where.

    Attributes:
        target: the name of the target to train.
        given: releases such as `torch==2.6.0`; a package that is given twice is measured in both.
        wanted: which self-tests to run.
        folder: where environments are kept; None uses a scratch folder.
        output: the file of cells to extend; None returns the cells instead.
        python: the Python of the environments, as uv names it.
        train: training facts that differ from the target's, such as `dora=true`.
    """

    target: str
    given: tuple[str, ...]
    wanted: selftest.SelftestOptions
    folder: Path | None = None
    output: Path | None = None
    python: str | None = None
    overlays: tuple[str, ...] = ()
    train: tuple[str, ...] = ()


def measure(options: MeasureOptions, host: Host, tell: Tell) -> tuple[str, int]:
    """Return the cells as TOML, and the exit code: 3 if a combination could not be decided, else 0.

    Raises:
        InputError: an option or the output file is wrong.
        ExamineError: there is no uv, or no room on the disk.
    """
    matrix = loading.knowledge(options.overlays)
    target = loading.find_target(options.target or None, matrix)
    selftest.refuse_unknown(options.wanted)
    if target is None:
        raise InputError("--target", f"measure needs a target; known are {', '.join(matrix.targets)}")
    combinations = [_completed(given, target, matrix) for given in _grid(options.given)]
    if machine.find_program(host, "uv") is None:
        raise ExamineError(f"uv is not installed; {INSTALL_HINT}")
    written = _written_cells(options.output)
    texts, code = [], 0
    folder_context = scratch_folder() if options.folder is None else locked_folder(options.folder)
    with folder_context as folder:
        series = _Series(options, target, folder, host, tell)
        for combination in combinations:
            cells, undecided = series.measure(combination, written)
            code = 3 if undecided else code
            text = "".join(map(cell_toml, cells))
            texts.append(text)
            if options.output is not None and text:
                append_file(options.output, text)
    return ("" if options.output else "".join(texts)), code


def _written_cells(output: Path | None) -> list[Mapping[str, Any]]:
    if output is None or not output.exists():
        return []
    rows = parse_toml(read_file(output).decode("utf-8", "replace"), str(output)).get("cell", [])
    return [row for row in rows if isinstance(row, dict)]


# --- which combinations -----------------------------------------------------------------------------


def _grid(given: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield every combination of the given releases.

    Raises:
        InputError: an item is not a release, or no release of torch is given.
    """
    choices: dict[str, list[str]] = {}
    for release in given:
        name, _, version = release.partition("==")
        name = name.strip().lower()
        if not name or versions.parse(version.strip()) is None:
            raise InputError("--with", f"expected a release such as torch==2.6.0, found {release!r}")
        choices.setdefault(name, []).append(version.strip())
    if "torch" not in choices:
        raise InputError("--with", "expected at least a torch, such as --with torch==2.6.0")
    for chosen in itertools.product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


def _completed(given: Mapping[str, str], target: Target, matrix: Matrix) -> Combination:
    """Add the target's other packages, from the nearest cell that was measured as good.

    Raises:
        InputError: one of these packages is in no cell of the target.
    """
    facts = {package_key(name): Fact(package_key(name), Known(version)) for name, version in given.items()}
    near = examine.nearest_cell(Inventory(facts, complete=frozenset({"pkg"})), matrix, target)
    from_cell = near.cell.pkg if near is not None else {}
    pins = {}
    for name in target.packages:
        version = given.get(name) or from_cell.get(name)
        if version is None:
            raise InputError(
                "--with", f"no measured cell has a version of {name} to take; name one: {name}==…"
            )
        pins[name] = version
    return Combination({**pins, **given})


def _parse_train(given: Sequence[str]) -> dict[str, str | int | bool]:
    """Return the training facts of `--set`, such as `dora=true`.

    Raises:
        InputError: an item is not a training fact.
    """
    from envcheck.core.training_facts import KEYS

    found: dict[str, str | int | bool] = {}
    for setting in given:
        name, _, value = setting.partition("=")
        key = f"train.{name.strip()}"
        if key not in KEYS:
            raise InputError(
                "--set", f"no training fact {name!r}{suggestion(key, list(KEYS), list_all=False)}"
            )
        words: dict[str, str | int | bool] = {"true": True, "false": False}
        found[key] = int(value) if value.isdigit() else words.get(value, value)
    return found


# --- a series of measurements -----------------------------------------------------------------------


class _Series:
    """Measurements of one run: what they share, and one method for each combination."""

    def __init__(self, options: MeasureOptions, target: Target, folder: Path, host: Host, tell: Tell) -> None:
        self._options, self._folder, self._tell = options, folder, tell
        self._host, self._target = host, target
        self._train = _parse_train(options.train)
        self._digest = tests_digest(options.wanted)

    def measure(
        self, combination: Combination, written: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the cells of a combination, and whether any test could not be decided.

        A combination that the written cells hold is not measured again.
        """
        if any(self._is_measurement_of(row, combination) for row in written):
            self._tell(f"{combination}: measured already")
            return [], False
        head = {
            "target": self._target.name,
            "pkg": dict(combination.pins),
            "date": dt.datetime.now(tz=dt.UTC).date(),
            "test": self._digest,
        }
        try:
            environment = _environment(
                combination, self._options.python, self._folder, self._host, self._tell
            )
        except _NotInstallableError as error:
            self._tell(f"{combination}: cannot be installed together")
            return [{**head, "outcome": "not-installable", "device": "none", "signature": str(error)}], False
        outcomes, where = self._run_tests(combination, environment)
        cells = [{**head, **where, **cell} for cell in cells_of(outcomes, self._target)]
        for cell in cells:
            self._tell(f"{combination}: {_cell_in_words(cell)}")
        undecided = [each for each in outcomes if each.result == selftest_outcome.UNKNOWN]
        for each in undecided:
            test = f"{each.claim.name} {each.variant.name}"
            self._tell(f"{combination}: {test} not decided, a fault in the test: {each.why}")
        return cells, bool(undecided)

    def _is_measurement_of(self, row: Mapping[str, Any], combination: Combination) -> bool:
        return has_measured(
            row,
            target=self._options.target,
            pins=combination.pins,
            train={key.removeprefix("train."): value for key, value in self._train.items()},
            ranks=self._options.wanted.ranks,
            digest=self._digest,
        )

    def _run_tests(
        self, combination: Combination, environment: Path
    ) -> tuple[Sequence[selftest_outcome.Outcome], dict[str, str]]:
        """Run the self-tests in an environment; return the outcomes, and the Python and the device used."""
        # The user's PYTHONPATH is removed, because only this environment is measured.
        variables = {name: value for name, value in self._host.environ.items() if name != "PYTHONPATH"}
        host = Host(self._host.root, variables)
        request = ExamineRequest(python=str(environment), overlays=self._options.overlays)
        prepared = selftest.prepare(request, host)
        _refuse_other_versions(combination, prepared.inventory)
        train = {**self._target.train, **self._train}
        prepared = prepared._replace(target=self._target._replace(train=train))
        device = choose_device(self._options.wanted, prepared.inventory)
        outcomes = selftest.run(prepared, self._options.wanted, device, host)
        gpu = str(prepared.inventory.known("gpu.name", 0) or "cuda") if device == "cuda" else "cpu"
        return outcomes, {"python": str(prepared.inventory.known("python.version")), "device": gpu}


def _cell_in_words(cell: Mapping[str, Any]) -> str:
    train = "".join(f" {key}={str(value).lower()}" for key, value in cell.get("train", {}).items())
    run = f"{counted(len(cell['tests']), 'test')}, {cell['seconds']} s"
    return f"{cell['outcome']}{train} ({run}) {cell.get('signature', '')}".rstrip()


def _refuse_other_versions(combination: Combination, inventory: Inventory) -> None:
    """Raise ExamineError if another version than the combination's is installed."""
    for name, version in combination.pins.items():
        here = str(inventory.known(package_key(name)) or "")
        if versions.base_release(here) != versions.base_release(version):
            raise ExamineError(f"{name} {version} was requested and {here or 'none'} is installed")


def tests_digest(options: selftest.SelftestOptions) -> str:
    """Return a digest of all tests that may be run, so that a cell states which tests measured it."""
    import hashlib

    texts = [claim.digest for claim in selftest.claims() if not options.only or claim.name in options.only]
    return f"sha256:{hashlib.sha256(''.join(texts).encode()).hexdigest()[:16]}"


# --- an environment ---------------------------------------------------------------------------------


class _NotInstallableError(Exception):
    """No installer can install the releases together."""


def _environment(
    combination: Combination, python_version: str | None, folder: Path, host: Host, tell: Tell
) -> Path:
    """Return the environment of this torch, with exactly these releases installed.

    Raises:
        _NotInstallableError: the releases exclude one another, or one has no file for this Python.
        ExamineError: the network or the disk failed.
    """
    place = folder / f"torch-{combination.pins['torch']}"
    if not place.is_dir():
        _make_room(folder, tell)
    python = place / "env/bin/python"
    if not python.exists():
        version = ["--python", python_version] if python_version else []
        _run_uv(["venv", "--quiet", str(place / "env"), *version], place, host)
    mark_used(place)
    install = ["pip", "install", "--quiet", "--python", str(python)]
    # DeepSpeed's setup.py imports torch, so torch is installed first and builds are not isolated.
    _run_uv([*install, f"torch=={combination.pins['torch']}", *BUILD_TOOLS], place, host)
    exact = [f"{name}=={version}" for name, version in combination.pins.items()]
    _run_uv([*install, "--no-build-isolation", *exact], place, host)
    return place / "env"


def _make_room(folder: Path, tell: Tell) -> None:
    """Remove the least recently used environments.

    Raises:
        ExamineError: the disk has no room for another environment.
    """
    for old in least_recently_used(folder, "torch-*", KEPT - 1):
        tell(f"removing {old.name}: at most {KEPT} environments are kept")
        remove_folder(old)
    if (free := free_mib(folder)) < FREE_MIB:
        raise ExamineError(f"{folder}: {free} MiB are free, a torch with its CUDA packages needs {FREE_MIB}")


def _run_uv(arguments: Sequence[str], place: Path, host: Host) -> None:
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
    ran = host.run([str(program), *arguments], INSTALL_S, backend_environment(host, index, extra))
    if ran.code is None:
        raise ExamineError(f"uv did not finish within {INSTALL_S:g} s")
    if ran.code:
        output = one_line(redact(ran.err, index, [str(place)]))
        if _EXCLUDES.search(output) and not _UNREACHED.search(output):
            raise _NotInstallableError(output[:300])
        raise ExamineError(f"uv could not install: {output[:300]}")


_EXCLUDES = re.compile(
    r"No solution found|has no wheels|no wheels with a matching|Failed to build|Failed building"
)
"""What uv prints if the releases cannot be installed together."""

_UNREACHED = re.compile(
    r"could not be queried|[Nn]etwork|Failed to (?:fetch|download)|[Tt]imed? ?out|No space left|signal"
)
"""What uv prints if the network, the disk or a signal is at fault, which says nothing about the releases."""
