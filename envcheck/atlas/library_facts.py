"""Read a shared library of a release: GPU code, weighed by bytes, glibc, and symbols of torch.

vLLM's `_C` carries a stub for sm_52 beside hundreds of MiB for other GPUs, so an architecture counts only if
it holds a noticeable share of the code.
"""

import base64
import contextlib
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from envcheck.core import elf
from envcheck.core.torch_libraries import TORCH_LIBRARY, TORCH_SYMBOL

NOTICEABLE = 0.01
"""The least share of a library's GPU code, by bytes, with which the library serves an architecture."""

_GLIBC = re.compile(rb"\0GLIBC_(2\.\d{1,3})(?:\.\d+)?(?=\0)")
_NAMES = 1 << 20  # bytes; 64 times as much of the string table is searched for names of glibc versions


@dataclass(frozen=True, kw_only=True)
class LibraryFacts:
    """Facts read from one shared library.

    Attributes:
        glibc: the newest glibc whose symbols it imports, `2.28`; empty if it imports none.
        gpu: bytes of code by architecture, `sm_90a` or `compute_90` (PTX); None if the code cannot be read.
        needs: the symbols of torch that it needs, mangled; None if they were not read.
        defines: of a library of torch, the hashes of what it defines, as `defined_hashes` reads them.

    """

    glibc: str = ""
    gpu: Mapping[str, int] | None = field(default_factory=dict)
    needs: Sequence[str] | None = None
    defines: str = ""


def read_library(data: bytes) -> LibraryFacts:
    """Return the facts of a shared library; for any other file, those of a library without code."""

    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    library = elf.read_library(read)
    if library is None:
        return LibraryFacts(gpu=elf.gpu_code_sizes(read))
    symbols = elf.undefined_symbols(read, library)
    of_torch = TORCH_LIBRARY.fullmatch(library.soname)
    return LibraryFacts(
        glibc=_imported_glibc(data, library),
        gpu=elf.gpu_code_sizes(read),
        needs=None
        if symbols is None
        else tuple(sorted(_names_in_text(each for each in symbols if TORCH_SYMBOL.match(each)))),
        defines=_packed(elf.Exports(read, library).hashes()) if of_torch else "",
    )


def _names_in_text(symbols: Iterable[bytes]) -> Iterator[str]:
    """Yield the symbols that are UTF-8, as compilers write them.

    Any other would be looked up in torch under another name, and found missing.
    """
    for symbol in symbols:
        with contextlib.suppress(UnicodeDecodeError):
            yield symbol.decode()


def defined_hashes(library: LibraryFacts) -> frozenset[int]:
    """Return the GNU hashes of the symbols that a library of torch defines, each with its lowest bit set.

    Among 200,000 symbols, one in 10,000 that is not there has the hash of one that is.
    """
    data = base64.b64decode(library.defines)
    return frozenset(value for (value,) in struct.iter_unpack("<I", data))


def _packed(hashes: Sequence[int]) -> str:
    return base64.b64encode(struct.pack(f"<{len(hashes)}I", *hashes)).decode()


def _imported_glibc(data: bytes, library: elf.Library) -> str:
    end = library.names + min(library.names_size, _NAMES * 64)
    found = {name.decode() for name in _GLIBC.findall(data[library.names : end])}
    return max(found, key=lambda version: int(version.partition(".")[2]), default="")


def served_architectures(libraries: Mapping[str, LibraryFacts]) -> tuple[str, ...]:
    """Return the architectures that some library serves, sorted; empty if a library cannot be read."""
    found: set[str] = set()
    for library in libraries.values():
        if library.gpu is None:
            return ()
        total = sum(library.gpu.values())
        found |= {name for name, size in library.gpu.items() if size >= NOTICEABLE * total}
    return tuple(sorted(found, key=_architecture_order))


def _architecture_order(name: str) -> tuple[str, int, str]:
    kind, _, number = name.partition("_")
    digits = re.match(r"\d+", number)
    return ("" if kind == "sm" else kind), int(digits[0]) if digits else 0, number


def recorded_architectures(record: str) -> tuple[str, ...]:
    """Return the architectures of a TORCH_CUDA_ARCH_LIST such as `7.5 8.0+PTX`; empty if unreadable."""
    found: Counter[str] = Counter()
    for word in record.replace(";", " ").split():
        part = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", word)
        if part is None:
            return ()
        number = f"{part[1]}{part[2]}{part[3]}"
        found[f"sm_{number}"] += 1
        if part[4]:
            found[f"compute_{number}"] += 1
    return tuple(sorted(found, key=_architecture_order))
