"""What a shared library needs, offers and carries for GPUs, read out of its file without loading it.

Pure: it is given a function that reads a range of the file and touches little of it, for libtorch_cuda
has a gigabyte. A symbol is looked up in the library's own hash table, as the loader does it. Only what
wheels for Linux hold is understood: 64-bit little-endian files; of anything else nothing is said.

Sources: the ELF gABI and its GNU extensions (DT_GNU_HASH) as `elf.h` of glibc has them. NVIDIA publishes
no layout of its fat binaries; the one here agrees with what open readers found and was compared with
files that nvcc 13.0 made for sm_80, sm_90, sm_90a, sm_100f and compute_120.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

Read = Callable[[int, int], bytes]
"""Gives so many bytes from an offset on; fewer where the file ends, none beyond it."""

MAX_SYMBOLS = 200_000
"""Undefined symbols that are read of one library: torch's own largest has some thousands."""

MAX_IMAGES = 20_000
"""GPU images that are visited in one library: cuBLAS has some thousands."""

_LARGEST_TEXT = 32 * 1024 * 1024
_LARGEST_TABLE = 32 * 1024 * 1024
_LONGEST_NAME = 16 * 1024  # C++ spells out every template argument
_MOST_HEADERS = 4096
_MOST_ENTRIES = 4096
_LONGEST_CHAIN = 256  # of symbols whose hashes fall together: some ten at most

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_GNU_HASH = 0x6FFFFEF5
_GLOBAL = 1
_SYMBOL_SIZE = 24
_NESTED, _NUMBER = re.compile(r"_Z(?:T[ITVS]|GV)?N[KVRO]*"), re.compile(r"[1-9][0-9]{0,3}")
_SEGMENT, _SECTION = "<IIQQQQQQ", "<IIQQQQIIQQ"


class Library(NamedTuple):
    """The dynamic section of a shared library: names as written, `$ORIGIN` in `search` left as it is.

    `search` are the folders of DT_RPATH or DT_RUNPATH. The numbers say where its tables lie in the file.
    """

    machine: int
    soname: str
    needed: tuple[str, ...]
    search: tuple[str, ...]
    symbols: int
    names: int
    names_size: int
    hashes: int


def read_library(read: Read) -> Library | None:
    """What a file says of itself; None if it is no shared library of this kind, or a broken one."""
    try:
        return _library(read)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def _library(read: Read) -> Library | None:
    head = read(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        return None
    machine = struct.unpack_from("<H", head, 18)[0]
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, number = struct.unpack_from("<HH", head, 54)
    if size != struct.calcsize(_SEGMENT) or number > _MOST_HEADERS:
        return None
    loads: list[tuple[int, int, int]] = []
    dynamic = (0, 0)
    for kind, _, at, address, _, length, *_ in struct.iter_unpack(
        _SEGMENT, _exactly(read, offset, size * number)
    ):
        if kind == _LOAD:
            loads.append((address, at, length))
        elif kind == _DYNAMIC:
            dynamic = (at, length)
    entries = _dynamic(read(dynamic[0], min(dynamic[1], 16 * _MOST_ENTRIES)))
    places = {tag: _offset(loads, value) for tag, value in entries if tag in (_STRTAB, _SYMTAB, _GNU_HASH)}
    sizes = [value for tag, value in entries if tag == _STRSZ]
    if not places.get(_STRTAB) or not sizes:
        return None
    names, names_size = places[_STRTAB], sizes[0]

    def said(*tags: int) -> tuple[str, ...]:
        found = (_name(read, names, names_size, value) for tag, value in entries if tag in tags)
        return tuple(name for name in found if name)

    return Library(
        machine,
        next(iter(said(_SONAME)), ""),
        said(_NEEDED),
        tuple(folder for path in said(_RPATH, _RUNPATH) for folder in path.split(":") if folder),
        places.get(_SYMTAB, 0),
        names,
        names_size,
        places.get(_GNU_HASH, 0),
    )


def _dynamic(data: bytes) -> list[tuple[int, int]]:
    """The entries before DT_NULL, as tag and value."""
    found = []
    for tag, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]):
        if tag == 0:
            break
        found.append((tag, value))
    return found


