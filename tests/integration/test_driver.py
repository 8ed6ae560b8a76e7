"""The driver probe against a compiled fake of NVIDIA's library, and against staged files."""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - to see what a fresh interpreter imports
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envcheck.core.facts import Absent, Inventory, Kind, Known, Unknown
from envcheck.core.nvidia import visible_gpus
from envcheck.host.machine import Host
from envcheck.probes import ProbeRequest, every_probe, health, nvml, survey
from envcheck.probes.driver import PROBE, YIELDS, smi_rows
from envcheck.probes.visible import visibility
from tests.support.fake_nvml import Box
from tests.support.paths import ROOT

DEADLINE_S = 1.5

DEVICE_KEYS = {
    "nvmlDeviceGetName": ("gpu.name", "gpu.memory_shared"),
    "nvmlDeviceGetMemoryInfo": (
        "gpu.memory_mib",
        "gpu.memory_free_mib",
        "gpu.memory_used_mib",
        "gpu.memory_shared",
    ),
    "nvmlDeviceGetCudaComputeCapability": ("gpu.compute_capability",),
    "nvmlDeviceGetComputeMode": ("gpu.compute_mode",),
    "nvmlDeviceGetMigMode": ("gpu.mig", "gpu.mig_pending", "gpu.mig_instances"),
    "nvmlDeviceGetUUID": (),
}
MACHINE_KEYS = {
    "nvmlSystemGetNVMLVersion": "driver.library",
    "nvmlSystemGetDriverVersion": "driver.version",
    "nvmlSystemGetCudaDriverVersion_v2": "cuda.driver",
}
ESSENTIAL = {"nvmlInitWithFlags": "nvmlInit", "nvmlDeviceGetCount_v2": "nvmlDeviceGetCount"}
THREE = "fail nvmlDeviceGetMemoryInfo_v2 = 13\n[gpu]\nmig = 0\n[gpu]\nmig = 0\n{}\n[gpu]\nmig = 0\n"
"""Three A100 with a driver that has one call for memory; the braces take settings of the middle GPU."""
ON_THE_BUS = {"gpus.on_bus", "gpus.nvswitches", "gpus.numa_nodes"}
"""Unknown on a fake machine, which has no bus."""


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def probed(host: Host, deadline_s: float = 20.0) -> Inventory:
    """Return what the probe reads; by default with a long deadline, because the machine may be busy."""
    return PROBE.begin(host, ProbeRequest(deadline_s=deadline_s))()


def why(inventory: Inventory, key: str, gpu: int | None = None) -> str:
    """Return why a fact is not known; empty if it is."""
    reading = inventory.fact(key, gpu).reading
    return reading.why if isinstance(reading, Unknown) else ""


def unknown_keys(inventory: Inventory, gpu: int) -> set[str]:
    return {key for key, fact in inventory.devices[gpu].items() if isinstance(fact.reading, Unknown)}


# --- healthy cards ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "versions", "card"),
    [
        ("h100", ("535.161.08", "12.2"), ("NVIDIA H100 80GB HBM3", 81559, "9.0", "default")),
        ("rtx5090", ("570.86.10", "12.8"), ("NVIDIA GeForce RTX 5090", 32607, "12.0", "default")),
        ("v100", ("470.256.02", "11.4"), ("Tesla V100-SXM2-32GB", 32768, "7.0", "exclusive_process")),
        ("t4", ("525.147.05", "12.0"), ("Tesla T4", 15360, "7.5", "default")),
        ("b200", ("580.65.06", "13.0"), ("NVIDIA B200", 183359, "10.0", "default")),
    ],
)
def test_all_facts_of_a_card_are_read(
    box: Box, scenario: str, versions: tuple[str, str], card: tuple[str, int, str, str]
) -> None:
    inventory = probed(box.host(scenario))
    driver, cuda = versions
    name, memory_mib, capability, mode = card
    assert inventory.known("driver.version") == driver
    assert inventory.known("driver.library") == driver
    assert inventory.fact("driver.error").reading == Absent()
    assert inventory.known("cuda.driver") == cuda
    assert inventory.known("gpus.count") == 1
    assert inventory.known("gpus.models") == (name,)
    assert {key: fact.value for key, fact in inventory.devices[0].items() if key not in health.FACTS} == {
        "gpu.error": None,
        "gpu.name": name,
        "gpu.memory_mib": memory_mib,
        "gpu.memory_free_mib": memory_mib,
        "gpu.memory_used_mib": 0,
        "gpu.memory_shared": False,
        "gpu.compute_capability": capability,
        "gpu.mig": False,
        "gpu.mig_pending": False,
        "gpu.mig_instances": 0,
        "gpu.compute_mode": mode,
        "gpu.visible": True,
        "gpu.rank": 0,
    }
    assert unknown_keys(inventory, 0) == set()


