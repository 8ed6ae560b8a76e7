"""Machines as trees of files (`trees.toml`), each judged as doctor judges one: facts, findings and exit code.

A tree is added by adding a row. Nothing of a tree is run, nothing is written to it, and nothing of the
machine the tests run on is read for it.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from envcheck import probes
from envcheck.commands import examine, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.core.facts import Absent, Fact, Known
from envcheck.core.findings import Report, Verdict
from envcheck.core.rules import Matrix
from envcheck.host.machine import Host
from envcheck.policy import decision
from tests.support.fake_nvml import LiveTree, library
from tests.support.paths import DATA
from tests.support.running import envcheck
from tests.support.worlds import vocabulary

TABLE: dict[str, Any] = tomllib.loads((DATA / "trees.toml").read_text())
TREES: list[dict[str, Any]] = TABLE["tree"]
SITE = "/opt/venv/lib/python3.11/site-packages"
OURS = ("/proc", "/sys", "/dev", "/etc", "/run", "/var", "/usr/local/cuda", "/tmp/nvidia-mps", "/boot")  # noqa: S108
"""Folders of a machine that these trees contain."""


@lru_cache(maxsize=1)
def known() -> Matrix:
    return loading.load_matrix(vocabulary())


# --- staging ----------------------------------------------------------------------------------------


def stage(root: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree: the files of its shapes, those that its short forms stand for, then its own files."""
    files: dict[str, Any] = {}
    for shape in tree.get("like", ["server"]):
        files |= TABLE["shape"][shape]
    files |= {
        **_python(tree.get("packages", {"torch": "2.6.0+cu124"}), tree.get("hip")),
        **_driver(tree.get("driver", "")),
        **_gpus(tree.get("gpus", []), tree.get("uuids", [])),
        **tree.get("files", {}),
    }
    for name, content in files.items():
        _write(root / name.lstrip("/"), content)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    match content:
        case str():
            path.write_text(content)
        case {"link": str(target)}:
            path.symlink_to(target)
        case {"fifo": True}:
            os.mkfifo(path)
        case {"folder": True}:
            path.mkdir()
        case {"bytes": str(hexadecimal)}:
            path.write_bytes(bytes.fromhex(hexadecimal))
        case {"size": int(size)}:
            with path.open("wb") as file:
                file.truncate(size)
        case _:
            raise AssertionError(f"{path}: a tree cannot hold {content!r}")


def _python(packages: Mapping[str, str], hip: str | None) -> dict[str, str]:
    files = {"/opt/venv/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.9\n", f"{SITE}/README.txt": ""}
    for name, version in packages.items():
        files[f"{SITE}/{name}-{version}.dist-info/METADATA"] = f"Name: {name}\nVersion: {version}\n"
    label = packages.get("torch", "").partition("+cu")[2]
    if "torch" in packages:
        cuda = f"'{label[:-1]}.{label[-1]}'" if label else "None"
        files[f"{SITE}/torch/version.py"] = f"cuda: str = {cuda}\nhip = {hip!r}\ngit_version = 'abc'\n"
    return files


def _driver(version: str) -> dict[str, str]:
    if not version:
        return {}
    banner = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Feb 22 01:44:30 UTC 2024\n"
    return {"/sys/module/nvidia/version": f"{version}\n", "/proc/driver/nvidia/version": banner}


def _gpus(names: list[str], uuids: list[str]) -> dict[str, str]:
    files = {}
    for index, name in enumerate(names):
        address = f"0000:{index + 1:02x}:00.0"
        uuid = uuids[index] if uuids else f"GPU-{index:08d}-0000-0000-0000-000000000000"
        told = f"Model: \t\t {name}\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\n"
        files[f"/sys/bus/pci/devices/{address}/vendor"] = "0x10de\n"
        files[f"/sys/bus/pci/devices/{address}/class"] = "0x030200\n"
        files[f"/proc/driver/nvidia/gpus/{address}/information"] = told
    return files


# --- judging ----------------------------------------------------------------------------------------


def judged(tree: Mapping[str, Any], root: Path, scratch: Path) -> tuple[Report, int]:
    """Return the report on a tree and doctor's exit code, as `examine` does, with the rules loaded once."""
    environ = dict(tree.get("environ", {}))
    if scenario := tree.get("nvml"):
        (scratch / "nvml.ini").write_text(scenario)
        environ |= {"LD_LIBRARY_PATH": str(driver_library()), "FAKE_NVML": str(scratch / "nvml.ini")}
    machine = LiveTree(root, environ) if runs(tree) else Host(root, environ)
    train = []
    for name in ("launch.sh", "ds.json"):
        if text := tree.get(name.partition(".")[0]):
            (scratch / name).write_text(text)
            train.append(str(scratch / name))
    question = ExamineRequest(
        python="/opt/venv", static=True, train=tuple(train), driver=tree.get("declared"), deadline_s=20
    )
    found = probes.every_probe()
    subject, read, remarks = examine.take_inventory(question, machine, found, known(), vocabulary())
    report = examine.report_on(subject, read, known(), None)._replace(diagnostics=remarks)
    return report, decision.decide(report, decision.Policy()).code


def runs(tree: Mapping[str, Any]) -> bool:
    """Return whether a tree is a running machine, where processes may be started."""
    return bool(tree.get("live") or tree.get("nvml"))


