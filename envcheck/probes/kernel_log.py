"""Xid messages of the NVIDIA driver in the kernel's log, as far as this user may read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest

YIELDS = {
    "gpus.xids": Key(
        Kind.WORDS, "Xid numbers in what is left of this start's kernel log, each once; absent if none"
    ),
}

_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog", "/var/log/dmesg")
_LONGEST = 4 << 20  # bytes of a log that are read, from its end
_DEADLINE_S = 0.5  # the kernel's ring holds some thousand records
# Texts, for most machines never need them compiled.
_XID = r"NVRM: Xid \([^)]*\): ([0-9]{1,3}),"
_BOOT = r"(?:\[ *0\.0+\]|kernel:) ?(?:\[ *0\.0+\] ?)?Linux version [0-9]"
_MOST = 100


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Nothing is read where no NVIDIA driver is loaded."""
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
    """The logs that can be read, the kernel's own first: of it alone is sure that it is of this start."""
    ring = host.read_records("/dev/kmsg", _LONGEST, _DEADLINE_S)
    if ring is not None:
        yield "/dev/kmsg", ring
    for path in _FILES:
        text = _since_start(host.read_end(path, _LONGEST) or "")
        if "NVRM:" in text:  # else it is no log of this kernel, as where a container has one of its own
            yield path, text


def _since_start(text: str) -> str:
    """What follows the last start; the whole where none is in it, for then it is older than the text."""
    starts = list(re.finditer(_BOOT, text))
    return text[starts[-1].start() :] if starts else text
