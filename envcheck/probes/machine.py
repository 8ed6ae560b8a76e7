"""Facts of the host apart from its GPUs: system, memory and its limits, container, selected variables.

Everything is read under the host's root prefix, so a tree of files is examined like a machine. What only a
running machine knows (its kernel, its memory) is then not given. No host name, user name, container id or
UUID is yielded. Memory and CPUs are read by `host_memory`, variables by `core.environment_variables`.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise

from envcheck.core.environment_variables import variables
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.host.files import read_file
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest, host_memory
from envcheck.probes.host_memory import MIB, NO_PROC

YIELDS = {
    "host.os": Key(Kind.WORD, "operating system as sys.platform names it: linux"),
    "host.arch": Key(Kind.WORD, "processor architecture: x86_64, aarch64"),
    "host.kernel": Key(Kind.VERSION, "Linux kernel, its numbers only: 5.15.0 of 5.15.0-91-generic"),
    "host.glibc": Key(Kind.VERSION, "GNU C library, e.g. 2.35; absent on musl"),
    "host.cpu_count": Key(
        Kind.NUMBER, "CPUs this process may use: affinity and cgroup quota counted, rounded up"
    ),
    "host.ram_mib": Key(
        Kind.NUMBER, "host memory, whole MiB rounded down; memory of a GPU that is a NUMA node left out"
    ),
    "host.ram_limit_mib": Key(
        Kind.NUMBER, "minimum of host memory and every cgroup limit above this process, whole MiB"
    ),
    "host.ram_free_mib": Key(
        Kind.NUMBER, "host memory available now: MemAvailable and the rest of every cgroup limit, MiB"
    ),
    "host.shm_mib": Key(Kind.NUMBER, "size of /dev/shm, whole MiB"),
    "host.memlock_mib": Key(Kind.NUMBER, "limit of locked memory, whole MiB; absent when unlimited"),
    "host.container": Key(
        Kind.WORD,
        "the kind of container",
        words=("docker", "podman", "kubernetes", "lxc", "singularity", "other"),
    ),
    "host.wsl": Key(Kind.FLAG, "Windows Subsystem for Linux"),
    "host.tegra": Key(Kind.VERSION, "release of Jetson Linux, e.g. 36.4.0; absent on other machines"),
    "host.iommu": Key(
        Kind.WORD, "how the IOMMU treats traffic of NVIDIA GPUs", words=("off", "passthrough", "translated")
    ),
    "host.mps": Key(
        Kind.WORD,
        "Multi-Process Service: its pipe exists (on), or CUDA_MPS_PIPE_DIRECTORY names a folder without "
        "one (missing)",
        words=("on", "missing"),
    ),
    "env.*": Key(Kind.WORD, "an environment variable of the allow-list, with ~ for the home folder"),
}


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Return the function that reads all facts; there is nothing slow to start, only small files."""
    return lambda: _inventory(host)


PROBE = Probe("machine", YIELDS, begin)


def _inventory(host: Host) -> Inventory:
    kernel = _kernel_release(host)
    groups, arch = host_memory.cgroups(host), _arch(host)
    facts = [
        _os(host),
        arch,
        Fact("host.kernel", _kernel(kernel, host), "/proc/sys/kernel/osrelease"),
        _glibc(host),
        host_memory.cpu_count(host, groups),
        *host_memory.memory(host, groups, str(arch.value)),
        host_memory.shared_memory(host),
        host_memory.locked_memory(host),
        _container(host),
        Fact("host.wsl", _wsl(kernel), "/proc/sys/kernel/osrelease"),
        _tegra(host),
        _iommu(host),
        _mps(host),
        *variables(host.environ),
    ]
    # A tree's environment is set where it will run: a variable that is not given is not absent.
    complete = frozenset() if host.staged else frozenset({"env"})
    return Inventory({fact.key: fact for fact in facts}, complete=complete)


# --- system -----------------------------------------------------------------------------------------


_OTHER_SYSTEMS = {
    "/System/Library/CoreServices/SystemVersion.plist": "darwin",
    "/Windows/System32/ntdll.dll": "win32",
}


