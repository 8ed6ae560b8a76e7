"""What compiled packages need of the installed torch, read from their files: nothing is loaded.

An extension binds to the C++ symbols of one torch. Beside another its import ends in `undefined symbol:
_ZN3c10…`, or in a library that is not there; which one, its dynamic symbols and torch's tell beforehand.
Only symbols of torch's own namespaces count, only strong ones, and only where every library that could
have them was read: where that is not so, nothing is said.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from envcheck.core import elf
from envcheck.core.facts import Fact, Known, Unknown, package_key
from envcheck.host.files import open_ranges
from envcheck.host.machine import Host
from envcheck.probes.distributions import InstalledFiles

MOST_MODULES = 64
"""Shared libraries of one package that are read; of one with more no symbol is said to be missing."""

SECONDS = 3.0
"""After so long no further symbol is looked up: a cold network disk, or a library made to take for ever."""

FIRST = 8
"""Source files of torch whose architectures are read: of five releases each of them was compiled for all."""

SHOWN = 3

_OF_TORCH = re.compile(rb"_Z(?:T[ITVS]|GV)?N[KVRO]*(?:3c10|2at|5torch|6caffe2)|aoti_torch_|torch_[a-z]")
"""Names in torch's C++ namespaces (Itanium mangling), and the C functions of its stable ABI."""

_TORCHS = re.compile(r"lib(?:c10|torch)(?:_(?:cpu|cuda|hip|xpu|python|cuda_cu|cuda_cpp))?\.so")
_NEUTRAL = re.compile(
    r"lib(?:c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|omp|cu[a-zA-Z]+|nv[a-zA-Z]+|nccl)\.so|ld-linux"
)
"""Libraries that define none of torch's names."""

_RUNTIME = re.compile(r"libcudart\.so\.[0-9.]+")
_CORE = ("libtorch_cpu.so", "libc10.so", "libtorch_python.so")

Label = Callable[[str, str], str]
"""The short name of a path in a package folder."""


class _Module(NamedTuple):
    path: str
    read: elf.Read
    library: elf.Library


class _Torch(NamedTuple):
    """The libraries in torch/lib: their names, what they define, and the CUDA runtime they ask for.

    `asked` keeps the answers: modules of one package need much the same.
    """

    names: frozenset[str]
    exports: tuple[elf.Exports, ...]
    runtime: frozenset[str]
    asked: dict[bytes, bool]
    until: float

    def define(self, name: bytes) -> bool:
        """Whether one of torch's libraries defines a symbol.

        Raises:
            TimeoutError: the time is up.
        """
        found = self.asked.get(name)
        if found is None:
            if time.monotonic() > self.until:
                raise TimeoutError
            value = elf.gnu_hash(name)
            found = self.asked[name] = any(each.define(name, value) for each in self.exports)
        return found


def architectures_of_torch(host: Host, folder: str) -> tuple[str, ...]:
    """The GPU architectures that the kernels in torch/lib were compiled for; empty if it does not tell.

    Read out of the first source files: a few kernels further down are for single architectures.
    """
    try:
        with open_ranges(host.path(f"{folder}/libtorch_cuda.so")) as read:
            return elf.gpu_architectures(read, FIRST) or ()
    except OSError:
        return ()


class _Own(NamedTuple):
    """The libraries of one package: their names, and what they define, read only where torch does not."""

    names: frozenset[str]
    exports: Callable[[], tuple[elf.Exports, ...] | None]


def facts(
    host: Host, torch: InstalledFiles, compiled: Iterable[tuple[InstalledFiles, Sequence[str]]], label: Label
) -> Iterator[Fact]:
    """What compiled packages cannot find in this torch, and the GPUs they were compiled for.

    Each comes with its shared libraries, as paths in its package folder.
    """
    until = time.monotonic() + SECONDS
    with ExitStack() as files:
        built = _opened(host, f"{torch.site}/torch/lib", files, until)
        if built is None:
            return  # not linked as wheels are: of conda-forge, of Debian, from a checkout
        for record, paths in compiled:
            try:
                with ExitStack() as own:
                    found = list(_of_package(host, record, paths, built, own, label))
            except TimeoutError:
                why = Unknown(f"not looked at to its end within {SECONDS:g} s")
                found = [Fact(package_key(record.name, "unresolved"), why, label(record.site, record.entry))]
            yield from found