def test_eight_equal_cards_are_eight_devices_and_one_model(box: Box) -> None:
    inventory = probed(box.host("a100x8"))
    assert inventory.known("gpus.count") == 8
    assert inventory.known("gpus.models") == ("NVIDIA A100-SXM4-80GB",)
    assert {inventory.known("gpu.memory_mib", gpu) for gpu in range(8)} == {81920}
    assert {inventory.known("gpu.memory_free_mib", gpu) for gpu in range(8)} == {81489}
    assert len(inventory.devices) == 8


def test_every_fact_is_declared_of_its_kind_and_says_its_source(box: Box) -> None:
    inventory = probed(box.host("mig"))
    types = {Kind.VERSION: str, Kind.WORD: str, Kind.NUMBER: int, Kind.FLAG: bool, Kind.WORDS: tuple}
    facts = [*inventory.facts.values(), *(fact for device in inventory.devices for fact in device.values())]
    assert {fact.key for fact in facts} == set(YIELDS)
    for fact in facts:
        assert fact.source
        assert fact.value is None or type(fact.value) is types[YIELDS[fact.key].kind]


def test_uuids_are_never_facts(box: Box) -> None:
    assert "GPU-" not in repr(probed(box.host("a100x8", {"CUDA_VISIBLE_DEVICES": "GPU-fa4e0001"})))


def test_the_driver_probe_is_found_once() -> None:
    assert [probe.name for probe in every_probe()].count("driver") == 1


def test_nothing_loads_pynvml_or_ctypes_in_our_own_process() -> None:
    program = (
        "import sys; from envcheck.host.machine import Host; from envcheck.probes import ProbeRequest, driver\n"
        "driver.PROBE.begin(Host(), ProbeRequest())()\n"
        "assert not {'pynvml', 'ctypes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=ROOT)


def test_the_running_machine_is_read_with_its_own_files(tmp_path: Path, built: Callable[[str], Path]) -> None:
    scenario = tmp_path / "scenario"
    scenario.write_text("[gpu]\nname = Real Host, Fake Card\n")
    environ = {"LD_LIBRARY_PATH": str(built("")), "FAKE_NVML": str(scenario)}
    inventory = survey(Host(environ=environ), ProbeRequest(deadline_s=20), [PROBE])
    assert inventory.known("gpu.name", 0) == "Real Host, Fake Card"


@pytest.mark.parametrize(
    "variable", ["PYTHONHOME=/nowhere", "PYTHONPATH=.", "PYTHONSTARTUP=/x", "PYTHONWARNINGS=error"]
)
def test_python_variables_of_the_user_do_not_reach_the_child(box: Box, variable: str) -> None:
    box.put("json.py", "raise SystemExit('shadowed')").put("pynvml.py", "raise SystemExit('shadowed')")
    name, _, value = variable.partition("=")
    environ = {name: str(box.root) if value == "." else value}
    assert probed(box.host("h100", environ)).known("gpus.count") == 1


def test_what_the_library_prints_does_not_mix_with_its_answers(box: Box) -> None:
    inventory = probed(box.host("chatty = 1\n[gpu]\n"))
    assert inventory.known("gpus.count") == 1
    assert len(inventory.devices) == 1


# --- MIG ----------------------------------------------------------------------------------------------


def test_mig_mode_is_read_for_each_card_now_and_after_the_next_reset(box: Box) -> None:
    inventory = probed(box.host("mig"))
    told = [
        tuple(inventory.known(key, gpu) for key in ("gpu.mig", "gpu.mig_pending", "gpu.mig_instances"))
        for gpu in range(4)
    ]
    assert told == [(False, False, 0), (True, True, 3), (True, True, 0), (False, True, 0)]
    assert "MIG is on" in inventory.fact("gpu.memory_mib", 1).source
    assert "MIG" not in inventory.fact("gpu.memory_mib", 0).source


def test_an_error_while_counting_mig_devices_is_not_zero_devices(box: Box) -> None:
    scenario = "[gpu]\nmig = 1\nfail nvmlDeviceGetMigDeviceHandleByIndex = 4\n"
    inventory = probed(box.host(scenario))
    assert "no permission" in why(inventory, "gpu.mig_instances", 0)
    assert inventory.known("gpu.mig", 0) is True


# --- codes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "word", "said"),
    [
        (18, "18 driver/library version mismatch", "kernel module 550.54.14, library 550.54.15"),
        (9, "9 driver not loaded", "kernel module is not loaded"),
        (999, "999 unknown error", "kernel log"),
        (12, "12 library not found", "could not be loaded"),
        (4, "4 no permission", "/dev/nvidiactl"),
        (15, "15 GPU lost", "15 GPU lost"),
        (17, "17 blocked by the operating system", "17"),
        (28, "28 no GPU found", "28"),
        (4711, "4711 not a code this envcheck knows", "4711"),
    ],
)
def test_a_driver_that_does_not_start_is_reported_with_its_code(
    box: Box, code: int, word: str, said: str
) -> None:
    box.put("/sys/module/nvidia/version", "550.54.14\n").with_gpus(2, ["NVIDIA A100-SXM4-80GB"] * 2)
    inventory = probed(box.host(f"fail nvmlInitWithFlags = {code}\n[gpu]\n"))
    assert inventory.known("driver.error") == word
    assert said in why(inventory, "cuda.driver")
    assert said in inventory.fact("driver.error").source
    assert inventory.known("driver.version") == "550.54.14"
    assert inventory.known("gpus.count") == 2
    assert inventory.known("gpus.models") == ("NVIDIA A100-SXM4-80GB",)
    assert why(inventory, "gpu.memory_mib", 1)


