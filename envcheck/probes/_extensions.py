"""Read what compiled packages need from the installed torch, from their files; nothing is loaded.

An extension binds to the C++ symbols of one torch release. With another release its import fails with
`undefined symbol: _ZN3c10…` or with a missing library. The dynamic symbols of the extension and of torch
predict this. Only strong symbols in torch's own namespaces count, and only where every library that could
define them was read; otherwise nothing is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack

from envcheck.core import elf
from envcheck.core.facts import Fact, Known, Unknown, package_key
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.core.torch_libraries import TORCH_LIBRARY, TORCH_SYMBOL
from envcheck.host.files import open_ranges
from envcheck.host.machine import Host
from envcheck.probes.distributions import InstalledFiles

MOST_MODULES = 64
"""Shared libraries read of one package; for a package with more, no missing symbol is reported."""

SECONDS = 3.0
"""Time after which no further symbol is looked up: a network disk may be cold, or a library malicious."""

FIRST = 8
"""Source files of torch whose architectures are read: in five releases, each was compiled for all of them."""

SHOWN = 3
"""Missing names that a fact lists."""

_NEUTRAL = pattern(
    r"lib(?:c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|omp|cu[a-zA-Z]+|nv[a-zA-Z]+|nccl)\.so|ld-linux"
)
"""Libraries that define no symbols of torch."""

_RUNTIME = pattern(r"libcudart\.so\.[0-9.]+")
_CORE = ("libtorch_cpu.so", "libc10.so", "libtorch_python.so")

Label = Callable[[str, str], str]
"""Return the short name of a path, given its package folder and the path in it."""


class _Module(NamedTuple):
    path: str
    read: elf.Read
    library: elf.Library


class _Torch(NamedTuple):
    """Libraries in torch/lib: their names, what they define, and the CUDA runtime they need.

    `answers` caches look-ups, because modules of one package mostly need the same symbols. `until` is the end
    of the time for look-ups, by the monotonic clock.
    """

    names: frozenset[str]
    exports: tuple[elf.Exports, ...]
    runtime: frozenset[str]
    answers: dict[bytes, bool]
    until: float

    def define(self, name: bytes) -> bool:
        """Return whether one of torch's libraries defines a symbol.

        Raises:
            TimeoutError: the time is up.
        """
        found = self.answers.get(name)
        if found is None:
            if time.monotonic() > self.until:
                raise TimeoutError
            value = elf.gnu_hash(name)
            found = self.answers[name] = any(exports.define(name, value) for exports in self.exports)
        return found


def architectures_of_torch(host: Host, folder: str) -> tuple[str, ...]:
    """Return the GPU architectures of the kernels in torch/lib; empty if they cannot be read.

    Only the first source files are read, because a few later kernels are for single architectures.
    """
    try:
        with open_ranges(host.path(f"{folder}/libtorch_cuda.so")) as read:
            return elf.gpu_architectures(read, FIRST) or ()
    except OSError:
        return ()


class _Own(NamedTuple):
    """Libraries of one package: their names, and a function that reads what they define.

    The function is only called for symbols that torch does not define.
    """

    names: frozenset[str]
    exports: Callable[[], tuple[elf.Exports, ...] | None]


def facts(
    host: Host, torch: InstalledFiles, compiled: Iterable[tuple[InstalledFiles, Sequence[str]]], label: Label
) -> Iterator[Fact]:
    """Yield what compiled packages cannot find in this torch, and the GPUs they were compiled for.

    Each package comes with its shared libraries, as paths in its package folder.
    """
    until = time.monotonic() + SECONDS
    with ExitStack() as files:
        installed = _open_torch(host, f"{torch.site}/torch/lib", files, until)
        if installed is None:
            return  # not linked like a wheel: from conda-forge, Debian or a checkout
        for record, paths in compiled:
            yield from _facts_in_time(host, record, paths, installed, label)


def _facts_in_time(
    host: Host, record: InstalledFiles, paths: Sequence[str], torch: _Torch, label: Label
) -> list[Fact]:
    """Return the facts of one package; an unknown one if the time is up."""
    try:
        with ExitStack() as files:
            return list(_of_package(host, record, paths, torch, files, label))
    except TimeoutError:
        why = Unknown(f"not completely read within {SECONDS:g} s")
        return [Fact(package_key(record.name, "unresolved"), why, label(record.site, record.entry))]


def _open_torch(host: Host, folder: str, files: ExitStack, until: float) -> _Torch | None:
    """Open torch's libraries; return None if they are not those of a wheel or cannot be read."""
    names = [name for name in host.listdir(folder) if ".so" in name]
    names.sort(
        key=lambda name: (name not in _CORE, "cuda" not in name)
    )  # the first of these define most symbols
    found = list(_modules(host, folder, names, files))
    exports = tuple(elf.Exports(module.read, module.library) for module in found)
    readable = {module.path for module, table in zip(found, exports, strict=True) if table.readable}
    if not readable.issuperset(_CORE) or not readable.issuperset(
        name for name in names if TORCH_LIBRARY.fullmatch(name)
    ):
        return None
    runtime = (name for module in found for name in module.library.needed if _RUNTIME.fullmatch(name))
    return _Torch(frozenset(names), exports, frozenset(runtime), {}, until)


