"""What is read of shared libraries: GPU code by bytes, the glibc they import, and records of builds."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess  # noqa: TID251 - a compiler makes the library that is read
from dataclasses import replace
from pathlib import Path

import pytest

from envcheck.atlas.binaries import build_facts
from envcheck.atlas.library_facts import (
    LibraryFacts,
    read_library,
    recorded_architectures,
    served_architectures,
)
from tests.unit.atlas.releases import release

LINUX = "cp38-abi3-manylinux1_x86_64"


def image(kind: int, number: int, size: int) -> bytes:
    """Return the machine code (2) or PTX (1) of one architecture, as nvcc writes it."""
    head = struct.pack("<HHIQ", kind, 0x101, 64, size).ljust(28, b"\0") + struct.pack("<I", number)
    return head.ljust(64, b"\0") + bytes(size)


def container(*images: bytes) -> bytes:
    body = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(code: bytes) -> bytes:
    """Return a 64-bit ELF file whose section .nv_fatbin is the code."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    at = 64 + len(code)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(code), 0, 0, 8, 0)
    sections += struct.pack("<IIQQQQIIQQ", 12, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    table = at + len(names)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHI", 3, 62, 1)
    head += struct.pack("<QQQ", 0, 0, table) + struct.pack("<IHHHHHH", 0, 64, 56, 0, 64, 3, 2)
    return head + code + names + sections


def test_code_is_counted_by_architecture_over_all_containers() -> None:
    code = container(image(2, 80, 800), image(2, 90, 400)) + container(image(2, 80, 800), image(1, 90, 100))
    assert read_library(library(code)).gpu == {"sm_80": 1728, "sm_90": 464, "compute_90": 164}


def test_a_stub_serves_nobody() -> None:
    code = container(image(2, 80, 500_000), image(2, 52, 24), image(1, 90, 100_000))
    facts = read_library(library(code))
    assert facts.gpu is not None
    assert "sm_52" in facts.gpu
    assert served_architectures({"vllm/_C.abi3.so": facts}) == ("sm_80", "compute_90")


def test_several_libraries_serve_together_and_one_that_cannot_be_read_leaves_all_open() -> None:
    one, other = LibraryFacts(gpu={"sm_80": 10}), LibraryFacts(gpu={"sm_100a": 10, "sm_90": 10})
    assert served_architectures({"a": one, "b": other}) == ("sm_80", "sm_90", "sm_100a")
    assert served_architectures({"a": one, "b": LibraryFacts(gpu=None)}) == ()


@pytest.mark.parametrize("data", [b"", b"no library", library(b"no container at all, but long enough")])
def test_what_is_no_library_or_malformed_has_no_verdict(data: bytes) -> None:
    assert served_architectures({"a": read_library(data)}) == ()


def test_the_newest_glibc_that_a_library_imports(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, target = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text('#include <stdio.h>\nvoid say(void) { printf("%d", 1); }\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(source)], check=True, timeout=60)
    version = read_library(target.read_bytes()).glibc
    assert version.startswith("2.")


def test_a_symbol_that_is_no_text_is_left_out(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, target = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text(
        "void _ZN3c104goodEv(void);\nvoid _ZN3c105wrongEv(void);\n"
        "void both(void) { _ZN3c104goodEv(); _ZN3c105wrongEv(); }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(source)], check=True, timeout=60)
    data = target.read_bytes()
    assert read_library(data).needs == ("_ZN3c104goodEv", "_ZN3c105wrongEv")
    assert read_library(data.replace(b"5wrong", b"5wr\xffng")).needs == ("_ZN3c104goodEv",)


def test_the_facts_of_libraries_become_build_facts() -> None:
    vllm = release("vllm", "0.11.0", ("torch==2.8.0",), {"vllm/_C.abi3.so": b""}, tag=LINUX)
    read = LibraryFacts(glibc="2.17", gpu={"sm_80": 100, "sm_52": 0})
    facts = build_facts(replace(vllm, libraries={"vllm/_C.abi3.so": read}))
    assert facts["gpu"] == ("sm_80",)
    assert facts["needs-glibc"] == ("2.17",)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ("7.5 8.0+PTX 8.0 9.0a", ("sm_75", "sm_80", "sm_90a", "compute_80")),
        ("7.0;7.5;12.0f", ("sm_70", "sm_75", "sm_120f")),
        ("Ampere 8.0", ()),
        ("", ()),
    ],
)
def test_a_recorded_list_of_architectures(record: str, found: tuple[str, ...]) -> None:
    assert recorded_architectures(record) == found


def test_xformers_records_its_architectures() -> None:
    record = {
        "version": {"cuda": 1208, "torch": "2.8.0"},
        "env": {"TORCH_CUDA_ARCH_LIST": "7.5 8.0+PTX 9.0a"},
    }
    files = {"xformers/cpp_lib.json": json.dumps(record).encode(), "xformers/_C.so": b""}
    facts = build_facts(release("xformers", "0.0.32", ("torch==2.8.0",), files, tag=LINUX))
    assert facts["gpu"] == ("sm_75 sm_80 sm_90a compute_80",)
