"""Faults of the driver, injected one by one through the real child into a real library.

Every call returns every code, hangs, crashes, ends the process, lacks its symbol, is slow, and returns garbage.
One fake machine has many GPUs, of which every second one has a different fault, so that each fault has healthy
neighbours and most faults need no separate process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from envcheck.core.facts import Absent, Inventory, Known, Reading, Unknown, is_device_key
from envcheck.core.nvidia import GONE, code_in_words
from envcheck.host.machine import Host
from envcheck.probes import ProbeRequest, health, nvml
from envcheck.probes.driver import PROBE, YIELDS
from tests.support.fake_nvml import Box

CODES = (*range(1, 31), 999)
LOADED_S = 30.0
"""The deadline in tests that are not about deadlines, because the machine may be busy."""

MEMORY = ("gpu.memory_mib", "gpu.memory_free_mib", "gpu.memory_used_mib", "gpu.memory_shared")
FABRIC = ("gpu.fabric", "gpu.fabric_error", "gpu.fabric_health")
MIG = ("gpu.mig", "gpu.mig_pending", "gpu.mig_instances")
EVERY = tuple(key for key in YIELDS if is_device_key(key) and key not in ("gpu.visible", "gpu.error"))

WELL = "ecc = 1\nremap_pending = 0\nrecovery = 0\nfabric_state = 3\nfabric_summary = 1\n"
CARD = f"mig = 0\n{WELL}"
SLICED = f"mig = 1\nmig_instances = 2\nslice_memory = 10737418240\n{WELL}"
VIRTUAL = "virtualization = 2\nlicensed = 1\n"
ONE_MEMORY_CALL = "fail nvmlDeviceGetMemoryInfo_v2 = 13\n"
ONE_FABRIC_CALL = "fail nvmlDeviceGetGpuFabricInfo = 13\n"
ONE_CUDA_CALL = "fail nvmlSystemGetCudaDriverVersion = 3\n"
ONE_EACH = ONE_MEMORY_CALL + ONE_FABRIC_CALL


Each = TypeVar("Each")


def in_parts(all_of_them: Sequence[Each], size: int) -> list[Sequence[Each]]:
    """Split a sequence into parts that two cores can start without delaying one another."""
    return [all_of_them[start : start + size] for start in range(0, len(all_of_them), size)]


class Call(NamedTuple):
    """A call as a scenario names it, the facts it gives, and a machine on which it is made.

    `told_as` is the call whose failure explains the facts; another where this one only stands in for it.
    """

    named: str
    keys: tuple[str, ...]
    gpu: str = CARD
    machine: str = ONE_EACH
    told_as: str = ""

    @property
    def symbol(self) -> str:
        return self.named.partition(":")[0]

    @property
    def label(self) -> str:
        """The name of the call in reasons."""
        counters = {"nvmlDeviceGetTotalEccErrors:0": "volatile", "nvmlDeviceGetTotalEccErrors:1": "aggregate"}
        if self.told_as:
            return self.told_as
        if self.named in counters:
            return f"{self.symbol} {counters[self.named]}"
        return self.symbol.removesuffix("_v2") if self.symbol in PLAIN_NAMES else self.symbol

    @property
    def stands_in(self) -> bool:
        return bool(self.told_as) and self.symbol != self.told_as.split()[0]


PLAIN_NAMES = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetCount_v2")
"""Symbols that pynvml calls by a name without version."""

STATE = (
    Call("nvmlDeviceGetEccMode", ("gpu.ecc", "gpu.ecc_pending")),
    Call("nvmlDeviceGetTotalEccErrors:0", ("gpu.ecc_uncorrected",)),
    Call("nvmlDeviceGetTotalEccErrors:1", ("gpu.ecc_uncorrected_ever",)),
    Call("nvmlDeviceGetRemappedRows", ("gpu.remap_pending", "gpu.remap_failed")),
    Call("nvmlDeviceGetFieldValues", ("gpu.recovery",)),
    Call("nvmlDeviceGetGpuFabricInfoV", FABRIC),
    Call("nvmlDeviceGetPersistenceMode", ("gpu.persistence",)),
    Call("nvmlDeviceGetVirtualizationMode", ("gpu.virtualization", "gpu.vgpu_licensed")),
)
CORE = (
    Call("nvmlDeviceGetHandleByIndex_v2", EVERY),
    Call("nvmlDeviceGetName", ("gpu.name", "gpu.memory_shared")),
    Call("nvmlDeviceGetUUID", ()),
    Call("nvmlDeviceGetCudaComputeCapability", ("gpu.compute_capability",)),
    Call("nvmlDeviceGetComputeMode", ("gpu.compute_mode",)),
)
CARD_ONLY = (
    Call("nvmlDeviceGetMemoryInfo", MEMORY),
    Call(
        "nvmlDeviceGetMemoryInfo_v2",
        MEMORY,
        machine=f"fail nvmlDeviceGetMemoryInfo = 20\n{ONE_FABRIC_CALL}",
        told_as="nvmlDeviceGetMemoryInfo",
    ),
    Call("nvmlDeviceGetMigMode", MIG),
    Call(
        "nvmlDeviceGetGpuFabricInfo",
        FABRIC,
        machine="fail nvmlDeviceGetGpuFabricInfoV = 13\n",
        told_as="nvmlDeviceGetGpuFabricInfoV",
    ),
    Call("nvmlDeviceGetGridLicensableFeatures_v4", ("gpu.vgpu_licensed",), gpu=VIRTUAL),
)
SLICED_ONLY = tuple(
    call._replace(gpu=SLICED)
    for call in (
        Call("nvmlDeviceGetMaxMigDeviceCount", ("gpu.mig_instances", *MEMORY)),
        Call(
            "nvmlDeviceGetMigDeviceHandleByIndex",
            ("gpu.mig_instances", *MEMORY),
            told_as="nvmlDeviceGetMigDeviceHandleByIndex 0",
        ),
        Call("nvmlDeviceGetMemoryInfo:slice", MEMORY, told_as="nvmlDeviceGetMemoryInfo slice 0"),
    )
)
ON_A_CARD = (*CORE, *CARD_ONLY, *STATE)
IN_SLICES = tuple(call._replace(gpu=SLICED) for call in (*CORE, *STATE))
DEVICE_CALLS = (*ON_A_CARD, *SLICED_ONLY, *IN_SLICES)

MACHINE_CALLS = {
    "nvmlInitWithFlags": "",
    "nvmlDeviceGetCount_v2": "",
    "nvmlSystemGetNVMLVersion": "driver.library",
    "nvmlSystemGetDriverVersion": "driver.version",
    "nvmlSystemGetCudaDriverVersion_v2": "cuda.driver",
    "nvmlSystemGetCudaDriverVersion": "cuda.driver",
}


def _id(call: Call) -> str:
    return f"{call.named}{' in slices' if call.gpu == SLICED else ''}"


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def all_probed(hosts: Sequence[Host], deadline_s: float = LOADED_S) -> list[Inventory]:
    """Read several machines at the same time."""
    begun = [PROBE.begin(host, ProbeRequest(deadline_s=deadline_s)) for host in hosts]
    return [collect() for collect in begun]


def probed(host: Host) -> Inventory:
    return all_probed([host])[0]


def mixed(call: Call, troubles: Sequence[str]) -> str:
    """Describe GPUs that are healthy at even numbers and have one of the troubles at each odd number."""
    well = f"[gpu]\n{call.gpu}"
    return call.machine + well + "".join(f"[gpu]\n{call.gpu}{each}\n{well}" for each in troubles)


def readings(inventory: Inventory, gpu: int) -> dict[str, Reading]:
    """Return the readings of a GPU without its numbers, so that GPUs can be compared."""
    found = {key: fact.reading for key, fact in inventory.devices[gpu].items() if key != "gpu.rank"}
    return {
        key: Unknown(each.why.replace(f" of GPU {gpu}", ""), each.asked)
        if isinstance(each, Unknown)
        else each
        for key, each in found.items()
    }


def ill(inventory: Inventory, troubles: int) -> list[int]:
    """Return the numbers of faulty GPUs, and check that their neighbours have the readings of GPU 0."""
    assert inventory.known("gpus.count") == 2 * troubles + 1
    well = readings(inventory, 0)
    assert well["gpu.error"] == Absent()
    for gpu in range(2, 2 * troubles + 1, 2):
        assert readings(inventory, gpu) == well, gpu
    return list(range(1, 2 * troubles, 2))


def changed(inventory: Inventory, gpu: int) -> set[str]:
    """Return the facts of a GPU that differ from those of a healthy one."""
    well, here = readings(inventory, 0), readings(inventory, gpu)
    return {key for key in well if here[key] != well[key]}


def reason(inventory: Inventory, gpu: int, key: str) -> str:
    reading = inventory.fact(key, gpu).reading
    assert isinstance(reading, Unknown), (key, reading)
    return reading.why


# --- codes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", DEVICE_CALLS, ids=_id)
def test_every_code_of_every_call_costs_one_gpu_only_the_facts_of_that_call(box: Box, call: Call) -> None:
    inventory = probed(box.host(mixed(call, [f"fail {call.named} = {code}" for code in CODES])))
    for gpu, code in zip(ill(inventory, len(CODES)), CODES, strict=True):
        assert changed(inventory, gpu) <= {*call.keys, "gpu.error"}, code
        gone = code in GONE or call.symbol == "nvmlDeviceGetHandleByIndex_v2"
        error = inventory.fact("gpu.error", gpu)
        assert error.reading == (Known(code_in_words(code)) if gone else Absent()), code
        for key in call.keys:
            _assert_lost(inventory, gpu, call, key, code)


def _assert_lost(inventory: Inventory, gpu: int, call: Call, key: str, code: int) -> None:
    """Check a fact whose call failed: unknown with the call and the code, or what the code means."""
    here = inventory.fact(key, gpu).reading
    if call.symbol == "nvmlDeviceGetMigMode" and code in (3, 13):
        assert here == (Known(0) if key == "gpu.mig_instances" else Known(False))
    elif call.symbol == "nvmlDeviceGetMigDeviceHandleByIndex" and code == 6:
        assert here == (Known(0) if key == "gpu.mig_instances" else here)
        assert not isinstance(here, Unknown)  # a slot without a device in it is none
    elif key in health.FACTS and code == 3 and call.gpu != SLICED and call in (*STATE, *CARD_ONLY[-1:]):
        assert here == Absent()
    elif call.gpu == SLICED and key in UNTOLD_IN_SLICES and code == 3:
        assert isinstance(here, Unknown)
        assert not here.asked
    elif key == "gpu.vgpu_licensed" and call.symbol == "nvmlDeviceGetVirtualizationMode":
        assert isinstance(here, Unknown)  # it was not queried for: nobody knows whether a licence is needed
        assert not here.asked
    else:
        said = reason(inventory, gpu, key)
        assert f"{call.label} of GPU {gpu}: " in said
        assert call.stands_in or code_in_words(code) in said, (key, code)


UNTOLD_IN_SLICES = {key for call in STATE for key in call.keys}


@pytest.mark.parametrize("place", ["alone", "in a container"])
@pytest.mark.parametrize("symbol", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_every_code_without_which_nothing_is_read_is_the_drivers_error(
    box: Box, symbol: str, place: str
) -> None:
    box.with_gpus(2, ["NVIDIA H100 80GB HBM3"] * 2).put("/sys/module/nvidia/version", "550.54.14\n")
    if place == "in a container":
        box.put("/.dockerenv")
    call = symbol.removesuffix("_v2").replace("InitWithFlags", "Init")
    for some in in_parts(CODES, 8):
        hosts = [box.host(f"fail {symbol} = {code}\n[gpu]\n") for code in some]
        for code, inventory in zip(some, all_probed(hosts), strict=True):
            assert inventory.known("driver.error") == code_in_words(code)
            assert inventory.known("driver.version") == "550.54.14"
            assert inventory.known("driver.library") == "550.54.15"
            why = inventory.fact("cuda.driver").reading
            assert isinstance(why, Unknown)
            assert f"NVML {call}: {code_in_words(code)}" in why.why
            if place == "alone":
                assert inventory.known("gpus.models") == ("NVIDIA H100 80GB HBM3",)
                assert inventory.known("gpus.count") == 2
                assert {fact.value for fact in inventory.devices[0].values()} == {
                    "NVIDIA H100 80GB HBM3",
                    True,  # visible
                    0,  # its rank
                    None,
                }
            else:
                assert inventory.devices == ()


def test_every_code_of_a_call_of_the_machine_costs_one_fact(box: Box) -> None:
    tellers = [symbol for symbol, key in MACHINE_CALLS.items() if key][:3]
    for some in in_parts(CODES, 8):
        # Three calls fail at once, each with a different code.
        turned = [[(code + step) % 31 or 999 for step in range(3)] for code in some]
        scenarios = [
            "".join(f"fail {symbol} = {code}\n" for symbol, code in zip(tellers, codes, strict=True))
            for codes in turned
        ]
        hosts = [box.host(f"{ONE_CUDA_CALL}{each}[gpu]\n{CARD}") for each in scenarios]
        for codes, inventory in zip(turned, all_probed(hosts), strict=True):
            for symbol, code in zip(tellers, codes, strict=True):
                why = inventory.fact(MACHINE_CALLS[symbol]).reading
                assert isinstance(why, Unknown)
                assert code_in_words(code) in why.why or MACHINE_CALLS[symbol] == "cuda.driver"
            assert inventory.known("gpus.count") == 1
            assert not any(isinstance(each, Unknown) for each in readings(inventory, 0).values())


def test_either_call_for_cudas_version_is_enough(box: Box) -> None:
    for each in in_parts(CODES, 8):
        hosts = [box.host(f"fail nvmlSystemGetCudaDriverVersion_v2 = {code}\n[gpu]\n") for code in each]
        assert {inventory.known("cuda.driver") for inventory in all_probed(hosts)} == {"12.4"}


def test_every_code_of_joining_the_fabric_is_reported(box: Box) -> None:
    call = Call("", ())
    inventory = probed(box.host(mixed(call, [f"fabric_status = {code}" for code in CODES])))
    for gpu, code in zip(ill(inventory, len(CODES)), CODES, strict=True):
        assert changed(inventory, gpu) == {"gpu.fabric_error"}
        assert inventory.known("gpu.fabric_error", gpu) == code_in_words(code)


@pytest.mark.parametrize(
    ("key", "line", "words"),
    [
        ("gpu.recovery", "recovery", health.RECOVERY),
        ("gpu.virtualization", "virtualization", health.VIRTUALIZATION),
        ("gpu.fabric", "fabric_state", health.FABRIC_STATES),
        ("gpu.fabric_health", "fabric_summary", health.FABRIC_HEALTH),
        ("gpu.compute_mode", "compute_mode", nvml.COMPUTE_MODES),
    ],
)
def test_every_number_with_a_meaning_is_a_word_and_others_are_absurd(
    box: Box, key: str, line: str, words: tuple[str, ...]
) -> None:
    numbers = [*range(len(words) + 3), 200]
    inventory = probed(box.host(mixed(Call("", ()), [f"{line} = {number}" for number in numbers])))
    for gpu, number in zip(ill(inventory, len(numbers)), numbers, strict=True):
        if number < len(words):
            expected = Absent() if words[number] == "not_supported" else Known(words[number])
            assert inventory.fact(key, gpu).reading == expected
        else:
            assert "implausible" in reason(inventory, gpu, key)


# --- lost in a call -----------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", in_parts([*ON_A_CARD, *SLICED_ONLY], 7), ids=lambda calls: calls[0].named)
def test_a_call_that_hangs_on_one_gpu_of_three_is_abandoned_in_time(box: Box, calls: Sequence[Call]) -> None:
    deadline_s = 3.0
    started = time.monotonic()
    hosts = [box.host(mixed(call, [f"hang = {call.named}"])) for call in calls]
    inventories = all_probed(hosts, deadline_s)
    assert time.monotonic() - started < deadline_s + 1
    for call, inventory in zip(calls, inventories, strict=True):
        assert ill(inventory, 1) == [1]
        assert inventory.known("gpu.error", 1) == "no answer"
        said = f"NVML did not answer within {deadline_s:g} s in "
        assert said in inventory.fact("gpu.error", 1).source
        for key in call.keys:
            assert call.stands_in or said in reason(inventory, 1, key), (call.named, key)


@pytest.mark.parametrize("call", [*ON_A_CARD, *SLICED_ONLY], ids=_id)
def test_a_call_that_ends_the_process_costs_one_gpu_only_the_facts_of_that_call(box: Box, call: Call) -> None:
    ways = {
        f"crash = {call.named}": "crashed (SIGSEGV)",
        f"abort = {call.named}": "crashed (SIGABRT)",
        f"exit {call.named} = 3": "ended the process (exit code 3)",
        f"exit {call.named} = 0": "ended the process (exit code 0)",
    }
    inventory = probed(box.host(mixed(call, list(ways))))
    for gpu, said in zip(ill(inventory, len(ways)), ways.values(), strict=True):
        assert changed(inventory, gpu) <= {*call.keys, "gpu.error"}
        assert inventory.known("gpu.error", gpu) == "crashed"
        assert f"NVML {said} in " in inventory.fact("gpu.error", gpu).source
        for key in call.keys:
            assert call.stands_in or f"{said} in {call.label} of GPU {gpu}" in reason(inventory, gpu, key)


@pytest.mark.parametrize("way", ["crash = {}", "abort = {}", "exit {} = 5"])
@pytest.mark.parametrize("symbol", MACHINE_CALLS)
def test_a_call_of_the_machine_that_ends_the_process(box: Box, symbol: str, way: str) -> None:
    other = (
        "fail nvmlSystemGetCudaDriverVersion_v2 = 3\n" if symbol.endswith("DriverVersion") else ONE_CUDA_CALL
    )
    inventory = probed(box.with_gpus(3).host(f"{other}{way.format(symbol)}\n[gpu]\ncopies = 3\n{CARD}"))
    assert inventory.known("gpus.count") == 3
    if key := MACHINE_CALLS[symbol]:
        reading = inventory.fact(key).reading
        assert isinstance(reading, Unknown)
        assert not any(
            isinstance(each, Unknown) for gpu in range(3) for each in readings(inventory, gpu).values()
        )
    else:
        assert inventory.known("driver.error") == "crashed"


# --- symbols, slowness, garbage -----------------------------------------------------------------------


@pytest.mark.parametrize("call", [*ON_A_CARD, *SLICED_ONLY[:2]], ids=_id)
def test_a_symbol_that_the_library_lacks_costs_only_the_facts_of_its_call(
    box: Box, built: Callable[[str], Path], call: Call
) -> None:
    whole = probed(box.host(mixed(call, [])))
    box.library = built(call.symbol)
    inventory = probed(box.host(mixed(call, [])))
    lost = {key for key in readings(whole, 0) if readings(inventory, 0)[key] != readings(whole, 0)[key]}
    spared = {"gpu.ecc_uncorrected", "gpu.ecc_uncorrected_ever"} if "Ecc" in call.symbol else set()
    if call.symbol == "nvmlDeviceGetMigMode":
        assert lost == set()  # a library without MIG has none that is on
        return
    assert lost - {"gpu.error"} - spared <= set(call.keys)
    for key in call.keys:
        assert (
            call.stands_in
            or "13 function not found" in reason(inventory, 0, key)
            or key == "gpu.vgpu_licensed"
        )


def test_slow_calls_are_waited_for(box: Box) -> None:
    symbols = dict.fromkeys(call.symbol for call in ON_A_CARD)
    slow = "\n".join(f"delay {symbol} = 30" for symbol in symbols)
    inventory = probed(box.host(mixed(Call("", ()), [slow])))
    assert ill(inventory, 1) == [1]
    assert changed(inventory, 1) == set()


def test_garbage_in_one_call_is_unknown_and_spoils_no_other(box: Box) -> None:
    calls = [*CORE, *CARD_ONLY[:1], *CARD_ONLY[2:3], *STATE]
    inventory = probed(box.host(mixed(calls[0], [f"garbage = {call.named}" for call in calls])))
    for gpu, call in zip(ill(inventory, len(calls)), calls, strict=True):
        assert changed(inventory, gpu) <= set(call.keys), call
        if call.symbol == "nvmlDeviceGetName":
            assert "�" in str(inventory.known("gpu.name", gpu))
            continue
        for key in call.keys:
            why = reason(inventory, gpu, key)
            said = ("implausible", "not a code", "invalid argument", "Features_v4 was not queried")
            assert any(each in why for each in said), (call, why)


@pytest.mark.parametrize("call", [CARD_ONLY[1], CARD_ONLY[3], CARD_ONLY[4], SLICED_ONLY[2]], ids=_id)
def test_garbage_in_calls_for_few_gpus_is_unknown_too(box: Box, call: Call) -> None:
    inventory = probed(box.host(mixed(call, [f"garbage = {call.named}"])))
    assert ill(inventory, 1) == [1]
    assert changed(inventory, 1) == set(call.keys)
    for key in call.keys:
        assert "implausible" in reason(inventory, 1, key)


def test_garbage_about_slices_does_not_invent_slices_with_memory(box: Box) -> None:
    troubles = [f"garbage = {call.named}" for call in SLICED_ONLY[:2]]
    inventory = probed(box.host(mixed(SLICED_ONLY[0], troubles)))
    assert ill(inventory, 2) == [1, 3]
    assert changed(inventory, 1) == set()  # so many slots there are not; two of those tried hold a device
    assert changed(inventory, 3) == {"gpu.mig_instances", *MEMORY}
    assert "invalid argument" in reason(inventory, 3, "gpu.memory_mib")
