"""CPUs and memory that this process may use: the host's own, less what cgroups and limits take away.

Everything is read from /proc and /sys under the host's root prefix. The functions return facts of the
machine probe, which declares their keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from envcheck.core.facts import Absent, Fact, Known, Reading, Unknown
from envcheck.core.records import NamedTuple
from envcheck.host.machine import Host

MIB = 1024 * 1024
NO_PROC = Unknown("no /proc in this tree", asked=False)

_SHM = "/dev/shm"  # noqa: S108 - measured, never written to


# --- cgroups ----------------------------------------------------------------------------------------


class Cgroup(NamedTuple):
    """A cgroup hierarchy (cgroups(7)) that contains this process.

    `mount` is where it is mounted here, `path` our group below that, `unified` whether it is version 2, and
    `controllers` which of "memory" and "cpu" it has.
    """

    mount: str
    path: str
    unified: bool
    controllers: frozenset[str]

    def ancestors(self) -> Iterator[str]:
        """Yield the folders from our own group up to the top of the mount."""
        path = self.path
        while path:
            yield f"{self.mount}{path}"
            path = path.rpartition("/")[0]
        yield self.mount


class _Mount(NamedTuple):
    """A line of /proc/self/mountinfo: `top` is the folder of the file system that the mount shows."""

    top: str
    point: str
    kind: str
    options: list[str]


class _MemoryLimit(NamedTuple):
    """A limit that our cgroup or one above it sets, in bytes; None if it is set but cannot be read."""

    group: Cgroup
    folder: str
    limit: int | None

    @property
    def file(self) -> str:
        """Return the kind of file that sets it; its path is not shown, because it may name a user."""
        return f"cgroup {_limit_file(self.group)}"


_V1 = frozenset(("memory", "cpu"))
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as the largest whole number of pages, near 2^63


def cgroups(host: Host) -> list[Cgroup]:
    """Return the hierarchies for memory and CPU that contain this process, from /proc/self/cgroup."""
    mounts = _cgroup_mounts(host)
    found = []
    for line in (host.read_text("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            roots = mounts.get("unified") or [("/sys/fs/cgroup", "/"), ("/sys/fs/cgroup/unified", "/")]
            found += [Cgroup(mount, _below(path, top), True, _V1) for mount, top in roots]
        for name in frozenset(names.split(",")) & _V1:
            roots = mounts.get(name) or [(f"/sys/fs/cgroup/{folder}", "/") for folder in {name, names}]
            found += [Cgroup(mount, _below(path, top), False, frozenset({name})) for mount, top in roots]
    return found


def _cgroup_mounts(host: Host) -> dict[str, list[tuple[str, str]]]:
    """Return mount points, each with the group at its top, by controller (`unified` for version 2).

    In a container without a cgroup namespace the mount shows our own group at its top, while
    /proc/self/cgroup gives the path on the host.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for mount in _mounts(host):
        if mount.kind == "cgroup2":
            found.setdefault("unified", []).append((mount.point, mount.top))
        elif mount.kind == "cgroup":
            for name in _V1.intersection(mount.options):
                found.setdefault(name, []).append((mount.point, mount.top))
    return found


def _mounts(host: Host) -> Iterator[_Mount]:
    """Yield all mounts (/proc/self/mountinfo, else /proc/mounts); the options are the super options."""
    text = host.read_text("/proc/self/mountinfo")
    if text is not None:
        for line in text.splitlines():
            left, _, right = line.partition(" - ")
            fields, kind = left.split(" "), right.split(" ")
            if len(fields) > 5 and len(kind) > 2:  # noqa: PLR2004 - fields of proc(5)
                yield _Mount(fields[3], fields[4], kind[0], kind[2].split(","))
        return
    for line in (host.read_text("/proc/mounts") or "").splitlines():
        fields = line.split(" ")
        if len(fields) > 3:  # noqa: PLR2004 - fields of fstab(5)
            yield _Mount("/", fields[1], fields[2], fields[3].split(","))


def _below(path: str, top: str) -> str:
    """Return our group's path below the top of a mount; empty for the top itself."""
    if ".." in path.split("/"):
        return ""  # the process was moved out of the namespace: only its top group is visible
    path, top = path.rstrip("/"), top.rstrip("/")
    if top and (path == top or path.startswith(f"{top}/")):
        return path[len(top) :]
    return path


# --- memory -----------------------------------------------------------------------------------------


