"""`gate --runtime`, run as an entrypoint runs it, against the compiled fake of NVIDIA's library."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - tests are users
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envcheck.policy import image_manifest
from tests.support.fake_nvml import HERE
from tests.support.paths import ROOT
from tests.support.running import Outcome, envcheck, surroundings

TREE: dict[str, Any] = {
    "schema_version": 1,
    "envcheck": "0.1.0",
    "date": "2026-11-21",
    "matrix": {"updated": "2026-11-21", "digest": "sha256:00", "overlays": []},
    "gate": {"verdict": "open", "reasons": [], "waived": []},
    "undecided": "warn",
    "target": "zero3-lora",
    "train": {"zero_stage": 3},
    "python": "3.11.2",
    "platform": "linux-x86_64",
    "packages": {"torch": "2.6.0+cu124"},
    "cuda": "12.4",
    "minimum_driver": "525.60.13",
    "cuda_compat": None,
    "architectures": ["sm_80", "sm_86", "sm_90"],
    "unknown": {},
    "machines": [{"name": "a100-r535", "driver": "535.54.03", "gpus": ["A100 80GB"]}],
}

TWO = "driver = 550.54.15\n[gpu]\nname = NVIDIA A100\ncapability = 8.0\n[gpu]\nname = Tesla T4\ncapability = 7.5\n"


@pytest.fixture
def driver(built: Callable[[str], Path]) -> Path:
    return built("")


@pytest.fixture
def start(driver: Path, tmp_path: Path) -> Any:
    """Start on a machine that plays a scenario (a kept one's name, or its text); changes to the manifest."""

    def started(scenario: str, *words: str, environ: dict[str, str] | None = None, **changes: Any) -> Outcome:
        kept = HERE / f"{scenario}.ini"
        if not kept.exists():
            kept = tmp_path / "scenario.ini"
            kept.write_text(scenario)
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps({**TREE, **changes}))
        played = {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML": str(kept), "ENVCHECK_MANIFEST": str(path)}
        return envcheck("gate", "--runtime", *words, cwd=tmp_path, environ={**played, **(environ or {})})

    return started


# --- nodes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "code", "said"),
    [
        ("h100", 0, "gate open: driver 535.161.08, 1 x NVIDIA H100 80GB HBM3\n"),
        ("a100x8", 0, "gate open: driver 550.54.15, 8 x NVIDIA A100-SXM4-80GB\n"),
        ("v100", 1, "gate shut: driver 470.256.02: the image (CUDA 12.4) needs 525.60.13 or newer\n"),
        (
            "t4",
            1,
            "gate shut: GPU 0 (Tesla T4, compute capability 7.5): the torch of this image has code for",
        ),
        ("lost", 1, "gate shut: GPU 1: NVML says 15 GPU lost\n"),
        ("fail nvmlInitWithFlags = 18\n[gpu]\n", 1, "NVML nvmlInit: 18 driver/library version mismatch"),
        ("driver = 550.54.15\n", 1, "gate shut: the driver counts no GPU; the image (CUDA 12.4) needs one\n"),
        (
            "driver = 550.54.15\ncrash = nvmlDeviceGetName\n[gpu]\n",
            3,
            "the driver's library crashed (signal 11)",
        ),
    ],
)
def test_a_start_passes_or_is_stopped(start: Any, scenario: str, code: int, said: str) -> None:
    ran = start(scenario)
    assert ran.code == code, ran
    assert said in ran.out
    assert ran.err == ""


def test_an_image_with_unknown_cuda_is_undecided_without_a_gpu(start: Any) -> None:
    for scenario in ("driver = 550.54.15\n", "fail nvmlInitWithFlags = 9\n[gpu]\n"):
        ran = start(scenario, cuda=None, unknown={"cuda": "no record of the build"})
        assert (ran.code, "None" in ran.out) == (0, False), ran
        assert "undecided: cuda: no record of the build\n" in ran.out
        shut = start(scenario, cuda=None, unknown={"cuda": "no record of the build"}, undecided="fail")
        assert (shut.code, "gate shut: undecided: cuda: " in shut.out) == (1, True)


