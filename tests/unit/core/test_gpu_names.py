"""GPU names as people, tools and clouds write them."""

from __future__ import annotations

import pytest

from envcheck import probes
from envcheck.commands import loading
from envcheck.commands.declared_machine import declare_machine, declared_gpu
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.gpu_names import other_vendor
from envcheck.rules import derive

MATRIX = loading.load_matrix(loading.vocabulary(probes.every_probe()), ())


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("3090", "NVIDIA GeForce RTX 3090"),
        ("3090ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("RTX5090", "NVIDIA GeForce RTX 5090"),
        ("4080 SUPER", "NVIDIA GeForce RTX 4080 SUPER"),
        ("4090D", "NVIDIA GeForce RTX 4090 D"),
        ("rtx3060 mobile", "NVIDIA GeForce RTX 3060 Laptop GPU"),
        ("Tesla P40", "Tesla P40"),
        ("V100-SXM2-32GB", "Tesla V100-SXM2-32GB"),
        ("A100-80G", "NVIDIA A100-SXM4-80GB"),
        ("A100 PCIe 40GB", "NVIDIA A100-PCIE-40GB"),
        ("H100-SXM5-80GB", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA(R) RTX(TM) 4000 Ada", "NVIDIA RTX 4000 Ada Generation"),
        ("A6000", "NVIDIA RTX A6000"),
        ("RTX PRO 6000 Max-Q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
        ("Orin", "Jetson AGX Orin"),
        ("Jetson Nano", "Jetson Nano"),
        ("GB200 NVL72", "NVIDIA GB200"),
        ("H20-3e", "NVIDIA H20"),
        ("Tesla V100-DGXS-32GB", "Tesla V100-DGXS-32GB"),
        ("RTX PRO 4000 Blackwell SFF", "NVIDIA RTX PRO 4000 Blackwell SFF Edition"),
    ],
)
def test_a_name_is_understood_as_people_write_it(query: str, name: str) -> None:
    assert declared_gpu(query, MATRIX) == ("gpu.name", name)


@pytest.mark.parametrize(
    ("query", "capability"),
    [("H100 96GB", "9.0"), ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0"), ("RTX A4000 Laptop GPU", "8.6")],
)
def test_of_an_unlisted_variant_only_the_chip_is_certain(query: str, capability: str) -> None:
    assert declared_gpu(query, MATRIX) == ("gpu.compute_capability", capability)


@pytest.mark.parametrize(
    "query",
    [
        *("RX 7900 XTX", "MI300X", "Arc A770", "Blackwell", "RTX", "Tesla", "Voodoo 2", "A1000000", "RTX 6000"),
        *("Titan X", "NVIDIA Graphics Device", "M2 Ultra"),
    ],
)  # fmt: skip
def test_what_is_unknown_or_may_be_several_chips_is_refused(query: str) -> None:
    with pytest.raises(InputError):
        declared_gpu(query, MATRIX)


@pytest.mark.parametrize(
    ("query", "vendor"),
    [("MI300X", "AMD"), ("gfx942", "AMD"), ("RX 7900 XTX", "AMD"), ("Arc B580", "Intel"), ("Gaudi 2", "Intel"),
     ("Ascend 910B", "Huawei"), ("910B3", "Huawei"), ("M3 Max", "Apple"), ("TPU v5e", "Google")],
)  # fmt: skip
def test_an_accelerator_of_another_vendor_is_answered_with_whose_it_is(query: str, vendor: str) -> None:
    with pytest.raises(InputError, match=f"made by {vendor}"):
        declared_gpu(query, MATRIX)


def test_no_gpu_of_the_table_is_taken_for_one_of_another_vendor() -> None:
    rows = MATRIX.tables["other_accelerator"]
    names = [name for model in MATRIX.tables.gpu_models for name in model.names]
    assert not [name for name in names if other_vendor(name, rows)]


@pytest.mark.parametrize("query", ["ecs.gn7i-c8g1.2xlarge", "CPU"])
def test_an_unknown_name_is_quoted_as_it_was_given(query: str) -> None:
    with pytest.raises(InputError, match=repr(query)):
        declare_machine(Inventory(), MATRIX, gpus=(query,))


@pytest.mark.parametrize(
    ("query", "name", "count"),
    [
        ("p4d.24xlarge", "NVIDIA A100-SXM4-40GB", 8),
        ("a3-highgpu-8g", "NVIDIA H100 80GB HBM3", 8),
        ("a2-highgpu-2g", "NVIDIA A100-SXM4-40GB", 2),
        ("ND H100 v5", "NVIDIA H100 80GB HBM3", 8),
        ("Standard_NC24ads_A100_v4", "NVIDIA A100 80GB PCIe", 1),
        ("g5.12xlarge", "NVIDIA A10G", 4),
        ("8xH100", "NVIDIA H100 80GB HBM3", 8),
        ("2x3090", "NVIDIA GeForce RTX 3090", 2),
        ("A100 80GB x4", "NVIDIA A100-SXM4-80GB", 4),
        ("A100*8", "NVIDIA A100-SXM4-80GB", 8),
        ("8卡A100", "NVIDIA A100-SXM4-80GB", 8),
        ("3090 24G*2", "NVIDIA GeForce RTX 3090", 2),
        ("ml.p4d.24xlarge", "NVIDIA A100-SXM4-40GB", 8),
        ("BM.GPU.H100.8", "NVIDIA H100 80GB HBM3", 8),
        ("g4-standard-192", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 4),
        ("nvidia-tesla-a100", "NVIDIA A100-SXM4-40GB", 1),
    ],
)
def test_instance_types_and_counts_declare_all_their_gpus(query: str, name: str, count: int) -> None:
    declared = declare_machine(Inventory(), MATRIX, gpus=(query,))
    assert [device["gpu.name"].value for device in declared.devices] == [name] * count


def test_every_gpu_of_an_instance_type_is_in_the_table() -> None:
    names = {model.name for model in MATRIX.tables.gpu_models}
    assert {row["gpu"] for row in MATRIX.tables["cloud_instance"]} <= names


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 4070 Ti SUPER 16GB", "8.9"),
        ("NVIDIA A100-SXM...", "8.0"),
        ("NVIDIA GeForce ...", None),
        ("AMD Instinct MI250X", None),
    ],
)
def test_the_name_that_facts_state_is_understood_too(name: str, capability: str | None) -> None:
    device = {"gpu.name": Fact("gpu.name", Known(name), "facts.toml")}
    inventory = Inventory({"gpus.count": Fact("gpus.count", Known(1), "facts.toml")}, (device,))
    assert derive.derive(inventory, MATRIX).known("gpu.compute_capability", 0) == capability