def memory(host: Host, groups: list[Cgroup], arch: str) -> Iterator[Fact]:
    """Yield the host's memory, what is free of it, and its limit; `arch` is the processor's architecture."""
    total, source = _meminfo_kib(host, "MemTotal"), "/proc/meminfo"
    of_gpus = _gpu_nodes_kib(host, arch) if total is not None else 0
    if total is not None and of_gpus:
        total = max(total - of_gpus, 0)
        source = f"{source}, less {of_gpus // 1024} MiB on the GPUs themselves"
    reading: Reading = (
        Known(total // 1024) if total is not None else _unread(host, "/proc/meminfo", "MemTotal")
    )
    yield Fact("host.ram_mib", reading, source)
    yield _free(host, groups, of_gpus)
    yield _least_limit(host, groups, total, Fact("host.ram_limit_mib", reading, source))


def _least_limit(host: Host, groups: list[Cgroup], total_kib: int | None, of_host: Fact) -> Fact:
    """Return `host.ram_limit_mib`; `of_host` is the fact to return where no cgroup sets a limit."""
    found = list(_memory_limits(host, groups))
    if unread := [each.file for each in found if each.limit is None]:
        return Fact(of_host.key, Unknown(f"{unread[0]} cannot be read"), unread[0])
    limits = {each.limit: each.file for each in found if each.limit is not None}
    if total_kib is not None:
        limits.setdefault(total_kib * 1024, f"{of_host.source}; no cgroup sets less")
    if not limits:
        return of_host
    least = min(limits)
    return Fact(of_host.key, Known(least // MIB), limits[least])


def _meminfo_kib(host: Host, wanted: str) -> int | None:
    for line in (host.read_text("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        amount = rest.split()[:1]
        if name == wanted and amount and amount[0].isdecimal():
            return int(amount[0])
    return None


def _free(host: Host, groups: list[Cgroup], of_gpus: int) -> Fact:
    """Return `host.ram_free_mib`.

    It is unknown if a cgroup's usage cannot be read, or if MemAvailable includes the GPUs' own memory.
    """
    key = "host.ram_free_mib"
    available = _meminfo_kib(host, "MemAvailable")
    if available is None:
        return Fact(key, _unread(host, "/proc/meminfo", "MemAvailable"), "/proc/meminfo")
    if of_gpus:
        why = Unknown("MemAvailable counts the GPUs' own memory, too", asked=False)
        return Fact(key, why, "/proc/meminfo")
    free, source = available * 1024, "/proc/meminfo MemAvailable"
    for group, folder, limit in _memory_limits(host, groups):
        used, reclaimable = _used(host, group, folder)
        if limit is None or used is None:
            name = "memory.current" if group.unified else "memory.usage_in_bytes"
            return Fact(key, Unknown(f"a cgroup's limit or its {name} cannot be read"), f"cgroup {name}")
        if (left := max(limit - max(used - reclaimable, 0), 0)) < free:
            free, source = left, "what is left of a cgroup's limit"
    return Fact(key, Known(free // MIB), source)


def _used(host: Host, group: Cgroup, folder: str) -> tuple[int | None, int]:
    """Return the bytes that a group uses, and how many of them are file pages, which are reclaimed first."""
    name, page = ("memory.current", "inactive_file")
    if not group.unified:
        name, page = ("memory.usage_in_bytes", "total_inactive_file")
    lines = (host.read_text(f"{folder}/memory.stat", limit=1 << 16) or "").splitlines()
    inactive = next((line.partition(" ")[2] for line in lines if line.startswith(f"{page} ")), "")
    used = whole_number(host.read_text(f"{folder}/{name}", limit=4096))
    return used, whole_number(inactive) or 0


def _memory_limits(host: Host, groups: list[Cgroup]) -> Iterator[_MemoryLimit]:
    """Yield every memory limit that our groups and the groups above them set."""
    for group in groups:
        if "memory" not in group.controllers:
            continue
        for folder in group.ancestors():
            path = f"{folder}/{_limit_file(group)}"
            text = host.read_text(path, limit=4096)
            limit = whole_number(text)
            if limit is None and _is_set(host, path, text):
                yield _MemoryLimit(group, folder, None)
            elif limit is not None and limit < _NO_LIMIT:
                yield _MemoryLimit(group, folder, limit)


def _limit_file(group: Cgroup) -> str:
    return "memory.max" if group.unified else "memory.limit_in_bytes"


def _is_set(host: Host, path: str, text: str | None) -> bool:
    """Return whether a file without a number sets a limit: unreadable, or neither `max` nor empty."""
    return host.exists(path) if text is None else text.strip() not in ("max", "")


_NODES = "/sys/devices/system/node"


def _gpu_nodes_kib(host: Host, arch: str) -> int:
    """Return the memory of GPUs, in KiB, that the kernel counts as the host's (GH200, GB200).

    Such a GPU's memory is an additional NUMA node, without processors. A node without processors may be other
    memory as well (CXL), so it counts only where the driver says so, or on Arm with an NVIDIA driver.
    """
    without_cpu = _members(host.read_text(f"{_NODES}/has_memory") or "") - _members(
        host.read_text(f"{_NODES}/has_cpu") or ""
    )
    if not without_cpu:
        return 0
    gpus = "/proc/driver/nvidia/gpus"
    of_gpus = {
        int(number)
        for address in host.listdir(gpus)
        for line in (host.read_text(f"{gpus}/{address}/numa_status", limit=4096) or "").splitlines()
        if line.startswith("Node:") and (number := line.partition(":")[2].strip()).isdecimal()
    }
    if not of_gpus and arch == "aarch64" and host.listdir(gpus):
        of_gpus = without_cpu
    return sum(_node_kib(host, node) for node in without_cpu & of_gpus)


def _node_kib(host: Host, node: int) -> int:
    """Return `MemTotal` of a NUMA node, whose lines are `Node 1 MemTotal: 97 kB`."""
    for line in (host.read_text(f"{_NODES}/node{node}/meminfo") or "").splitlines():
        fields = line.split()
        if fields[2:3] == ["MemTotal:"] and len(fields) > 3 and fields[3].isdecimal():  # noqa: PLR2004 - fields
            return int(fields[3])
    return 0


# --- processors -------------------------------------------------------------------------------------


def cpu_count(host: Host, groups: list[Cgroup]) -> Fact:
    """Return `host.cpu_count`, from the process's affinity and the quotas of its cgroups."""
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


def _cpu_quotas(host: Host, groups: list[Cgroup]) -> Iterator[int]:
    """Yield how many CPUs our groups and those above them allow, rounded up; the files have microseconds."""
    for group in groups:
        for folder in group.ancestors() if "cpu" in group.controllers else ():
            if group.unified:
                numbers = (host.read_text(f"{folder}/cpu.max", limit=4096) or "").split()
            else:
                files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                numbers = [(host.read_text(f"{folder}/{name}", limit=4096) or "").strip() for name in files]
            quota, period = (whole_number(number) for number in (*numbers, "", "")[:2])
            if quota and period:
                yield -(-quota // period)


def _members(text: str) -> set[int]:
    """Return the CPUs or nodes in a list such as `0-3,8`; empty if the text is no such list."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        start, end = whole_number(first), whole_number(last or first)
        if start is None or end is None or not start <= end < 1 << 16:
            return set()
        found.update(range(start, end + 1))
    return found


# --- locked and shared memory -----------------------------------------------------------------------

_IPC_LOCK = 1 << 14  # CAP_IPC_LOCK (capability.h): the limit does not apply to a process with it


def locked_memory(host: Host) -> Fact:
    """Return `host.memlock_mib`, the soft limit of locked memory."""
    try:
        exempt = int(_status(host, "CapEff") or "0", 16) & _IPC_LOCK
    except ValueError:
        exempt = 0
    if exempt:
        return Fact("host.memlock_mib", Absent(), "CAP_IPC_LOCK, which no limit restricts")
    path = "/proc/self/limits"
    for line in (host.read_text(path) or "").splitlines():
        if line.startswith("Max locked memory"):
            soft = line.removeprefix("Max locked memory").split()[:1]
            if soft == ["unlimited"]:
                return Fact("host.memlock_mib", Absent(), "unlimited")
            if soft and (limit := whole_number(soft[0])) is not None:
                return Fact("host.memlock_mib", Known(limit // MIB), path)
    return Fact("host.memlock_mib", _unread(host, path, "Max locked memory"))


def shared_memory(host: Host) -> Fact:
    """Return `host.shm_mib`: measured on a running machine, else from the mount options of /dev/shm."""
    if not host.staged:
        try:
            size = os.statvfs(host.path(_SHM))
        except OSError as error:
            why = (error.strerror or "cannot be read").lower()
            missing = isinstance(error, FileNotFoundError)
            return Fact("host.shm_mib", Absent() if missing else Unknown(why), _SHM)
        return Fact("host.shm_mib", Known(size.f_blocks * size.f_frsize // MIB), _SHM)
    mounted = [mount.options for mount in _mounts(host) if mount.point == _SHM]
    if mounted:
        return Fact("host.shm_mib", _tmpfs_size(host, mounted[-1]), f"mount option size of {_SHM}")
    if host.exists("/proc/self/mountinfo") or host.exists("/proc/mounts"):
        return Fact("host.shm_mib", Absent(), f"{_SHM} is not mounted")
    return Fact("host.shm_mib", NO_PROC)


_UNITS = {"k": 1024, "m": MIB, "g": 1024 * MIB}


def _tmpfs_size(host: Host, options: list[str]) -> Reading:
    """Return the `size=` of a tmpfs in MiB; the default is half of the host's memory (tmpfs(5))."""
    total = _meminfo_kib(host, "MemTotal")
    size = next((option[5:].lower() for option in options if option.startswith("size=")), "50%")
    if size.endswith("%") and (percent := whole_number(size[:-1])) is not None:
        if total is None:
            return Unknown("size is half of unknown RAM")
        return Known(total * percent // 100 // 1024)
    amount = whole_number(size.rstrip("kmg"))
    if amount is None:
        return Unknown(f"size of {_SHM} not understood: {size[:20]!r}")
    return Known(amount * _UNITS.get(size[-1:], 1) // MIB)


# --- reading ----------------------------------------------------------------------------------------


def whole_number(text: str | None) -> int | None:
    """Return the number that a file contains; None for `max` and for anything else."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None  # noqa: PLR2004 - 2^63 has 19


def _status(host: Host, name: str) -> str | None:
    for line in (host.read_text("/proc/self/status") or "").splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return None


def _unread(host: Host, path: str, name: str) -> Unknown:
    if host.staged and not host.exists(path):
        return NO_PROC
    return Unknown(f"no readable {name} in {path}" if host.exists(path) else f"{path} cannot be read")
