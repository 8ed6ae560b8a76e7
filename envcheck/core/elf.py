"""Read shared libraries without loading them: dependencies, undefined and defined symbols, GPU code.

The functions take a function that reads a range of the file. They read as little as possible, because
libtorch_cuda is about a gigabyte. Symbols are looked up in the library's own hash table, as the loader does.
Only 64-bit little-endian files are supported, which is what wheels for Linux contain; others give None.

Sources: the ELF gABI and its GNU extensions (DT_GNU_HASH) as `elf.h` of glibc has them. NVIDIA publishes
no layout of its fat binaries. The layout here agrees with open-source readers and was compared with files
that nvcc 13.0 made for sm_80, sm_90, sm_90a, sm_100f and compute_120.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from envcheck.core.patterns import pattern

Read = Callable[[int, int], bytes]
"""Takes an offset and a length, and returns these bytes: fewer at the end of the file, none beyond it."""

MAX_SYMBOLS = 200_000
"""The most undefined symbols read from one library: torch's largest has some thousands."""

MAX_IMAGES = 20_000
"""The most GPU images visited in one library: cuBLAS has some thousands."""

_MAX_TEXT = 32 * 1024 * 1024
_MAX_TABLE = 32 * 1024 * 1024
_MAX_NAME = 16 * 1024  # C++ names contain every template argument
_MAX_HEADERS = 4096
_MAX_ENTRIES = 4096
_MAX_DEFINED = 2_000_000
_MAX_CHAIN = 256  # symbols in one hash bucket: in practice at most about ten

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_GNU_HASH = 0x6FFFFEF5
_GLOBAL = 1
_SYMBOL_SIZE = 24
_NESTED, _NUMBER = re.compile(r"_Z(?:T[ITVS]|GV)?N[KVRO]*"), re.compile(r"[1-9][0-9]{0,3}")
_MANGLED = pattern(
    r"T[VTIS]|Ss|[CD][0-5]|S[0-9A-Z]{0,8}_|[AT][0-9]{0,8}_|L[a-z]n?[0-9]{1,20}E|(?P<length>[1-9][0-9]{0,3})|."
)
"""A part of a mangled name: a substitution, a literal, the length of the name that follows, or a letter."""

_SEGMENT, _SECTION = "<IIQQQQQQ", "<IIQQQQIIQQ"


