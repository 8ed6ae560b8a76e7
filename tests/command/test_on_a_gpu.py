"""The one call for a machine with a GPU: here its comparison, and the whole of it without a GPU."""

from __future__ import annotations

import importlib.util

import pytest

from envcheck.core.facts import Fact, Inventory, Known, Value
from tests.support.paths import ROOT

SPEC = importlib.util.spec_from_file_location("on_a_gpu", ROOT / "tools/on_a_gpu.py")
assert SPEC is not None
assert SPEC.loader is not None
on_a_gpu = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(on_a_gpu)
FIELDS, differences, said_by_smi = on_a_gpu.FIELDS, on_a_gpu.differences, on_a_gpu.said_by_smi

SMI = "580.65.06, NVIDIA H200, 143771, 9.0, Default, Disabled, Disabled\n"

FACTS: dict[str, Value] = {
    "gpu.name": "NVIDIA H200",
    "gpu.memory_mib": 143771,
    "gpu.compute_capability": "9.0",
    "gpu.compute_mode": "default",
    "gpu.mig": False,
    "gpu.mig_pending": False,
}


def inventory(**changes: Value) -> Inventory:
    device = {**FACTS, **{f"gpu.{key}": value for key, value in changes.items()}}
    return Inventory(
        {"driver.version": Fact("driver.version", Known("580.65.06"))},
        ({key: Fact(key, Known(value)) for key, value in device.items()},),
    )


def test_every_field_that_agrees_is_said_to() -> None:
    found = list(differences(said_by_smi(SMI), inventory()))
    assert len(found) == 1 + len(FIELDS)
    assert all(same for _, same in found), found


@pytest.mark.parametrize(
    ("change", "value"),
    [("memory_mib", 143770), ("mig", True), ("compute_mode", "prohibited"), ("name", "NVIDIA H100")],
)
def test_a_field_that_differs_is_told(change: str, value: Value) -> None:
    different = [
        line for line, same in differences(said_by_smi(SMI), inventory(**{change: value})) if not same
    ]
    assert len(different) == 1
    assert repr(value) in different[0]


def test_a_gpu_that_one_of_them_misses_is_told() -> None:
    found = dict(differences(said_by_smi(SMI + SMI), inventory()))
    assert found["GPUs: nvidia-smi 2, envcheck 1"] is False


def test_what_nvidia_smi_does_not_know_is_no_difference_where_we_do_not_either() -> None:
    smi = said_by_smi(SMI.replace("Disabled, Disabled", "[N/A], [N/A]"))
    assert all(same for _, same in differences(smi, inventory()))
