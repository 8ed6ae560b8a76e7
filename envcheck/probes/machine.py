"""Facts of the machine that is not a GPU: system, memory and its limits, container, chosen variables.

Everything is read under the host's root prefix, so a tree of files is examined as a machine is; what
only a running machine knows (its kernel, its memory) is then simply not given. No host name, user
name, container id or UUID is yielded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.host.files import read_file
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest

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
    "host.ram_limit_mib": Key(Kind.NUMBER, "least of host memory and every cgroup limit above us, whole MiB"),
    "host.ram_free_mib": Key(
        Kind.NUMBER, "host memory to be had now: MemAvailable, and what is left of every cgroup limit, MiB"
    ),
    "host.shm_mib": Key(Kind.NUMBER, "size of /dev/shm, whole MiB"),
    "host.memlock_mib": Key(Kind.NUMBER, "limit of locked memory, whole MiB; absent when unlimited"),
    "host.container": Key(
        Kind.WORD,
        "what contains us",
        words=("docker", "podman", "kubernetes", "lxc", "singularity", "other"),
    ),
    "host.wsl": Key(Kind.FLAG, "Windows Subsystem for Linux"),
    "host.tegra": Key(Kind.VERSION, "release of Jetson Linux, e.g. 36.4.0; absent on other machines"),
    "host.iommu": Key(
        Kind.WORD, "how the IOMMU treats what NVIDIA GPUs send", words=("off", "passthrough", "translated")
    ),
    "host.mps": Key(
        Kind.WORD,
        "Multi-Process Service: its pipe is there (on), or CUDA_MPS_PIPE_DIRECTORY leads to none (missing)",
        words=("on", "missing"),
    ),
    "host.amd_gpus": Key(Kind.NUMBER, "AMD GPUs that ROCm's kernel driver offers"),
    "env.*": Key(Kind.WORD, "an environment variable of the allow-list, the home folder written ~"),
}

_MIB = 1024 * 1024
_SHM = "/dev/shm"  # noqa: S108 - measured, never written to
_NO_PROC = Unknown("no /proc in this tree", asked=False)


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Everything here is a handful of small files: all is read when collected."""
    return lambda: _inventory(host)


PROBE = Probe("machine", YIELDS, begin)


def _inventory(host: Host) -> Inventory:
    kernel = _kernel_release(host)
    groups = _cgroups(host)
    facts = [
        _os(host),
        _arch(host),
        Fact("host.kernel", _kernel(kernel, host), "/proc/sys/kernel/osrelease"),
        _glibc(host),
        _cpu_count(host, groups),
        *_memory(host, groups),
        _shm(host),
        _memlock(host),
        _container(host),
        Fact("host.wsl", _wsl(kernel), "/proc/sys/kernel/osrelease"),
        _tegra(host),
        _iommu(host),
        _mps(host),
        _amd_gpus(host),
        *_variables(host.environ),
    ]
    # A tree's environment is set by whoever will run it: what we were not told is not absent.
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


# Where the ABI of each architecture puts its dynamic linker: the one file every Linux program names.
_LINKERS = {
    "/lib64/ld-linux-x86-64.so.2": "x86_64",
    "/lib/ld-linux-aarch64.so.1": "aarch64",
    "/lib64/ld64.so.2": "ppc64le",
    "/lib/ld-musl-x86_64.so.1": "x86_64",
    "/lib/ld-musl-aarch64.so.1": "aarch64",
}


def _arch(host: Host) -> Fact:
    if not host.staged:
        # Windows has no uname; what runs there at all says its architecture as Windows does.
        arch = os.uname().machine if hasattr(os, "uname") else host.environ.get("PROCESSOR_ARCHITECTURE", "")
        return Fact("host.arch", Known(arch) if arch else Unknown("no uname on this system"), "uname")
    for path, arch in _LINKERS.items():
        if _listed(host, path):
            return Fact("host.arch", Known(arch), path)
    return Fact("host.arch", Unknown("no dynamic linker of a known architecture in this tree", asked=False))


def _listed(host: Host, path: str) -> bool:
    """Whether the folder names the file, even as a link that is broken in a stripped tree."""
    folder, _, name = path.rpartition("/")
    return name in host.listdir(folder)