def _os(host: Host) -> Fact:
    if not host.staged:
        return Fact("host.os", Known(sys.platform), "sys.platform")
    for path in ("/proc/sys/kernel/ostype", "/etc/os-release", "/usr/lib/os-release"):
        if host.exists(path):
            return Fact("host.os", Known("linux"), path)
    for path, system in _OTHER_SYSTEMS.items():
        if host.exists(path):
            return Fact("host.os", Known(system), path)
    return Fact("host.os", Unknown("neither /proc nor os-release in this tree", asked=False))


# Where the ABI of each architecture puts its dynamic linker, the one file that every Linux program names.
_LINKERS = {
    "/lib64/ld-linux-x86-64.so.2": "x86_64",
    "/lib/ld-linux-aarch64.so.1": "aarch64",
    "/lib64/ld64.so.2": "ppc64le",
    "/lib/ld-musl-x86_64.so.1": "x86_64",
    "/lib/ld-musl-aarch64.so.1": "aarch64",
}


def _arch(host: Host) -> Fact:
    if not host.staged:
        # Windows has no uname; a process finds its architecture in this variable.
        arch = os.uname().machine if hasattr(os, "uname") else host.environ.get("PROCESSOR_ARCHITECTURE", "")
        return Fact("host.arch", Known(arch) if arch else Unknown("no uname on this system"), "uname")
    for path, arch in _LINKERS.items():
        if _listed(host, path):
            return Fact("host.arch", Known(arch), path)
    return Fact("host.arch", Unknown("no dynamic linker of a known architecture in this tree", asked=False))


def _listed(host: Host, path: str) -> bool:
    """Return whether the folder lists the file, even as a link that is broken in a stripped tree."""
    folder, _, name = path.rpartition("/")
    return name in host.listdir(folder)


def _kernel_release(host: Host) -> str:
    release = (host.read_text("/proc/sys/kernel/osrelease", limit=4096) or "").strip()
    # The kernel of another system also has a release, which is not a Linux release.
    return release or ("" if host.staged or not _linux() else os.uname().release)


def _kernel(release: str, host: Host) -> Reading:
    """Return the leading numbers: what follows names a distribution's build and cannot be compared."""
    numbers = release[
        : next((i for i, char in enumerate(release) if char not in "0123456789."), len(release))
    ]
    parts = numbers.strip(".").split(".")
    if len(parts) > 1 and all(parts):
        return Known(".".join(parts))
    if not release:
        return NO_PROC if host.staged else Unknown("no kernel release given", asked=_linux())
    return Unknown(f"no version in kernel release {release[:40]!r}")


def _linux() -> bool:
    return sys.platform.startswith("linux")


def _wsl(kernel: str) -> Reading:
    return Known("microsoft" in kernel.lower()) if kernel else NO_PROC


def _tegra(host: Host) -> Fact:
    """Return `host.tegra`, the release in `# R36 (release), REVISION: 4.0, GCID: …` of Jetson Linux."""
    path = "/etc/nv_tegra_release"
    text = host.read_text(path, limit=4096)
    if text is None:
        return Fact("host.tegra", Unknown("cannot be read") if host.exists(path) else Absent(), path)
    words = text.replace(",", " ").split()
    numbers = [
        word.removeprefix("R")
        for before, word in pairwise(words)
        if before in ("#", "REVISION:") and word.removeprefix("R").replace(".", "").isdecimal()
    ]
    if len(numbers) != len(("branch", "revision")):
        return Fact("host.tegra", Unknown("no release of Jetson Linux in it"), path)
    return Fact("host.tegra", Known(".".join(numbers)), path)


_LIBRARY_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/lib",
)
_LARGEST_LIBC = 16 * MIB


def _glibc(host: Host) -> Fact:
    if not host.staged:
        return _running_glibc()
    for folder in _LIBRARY_FOLDERS:
        names = host.listdir(folder)
        for name in names:
            # Until glibc 2.33 the name of the file contains the version.
            version = name.removeprefix("libc-").removesuffix(".so")
            if name.startswith("libc-2.") and name.endswith(".so") and version.replace(".", "").isdecimal():
                return Fact("host.glibc", Known(version), f"{folder}/{name}")
        if "libc.so.6" in names and (version := _version_in_libc(host, f"{folder}/libc.so.6")):
            return Fact("host.glibc", Known(version), f"{folder}/libc.so.6")
    if any(name.startswith("ld-musl-") for name in host.listdir("/lib")):
        return Fact("host.glibc", Absent(), "musl")
    return Fact("host.glibc", Unknown("no libc found in this tree", asked=False))


