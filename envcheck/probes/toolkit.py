"""Read the CUDA that is not torch's: a toolkit that compiles, the libcuda that programs load, cuda-compat.

These three are neither the CUDA that torch was built with nor the newest CUDA that the driver supports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Unknown
from envcheck.core.patterns import pattern
from envcheck.host.files import read_start
from envcheck.host.machine import Host
from envcheck.probes import Collect, Probe, ProbeRequest
from envcheck.probes.nvml import LOADER_FOLDERS, VERSION

YIELDS = {
    "cuda.toolkit": Key(Kind.VERSION, "CUDA toolkit with a compiler (nvcc) that builds here would use: 12.4"),
    "cuda.compat": Key(Kind.VERSION, "driver version of a cuda-compat package here, e.g. 580.65.06"),
    "cuda.compat_on_path": Key(Kind.FLAG, "the loader finds that package's libcuda before the driver's own"),
    "driver.libcuda": Key(Kind.VERSION, "driver version of the libcuda.so.1 that programs load"),
}


def begin(host: Host, _request: ProbeRequest) -> Collect:
    """Return the function that reads all facts; there is nothing slow to start."""
    return lambda: Inventory({fact.key: fact for fact in _facts(host)})


PROBE = Probe("toolkit", YIELDS, begin)


def _facts(host: Host) -> Iterator[Fact]:
    yield _toolkit(host)
    compat, loaded = _compat(host), _libcudas(host)
    yield compat
    yield _compat_on_path(host, compat, loaded)
    yield _libcuda({version: file for version, file in loaded.items() if version != compat.value})


# --- the toolkit --------------------------------------------------------------------------------------

_DEFAULT = "/usr/local/cuda"


def _toolkit(host: Host) -> Fact:
    """Return `cuda.toolkit`, found as by torch.utils.cpp_extension: CUDA_HOME, nvcc on PATH, the default."""
    for folder in _homes(host):
        if host.exists(f"{folder}/bin/nvcc"):
            return _version(host, folder)
    return Fact("cuda.toolkit", Absent(), "no nvcc by CUDA_HOME, on PATH or in /usr/local/cuda")


def _homes(host: Host) -> Iterator[str]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if named := host.environ.get(name):
            yield named.rstrip("/") if named.startswith("/") else "/nowhere"
            return  # torch does not look elsewhere either
    path = host.environ.get("PATH") or "/usr/local/bin:/usr/bin"
    for folder in path.split(":"):
        if folder.startswith("/") and host.exists(f"{folder}/nvcc"):
            yield host.follow(f"{folder}/nvcc").rpartition("/")[0].rpartition("/")[0] or "/"
            return
    yield _DEFAULT


def _version(host: Host, folder: str) -> Fact:
    """Return the version in the toolkit's own files; nvcc is not run."""
    path = f"{folder}/version.json"
    text = host.read_text(path, limit=1 << 20)
    for name in ("cuda_nvcc", "cuda"):
        if found := re.search(rf'"{name}"\s*:\s*\{{[^}}]*"version"\s*:\s*"(\d+\.\d+)', text or ""):
            return Fact("cuda.toolkit", Known(found[1]), path)
    path = f"{folder}/version.txt"
    if found := re.search(r"CUDA Version (\d+\.\d+)", host.read_text(path, limit=1 << 16) or ""):
        return Fact("cuda.toolkit", Known(found[1]), path)
    targets = [f"{folder}/targets/{name}/include" for name in host.listdir(f"{folder}/targets")]
    for path in (f"{include}/cuda.h" for include in (f"{folder}/include", *targets)):
        try:
            head = read_start(host.path(path), 1 << 16).decode("utf-8", "replace")
        except InputError:
            continue
        if found := re.search(r"#define\s+CUDA_VERSION\s+(\d{4,6})\b", head):
            number = int(found[1])
            return Fact("cuda.toolkit", Known(f"{number // 1000}.{number % 1000 // 10}"), path)
    why = "there is an nvcc, and no file beside it states its CUDA version"
    return Fact("cuda.toolkit", Unknown(why), f"{folder}/bin/nvcc")


# --- user-space drivers -------------------------------------------------------------------------------