class Library(NamedTuple):
    """Dynamic section of a shared library.

    `machine` is the architecture's number in the ELF header. `soname` and `needed` are file names. `search`
    lists the folders of DT_RPATH or DT_RUNPATH as written, with `$ORIGIN`. `symbols`, `names` and `hashes`
    are the offsets of these tables in the file, 0 if there is none; `names_size` is in bytes.
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
    """Return the dynamic section; None if the file is damaged or not a library of the supported kind."""
    try:
        return _library(read)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def _library(read: Read) -> Library | None:
    segments = _segments(read)
    if segments is None:
        return None
    machine, loads, (at, length) = segments
    entries = _dynamic(read(at, min(length, 16 * _MAX_ENTRIES)))
    tables = {tag: _offset(loads, value) for tag, value in entries if tag in (_STRTAB, _SYMTAB, _GNU_HASH)}
    sizes = [value for tag, value in entries if tag == _STRSZ]
    if not tables.get(_STRTAB) or not sizes:
        return None
    names, names_size = tables[_STRTAB], sizes[0]

    def strings(*tags: int) -> tuple[str, ...]:
        found = (_name(read, names, names_size, value) for tag, value in entries if tag in tags)
        return tuple(name for name in found if name)

    return Library(
        machine,
        next(iter(strings(_SONAME)), ""),
        strings(_NEEDED),
        tuple(folder for path in strings(_RPATH, _RUNPATH) for folder in path.split(":") if folder),
        tables.get(_SYMTAB, 0),
        names,
        names_size,
        tables.get(_GNU_HASH, 0),
    )


def _segments(read: Read) -> tuple[int, list[tuple[int, int, int]], tuple[int, int]] | None:
    """Return the machine, the loaded segments (address, offset, length), and offset and length of DYNAMIC."""
    header = read(0, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        return None
    machine = struct.unpack_from("<H", header, 18)[0]
    (offset,) = struct.unpack_from("<Q", header, 32)
    size, number = struct.unpack_from("<HH", header, 54)
    if size != struct.calcsize(_SEGMENT) or number > _MAX_HEADERS:
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
    return machine, loads, dynamic


def _dynamic(data: bytes) -> list[tuple[int, int]]:
    """Return the entries before DT_NULL, as tag and value."""
    found = []
    for tag, value in struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]):
        if tag == 0:
            break
        found.append((tag, value))
    return found


def _offset(loads: list[tuple[int, int, int]], address: int) -> int:
    """Return the offset in the file of an address in memory; 0 if no segment contains it."""
    for start, at, length in loads:
        if start <= address < start + length:
            return at + address - start
    return 0


def _name(read: Read, names: int, size: int, index: int) -> str:
    if not 0 < index < size:
        return ""
    data = read(names + index, 128)
    if b"\0" not in data:
        data = read(names + index, _MAX_NAME)
    return data.partition(b"\0")[0].decode("utf-8", "replace")


# --- symbols ----------------------------------------------------------------------------------------


def undefined_symbols(read: Read, library: Library) -> tuple[bytes, ...] | None:
    """Return the symbols that other libraries must define for this one to load; None if unreadable.

    Weak symbols are left out, because they may stay undefined.
    """
    try:
        return _undefined(read, library)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def _undefined(read: Read, library: Library) -> tuple[bytes, ...] | None:
    if not library.hashes or not library.symbols:
        return None
    # The table is sorted: undefined symbols come before the first symbol of the hash table.
    (first,) = struct.unpack_from("<I", read(library.hashes + 4, 4))
    if not 0 < first <= MAX_SYMBOLS:
        return None
    table = read(library.symbols, first * _SYMBOL_SIZE)
    required = [
        name
        for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table)
        if section == 0 and info >> 4 == _GLOBAL and name
    ]
    if len(table) != first * _SYMBOL_SIZE:
        return None
    if not required:
        return ()
    begin, end = min(required), min(max(required) + _MAX_NAME, library.names_size)
    if not 0 < end - begin <= _MAX_TEXT:
        return None
    text = read(library.names + begin, end - begin)
    return tuple(text[name - begin : text.find(b"\0", name - begin)] for name in required)


def defined_symbols(read: Read, library: Library) -> tuple[bytes, ...] | None:
    """Return the names of the symbols that a library defines for others; None if unreadable."""
    number = len(Exports(read, library).hashes())
    if not number:
        return None
    try:
        (first,) = struct.unpack_from("<I", read(library.hashes + 4, 4))
        at = library.symbols + first * _SYMBOL_SIZE
        table = _exactly(read, at, number * _SYMBOL_SIZE)
        text = read(library.names, library.names_size)
    except (struct.error, ValueError, OverflowError):
        return None
    starts = (name for name, *_ in struct.iter_unpack("<IBBHQQ", table))
    return tuple(text[start : text.find(b"\0", start)] for start in starts)


class Exports:
    """Symbols that a library defines for others, looked up one by one in its DT_GNU_HASH table."""

    def __init__(self, read: Read, library: Library) -> None:
        """Read the table without its chains; `readable` is False if there is no usable table."""
        self._read, self._library = read, library
        head = read(library.hashes, 16) if library.hashes and library.symbols else b""
        self._buckets, self._first, self._words, self._shift = (
            struct.unpack("<IIII", head) if len(head) == 16 else (0, 0, 0, 0)  # noqa: PLR2004
        )
        size = 8 * self._words + 4 * self._buckets
        self._table = read(library.hashes + 16, size) if size <= _MAX_TABLE and self._shift < 32 else b""  # noqa: PLR2004
        self.readable = self._buckets > 0 and self._words > 0 and len(self._table) == size

    def define(self, name: bytes, value: int) -> bool:
        """Return whether the library defines `name`, whose GNU hash is `value`; False if unreadable."""
        if not self.readable:
            return False
        word = self._number(8 * (value // 64 % self._words), 8)
        if not (word >> value % 64) & (word >> (value >> self._shift) % 64) & 1:
            return False
        index = self._number(8 * self._words + 4 * (value % self._buckets), 4)
        if index < self._first:
            return False
        chain = self._library.hashes + 16 + len(self._table)
        for symbol in range(index, index + _MAX_CHAIN):
            found = int.from_bytes(self._read(chain + 4 * (symbol - self._first), 4), "little")
            if found | 1 == value | 1 and self._is(symbol, name):
                return True
            if found & 1 or not found:
                return False
        return False

    def hashes(self) -> tuple[int, ...]:
        """Return the GNU hashes of all defined symbols, each with its lowest bit set; empty if unreadable.

        The table uses the lowest bit for other purposes.
        """
        if not self.readable:
            return ()
        at, chain = 8 * self._words, self._library.hashes + 16 + len(self._table)
        last = max(self._number(at + 4 * bucket, 4) for bucket in range(self._buckets))
        if last < self._first:
            return ()
        number = last - self._first  # symbols before the last bucket; it ends at an odd value
        tail = self._read(chain + 4 * number, 4 * _MAX_CHAIN)
        values = [value for (value,) in struct.iter_unpack("<I", tail[: len(tail) // 4 * 4])]
        end = next((place for place, value in enumerate(values) if value & 1), None)
        if end is None or number > _MAX_DEFINED:
            return ()
        table = self._read(chain, 4 * number) + tail[: 4 * (end + 1)]
        return tuple(value | 1 for (value,) in struct.iter_unpack("<I", table))

    def _number(self, at: int, length: int) -> int:
        return int.from_bytes(self._table[at : at + length], "little")

    def _is(self, symbol: int, name: bytes) -> bool:
        entry = self._read(self._library.symbols + symbol * _SYMBOL_SIZE, _SYMBOL_SIZE)
        if len(entry) != _SYMBOL_SIZE:
            return False
        at, _, _, section, _, _ = struct.unpack("<IBBHQQ", entry)
        return section != 0 and self._read(self._library.names + at, len(name) + 1) == name + b"\0"


def gnu_hash(name: bytes) -> int:
    """Return the GNU hash of a symbol's name."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def demangle(symbol: str) -> str:
    """Return a C++ symbol as in source code, without arguments; any other symbol unchanged.

    `_ZN3c105ErrorC2E…` gives `c10::Error::Error`. Only nested names of the Itanium C++ ABI are read; every
    name in a namespace is nested.
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


def describe_symbol(symbol: str) -> str:
    """Return a symbol as `demangle` spells it, with the C++ ABI of its strings if the name shows it.

    Two symbols that differ in this alone are spelled alike: an extension that was compiled with the old ABI
    needs the one, and a torch of the new ABI defines the other.
    """
    abi = cxx_abi(symbol)
    return f"{demangle(symbol)} ({abi} C++ ABI)" if abi else demangle(symbol)


def cxx_abi(symbol: str) -> str:
    """Return `new` or `old`, the ABI of libstdc++ that a mangled name shows; empty if it shows neither.

    The new one has std::string in the namespace `__cxx11`, or a tag `[abi:cxx11]` behind the name. The old
    one has the abbreviation `Ss`, which stands for std::string outside that namespace.
    """
    if not symbol.startswith("_Z"):
        return ""
    at = 2
    while token := _MANGLED.match(symbol, at):
        at = token.end()
        if token["length"]:
            name = symbol[at : at + int(token["length"])]
            if name in ("__cxx11", "cxx11"):
                return "new"
            at += len(name)
        elif token[0] == "Ss":
            return "old"
    return ""


def _exactly(read: Read, at: int, length: int) -> bytes:
    data = read(at, length)
    if len(data) != length:
        raise ValueError
    return data


# --- code for GPUs ----------------------------------------------------------------------------------

_FATBIN = 0xBA55ED50
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
_PTX, _CUBIN = 1, (2, 16)
_SPECIFIC, _FAMILY = 1 << 20, 1 << 21  # flags for the suffixes of sm_90a and sm_100f


def gpu_architectures(read: Read, containers: int = MAX_IMAGES) -> tuple[str, ...] | None:
    """Return the GPU architectures that a library has code for: machine code (`sm_90a`), PTX (`compute_90`).

    The result is sorted; empty if there is no GPU code; None if a section or image is malformed. A container
    holds the code of one source file for each architecture, so the first few `containers` of a large library
    suffice.
    """
    try:
        return tuple(sorted(set(_images(read, containers))))
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def gpu_code_sizes(read: Read) -> dict[str, int] | None:
    """Return the bytes of code for each GPU architecture; empty if there is none, None if it is malformed.

    The code is compressed in most libraries, so the sizes serve to compare architectures with one another.
    """
    found: dict[str, int] = {}
    try:
        for architecture, size in _sized_images(read, MAX_IMAGES):
            found[architecture] = found.get(architecture, 0) + size
    except (struct.error, IndexError, OverflowError, ValueError):
        return None
    return found


def _sections(read: Read) -> Iterator[tuple[int, int]]:
    """Yield the offset and size of each section with GPU code."""
    head = read(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError
    (offset,) = struct.unpack_from("<Q", head, 40)
    size, number, names = struct.unpack_from("<HHH", head, 58)
    if not offset or not number:
        return  # the section headers were stripped
    if size != struct.calcsize(_SECTION) or number > _MAX_HEADERS or names >= number:
        raise ValueError
    table = _exactly(read, offset, size * number)
    at, length = struct.unpack_from("<QQ", table, names * size + 24)
    texts = read(at, min(length, 1 << 20))
    for name, _, _, _, at, length, *_ in struct.iter_unpack(_SECTION, table):
        if texts[name : texts.find(b"\0", name)] in _SECTIONS:
            yield at, length


def _images(read: Read, containers: int) -> Iterator[str]:
    """Yield the architecture of every image in the first containers of a library. Raises ValueError."""
    return (architecture for architecture, _ in _sized_images(read, containers))


def _sized_images(read: Read, containers: int) -> Iterator[tuple[str, int]]:
    """Yield architecture and size of every image in the first containers of a library.

    Raises:
        ValueError: a container or an image is malformed, or there are too many.
    """
    steps = iter(range(MAX_IMAGES))
    found = (
        container
        for start, length in _sections(read)
        for container in _containers(read, start, start + length, steps)
    )
    for start, end in islice(found, containers):
        at = start
        while at < end:
            _count(steps)
            architecture, size = _image(_exactly(read, at, 64))
            at += size
            if architecture:
                yield architecture, size


def _containers(read: Read, at: int, end: int, steps: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of the images of each container in a section.

    Containers follow one another. A container has a header (magic, version, size of the header, size of the
    images), then its images.
    """
    while at + 16 <= end:
        magic, _, header, size = struct.unpack("<IHHQ", _exactly(read, at, 16))
        if magic == 0:
            _count(steps)
            at += 8  # containers are aligned, and the gaps are filled with zeros
            continue
        if magic != _FATBIN or header < 16 or at + header + size > end:  # noqa: PLR2004 - its own size
            raise ValueError
        yield at + header, at + header + size
        at += header + size


def _image(entry: bytes) -> tuple[str, int]:
    """Return an image's architecture (empty if it is not GPU code) and its size, including its header."""
    # Kind, size of the image's header, size of its content; at 28 the architecture, at 40 flags.
    kind, _, header, size = struct.unpack_from("<HHIQ", entry)
    (number,) = struct.unpack_from("<I", entry, 28)
    (flags,) = struct.unpack_from("<Q", entry, 40)
    if header < len(entry):
        raise ValueError
    letter = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
    word = "compute" if kind == _PTX else "sm" if kind in _CUBIN else ""
    return f"{word}_{number}{letter}" if word else "", header + size


def _count(steps: Iterator[int]) -> None:
    if next(steps, None) is None:
        raise ValueError
