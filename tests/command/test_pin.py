"""`pin` as a user meets it: which lock is served for which machine, and what is said instead of one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.declared_machine import declare_machine
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.commands.pin.warnings import warnings_on
from envcheck.core.facts import Inventory
from envcheck.core.rules import UserRequirement
from envcheck.lock.leaks import refuse_leaks
from envcheck.lock.model import Lock, Pin
from envcheck.lock.parse import parse_requirements
from tests.support.fake_nvml import library
from tests.support.running import envcheck

PIN = ("pin", "--target", "zero3-lora", "--offline", "--python-version", "3.11")


def version(text: str, name: str) -> str:
    found = re.search(rf"(?m)^{name}==(\S+)", text)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("machine", "torch"),
    [
        (("--driver", "525.60.13"), "2.10.0"),
        (("--driver", "535.104.05", "--gpu", "A100 80GB"), "2.10.0"),
        (("--driver", "570.86.15", "--gpu", "RTX 5090"), "2.10.0"),  # cu128 has sm_120
        (("--driver", "580.95.05", "--gpu", "RTX 5090"), "2.13.0"),
        (("--driver", "580.95.05", "--gpu", "H100"), "2.13.0"),
        (("--driver", "580.95.05", "--gpu", "V100"), "2.10.0"),  # cu130 lost sm_70
        (("--driver", "580.95.05", "--gpu", "T4", "--gpu", "B200"), "2.13.0"),
        ((), "2.10.0"),  # nothing known: the lowest driver floor
    ],
)
def test_the_lock_fits_the_driver_and_the_gpu(machine: tuple[str, ...], torch: str) -> None:
    code, out, err = envcheck(*PIN, *machine)
    assert code == 0, err
    assert version(out, "torch") == torch
    assert "judged by matrix" in err


def test_what_the_lock_trains_badly_on_this_gpu_is_a_warning() -> None:
    code, _, err = envcheck(*PIN, "--driver", "580.95.05", "--gpu", "T4")
    assert code == 0, err
    assert (
        "warning: bf16 is emulated on GPUs before Ampere, and slow (bf16-emulated-before-ampere); "
        "train with train.precision = fp16 instead"
    ) in err.splitlines()
    in_chinese = envcheck(*PIN, "--driver", "580.95.05", "--gpu", "T4", "--lang", "zh").err
    assert re.search(
        r"Ampere 之前.*\(bf16-emulated-before-ampere\)\W+请改用 train.precision = fp16", in_chinese
    )
    assert "warning" not in envcheck(*PIN, "--driver", "580.95.05", "--gpu", "A100").err


def test_a_package_that_the_user_added_and_the_gpu_refuses_is_a_warning() -> None:
    known = loading.knowledge()
    pins = tuple(Pin(name, version, ()) for name, version in (("torch", "2.10.0"), ("flash-attn", "2.8.3")))
    train = tuple((key, str(value).lower()) for key, value in known.targets["sft-trl"].train.items())
    made = Lock(target="sft-trl", python="3.12", platform="linux-x86_64", pins=pins, train=train)

    def notes(gpu: str, *requirements: UserRequirement) -> str:
        machine = declare_machine(Inventory({}), known, driver="550.54.15", gpus=(gpu,))
        goal = LockTarget(
            machine=machine,
            python="3.12",
            platform="linux-x86_64",
            glibc=GLIBC,
            target=known.targets["sft-trl"],
            matrix=known,
            requirements=requirements,
        )
        return "\n".join(warnings_on(made, goal))

    asked = UserRequirement("flash-attn", "", "--with")
    assert "The installed flash-attn refuses this GPU (flash-attn-gpu-floor)" in notes("T4", asked)
    assert "flash-attn" not in notes("A100", asked)
    # A package that something else brought in says nothing about its use.
    assert "flash-attn" not in notes("T4")


def test_a_served_lock_is_complete_and_leaks_nothing() -> None:
    out = envcheck(*PIN, "--driver", "550.54.15").out
    parsed = parse_requirements(out, "stdout")
    assert all(pin.artifacts for pin in parsed.pins)
    assert {"torch", "deepspeed", "transformers", "peft", "accelerate"} <= {pin.name for pin in parsed.pins}
    assert parsed.matrix.startswith("sha256:")
    assert ("train.zero_stage", "3") in parsed.train
    refuse_leaks(out)


def test_a_present_fault_of_the_machine_does_not_refuse_a_lock(tmp_path: Path) -> None:
    """A libcuda of another driver and a GPU that refuses all are errors to doctor; no version mends them."""
    try:
        folder = library(tmp_path / "nvml")
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    (folder / "libcuda.so.535.183.01").write_text("")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.535.183.01")
    scenario = tmp_path / "scenario"
    scenario.write_text("[gpu]\nname = NVIDIA L40S\ncompute_mode = 2\n")
    environ = {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(scenario)}
    seen = envcheck("doctor", "--static", environ=environ)
    assert "libcuda-of-another-driver" in seen.out
    assert "gpu-compute-mode-prohibited" in seen.out
    code, out, err = envcheck(*PIN, environ=environ)
    assert code == 0, err
    assert version(out, "torch") == "2.10.0"


def test_verbose_names_the_shipped_locks_that_do_not_fit() -> None:
    machine = ("--driver", "535.104.05")
    usual, full = envcheck(*PIN, *machine), envcheck(*PIN, *machine, "-v")
    assert (usual.code, full.out) == (0, usual.out)
    assert "rejected" not in usual.err
    more = "rejected: zero3-lora/py311-driver580.txt: needs driver 580.65.06, here 535.104.05\n"
    assert full.err == usual.err + more


def test_quiet_prints_the_same_lock_without_remarks_and_still_prints_errors(tmp_path: Path) -> None:
    usual, quiet = envcheck(*PIN), envcheck(*PIN, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, usual.out, "")
    assert "no driver is known" in usual.err
    assert envcheck(*PIN, "-q", "-o", "lock.txt", cwd=tmp_path) == (0, "", "")
    assert (tmp_path / "lock.txt").read_text() == usual.out
    code, out, err = envcheck(*PIN, "--gpu", "K80", "-q")
    assert (code, out) == (4, "")
    assert "torch-build-lacks-gpu-code" in err
    assert "--quiet: contradicts --verbose" in envcheck(*PIN, "-q", "-v").err


def test_unknown_hardware_is_noted_as_an_assumption() -> None:
    assert "no driver is known" in envcheck(*PIN).err


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (("--driver", "470.223.02"), "needs driver 525.60.13, here 470.223.02"),
        (("--gpu", "K80"), "machine code for the GPU [torch-build-lacks-gpu-code]"),
        (("--python-version", "3.14"), "none is shipped for zero3-lora on Python 3.14"),
    ],
)
def test_if_no_shipped_lock_fits_offline_names_what_is_missing(machine: tuple[str, ...], why: str) -> None:
    code, out, err = envcheck(*PIN, *machine)
    assert (code, out) == (4, "")
    assert why in err
    assert "--offline forbids resolving" in err


def test_an_unsatisfiable_machine_gets_no_lock_and_the_rule_that_forbids_it() -> None:
    code, out, err = envcheck(
        "pin",
        "--target",
        "zero3-lora",
        "--driver",
        "390.157",
        "--gpu",
        "A100 80GB",
        "--resolve",
        "--python-version",
        "3.11",
    )
    assert (code, out) == (4, "")
    assert "driver-below-cuda-family-floor" in err


def test_a_shipped_lock_is_served_without_loading_the_search_or_a_backend() -> None:
    ran = envcheck(*PIN, "--driver", "550.54.15", environ={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {
        line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time")
    }
    assert "envcheck.commands.pin" in loaded
    assert (
        not {
            "envcheck.resolution.resolver",
            "envcheck.resolution.conflicts",
            "envcheck.resolver_backends",
            "envcheck.lock.wheels",
        }
        & loaded
    )


@pytest.mark.network
def test_resolving_anew_gives_the_measured_combination_with_hashes() -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    code, out, err = envcheck(
        "pin", "--target", "zero3-lora", "--driver", "550.54.15", "--resolve", "--python-version", "3.11"
    )
    assert code == 0, err
    assert version(out, "torch") == "2.10.0"
    parse_requirements(out, "stdout")


def test_without_a_target_the_recipes_are_named() -> None:
    ran = envcheck("pin")
    assert ran.code == 2
    assert ran.err.startswith("envcheck: --target: expected a training recipe (`envcheck target` describes")
    assert "zero3-lora" in ran.err
