"""Read the NVIDIA driver and the GPUs: from /sys and /proc, NVML in a child process, else nvidia-smi.

The driver's own library may hang or crash, so only `_nvml_child.py` loads it, under a deadline; what that
child wrote before it was lost is kept. CUDA itself is never started: a context costs memory on every GPU and
fails where the compute mode is exclusive.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from envcheck.core import nvidia
from envcheck.core.facts import (
    Absent,
    Fact,
    Facts,
    Inventory,
    Key,
    Kind,
    Known,
    Reading,
    Unknown,
    is_device_key,
)
from envcheck.core.records import NamedTuple
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest, health, nvml
from envcheck.probes.nvml import FactSource, NvmlAnswers
from envcheck.probes.visible import ranks, uuids_in_proc, visibility

YIELDS = {
    "driver.version": Key(Kind.VERSION, "version of the NVIDIA kernel driver"),
    "driver.library": Key(Kind.VERSION, "driver version of the NVML library that programs load"),
    "driver.error": Key(Kind.WORD, "why NVML failed to start: its code and text"),
    "driver.passed_over": Key(Kind.WORD, "an NVML library that programs find first and that does not work"),
    "cuda.driver": Key(Kind.VERSION, "newest CUDA that the driver supports"),
    "gpus.count": Key(Kind.NUMBER, "NVIDIA GPUs in the machine"),
    "gpus.on_bus": Key(Kind.NUMBER, "NVIDIA GPUs on the PCI bus that are not given to a virtual machine"),
    "gpus.nvswitches": Key(Kind.NUMBER, "NVSwitch chips on the PCI bus"),
    "gpus.numa_nodes": Key(Kind.NUMBER, "NUMA nodes that the GPUs are attached to"),
    "gpus.mixed": Key(Kind.FLAG, "the GPUs are of several models"),
    "gpus.models": Key(Kind.WORDS, "names of the GPUs, each once"),
    "gpu.name": Key(Kind.WORD, "name of the GPU as the driver gives it"),
    "gpu.memory_mib": Key(
        Kind.NUMBER, "memory a program may use, MiB: of the card, of its smallest MIG slice, or the host's"
    ),
    "gpu.memory_free_mib": Key(Kind.NUMBER, "memory that is free now, MiB"),
    "gpu.compute_capability": Key(Kind.VERSION, "compute capability"),
    "gpu.mig": Key(Kind.FLAG, "MIG mode is on"),
    "gpu.mig_pending": Key(Kind.FLAG, "MIG mode will be on after the next reset"),
    "gpu.mig_instances": Key(Kind.NUMBER, "MIG devices that programs can use on this GPU"),
    "gpu.compute_mode": Key(Kind.WORD, "how many processes may use the GPU", nvml.COMPUTE_MODES),
    "gpu.visible": Key(Kind.FLAG, "CUDA_VISIBLE_DEVICES lets programs see the GPU"),
    "gpu.rank": Key(Kind.NUMBER, "the number of the GPU in programs (cuda:0); absent if it is hidden"),
    **health.YIELDS,
}

_IN_PROC = r"Kernel Module\s+(?:for\s+\S+\s+)?(\d+(?:\.\d+)+)"


# --- what the files tell ------------------------------------------------------------------------------


class DriverFiles(NamedTuple):
    """What /proc, /sys and /dev show without calling the driver."""

    driver: Fact  # driver.version
    bus: tuple[str, ...]  # PCI addresses of NVIDIA GPUs, in order
    switches: int  # NVSwitch chips beside them
    numa: tuple[str, ...]  # the NUMA node of each of these GPUs as the kernel writes it; -1 if it has none
    has_bus: bool
    names: Mapping[str, str]  # PCI address → name, where the kernel module gives one
    container: bool
    nodes: bool  # a device file through which programs reach a GPU
    elsewhere: str  # why there may be a GPU that is on no PCI bus; "" if nothing indicates one
    nouveau: bool


def read_files(host: Host) -> DriverFiles:
    """Read all facts about the driver and the GPUs that files contain."""
    bus, switches = nvidia_on_bus(host)
    return DriverFiles(
        driver=driver_version(host),
        bus=bus,
        switches=len(switches),
        numa=tuple((host.read_text(f"{_DEVICES}/{address}/numa_node") or "").strip() for address in bus),
        has_bus=host.exists("/sys/bus/pci/devices"),
        names=names_in_proc(host),
        container=in_container(host),
        nodes=any(host.exists(f"/dev/{node}") for node in ("nvidiactl", "nvidia0", "dxg")),
        elsewhere=_off_the_bus(host),
        nouveau=host.exists("/sys/module/nouveau"),
    )


def driver_version(host: Host) -> Fact:
    """Return `driver.version` of the loaded kernel module; Absent if none is loaded."""
    path = "/sys/module/nvidia/version"
    text = (host.read_text(path) or "").strip()
    if re.fullmatch(nvml.VERSION, text):
        return Fact("driver.version", Known(text), path)
    path = "/proc/driver/nvidia/version"
    found = re.search(_IN_PROC, host.read_text(path) or "")
    if found is not None:
        return Fact("driver.version", Known(found[1]), path)
    return Fact(
        "driver.version", Absent(), "no NVIDIA kernel module in /sys/module/nvidia or /proc/driver/nvidia"
    )


_DEVICES = "/sys/bus/pci/devices"


def nvidia_on_bus(host: Host) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return PCI addresses of the NVIDIA GPUs (vendor 10de, class 03) and NVSwitches (class 0680).

    Devices that are given to a virtual machine, or reserved for one, are left out: programs here cannot use
    them.
    """
    found: dict[str, list[str]] = {"0x03": [], "0x0680": []}
    for address in host.listdir(_DEVICES):
        if (host.read_text(f"{_DEVICES}/{address}/vendor") or "").strip() != "0x10de":
            continue
        device = host.read_text(f"{_DEVICES}/{address}/class") or ""
        kind = next((prefix for prefix in found if device.startswith(prefix)), None)
        # An SR-IOV virtual function is not another card: it is meant for a guest.
        if kind is None or host.exists(f"{_DEVICES}/{address}/physfn"):
            continue
        if "DRIVER=vfio-pci" not in (host.read_text(f"{_DEVICES}/{address}/uevent") or ""):
            found[kind].append(address)
    gpus, switches = found.values()
    return tuple(gpus), tuple(switches)


