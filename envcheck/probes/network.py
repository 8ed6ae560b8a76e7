"""Read what NCCL finds between machines: network interfaces, InfiniBand devices, IMEX channels.

NCCL's own choice is reproduced (ncclFindInterfaces in src/misc/socket.cc, ncclOsFindInterfaces in
src/os/linux.cc): interfaces that are running and have an address, those with an IPv4 address first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest

YIELDS = {
    "host.nccl_interfaces": Key(
        Kind.WORDS, "network interfaces that NCCL would use, best first; absent if it would find none"
    ),
    "host.nccl_first": Key(
        Kind.WORD,
        "what the first of them is: to other machines (network), of containers or VMs although another is to "
        "other machines (virtual), to this machine only (loopback)",
        words=("network", "virtual", "loopback"),
    ),
    "host.infiniband": Key(Kind.NUMBER, "InfiniBand and RoCE devices in /sys/class/infiniband"),
    "host.imex_channels": Key(
        Kind.NUMBER, "IMEX channel devices here; absent if the driver has no IMEX support"
    ),
}


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Return the function that reads all facts; there is nothing slow to start, only small files."""
    return lambda: Inventory({fact.key: fact for fact in _facts(host)})


PROBE = Probe("network", YIELDS, begin)


def _facts(host: Host) -> Iterator[Fact]:
    yield from _interfaces(host)
    yield _infiniband(host)
    yield _imex(host)


# --- interfaces ---------------------------------------------------------------------------------------

_NET = "/sys/class/net"
_RUNNING = ("up", "unknown")  # RFC 2863 as the kernel writes it; loopback and tunnels are "unknown"

_VIRTUAL = (
    "docker",
    "veth",
    "br-",
    "virbr",
    "vnet",
    "cni",
    "flannel",
    "cali",
    "cilium",
    "lxc",
    "lxd",
    "podman",
    "kube",
    "nodelocaldns",
    "dummy",
    "tun",
    "tap",
    "tailscale",
    "wg",
    "zt",
    "vxlan",
    "genev",
    "ovs",
    "ifb",
)
"""Names that tools for containers, VMs and tunnels give to interfaces that reach no other machine."""


def _interfaces(host: Host) -> Iterator[Fact]:
    keys = ("host.nccl_interfaces", "host.nccl_first")
    names = host.listdir(_NET)
    if not names or not (host.exists("/proc/net/route") or host.exists("/proc/net/if_inet6")):
        why = Unknown(f"no {_NET} with its addresses in /proc/net", asked=not host.staged)
        yield from (Fact(key, why) for key in keys)
        return
    usable = _addressed(host, [name for name in names if _is_running(host, name)])
    setting, named_by = _setting(host)
    taken = nccls_choice(usable, setting)
    source = f"{_NET}, {named_by}" if len(setting) > 1 else f"{_NET}, by NCCL's own rule"
    shown = tuple(map(_without_address, taken))
    yield Fact(keys[0], Known(shown) if taken else Absent(), source)
    yield Fact(keys[1], _first(taken, usable), source)


def _setting(host: Host) -> tuple[str, str]:
    """Return NCCL_SOCKET_IFNAME and where it is set: the variable, or NCCL's file of the user or machine."""
    name = "NCCL_SOCKET_IFNAME"
    if name in host.environ:
        return host.environ[name], f"by {name}"
    home = host.environ.get("HOME", "")
    own = host.environ.get("NCCL_CONF_FILE") or f"{home}/.nccl.conf"
    for path, place in ((own, "the user's nccl.conf"), ("/etc/nccl.conf", "/etc/nccl.conf")):
        for line in (host.read_text(path, limit=1 << 16) or "").splitlines() if path.startswith("/") else ():
            key, _, value = line.partition("=")
            if key.strip() == name:
                return value.strip(), f"by {name} of {place}"
    return "", ""


def _is_running(host: Host, name: str) -> bool:
    state = (host.read_text(f"{_NET}/{name}/operstate", limit=4096) or "unknown").strip()
    return state in _RUNNING


def _addressed(host: Host, names: Sequence[str]) -> list[str]:
    """Return the interfaces with an address in the order of getifaddrs: IPv4 first, then by index."""
    routes = (host.read_text("/proc/net/route") or "").splitlines()[1:]
    with_ipv4 = {line.split()[0] for line in routes if line.split()}
    with_ipv4.add("lo")  # its route is in another table
    with_ipv6 = {
        line.split()[-1] for line in (host.read_text("/proc/net/if_inet6") or "").splitlines() if line
    }

    def place(name: str) -> tuple[bool, int]:
        index = (host.read_text(f"{_NET}/{name}/ifindex", limit=4096) or "").strip()
        return name not in with_ipv4, int(index) if index.isdecimal() and len(index) < 10 else 0  # noqa: PLR2004

    return sorted((name for name in names if name in with_ipv4 | with_ipv6), key=place)


def nccls_choice(names: Sequence[str], setting: str) -> list[str]:
    """Return the interfaces that NCCL uses; `setting` is NCCL_SOCKET_IFNAME: "eth,ib", "=eth0", "^docker".

    Without a setting, NCCL uses the InfiniBand interfaces, else all except docker, lo and virbr, else docker,
    else lo, else virbr. Older releases do not treat virbr specially. A value of one character counts as no
    setting.
    """
    if len(setting) > 1:
        return _matching(names, setting)
    for rule in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr"):
        if found := _matching(names, rule):
            return found
    return []


def _matching(names: Sequence[str], rule: str) -> list[str]:
    exclude = rule.startswith("^")
    rule = rule.removeprefix("^")
    exact = rule.startswith("=")
    patterns = [part.partition(":")[0] for part in rule.removeprefix("=").split(",") if part]

    def matches(name: str) -> bool:
        if not patterns:
            return True
        return any(name == pattern if exact else name.startswith(pattern) for pattern in patterns)

    return [name for name in names if matches(name) != exclude]


def _first(taken: Sequence[str], usable: Sequence[str]) -> Reading:
    if not taken:
        return Absent()
    if taken[0] == "lo":
        return Known("loopback")
    others = [name for name in usable if name != "lo" and not name.startswith(_VIRTUAL)]
    # Without another interface, as in many containers, the virtual one leads to other machines.
    return Known("virtual" if others and taken[0].startswith(_VIRTUAL) else "network")


def _without_address(name: str) -> str:
    """Return `enx…` for a name that contains the address of the card."""
    return f"{name[:3]}…" if name.startswith(("enx", "wlx", "wwx")) else name


# --- InfiniBand and IMEX ------------------------------------------------------------------------------


def _infiniband(host: Host) -> Fact:
    path = "/sys/class/infiniband"
    if not host.exists("/sys/class"):
        return Fact("host.infiniband", Unknown("no /sys in this tree", asked=not host.staged))
    return Fact("host.infiniband", Known(len(host.listdir(path))), path)


def _imex(host: Host) -> Fact:
    """Return `host.imex_channels`: device files that an administrator or a plugin makes after each boot."""
    kind, folder = "nvidia-caps-imex-channels", "/dev/nvidia-caps-imex-channels"
    devices = host.read_text("/proc/devices")
    if devices is None:
        return Fact("host.imex_channels", Unknown("no /proc/devices", asked=not host.staged))
    if kind not in devices.split():
        return Fact("host.imex_channels", Absent(), f"no {kind} in /proc/devices")
    channels = [name for name in host.listdir(folder) if name.startswith("channel")]
    return Fact("host.imex_channels", Known(len(channels)), folder)
