"""Properties that hold for any input: machine."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envcheck.core.nvidia import visible_gpus
from envcheck.host.machine import Host
from envcheck.probes import ProbeRequest, survey
from envcheck.probes.machine import PROBE
from envcheck.probes.visible import selection
from tests.unit.probes.test_machine import UUIDS, V1, V2, stage

FILES = (
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/status",
    "proc/self/limits",
    "proc/meminfo",
    "proc/sys/kernel/osrelease",
    "sys/devices/system/cpu/online",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/cpu.max",
)


LINES = st.sampled_from(
    ["0::/a\n", "5:memory:/\n", V2, V1, "MemTotal: 9\n", "MemTotal:\n", "Cpus_allowed_list:\t9-1\n", "size=%"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(LINES.map(str.encode) | st.binary(max_size=40), min_size=9, max_size=9))
def test_garbage_never_raises(tmp_path: Path, contents: list[bytes]) -> None:
    stage(tmp_path, dict(zip(FILES, contents, strict=True)))
    inventory = survey(Host(tmp_path, {}), ProbeRequest(), [PROBE])
    assert not inventory.unread, "the probe crashed"


ENTRIES = st.sampled_from(
    ["0", "1", "2", "9", "-1", "", " 1", "+1", "1gpu", "0-2", "x", "GPU-a", "GPU-b", "GPU-", "NoDevFiles"]
)


@settings(max_examples=400, deadline=None)
@given(entries=st.lists(ENTRIES | st.text(max_size=3), min_size=1, max_size=4))
def test_selection_agrees_with_the_gpus_that_are_visible(entries: list[str]) -> None:
    """Compare two implementations of one rule: `visible_gpus` returns the GPUs, `selection` explains the result."""
    value = ",".join(entries)
    seen, word = visible_gpus(value, UUIDS), selection(value, UUIDS).value
    if word in ("hidden", "duplicate"):
        assert seen == ()
    elif word in ("plain", "garbage") and not value.startswith("MIG-"):
        assert len(seen) >= 1
    if len(seen) == len(value.split(",")):
        assert word in ("plain", "garbage")