def test_a_mismatch_keeps_both_versions_as_facts(box: Box) -> None:
    box.put("/sys/module/nvidia/version", "550.54.14\n")
    inventory = probed(box.host("fail nvmlInitWithFlags = 18\n[gpu]\n"))
    assert inventory.known("driver.version") == "550.54.14"
    assert inventory.known("driver.library") == "550.54.15"


def test_in_a_container_error_999_means_that_its_devices_are_gone(box: Box) -> None:
    box.put("/.dockerenv").with_gpus(8)
    inventory = probed(box.host("fail nvmlInitWithFlags = 999\n[gpu]\n"))
    assert inventory.known("driver.error") == "999 unknown error"
    assert "systemctl daemon-reload" in why(inventory, "gpus.count")
    assert inventory.devices == ()  # the bus shows the host's cards, not the container's
    assert why(inventory, "gpu.name")


def test_without_the_kernel_module_nouveau_is_named(box: Box) -> None:
    box.put("/sys/module/nouveau/version").with_gpus(1)
    inventory = probed(box.host("fail nvmlInitWithFlags = 9\n[gpu]\n"))
    assert inventory.fact("driver.version").reading == Absent()
    assert "nouveau" in inventory.fact("driver.version").source
    assert "nouveau" in why(inventory, "cuda.driver")


def test_counting_that_fails_is_a_failure_of_the_driver(box: Box) -> None:
    inventory = probed(box.host("fail nvmlDeviceGetCount_v2 = 15\n[gpu]\n"))
    assert inventory.known("driver.error") == "15 GPU lost"
    assert "nvmlDeviceGetCount" in why(inventory, "gpus.count")


CODES = (1, 2, 3, 4, 15, 16, 17, 25, 999, 12345)


@pytest.mark.parametrize("call", DEVICE_KEYS)
def test_a_call_that_fails_on_one_gpu_costs_only_its_own_facts(box: Box, call: str) -> None:
    hosts = [box.host(THREE.format(f"fail {call} = {code}")) for code in CODES]
    collectors = [PROBE.begin(host, ProbeRequest(deadline_s=20)) for host in hosts]
    for code, collect in zip(CODES, collectors, strict=True):
        inventory = collect()
        lost = set() if (call, code) == ("nvmlDeviceGetMigMode", 3) else set(DEVICE_KEYS[call])
        assert unknown_keys(inventory, 1) == lost, code
        assert unknown_keys(inventory, 0) == unknown_keys(inventory, 2) == set(), code
        for key in lost:
            assert f"{call} of GPU 1: {code} " in why(inventory, key, 1)


@pytest.mark.parametrize("call", MACHINE_KEYS)
def test_a_call_of_the_machine_that_fails_costs_only_its_own_fact(box: Box, call: str) -> None:
    inventory = probed(box.host(f"fail {call} = 3\nfail nvmlSystemGetCudaDriverVersion = 3\n[gpu]\n"))
    unknown = {key for key, fact in inventory.facts.items() if isinstance(fact.reading, Unknown)}
    assert unknown - ON_THE_BUS == {MACHINE_KEYS[call]}
    assert inventory.known("gpu.name", 0)


def test_a_lost_gpu_is_unknown_and_the_others_are_read(box: Box) -> None:
    inventory = probed(box.host("lost"))
    assert inventory.known("gpus.count") == 3
    assert unknown_keys(inventory, 1) == set(YIELDS) - set(inventory.facts) - {
        "gpu.visible",
        "gpu.error",
    }
    assert inventory.known("gpu.error", 1) == "15 GPU lost"
    assert "15 GPU lost" in why(inventory, "gpu.memory_mib", 1)
    assert unknown_keys(inventory, 0) == set()
    assert unknown_keys(inventory, 2) == {"gpu.rank"}  # whether CUDA counts the lost one is not known
    # A rule about a model must not be answered "no" for a card that could not be read.
    assert "GPU lost" in why(inventory, "gpus.models")


