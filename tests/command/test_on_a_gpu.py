"""tools/on_a_gpu.py: its comparison of nvidia-smi with the probes, which needs no GPU."""

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
FIELDS, differences, parse_smi = on_a_gpu.FIELDS, on_a_gpu.differences, on_a_gpu.parse_smi

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


def test_equal_fields_are_reported_as_the_same() -> None:
    found = list(differences(parse_smi(SMI), inventory()))
    assert len(found) == 1 + len(FIELDS)
    assert all(same for _, same in found), found


@pytest.mark.parametrize(
    ("change", "value"),
    [("memory_mib", 143770), ("mig", True), ("compute_mode", "prohibited"), ("name", "NVIDIA H100")],
)
def test_a_field_that_differs_is_reported(change: str, value: Value) -> None:
    different = [line for line, same in differences(parse_smi(SMI), inventory(**{change: value})) if not same]
    assert len(different) == 1
    assert repr(value) in different[0]


def test_a_gpu_that_only_one_side_lists_is_reported() -> None:
    found = dict(differences(parse_smi(SMI + SMI), inventory()))
    assert found["GPUs: nvidia-smi 2, envcheck 1"] is False


def test_a_field_that_neither_side_knows_is_no_difference() -> None:
    smi = parse_smi(SMI.replace("Disabled, Disabled", "[N/A], [N/A]"))
    assert all(same for _, same in differences(smi, inventory()))
