"""The state of GPUs from the driver's library to the report: a verdict for each possible fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import pytest

from envcheck.commands import examine, loading
from envcheck.commands.declared_machine import declare_machine
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown
from envcheck.core.findings import Finding, Report, Verdict
from envcheck.core.nvidia import LIBRARY
from envcheck.core.rules import Matrix, Severity
from envcheck.host.machine import Host
from envcheck.policy.generated_findings import missing_gpus
from envcheck.probes import ProbeRequest, every_probe, health, nvml, survey
from envcheck.probes.driver import PROBE
from envcheck.reports.render import format_named
from tests.support.fake_nvml import Box
from tests.support.running import envcheck


@lru_cache(maxsize=1)
def known() -> Matrix:
    return loading.load_matrix(loading.vocabulary(every_probe()))


def probed(host: Host) -> Inventory:
    return survey(host, ProbeRequest(deadline_s=20), [PROBE])


def reported(inventory: Inventory) -> Report:
    """Return the report on a machine with a torch that its driver supports."""
    torch = [Fact("pkg.torch", Known("2.6.0+cu124")), Fact("python.version", Known("3.11.9"))]
    return examine.report_on("the box", inventory.with_facts(torch), known(), None)


def findings(inventory: Inventory) -> dict[str, Finding]:
    found = reported(inventory).judgement.findings
    return {each.rule.id: each for each in found if each.verdict is Verdict.BROKEN}


def said_of(found: Mapping[str, Finding], gpu: int) -> set[str]:
    """Return the rules that one GPU of several breaks."""
    return {rule for rule, finding in found.items() if gpu in finding.devices}


# --- a fault of one of several GPUs--------------------------------------------------------------------


def test_eight_healthy_gpus_have_no_finding(box: Box) -> None:
    inventory = probed(box.host("h100x8"))
    assert findings(inventory) == {}
    assert reported(inventory).judgement.tally(Verdict.UNDECIDED) == 0


def test_each_fault_is_reported_for_its_own_gpu(box: Box) -> None:
    found = findings(probed(box.host("h100-ill")))
    assert said_of(found, 0) == {"fabric-not-ready"}
    assert said_of(found, 1) == {"fabric-not-ready"}
    assert said_of(found, 2) == {"fabric-joined-with-error"}
    assert said_of(found, 3) == {"fabric-unhealthy"}
    assert said_of(found, 4) == {"gpu-memory-errors-contained", "gpu-row-remap-pending"}
    assert said_of(found, 5) == {"gpu-row-remap-failed", "gpu-recovery-action"}
    assert said_of(found, 6) == {"gpu-ecc-off", "gpu-ecc-pending", "gpu-persistence-off"}
    assert said_of(found, 7) == {"gpu-lost"}


@pytest.mark.parametrize(
    ("rule", "severity"),
    [
        ("gpu-lost", Severity.ERROR),
        ("fabric-not-ready", Severity.ERROR),
        ("gpu-recovery-action", Severity.ERROR),
        ("gpu-row-remap-failed", Severity.ERROR),
        ("gpu-row-remap-pending", Severity.WARNING),
        ("fabric-joined-with-error", Severity.WARNING),
        ("gpu-ecc-off", Severity.NOTE),
    ],
)
def test_a_fault_of_one_gpu_is_as_severe_as_a_fault_of_all(box: Box, rule: str, severity: Severity) -> None:
    assert findings(probed(box.host("h100-ill")))[rule].severity is severity


def test_a_lost_gpu_is_reported_once(box: Box) -> None:
    report = reported(probed(box.host("lost")))
    assert [each.rule.id for each in report.judgement.findings] == ["gpu-lost"]


def test_calls_that_an_old_driver_lacks_leave_nothing_undecided(box: Box) -> None:
    inventory = probed(
        box.host(
            "fail nvmlDeviceGetGpuFabricInfoV = 13\nfail nvmlDeviceGetGpuFabricInfo = 13\n"
            "fail nvmlDeviceGetRemappedRows = 13\n[gpu]\nmig = 0\necc = 1\necc_volatile = 3\n"
        )
    )
    report = reported(inventory)
    assert report.judgement.tally(Verdict.UNDECIDED) == 0
    assert "gpu-memory-errors" in findings(inventory)  # no recovery action to soften it


def test_an_old_nvidia_ml_py_leaves_nothing_undecided() -> None:
    call = "nvmlDeviceGetGpuFabricInfoV"
    lines = [
        ["answer", 0, "nvmlDeviceGetHandleByIndex", True],
        ["failed", 0, call, "AttributeError: no such"],
    ]
    told = health.facts(nvml.parse("\n".join(map(json.dumps, lines))), 0, mig=False)
    assert told["gpu.error"].reading == Absent()
    for key in ("gpu.fabric", "gpu.fabric_error", "gpu.fabric_health", "gpu.ecc"):
        reading = told[key].reading
        assert isinstance(reading, Unknown)
        assert not reading.asked


# --- the area of a finding-----------------------------------------------------------------------------

FAULTS = [
    "h100-ill",
    "fail nvmlInitWithFlags = 18\n[gpu]\n",
    "fail nvmlInitWithFlags = 9\n[gpu]\n",
    "fail nvmlInitWithFlags = 999\n[gpu]\n",
    "fail nvmlInitWithFlags = 4\n[gpu]\n",
    "[gpu]\nmig = 1\n[gpu]\ncompute_mode = 2\n",
    "[gpu]\nfail nvmlDeviceGetHandleByIndex_v2 = 999\n[gpu]\nfail nvmlDeviceGetHandleByIndex_v2 = 8\n",
    "[gpu]\ncrash = nvmlDeviceGetEccMode\n[gpu]\nfail nvmlDeviceGetHandleByIndex_v2 = 17\n",
    "vgpu",
]


@pytest.mark.parametrize("scenario", FAULTS, ids=lambda text: text.partition("\n")[0])
def test_no_fault_of_driver_or_gpu_suggests_another_torch(box: Box, scenario: str) -> None:
    box.put("/.dockerenv").with_gpus(8)
    report = reported(probed(box.host(scenario)))
    told = json.loads(format_named("json")(report))["findings"]
    assert told
    for finding in (each for each in told if each["verdict"] == "broken"):
        assert finding["area"] in ("driver", "gpu", "machine"), finding["rule"]
        assert finding["fix"] == []
    text = format_named("text")(report)
    assert "pip install" not in text
    assert text.lower().replace("reinstalling torch does not help", "").count("reinstall") == 0


def test_the_text_names_the_area_of_a_finding(box: Box) -> None:
    text = format_named("text")(reported(probed(box.host("h100-ill"))))
    assert "[gpu-lost] (GPU)" in text
    assert "[✗] GPU " in text
    assert "[✓] Driver " in text
    assert "[✗] Packages " not in text
    mismatch = format_named("text")(reported(probed(box.host("fail nvmlInitWithFlags = 18\n[gpu]\n"))))
    assert "[driver-library-mismatch] (Driver)" in mismatch


# --- slices, shared memory, virtual GPUs --------------------------------------------------------------


def test_a_card_in_slices_has_the_memory_of_one_slice(box: Box) -> None:
    inventory = probed(box.host("mig"))
    assert inventory.known("gpu.memory_mib", 1) == 20937965568 >> 20
    assert inventory.known("gpu.memory_mib", 2) is None
    assert "no MIG device" in inventory.fact("gpu.memory_mib", 2).source
    found = findings(inventory)
    assert found["mig-without-instances"].severity is Severity.ERROR
    assert said_of(found, 2) == {"mig-without-instances"}
    assert said_of(found, 3) == {"mig-pending"}


def test_a_virtual_gpu_without_a_licence(box: Box) -> None:
    found = findings(probed(box.host("vgpu")))
    assert set(found) == {"gpu-virtual", "vgpu-without-licence"}


def test_a_gpu_that_shares_the_hosts_memory(box: Box) -> None:
    box.put("/proc/meminfo", "MemTotal:   125829120 kB\nMemAvailable: 104857600 kB\n")
    assert set(findings(probed(box.host("gb10")))) >= {"gpu-shares-host-memory"}


def test_memory_used_by_other_programs_is_a_note_with_its_size(box: Box) -> None:
    finding = findings(probed(box.host("[gpu]\nmig = 0\nmemory_free = 10737418240\n")))["gpu-memory-in-use"]
    assert finding.severity is Severity.NOTE
    assert finding.evidence[0].fact.value == 81920 - 10240


def test_gpus_of_several_models_are_numbered_in_two_ways(box: Box) -> None:
    inventory = probed(box.host("[gpu]\nname = Tesla T4\ncapability = 7.5\n[gpu]\n"))
    complete = Inventory.merged([inventory, Inventory(complete=frozenset({"env"}))])
    assert "gpu-order-differs" in findings(complete)
    ordered = complete.with_facts([Fact("env.CUDA_DEVICE_ORDER", Known("PCI_BUS_ID"))])
    assert "gpu-order-differs" not in findings(ordered)


# --- the bus ------------------------------------------------------------------------------------------


def switches(box: Box, count: int) -> Box:
    for number in range(count):
        address = f"0000:{number + 0xA0:02x}:00.0"
        box.put(f"/sys/bus/pci/devices/{address}/vendor", "0x10de\n")
        box.put(f"/sys/bus/pci/devices/{address}/class", "0x068000\n")
    return box


def test_a_gpu_that_the_driver_does_not_count_is_reported(box: Box) -> None:
    found = findings(probed(box.with_gpus(8).host("[gpu]\ncopies = 7\nmig = 0\n")))
    because = {each.fact.key: each.fact.value for each in found["gpus-missing-from-driver"].evidence}
    assert (because["gpus.count"], because["gpus.on_bus"]) == (7, 8)


def test_a_gpu_given_to_a_virtual_machine_is_not_reported(box: Box) -> None:
    box.with_gpus(8).put("/sys/bus/pci/devices/0000:08:00.0/uevent", "DRIVER=vfio-pci\nPCI_CLASS=30200\n")
    inventory = probed(box.host("[gpu]\ncopies = 7\nmig = 0\n"))
    assert inventory.known("gpus.on_bus") == 7
    assert "gpus-missing-from-driver" not in findings(inventory)


def test_in_a_container_the_bus_is_the_hosts(box: Box) -> None:
    switches(box.with_gpus(8), 4).put("/.dockerenv")
    inventory = probed(box.host("[gpu]\nmig = 0\n"))
    for key in ("gpus.on_bus", "gpus.nvswitches", "gpus.numa_nodes"):
        reading = inventory.fact(key).reading
        assert isinstance(reading, Unknown)
        assert not reading.asked
    assert findings(inventory) == {}


@pytest.mark.parametrize(("count", "odd"), [(7, True), (8, False), (4, False), (1, False)])
def test_an_odd_number_of_gpus_beside_nvswitches_is_noted(box: Box, count: int, odd: bool) -> None:
    found = findings(probed(switches(box.with_gpus(count), 4).host(f"[gpu]\ncopies = {count}\nmig = 0\n")))
    assert ("nvswitch-odd-gpus" in found) is odd


def test_numa_nodes_of_the_gpus_are_counted(box: Box) -> None:
    box.with_gpus(4)
    for number, node in enumerate(("0", "0", "1", "1")):
        box.put(f"/sys/bus/pci/devices/0000:{number + 1:02x}:00.0/numa_node", f"{node}\n")
    inventory = probed(box.host("[gpu]\ncopies = 4\nmig = 0\n"))
    assert inventory.known("gpus.numa_nodes") == 2
    offload = inventory.with_facts([Fact("train.offload_optimizer", Known("cpu"))])
    assert "offload-across-numa-nodes" in findings(offload)
    assert "offload-across-numa-nodes" not in findings(inventory)


# --- several libraries --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "code"), [("a stub", "12 library not found"), ("not an ELF file", "12 library not found")]
)
def test_a_library_that_does_not_work_is_passed_over_and_named(
    box: Box, tmp_path: Path, built: Callable[[str], Path], first: str, code: str
) -> None:
    stubs, driver = tmp_path / "stubs", tmp_path / "driver"
    for folder in (stubs, driver):
        folder.mkdir()
        (box.root / str(folder).lstrip("/")).mkdir(parents=True)
        (box.root / str(folder / LIBRARY).lstrip("/")).touch()
    (driver / LIBRARY).write_bytes((built("") / LIBRARY).read_bytes())
    if first == "a stub":
        # Another build of the same library, which gives its own version unless the scenario overrides it.
        stub = (built("") / LIBRARY).read_bytes().replace(b"\0FAKE_NVML\0", b"\0FAKE_STUB\0")
        (stubs / LIBRARY).write_bytes(stub)
        (tmp_path / "stub.ini").write_text("fail nvmlInitWithFlags = 12\n")
    else:
        (stubs / LIBRARY).write_text(first)
    environ = {
        "LD_LIBRARY_PATH": f"{stubs}:{driver}",
        "FAKE_STUB": str(tmp_path / "stub.ini"),
    }
    inventory = probed(box.host("h100", environ))
    assert inventory.known("gpus.count") == 1
    passed_over = inventory.fact("driver.passed_over")
    expected = str(stubs / LIBRARY) if first == "a stub" else LIBRARY
    assert passed_over.value == expected
    assert passed_over.source == f"NVML nvmlInit: {code}"
    assert str(driver) in inventory.fact("driver.library").source
    assert set(findings(inventory)) >= {"driver-library-shadowed"}


def test_the_first_librarys_answer_counts_where_no_other_works(
    box: Box, tmp_path: Path, built: Callable[[str], Path]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / LIBRARY).write_text("not an ELF file")
    first = built("")
    for folder in (first, other):
        (box.root / str(folder).lstrip("/")).mkdir(parents=True)
        (box.root / str(folder / LIBRARY).lstrip("/")).touch()
    environ = {"LD_LIBRARY_PATH": f"{first}:{other}"}
    inventory = probed(box.with_gpus(1).host("fail nvmlInitWithFlags = 18\n[gpu]\n", environ))
    assert inventory.known("driver.error") == "18 driver/library version mismatch"
    assert inventory.known("driver.library") == "550.54.15"
    assert inventory.known("driver.passed_over") is None


def test_a_device_file_that_may_not_be_opened_is_named_with_its_mode(box: Box) -> None:
    (box.root / "dev/nvidiactl").chmod(0o660)
    inventory = probed(box.with_gpus(1).host("fail nvmlInitWithFlags = 4\n[gpu]\n"))
    said = inventory.fact("driver.error").source
    assert "may not open /dev/nvidiactl (-rw-rw----, user " in said


def test_facts_read_here_are_not_used_for_declared_gpus(box: Box) -> None:
    inventory = probed(switches(box.with_gpus(8), 4).host("[gpu]\ncopies = 7\nmig = 0\n"))
    for gpu in ("H100", "none"):
        declared = declare_machine(inventory, known(), gpus=(gpu,))
        assert {"gpus-missing-from-driver", "nvswitch-odd-gpus"} & set(findings(declared)) == set()


# --- expecting GPUs -----------------------------------------------------------------------------------


def missing(inventory: Inventory, expected: int) -> tuple[str, list[tuple[str, int | None]]]:
    """The title and what it is because of; empty if enough can be used."""
    finding = missing_gpus(inventory, expected)
    if finding is None:
        return "", []
    assert finding.severity is Severity.ERROR
    return finding.rule.title, [(each.fact.key, each.device) for each in finding.evidence[1:]]


def test_enough_gpus_give_no_finding(box: Box) -> None:
    inventory = probed(box.host("h100x8"))
    assert [missing(inventory, expected)[0] for expected in (1, 7, 8)] == ["", "", ""]
    assert missing(inventory, 9) == ("9 GPUs are expected, 8 can be used", [("gpus.count", None)])


@pytest.mark.parametrize(
    ("scenario", "environ", "title", "because"),
    [
        ("lost", {}, "3 GPUs are expected, 2 can be used", [("gpu.error", 1)]),
        (
            "[gpu]\nmig = 1\n[gpu]\ncompute_mode = 2\n[gpu]\nfabric_state = 2\n",
            {},
            "3 GPUs are expected, none can be used",
            [("gpu.mig_instances", 0), ("gpu.compute_mode", 1), ("gpu.fabric", 2)],
        ),
        (
            "[gpu]\ncopies = 3\nmig = 0\n",
            {"CUDA_VISIBLE_DEVICES": "0,2"},
            "3 GPUs are expected, 2 can be used",
            [("gpu.visible", 1)],
        ),
        (
            "[gpu]\ncopies = 2\n",
            {},
            "3 GPUs are expected, 2 can be used",
            [("gpus.count", None), ("gpus.on_bus", None)],
        ),
        (
            "fail nvmlInitWithFlags = 18\n[gpu]\n",
            {},
            "3 GPUs are expected, none can be used",
            [("driver.error", None)],
        ),
    ],
)
def test_missing_gpus_are_named(
    box: Box, scenario: str, environ: dict[str, str], title: str, because: list[tuple[str, int | None]]
) -> None:
    assert missing(probed(box.with_gpus(3).host(scenario, environ)), 3) == (title, because)


def test_a_machine_without_a_gpu_lacks_every_expected_gpu(tmp_path: Path) -> None:
    Box(tmp_path).put("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    assert missing(probed(Host(tmp_path, {})), 1)[0] == "a GPU is expected, none can be used"


@pytest.mark.parametrize("command", ["doctor", "gate"])
def test_expecting_more_gpus_than_there_are_fails(tmp_path: Path, command: str) -> None:
    facts = tmp_path / "facts.toml"
    facts.write_text(
        'pkg = { torch = "2.6.0+cu124" }\n[[gpu]]\nname = "NVIDIA A100-SXM4-80GB"\n'
        '[[gpu]]\nname = "NVIDIA A100-SXM4-80GB"\nerror = "15 GPU lost"\n'
    )
    ask = (
        (command, "--facts", str(facts), "--skip", "gpu-lost")
        if command == "gate"
        else (command, "--facts", str(facts))
    )
    shut = envcheck(*ask, "--expect-gpus", "2", "-v")
    assert shut.code == 1
    assert "2 GPUs are expected, 1 can be used [machine:gpus] (GPU)" in shut.out
    assert "gpu[1].error = 15 GPU lost" in shut.out
    if command == "gate":
        assert envcheck(*ask, "--expect-gpus", "1").code == 0


@pytest.mark.parametrize("more", [("--gpu", "H100"), ("--driver", "550.54.15")])
def test_gpus_that_are_declared_are_not_counted_here(more: tuple[str, str]) -> None:
    ran = envcheck("doctor", "--facts", "docs/facts/no-kernel.toml", "--expect-gpus", "1", *more)
    assert ran.code == 2
    assert "--expect-gpus: counts the GPUs of this machine" in ran.err


def test_gpus_are_not_counted_for_declared_machines() -> None:
    ran = envcheck(
        "gate", "--facts", "docs/facts/no-kernel.toml", "--expect-gpus", "1", "--machine", "a100-r535"
    )
    assert ran.code == 2
    assert "machines are declared" in ran.err
