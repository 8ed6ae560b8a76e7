"""`tools/refresh_symbols.py` reads which symbols each release of torch defines, from its wheels."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.command.test_tools import added, tool
from tests.support.local_index import LocalIndex, serving, wheel
from tests.unit.probes.test_extensions import NEW_ERROR, OLD_ERROR, ZEROS, compiled

NATIVE = "_ZN2at6native3addEv"
LIBRARIES = ("libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_python.so")


def torch(
    folder: Path, version: str, defines: Sequence[str], names: Sequence[str] = LIBRARIES
) -> dict[str, bytes]:
    """Return a wheel of torch; its libtorch_cpu defines the symbols, the others one that all releases have."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    files = {}
    for name in names:
        symbols = defines if name == "libtorch_cpu.so" else ["_ZN3c106alwaysEv"]
        files[f"torch/lib/{name}"] = compiled(compiler, folder / version / name, defines=symbols).read_bytes()
    return dict([wheel("torch", version, tag="cp311-cp311-manylinux1_x86_64", more=files)])


def test_symbols_that_differ_between_releases_are_written_and_proposed_as_a_diff(tmp_path: Path) -> None:
    files = torch(tmp_path, "2.6.0", [OLD_ERROR, ZEROS, NATIVE])
    files |= torch(tmp_path, "2.7.0", [NEW_ERROR, ZEROS])
    table = tmp_path / "torch.txt"
    with serving(LocalIndex(files, ranges=True)) as index:
        proposed = tool("refresh_symbols.py", "--table", str(table), PIP_INDEX_URL=index.url)
        assert not table.exists()
        written = tool("refresh_symbols.py", "--table", str(table), "--write", PIP_INDEX_URL=index.url)
    assert (proposed.code, written.code, written.err) == (1, 0, "")
    assert added(proposed.out)[2:] == ["# read: 2.6.0 to 2.7.0", "2.6.0", OLD_ERROR, "2.7.0..", NEW_ERROR]
    assert table.read_text().splitlines()[3:] == ["2.6.0", OLD_ERROR, "2.7.0..", NEW_ERROR]


def test_a_release_without_one_of_the_libraries_is_one_line(tmp_path: Path) -> None:
    files = torch(tmp_path, "2.6.0", [ZEROS], names=LIBRARIES[:3])
    with serving(LocalIndex(files, ranges=True)) as index:
        ran = tool("refresh_symbols.py", "--table", str(tmp_path / "torch.txt"), PIP_INDEX_URL=index.url)
    assert ran.code == 3
    assert ran.err.startswith("torch 2.6.0: expected torch/lib/libc10.so, ")
    assert "Traceback" not in ran.err
