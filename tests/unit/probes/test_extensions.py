"""ELF files read without loading them, compared with the results of the loader and of Python's import."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess  # noqa: TID251 - compiles small libraries, and imports them for the truth
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from envcheck.commands import judging, loading
from envcheck.core import elf
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, Value
from envcheck.core.findings import Verdict
from envcheck.host.files import open_ranges
from envcheck.host.machine import Host
from envcheck.probes import ProbeRequest, _extensions, survey
from envcheck.probes.python_env import PROBE
from envcheck.rules import derive
from envcheck.rules.changes import apply_changes

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

# Mangled names as C identifiers, as g++ writes c10::Error::Error(…), at::_ops::zeros::call(…), ….
OLD_ERROR = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
NEW_ERROR = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
ZEROS = "_ZN2at4_ops5zeros4callEv"
THPVARIABLE = "_Z16THPVariable_WrapN2at10TensorBaseE"
TORCH = {
    "libc10.so": [NEW_ERROR],
    "libtorch_cpu.so": [ZEROS, "aoti_torch_get_data_ptr"],
    "libtorch_python.so": [THPVARIABLE],
    "libtorch.so": [],
}


def compiled(
    compiler: str,
    target: Path,
    *,
    defines: Sequence[str] = (),
    needs: Sequence[str] = (),
    weak: Sequence[str] = (),
    libraries: Sequence[Path] = (),
    section: bytes = b"",
    options: Sequence[str] = (),
    module: str = "",
) -> Path:
    """Compile a shared library; with `module` one that Python can import, and that calls none of its needs."""
    lines = [f"void {name}(void) {{}}" for name in defines]
    lines += [f"extern void {name}(void);" for name in needs]
    lines += [f"extern void {name}(void) __attribute__((weak));" for name in weak]
    calls = "".join(f"{name}();" for name in needs) + "".join(f"if ({name}) {name}();" for name in weak)
    lines.append(f"void used_by_{target.name.partition('.')[0]}(void) {{ {calls} }}")
    if section:
        data = ",".join(map(str, section))
        lines.append(
            f'__attribute__((section(".nv_fatbin"), used, aligned(8))) const unsigned char code[] = {{{data}}};'
        )
    if module:
        lines += [
            "static struct { long head[5]; const char *name, *doc; long size; void *more[5]; } module =",
            f'{{ {{1}}, "{module}", 0, -1, {{0}} }};',
            "extern void *PyModule_Create2(void *, int);",
            f"void *PyInit_{module}(void) {{ return PyModule_Create2(&module, 1013); }}",
        ]
    target.parent.mkdir(parents=True, exist_ok=True)
    source = target.with_name(f"{target.name}.c")
    source.write_text("\n".join(lines) + "\n")
    link = [part for each in libraries for part in (f"-L{each.parent}", f"-l:{each.name}")]
    command = [compiler, "-shared", "-fPIC", "-Wl,-z,now", *options, "-o", str(target), str(source), *link]
    subprocess.run(command, check=True, timeout=60)
    source.unlink()
    return target


def fatbin(*kinds: tuple[int, int, int], gap: int = 0) -> bytes:
    """Return a container as nvcc writes it, of (kind, architecture, flags), followed by `gap` zero bytes."""
    images = b""
    for kind, number, flags in kinds:
        head = 112 if number >= 100 else 64  # extended since Blackwell
        image = struct.pack("<HHIQ", kind, 0x101, head, 24).ljust(28, b"\0") + struct.pack("<I", number)
        images += (image.ljust(40, b"\0") + struct.pack("<Q", flags)).ljust(head, b"\0") + bytes(range(24))
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(images)) + images + bytes(gap)


def torch_of(compiler: str, site: Path, symbols: Mapping[str, Sequence[str]] = TORCH) -> Path:
    """Install a torch: its record, and libraries that define these symbols."""
    record(site, "torch", "2.6.0")
    for name, defined in symbols.items():
        soname = [f"-Wl,-soname,{name}"]
        compiled(compiler, site / "torch/lib" / name, defines=defined, options=soname)
    return site / "torch/lib"


def record(
    site: Path, name: str, version: str, files: Sequence[str] = (), requires: str = "torch>=2"
) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = f"Requires-Dist: {requires}\n" if name != "torch" else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n")
    (info / "RECORD").write_text("".join(f"{path},sha256=x,1\n" for path in files))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / f"env/lib/python3.{sys.version_info[1]}/site-packages"
    folder.mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_text(f"version = 3.{sys.version_info[1]}.0\n")
    return folder


def read(site: Path, host: Host | None = None) -> Inventory:
    return survey(host or Host(), ProbeRequest(site.parents[2], static=True), [PROBE])


def linked(lib: Path, *names: str) -> list[Path]:
    return [lib / name for name in names]


def imported(site: Path, module: str) -> str:
    """Import a module after torch's libraries and return the error, empty if there is none."""
    load = "import ctypes, glob, sys\n"
    load += "for name in ('libc10', 'libtorch_cpu', 'libtorch_python', 'libtorch'):\n"
    load += f"    for path in glob.glob({str(site)!r} + '/torch/lib/' + name + '.so'): ctypes.CDLL(path)\n"
    load += f"sys.path.insert(0, {str(site)!r})\n"
    code = f"{load}try: import {module}\nexcept ImportError as e: print(e)\n"
    return subprocess.run(
        [sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


# --- an extension beside its torch, and beside another ------------------------------------------------


def flash(compiler: str, site: Path, lib: Path, needs: Sequence[str]) -> None:
    path = f"flash_attn_2_cuda{SUFFIX}"
    libraries = linked(lib, "libc10.so", "libtorch_cpu.so", "libtorch_python.so")
    # Compiled against another torch: the linker must not require every symbol.
    options = ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed"]
    compiled(
        compiler, site / path, needs=needs, libraries=libraries, options=options, module="flash_attn_2_cuda"
    )
    record(site, "flash-attn", "2.7.4", [path])


def test_extension_of_this_torch_lacks_nothing_and_is_imported(compiler: str, site: Path) -> None:
    flash(compiler, site, torch_of(compiler, site), [NEW_ERROR, ZEROS, "aoti_torch_get_data_ptr"])
    assert imported(site, "flash_attn_2_cuda") == ""
    assert read(site).known("pkg.flash-attn.unresolved") is None
    assert read(site).known("pkg.flash-attn.resolved") is True


@pytest.mark.parametrize("symbol", [OLD_ERROR, "_ZNK2at10TensorBase4nameEv", "aoti_torch_of_tomorrow"])
def test_extension_of_another_torch_lacks_the_symbol_that_the_loader_misses(
    compiler: str, site: Path, symbol: str
) -> None:
    flash(compiler, site, torch_of(compiler, site), [ZEROS, symbol])
    assert imported(site, "flash_attn_2_cuda").endswith(f"undefined symbol: {symbol}")
    fact = read(site).fact("pkg.flash-attn.unresolved")
    assert fact.value == (elf.demangle(symbol),)
    assert fact.source.endswith(f"site-packages/flash_attn_2_cuda{SUFFIX}")
    assert read(site).known("pkg.flash-attn.resolved") is None


@pytest.mark.parametrize(
    ("symbol", "told"),
    [(OLD_ERROR, {"extension-of-another-torch", "atlas:sgl-kernel:torch"}), (NEW_ERROR, set())],
)
def test_kernels_are_judged_by_their_own_files_whatever_the_wheels_of_the_index_need(
    compiler: str, site: Path, symbol: str, told: set[str]
) -> None:
    lib = torch_of(compiler, site, {**TORCH, "libc10.so": [NEW_ERROR]})
    (site / "torch-2.6.0.dist-info").rename(site / "torch-2.10.0.dist-info")
    metadata = site / "torch-2.10.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("2.6.0", "2.10.0"))
    path = "sgl_kernel/common_ops.abi3.so"
    options = ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed"]
    compiled(compiler, site / path, needs=[symbol], libraries=linked(lib, "libc10.so"), options=options)
    record(site, "sgl-kernel", "0.3.21", [path], requires="numpy; extra == 'test'")

    known = loading.knowledge()
    settled = derive.derive(read(site), known)
    findings = judging.judge_inventory(settled, known, None).findings
    assert {each.rule.id for each in findings if each.verdict is Verdict.BROKEN} == told


def test_cuda_extension_beside_a_torch_without_cuda(compiler: str, site: Path, tmp_path: Path) -> None:
    lib = torch_of(compiler, site)
    cuda = compiled(compiler, tmp_path / "libtorch_cuda.so", options=["-Wl,-soname,libtorch_cuda.so"])
    path = f"vision_C{SUFFIX}"
    libraries = [*linked(lib, "libc10.so"), cuda]
    compiled(compiler, site / path, libraries=libraries, module="vision_C", options=["-Wl,--no-as-needed"])
    record(site, "torchvision", "0.21.0", [path])
    assert "libtorch_cuda.so: cannot open shared object file" in imported(site, "vision_C")
    assert read(site).known("pkg.torchvision.unresolved") == ("libtorch_cuda.so",)


def test_symbols_that_the_package_itself_defines_are_not_missing(compiler: str, site: Path) -> None:
    lib = torch_of(compiler, site)
    own = site / "torchaudio/lib/libtorchaudio.so"
    helper = "_ZN5torch5audio4loadEv"
    soname = ["-Wl,-soname,libtorchaudio.so"]
    compiled(compiler, own, defines=[helper], libraries=linked(lib, "libc10.so"), options=soname)
    path = f"torchaudio/lib/_torchaudio{SUFFIX}"
    compiled(compiler, site / path, needs=[helper, NEW_ERROR], libraries=[own, *linked(lib, "libc10.so")])
    record(site, "torchaudio", "2.6.0", ["torchaudio/lib/libtorchaudio.so", path])
    assert read(site).known("pkg.torchaudio.unresolved") is None


def test_weak_symbols_and_those_of_others_may_stay_undefined(compiler: str, site: Path) -> None:
    lib = torch_of(compiler, site)
    path = f"_C{SUFFIX}"
    compiled(
        compiler,
        site / path,
        needs=["PyObject_IsTrue", "ncclCommInitAll", ZEROS],
        weak=["_ZN3c104onlyEv"],
        libraries=linked(lib, "libtorch_cpu.so"),
        module="_C",
    )
    record(site, "xformers", "0.0.29", [path])
    assert read(site).known("pkg.xformers.unresolved") is None


def test_symbol_that_another_library_may_define_is_not_reported(
    compiler: str, site: Path, tmp_path: Path
) -> None:
    lib = torch_of(compiler, site)
    other = compiled(
        compiler, tmp_path / "libvendor.so", defines=[OLD_ERROR], options=["-Wl,-soname,libvendor.so"]
    )
    path = f"_C{SUFFIX}"
    compiled(
        compiler, site / path, needs=[OLD_ERROR, ZEROS], libraries=[*linked(lib, "libtorch_cpu.so"), other]
    )
    record(site, "vendor-ops", "1.0", [path])
    assert read(site).known("pkg.vendor-ops.unresolved") is None


@pytest.mark.parametrize("gone", ["libc10.so", "libtorch_cpu.so", "libtorch_python.so"])
def test_torch_with_libraries_elsewhere_reports_no_missing_symbols(
    compiler: str, site: Path, gone: str
) -> None:
    lib = torch_of(compiler, site)
    flash(compiler, site, lib, [OLD_ERROR])
    (lib / gone).unlink()
    assert read(site).known("pkg.flash-attn.unresolved") is None


def test_torch_without_a_hash_table_reports_no_missing_symbols(compiler: str, site: Path) -> None:
    lib = torch_of(compiler, site)
    flash(compiler, site, lib, [OLD_ERROR])
    options = ["-Wl,--hash-style=sysv", "-Wl,-soname,libc10.so"]
    compiled(compiler, lib / "libc10.so", defines=[OLD_ERROR], options=options)
    assert read(site).known("pkg.flash-attn.unresolved") is None


def test_cuda_runtime_of_another_major_is_looked_for_where_the_loader_looks(
    compiler: str, site: Path, tmp_path: Path
) -> None:
    lib = torch_of(compiler, site)
    runtimes = {}
    for name in ("libcudart.so.12", "libcudart.so.11.0"):
        runtimes[name] = compiled(compiler, tmp_path / name, options=[f"-Wl,-soname,{name}"])
    options = ["-Wl,--no-as-needed", "-Wl,-soname,libc10_cuda.so"]
    compiled(compiler, lib / "libc10_cuda.so", libraries=[runtimes["libcudart.so.12"]], options=options)
    for major, runtime in (("12", "libcudart.so.12"), ("11", "libcudart.so.11.0")):
        path = f"ops{major}{SUFFIX}"
        libraries = [*linked(lib, "libc10.so"), runtimes[runtime]]
        compiled(compiler, site / path, libraries=libraries, options=["-Wl,--no-as-needed"])
        record(site, f"ops{major}", "1.0", [path])
    inventory = read(site)
    assert inventory.known("pkg.ops12.unresolved") is None
    assert inventory.known("pkg.ops11.unresolved") == ("libcudart.so.11.0",)
    shutil.copy(runtimes["libcudart.so.11.0"], lib.parent.parent / "nvidia-is-elsewhere")
    somewhere = Host(environ={**Host().environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert read(site, somewhere).known("pkg.ops11.unresolved") is None


def test_packages_without_modules_for_torch_are_not_judged(compiler: str, site: Path) -> None:
    torch_of(compiler, site)
    compiled(compiler, site / "bitsandbytes/libbitsandbytes_cuda118.so", needs=["cublasCreate_v2"])
    record(site, "bitsandbytes", "0.49.0", ["bitsandbytes/libbitsandbytes_cuda118.so"])
    assert not [key for key in read(site).facts if key.startswith("pkg.bitsandbytes.un")]


def test_running_out_of_time_is_reported(compiler: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flash(compiler, site, torch_of(compiler, site), [OLD_ERROR])
    monkeypatch.setattr(_extensions, "SECONDS", -1)
    reading = read(site).fact("pkg.flash-attn.unresolved").reading
    assert isinstance(reading, Unknown)
    assert "not completely read within" in reading.why


# --- code for GPUs ------------------------------------------------------------------------------------


def test_architectures_of_an_extension(compiler: str, site: Path) -> None:
    lib = torch_of(compiler, site)
    section = fatbin((2, 80, 0x11), (2, 90, 0x100011), (1, 90, 0x8011), gap=8)
    section += fatbin((2, 100, 0x1200011), (16, 120, 0x11), (64, 75, 0))
    path = f"_C{SUFFIX}"
    compiled(compiler, site / path, libraries=linked(lib, "libc10.so"), needs=[NEW_ERROR], section=section)
    record(site, "xformers", "0.0.32", [path])
    found = read(site).known("pkg.xformers.architectures")
    assert found == ("compute_90", "sm_100f", "sm_120", "sm_80", "sm_90a")


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.4.0a0+07cecf4168.nv24.05", True), ("2.6.0a0+git1234567", True), ("2.6.0+cu124", False)],
)
def test_architectures_of_an_unpublished_torch(
    compiler: str, site: Path, version: str, *, told: bool
) -> None:
    # Several source files for all architectures, then a kernel for a single one.
    section = fatbin((2, 80, 0x11), (2, 90, 0x11), (1, 90, 0x8011)) * 8 + fatbin((2, 100, 0x100011))
    torch_of(compiler, site)
    (site / "torch-2.6.0.dist-info/METADATA").write_text(f"Name: torch\nVersion: {version}\n\n")
    compiled(compiler, site / "torch/lib/libtorch_cuda.so", section=section)
    fact = read(site).fact("build.torch.architectures")
    assert fact.value == (("compute_90", "sm_80", "sm_90") if told else None)


def test_torch_with_ptx_runs_on_a_newer_gpu() -> None:
    facts = {
        "pkg.torch": Fact("pkg.torch", Known("2.4.0a0+07cecf4168.nv24.05")),
        "build.torch.architectures": Fact(
            "build.torch.architectures", Known(("sm_80", "sm_90", "compute_90"))
        ),
    }
    capabilities = ("12.0", "7.5", "8.6")
    devices = tuple(
        {"gpu.compute_capability": Fact("gpu.compute_capability", Known(each))} for each in capabilities
    )
    derived = derive.derive(Inventory(facts, devices), loading.knowledge())
    assert [derived.known("gpu.in_torch_build", number) for number in range(3)] == [True, False, True]


def test_packages_without_code_for_a_gpu() -> None:
    built = {
        "flash-attn": ("sm_80", "sm_90"),
        "xformers": ("sm_75", "compute_80"),
        "old": ("sm_60", "compute_60"),
    }
    facts = {
        f"pkg.{name}.architectures": Fact(f"pkg.{name}.architectures", Known(value))
        for name, value in built.items()
    }
    devices = tuple(
        {"gpu.compute_capability": Fact("gpu.compute_capability", Known(each))}
        for each in ("7.0", "12.0", "8.9")
    )
    derived = derive.derive(Inventory(facts, devices, frozenset({"pkg"})), loading.knowledge())
    found = [derived.fact("gpu.packages_without_code", number).reading for number in range(3)]
    assert found == [
        Known(("flash-attn (sm_80, sm_90)", "xformers (sm_75, compute_80)")),
        Known(("flash-attn (sm_80, sm_90)",)),
        Absent(),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("pkg.flash-attn.unresolved", ("_ZN3c104cuda9SetDeviceEi",)), ("pkg.flash-attn.resolved", True)],
)
def test_facts_read_beside_one_torch_do_not_apply_to_another(key: str, value: Value) -> None:
    facts = {"pkg.torch": Fact("pkg.torch", Known("2.6.0")), key: Fact(key, Known(value))}
    read_ = Inventory(facts, complete=frozenset({"pkg"}))
    known = loading.knowledge()
    moved = apply_changes(read_, [("pkg.torch", "2.8.0")], known).fact(key).reading
    assert isinstance(moved, Unknown)
    assert not moved.asked
    assert apply_changes(read_, [("pkg.peft", "0.15.0")], known).known(key) is not None


@pytest.mark.parametrize(
    "section",
    [b"no container at all", fatbin((2, 80, 0))[:-8], struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0)],
    ids=["other", "cut", "no head"],
)
def test_images_that_cannot_be_followed_are_not_guessed(
    compiler: str, tmp_path: Path, section: bytes
) -> None:
    path = compiled(compiler, tmp_path / "x.so", section=section.ljust(32, b"\1"))
    with open_ranges(path) as reads:
        assert elf.gpu_architectures(reads) is None


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN3c104cuda9SetDeviceEab", "c10::cuda::SetDevice"),
        (NEW_ERROR, "c10::Error::Error"),
        (
            "_ZNK5torch8autograd13SavedVariable6unpackESt10shared_ptrINS0_4NodeEE",
            "torch::autograd::SavedVariable::unpack",
        ),
        ("_ZN3c1010TensorImplD2Ev", "c10::TensorImpl::~TensorImpl"),
        ("_ZTIN3c105ErrorE", "c10::Error"),
        ("_ZN3c1015SmallVectorBaseIjE8grow_podEPKvmm", "c10::SmallVectorBase"),
        ("aoti_torch_abi_version", "aoti_torch_abi_version"),
        ("_ZN9999x", "_ZN9999x"),
        ("_Z16THPVariable_WrapN2at10TensorBaseE", "_Z16THPVariable_WrapN2at10TensorBaseE"),
    ],
)
def test_symbols_are_spelled_as_their_source_has_them(symbol: str, name: str) -> None:
    assert elf.demangle(symbol) == name


