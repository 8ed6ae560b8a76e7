"""Properties that hold for any input: driver."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from envcheck.core.facts import Known, Unknown
from envcheck.core.nvidia import visible_gpus
from envcheck.probes import nvml
from tests.integration.test_driver import CARDS


@settings(max_examples=50)
@given(st.text(max_size=30))
def test_any_line_of_the_child_is_parsed_without_a_crash(text: str) -> None:
    nvml.parse(text)


@settings(max_examples=50)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists, max_leaves=6))
def test_any_answer_is_known_or_unknown(value: object) -> None:
    readers = (
        nvml.version_of,
        nvml.cuda_version,
        nvml.gpu_name,
        nvml.total_mib,
        nvml.free_mib,
        nvml.capability,
        nvml.compute_mode,
        nvml.mig_now,
        nvml.mig_pending,
    )
    for read in readers:
        assert isinstance(read(value), Known | Unknown)


@given(st.none() | st.text(alphabet="0123456789,-+ GPUMIgx\n", max_size=12))
def test_any_value_chooses_each_gpu_at_most_once(value: str | None) -> None:
    seen = visible_gpus(value, CARDS)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(range(4))