@lru_cache(maxsize=1)
def driver_library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="envcheck-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return library(folder)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


def tabulated(fact: Fact) -> object:
    """Return a fact in the form of the table: its value, "absent", or "unknown"."""
    match fact.reading:
        case Known(value):
            return list(value) if isinstance(value, tuple) else value
        case Absent():
            return "absent"
        case _:
            return "unknown"


def fact_of(report: Report, key: str) -> Fact:
    name, _, number = key.partition("@")  # gpu.rank@1 is that of the second GPU
    return report.inventory.fact(name, int(number) if number else None)


def findings(report: Report, among: Sequence[str] = ()) -> list[str]:
    return sorted(
        f"{'undecided' if each.verdict is Verdict.UNDECIDED else each.severity.value} {each.rule.id}"
        for each in report.judgement.findings
        if not among or each.rule.group in among
    )


class Examined(NamedTuple):
    """The report on a tree, doctor's exit code, and the files that were touched."""

    report: Report
    code: int
    changed: bool  # anything in the tree
    inside: bool  # whether anything in it was opened; if not, the audit hook does not work
    outside: tuple[str, ...]  # files of the machine that runs the tests that were opened


@cache
def examined(name: str) -> Examined:
    """Stage and judge a tree, once for all its tests."""
    tree = next(tree for tree in TREES if tree["name"] == name)
    with tempfile.TemporaryDirectory() as folder:
        root, scratch = Path(folder).resolve() / "root", Path(folder) / "scratch"
        root.mkdir()
        scratch.mkdir()
        stage(root, tree)
        known()
        before = snapshot(root)
        with opened_files() as opened:
            report, code = judged(tree, root, scratch)
        inside = [path for path in opened if path.startswith(str(root))]
        outside = tuple(path for path in opened if path.startswith(OURS) and path not in inside)
        return Examined(report, code, snapshot(root) != before, bool(inside), outside)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (status.st_mode, status.st_size, status.st_mtime_ns)
        for path in sorted(root.rglob("*"))
        for status in [path.lstat()]
    }


_OPENED: list[str] = []
_RECORDING: list[bool] = []  # empty while nothing is recorded


def _record_open(event: str, arguments: tuple[object, ...]) -> None:
    if not _RECORDING or event not in ("open", "os.listdir", "os.scandir"):
        return
    if isinstance(arguments[0], str | os.PathLike):
        _OPENED.append(os.path.abspath(os.fspath(arguments[0])))  # noqa: PTH100 - without following links


@lru_cache(maxsize=1)
def install_hook() -> None:
    sys.addaudithook(_record_open)  # once: a hook cannot be removed


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Record every file and folder that this process opens meanwhile."""
    install_hook()
    _OPENED.clear()
    _RECORDING.append(True)
    try:
        yield _OPENED
    finally:
        _RECORDING.clear()


def named(tree: Mapping[str, Any]) -> str:
    return str(tree["name"])


@pytest.mark.parametrize("tree", TREES, ids=named)
def test_a_tree_is_judged_as_its_row_says(tree: dict[str, Any]) -> None:
    report, code, *_ = examined(tree["name"])
    assert not report.inventory.unread, "a probe crashed"
    expected = tree["expect"]
    facts = expected.get("facts", {})
    assert {key: tabulated(fact_of(report, key)) for key in facts} == facts
    assert findings(report, expected.get("among", ())) == sorted(expected.get("findings", []))
    assert code == expected.get("exit", 0)


@pytest.mark.parametrize("tree", TREES, ids=named)
def test_no_fault_of_the_host_suggests_another_torch(tree: dict[str, Any]) -> None:
    for each in examined(tree["name"]).report.judgement.findings:
        if each.rule.group in ("host", "machine"):
            assert not any(key == "pkg.torch" for fix in each.fixes for key, _ in fix.set), each.rule.id


def test_a_newer_driver_is_advised_despite_the_libcuda_of_the_old_one() -> None:
    report = examined("a driver too old for torch, with its own libcuda").report
    ways = [key for each in report.judgement.findings for fix in each.fixes for key, _ in fix.set]
    assert "driver.version" in ways


@pytest.mark.parametrize("tree", [tree for tree in TREES if not runs(tree)], ids=named)
def test_nothing_is_written_to_a_tree_and_nothing_outside_it_is_read(tree: dict[str, Any]) -> None:
    found = examined(tree["name"])
    assert not found.changed
    assert found.inside, "the audit hook recorded nothing"
    assert found.outside == ()


def test_names_of_trees_are_unique() -> None:
    names = [tree["name"] for tree in TREES]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("tree", [tree for tree in TREES if tree.get("gate")], ids=named)
def test_the_command_gives_a_root_the_same_findings(tree: dict[str, Any], tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    stage(root, tree)
    ran = envcheck("gate", "--root", str(root), "--python", "/opt/venv", "--json", cwd=tmp_path)
    assert ran.code == tree["expect"].get("exit", 0), ran.err
    found = json.loads(ran.out)["findings"]
    told = [f"{each['severity']} {each['rule']}" for each in found if each["verdict"] != "conditional"]
    assert sorted(told) == sorted(tree["expect"].get("findings", []))