def names_in_proc(host: Host) -> dict[str, str]:
    """Return names of GPUs by PCI address, from the kernel module's /proc/driver/nvidia/gpus."""
    folder = "/proc/driver/nvidia/gpus"
    names = {}
    for address in host.listdir(folder):
        for line in (host.read_text(f"{folder}/{address}/information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model" and value.strip() not in ("", "Unknown"):
                names[address] = value.strip()
    return names


def in_container(host: Host) -> bool:
    """Return whether this is a container, whose bus shows all GPUs of the host, usable or not."""
    if any(host.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv")):
        return True
    if "KUBERNETES_SERVICE_HOST" in host.environ or host.environ.get("container"):
        return True
    groups = host.read_text("/proc/1/cgroup") or ""
    if any(hint in groups for hint in ("docker", "kubepods", "containerd", "libpod", "/lxc")):
        return True
    # This is the only sign of a `RUN` of BuildKit. A live system has it too, where it does no harm.
    mounts = host.read_text("/proc/self/mountinfo") or ""
    return any(" / / " in line and " - overlay " in line for line in mounts.splitlines())


def _off_the_bus(host: Host) -> str:
    """Return why there may be a GPU that is on no PCI bus; empty if nothing indicates one."""
    if host.exists("/etc/nv_tegra_release"):
        return "this is a Tegra system, whose GPU is not on a PCI bus and does not support NVML"
    if host.exists("/dev/dxg"):
        return "under WSL a GPU is not on a PCI bus, and no NVIDIA driver library answered"
    return ""


# --- one GPU, as NVML describes it --------------------------------------------------------------------

DEVICE_FACTS: Mapping[str, FactSource] = {
    "gpu.name": FactSource("nvmlDeviceGetName", nvml.gpu_name),
    "gpu.compute_capability": FactSource("nvmlDeviceGetCudaComputeCapability", nvml.capability),
    "gpu.mig": FactSource("nvmlDeviceGetMigMode", nvml.mig_now),
    "gpu.mig_pending": FactSource("nvmlDeviceGetMigMode", nvml.mig_pending),
    "gpu.compute_mode": FactSource("nvmlDeviceGetComputeMode", nvml.compute_mode),
}


def device_facts(answers: NvmlAnswers, gpu: int) -> dict[str, Fact]:
    """Return the facts of one GPU that NVML counted; each is known or unknown independently."""
    facts = {
        key: Fact(key, read(answers.value(gpu, call)), f"NVML {call}")
        for key, (call, read) in DEVICE_FACTS.items()
    }
    problem = answers.problems.get((gpu, "nvmlDeviceGetMigMode"))
    if problem is not None and problem.code in (nvidia.NOT_SUPPORTED, nvidia.FUNCTION_NOT_FOUND):
        # A card or driver without MIG gives this answer, so MIG cannot be on.
        why = f"NVML nvmlDeviceGetMigMode: {nvidia.code_in_words(problem.code)}"
        facts |= {key: Fact(key, Known(False), why) for key in ("gpu.mig", "gpu.mig_pending")}
    facts["gpu.mig_instances"] = _mig_instances(answers, gpu, facts["gpu.mig"])
    mig = facts["gpu.mig"].value is True
    facts |= health.facts(answers, gpu, mig=mig)
    facts |= _memory(answers, gpu, slices=facts["gpu.mig_instances"].reading if mig else None)
    return facts


_MEMORY: Mapping[str, Callable[[object], Reading]] = {
    "gpu.memory_mib": nvml.total_mib,
    "gpu.memory_free_mib": nvml.free_mib,
    "gpu.memory_used_mib": nvml.used_mib,
}


def _memory(answers: NvmlAnswers, gpu: int, slices: Reading | None) -> dict[str, Fact]:
    """Return the memory that a program may use; for a card in MIG slices, that of the smallest slice.

    `slices` is how many slices there are, or None if MIG is off. A program sees only one slice.
    """
    call = "nvmlDeviceGetMemoryInfo"
    if slices is None:
        newer = f"{call}_v2"
        call = newer if (gpu, newer) in answers.answers else call
        value, source = answers.value(gpu, call), f"NVML {call}"
    elif slices == Known(0):
        none = f"NVML {call}: MIG is on and there is no MIG device"
        return {key: Fact(key, Absent(), none) for key in _MEMORY}
    else:
        source = f"NVML {call}: MIG is on, the smallest slice"
        sizes = [answers.value(*key) for key in answers.calls(f"{call} slice") if key[0] == gpu]
        unread = [size for size in (slices, *sizes) if isinstance(size, Unknown)]
        value = unread[0] if unread else min(sizes, key=_total, default=Unknown("no slice was queried"))
    return {key: Fact(key, read(value), source) for key, read in _MEMORY.items()}


def _total(memory: object) -> int:
    reading = nvml.total_mib(memory)
    return int(reading.value) if isinstance(reading, Known) and isinstance(reading.value, int) else 0


def shared_memory(host: Host, answers: NvmlAnswers, gpu: int, device: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return `gpu.memory_shared`; for a GPU without memory also the memory facts, from the host's memory.

    For such a GPU drivers answer "not supported" to every version of the call. The GPU's name is checked as
    well, because the same answer from a card with memory is a fault.
    """
    key, call, name = "gpu.memory_shared", "nvmlDeviceGetMemoryInfo", device["gpu.name"].reading
    parts = str(name.value).split() if isinstance(name, Known) else []
    shares = any(chip in parts for chip in nvidia.SHARES_HOST_MEMORY)
    fact = Fact(key, Known(shares), f"gpu.name, NVML {call}")
    for reading in () if shares else (name, device["gpu.memory_mib"].reading):
        if isinstance(reading, Unknown):
            return {key: Fact(key, Unknown(reading.why, asked=False))}
    codes = [answers.code(gpu, version) for version in (call, f"{call}_v2")]
    if not shares or nvidia.NOT_SUPPORTED not in codes or None in codes:
        return {key: fact}
    text = host.read_text("/proc/meminfo") or ""
    mib = {label: int(kib) >> 10 for label, kib in re.findall(r"(?m)^(\w+):\s+(\d{1,15}) kB", text)}
    total, free = mib.get("MemTotal"), mib.get("MemAvailable")
    source = "/proc/meminfo: the GPU shares the host's memory"
    amounts = {"gpu.memory_mib": total, "gpu.memory_free_mib": free}
    return {
        key: fact,
        **{name: Fact(name, Known(value), source) for name, value in amounts.items() if value is not None},
    }


def _mig_instances(answers: NvmlAnswers, gpu: int, mig: Fact) -> Fact:
    """Return the number of MIG devices; with MIG on and no such device, nothing can run on the card."""
    key, call = "gpu.mig_instances", "nvmlDeviceGetMigDeviceHandleByIndex"
    if mig.value is not True:
        return Fact(key, mig.reading if isinstance(mig.reading, Unknown) else Known(0), mig.source)
    slots = answers.value(gpu, "nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(slots, Unknown):
        return Fact(key, slots, "NVML nvmlDeviceGetMaxMigDeviceCount")
    problems = [
        problem
        for (other, made), problem in answers.problems.items()
        if other == gpu and made.startswith(call) and problem.code != nvidia.NOT_FOUND
    ]
    found = sum(other == gpu and made.startswith(call) for other, made in answers.answers)
    return Fact(key, Unknown(problems[0].why) if problems else Known(found), f"NVML {call}")


# --- all facts ----------------------------------------------------------------------------------------


def from_nvml(host: Host, files: DriverFiles, answers: NvmlAnswers, count: int) -> Inventory:
    """Return the facts where NVML started and counted the GPUs."""
    source = "NVML nvmlDeviceGetCount"
    facts = [
        _version(files, answers),
        _library(answers),
        Fact("driver.error", Absent(), "NVML nvmlInit"),
        _cuda(answers),
        _passed_over(answers),
        *on_the_bus(files),
    ]
    if count > nvml.MOST_GPUS:
        absurd = Unknown(f"the driver reported an implausible number of GPUs: {count}")
        facts += [Fact(key, absurd, source) for key in ("gpus.count", "gpus.models", "gpus.mixed")]
        return Inventory(_by_key(facts), unread={"gpu": absurd.why})
    if len(files.bus) > count and not files.container:
        source += f"; the PCI bus shows {len(files.bus)}"
    uuids = [answers.text(gpu, "nvmlDeviceGetUUID") for gpu in range(count)]
    found = [device_facts(answers, gpu) for gpu in range(count)]
    found = [device | shared_memory(host, answers, gpu, device) for gpu, device in enumerate(found)]
    devices = _with_visible(host, found, uuids)
    facts += [Fact("gpus.count", Known(count), source), *models(devices, "NVML nvmlDeviceGetName")]
    return Inventory(_by_key(facts), devices, frozenset() if devices else frozenset({"gpu"}))


def without_nvml(host: Host, files: DriverFiles, answers: NvmlAnswers, why: str) -> Inventory:
    """Return the facts of a GPU or driver that is present but not counted by NVML, for the reason `why`."""
    unknown = Unknown(why, asked=not host.staged)
    version = files.driver
    if files.nouveau and not isinstance(version.reading, Known):
        version = Fact(version.key, version.reading, f"{version.source}; nouveau drives the GPU")
    library = _library(answers)
    if isinstance(library.reading, Unknown):
        library = Fact(library.key, Absent() if _no_library(answers) else unknown, "NVML")
    facts = [
        version,
        library,
        _error(answers, unknown),
        Fact("cuda.driver", unknown, "NVML"),
        Fact("driver.passed_over", unknown if host.staged else Absent(), "NVML"),
        *on_the_bus(files),
    ]
    if files.container or not files.bus:
        # A container sees the host's whole bus, including GPUs that it cannot use.
        facts += [Fact(key, unknown, "NVML") for key in ("gpus.count", "gpus.models", "gpus.mixed")]
        return Inventory(
            {**_by_key(facts), **health.never_asked(why)}, unread={"gpu": why} if unknown.asked else {}
        )
    on_bus = [_device_on_bus(files, address, unknown) for address in files.bus]
    uuids = uuids_in_proc(host)
    if len(uuids) != len(on_bus):  # it is not known which UUID belongs to which GPU
        uuids = [""] * len(on_bus)
    devices = _with_visible(host, on_bus, uuids)
    facts += [
        Fact("gpus.count", Known(len(on_bus)), "/sys/bus/pci/devices"),
        *models(devices, "/proc/driver/nvidia/gpus"),
    ]
    return Inventory(_by_key(facts), devices)


def no_gpu() -> Inventory:
    """Return the facts of a machine that certainly has no NVIDIA GPU."""
    source = "no NVIDIA display device in /sys/bus/pci/devices"
    keys = ("driver.version", "driver.library", "driver.error", "driver.passed_over", "cuda.driver")
    facts = [Fact(key, Absent(), source) for key in keys]
    facts += [Fact("gpus.count", Known(0), source), *models((), source)]
    return Inventory(_by_key(facts), complete=frozenset({"gpu", "gpus", "driver"}))


def not_expected(why: str) -> Inventory:
    """Return the facts where no GPU can be expected: in a container being built, or without a visible bus."""
    unknown = Unknown(why, asked=False)
    return Inventory({key: Fact(key, unknown) for key in YIELDS if not is_device_key(key)})


def models(devices: Sequence[Facts], source: str) -> tuple[Fact, Fact]:
    """Return `gpus.models`, each name once in the order of the GPUs, and `gpus.mixed`.

    Both are unknown if one name is.
    """
    names: dict[str, None] = {}
    for device in devices:
        reading = device["gpu.name"].reading
        if not isinstance(reading, Known):
            return Fact("gpus.models", reading, source), Fact("gpus.mixed", reading, source)
        names[str(reading.value)] = None
    return (
        Fact("gpus.models", Known(tuple(names)), source),
        Fact("gpus.mixed", Known(len(names) > 1), source),
    )


def on_the_bus(files: DriverFiles) -> tuple[Fact, Fact, Fact]:
    """Return what the PCI bus shows; unknown in a container, which sees the host's bus."""
    keys = ("gpus.on_bus", "gpus.nvswitches", "gpus.numa_nodes")
    if files.container or not files.has_bus:
        why = "a container sees the host's PCI bus" if files.container else f"there is no {_DEVICES}"
        unknown = Unknown(why, asked=False)
        on_bus, switches, numa_nodes = (Fact(key, unknown, _DEVICES) for key in keys)
        return on_bus, switches, numa_nodes
    nodes = set(files.numa)
    named = bool(nodes) and all(node.isdecimal() for node in nodes)
    numa = Known(len(nodes)) if named else Unknown("the kernel names no NUMA node of the GPUs", asked=False)
    return (
        Fact("gpus.on_bus", Known(len(files.bus)), _DEVICES),
        Fact("gpus.nvswitches", Known(files.switches), _DEVICES),
        Fact("gpus.numa_nodes", numa, f"{_DEVICES}/*/numa_node"),
    )


def _by_key(facts: Sequence[Fact]) -> Facts:
    return {fact.key: fact for fact in facts}


def _with_visible(host: Host, devices: Sequence[Facts], uuids: Sequence[str]) -> tuple[Facts, ...]:
    names = [device["gpu.name"].value for device in devices]
    migs = [device["gpu.mig"].value for device in devices]
    seen = visibility(host.environ, uuids, names, migs)
    by_device = ranks(host.environ, uuids, names, seen)
    source = "the environment variable CUDA_VISIBLE_DEVICES"
    return tuple(
        {**device, **_by_key([Fact("gpu.visible", reading, source), Fact("gpu.rank", rank, source)])}
        for device, reading, rank in zip(devices, seen, map(_rank, devices, uuids, by_device), strict=True)
    )


def _rank(device: Facts, uuid: str, rank: Reading) -> Reading:
    """Return the rank of a GPU; for one without name and UUID, the reason why they are unknown."""
    name = device["gpu.name"].reading
    silent = isinstance(name, Unknown) and not uuid and not isinstance(rank, Absent)
    return name if silent else rank


def _device_on_bus(files: DriverFiles, address: str, unknown: Unknown) -> dict[str, Fact]:
    facts = {key: Fact(key, unknown, "NVML") for key in YIELDS if is_device_key(key)}
    facts |= health.never_asked(unknown.why)
    if name := files.names.get(address):
        facts["gpu.name"] = Fact("gpu.name", Known(name), "/proc/driver/nvidia/gpus")
    return facts


def _version(files: DriverFiles, answers: NvmlAnswers) -> Fact:
    if isinstance(files.driver.reading, Known):
        return files.driver
    call = "nvmlSystemGetDriverVersion"
    return Fact("driver.version", nvml.version_of(answers.value(None, call)), f"NVML {call}")


def _library(answers: NvmlAnswers) -> Fact:
    call, file = "nvmlSystemGetNVMLVersion", answers.text(None, "library")
    reading = nvml.library_version(answers.value(None, call), file)
    return Fact("driver.library", reading, f"NVML {call}" + (f", {file}" if file else ""))


def _passed_over(answers: NvmlAnswers) -> Fact:
    """Return `driver.passed_over`: a broken library that other programs load before the one that answered."""
    key = "driver.passed_over"
    if answers.passed_over is None:
        return Fact(key, Absent(), "NVML nvmlInit")
    file, code = answers.passed_over
    return Fact(key, Known(file), f"NVML nvmlInit: {nvidia.code_in_words(code)}")


def _no_library(answers: NvmlAnswers) -> bool:
    failed = answers.failed
    return answers.silence == nvml.NO_LIBRARY or (
        failed is not None and failed[1] == nvidia.LIBRARY_NOT_FOUND
    )


def _cuda(answers: NvmlAnswers) -> Fact:
    newer, older = "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"
    call = older if (None, older) in answers.answers else newer
    return Fact("cuda.driver", nvml.cuda_version(answers.value(None, call)), f"NVML {call}")


def _error(answers: NvmlAnswers, unknown: Unknown) -> Fact:
    """Return `driver.error`; the same failure has the same words, so that a rule can name it."""
    if answers.failed is not None:
        return Fact("driver.error", Known(nvidia.code_in_words(answers.failed[1])), unknown.why)
    return Fact("driver.error", Known(answers.lost) if answers.lost else unknown, unknown.why)


def why_not(host: Host, files: DriverFiles, answers: NvmlAnswers) -> str:
    """Return why NVML did not count the GPUs, and what can be done about it."""
    if answers.failed is None:
        return answers.silence
    call, code = answers.failed
    library = _library(answers).value or "unknown"
    advice = {
        4: f"this user may not open /dev/nvidiactl{host.permissions('/dev/nvidiactl')}",
        9: "the kernel module is not loaded" + (", nouveau is" if files.nouveau else ""),
        12: f"{nvidia.LIBRARY} could not be loaded",
        18: f"kernel module {files.driver.value or 'unknown'}, library {library}; "
        + ("restart the container" if files.container else "reboot, or reload the module"),
        999: "the container has lost its devices, as it does when the host runs `systemctl daemon-reload`; "
        "restart the container"
        if files.container
        else "the driver gives no reason; see the kernel log for Xid messages",
    }.get(code)
    return f"NVML {call}: {nvidia.code_in_words(code)}" + (f": {advice}" if advice else "")


# --- nvidia-smi ---------------------------------------------------------------------------------------

SMI_FIELDS = "name,memory.total,memory.free,driver_version"


def find_smi(host: Host) -> str | None:
    """Return the nvidia-smi that a shell would run here, or WSL's, which is not on the path."""
    folders = [*host.environ.get("PATH", "").split(":"), "/usr/lib/wsl/lib"]
    paths = (f"{folder}/nvidia-smi" for folder in folders if folder.startswith("/"))
    return next((path for path in paths if host.exists(path)), None)


def ask_smi(host: Host, deadline_s: float) -> Inventory | None:
    """Return the facts that nvidia-smi reports; None if there is no nvidia-smi or it gives no rows."""
    smi = None if host.staged else find_smi(host)
    if smi is None:
        return None
    query = f"--query-gpu={SMI_FIELDS}"
    try:
        ran = host.run((smi, query, "--format=csv,noheader,nounits"), deadline_s)
    except OSError:
        return None
    rows = list(smi_rows(ran.out)) if ran.code == 0 else []
    if not rows:
        return None
    source = f"nvidia-smi {query}"
    not_told = Unknown("nvidia-smi was used instead of NVML and does not report it")
    facts = {key: Fact(key, not_told) for key in YIELDS if not is_device_key(key)}
    facts["driver.passed_over"] = Fact("driver.passed_over", Unknown(not_told.why, asked=False))
    facts["driver.version"] = Fact("driver.version", nvml.version_of(rows[0].driver), source)
    facts["gpus.count"] = Fact("gpus.count", Known(len(rows)), source)
    devices = [_device_of_smi(row, not_told, source) for row in rows]
    facts |= _by_key(models(devices, source))
    return Inventory(facts, _with_visible(host, devices, [""] * len(devices)))


def _device_of_smi(row: SmiRow, not_told: Unknown, source: str) -> dict[str, Fact]:
    device = {key: Fact(key, not_told) for key in YIELDS if is_device_key(key)}
    device |= health.never_asked(not_told.why)
    total, free = row.total_mib, row.free_mib
    memory = [int(total) << 20, int(free) << 20] if total.isdecimal() and free.isdecimal() else total
    device["gpu.name"] = Fact("gpu.name", nvml.gpu_name(row.name), source)
    device["gpu.memory_mib"] = Fact("gpu.memory_mib", nvml.total_mib(memory), source)
    device["gpu.memory_free_mib"] = Fact("gpu.memory_free_mib", nvml.free_mib(memory), source)
    return device


class SmiRow(NamedTuple):
    """One GPU in nvidia-smi's answer, as text, in the order of SMI_FIELDS."""

    name: str
    total_mib: str
    free_mib: str
    driver: str


def smi_rows(text: str) -> Iterator[SmiRow]:
    """Yield the rows of nvidia-smi's answer; a name may contain a comma, the other fields cannot."""
    for line in text.splitlines():
        parts = line.rsplit(",", 3)
        if len(parts) == 4:  # noqa: PLR2004 - SMI_FIELDS
            yield SmiRow(*(part.strip() for part in parts))


# --- the probe ----------------------------------------------------------------------------------------


def begin(host: Host, request: ProbeRequest) -> Collect:
    """Start the NVML child, read the files while it runs, and return the function that combines both."""
    child = nvml.start_child(host, request.deadline_s)
    started = time.monotonic()
    files = read_files(host)
    allowance_s = nvml.allowance_s(request.deadline_s, len(files.bus))

    def collect() -> Inventory:
        answers = NvmlAnswers(silence=child) if isinstance(child, str) else child.answers(allowance_s)
        left_s = max(started + allowance_s - time.monotonic(), 0.1)
        return conclude(host, files, answers, left_s)

    return collect


def conclude(host: Host, files: DriverFiles, answers: NvmlAnswers, left_s: float) -> Inventory:
    """Combine the facts from files and NVML; run nvidia-smi only if it may report more."""
    if answers.count is not None:
        return from_nvml(host, files, answers, answers.count)
    # nvidia-smi uses NVML itself: where NVML hangs or refuses, nvidia-smi would do so again.
    if (answers.failed is None and answers.lost != "no answer") or _no_library(answers):
        by_smi = ask_smi(host, left_s)
        if by_smi is not None:
            loaded = [files.driver] if isinstance(files.driver.reading, Known) else []
            return by_smi.with_facts([*loaded, *on_the_bus(files)])
    return unanswered(host, files, answers)


def unanswered(host: Host, files: DriverFiles, answers: NvmlAnswers) -> Inventory:
    """Return the facts where neither NVML nor nvidia-smi counted the GPUs, of which there may be none."""
    why = why_not(host, files, answers)
    if files.container and not files.nodes:
        return not_expected(f"in a container without a driver or GPU devices ({why})")
    if files.bus or isinstance(files.driver.reading, Known) or (files.nodes and not files.elsewhere):
        return without_nvml(host, files, answers, why)
    if files.elsewhere:
        return not_expected(f"{files.elsewhere} ({why})")
    return no_gpu() if files.has_bus else not_expected("there is no /sys/bus/pci/devices to look for GPUs in")


PROBE = Probe("driver", YIELDS, begin)