def _kernel_release(host: Host) -> str:
    release = (host.read_text("/proc/sys/kernel/osrelease", limit=4096) or "").strip()
    # Another system's kernel has a release, too, and it is not one of Linux.
    return release or ("" if host.staged or not _linux() else os.uname().release)


def _kernel(release: str, host: Host) -> Reading:
    """The leading numbers: what follows names a distribution's build and compares as nothing."""
    numbers = release[
        : next((i for i, char in enumerate(release) if char not in "0123456789."), len(release))
    ]
    parts = numbers.strip(".").split(".")
    if len(parts) > 1 and all(parts):
        return Known(".".join(parts))
    if not release:
        return _NO_PROC if host.staged else Unknown("no kernel release given", asked=_linux())
    return Unknown(f"no version in kernel release {release[:40]!r}")


def _linux() -> bool:
    return sys.platform.startswith("linux")


def _wsl(kernel: str) -> Reading:
    return Known("microsoft" in kernel.lower()) if kernel else _NO_PROC


def _tegra(host: Host) -> Fact:
    """The release in `# R36 (release), REVISION: 4.0, GCID: …`, which Jetson Linux writes there."""
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
_LARGEST_LIBC = 16 * _MIB


def _glibc(host: Host) -> Fact:
    if not host.staged:
        return _running_glibc()
    for folder in _LIBRARY_FOLDERS:
        names = host.listdir(folder)
        for name in names:
            # Until glibc 2.33 the file is called by its version.
            version = name.removeprefix("libc-").removesuffix(".so")
            if name.startswith("libc-2.") and name.endswith(".so") and version.replace(".", "").isdecimal():
                return Fact("host.glibc", Known(version), f"{folder}/{name}")
        if "libc.so.6" in names and (version := _stated_by_libc(host, f"{folder}/libc.so.6")):
            return Fact("host.glibc", Known(version), f"{folder}/libc.so.6")
    if any(name.startswith("ld-musl-") for name in host.listdir("/lib")):
        return Fact("host.glibc", Absent(), "musl")
    return Fact("host.glibc", Unknown("no libc found in this tree", asked=False))


def _running_glibc() -> Fact:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # the name is glibc's own
        name, version = "", ""
    return Fact("host.glibc", Known(version) if name == "glibc" and version else Absent(), "confstr")


def _stated_by_libc(host: Host, path: str) -> str:
    """The version in the banner `libc.so.6` prints when run, read as bytes; it is of the tree, so not run."""
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


# --- processors, memory and the cgroups above us ----------------------------------------------------


class _Cgroup(NamedTuple):
    """A hierarchy we are in: its folder here, our path below it, and whether it is version 2."""

    mount: str
    path: str
    unified: bool
    controllers: frozenset[str]

    def ancestors(self) -> Iterator[str]:
        """Folders from our own group up to the top of the mount."""
        path = self.path
        while path:
            yield f"{self.mount}{path}"
            path = path.rpartition("/")[0]
        yield self.mount


_V1 = frozenset(("memory", "cpu"))
_NONE_SET = 1 << 60  # v1 spells "no limit" as the largest whole number of pages, near 2^63


