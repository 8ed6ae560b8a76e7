"""Properties that hold for any input: python env."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envcheck.core.facts import Vocabulary
from envcheck.probes.python_env import PROBE
from tests.support.environments import put, read, site_of

SOUP = st.lists(
    st.sampled_from(
        [
            b"Name: torch",
            b"Version: 2",
            b"Requires-Dist: x; extra == 'a'",
            b"\n",
            b"\r\n",
            b"\n\n",
            b":",
            b" \t",
        ]
    )
    | st.binary(max_size=30),
    max_size=12,
).map(b"".join)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata=SOUP, record=SOUP, build=SOUP)
def test_arbitrary_bytes_never_raise(env: Path, metadata: bytes, record: bytes, build: bytes) -> None:
    site = site_of(env)
    for version in ("2.6.0", "2.5.0"):
        put(site, f"torch-{version}.dist-info/METADATA", metadata)
        put(site, f"torch-{version}.dist-info/RECORD", record)
    put(site, "deepspeed-0.1.dist-info/METADATA", metadata)
    put(site, "deepspeed-0.1.dist-info/direct_url.json", record)
    put(site, "a.pth", record)
    put(site, "old.egg-info/PKG-INFO", metadata)
    put(site, "old.egg-info/requires.txt", record)
    put(site, "torch/version.py", build)
    put(site, "deepspeed/git_version_info_installed.py", b"torch_info=" + build)
    put(env, "conda-meta/pytorch-1-2.json", record)
    inventory = read(env)
    assert "pkg" in inventory.complete, inventory.unread
    assert all(Vocabulary(PROBE.yields).get(key) for key in inventory.facts)
