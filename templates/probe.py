"""The release of the example service, from its file under /etc."""

from __future__ import annotations

from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Unknown
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest

# Every key this probe may yield. Rules may use only declared keys; if the probe crashes, exactly these become
# Unknown. A help text names the unit and gives an example.
YIELDS = {
    "example.version": Key(Kind.VERSION, "release of the service, e.g. 2.4.1; absent if not installed"),
}

_FILE = "/etc/example-release"


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Start slow work (`host.start`) and return the function that collects the facts.

    All probes are started before the facts of the first one are collected, so that they wait at the same
    time. Read files through `host`, so that a test can provide them. Do not raise an exception because of the
    state of the machine.
    """
    return lambda: Inventory({"example.version": _version(host)})


PROBE = Probe("example", YIELDS, begin)


def _version(host: Host) -> Fact:
    key = "example.version"
    if not host.exists(_FILE):
        return Fact(key, Absent(), _FILE)
    text = host.read_text(_FILE)
    if text is None:
        return Fact(key, Unknown("the file cannot be read"), _FILE)
    return Fact(key, Known(text.strip()), _FILE)