NO_MEMORY = "fail nvmlDeviceGetMemoryInfo = 3\nfail nvmlDeviceGetMemoryInfo_v2 = 3\n"


def test_memory_that_is_not_supported_leaves_the_name(box: Box) -> None:
    inventory = probed(box.host(f"[gpu]\nname = NVIDIA H100 PCIe\n{NO_MEMORY}"))
    assert inventory.known("gpu.name", 0) == "NVIDIA H100 PCIe"
    for key in ("gpu.memory_mib", "gpu.memory_shared"):
        assert why(inventory, key, 0).startswith("not supported by the driver")


def test_a_chip_without_memory_of_its_own_has_the_hosts(box: Box) -> None:
    box.put("/proc/meminfo", "MemTotal:   125829120 kB\nMemFree: 1 kB\nMemAvailable: 104857600 kB\n")
    inventory = probed(box.host("gb10"))
    assert inventory.known("gpu.memory_shared", 0) is True
    assert inventory.known("gpu.memory_mib", 0) == 120 << 10
    assert inventory.known("gpu.memory_free_mib", 0) == 100 << 10
    assert "shares the host's memory" in inventory.fact("gpu.memory_mib", 0).source
    assert "not supported" in why(inventory, "gpu.memory_used_mib", 0)


def test_the_newer_call_for_memory_is_made_where_the_older_fails(box: Box) -> None:
    inventory = probed(box.host("[gpu]\nfail nvmlDeviceGetMemoryInfo = 999\n"))
    assert inventory.known("gpu.memory_mib", 0) == 81920
    assert inventory.fact("gpu.memory_mib", 0).source == "NVML nvmlDeviceGetMemoryInfo_v2"
    assert inventory.known("gpu.memory_shared", 0) is False


def test_a_count_below_that_of_the_bus_names_both(box: Box) -> None:
    inventory = probed(box.with_gpus(8).host("[gpu]\ncopies = 7\n"))
    assert inventory.known("gpus.count") == 7
    assert "the PCI bus shows 8" in inventory.fact("gpus.count").source


def test_a_driver_that_counts_no_gpu_gives_zero(box: Box) -> None:
    inventory = probed(box.host("count = 0\n"))
    assert inventory.known("gpus.count") == 0
    assert inventory.known("gpus.models") == ()
    assert inventory.fact("gpu.name").reading == Absent()


# --- old libraries ------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbol", [*DEVICE_KEYS, *MACHINE_KEYS, *ESSENTIAL])
def test_a_symbol_the_library_lacks_costs_only_its_own_facts(
    box: Box, built: Callable[[str], Path], symbol: str
) -> None:
    box.library = built(symbol)
    inventory = probed(box.host("h100"))
    if symbol in ESSENTIAL:
        assert inventory.known("driver.error") == "13 function not found"
        assert ESSENTIAL[symbol] in why(inventory, "gpus.count")
        return
    # CUDA's version and memory have a second call, the library's version may come from its file's name, and in a
    # library without MIG it is off.
    spared = ("nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetMemoryInfo")
    lost = {MACHINE_KEYS[symbol]} if symbol in MACHINE_KEYS else set(DEVICE_KEYS[symbol])
    facts = {**inventory.facts, **inventory.devices[0]}
    unknown = {key for key, fact in facts.items() if isinstance(fact.reading, Unknown)} - ON_THE_BUS
    models = {"gpus.models", "gpus.mixed"} if symbol == "nvmlDeviceGetName" else set()
    assert unknown == (set() if symbol in spared else lost | models)


def test_a_file_that_is_not_a_library_is_reported(box: Box, tmp_path: Path) -> None:
    box.library = tmp_path / "stub"
    box.put("/stub/libnvidia-ml.so.1", "not an ELF file")
    inventory = probed(box.with_gpus(1).host("h100"))
    assert inventory.known("driver.error") == "12 library not found"
    assert inventory.fact("driver.library").reading == Absent()


# --- hangs and crashes --------------------------------------------------------------------------------


def timed(host: Host, deadline_s: float = DEADLINE_S) -> tuple[Inventory, float]:
    started = time.monotonic()
    inventory = probed(host, deadline_s)
    return inventory, time.monotonic() - started


@pytest.mark.parametrize("symbol", [*ESSENTIAL, *MACHINE_KEYS])
def test_a_hanging_driver_is_abandoned_in_time_and_the_call_is_named(box: Box, symbol: str) -> None:
    inventory, seconds = timed(box.host(f"hang = {symbol}\n[gpu]\n"))
    assert seconds < DEADLINE_S + 1
    assert inventory.known("driver.error") == "no answer"
    call = ESSENTIAL.get(symbol, symbol)
    assert why(inventory, "gpus.count") == f"NVML did not answer within {DEADLINE_S:g} s in {call}"