def _running_glibc() -> Fact:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # only glibc knows this name
        name, version = "", ""
    return Fact("host.glibc", Known(version) if name == "glibc" and version else Absent(), "confstr")


def _version_in_libc(host: Host, path: str) -> str:
    """Return the version in the banner of `libc.so.6`, read as bytes: files of a tree are never run."""
    try:
        data = read_file(host.path(path), _LARGEST_LIBC)
    except InputError:
        return ""
    version = (
        data.partition(b"stable release version ")[2][:16]
        .split(b"\n")[0]
        .rstrip(b".")
        .decode("ascii", "replace")
    )
    return version if version.replace(".", "").isdecimal() else ""


# --- container --------------------------------------------------------------------------------------

_CONTAINER_FILES = {
    "/var/run/secrets/kubernetes.io": "kubernetes",
    "/run/secrets/kubernetes.io": "kubernetes",
    "/run/.containerenv": "podman",
    "/.singularity.d": "singularity",
    "/.dockerenv": "docker",
}
_CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "singularity",
    "SINGULARITY_CONTAINER": "singularity",
}
_CGROUP_WORDS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "lxc"}
_CONTAINER_NAMES = {
    "podman": "podman",
    "docker": "docker",
    "lxc": "lxc",
    "lxc-libvirt": "lxc",
    "oci": "other",
}


def _container(host: Host) -> Fact:
    """Return `host.container`, from the most specific sign to the least: a pod also has Docker's file."""
    key = "host.container"
    for name, word in _CONTAINER_VARIABLES.items():
        if host.environ.get(name):
            return Fact(key, Known(word), f"{name} is set")
    for path, word in _CONTAINER_FILES.items():
        if host.exists(path):
            return Fact(key, Known(word), path)
    for name, source in (
        ((host.read_text("/run/systemd/container", limit=4096) or "").strip(), "/run/systemd/container"),
        (host.environ.get("container", ""), "variable container"),
    ):
        if name:
            return Fact(key, Known(_CONTAINER_NAMES.get(name, "other")), source)
    groups = host.read_text("/proc/self/cgroup")
    for text, word in _CGROUP_WORDS.items():
        # An ancestor group has this name: /docker/…, /kubepods.slice/…, /system.slice/docker-….scope.
        if groups is not None and any(f"{mark}{text}" in groups for mark in ("/", "-")):
            return Fact(key, Known(word), "/proc/self/cgroup")
    if groups is None:
        return Fact(key, NO_PROC if host.staged else Unknown("/proc/self/cgroup cannot be read"))
    return Fact(key, Absent(), "no sign of a container")


# --- what else affects programs on GPUs -------------------------------------------------------------


def _iommu(host: Host) -> Fact:
    """Return `host.iommu`: whether addresses that NVIDIA GPUs send are translated, by the kernel's groups.

    With translation, traffic from GPU to GPU goes through the root complex, as it does with ACS on.
    """
    key, gpus = "host.iommu", "/proc/driver/nvidia/gpus"
    if not host.exists("/sys/class"):
        return Fact(key, Unknown("no /sys in this tree", asked=not host.staged))
    if not host.listdir("/sys/class/iommu"):
        return Fact(key, Known("off"), "/sys/class/iommu")
    kinds = {
        (host.read_text(f"/sys/bus/pci/devices/{address}/iommu_group/type", limit=4096) or "").strip()
        for address in host.listdir(gpus)
    }
    if not kinds - {""}:
        return Fact(key, Unknown("no group of an NVIDIA GPU has this file", asked=False), "/sys/class/iommu")
    word = "translated" if any(kind.startswith("DMA") for kind in kinds) else "passthrough"
    return Fact(key, Known(word), "type of the GPUs' iommu_group")


_MPS = "/tmp/nvidia-mps"  # noqa: S108 - the default folder of the daemon's pipe


def _mps(host: Host) -> Fact:
    """Return `host.mps` from the pipe; whether its daemon runs could only be found out by connecting."""
    named = host.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
    if host.exists(f"{named or _MPS}/control"):
        return Fact("host.mps", Known("on"), "CUDA_MPS_PIPE_DIRECTORY" if named else _MPS)
    if named:
        return Fact("host.mps", Known("missing"), "no pipe by CUDA_MPS_PIPE_DIRECTORY")
    return Fact("host.mps", Absent(), f"no pipe in {_MPS}")
