"""Generate clusters from a seed: facts of many nodes, with planted faults. A report must name exactly these."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

REQUIRES = {
    "accelerate": [
        "numpy>=1.17",
        "packaging>=20.0",
        "psutil",
        "pyyaml",
        "torch>=2.0.0",
        "safetensors>=0.4.3",
    ],
    "deepspeed": ["einops", "hjson", "msgpack", "ninja", "numpy", "packaging>=20.0", "psutil", "tqdm"],
    "peft": ["numpy>=1.17", "packaging>=20.0", "psutil", "pyyaml", "torch>=1.13.0", "accelerate>=0.21.0"],
}
PACKAGES = {
    "torch": "2.13.0", "nvidia-nccl-cu13": "2.30.4", "transformers": "5.23.0", "deepspeed": "0.19.8",
    "peft": "0.21.2", "accelerate": "1.15.0", "numpy": "2.4.6", "packaging": "26.3", "psutil": "7.2.2",
    "pyyaml": "6.0.3", "safetensors": "0.8.1", "einops": "0.8.2", "hjson": "3.1.0", "msgpack": "1.2.4",
    "ninja": "1.13.2", "tqdm": "4.69.0", "triton": "3.7.1", "setuptools": "81.0.0",
    **{f"library-{number:02d}": f"{number}.4.{number % 7}" for number in range(60)},
}  # fmt: skip


class Fault(NamedTuple):
    """A planted fault.

    `key` is that of the difference or finding, `value` its value on the faulty nodes, `nodes` their names.
    """

    key: str
    value: str
    nodes: frozenset[str]


class Cluster(NamedTuple):
    """A cluster with all its planted faults.

    `lines` are the records in order, `names` the nodes with a valid record. `differences` are the faults by key.
    `missing` are the nodes without a valid record, `twice` those with two records.
    """

    lines: list[str]
    names: list[str]
    differences: dict[str, Fault]
    missing: frozenset[str]
    broken: frozenset[int]  # numbers of the lines that are not valid records
    twice: frozenset[str]


def node(name: str) -> dict[str, Any]:
    """Return the facts of a healthy node with eight GPUs."""
    packages: dict[str, Any] = dict(PACKAGES)
    for package, requires in REQUIRES.items():
        packages[package] = {"version": PACKAGES[package], "requires": requires}
    gpu = {
        "name": "NVIDIA H100 80GB HBM3",
        "compute_capability": "9.0",
        "memory_mib": 81559,
        "mig": False,
        "compute_mode": "default",
        "visible": True,
    }
    tree = {
        "envcheck": "0.1.0",
        "schema_version": 1,
        "host": {
            "name": name,
            "os": "linux",
            "arch": "x86_64",
            "kernel": "6.8.0",
            "glibc": "2.39",
            "cpu_count": 192,
            "ram_mib": 2063000,
            "ram_limit_mib": 2063000,
            "shm_mib": 1031500,
            "wsl": False,
        },
        "python": {"version": "3.11.7", "implementation": "cpython", "abi": "cp311", "manager": "venv"},
        "driver": {"version": "580.65.06"},
        "build": {"torch": {"cuda": "13.0", "git": "0a1b2c3d"}},
        "pkg": packages,
        "gpu": [dict(gpu) for _ in range(8)],
        "env": {"NCCL_IB_DISABLE": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        "complete": ["env", "pkg"],
        "absent": ["host.container", "cuda.compat"],
    }
    keys = [f"pkg.{package}" for package in packages] + [f"gpu[{n}].{key}" for n in range(8) for key in gpu]
    tree["sources"] = {key: f"lib/python3.11/site-packages/{key}.dist-info" for key in keys}
    return tree


def vary(tree: dict[str, Any], chance: random.Random) -> None:
    """Change the values that differ between healthy nodes or change with time."""
    for gpu in tree["gpu"]:
        gpu["memory_free_mib"] = 81000 + chance.randrange(500)
        gpu["memory_used_mib"] = 81559 - gpu["memory_free_mib"]
    tree["host"]["ram_mib"] = tree["host"]["ram_limit_mib"] = 2063000 + chance.randrange(4)
    tree["host"]["shm_mib"] = tree["host"]["ram_mib"] // 2
    tree["env"]["NCCL_HOSTID"] = tree["host"]["name"]
    tree["python"]["origin"] = f"/local/{tree['host']['name']}/env/bin/python (named by --python)"


# How each fault changes a node, and the value that a report shows then.
FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "pkg.torch": (lambda tree: tree["pkg"].update({"torch": "2.12.1"}), "2.12.1"),
    "driver.version": (lambda tree: tree["driver"].update({"version": "575.57.08"}), "575.57.08"),
    "pkg.nvidia-nccl-cu13": (lambda tree: tree["pkg"].update({"nvidia-nccl-cu13": "2.29.1"}), "2.29.1"),
    "pkg.*": (lambda tree: tree["pkg"].update({"library-07": "6.9"}), "library-07 6.9"),
    "gpus.count": (lambda tree: tree["gpu"].pop(), "7"),
    "gpu.name": (lambda tree: tree["gpu"][2].update(name="NVIDIA H200", memory_mib=143771), "H200"),
    "gpu.memory_mib": (lambda tree: tree["gpu"][0].update(memory_mib=40960), "40960"),
    "env.NCCL_ALGO": (lambda tree: tree["env"].update(NCCL_ALGO="Tree"), "Tree"),
    "env.NCCL_IB_DISABLE": (lambda tree: tree["env"].update(NCCL_IB_DISABLE="1"), "1"),
}


def cluster(count: int, seed: int, faults: int = 9) -> Cluster:
    """Generate nodes, faults on disjoint sets of nodes, and records that are missing, broken or duplicated."""
    chance = random.Random(seed)  # noqa: S311 - it must be reproducible
    names = [f"gpu{number:05d}" for number in range(1, count + 1)]
    chosen = chance.sample(names, min(count // 3, 4 * faults + 12))
    planted: dict[str, Fault] = {}
    fault_of: dict[str, str] = {}
    for key in chance.sample(sorted(FAULTS), min(faults, len(FAULTS))):
        size = chance.randint(1, 3)
        on, chosen = chosen[:size], chosen[size:]
        if not on:
            break
        for name in on:
            fault_of[name] = key
        planted[key] = Fault(key, FAULTS[key][1], frozenset(on))
    gone, cut, again = (frozenset(chosen[start : start + 3]) for start in (0, 3, 6))
    lines: list[str] = []
    broken: set[int] = set()
    for name in names:
        if name in gone:
            continue
        tree = node(name)
        vary(tree, chance)
        if name in fault_of:
            FAULTS[fault_of[name]][0](tree)
        text = json.dumps(tree)
        if name in again:
            lines.append(text)
        if name in cut:
            text = text[: chance.randrange(1, len(text))]
            broken.add(len(lines) + 1)
        lines.append(text)
    here = [name for name in names if name not in gone | cut]
    return Cluster(lines, here, planted, gone | cut, frozenset(broken), again)
