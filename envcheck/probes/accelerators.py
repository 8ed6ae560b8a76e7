"""Read the accelerators that are not NVIDIA's: AMD GPUs, and Ascend NPUs with the CANN that drives them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.core.patterns import pattern
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest
from envcheck.probes.host_memory import whole_number

YIELDS = {
    "host.amd_gpus": Key(Kind.NUMBER, "AMD GPUs that ROCm's kernel driver lists"),
    "host.amd_architectures": Key(Kind.WORDS, "their architectures as LLVM names them: gfx942"),
    "host.npus": Key(Kind.NUMBER, "Ascend NPUs: the devices /dev/davinci0, /dev/davinci1, …"),
    "cann.version": Key(Kind.VERSION, "Ascend's CANN toolkit that ASCEND_HOME_PATH names, e.g. 8.3.RC1"),
}


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Return the function that reads all facts; there is nothing slow to start."""
    return lambda: Inventory({fact.key: fact for fact in _facts(host)})


PROBE = Probe("accelerators", YIELDS, begin)


def _facts(host: Host) -> Iterator[Fact]:
    yield from _amd(host)
    yield Fact("host.npus", _npus(host), "/dev")
    yield _cann(host)


# --- AMD ----------------------------------------------------------------------------------------------

_NODES = "/sys/class/kfd/kfd/topology/nodes"


def _amd(host: Host) -> Iterator[Fact]:
    """Yield the facts of amdkfd's nodes; a processor without a GPU is a node with GPU id 0."""
    if not host.exists("/sys/class"):
        why = Unknown("no /sys in this tree", asked=not host.staged)
        yield from (Fact(key, why) for key in ("host.amd_gpus", "host.amd_architectures"))
        return
    nodes = [
        f"{_NODES}/{name}"
        for name in host.listdir(_NODES)
        if whole_number(host.read_text(f"{_NODES}/{name}/gpu_id", limit=4096))
    ]
    yield Fact("host.amd_gpus", Known(len(nodes)), _NODES)
    yield Fact("host.amd_architectures", _architectures(host, nodes), _NODES)


def _architectures(host: Host, nodes: list[str]) -> Reading:
    if not nodes:
        return Absent()
    found = {_architecture(host.read_text(f"{node}/properties", limit=1 << 16) or "") for node in nodes}
    return Known(tuple(sorted(found))) if "" not in found else Unknown("a GPU tells no gfx_target_version")


def _architecture(properties: str) -> str:
    """Return `gfx90a` for `gfx_target_version 90010`: major x 10000 + minor x 100 + stepping, in hexadecimal.

    Empty if the properties do not contain it.
    """
    found = re.search(r"^gfx_target_version (\d{5,6})$", properties, re.MULTILINE)
    if found is None:
        return ""
    number = int(found[1])
    return f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"


# --- Ascend -------------------------------------------------------------------------------------------

_CANN_HOMES = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")
_CANN_FILE = pattern(r"ascend_.*_install\.info")
_CANN_VERSION = pattern(r"^version=(\d+(?:\.\d+)+(?:\.RC\d+)?)\s*$", re.MULTILINE | re.IGNORECASE)


def _npus(host: Host) -> Reading:
    if host.staged and not host.exists("/dev"):
        return Unknown("no /dev in this tree", asked=False)
    return Known(sum(re.fullmatch(r"davinci\d+", name) is not None for name in host.listdir("/dev")))


def _cann(host: Host) -> Fact:
    """Return `cann.version` from the file that torch_npu also reads, in the toolkit's folder or below it."""
    named = host.environ.get("ASCEND_HOME_PATH", "")
    homes = [named] if named.startswith("/") else [*_CANN_HOMES]
    for path in (path for home in homes for path in _install_files(host, home)):
        found = _CANN_VERSION.search(host.read_text(path, limit=1 << 16) or "")
        why = Unknown("the file names no version of the form 8.3.RC1")
        return Fact("cann.version", Known(found[1]) if found else why, path)
    return Fact("cann.version", Absent(), "no ascend_*_install.info below " + " or ".join(homes))


def _install_files(host: Host, home: str) -> Iterator[str]:
    below = [name for name in host.listdir(home) if name.endswith("-linux")]
    for folder in (home, *(f"{home}/{name}" for name in below)):
        yield from (f"{folder}/{name}" for name in host.listdir(folder) if _CANN_FILE.fullmatch(name))