def test_a_machine_without_a_driver_is_shut_unless_the_image_needs_none(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(TREE))
    environ = {"LD_LIBRARY_PATH": str(tmp_path), "ENVCHECK_MANIFEST": str(path)}
    if envcheck("gate", "--runtime", environ=environ).out.startswith("gate open"):
        pytest.skip("this machine has a driver")
    ran = envcheck("gate", "--runtime", environ=environ)
    assert (ran.code, ran.out.partition(";")[0]) == (
        1,
        "gate shut: no NVIDIA driver library (libnvidia-ml.so.1) was found",
    )
    path.write_text(json.dumps({**TREE, "cuda": "none", "minimum_driver": None, "architectures": None}))
    ran = envcheck("gate", "--runtime", environ=environ)
    assert (ran.code, ran.out) == (
        0,
        "gate open: the torch of this image was built without CUDA, and needs no driver\n",
    )


def test_a_gpu_that_programs_do_not_see_does_not_count(start: Any) -> None:
    assert start(TWO).code == 1
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert start(TWO, environ={"CUDA_VISIBLE_DEVICES": "0", **by_bus}).code == 0
    assert start(TWO, environ={"CUDA_VISIBLE_DEVICES": "1", **by_bus}).code == 1
    assert "hides every GPU" in start(TWO, environ={"CUDA_VISIBLE_DEVICES": ""}).out
    unordered = start(TWO, environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert (unordered.code, unordered.out.startswith("undecided: ")) == (0, True)
    assert start(TWO, environ={"CUDA_VISIBLE_DEVICES": "0"}, undecided="fail").code == 1


def test_what_the_manifest_leaves_unknown_is_undecided(start: Any) -> None:
    unknown = {"minimum_driver": None, "unknown": {"minimum_driver": "a torch of somebody's own"}}
    ran = start("h100", **unknown)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "undecided: minimum_driver: a torch of somebody's own")
    assert start("h100", undecided="fail", **unknown).code == 1
    assert start("h100", undecided="pass", **unknown).out.startswith("gate open")


def test_a_compatibility_package_leaves_an_old_driver_undecided(start: Any) -> None:
    old = "driver = 470.256.02\n[gpu]\nname = NVIDIA A100\ncapability = 8.0\n"
    assert start(old).code == 1
    ran = start(old, cuda_compat="550.54.15")
    assert (ran.code, "cuda-compat in the image may replace it" in ran.out) == (0, True)


def test_an_older_driver_than_any_the_image_was_judged_for_is_noted(start: Any) -> None:
    ran = start("driver = 525.60.13\n[gpu]\nname = NVIDIA A100\ncapability = 8.0\n")
    assert ran.code == 0
    assert ran.out.startswith(
        "note: driver 525.60.13 is older than any driver for which this image was judged (535.54.03)"
    )


def test_an_image_whose_gate_was_shut_does_not_start(start: Any) -> None:
    ran = start("h100", gate={"verdict": "shut", "reasons": ["error a-rule"], "waived": []})
    assert (ran.code, ran.out) == (1, "gate shut: the image did not pass when it was built: error a-rule\n")


def test_a_hanging_driver_is_abandoned_at_the_deadline(start: Any) -> None:
    began = time.monotonic()
    ran = start("driver = 550.54.15\nhang = nvmlDeviceGetName\n[gpu]\n", "--timeout", "0.5")
    assert time.monotonic() - began < 20
    assert (ran.code, ran.out) == (3, "could not examine: the driver did not answer within 0.5 s\n")


def test_a_hanging_driver_that_is_too_old_still_shuts_the_gate(start: Any) -> None:
    ran = start("driver = 470.256.02\nhang = nvmlDeviceGetName\n[gpu]\n", "--timeout", "0.5")
    assert (ran.code, ran.out.startswith("gate shut: driver 470.256.02")) == (1, True)


def test_no_name_from_the_driver_acts_on_a_terminal(start: Any) -> None:
    ran = start("garbage")
    assert ran.out.isascii()
    assert not [char for char in ran.out if char < " " and char != "\n"]