def _opened(host: Host, folder: str, files: ExitStack, until: float) -> _Torch | None:
    """Torch's libraries; None if they are not those of a wheel or cannot be looked into."""
    names = [name for name in host.listdir(folder) if ".so" in name]
    names.sort(key=lambda name: (name not in _CORE, "cuda" not in name))  # most symbols are found at once
    found = list(_modules(host, folder, names, files))
    exports = tuple(elf.Exports(each.read, each.library) for each in found)
    readable = {each.path for each, offers in zip(found, exports, strict=True) if offers.readable}
    if not readable.issuperset(_CORE) or not readable.issuperset(
        name for name in names if _TORCHS.fullmatch(name)
    ):
        return None
    runtime = (name for each in found for name in each.library.needed if _RUNTIME.fullmatch(name))
    return _Torch(frozenset(names), exports, frozenset(runtime), {}, until)


def _modules(host: Host, folder: str, paths: Iterable[str], files: ExitStack) -> Iterator[_Module]:
    for path in paths:
        try:
            read = files.enter_context(open_ranges(host.path(f"{folder}/{path}")))
        except (OSError, ValueError):
            continue
        library = elf.read_library(read)
        if library is not None:
            yield _Module(path, read, library)


def _of_package(
    host: Host, record: InstalledFiles, paths: Sequence[str], built: _Torch, files: ExitStack, label: Label
) -> Iterator[Fact]:
    key = package_key(record.name)
    bundled = [path for path in paths if path.partition("/")[0].endswith(".libs")]  # auditwheel's
    others = [path for path in paths if path not in bundled][:MOST_MODULES]
    modules = list(_modules(host, record.site, others, files))
    tied = [each for each in modules if any(map(_TORCHS.fullmatch, each.library.needed))]
    own = _Own(
        frozenset(path.rpartition("/")[2] for path in paths),
        lambda: (
            None
            if len(paths) > MOST_MODULES
            else _exports([*modules, *_modules(host, record.site, bundled, files)], len(paths))
        ),
    )
    missing: dict[str, str] = {}
    for each in tied:
        lacking = list(_libraries_lacking(host, each.library.needed, own.names, built, record.site))
        lacking += _symbols_lacking(each, built, own, lacking)
        missing.update({name: each.path for name in lacking if name not in missing})
    if missing:
        more = [f"{len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
        source = label(record.site, next(iter(missing.values())))
        yield Fact(f"{key}.unresolved", Known((*list(missing)[:SHOWN], *more)), source)
    code = [elf.gpu_architectures(each.read) for each in tied]
    if any(code) and None not in code:
        names = sorted({name for each in code for name in each or ()})
        yield Fact(f"{key}.architectures", Known(tuple(names)), label(record.site, tied[0].path))


def _exports(modules: Sequence[_Module], number: int) -> tuple[elf.Exports, ...] | None:
    """What libraries define; None unless all of them could be read."""
    found = tuple(elf.Exports(each.read, each.library) for each in modules)
    return found if len(found) == number and all(each.readable for each in found) else None


def _libraries_lacking(
    host: Host, needed: Iterable[str], own: frozenset[str], built: _Torch, site: str
) -> Iterator[str]:
    """Torch's libraries that this torch has not, and a CUDA runtime that is nowhere."""
    for name in needed:
        if name in own or name in built.names:
            continue
        if _TORCHS.fullmatch(name) or (
            _RUNTIME.fullmatch(name)
            and built.runtime
            and name not in built.runtime
            and not _is_here(host, name, site)
        ):
            yield name


def _is_here(host: Host, name: str, site: str) -> bool:
    """Whether the loader may find a library: in NVIDIA's packages, a toolkit, or where it always looks."""
    folders = [
        folder for folder in host.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")
    ]
    folders += [f"{site}/nvidia/{part}/lib" for part in host.listdir(f"{site}/nvidia")]
    folders += [f"/usr/local/{part}/lib64" for part in host.listdir("/usr/local") if part.startswith("cuda")]
    folders.append(site.rpartition("/lib/")[0] + "/lib")  # conda's
    if any(host.exists(f"{folder}/{name}") for folder in folders):
        return True
    cache = host.read_text("/etc/ld.so.cache")
    return cache is not None and f"\0{name}\0" in cache


def _symbols_lacking(module: _Module, built: _Torch, own: _Own, lacking: Collection[str]) -> Iterator[str]:
    """Symbols of torch's that neither torch nor the package defines; none where somebody else might."""
    for name in module.library.needed:
        if (
            name not in built.names
            and name not in own.names
            and name not in lacking
            and not _NEUTRAL.match(name)
        ):
            return
    wanted = (
        symbol
        for symbol in elf.undefined_symbols(module.read, module.library) or ()
        if _OF_TORCH.match(symbol)
    )
    missing = [symbol for symbol in wanted if not built.define(symbol)]
    exports = own.exports() if missing else None
    if exports is not None:
        for symbol in missing:
            value = elf.gnu_hash(symbol)
            if not any(each.define(symbol, value) for each in exports):
                yield elf.demangle(symbol.decode("utf-8", "replace"))