def _offset(loads: list[tuple[int, int, int]], address: int) -> int:
    """Where an address lies in the file; 0 if no segment holds it."""
    for start, at, length in loads:
        if start <= address < start + length:
            return at + address - start
    return 0


def _name(read: Read, names: int, size: int, index: int) -> str:
    if not 0 < index < size:
        return ""
    data = read(names + index, 128)
    if b"\0" not in data:
        data = read(names + index, _LONGEST_NAME)
    return data.partition(b"\0")[0].decode("utf-8", "replace")


# --- symbols ----------------------------------------------------------------------------------------


def undefined_symbols(read: Read, of: Library) -> tuple[bytes, ...] | None:
    """The symbols a library cannot be loaded without and does not define itself; None if they cannot be told.

    A weak symbol may stay undefined, so it is left out.
    """
    try:
        return _undefined(read, of)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def _undefined(read: Read, of: Library) -> tuple[bytes, ...] | None:
    if not of.hashes or not of.symbols:
        return None
    # The table is sorted: undefined symbols lie before the first that the hash table covers.
    (first,) = struct.unpack_from("<I", read(of.hashes + 4, 4))
    if not 0 < first <= MAX_SYMBOLS:
        return None
    table = read(of.symbols, first * _SYMBOL_SIZE)
    wanted = [
        name
        for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table)
        if section == 0 and info >> 4 == _GLOBAL and name
    ]
    if len(table) != first * _SYMBOL_SIZE:
        return None
    if not wanted:
        return ()
    begin, end = min(wanted), min(max(wanted) + _LONGEST_NAME, of.names_size)
    if not 0 < end - begin <= _LARGEST_TEXT:
        return None
    text = read(of.names + begin, end - begin)
    return tuple(text[name - begin : text.find(b"\0", name - begin)] for name in wanted)


