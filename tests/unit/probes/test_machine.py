"""The machine probe on staged trees of files: a container, a pod, WSL, a stripped image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from envcheck.core.facts import Absent, Inventory, Known, Reading, Unknown, Vocabulary
from envcheck.host.machine import Host
from envcheck.probes import ProbeRequest, survey
from envcheck.probes.machine import PROBE
from envcheck.probes.network import nccls_choice
from envcheck.probes.visible import selection
from tests.support.fake_nvml import LiveTree

MEMINFO = "MemTotal:       263856128 kB\nMemFree:        1 kB\n"  # 251 GiB
HOST_MIB = 263856128 // 1024
V2 = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "30 25 0:26 {top} /sys/fs/cgroup/memory rw shared:14 - cgroup cgroup rw,memory\n"
    "31 25 0:27 {top} /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
)
NO_LIMIT_V1 = "9223372036854771712\n"


def stage(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def examine(root: Path, files: Mapping[str, str | bytes], **environ: str) -> Inventory:
    stage(root, files)
    return survey(Host(root, environ), ProbeRequest(), [PROBE])


def reading(inventory: Inventory, name: str) -> Reading:
    return inventory.fact(f"host.{name}").reading


MEMORY_TREES: dict[str, tuple[dict[str, str | bytes], int]] = {
    "bare metal, v2, no limit": (
        {
            "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/user.slice/memory.max": "max\n",
            "/sys/fs/cgroup/user.slice/user-1000.slice/memory.max": "max\n",
        },
        HOST_MIB,
    ),
    "v2, own limit": (
        {
            "/proc/self/cgroup": "0::/job\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/job/memory.max": "124554051584\n",
        },
        118784,
    ),
    "v2, an ancestor's limit is less than ours": (
        {
            "/proc/self/cgroup": "0::/slurm/job_7/step_0/task_0\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/slurm/memory.max": "max\n",
            "/sys/fs/cgroup/slurm/job_7/memory.max": f"{64 << 30}\n",
            "/sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            "/sys/fs/cgroup/slurm/job_7/step_0/task_0/memory.max": f"{100 << 30}\n",
        },
        64 << 10,
    ),
    "v2, container with a namespace of its own": (
        {
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/memory.max": f"{32 << 30}\n",
        },
        32 << 10,
    ),
    "v2, moved out of the namespace": (
        {
            "/proc/self/cgroup": "0::/../other\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/memory.max": f"{16 << 30}\n",
        },
        16 << 10,
    ),
    "v2, no mountinfo": (
        {"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": f"{8 << 30}\n"},
        8 << 10,
    ),
    "v1, own limit": (
        {
            "/proc/self/cgroup": "5:memory:/job\n3:cpu,cpuacct:/job\n",
            "/proc/self/mountinfo": V1.format(top="/"),
            "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{48 << 30}\n",
        },
        48 << 10,
    ),
    "v1, sentinel means none": (
        {
            "/proc/self/cgroup": "5:memory:/job\n",
            "/proc/self/mountinfo": V1.format(top="/"),
            "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": NO_LIMIT_V1,
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1,
        },
        HOST_MIB,
    ),
    "v1, container without a namespace: the mount's top is our group": (
        {
            "/proc/self/cgroup": "5:memory:/docker/4f1c\n",
            "/proc/self/mountinfo": V1.format(top="/docker/4f1c"),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{24 << 30}\n",
        },
        24 << 10,
    ),
    "v1, nested below the mount's top": (
        {
            "/proc/self/cgroup": "5:memory:/docker/4f1c/child\n",
            "/proc/self/mountinfo": V1.format(top="/docker/4f1c"),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{24 << 30}\n",
            "/sys/fs/cgroup/memory/child/memory.limit_in_bytes": f"{12 << 30}\n",
        },
        12 << 10,
    ),
    "hybrid: memory in v1, an empty v2 beside it": (
        {
            "/proc/self/cgroup": "5:memory:/job\n0::/job\n",
            "/proc/self/mountinfo": V1.format(top="/")
            + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
            "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{4 << 30}\n",
        },
        4 << 10,
    ),
    "no cgroups": ({}, HOST_MIB),
    "garbage in /proc/self/cgroup": ({"/proc/self/cgroup": b"\x00\xff:::\n:\n0::\n"}, HOST_MIB),
}


@pytest.mark.parametrize(("files", "expected"), MEMORY_TREES.values(), ids=list(MEMORY_TREES))
def test_memory_limit_is_the_least_of_host_and_every_cgroup_above(
    tmp_path: Path, files: dict[str, str | bytes], expected: int
) -> None:
    inventory = examine(tmp_path, {"/proc/meminfo": MEMINFO, **files})
    assert reading(inventory, "ram_mib") == Known(HOST_MIB)
    assert reading(inventory, "ram_limit_mib") == Known(expected)


def test_source_of_a_limit_names_no_container_and_no_user(tmp_path: Path) -> None:
    files, _ = MEMORY_TREES["v1, container without a namespace: the mount's top is our group"]
    inventory = examine(tmp_path, {"/proc/meminfo": MEMINFO, **files})
    assert inventory.fact("host.ram_limit_mib").source == "cgroup memory.limit_in_bytes"


def test_memory_without_meminfo_is_unknown_but_a_limit_is_still_found(tmp_path: Path) -> None:
    files, expected = MEMORY_TREES["v2, own limit"]
    inventory = examine(tmp_path, {"/proc/meminfo": "MemTotal: lots\n", **files})
    assert isinstance(reading(inventory, "ram_mib"), Unknown)
    assert reading(inventory, "ram_limit_mib") == Known(expected)


CPU_TREES: dict[str, tuple[dict[str, str], int]] = {
    "affinity": ({"/proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-3,8\n"}, 5),
    "online only": ({"/sys/devices/system/cpu/online": "0-63\n"}, 64),
    "v2 quota, rounded up": (
        {
            "/proc/self/status": "Cpus_allowed_list:\t0-63\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/cpu.max": "750000 100000\n",
        },
        8,
    ),
    "v2 no quota": (
        {
            "/proc/self/status": "Cpus_allowed_list:\t0-1\n",
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": V2,
            "/sys/fs/cgroup/cpu.max": "max 100000\n",
        },
        2,
    ),
    "v1 quota of an ancestor": (
        {
            "/proc/self/status": "Cpus_allowed_list:\t0-63\n",
            "/proc/self/cgroup": "3:cpu,cpuacct:/pod/box\n",
            "/proc/self/mountinfo": V1.format(top="/"),
            "/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us": "400000\n",
            "/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/pod/box/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/pod/box/cpu.cfs_period_us": "100000\n",
        },
        4,
    ),
}


@pytest.mark.parametrize(("files", "expected"), CPU_TREES.values(), ids=list(CPU_TREES))
def test_cpu_count_respects_affinity_and_quota(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert reading(examine(tmp_path, files), "cpu_count") == Known(expected)


@pytest.mark.parametrize(
    ("release", "kernel", "wsl"),
    [
        ("5.15.0-91-generic\n", Known("5.15.0"), Known(False)),
        ("4.18.0-553.el8_10.x86_64\n", Known("4.18.0"), Known(False)),
        ("6.18.44+\n", Known("6.18.44"), Known(False)),
        ("5.15.153.1-microsoft-standard-WSL2\n", Known("5.15.153.1"), Known(True)),
    ],
)
def test_kernel_keeps_its_numbers_and_wsl_is_seen(
    tmp_path: Path, release: str, kernel: Reading, wsl: Reading
) -> None:
    inventory = examine(tmp_path, {"/proc/sys/kernel/osrelease": release})
    assert reading(inventory, "kernel") == kernel
    assert reading(inventory, "wsl") == wsl


def test_kernel_release_without_numbers_is_unknown(tmp_path: Path) -> None:
    inventory = examine(tmp_path, {"/proc/sys/kernel/osrelease": "banana\n"})
    assert isinstance(reading(inventory, "kernel"), Unknown)


SHM_TREES: dict[str, tuple[dict[str, str], Reading]] = {
    "Docker's 64 MB": (
        {"/proc/self/mountinfo": "9 1 0:5 / /dev/shm rw - tmpfs shm rw,size=65536k\n"},
        Known(64),
    ),
    "sixteen gigabytes": ({"/proc/mounts": "shm /dev/shm tmpfs rw,size=16g 0 0\n"}, Known(16384)),
    "half of memory when no size is set": (
        {"/proc/mounts": "tmpfs /dev/shm tmpfs rw,nosuid 0 0\n", "/proc/meminfo": "MemTotal: 2097152 kB\n"},
        Known(1024),
    ),
    "a share of memory": (
        {"/proc/mounts": "tmpfs /dev/shm tmpfs size=25% 0 0\n", "/proc/meminfo": "MemTotal: 2097152 kB\n"},
        Known(512),
    ),
    "not mounted": ({"/proc/mounts": "proc /proc proc rw 0 0\n"}, Absent()),
    "the later mount covers the earlier": (
        {"/proc/mounts": "a /dev/shm tmpfs size=64m 0 0\nb /dev/shm tmpfs size=1024m 0 0\n"},
        Known(1024),
    ),
}


@pytest.mark.parametrize(("files", "expected"), SHM_TREES.values(), ids=list(SHM_TREES))
def test_shared_memory_size_comes_from_the_mount(
    tmp_path: Path, files: dict[str, str], expected: Reading
) -> None:
    assert reading(examine(tmp_path, files), "shm_mib") == expected


def test_shared_memory_size_not_understood_is_unknown(tmp_path: Path) -> None:
    inventory = examine(tmp_path, {"/proc/mounts": "shm /dev/shm tmpfs size=banana 0 0\n"})
    assert isinstance(reading(inventory, "shm_mib"), Unknown)


LIMITS = "Limit                     Soft Limit           Hard Limit           Units\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Max locked memory         8388608              8388608              bytes\n", Known(8)),
        ("Max locked memory         65536                65536                bytes\n", Known(0)),
        ("Max locked memory         unlimited            unlimited            bytes\n", Absent()),
    ],
)
def test_locked_memory_limit_and_unlimited_is_absent(tmp_path: Path, line: str, expected: Reading) -> None:
    assert reading(examine(tmp_path, {"/proc/self/limits": LIMITS + line}), "memlock_mib") == expected


CONTAINER_TREES: dict[str, tuple[dict[str, str], dict[str, str], Reading]] = {
    "none": ({"/proc/self/cgroup": "0::/init.scope\n"}, {}, Absent()),
    "docker": ({"/.dockerenv": "", "/proc/self/cgroup": "0::/\n"}, {}, Known("docker")),
    "docker by cgroup": ({"/proc/self/cgroup": "5:memory:/docker/4f1c\n"}, {}, Known("docker")),
    "podman": ({"/run/.containerenv": "", "/proc/self/cgroup": "0::/\n"}, {}, Known("podman")),
    "pod": (
        {"/.dockerenv": "", "/var/run/secrets/kubernetes.io/serviceaccount/namespace": "x"},
        {},
        Known("kubernetes"),
    ),
    "pod by variable": ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Known("kubernetes")),
    "pod by cgroup": ({"/proc/self/cgroup": "0::/kubepods.slice/x\n"}, {}, Known("kubernetes")),
    "singularity": ({}, {"SINGULARITY_CONTAINER": "x.sif"}, Known("singularity")),
    "lxc": ({"/run/systemd/container": "lxc\n", "/proc/self/cgroup": "0::/\n"}, {}, Known("lxc")),
    "systemd-nspawn": ({"/run/systemd/container": "systemd-nspawn\n"}, {}, Known("other")),
    "a user whose name has docker in it": ({"/proc/self/cgroup": "0::/user.slice/mydocker\n"}, {}, Absent()),
}


@pytest.mark.parametrize(
    ("files", "environ", "expected"), CONTAINER_TREES.values(), ids=list(CONTAINER_TREES)
)
def test_container_is_named(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], expected: Reading
) -> None:
    assert reading(examine(tmp_path, files, **environ), "container") == expected


BANNER = (
    b"\x7fELF\x02\x00GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.3) stable release version 2.39.\nCopyright\x00"
)
GLIBC_TREES: dict[str, tuple[dict[str, str | bytes], Reading, Reading]] = {
    "Ubuntu 24.04, x86_64": (
        {"/usr/lib/x86_64-linux-gnu/libc.so.6": BANNER, "/lib64/ld-linux-x86-64.so.2": ""},
        Known("2.39"),
        Known("x86_64"),
    ),
    "Ubuntu 20.04: the file is called by its version": (
        {"/lib/x86_64-linux-gnu/libc-2.31.so": "", "/lib64/ld-linux-x86-64.so.2": ""},
        Known("2.31"),
        Known("x86_64"),
    ),
    "Debian on Arm": (
        {"/lib/aarch64-linux-gnu/libc.so.6": BANNER, "/lib/ld-linux-aarch64.so.1": ""},
        Known("2.39"),
        Known("aarch64"),
    ),
    "Alpine": ({"/lib/ld-musl-x86_64.so.1": ""}, Absent(), Known("x86_64")),
}


@pytest.mark.parametrize(("files", "glibc", "arch"), GLIBC_TREES.values(), ids=list(GLIBC_TREES))
def test_library_and_architecture_of_an_unpacked_image(
    tmp_path: Path, files: dict[str, str | bytes], glibc: Reading, arch: Reading
) -> None:
    if "/usr/lib/x86_64-linux-gnu/libc.so.6" in files:
        (tmp_path / "lib").symlink_to("/usr/lib")  # absolute: it means the image's, not ours
    inventory = examine(tmp_path, files)
    assert reading(inventory, "glibc") == glibc
    assert reading(inventory, "arch") == arch


def test_tree_without_proc_does_not_give_facts_of_a_running_machine(tmp_path: Path) -> None:
    inventory = examine(tmp_path, {"/etc/os-release": "ID=ubuntu\n"})
    assert reading(inventory, "os") == Known("linux")
    for name in (
        "kernel",
        "ram_mib",
        "ram_limit_mib",
        "shm_mib",
        "memlock_mib",
        "cpu_count",
        "wsl",
        "container",
    ):
        found = reading(inventory, name)
        assert isinstance(found, Unknown), name
        assert not found.asked, name


def test_only_variables_of_the_list_are_read(tmp_path: Path) -> None:
    inventory = examine(
        tmp_path,
        {},
        NCCL_DEBUG="INFO",
        CUDA_VISIBLE_DEVICES="0,1",
        MASTER_ADDR="node-7",
        USER="ann",
        AWS_X="1",
    )
    assert sorted(key for key in inventory.facts if key.startswith("env.")) == [
        "env.CUDA_VISIBLE_DEVICES",
        "env.NCCL_DEBUG",
    ]
    assert inventory.known("env.CUDA_VISIBLE_DEVICES") == "0,1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_NET_TOKEN", "abc"),
        ("TORCH_MIRROR", "https://ann:pw@mirror.example/simple"),
        ("TORCH_X", "hf_abcdefghijKLmn0p"),
        ("DS_KEY", "0123456789abcdef0123456789abcdef0123"),
        ("NCCL_LONG", "x " * 4000),
    ],
)
def test_variable_that_looks_like_a_secret_is_not_shown(tmp_path: Path, name: str, value: str) -> None:
    inventory = examine(tmp_path, {}, **{name: value})
    found = inventory.fact(f"env.{name}").reading
    assert isinstance(found, Unknown)
    assert found.why.startswith("not shown")
    assert value not in repr(inventory.facts)


def test_variable_loses_the_home_folder_and_gpu_uuids(tmp_path: Path) -> None:
    inventory = examine(
        tmp_path,
        {},
        HOME="/home/ann",
        CUDA_HOME="/home/ann/cuda-12.4",
        CUDA_VISIBLE_DEVICES="GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,MIG-b3a7-1",
    )
    assert inventory.known("env.CUDA_HOME") == "~/cuda-12.4"
    assert inventory.known("env.CUDA_VISIBLE_DEVICES") == "GPU-…,MIG-…"


def test_variable_not_set_is_absent_here_and_not_given_in_a_tree(tmp_path: Path) -> None:
    here = survey(Host(environ={}), ProbeRequest(), [PROBE])
    assert here.fact("env.CUDA_HOME").reading == Absent()
    tree = examine(tmp_path, {}).fact("env.CUDA_HOME").reading
    assert tree == Unknown("not given", asked=False)


def test_this_machine_is_read() -> None:
    inventory = survey(Host(environ={}), ProbeRequest(), [PROBE])
    assert inventory.known("host.arch") == os.uname().machine
    cpus, ram, limit = (inventory.known(f"host.{name}") for name in ("cpu_count", "ram_mib", "ram_limit_mib"))
    assert isinstance(cpus, int)
    assert 1 <= cpus <= (os.cpu_count() or 1)
    assert isinstance(ram, int)
    assert isinstance(limit, int)
    assert 0 < limit <= ram


def test_every_key_yielded_is_declared(tmp_path: Path) -> None:
    vocabulary = Vocabulary(PROBE.yields)
    inventory = examine(tmp_path, {}, NCCL_DEBUG="INFO")
    assert [key for key in inventory.facts if vocabulary.get(key) is None] == []


# --- network, selection, log and links --------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ("", ["eth0", "bond0", "br-1", "veth2"]),
        ("e", ["eth0", "bond0", "br-1", "veth2"]),  # one character counts as none
        ("eth", ["eth0"]),
        ("eth0:1234", ["eth0"]),  # a port is no part of the name
        ("=eth0,=bond0", ["eth0"]),  # one = for the whole list, so the second name is "=bond0"
        ("=eth0,bond0", ["eth0", "bond0"]),
        ("^docker,lo", ["eth0", "bond0", "br-1", "virbr0", "veth2"]),
        ("^=br-1", ["docker0", "eth0", "bond0", "virbr0", "veth2", "lo"]),
        ("ib", []),
        ("^,", []),  # an empty list fits every name, and ^ leaves all of them out
    ],
)
def test_nccls_choice_of_interfaces_is_reproduced(asked: str, taken: list[str]) -> None:
    names = ["docker0", "eth0", "bond0", "br-1", "virbr0", "veth2", "lo"]
    assert nccls_choice(names, asked) == taken


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["eth0", "ib0", "ib1"], ["ib0", "ib1"]),
        (["docker0", "lo"], ["docker0"]),
        (["virbr0", "lo"], ["lo"]),
        (["virbr0"], ["virbr0"]),
        ([], []),
    ],
)
def test_nccl_takes_one_kind_at_a_time(names: list[str], taken: list[str]) -> None:
    assert nccls_choice(names, "") == taken


UUIDS = ["GPU-a1", "GPU-a2", "GPU-b3"]


@pytest.mark.parametrize(
    "value", ["0,GPU-8932f937-d72c", "GPU-8932f937,GPU-8932f937", "GPU-8932f937", "0, MIG-8932f937"]
)
def test_selection_contains_no_uuid(value: str) -> None:
    for uuids in ([], UUIDS, ["GPU-8932f937-d72c", "GPU-8932f937-d72d"]):
        assert "8932" not in selection(value, uuids).source


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("MIG-a,MIG-a", "duplicate"),
        ("MIG-a,MIG-b", "plain"),
        ("GPU-c9,GPU-c9", "duplicate"),
        ("GPU-c9,GPU-c8", "plain"),
        ("0,1,0", "duplicate"),
        ("0,1", "plain"),
    ],
)
def test_a_device_that_is_named_twice_is_seen_without_its_uuid(value: str, word: str) -> None:
    assert selection(value, []).value == word


def test_an_endless_log_is_abandoned_in_time(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    assert Host(tmp_path, {}).read_records("/kmsg", 1 << 20, 0.2) is None
    assert LiveTree(tmp_path, {}).read_records("/kmsg", 1 << 20, 0.2) is None
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert Host(tmp_path, {}).read_records("/zero", 1 << 20, 0.2) is None, "a link out of the tree"
    endless = Host(environ={}).read_records("/dev/zero", 1 << 17, 5)
    assert endless is not None
    assert len(endless) == 1 << 17


def test_the_end_of_a_file_is_read(tmp_path: Path) -> None:
    stage(tmp_path, {"/log": "first\nlast\n"})
    assert Host(tmp_path, {}).read_end("/log", 5) == "last\n"
    assert Host(tmp_path, {}).read_end("/log", 500) == "first\nlast\n"


def test_a_loop_of_links_does_not_lead_out_of_a_tree(tmp_path: Path) -> None:
    """The target of the last link of a loop may exist on the machine that runs the tests."""
    (tmp_path / "etc").symlink_to("/etc")
    host = Host(tmp_path, {})
    assert not host.exists("/etc")
    assert host.listdir("/etc") == ()
    assert host.read_text("/etc/passwd") is None
