"""The NVIDIA driver and the GPUs: from /sys and /proc, from NVML in a child process, nvidia-smi last.

The driver's own library may hang or crash, so it is only ever asked by `_nvml_child.py`, with a deadline;
what that child wrote before it was lost is kept. CUDA itself is never started: a context costs memory on
every GPU and fails where the compute mode is exclusive.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

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
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest, health, nvml
from envcheck.probes.nvml import Heard
from envcheck.probes.visible import ranks, told_uuids, visibility

YIELDS = {
    "driver.version": Key(Kind.VERSION, "version of the NVIDIA kernel driver"),
    "driver.library": Key(Kind.VERSION, "driver version of the NVML library that programs load"),
    "driver.error": Key(Kind.WORD, "how NVML failed to start: its code and words"),
    "driver.passed_over": Key(Kind.WORD, "an NVML library that programs find first and that does not work"),
    "cuda.driver": Key(Kind.VERSION, "newest CUDA the driver speaks"),
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
    "gpu.memory_free_mib": Key(Kind.NUMBER, "memory nobody uses now, MiB"),
    "gpu.compute_capability": Key(Kind.VERSION, "compute capability"),
    "gpu.mig": Key(Kind.FLAG, "MIG mode is on"),
    "gpu.mig_pending": Key(Kind.FLAG, "MIG mode will be on after the next reset"),
    "gpu.mig_instances": Key(Kind.NUMBER, "MIG devices that programs can use on this GPU"),
    "gpu.compute_mode": Key(Kind.WORD, "how many processes may use the GPU", nvml.COMPUTE_MODES),
    "gpu.visible": Key(Kind.FLAG, "CUDA_VISIBLE_DEVICES lets programs see the GPU"),
    "gpu.rank": Key(Kind.NUMBER, "the number programs know the GPU by (cuda:0); absent if it is hidden"),
    **health.YIELDS,
}

_IN_PROC = r"Kernel Module\s+(?:for\s+\S+\s+)?(\d+(?:\.\d+)+)"


# --- what the files say -------------------------------------------------------------------------------


class Scene(NamedTuple):
    """What files say without asking the driver."""

    driver: Fact  # driver.version
    bus: tuple[str, ...]  # PCI addresses of NVIDIA GPUs, in order
    switches: int  # NVSwitch chips beside them
    numa: tuple[str, ...]  # the NUMA node of each of these GPUs as the kernel writes it; -1 if it has none
    has_bus: bool
    names: Mapping[str, str]  # PCI address → name, where the kernel module tells
    container: bool
    nodes: bool  # a device file through which programs reach a GPU
    elsewhere: str  # why a GPU might be here that is on no PCI bus; "" if nothing hints at one
    nouveau: bool


def look(host: Host) -> Scene:
    """Read everything files tell about the driver and the GPUs."""
    bus, switches = nvidia_on_bus(host)
    return Scene(
        driver=driver_version(host),
        bus=bus,
        switches=len(switches),
        numa=tuple((host.read_text(f"{_DEVICES}/{each}/numa_node") or "").strip() for each in bus),
        has_bus=host.exists("/sys/bus/pci/devices"),
        names=names_in_proc(host),
        container=in_container(host),
        nodes=any(host.exists(f"/dev/{node}") for node in ("nvidiactl", "nvidia0", "dxg")),
        elsewhere=_off_the_bus(host),
        nouveau=host.exists("/sys/module/nouveau"),
    )


def driver_version(host: Host) -> Fact:
    """`driver.version` as the loaded kernel module tells it; Absent if none is loaded."""
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
    """PCI addresses of the NVIDIA GPUs (vendor 10de, class 03) and NVSwitches (class 0680).

    What a virtual machine has or shall have is left out: it is nothing that programs here could use.
    """
    found: dict[str, list[str]] = {"0x03": [], "0x0680": []}
    for address in host.listdir(_DEVICES):
        if (host.read_text(f"{_DEVICES}/{address}/vendor") or "").strip() != "0x10de":
            continue
        device = host.read_text(f"{_DEVICES}/{address}/class") or ""
        kind = next((each for each in found if device.startswith(each)), None)
        # An SR-IOV virtual function of a card is for a guest, not one more card.
        if kind is None or host.exists(f"{_DEVICES}/{address}/physfn"):
            continue
        if "DRIVER=vfio-pci" not in (host.read_text(f"{_DEVICES}/{address}/uevent") or ""):
            found[kind].append(address)
    gpus, switches = found.values()
    return tuple(gpus), tuple(switches)


def names_in_proc(host: Host) -> dict[str, str]:
    """Names of GPUs by PCI address, from the kernel module's /proc/driver/nvidia/gpus."""
    folder = "/proc/driver/nvidia/gpus"
    names = {}
    for address in host.listdir(folder):
        for line in (host.read_text(f"{folder}/{address}/information") or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Model" and value.strip() not in ("", "Unknown"):
                names[address] = value.strip()
    return names


def in_container(host: Host) -> bool:
    """Whether this is a container, where the bus shows the host's GPUs but only passed ones can be used."""
    if any(host.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv")):
        return True
    if "KUBERNETES_SERVICE_HOST" in host.environ or host.environ.get("container"):
        return True
    groups = host.read_text("/proc/1/cgroup") or ""
    if any(hint in groups for hint in ("docker", "kubepods", "containerd", "libpod", "/lxc")):
        return True
    # A `RUN` of BuildKit leaves no other mark than this. A live system has it too, and there it does no harm.
    mounts = host.read_text("/proc/self/mountinfo") or ""
    return any(" / / " in line and " - overlay " in line for line in mounts.splitlines())


def _off_the_bus(host: Host) -> str:
    if host.exists("/etc/nv_tegra_release"):
        return "this is a Tegra system, whose GPU is on no PCI bus and answers no NVML"
    if host.exists("/dev/dxg"):
        return "under WSL a GPU is on no PCI bus, and no NVIDIA driver library answered"
    return ""


DEVICE_FACTS: Mapping[str, tuple[str, Callable[[object], Reading]]] = {
    "gpu.name": ("nvmlDeviceGetName", nvml.gpu_name),
    "gpu.compute_capability": ("nvmlDeviceGetCudaComputeCapability", nvml.capability),
    "gpu.mig": ("nvmlDeviceGetMigMode", nvml.mig_now),
    "gpu.mig_pending": ("nvmlDeviceGetMigMode", nvml.mig_pending),
    "gpu.compute_mode": ("nvmlDeviceGetComputeMode", nvml.compute_mode),
}


def device_facts(heard: Heard, gpu: int) -> dict[str, Fact]:
    """The facts of one GPU that NVML counted, each known or unknown by itself."""
    facts = {
        key: Fact(key, read(heard.value(gpu, call)), f"NVML {call}")
        for key, (call, read) in DEVICE_FACTS.items()
    }
    problem = heard.problems.get((gpu, "nvmlDeviceGetMigMode"))
    if problem is not None and problem.code in (nvidia.NOT_SUPPORTED, nvidia.FUNCTION_NOT_FOUND):
        # The card, or a driver older than MIG, answers so: there is nothing that could be on.
        why = f"NVML nvmlDeviceGetMigMode: {nvidia.code_in_words(problem.code)}"
        facts |= {key: Fact(key, Known(False), why) for key in ("gpu.mig", "gpu.mig_pending")}
    facts["gpu.mig_instances"] = _mig_instances(heard, gpu, facts["gpu.mig"])
    mig = facts["gpu.mig"].value is True
    facts |= health.facts(heard, gpu, mig=mig)
    facts |= _memory(heard, gpu, slices=facts["gpu.mig_instances"].reading if mig else None)
    return facts


_MEMORY: Mapping[str, Callable[[object], Reading]] = {
    "gpu.memory_mib": nvml.total_mib,
    "gpu.memory_free_mib": nvml.free_mib,
    "gpu.memory_used_mib": nvml.used_mib,
}


def _memory(heard: Heard, gpu: int, slices: Reading | None) -> dict[str, Fact]:
    """What a program may use: of a card in MIG slices the smallest of them, of which it sees one."""
    call = "nvmlDeviceGetMemoryInfo"
    if slices is None:
        newer = f"{call}_v2"
        call = newer if (gpu, newer) in heard.answers else call
        value, source = heard.value(gpu, call), f"NVML {call}"
    elif slices == Known(0):
        none = f"NVML {call}: MIG is on and there is no MIG device"
        return {key: Fact(key, Absent(), none) for key in _MEMORY}
    else:
        source = f"NVML {call}: MIG is on, the smallest slice"
        told = [heard.value(*asked) for asked in heard.asked(f"{call} slice") if asked[0] == gpu]
        unread = [each for each in (slices, *told) if isinstance(each, Unknown)]
        value = unread[0] if unread else min(told, key=_total, default=Unknown("no slice was asked"))
    return {key: Fact(key, read(value), source) for key, read in _MEMORY.items()}


def _total(memory: object) -> int:
    reading = nvml.total_mib(memory)
    return int(reading.value) if isinstance(reading, Known) and isinstance(reading.value, int) else 0


def shared_memory(host: Host, heard: Heard, gpu: int, device: Mapping[str, Fact]) -> dict[str, Fact]:
    """`gpu.memory_shared`, and the host's memory as the GPU's where it has none of its own.

    Drivers answer "not supported" then, whichever version of the call is made. A name is asked for as well:
    the same answer of a card that has memory would be a fault.
    """
    key, call, name = "gpu.memory_shared", "nvmlDeviceGetMemoryInfo", device["gpu.name"].reading
    words = str(name.value).split() if isinstance(name, Known) else []
    shares = any(chip in words for chip in nvidia.SHARES_HOST_MEMORY)
    fact = Fact(key, Known(shares), f"gpu.name, NVML {call}")
    for reading in () if shares else (name, device["gpu.memory_mib"].reading):
        if isinstance(reading, Unknown):
            return {key: Fact(key, Unknown(reading.why, asked=False))}
    tried = [heard.code(gpu, each) for each in (call, f"{call}_v2")]
    if not shares or nvidia.NOT_SUPPORTED not in tried or None in tried:
        return {key: fact}
    text = host.read_text("/proc/meminfo") or ""
    mib = {word: int(kib) >> 10 for word, kib in re.findall(r"(?m)^(\w+):\s+(\d{1,15}) kB", text)}
    total, free = mib.get("MemTotal"), mib.get("MemAvailable")
    source = "/proc/meminfo: the GPU shares the host's memory"
    told = {"gpu.memory_mib": total, "gpu.memory_free_mib": free}
    return {
        key: fact,
        **{name: Fact(name, Known(value), source) for name, value in told.items() if value is not None},
    }


def _mig_instances(heard: Heard, gpu: int, mig: Fact) -> Fact:
    """How many MIG devices there are: with MIG on and none of them, nothing can run on the card."""
    key, call = "gpu.mig_instances", "nvmlDeviceGetMigDeviceHandleByIndex"
    if mig.value is not True:
        return Fact(key, mig.reading if isinstance(mig.reading, Unknown) else Known(0), mig.source)
    slots = heard.value(gpu, "nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(slots, Unknown):
        return Fact(key, slots, "NVML nvmlDeviceGetMaxMigDeviceCount")
    problems = [
        problem
        for (other, asked), problem in heard.problems.items()
        if other == gpu and asked.startswith(call) and problem.code != nvidia.NOT_FOUND
    ]
    found = sum(other == gpu and asked.startswith(call) for other, asked in heard.answers)
    return Fact(key, Unknown(problems[0].why) if problems else Known(found), f"NVML {call}")


# --- the whole ----------------------------------------------------------------------------------------


def from_nvml(host: Host, scene: Scene, heard: Heard, count: int) -> Inventory:
    """The facts when NVML started and counted the GPUs."""
    source = "NVML nvmlDeviceGetCount"
    facts = [
        _version(scene, heard),
        _library(heard),
        Fact("driver.error", Absent(), "NVML nvmlInit"),
        _cuda(heard),
        _passed_over(heard),
        *on_the_bus(scene),
    ]
    if count > nvml.MOST_GPUS:
        absurd = Unknown(f"the driver gave an absurd number of GPUs: {count}")
        facts += [Fact(key, absurd, source) for key in ("gpus.count", "gpus.models", "gpus.mixed")]
        return Inventory(_by_key(facts), unread={"gpu": absurd.why})
    if len(scene.bus) > count and not scene.container:
        source += f"; the PCI bus shows {len(scene.bus)}"
    uuids = [heard.text(gpu, "nvmlDeviceGetUUID") for gpu in range(count)]
    found = [device_facts(heard, gpu) for gpu in range(count)]
    found = [device | shared_memory(host, heard, gpu, device) for gpu, device in enumerate(found)]
    devices = _with_visible(host, found, uuids)
    facts += [Fact("gpus.count", Known(count), source), *models(devices, "NVML nvmlDeviceGetName")]
    return Inventory(_by_key(facts), devices, frozenset() if devices else frozenset({"gpu"}))


def without_nvml(host: Host, scene: Scene, heard: Heard, why: str) -> Inventory:
    """The facts when a GPU or its driver is here and NVML did not count it: what files tell, and why."""
    unknown = Unknown(why, asked=not host.staged)
    version = scene.driver
    if scene.nouveau and not isinstance(version.reading, Known):
        version = Fact(version.key, version.reading, f"{version.source}; nouveau drives the GPU")
    library = _library(heard)
    if isinstance(library.reading, Unknown):
        library = Fact(library.key, Absent() if _no_library(heard) else unknown, "NVML")
    facts = [
        version,
        library,
        _error(heard, unknown),
        Fact("cuda.driver", unknown, "NVML"),
        Fact("driver.passed_over", unknown if host.staged else Absent(), "NVML"),
        *on_the_bus(scene),
    ]
    if scene.container or not scene.bus:
        # A container sees the host's whole bus, whatever it was given.
        facts += [Fact(key, unknown, "NVML") for key in ("gpus.count", "gpus.models", "gpus.mixed")]
        return Inventory(
            {**_by_key(facts), **health.never_asked(why)}, unread={"gpu": why} if unknown.asked else {}
        )
    on_bus = [_device_on_bus(scene, address, unknown) for address in scene.bus]
    told = told_uuids(host)  # only where the module tells of as many as the bus shows are they the same
    devices = _with_visible(host, on_bus, told if len(told) == len(on_bus) else [""] * len(on_bus))
    facts += [
        Fact("gpus.count", Known(len(on_bus)), "/sys/bus/pci/devices"),
        *models(devices, "/proc/driver/nvidia/gpus"),
    ]
    return Inventory(_by_key(facts), devices)


def no_gpu() -> Inventory:
    """The facts of a machine that was looked through and has no NVIDIA GPU."""
    source = "no NVIDIA display device in /sys/bus/pci/devices"
    keys = ("driver.version", "driver.library", "driver.error", "driver.passed_over", "cuda.driver")
    facts = [Fact(key, Absent(), source) for key in keys]
    facts += [Fact("gpus.count", Known(0), source), *models((), source)]
    return Inventory(_by_key(facts), complete=frozenset({"gpu", "gpus", "driver"}))


def not_here(why: str) -> Inventory:
    """The facts where GPUs are nobody's fault: a container being built, a machine with no bus to see."""
    unknown = Unknown(why, asked=False)
    return Inventory({key: Fact(key, unknown) for key in YIELDS if not is_device_key(key)})


def models(devices: Sequence[Facts], source: str) -> tuple[Fact, Fact]:
    """`gpus.models`, every name once in the order of the GPUs, and `gpus.mixed`; unknown if one name is."""
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


def on_the_bus(scene: Scene) -> tuple[Fact, Fact, Fact]:
    """What the PCI bus shows; a container sees the host's, whatever it was given, and is told nothing."""
    keys = ("gpus.on_bus", "gpus.nvswitches", "gpus.numa_nodes")
    if scene.container or not scene.has_bus:
        why = "a container sees the host's PCI bus" if scene.container else f"there is no {_DEVICES}"
        unknown = Unknown(why, asked=False)
        one, two, three = (Fact(key, unknown, _DEVICES) for key in keys)
        return one, two, three
    nodes = set(scene.numa)
    told = bool(nodes) and all(node.isdecimal() for node in nodes)
    numa = Known(len(nodes)) if told else Unknown("the kernel names no NUMA node of the GPUs", asked=False)
    return (
        Fact("gpus.on_bus", Known(len(scene.bus)), _DEVICES),
        Fact("gpus.nvswitches", Known(scene.switches), _DEVICES),
        Fact("gpus.numa_nodes", numa, f"{_DEVICES}/*/numa_node"),
    )


def _by_key(facts: Sequence[Fact]) -> Facts:
    return {fact.key: fact for fact in facts}


def _with_visible(host: Host, devices: Sequence[Facts], uuids: Sequence[str]) -> tuple[Facts, ...]:
    names = [device["gpu.name"].value for device in devices]
    migs = [device["gpu.mig"].value for device in devices]
    seen = visibility(host.environ, uuids, names, migs)
    known_by = ranks(host.environ, uuids, names, seen)
    source = "the environment variable CUDA_VISIBLE_DEVICES"
    return tuple(
        {**device, **_by_key([Fact("gpu.visible", reading, source), Fact("gpu.rank", rank, source)])}
        for device, reading, rank in zip(
            devices, seen, map(_or_silent, devices, uuids, known_by), strict=True
        )
    )


def _or_silent(device: Facts, uuid: str, rank: Reading) -> Reading:
    """The rank of a GPU, or why one that tells nothing has none."""
    name = device["gpu.name"].reading
    silent = isinstance(name, Unknown) and not uuid and not isinstance(rank, Absent)
    return name if silent else rank


def _device_on_bus(scene: Scene, address: str, unknown: Unknown) -> dict[str, Fact]:
    facts = {key: Fact(key, unknown, "NVML") for key in YIELDS if is_device_key(key)}
    facts |= health.never_asked(unknown.why)
    if name := scene.names.get(address):
        facts["gpu.name"] = Fact("gpu.name", Known(name), "/proc/driver/nvidia/gpus")
    return facts


def _version(scene: Scene, heard: Heard) -> Fact:
    if isinstance(scene.driver.reading, Known):
        return scene.driver
    call = "nvmlSystemGetDriverVersion"
    return Fact("driver.version", nvml.version_of(heard.value(None, call)), f"NVML {call}")


def _library(heard: Heard) -> Fact:
    call, file = "nvmlSystemGetNVMLVersion", heard.text(None, "library")
    reading = nvml.library_version(heard.value(None, call), file)
    return Fact("driver.library", reading, f"NVML {call}" + (f", {file}" if file else ""))


def _passed_over(heard: Heard) -> Fact:
    """A library that is found before the one that answered: what programs load that look for none."""
    key = "driver.passed_over"
    if heard.passed_over is None:
        return Fact(key, Absent(), "NVML nvmlInit")
    file, code = heard.passed_over
    return Fact(key, Known(file), f"NVML nvmlInit: {nvidia.code_in_words(code)}")


def _no_library(heard: Heard) -> bool:
    failed = heard.failed
    return heard.silence == nvml.NO_LIBRARY or (failed is not None and failed[1] == nvidia.LIBRARY_NOT_FOUND)


def _cuda(heard: Heard) -> Fact:
    newer, older = "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"
    call = older if (None, older) in heard.answers else newer
    return Fact("cuda.driver", nvml.cuda_version(heard.value(None, call)), f"NVML {call}")


def _error(heard: Heard, unknown: Unknown) -> Fact:
    """`driver.error`: the same words for the same failure, so that a rule can name it."""
    if heard.failed is not None:
        return Fact("driver.error", Known(nvidia.code_in_words(heard.failed[1])), unknown.why)
    return Fact("driver.error", Known(heard.lost) if heard.lost else unknown, unknown.why)


def why_not(host: Host, scene: Scene, heard: Heard) -> str:
    """Why NVML did not count the GPUs, with what can be done about it."""
    if heard.failed is None:
        return heard.silence
    call, code = heard.failed
    advice = {
        4: f"this user may not open /dev/nvidiactl{host.permissions('/dev/nvidiactl')}",
        9: "the kernel module is not loaded" + (", nouveau is" if scene.nouveau else ""),
        12: f"{nvidia.LIBRARY} could not be loaded",
        18: f"kernel module {scene.driver.value or 'unknown'}, library {_library(heard).value or 'unknown'}; "
        + ("start the container anew" if scene.container else "reboot, or load the module anew"),
        999: "the container has lost its devices, as it does when the host runs `systemctl daemon-reload`; "
        "start the container anew"
        if scene.container
        else "the driver gives no reason; see the kernel log for Xid messages",
    }.get(code)
    return f"NVML {call}: {nvidia.code_in_words(code)}" + (f": {advice}" if advice else "")


# --- nvidia-smi, last ---------------------------------------------------------------------------------

SMI_FIELDS = "name,memory.total,memory.free,driver_version"


def find_smi(host: Host) -> str | None:
    """The nvidia-smi that a shell here would run, or WSL's, which is on no path."""
    folders = [*host.environ.get("PATH", "").split(":"), "/usr/lib/wsl/lib"]
    paths = (f"{folder}/nvidia-smi" for folder in folders if folder.startswith("/"))
    return next((path for path in paths if host.exists(path)), None)


def ask_smi(host: Host, deadline_s: float) -> Inventory | None:
    """What nvidia-smi tells; None if there is none or it tells nothing."""
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
    not_said = Unknown("nvidia-smi was asked instead of NVML, and does not tell")
    facts = {key: Fact(key, not_said) for key in YIELDS if not is_device_key(key)}
    facts["driver.passed_over"] = Fact("driver.passed_over", Unknown(not_said.why, asked=False))
    facts["driver.version"] = Fact("driver.version", nvml.version_of(rows[0][3]), source)
    facts["gpus.count"] = Fact("gpus.count", Known(len(rows)), source)
    devices = []
    for name, total, free, _ in rows:
        device = {key: Fact(key, not_said) for key in YIELDS if is_device_key(key)}
        device |= health.never_asked(not_said.why)
        memory = [int(total) << 20, int(free) << 20] if total.isdecimal() and free.isdecimal() else total
        device["gpu.name"] = Fact("gpu.name", nvml.gpu_name(name), source)
        device["gpu.memory_mib"] = Fact("gpu.memory_mib", nvml.total_mib(memory), source)
        device["gpu.memory_free_mib"] = Fact("gpu.memory_free_mib", nvml.free_mib(memory), source)
        devices.append(device)
    facts |= _by_key(models(devices, source))
    return Inventory(facts, _with_visible(host, devices, [""] * len(devices)))


def smi_rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    """The rows of nvidia-smi's answer; a name may hold a comma, the other fields cannot."""
    for line in text.splitlines():
        parts = line.rsplit(",", 3)
        if len(parts) == 4:  # noqa: PLR2004 - SMI_FIELDS
            name, total, free, driver = (part.strip() for part in parts)
            yield name, total, free, driver


# --- the probe ----------------------------------------------------------------------------------------


def begin(host: Host, request: ProbeRequest) -> Collect:
    """Start the NVML child, read the files while it runs, and return what puts both together."""
    child = nvml.start_child(host, request.deadline_s)
    started = time.monotonic()
    scene = look(host)
    allowance_s = nvml.allowance_s(request.deadline_s, len(scene.bus))

    def collect() -> Inventory:
        heard = Heard(silence=child) if isinstance(child, str) else child.listen(allowance_s)
        left_s = max(started + allowance_s - time.monotonic(), 0.1)
        return conclude(host, scene, heard, left_s)

    return collect


def conclude(host: Host, scene: Scene, heard: Heard, left_s: float) -> Inventory:
    """Put together what files and NVML said; nvidia-smi is asked only if it can know more."""
    if heard.count is not None:
        return from_nvml(host, scene, heard, heard.count)
    # nvidia-smi is itself a client of NVML: where NVML hangs or refuses, it would only do so again.
    if (heard.failed is None and heard.lost != "no answer") or _no_library(heard):
        told = ask_smi(host, left_s)
        if told is not None:
            loaded = [scene.driver] if isinstance(scene.driver.reading, Known) else []
            return told.with_facts([*loaded, *on_the_bus(scene)])
    return unanswered(host, scene, heard)


def unanswered(host: Host, scene: Scene, heard: Heard) -> Inventory:
    """The facts when neither NVML nor nvidia-smi counted the GPUs: is there one at all?"""
    why = why_not(host, scene, heard)
    if scene.container and not scene.nodes:
        return not_here(f"in a container without a driver or GPU devices ({why})")
    if scene.bus or isinstance(scene.driver.reading, Known) or (scene.nodes and not scene.elsewhere):
        return without_nvml(host, scene, heard, why)
    if scene.elsewhere:
        return not_here(f"{scene.elsewhere} ({why})")
    return no_gpu() if scene.has_bus else not_here("there is no /sys/bus/pci/devices to look for GPUs in")


PROBE = Probe("driver", YIELDS, begin)
