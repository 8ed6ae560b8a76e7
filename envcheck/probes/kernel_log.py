"""Read the Xid messages of the NVIDIA driver in the kernel's log, where this user may read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest

YIELDS = {
    "gpus.xids": Key(
        Kind.WORDS,
        "Xid numbers in the kernel log since the machine started, each once; absent if none",
    ),
}

_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog", "/var/log/dmesg")
_LONGEST = 4 << 20  # bytes read from the end of a log
_DEADLINE_S = 0.5  # the kernel's ring buffer has some thousand records
# The patterns are not compiled, because most machines never use them.
_XID = r"NVRM: Xid \([^)]*\): ([0-9]{1,3}),"
_BOOT = r"(?:\[ *0\.0+\]|kernel:) ?(?:\[ *0\.0+\] ?)?Linux version [0-9]"
_MOST = 100


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Return the function that reads the log; nothing is read where no NVIDIA driver is loaded."""
    return lambda: Inventory({"gpus.xids": _xids(host)})


PROBE = Probe("kernel_log", YIELDS, begin)


def _xids(host: Host) -> Fact:
    key = "gpus.xids"
    if not (host.exists("/sys/module/nvidia") or host.exists("/proc/driver/nvidia")):
        return Fact(key, Unknown("no NVIDIA driver is loaded", asked=False))
    for source, text in _logs(host):
        numbers = tuple(dict.fromkeys(re.findall(_XID, text)))[:_MOST]
        reading: Reading = Known(numbers) if numbers else Absent()
        return Fact(key, reading, f"{source}, of this start of the machine")
    return Fact(key, Unknown("this user may not read the kernel's log", asked=False), "/dev/kmsg, /var/log")


def _logs(host: Host) -> Iterator[tuple[str, str]]:
    """Yield the readable logs, the kernel's own first: only that one is certainly of the current boot."""
    ring = host.read_records("/dev/kmsg", _LONGEST, _DEADLINE_S)
    if ring is not None:
        yield "/dev/kmsg", ring
    for path in _FILES:
        text = _since_start(host.read_end(path, _LONGEST) or "")
        if "NVRM:" in text:  # otherwise it is not the log of this kernel, but for example that of a container
            yield path, text


def _since_start(text: str) -> str:
    """Return what follows the last boot; all of the text if it contains none, because the boot is older."""
    starts = list(re.finditer(_BOOT, text))
    return text[starts[-1].start() :] if starts else text