@pytest.mark.parametrize(
    ("symbol", "described"),
    [
        ("_ZN3c105ErrorC2ENS_14SourceLocationESs", "c10::Error::Error (old C++ ABI)"),
        (
            "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "c10::Error::Error (new C++ ABI)",
        ),
        ("_ZNK3c106IValue11toStringRefB5cxx11Ev", "c10::IValue::toStringRef (new C++ ABI)"),
        ("_ZN3c106IValueC2ESs", "c10::IValue::IValue (old C++ ABI)"),
        ("_ZN3c104cuda9SetDeviceEi", "c10::cuda::SetDevice"),
        ("_ZN3c108ClassSsxEi", "c10::ClassSsx"),
        ("_ZTSs", "_ZTSs"),
        ("torch_Ss__cxx11", "torch_Ss__cxx11"),
    ],
)
def test_the_cxx_abi_of_a_symbol_is_named_where_its_name_shows_it(symbol: str, described: str) -> None:
    assert elf.describe_symbol(symbol) == described


# --- broken files -------------------------------------------------------------------------------------


def test_libraries_are_read_as_by_readelf(compiler: str, tmp_path: Path) -> None:
    other = compiled(
        compiler, tmp_path / "libother.so", defines=["here"], options=["-Wl,-soname,libother.so.1"]
    )
    (tmp_path / "libother.so.1").symlink_to("libother.so")
    options = ["-Wl,-soname,libit.so.3", "-Wl,-rpath,$ORIGIN/../lib:/opt/x"]
    path = compiled(
        compiler, tmp_path / "it.so", defines=["f", "g"], needs=["here"], libraries=[other], options=options
    )
    with open_ranges(path) as reads:
        library = elf.read_library(reads)
        assert library is not None
        assert (library.soname, library.search) == ("libit.so.3", ("$ORIGIN/../lib", "/opt/x"))
        assert library.needed[0] == "libother.so.1"
        exports = elf.Exports(reads, library)
        told = {name: exports.define(name, elf.gnu_hash(name)) for name in (b"f", b"g", b"here", b"nowhere")}
        assert told == {b"f": True, b"g": True, b"here": False, b"nowhere": False}
        assert b"here" in (elf.undefined_symbols(reads, library) or ())


def test_odd_files_in_a_record_do_not_crash(compiler: str, site: Path) -> None:
    torch_of(compiler, site)
    os.mkfifo(site / "fifo.so")
    (site / "folder.so").mkdir()
    (site / "loop.so").symlink_to("loop.so")
    (site / "empty.so").touch()
    (site / "zero.so").symlink_to("/dev/zero")
    names = ["fifo.so", "folder.so", "loop.so", "empty.so", "zero.so", "gone.so", "../../out.so", "nul\0.so"]
    record(site, "odd", "1.0", names)
    assert read(site).known("pkg.odd") == "1.0"
    assert read(site).known("pkg.odd.unresolved") is None