def _cgroups(host: Host) -> list[_Cgroup]:
    """The memory and CPU hierarchies this process is in (/proc/self/cgroup, cgroups(7))."""
    mounts = _cgroup_mounts(host)
    found = []
    for line in (host.read_text("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        controllers = frozenset(names.split(",")) & _V1
        if number == "0" and not names:
            roots = mounts.get("unified") or [("/sys/fs/cgroup", "/"), ("/sys/fs/cgroup/unified", "/")]
            found += [_Cgroup(mount, _below(path, top), True, _V1) for mount, top in roots]
        for name in controllers:
            roots = mounts.get(name) or [(f"/sys/fs/cgroup/{each}", "/") for each in {name, names}]
            found += [_Cgroup(mount, _below(path, top), False, frozenset({name})) for mount, top in roots]
    return found


def _cgroup_mounts(host: Host) -> dict[str, list[tuple[str, str]]]:
    """Mount point and the group it shows at its top, by controller (`unified` for version 2).

    In a container without a cgroup namespace the mount shows our own group at its top, while
    /proc/self/cgroup gives the path on the host.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for top, mount, kind, options in _mounts(host):
        if kind == "cgroup2":
            found.setdefault("unified", []).append((mount, top))
        elif kind == "cgroup":
            for name in _V1.intersection(options):
                found.setdefault(name, []).append((mount, top))
    return found


def _mounts(host: Host) -> Iterator[tuple[str, str, str, list[str]]]:
    """Root, mount point, type and super options of each mount (/proc/self/mountinfo, else /proc/mounts)."""
    text = host.read_text("/proc/self/mountinfo")
    if text is not None:
        for line in text.splitlines():
            left, _, right = line.partition(" - ")
            fields, kind = left.split(" "), right.split(" ")
            if len(fields) > 5 and len(kind) > 2:  # noqa: PLR2004 - fields of proc(5)
                yield fields[3], fields[4], kind[0], kind[2].split(",")
        return
    for line in (host.read_text("/proc/mounts") or "").splitlines():
        plain = line.split(" ")
        if len(plain) > 3:  # noqa: PLR2004 - fields of fstab(5)
            yield "/", plain[1], plain[2], plain[3].split(",")


def _below(path: str, top: str) -> str:
    """Our group's path below the top of a mount; empty for the top itself."""
    if ".." in path.split("/"):
        return ""  # we were moved out of the namespace: nothing but its top can be seen
    path, top = path.rstrip("/"), top.rstrip("/")
    if top and (path == top or path.startswith(f"{top}/")):
        return path[len(top) :]
    return path


def _memory(host: Host, groups: list[_Cgroup]) -> Iterator[Fact]:
    total, source = _meminfo_kib(host, "MemTotal"), "/proc/meminfo"
    of_gpus = _gpu_nodes_kib(host) if total is not None else 0
    if total is not None and of_gpus:
        total, source = (
            max(total - of_gpus, 0),
            f"{source}, less {of_gpus // 1024} MiB on the GPUs themselves",
        )
    reading: Reading = (
        Known(total // 1024) if total is not None else _unread(host, "/proc/meminfo", "MemTotal")
    )
    yield Fact("host.ram_mib", reading, source)
    yield _free(host, groups, of_gpus)
    read = list(_memory_limits(host, groups))
    limits = {limit: file for limit, file in read if limit is not None}
    if unread := [file for limit, file in read if limit is None]:
        yield Fact("host.ram_limit_mib", Unknown(f"{unread[0]} cannot be read"), unread[0])
        return
    if total is not None:
        limits.setdefault(total * 1024, f"{source}; no cgroup sets less")
    if limits:
        least = min(limits)
        yield Fact("host.ram_limit_mib", Known(least // _MIB), limits[least])
    else:
        yield Fact("host.ram_limit_mib", reading, source)


def _meminfo_kib(host: Host, wanted: str) -> int | None:
    for line in (host.read_text("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        amount = rest.split()[:1]
        if name == wanted and amount and amount[0].isdecimal():
            return int(amount[0])
    return None


def _free(host: Host, groups: list[_Cgroup], of_gpus: int) -> Fact:
    """`host.ram_free_mib`; unknown if a limit's use is closed, or GPUs' own memory is counted with it."""
    key = "host.ram_free_mib"
    available = _meminfo_kib(host, "MemAvailable")
    if available is None:
        return Fact(key, _unread(host, "/proc/meminfo", "MemAvailable"), "/proc/meminfo")
    if of_gpus:
        why = Unknown("MemAvailable counts the GPUs' own memory, too", asked=False)
        return Fact(key, why, "/proc/meminfo")
    left, source = available * 1024, "/proc/meminfo MemAvailable"
    for group, folder, limit in _limits(host, groups):
        used, spare = _used(host, group, folder)
        if limit is None or used is None:
            name = "memory.current" if group.unified else "memory.usage_in_bytes"
            return Fact(key, Unknown(f"a cgroup's limit or its {name} cannot be read"), f"cgroup {name}")
        if (rest := max(limit - max(used - spare, 0), 0)) < left:
            left, source = rest, "what is left of a cgroup's limit"
    return Fact(key, Known(left // _MIB), source)


def _used(host: Host, group: _Cgroup, folder: str) -> tuple[int | None, int]:
    """What a group uses, in bytes, and how much of it is files' pages that the kernel gives back first."""
    name, page = ("memory.current", "inactive_file")
    if not group.unified:
        name, page = ("memory.usage_in_bytes", "total_inactive_file")
    lines = (host.read_text(f"{folder}/memory.stat", limit=1 << 16) or "").splitlines()
    spare = next((line.partition(" ")[2] for line in lines if line.startswith(f"{page} ")), "")
    return _whole(host.read_text(f"{folder}/{name}", limit=4096)), _whole(spare) or 0


_NODES = "/sys/devices/system/node"


def _gpu_nodes_kib(host: Host) -> int:
    """Memory that the kernel counts as its own and that is soldered to a GPU (GH200, GB200), in KiB.

    Such a GPU's memory is one more NUMA node, without processors. A node without processors may be other
    memory as well (CXL), so it counts only where the driver says so or on Arm beside an NVIDIA driver.
    """
    bare = _members(host.read_text(f"{_NODES}/has_memory") or "") - _members(
        host.read_text(f"{_NODES}/has_cpu") or ""
    )
    if not bare:
        return 0
    gpus = "/proc/driver/nvidia/gpus"
    told = {
        int(number)
        for address in host.listdir(gpus)
        for line in (host.read_text(f"{gpus}/{address}/numa_status", limit=4096) or "").splitlines()
        if line.startswith("Node:") and (number := line.partition(":")[2].strip()).isdecimal()
    }
    if not told and _arch(host).value == "aarch64" and host.listdir(gpus):
        told = bare
    return sum(_node_kib(host, node) for node in bare & told)


def _node_kib(host: Host, node: int) -> int:
    """`MemTotal` of a node: its lines are `Node 1 MemTotal: 97 kB`."""
    for line in (host.read_text(f"{_NODES}/node{node}/meminfo") or "").splitlines():
        words = line.split()
        if words[2:3] == ["MemTotal:"] and len(words) > 3 and words[3].isdecimal():  # noqa: PLR2004 - fields
            return int(words[3])
    return 0


def _memory_limits(host: Host, groups: list[_Cgroup]) -> Iterator[tuple[int | None, str]]:
    """Every limit above us, in bytes, and the kind of file that sets it: its path may name a user.

    None stands for a limit that is there and cannot be read.
    """
    for group, _, limit in _limits(host, groups):
        yield limit, f"cgroup {'memory.max' if group.unified else 'memory.limit_in_bytes'}"


def _limits(host: Host, groups: list[_Cgroup]) -> Iterator[tuple[_Cgroup, str, int | None]]:
    """Each group above us that sets a limit, its folder, and the limit in bytes; None if it is closed."""
    for group in groups:
        if "memory" in group.controllers:
            name = "memory.max" if group.unified else "memory.limit_in_bytes"
            for folder in group.ancestors():
                text = host.read_text(f"{folder}/{name}", limit=4096)
                limit = _whole(text)
                if limit is not None and limit < _NONE_SET:
                    yield group, folder, limit
                elif limit is None and _set(host, f"{folder}/{name}", text):
                    yield group, folder, None


def _set(host: Host, path: str, text: str | None) -> bool:
    """Whether a file that holds no number sets a limit all the same: it is closed, or says no `max`."""
    return host.exists(path) if text is None else text.strip() not in ("max", "")


def _whole(text: str | None) -> int | None:
    """The number a file holds; None for `max` and for anything else."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None  # noqa: PLR2004 - 2^63 has 19


def _cpu_count(host: Host, groups: list[_Cgroup]) -> Fact:
    allowed = _status(host, "Cpus_allowed_list")
    count = len(_members(allowed or "") or _members(host.read_text("/sys/devices/system/cpu/online") or ""))
    if not count and not host.staged:
        count = os.cpu_count() or 0
    if not count:
        return Fact("host.cpu_count", _unread(host, "/proc/self/status", "Cpus_allowed_list"))
    quota = min(_cpu_quotas(host, groups), default=count)
    if quota < count:
        return Fact("host.cpu_count", Known(quota), "cgroup CPU quota")
    return Fact("host.cpu_count", Known(count), "/proc/self/status")


def _cpu_quotas(host: Host, groups: list[_Cgroup]) -> Iterator[int]:
    """CPUs each group above us allows, rounded up: `cpu.max` is "quota period", in microseconds."""
    for group in groups:
        for folder in group.ancestors() if "cpu" in group.controllers else ():
            if group.unified:
                words = (host.read_text(f"{folder}/cpu.max", limit=4096) or "").split()
            else:
                files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                words = [(host.read_text(f"{folder}/{name}", limit=4096) or "").strip() for name in files]
            quota, period = (_whole(word) for word in (*words, "", "")[:2])
            if quota and period:
                yield -(-quota // period)


def _members(text: str) -> set[int]:
    """The CPUs or nodes that `0-3,8` names; empty if it is no such list."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        start, end = _whole(first), _whole(last or first)
        if start is None or end is None or not start <= end < 1 << 16:
            return set()
        found.update(range(start, end + 1))
    return found


def _status(host: Host, name: str) -> str | None:
    for line in (host.read_text("/proc/self/status") or "").splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return None


def _unread(host: Host, path: str, name: str) -> Unknown:
    if host.staged and not host.exists(path):
        return _NO_PROC
    return Unknown(f"no readable {name} in {path}" if host.exists(path) else f"{path} cannot be read")


_IPC_LOCK = 1 << 14  # CAP_IPC_LOCK (capability.h): the limit does not bind whoever holds it


def _memlock(host: Host) -> Fact:
    try:
        unbound = int(_status(host, "CapEff") or "0", 16) & _IPC_LOCK
    except ValueError:
        unbound = 0
    if unbound:
        return Fact("host.memlock_mib", Absent(), "CAP_IPC_LOCK, which no limit binds")
    path = "/proc/self/limits"
    for line in (host.read_text(path) or "").splitlines():
        if line.startswith("Max locked memory"):
            soft = line.removeprefix("Max locked memory").split()[:1]
            if soft == ["unlimited"]:
                return Fact("host.memlock_mib", Absent(), "unlimited")
            if soft and (limit := _whole(soft[0])) is not None:
                return Fact("host.memlock_mib", Known(limit // _MIB), path)
    return Fact("host.memlock_mib", _unread(host, path, "Max locked memory"))


def _shm(host: Host) -> Fact:
    if not host.staged:
        try:
            size = os.statvfs(host.path(_SHM))
        except OSError as error:
            why = (error.strerror or "cannot be read").lower()
            missing = isinstance(error, FileNotFoundError)
            return Fact("host.shm_mib", Absent() if missing else Unknown(why), _SHM)
        return Fact("host.shm_mib", Known(size.f_blocks * size.f_frsize // _MIB), _SHM)
    mounted = [options for _, mount, _, options in _mounts(host) if mount == _SHM]
    if mounted:
        return Fact("host.shm_mib", _tmpfs_size(host, mounted[-1]), f"mount option size of {_SHM}")
    if host.exists("/proc/self/mountinfo") or host.exists("/proc/mounts"):
        return Fact("host.shm_mib", Absent(), f"{_SHM} is not mounted")
    return Fact("host.shm_mib", _NO_PROC)


_UNITS = {"k": 1024, "m": _MIB, "g": 1024 * _MIB}


def _tmpfs_size(host: Host, options: list[str]) -> Reading:
    """The `size=` of a tmpfs; without one it is half of the host's memory (tmpfs(5))."""
    total = _meminfo_kib(host, "MemTotal")
    size = next((option[5:].lower() for option in options if option.startswith("size=")), "50%")
    if size.endswith("%") and (percent := _whole(size[:-1])) is not None:
        return (
            Known(total * percent // 100 // 1024)
            if total is not None
            else Unknown("size is half of unknown RAM")
        )
    amount = _whole(size.rstrip("kmg"))
    if amount is None:
        return Unknown(f"size of {_SHM} not understood: {size[:20]!r}")
    return Known(amount * _UNITS.get(size[-1:], 1) // _MIB)


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
_NAMES = {"podman": "podman", "docker": "docker", "lxc": "lxc", "lxc-libvirt": "lxc", "oci": "other"}


def _container(host: Host) -> Fact:
    """What contains us, the most telling first: a pod also has Docker's file, and limits of its own."""
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
            return Fact(key, Known(_NAMES.get(name, "other")), source)
    groups = host.read_text("/proc/self/cgroup")
    for text, word in _CGROUP_WORDS.items():
        # A group of this name above us: /docker/…, /kubepods.slice/…, /system.slice/docker-….scope.
        if groups is not None and any(f"{mark}{text}" in groups for mark in ("/", "-")):
            return Fact(key, Known(word), "/proc/self/cgroup")
    if groups is None:
        return Fact(key, _NO_PROC if host.staged else Unknown("/proc/self/cgroup cannot be read"))
    return Fact(key, Absent(), "no sign of a container")


# --- what else programs on GPUs meet ----------------------------------------------------------------


def _iommu(host: Host) -> Fact:
    """Whether the addresses that NVIDIA GPUs send are translated: the kernel tells it for each group.

    In translation, traffic from GPU to GPU goes through the root complex, as it does with ACS on.
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
        return Fact(key, Unknown("no group of an NVIDIA GPU tells it", asked=False), "/sys/class/iommu")
    word = "translated" if any(kind.startswith("DMA") for kind in kinds) else "passthrough"
    return Fact(key, Known(word), "type of the GPUs' iommu_group")


_MPS = "/tmp/nvidia-mps"  # noqa: S108 - where the daemon puts its pipe unless told otherwise


def _mps(host: Host) -> Fact:
    """A pipe is what can be seen; whether its daemon lives, only connecting would tell."""
    named = host.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
    if host.exists(f"{named or _MPS}/control"):
        return Fact("host.mps", Known("on"), "CUDA_MPS_PIPE_DIRECTORY" if named else _MPS)
    if named:
        return Fact("host.mps", Known("missing"), "no pipe by CUDA_MPS_PIPE_DIRECTORY")
    return Fact("host.mps", Absent(), f"no pipe in {_MPS}")


def _amd_gpus(host: Host) -> Fact:
    """GPUs among the nodes of amdkfd; a processor without one is a node of GPU id 0."""
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    if not host.exists("/sys/class"):
        return Fact("host.amd_gpus", Unknown("no /sys in this tree", asked=not host.staged))
    ids = [_whole(host.read_text(f"{nodes}/{node}/gpu_id", limit=4096)) for node in host.listdir(nodes)]
    return Fact("host.amd_gpus", Known(sum(bool(each) for each in ids)), nodes)


# --- environment variables --------------------------------------------------------------------------

_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "PYTORCH_", "DS_", "ACCELERATE_")
_NAMED = frozenset(
    (
        "LD_LIBRARY_PATH",  # which libcudart and libnccl win over the wheel's own
        "LD_PRELOAD",
        "OMP_NUM_THREADS",  # DeepSpeed's CPU optimizer runs on these
        "BNB_CUDA_VERSION",  # makes bitsandbytes load another binary than torch's CUDA asks for
        "TRITON_CACHE_DIR",  # on a network folder it stalls every rank
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_OFFLINE",
    )
)
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH", "API_KEY", "ACCESS_KEY", "PRIVATE")
_SECRET_STARTS = ("hf_", "sk-", "ghp_", "github_pat_", "glpat-", "AKIA", "eyJ", "xoxb-", "nvapi-")
_LONGEST_VALUE = 2000
_LONGEST_WORD = 32  # letters and digits without a break: longer is a key or a hash


def _variables(environ: Mapping[str, str]) -> Iterator[Fact]:
    home = environ.get("HOME", "")
    for name, value in environ.items():
        if (
            (name.startswith(_PREFIXES) or name in _NAMED)
            and name.replace("_", "").isalnum()
            and name.isascii()
        ):
            yield Fact(f"env.{name}", _shown(name, value, home), "environment")


def _shown(name: str, value: str, home: str) -> Reading:
    if len(value) > _LONGEST_VALUE or any(word in name for word in _SECRET_WORDS) or _looks_secret(value):
        return Unknown("not shown: may hold a secret")
    if len(home.strip("/")) > 0:
        value = value.replace(home.rstrip("/"), "~")
    return Known(",".join(_without_uuid(part) for part in value.split(",")))


def _without_uuid(part: str) -> str:
    """`GPU-…` of a GPU's or MIG slice's UUID, as CUDA_VISIBLE_DEVICES may hold."""
    start = part.strip()[:4]
    return f"{start}…" if start in ("GPU-", "MIG-") else part


def _looks_secret(value: str) -> bool:
    """Whether a value has a known token's start, credentials in a URL, or a long unbroken word."""
    if value.startswith(_SECRET_STARTS) or ("://" in value and "@" in value.partition("://")[2]):
        return True
    for mark in "/,:;=. _-":
        value = value.replace(mark, " ")
    return any(len(word) > _LONGEST_WORD and not word.isalpha() for word in value.split())
