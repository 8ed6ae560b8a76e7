"""Properties that hold for any input: extensions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envcheck.core import elf
from tests.unit.probes.test_extensions import compiled, fatbin


@pytest.fixture(scope="module")
def whole(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("elf")
    section = fatbin((2, 80, 0), (1, 90, 0))
    return compiled(compiler, folder / "it.so", defines=["f"], needs=["puts"], section=section).read_bytes()


def everything(data: bytes) -> Iterator[object]:
    def reads(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    yield elf.gpu_architectures(reads)
    library = elf.read_library(reads)
    if library is not None:
        yield elf.undefined_symbols(reads, library)
        yield elf.Exports(reads, library).define(b"f", elf.gnu_hash(b"f"))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 15), st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8)),
        max_size=6,
    ),
    end=st.integers(0, 1 << 15),
)
def test_broken_files_are_read_as_far_as_they_go(
    whole: bytes, changes: list[tuple[int, bytes]], end: int
) -> None:
    data = bytearray(whole)
    for at, new in changes:
        data[at % len(data) : at % len(data) + len(new)] = new
    for part in (bytes(data), bytes(data[:end])):
        assert len(list(everything(part))) in (1, 3)


@given(data=st.binary(max_size=300))
def test_other_files_are_not_libraries(data: bytes) -> None:
    assert list(everything(data)) in ([None], [()])
    assert list(everything(b"\x7fELF\x02\x01" + data))