@pytest.mark.parametrize("symbol", [*DEVICE_KEYS, "nvmlDeviceGetHandleByIndex_v2"])
def test_one_hanging_gpu_is_abandoned_in_time_and_the_others_are_read(box: Box, symbol: str) -> None:
    inventory, seconds = timed(box.host(THREE.format(f"hang = {symbol}")))
    assert seconds < DEADLINE_S + 1
    assert inventory.known("gpus.count") == 3
    assert unknown_keys(inventory, 0) == set()
    assert unknown_keys(inventory, 2) <= {"gpu.rank"}  # of a GPU that tells nothing CUDA may count or not
    call = symbol.removesuffix("_v2")
    said = f"NVML did not answer within {DEADLINE_S:g} s in {call} of GPU 1"
    assert unknown_keys(inventory, 1) >= set(DEVICE_KEYS.get(call, DEVICE_KEYS["nvmlDeviceGetName"]))
    assert {why(inventory, key, 1) for key in unknown_keys(inventory, 1)} == {said}


def test_a_slow_gpu_is_waited_for(box: Box) -> None:
    inventory = probed(box.host(THREE.format("delay nvmlDeviceGetName = 600")), deadline_s=1.5)
    assert [unknown_keys(inventory, gpu) for gpu in range(3)] == [set(), set(), set()]


def test_every_gpu_hanging_still_keeps_the_deadline(box: Box) -> None:
    inventory, seconds = timed(box.host("hang = nvmlDeviceGetName\n[gpu]\ncopies = 8\n"))
    assert seconds < DEADLINE_S + 1
    assert inventory.known("gpus.count") == 8
    assert all("did not answer within 1.5 s" in why(inventory, "gpu.name", gpu) for gpu in range(8))


def test_more_gpus_on_the_bus_are_given_more_time() -> None:
    assert nvml.allowance_s(10, 1) == nvml.allowance_s(10, 0) == 10
    assert nvml.allowance_s(10, 8) == pytest.approx(31)


@pytest.mark.parametrize("way", ["crash", "abort"])
@pytest.mark.parametrize("symbol", ESSENTIAL)
def test_a_crash_of_the_driver_is_reported_with_its_call(box: Box, symbol: str, way: str) -> None:
    inventory = probed(box.with_gpus(1).host(f"{way} = {symbol}\n[gpu]\n"))
    signal = {"crash": "SIGSEGV", "abort": "SIGABRT"}[way]
    assert inventory.known("driver.error") == "crashed"
    assert why(inventory, "cuda.driver") == f"NVML crashed ({signal}) in {ESSENTIAL[symbol]}"
    assert inventory.known("gpus.count") == 1


@pytest.mark.parametrize("symbol", MACHINE_KEYS)
def test_a_crash_in_one_call_of_the_machine_costs_one_fact(box: Box, symbol: str) -> None:
    inventory = probed(box.host(f"crash = {symbol}\nfail nvmlSystemGetCudaDriverVersion = 3\n[gpu]\n"))
    assert why(inventory, MACHINE_KEYS[symbol]) == f"NVML crashed (SIGSEGV) in {symbol}"
    assert inventory.known("gpus.count") == 1
    assert unknown_keys(inventory, 0) == set()


@pytest.mark.parametrize("symbol", [*DEVICE_KEYS, "nvmlDeviceGetHandleByIndex_v2"])
def test_a_crash_on_one_gpu_leaves_the_others(box: Box, symbol: str) -> None:
    inventory = probed(box.host(THREE.format(f"crash = {symbol}")))
    assert inventory.known("gpus.count") == 3
    assert unknown_keys(inventory, 0) == set()
    assert unknown_keys(inventory, 2) <= {"gpu.rank"}  # of a GPU that tells nothing CUDA may count or not
    call = symbol.removesuffix("_v2")
    if call in DEVICE_KEYS:
        assert unknown_keys(inventory, 1) == set(DEVICE_KEYS[call])
    for key in unknown_keys(inventory, 1):
        assert why(inventory, key, 1) == f"NVML crashed (SIGSEGV) in {call} of GPU 1"


# --- garbage ------------------------------------------------------------------------------------------


def test_garbage_is_unknown_with_its_reason_and_names_are_kept_as_text(box: Box) -> None:
    inventory = probed(box.host("garbage"))
    for key in ("driver.version", "driver.library", "cuda.driver"):
        assert "implausible" in why(inventory, key)
    assert why(inventory, "gpu.name", 0) == "the driver gave an empty name"
    assert inventory.known("gpu.name", 1) == "�� NVIDIA \x1b]0;owned\x07"
    for key in (
        "gpu.memory_mib",
        "gpu.memory_free_mib",
        "gpu.compute_capability",
        "gpu.compute_mode",
        "gpu.mig",
    ):
        assert "implausible" in why(inventory, key, 0)
    assert "implausible" in why(inventory, "gpu.memory_mib", 1)
    assert inventory.known("gpu.memory_mib", 2) == 1
    assert "implausible" in why(inventory, "gpu.memory_free_mib", 2)