class Exports:
    """What a library defines for others, looked up symbol by symbol in its DT_GNU_HASH table."""

    def __init__(self, read: Read, of: Library) -> None:
        """Read the table but for its chains; `readable` says whether there is one to look into."""
        self._read, self._of = read, of
        head = read(of.hashes, 16) if of.hashes and of.symbols else b""
        self._buckets, self._first, self._words, self._shift = (
            struct.unpack("<IIII", head) if len(head) == 16 else (0, 0, 0, 0)  # noqa: PLR2004
        )
        size = 8 * self._words + 4 * self._buckets
        self._table = read(of.hashes + 16, size) if size <= _LARGEST_TABLE and self._shift < 32 else b""  # noqa: PLR2004
        self.readable = self._buckets > 0 and self._words > 0 and len(self._table) == size

    def define(self, name: bytes, value: int) -> bool:
        """Whether a symbol is among them; `value` is its hash. What cannot be read defines nothing."""
        if not self.readable:
            return False
        word = self._number(8 * (value // 64 % self._words), 8)
        if not (word >> value % 64) & (word >> (value >> self._shift) % 64) & 1:
            return False
        index = self._number(8 * self._words + 4 * (value % self._buckets), 4)
        if index < self._first:
            return False
        chain = self._of.hashes + 16 + len(self._table)
        for symbol in range(index, index + _LONGEST_CHAIN):
            found = int.from_bytes(self._read(chain + 4 * (symbol - self._first), 4), "little")
            if found | 1 == value | 1 and self._is(symbol, name):
                return True
            if found & 1 or not found:
                return False
        return False

    def _number(self, at: int, length: int) -> int:
        return int.from_bytes(self._table[at : at + length], "little")

    def _is(self, symbol: int, name: bytes) -> bool:
        entry = self._read(self._of.symbols + symbol * _SYMBOL_SIZE, _SYMBOL_SIZE)
        if len(entry) != _SYMBOL_SIZE:
            return False
        at, _, _, section, _, _ = struct.unpack("<IBBHQQ", entry)
        return section != 0 and self._read(self._of.names + at, len(name) + 1) == name + b"\0"


def gnu_hash(name: bytes) -> int:
    """The GNU hash of a symbol's name."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def demangle(symbol: str) -> str:
    """A C++ symbol as its source has it, without arguments: `c10::Error::Error` of `_ZN3c105ErrorC2E…`.

    Names of the Itanium C++ ABI that are nested, as all of a namespace are; any other stays as it is.
    """
    found = _NESTED.match(symbol)
    if found is None:
        return symbol
    names: list[str] = []
    at = found.end()
    while number := _NUMBER.match(symbol, at):
        at = number.end() + int(number[0])
        names.append(symbol[number.end() : at])
    if len(names) > 1 and symbol[at : at + 1] in ("C", "D"):
        names.append(f"{'~' if symbol[at] == 'D' else ''}{names[-1]}")
    return "::".join(names) if len(names) > 1 else symbol


def _exactly(read: Read, at: int, length: int) -> bytes:
    data = read(at, length)
    if len(data) != length:
        raise ValueError
    return data


# --- code for GPUs ----------------------------------------------------------------------------------

_FATBIN = 0xBA55ED50
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_PTX, _CUBIN = 1, (2, 16)
_SPECIFIC, _FAMILY = 1 << 20, 1 << 21  # the letters of sm_90a and sm_100f


def gpu_architectures(read: Read, containers: int = MAX_IMAGES) -> tuple[str, ...] | None:
    """The GPU architectures a library has code for, each once: machine code (`sm_90a`) or PTX (`compute_90`).

    Empty if it has none. None stands for a file whose sections or images cannot be followed to their end.
    A container holds what one source file was compiled to, for each architecture; of a large library the
    first few tell for which that was.
    """
    try:
        return tuple(sorted(set(_images(read, containers))))
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def _sections(read: Read) -> Iterator[tuple[int, int]]:
    """Where the sections with GPU code lie, as offset and size."""
    head = read(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError
    (offset,) = struct.unpack_from("<Q", head, 40)
    size, number, names = struct.unpack_from("<HHH", head, 58)
    if not offset or not number:
        return  # stripped of its section headers
    if size != struct.calcsize(_SECTION) or number > _MOST_HEADERS or names >= number:
        raise ValueError
    table = _exactly(read, offset, size * number)
    at, length = struct.unpack_from("<QQ", table, names * size + 24)
    texts = read(at, min(length, 1 << 20))
    for name, _, _, _, at, length, *_ in struct.iter_unpack(_SECTION, table):
        if texts[name : texts.find(b"\0", name)] in _SECTIONS:
            yield at, length


def _images(read: Read, containers: int) -> Iterator[str]:
    """The architecture of every image of a library.

    Containers follow one another: a head (magic, version, its own size, that of what it holds), then images:
    kind, size of the image's head, size of its content; at 28 the architecture, at 40 flags.

    Raises:
        ValueError: what stands there is something else, or without end.
    """
    steps = iter(range(MAX_IMAGES))
    for start, length in _sections(read):
        at, end = start, start + length
        while containers and at + 16 <= end:
            magic, _, head, size = struct.unpack("<IHHQ", _exactly(read, at, 16))
            if magic == 0:
                _count(steps)
                at += 8  # containers are aligned, the gap is filled with zeros
                continue
            if magic != _FATBIN or head < 16 or at + head + size > end:  # noqa: PLR2004 - its own size
                raise ValueError
            containers -= 1
            image, at = at + head, at + head + size
            while image < at:
                _count(steps)
                architecture, size = _image(_exactly(read, image, 64))
                image += size
                if architecture:
                    yield architecture


def _image(entry: bytes) -> tuple[str, int]:
    """The architecture of an image, empty if it is of another kind, and the size of it with its head."""
    kind, _, head, size = struct.unpack_from("<HHIQ", entry)
    (number,) = struct.unpack_from("<I", entry, 28)
    (flags,) = struct.unpack_from("<Q", entry, 40)
    if head < len(entry):
        raise ValueError
    letter = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
    word = "compute" if kind == _PTX else "sm" if kind in _CUBIN else ""
    return f"{word}_{number}{letter}" if word else "", head + size


def _count(steps: Iterator[int]) -> None:
    if next(steps, None) is None:
        raise ValueError