_DRIVER = r"\d{3,4}(\.\d{1,4}){1,3}"
_COMPAT = f"{_DEFAULT}/compat"  # where NVIDIA's packages and images install it
_NGC_COMPAT = f"{_COMPAT}/lib.real"  # in NGC images; they link compat/lib to it if the driver needs it
_COMPAT_FOLDER = pattern(r"(?i)/(?:cuda[-_]?)?compat(?:[-_]?\d[^/]*)?(?=/|$)")
"""A folder of cuda-compat elsewhere: of conda (cuda-compat), EasyBuild (CUDAcompat), another toolkit."""


def _compat_folders(host: Host) -> list[str]:
    """Return the folders that may hold a cuda-compat package, those on LD_LIBRARY_PATH first."""
    named = [host.follow(folder) for folder in _library_path(host)]
    default = [host.follow(folder) for folder in (_COMPAT, _NGC_COMPAT)]
    return [folder for folder in named if _COMPAT_FOLDER.search(folder)] + default


def _compat(host: Host) -> Fact:
    """Return `cuda.compat`, a user-space driver in an image that can replace an older one of the machine."""
    for folder in _compat_folders(host):
        files = [name for name in host.listdir(folder) if name.startswith("libcuda.so.")]
        names = [name.removeprefix("libcuda.so.") for name in files]
        if versions := [name for name in names if "." in name and re.fullmatch(VERSION, name)]:
            return Fact("cuda.compat", Known(versions[0]), folder)
    return Fact("cuda.compat", Absent(), _COMPAT)


def _compat_on_path(host: Host, compat: Fact, loaded: Mapping[str, str]) -> Fact:
    """Return whether the loader finds cuda-compat first, or its files replaced the driver's own."""
    key = "cuda.compat_on_path"
    if not isinstance(compat.reading, Known):
        return Fact(key, Absent(), _COMPAT)
    if file := loaded.get(str(compat.value)):  # older NVIDIA container toolkits replace the files
        return Fact(key, Known(True), file)
    folder = compat.source
    if folder in map(host.follow, _library_path(host)):
        return Fact(key, Known(True), "LD_LIBRARY_PATH")
    configured = "/etc/ld.so.conf.d"
    for name in host.listdir(configured):
        lines = (host.read_text(f"{configured}/{name}", limit=1 << 16) or "").splitlines()
        if any(line.startswith("/") and host.follow(line.strip()) == folder for line in lines):
            return Fact(key, Known(True), f"{configured}/{name}")
    return Fact(key, Known(False), f"neither LD_LIBRARY_PATH nor {configured}")


def _library_path(host: Host) -> list[str]:
    folders = host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    return [folder for folder in folders if folder.startswith("/")]


def _libcudas(host: Host) -> dict[str, str]:
    """Return the files behind libcuda.so.1 that may be loaded, by the version in their names.

    The first one on LD_LIBRARY_PATH is loaded, otherwise one of the loader's own folders. The folder of a
    cuda-compat package is left out.
    """
    name, compat = "libcuda.so.1", _compat_folders(host)
    found: dict[str, str] = {}
    on_path = _library_path(host)
    for number, folder in enumerate((*on_path, *LOADER_FOLDERS)):
        if not host.exists(f"{folder}/{name}"):
            continue
        place, _, file = host.follow(f"{folder}/{name}").rpartition("/")
        if place in compat:
            continue
        version = file.removeprefix("libcuda.so.")
        if re.fullmatch(_DRIVER, version):  # that of a Jetson or of WSL is libcuda.so.1.1
            found.setdefault(version, f"{place}/{file}")
        if number < len(on_path):
            break
    return found


def _libcuda(found: Mapping[str, str]) -> Fact:
    """Return the version of libcuda; unknown if there are several, because the loader's cache decides."""
    key = "driver.libcuda"
    if len(found) > 1:
        return Fact(key, Unknown(f"there are several: {', '.join(found.values())}"), "libcuda.so.1")
    for version, file in found.items():
        return Fact(key, Known(version), file)
    return Fact(key, Absent(), "no libcuda.so.1 with a driver version on the loader's path")