def test_an_absurd_number_of_gpus_is_rejected(box: Box) -> None:
    inventory = probed(box.host("count = 4294967295\n[gpu]\n"))
    assert "4294967295" in why(inventory, "gpus.count")
    assert inventory.devices == ()


def test_gpus_that_are_counted_but_missing_cost_only_their_own_facts(box: Box) -> None:
    inventory = probed(box.host("count = 2\n[gpu]\nname = One\n"))
    assert inventory.known("gpu.name", 0) == "One"
    assert "invalid argument" in why(inventory, "gpu.name", 1)


@pytest.mark.parametrize(
    ("said", "file", "version"),
    [
        ("12.550.54.15", "", "550.54.15"),
        ("12.535.161", "", "535.161"),
        ("550.54.15", "", "550.54.15"),
        ("", "/usr/lib/libnvidia-ml.so.470.256.02", "470.256.02"),
        ("??", "/usr/lib/libnvidia-ml.so.1", None),
        ("", "", None),
    ],
)
def test_the_library_version_is_that_of_its_driver(said: str, file: str, version: str | None) -> None:
    reading = nvml.library_version(said, file)
    assert (reading.value if isinstance(reading, Known) else None) == version


# --- files without a driver ---------------------------------------------------------------------------

PROC_CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Fri Mar  8 2024\nGCC version: 9\n"
PROC_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n"


@pytest.mark.parametrize(
    ("files", "version", "source"),
    [
        ({"/sys/module/nvidia/version": "550.54.15\n"}, "550.54.15", "/sys/module/nvidia/version"),
        ({"/proc/driver/nvidia/version": PROC_CLOSED}, "535.161.08", "/proc/driver/nvidia/version"),
        ({"/proc/driver/nvidia/version": PROC_OPEN}, "570.86.10", "/proc/driver/nvidia/version"),
        (
            {"/sys/module/nvidia/version": "\x00 garbage", "/proc/driver/nvidia/version": PROC_OPEN},
            "570.86.10",
            "/proc/driver/nvidia/version",
        ),
    ],
)
def test_the_driver_version_is_read_from_the_first_file_that_tells(
    tmp_path: Path, files: dict[str, str], version: str, source: str
) -> None:
    machine = Box(tmp_path).with_gpus(1)
    for path, text in files.items():
        machine.put(path, text)
    fact = probed(Host(tmp_path, {})).fact("driver.version")
    assert (fact.value, fact.source) == (version, source)


def test_the_version_of_the_kernel_module_precedes_nvmls(box: Box) -> None:
    box.put("/sys/module/nvidia/version", "550.90.07\n")
    inventory = probed(box.host("a100x8"))
    assert inventory.fact("driver.version").value == "550.90.07"
    assert inventory.fact("driver.version").source == "/sys/module/nvidia/version"