def test_the_result_as_json(start: Any) -> None:
    said = json.loads(start("a100x8", "--json").out)
    assert (said["code"], said["driver"], len(said["gpus"])) == (0, "550.54.15", 8)
    assert said["gpus"][0] == {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0"}


# --- wrong use --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: "),
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ("\xff\xfe", "not JSON: "),
        ("[]", "not a manifest of envcheck gate"),
        ("{}", "not a manifest of envcheck gate"),
        (json.dumps({**TREE, "schema_version": 2}), "schema_version 2: this envcheck reads 1"),
        (json.dumps({**TREE, "schema_version": [True]}), "schema_version [True]: this envcheck reads 1"),
        (json.dumps({**TREE, "gate": {}}), "gate.verdict: expected open or shut"),
        (json.dumps({**TREE, "gate": {"verdict": "open", "reasons": 3}}), "expected lists of strings"),
        (json.dumps({**TREE, "undecided": "Fail"}), "undecided: expected pass, warn or fail"),
        (json.dumps({**TREE, "architectures": [80]}), "expected lists of strings"),
        (
            json.dumps({**TREE, "minimum_driver": "new"}),
            "minimum_driver: expected a version such as 525.60.13",
        ),
        (json.dumps({key: TREE[key] for key in TREE if key != "cuda"}), "cuda: missing or of the wrong kind"),
        ("x" * (5 * 1024 * 1024), "larger than 4194304 bytes"),
    ],
)
def test_a_broken_manifest_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(text.encode("latin-1"))
    ran = envcheck("gate", "--runtime", "--manifest", str(path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"envcheck: {path}: ")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_missing_manifest_or_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, said in (
        ("none.json", "no such file; `envcheck gate` writes it"),
        ("fifo", "not JSON"),
        ("", "is a directory"),
    ):
        ran = envcheck("gate", "--runtime", f"--manifest={tmp_path / name}")
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target", "zero3-lora"), "'--target' does not go with --runtime"),
        (("--timeout", "soon"), "--timeout: expected seconds from 0.1 to 600, found 'soon'"),
        (("--timeout", "nan"), "--timeout: expected seconds from 0.1 to 600, found 'nan'"),
        (("--manifest",), "--manifest needs a value"),
    ],
)
def test_wrong_use_is_one_line(words: tuple[str, ...], said: str) -> None:
    ran = envcheck("gate", "--runtime", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path, driver: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(TREE))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(driver)}  # noqa: TID251
    environ |= {"FAKE_NVML": str(HERE / "h100.ini"), "ENVCHECK_MANIFEST": str(tmp_path / "manifest.json")}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "envcheck", "gate", "--runtime"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environ,
        )  # fmt: skip
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)


def test_closed_streams_change_no_verdict(tmp_path: Path, driver: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(TREE))
    environ = {"LD_LIBRARY_PATH": str(driver), "ENVCHECK_MANIFEST": str(tmp_path / "manifest.json")}
    for scenario, code in (("h100", 0), ("t4", 1)):
        ran = subprocess.run(
            ["/bin/sh", "-c", f"exec {sys.executable} -P -m envcheck gate --runtime <&- >&- 2>&-"],
            timeout=60, check=False, env=surroundings({**environ, "FAKE_NVML": str(HERE / f"{scenario}.ini")}),
        )  # fmt: skip
        assert ran.returncode == code


# --- what it imports --------------------------------------------------------------------------------


def test_it_imports_the_standard_library_and_two_modules_of_plain_values(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(TREE))
    program = (
        "import sys; sys.argv[1:] = ['gate', '--runtime']; from envcheck.commands import gate_runtime\n"
        "gate_runtime.run(['gate', '--runtime'])\n"
        "ours = sorted(m for m in sys.modules if m.startswith('envcheck'))\n"
        "other = [m for m in sys.modules if m.partition('.')[0] not in sys.stdlib_module_names and m not in ours]\n"
        "print(ours, [m for m in other if not m.startswith('__')], 'typing' in sys.modules, file=sys.stderr)"
    )
    environ = {
        "PATH": "/usr/bin",
        "PYTHONPATH": str(ROOT),
        "ENVCHECK_MANIFEST": str(tmp_path / "manifest.json"),
    }
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environ,
    )
    ours = [
        "envcheck",
        "envcheck.commands",
        "envcheck.commands.gate_runtime",
        "envcheck.core",
        "envcheck.core.nvidia",
        "envcheck.policy",
        "envcheck.policy.image_manifest",
    ]
    assert ran.stderr.strip() == f"{ours} [] False"


@pytest.mark.parametrize(
    ("one", "other"), [("570.26", "570.124.06"), ("535.54.03", "535.104.05"), ("9.1", "10")]
)
def test_drivers_compare_part_by_part(one: str, other: str) -> None:
    assert image_manifest.driver_order(one) < image_manifest.driver_order(other)


@pytest.mark.parametrize("text", ["", "new", "550.", "550.54-15", "\u0665\u0665\u0660.1", "9" * 40])
def test_text_that_is_no_driver_version_has_no_order(text: str) -> None:
    assert image_manifest.driver_order(text) == ()
