"""`doctor` from end to end: from a simulated driver and files on disk to findings and an exit code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fake_nvml import HERE
from tests.support.running import Outcome, envcheck

if Path("/sys/module/nvidia").exists():
    pytest.skip(
        "this machine has a real driver, which takes precedence over the simulated one",
        allow_module_level=True,
    )


@pytest.fixture
def nvml(built: Callable[[str], Path]) -> Path:
    return built("")


def environment(folder: Path, torch: str, cuda: str | None, **packages: str) -> Path:
    """Create an environment on disk, in which torch/version.py states the CUDA of its build."""
    site = folder / "lib/python3.11/site-packages"
    (site / "torch").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.9\n")
    (site / "torch/version.py").write_text(f"__version__ = {torch!r}\ncuda: str | None = {cuda!r}\n")
    (site / "torch/__init__.py").write_text("raise SystemExit('imported')\n")
    for name, version in {"torch": torch, **packages}.items():
        record = site / f"{name}-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n")
        (record / "RECORD").write_text("")
    return folder


def doctor(nvml: Path, scenario: Path, python: Path, *more: str, **environ: str) -> Outcome:
    played = {"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML": str(scenario), **environ}
    return envcheck("doctor", "--python", str(python), "--static", "--json", *more, environ=played)


def findings(outcome: Outcome) -> dict[str, str]:
    return {each["rule"]: each["severity"] for each in json.loads(outcome.out)["findings"]}


def scenario(folder: Path, name: str, **changes: str) -> Path:
    """Return a copy of a stored driver scenario with some lines changed."""
    lines = (HERE / f"{name}.ini").read_text().splitlines()
    changed = [
        next((f"{k} = {v}" for k, v in changes.items() if line.startswith(f"{k} =")), line) for line in lines
    ]
    path = folder / "scenario.ini"
    path.write_text("\n".join(changed) + "\n")
    return path


@pytest.mark.parametrize(
    ("machine", "driver", "torch", "cuda", "expected"),
    [
        ("a100x8", "535.104.05", "2.6.0", "12.4", set()),  # minor-version compatibility: 12.x runs from 525
        ("a100x8", "535.104.05", "2.10.0", "12.8", set()),
        ("a100x8", "535.104.05", "2.13.0", "13.0", {"driver-below-cuda-family-floor"}),
        ("a100x8", "580.65.06", "2.13.0", "13.0", set()),
        ("rtx5090", "580.95.05", "2.6.0", "12.4", {"torch-build-lacks-gpu-code"}),
        ("rtx5090", "580.95.05", "2.7.1", "12.6", {"torch-build-lacks-gpu-code"}),  # no sm_120 in cu126
        ("rtx5090", "580.95.05", "2.10.0", "12.8", set()),
        ("v100", "535.104.05", "2.10.0", "12.8", set()),
        (
            "v100",
            "580.95.05",
            "2.11.0",
            "13.0",
            {"torch-build-lacks-gpu-code"},
        ),  # no sm_70 in the default build
        ("b200", "580.95.05", "2.10.0", "12.8", set()),
        ("t4", "550.54.15", "2.6.0", "12.4", set()),
        ("h100", "550.54.15", "2.6.0", "12.4", set()),
    ],
)
def test_driver_gpu_and_torch_build_are_judged_together(
    nvml: Path, tmp_path: Path, machine: str, driver: str, torch: str, cuda: str, expected: set[str]
) -> None:
    python = environment(tmp_path / "env", torch, cuda)
    outcome = doctor(nvml, scenario(tmp_path, machine, driver=driver), python)
    errors = {rule for rule, severity in findings(outcome).items() if severity == "error"}
    assert errors == expected, outcome.out
    assert outcome.code == (1 if expected else 0)


def test_doctor_imports_no_package_of_the_environment(nvml: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", "2.6.0", "12.4")
    assert "imported" not in doctor(nvml, HERE / "a100x8.ini", python).err


def test_a_hidden_gpu_is_ignored_and_one_unsuitable_gpu_of_several_is_a_warning(
    nvml: Path, tmp_path: Path
) -> None:
    mixed = tmp_path / "mixed.ini"
    mixed.write_text(
        "driver = 580.95.05\ncuda = 13000\n"
        "[gpu]\nname = NVIDIA A100-SXM4-80GB\nmemory = 85899345920\ncapability = 8.0\n"
        "[gpu]\nname = Tesla V100-SXM2-16GB\nmemory = 17179869184\ncapability = 7.0\n"
    )
    python = environment(tmp_path / "env", "2.13.0", "13.0")
    both = doctor(nvml, mixed, python, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert findings(both)["torch-build-lacks-gpu-code"] == "warning"
    (finding,) = [
        each for each in json.loads(both.out)["findings"] if each["rule"] == "torch-build-lacks-gpu-code"
    ]
    assert finding["devices"] == [1]
    assert "CUDA_VISIBLE_DEVICES=0 " in finding["note"]
    hidden = doctor(nvml, mixed, python, CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="0")
    assert "torch-build-lacks-gpu-code" not in findings(hidden)


def test_a_hanging_driver_is_reported_in_time_and_packages_are_still_judged(
    nvml: Path, tmp_path: Path
) -> None:
    hanging = tmp_path / "hang.ini"
    hanging.write_text(
        "hang = nvmlDeviceGetMemoryInfo\ndriver = 550.54.15\n[gpu]\nname = NVIDIA A100-SXM4-80GB\ncapability = 8.0\n"
    )
    python = environment(tmp_path / "env", "2.4.0", "12.1", deepspeed="0.14.0")
    begun = time.monotonic()
    outcome = doctor(nvml, hanging, python, "--timeout", "2")
    assert time.monotonic() - begun < 2 + 3
    assert "deepspeed-elastic-log-import-torch24" in findings(outcome)
    facts = json.loads(outcome.out)["facts"]
    assert "did not answer" in facts["unknown"]["gpu[0].memory_mib"]
    assert facts["gpu"][0]["name"] == "NVIDIA A100-SXM4-80GB"


def test_the_combined_advice_of_two_articles_is_an_error(nvml: Path, tmp_path: Path) -> None:
    """DeepSpeed 0.14.0 and torch 2.4.0, each recommended by an article, do not import together."""
    python = environment(tmp_path / "env", "2.4.0", "12.1", deepspeed="0.14.0")
    outcome = doctor(nvml, HERE / "a100x8.ini", python)
    assert outcome.code == 1
    (finding,) = [each for each in json.loads(outcome.out)["findings"] if each["severity"] == "error"]
    assert finding["fix"][0]["set"] == {"pkg.deepspeed": ">=0.14.4"}


def test_facts_are_judged_the_same_on_another_machine(nvml: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", "2.13.0", "13.0")
    played = {"LD_LIBRARY_PATH": str(nvml), "FAKE_NVML": str(HERE / "a100x8.ini")}
    taken = envcheck("facts", "--python", str(python), "--static", environ=played)
    assert taken.code == 0
    (tmp_path / "facts.json").write_text(taken.out)
    there = envcheck("doctor", "--facts", str(tmp_path / "facts.json"), "--json")
    here = envcheck("doctor", "--python", str(python), "--static", "--json", environ=played)
    assert findings(there) == findings(here)
    assert "driver-below-cuda-family-floor" in findings(there)