def test_a_host_without_an_nvidia_card_certainly_has_no_gpu(tmp_path: Path) -> None:
    Box(tmp_path).put("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    # An NVIDIA sound function or bridge is not a GPU.
    Box(tmp_path).put("/sys/bus/pci/devices/0000:00:03.0/vendor", "0x10de\n")
    Box(tmp_path).put("/sys/bus/pci/devices/0000:00:03.0/class", "0x040300\n")
    inventory = probed(Host(tmp_path, {}))
    assert inventory.known("gpus.count") == 0
    for key in ("driver.version", "driver.library", "driver.error", "cuda.driver", "gpu.name"):
        assert inventory.fact(key).reading == Absent()
    assert inventory.complete == {"driver", "gpu", "gpus"}


def test_a_virtual_function_is_not_counted_as_a_card(tmp_path: Path) -> None:
    Box(tmp_path).with_gpus(2).put("/sys/bus/pci/devices/0000:02:00.0/physfn")
    assert probed(Host(tmp_path, {})).known("gpus.count") == 1


@pytest.mark.parametrize(
    "mark",
    [
        ("/.dockerenv", ""),
        ("/run/.containerenv", ""),
        ("/proc/1/cgroup", "0::/kubepods/besteffort/pod1/abc\n"),
        ("/proc/self/mountinfo", "600 500 0:50 / / rw - overlay overlay rw,lowerdir=/x\n"),
    ],
)
def test_a_container_without_devices_is_not_a_machine_without_gpus(
    tmp_path: Path, mark: tuple[str, str]
) -> None:
    Box(tmp_path).with_gpus(4).put("/sys/module/nvidia/version", "550.54.15\n").put(*mark)
    inventory = probed(Host(tmp_path, {}))
    for key in ("driver.version", "gpus.count", "gpu.name"):
        reading = inventory.fact(key).reading
        assert isinstance(reading, Unknown)
        assert not reading.asked


def test_a_card_without_any_driver_is_counted_and_its_driver_absent(tmp_path: Path, box: Box) -> None:
    (tmp_path / "dev/nvidiactl").unlink()
    inventory = probed(box.with_gpus(2).host())
    assert inventory.known("gpus.count") == 2
    assert inventory.fact("driver.version").reading == Absent()
    assert inventory.fact("driver.library").reading == Absent()
    assert "no NVIDIA driver library" in why(inventory, "gpu.memory_mib", 1)


def test_for_a_staged_tree_nothing_is_run(box: Box) -> None:
    box.put("/sys/module/nvidia/version", "550.54.15\n").with_gpus(2, ["NVIDIA L4", "NVIDIA L4"])
    live = box.host("crash = nvmlInitWithFlags\n[gpu]\n")
    inventory = probed(Host(live.root, {**live.environ, "PATH": "/usr/bin"}))
    assert inventory.known("driver.version") == "550.54.15"
    assert inventory.known("gpu.name", 1) == "NVIDIA L4"
    reading = inventory.fact("gpu.memory_mib", 0).reading
    assert isinstance(reading, Unknown)
    assert not reading.asked


@pytest.mark.parametrize(
    ("path", "said"), [("/etc/nv_tegra_release", "Tegra"), ("/dev/dxg", "WSL"), ("/etc/hostname", "bus")]
)
def test_where_a_gpu_need_not_be_on_a_bus_its_absence_is_not_claimed(
    tmp_path: Path, path: str, said: str
) -> None:
    Box(tmp_path).put(path)
    reading = probed(Host(tmp_path, {})).fact("gpus.count").reading
    assert isinstance(reading, Unknown)
    assert said in reading.why
    assert not reading.asked


@pytest.mark.parametrize(
    ("files", "environ", "found"),
    [
        ({}, {}, None),
        ({"/cuda/libnvidia-ml.so.1": ""}, {"LD_LIBRARY_PATH": "/a::/cuda"}, ""),
        ({"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": ""}, {}, ""),
        ({"/etc/ld.so.cache": "glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0"}, {}, ""),
        ({"/usr/lib/wsl/lib/libnvidia-ml.so.1": ""}, {}, "/usr/lib/wsl/lib"),
        ({"/usr/lib/wsl/drivers/nv.inf/libnvidia-ml.so.1": ""}, {}, "/usr/lib/wsl/drivers/nv.inf"),
    ],
)
def test_the_library_is_found_where_the_loader_and_drivers_put_it(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], found: str | None
) -> None:
    for path, text in files.items():
        Box(tmp_path).put(path, text)
    assert nvml.find_library(Host(tmp_path, environ)) == found


# --- nvidia-smi ---------------------------------------------------------------------------------------