def _modules(host: Host, folder: str, paths: Iterable[str], files: ExitStack) -> Iterator[_Module]:
    """Open the files, and yield those that are shared libraries."""
    for path in paths:
        try:
            read = files.enter_context(open_ranges(host.path(f"{folder}/{path}")))
        except (OSError, ValueError):
            continue
        library = elf.read_library(read)
        if library is not None:
            yield _Module(path, read, library)


def _of_package(
    host: Host, record: InstalledFiles, paths: Sequence[str], torch: _Torch, files: ExitStack, label: Label
) -> Iterator[Fact]:
    """Yield what one package lacks, and the GPU architectures of its modules that are linked to torch."""
    bundled = [path for path in paths if path.partition("/")[0].endswith(".libs")]  # by auditwheel
    others = [path for path in paths if path not in bundled][:MOST_MODULES]
    modules = list(_modules(host, record.site, others, files))

    def own_exports() -> tuple[elf.Exports, ...] | None:
        if len(paths) > MOST_MODULES:
            return None
        return _exports([*modules, *_modules(host, record.site, bundled, files)], len(paths))

    own = _Own(frozenset(path.rpartition("/")[2] for path in paths), own_exports)
    linked = [module for module in modules if any(map(TORCH_LIBRARY.fullmatch, module.library.needed))]
    missing, whole = _missing(host, linked, torch, own, record.site)
    if missing:
        more = [f"{len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
        source = label(record.site, next(iter(missing.values())))
        value = Known((*list(missing)[:SHOWN], *more))
        yield Fact(package_key(record.name, "unresolved"), value, source)
    elif linked and whole and len(paths) <= MOST_MODULES:
        yield Fact(package_key(record.name, "resolved"), Known(True), label(record.site, linked[0].path))
    code = [elf.gpu_architectures(module.read) for module in linked]
    if any(code) and None not in code:
        names = sorted({name for architectures in code for name in architectures or ()})
        source = label(record.site, linked[0].path)
        yield Fact(package_key(record.name, "architectures"), Known(tuple(names)), source)


def _missing(
    host: Host, modules: Iterable[_Module], torch: _Torch, own: _Own, site: str
) -> tuple[dict[str, str], bool]:
    """Return the libraries and symbols that modules lack, each with the path of the first such module.

    The flag says whether every symbol was looked up.
    """
    missing: dict[str, str] = {}
    whole = True
    for module in modules:
        lacking = list(_libraries_lacking(host, module.library.needed, own.names, torch, site))
        symbols = _symbols_lacking(module, torch, own, lacking)
        whole = whole and symbols is not None
        for name in (*lacking, *(symbols or ())):
            missing.setdefault(name, module.path)
    return missing, whole


def _exports(modules: Sequence[_Module], number: int) -> tuple[elf.Exports, ...] | None:
    """Return what libraries define; None unless all `number` of them could be read."""
    found = tuple(elf.Exports(module.read, module.library) for module in modules)
    return found if len(found) == number and all(exports.readable for exports in found) else None


def _libraries_lacking(
    host: Host, needed: Iterable[str], own: frozenset[str], torch: _Torch, site: str
) -> Iterator[str]:
    """Yield needed libraries of torch that this torch does not have, and a CUDA runtime that is missing."""
    for name in needed:
        if name in own or name in torch.names:
            continue
        if TORCH_LIBRARY.fullmatch(name) or (
            _RUNTIME.fullmatch(name)
            and torch.runtime
            and name not in torch.runtime
            and not _can_be_found(host, name, site)
        ):
            yield name


def _can_be_found(host: Host, name: str, site: str) -> bool:
    """Return whether the loader may find a library: in NVIDIA's packages, a toolkit, or its own folders."""
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


def _symbols_lacking(module: _Module, torch: _Torch, own: _Own, lacking: Collection[str]) -> list[str] | None:
    """Return torch's symbols that neither torch nor the package defines; None if another library might."""
    for name in module.library.needed:
        if (
            name not in torch.names
            and name not in own.names
            and name not in lacking
            and not _NEUTRAL.match(name)
        ):
            return None
    undefined = elf.undefined_symbols(module.read, module.library)
    if undefined is None:
        return None
    missing = [symbol for symbol in undefined if TORCH_SYMBOL.match(symbol) and not torch.define(symbol)]
    exports = own.exports() if missing else ()
    if exports is None:
        return None
    return [
        elf.demangle(symbol.decode("utf-8", "replace"))
        for symbol in missing
        if not any(table.define(symbol, elf.gnu_hash(symbol)) for table in exports)
    ]
