"""Symbols that compiled modules need of torch, and the releases of torch that define them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from envcheck.atlas.gaps import GapKind
from envcheck.atlas.library_facts import LibraryFacts, defined_hashes, read_library
from envcheck.atlas.release import PublishedRelease
from envcheck.atlas.symbol_gaps import find_symbol_gaps
from envcheck.core.elf import gnu_hash
from tests.unit.atlas.releases import release
from tests.unit.probes.test_extensions import NEW_ERROR, OLD_ERROR, ZEROS, compiled

STABLE = "aoti_torch_get_data_ptr"
SET_DEVICE = "_ZN3c104cuda9SetDeviceEi"
BLAS_HANDLE = "_ZN2at4cuda26getCurrentCUDABlasHandleEv"
OPS = "sgl_kernel/common_ops.abi3.so"


class Libraries:
    """Compiles libraries and reads them as the harvest does."""

    def __init__(self, compiler: str, folder: Path) -> None:
        self._compiler, self._folder = compiler, folder

    def torch(self, version: str, defines: Sequence[str], soname: str = "libc10.so") -> PublishedRelease:
        path = self._folder / version / soname
        compiled(self._compiler, path, defines=defines, options=[f"-Wl,-soname,{soname}"])
        return replace(release("torch", version), libraries={soname: read_library(path.read_bytes())})

    def needing(self, *needs: str) -> LibraryFacts:
        path = compiled(self._compiler, self._folder / f"needs{len(needs)}.so", needs=needs)
        return read_library(path.read_bytes())


@pytest.fixture
def libraries(tmp_path: Path) -> Libraries:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    return Libraries(compiler, tmp_path)


def kernel(version: str, modules: Mapping[str, LibraryFacts]) -> PublishedRelease:
    return replace(release("sgl-kernel", version), libraries=modules)


def gaps(releases: Sequence[PublishedRelease], torch: Sequence[PublishedRelease]) -> list[tuple[str, ...]]:
    """Return needed symbol, asking releases, and releases of torch that lack it, as texts."""
    found = find_symbol_gaps(releases, torch, lambda _: "import sgl_kernel")
    assert all(gap.kind is GapKind.SYMBOL and gap.partner == "torch" for gap in found)
    assert all(set(gap.places) == {OPS} for gap in found)
    return [(gap.needs, " ".join(gap.releases), " ".join(gap.lacking)) for gap in found]


def test_every_defined_symbol_is_found_by_its_hash_and_no_other(libraries: Libraries) -> None:
    names = [f"_ZN3c104name{number}Ev" for number in range(300)]
    read = defined_hashes(libraries.torch("2.6.0", names).libraries["libc10.so"])
    assert {gnu_hash(name.encode()) | 1 for name in names} <= read
    assert gnu_hash(b"_ZN3c105otherEv") | 1 not in read


def test_a_library_of_another_package_keeps_what_it_needs_of_torch_alone(libraries: Libraries) -> None:
    read = libraries.needing(ZEROS, "puts_nothing")
    assert (read.needs, read.defines) == ((ZEROS,), "")


def test_the_releases_of_torch_that_do_not_define_a_symbol(libraries: Libraries) -> None:
    torch = [
        libraries.torch("2.5.1", [ZEROS]),
        libraries.torch("2.6.0", [ZEROS, STABLE]),
        libraries.torch("2.7.0", [STABLE]),
    ]
    old, new = libraries.needing(ZEROS), libraries.needing(ZEROS, STABLE)
    releases = [kernel("0.1.0", {OPS: old}), kernel("0.1.1", {OPS: old}), kernel("0.2.0", {OPS: new})]
    assert gaps(releases, torch) == [
        (ZEROS, "0.1.0 0.1.1 0.2.0", "2.7.0"),
        (STABLE, "0.2.0", "2.5.1"),
    ]


def test_only_what_some_release_defines_and_without_a_hole_counts(libraries: Libraries) -> None:
    torch = [
        libraries.torch("2.5.1", [STABLE]),
        libraries.torch("2.6.0", []),
        libraries.torch("2.7.0", [STABLE]),
    ]
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(STABLE)})], torch) == []
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(ZEROS)})], torch) == []


def test_of_libtorch_cuda_nothing_is_said(libraries: Libraries) -> None:
    torch = [libraries.torch("2.5.1", [BLAS_HANDLE, SET_DEVICE]), libraries.torch("2.6.0", [])]
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(BLAS_HANDLE)})], torch) == []
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(SET_DEVICE)})], torch) == [
        (SET_DEVICE, "0.1.0", "2.6.0")
    ]


def test_what_the_wheels_before_two_seven_lack_in_the_new_abi_a_vendor_may_have(libraries: Libraries) -> None:
    torch = [
        libraries.torch("2.6.0", [OLD_ERROR]),
        libraries.torch("2.7.0", [NEW_ERROR]),
        libraries.torch("2.8.0", []),
    ]
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(NEW_ERROR)})], torch) == [
        (NEW_ERROR, "0.1.0", "2.8.0")
    ]
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(OLD_ERROR)})], torch) == [
        (OLD_ERROR, "0.1.0", "2.7.0 2.8.0")
    ]


def test_one_module_that_loads_is_enough(libraries: Libraries) -> None:
    torch = [libraries.torch("2.5.1", [ZEROS]), libraries.torch("2.6.0", [STABLE])]
    zeros, stable = libraries.needing(ZEROS), libraries.needing(ZEROS, STABLE)
    both = kernel("0.1.0", {OPS: stable, "sgl_kernel/z.so": zeros})
    assert gaps([both], torch) == [(ZEROS, "0.1.0", "2.6.0")]
    assert gaps([kernel("0.1.0", {OPS: zeros, "sgl_kernel/z.so": LibraryFacts()})], torch) == []


def test_releases_of_torch_whose_libraries_were_not_read_are_in_no_row(libraries: Libraries) -> None:
    torch = [libraries.torch("2.5.1", [ZEROS]), release("torch", "2.6.0"), libraries.torch("2.7.0", [STABLE])]
    assert gaps([kernel("0.1.0", {OPS: libraries.needing(ZEROS)})], torch) == [(ZEROS, "0.1.0", "2.7.0")]