def smi(box: Box, script: str) -> dict[str, str]:
    """Put a shell script on the machine's PATH as nvidia-smi."""
    file = box.root / "bin/nvidia-smi"
    box.put(str(file)).put("/bin/nvidia-smi", f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": str(file.parent)}


def test_nvidia_smi_is_run_when_no_library_is_found(tmp_path: Path, box: Box) -> None:
    (tmp_path / "dev/nvidiactl").unlink()
    environ = smi(
        box, "echo 'NVIDIA A10, 23028, 22800, 535.161.08'; echo 'Odd, name, [N/A], [N/A], 535.161.08'"
    )
    inventory = probed(box.host("", environ))
    assert inventory.known("driver.version") == "535.161.08"
    assert inventory.known("gpus.count") == 2
    assert inventory.known("gpu.memory_mib", 0) == 23028
    assert inventory.known("gpu.name", 1) == "Odd, name"
    assert "implausible" in why(inventory, "gpu.memory_mib", 1)
    assert inventory.fact("gpu.name", 0).source.startswith("nvidia-smi --query-gpu=")


@pytest.mark.parametrize("trouble", ["fail nvmlInitWithFlags = 18", "hang = nvmlInitWithFlags"])
def test_nvidia_smi_is_not_run_after_nvml_refused(box: Box, trouble: str) -> None:
    environ = smi(box, f"touch {box.root}/asked")
    probed(box.host(f"{trouble}\n[gpu]\n", environ), DEADLINE_S)
    assert not (box.root / "asked").exists()


@pytest.mark.parametrize("script", ["exit 9", "echo No devices were found", "kill -9 $$", "exec sleep 60"])
def test_a_useless_nvidia_smi_changes_nothing(tmp_path: Path, box: Box, script: str) -> None:
    (tmp_path / "dev/nvidiactl").unlink()
    inventory, seconds = timed(
        box.with_gpus(1).host("", {"PATH": smi(box, script)["PATH"] + ":/usr/bin:/bin"})
    )
    assert seconds < DEADLINE_S + 1
    assert inventory.known("gpus.count") == 1
    assert inventory.fact("driver.version").reading == Absent()


def test_lines_that_are_not_rows_are_skipped() -> None:
    assert list(smi_rows("\nNo devices were found\na, 1, 2, 550.1\n")) == [("a", "1", "2", "550.1")]


# --- CUDA_VISIBLE_DEVICES -----------------------------------------------------------------------------

CARDS = ("GPU-9e8d35e3-aaaa", "GPU-9e8d7777-bbbb", "GPU-123450000-cccc", "GPU-fedcba98-dddd")


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, (0, 1, 2, 3)),
        ("", ()),
        (" ", ()),
        ("0", (0,)),
        ("1,0", (1, 0)),
        ("3,2,1,0", (3, 2, 1, 0)),
        (" 2 , 1 ", (2, 1)),
        ("-1", ()),
        ("0,-1,2", (0,)),
        ("0,1,2,-1,3", (0, 1, 2)),
        ("-1,0", ()),
        ("4", ()),
        ("0,4,1", (0,)),
        ("1,99999999999999999999999,2", (1,)),
        ("0,0", ()),
        ("0,1,2,1", ()),
        ("0,-1,0", (0,)),
        ("1gpu2,2ampere", (1, 2)),
        ("0-2", (0,)),
        ("0x1", (0,)),
        ("1.5", (1,)),
        ("+3,-0,2", (3, 0, 2)),
        ("00,01", (0, 1)),
        ("one,2", ()),
        ("3,two,1", (3,)),
        ("NoDevFiles", ()),
        ("none", ()),
        ("all", ()),
        ("0,,1", (0,)),
        (",0", ()),
        ("0,", (0,)),
        ("0;1", (0,)),
        ("+", ()),
        ("٣", ()),
        ("GPU-9e8d35e3-aaaa", (0,)),
        ("GPU-9e8d3", (0,)),
        ("GPU-fed,GPU-1", (3, 2)),
        ("GPU-9e8d", ()),
        ("GPU-fed,GPU-9e8d,GPU-1", (3,)),
        ("GPU-fed,GPU-fedc", ()),
        ("GPU-fed,0", (3,)),
        ("0,GPU-fed", (0,)),
        ("GPU-absent", ()),
        ("gpu-fed", ()),
        ("GPU-FED", ()),
        ("GPU-fed, GPU-1", (3,)),
        ("GPU-", ()),
    ],
)
def test_cuda_sees_the_gpus_the_variable_lets_it(value: str | None, seen: tuple[int, ...]) -> None:
    assert visible_gpus(value, CARDS) == seen


def flags(
    environ: dict[str, str],
    uuids: tuple[str, ...] = CARDS[:2],
    names: tuple[object, ...] = ("A100", "A100"),
    migs: tuple[object, ...] = (False, False),
) -> list[object]:
    """Return `gpu.visible` as True, False, or None where it is unknown."""
    readings = visibility(environ, uuids, names, migs)
    return [reading.value if isinstance(reading, Known) else None for reading in readings]


def test_hidden_gpus_are_distinguished_from_visible_ones(box: Box) -> None:
    inventory = probed(box.host("a100x8", {"CUDA_VISIBLE_DEVICES": "2,5"}))
    assert inventory.visible_devices() == (2, 5)
    inventory = probed(box.host("a100x8", {"CUDA_VISIBLE_DEVICES": "GPU-fa4e0007"}))
    assert inventory.visible_devices() == (7,)


def test_an_index_among_unequal_cards_is_unknown_unless_the_order_is_set() -> None:
    unequal = ("T4", "A100")
    assert flags({"CUDA_VISIBLE_DEVICES": "0"}, names=unequal) == [None, None]
    ordered = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert flags(ordered, names=unequal) == [True, False]
    assert flags({"CUDA_VISIBLE_DEVICES": "1,0"}, names=unequal) == [True, True]
    assert flags({"CUDA_VISIBLE_DEVICES": ""}, names=unequal) == [False, False]
    assert flags({"CUDA_VISIBLE_DEVICES": CARDS[1]}, names=unequal) == [False, True]
    assert flags({}, names=unequal) == [True, True]


def test_a_gpu_with_an_unread_uuid_may_be_the_selected_one() -> None:
    uuids = (CARDS[0], "")
    assert flags({"CUDA_VISIBLE_DEVICES": CARDS[0]}, uuids) == [True, None]
    assert flags({"CUDA_VISIBLE_DEVICES": "GPU-77"}, uuids) == [None, None]
    assert flags({"CUDA_VISIBLE_DEVICES": "1"}, uuids) == [False, True]


def test_a_mig_device_hides_the_cards_that_have_none() -> None:
    assert flags({"CUDA_VISIBLE_DEVICES": "MIG-77"}, migs=(False, True)) == [False, None]