@pytest.mark.parametrize(
    ("driver", "version"),
    [("12.8", "570.26"), ("CUDA Version: 12.4", "550.54.14"), ("535.104.05", "535.104.05"), ("580", "580.65.06"), ("565", "565")],
)  # fmt: skip
def test_a_driver_may_be_declared_by_its_cuda_version(driver: str, version: str) -> None:
    assert declare_machine(Inventory(), MATRIX, driver=driver).known("driver.version") == version


def test_a_cuda_version_that_no_driver_reports_is_refused() -> None:
    with pytest.raises(InputError, match=r"no driver is known that reports CUDA 19\.9"):
        declare_machine(Inventory(), MATRIX, driver="19.9")


@pytest.mark.parametrize(
    ("query", "arch", "glibc"),
    [("Thor", "aarch64", None), ("GH200", "aarch64", None), ("H200", "x86_64", "2.36")],
)
def test_a_gpu_that_comes_with_one_processor_alone_declares_it(
    query: str, arch: str, glibc: str | None
) -> None:
    probed = Inventory().with_facts(
        [
            Fact("host.arch", Known("x86_64"), "uname"),
            Fact("host.glibc", Known("2.36"), "ldd"),
            Fact("pkg.torch", Known("2.9.1"), "METADATA"),
        ]
    )
    declared = declare_machine(probed, MATRIX, gpus=(query,))
    found = tuple(declared.known(key) for key in ("host.arch", "host.glibc", "pkg.torch"))
    assert found == (arch, glibc, "2.9.1")
