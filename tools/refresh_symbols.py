"""Propose a diff of compat/symbols/torch.txt: `python tools/refresh_symbols.py [--write]`.

Reads which symbols the libraries of torch define in every release from 2.0.0 on, from the default wheels on
the index of the user's pip configuration: some 130 MiB of each wheel, one at a time, 4 GB in all. Prints a
unified diff; changes nothing without `--write`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose

from envcheck.core import elf
from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.knowledge.torch_symbols import symbols_text
from envcheck.resolver_backends.index.published import ListedRelease, listed_releases
from envcheck.resolver_backends.index.reader import IndexReader
from envcheck.resolver_backends.index.remote_archive import RemoteArchive

TABLE = Path(__file__).resolve().parent.parent / "compat/symbols/torch.txt"
SINCE = "2023-03-15"
"""The day of torch 2.0.0."""
LIBRARIES = (
    "torch/lib/libc10.so",
    "torch/lib/libc10_cuda.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libtorch_python.so",
)
LIMIT = 1 << 30
"""Most bytes to fetch of one wheel."""
SECONDS = 600.0

KEPT = re.compile(
    r"aoti_torch_|torch_[a-z]"  # the stable C interface
    r"|_Z(?:T[ITVS]|GV)?N[KVRO]*(?:"
    r"3c10"
    r"|2at(?!6native|3cpu|4meta|4cuda|4_ops|9functorch|\d+(?:composite|functionaliz|autocast|namedinference))"
    r"|2at4_ops\d+\w+?4callE"
    r"|5torch(?:7Library|8autograd(?!9generated)|3jit\d*(?:parseSchema|RegisterOp|tracer)|4utils)"
    r")"
)
"""Symbols that extensions use: all but three that those of the atlas need and some releases lack."""


def symbols_of(library: bytes) -> set[str]:
    """Return the symbols that a library of torch defines and that are kept.

    Raises:
        ExamineError: the library cannot be read.
    """

    def read(offset: int, length: int) -> bytes:
        return library[offset : offset + length]

    found = elf.read_library(read)
    defined = elf.defined_symbols(read, found) if found is not None else None
    if defined is None:
        raise ExamineError("not a shared library whose symbols can be read")
    return {name for name in map(bytes.decode, defined) if KEPT.match(name)}


def symbols_of_release(reader: IndexReader, release: ListedRelease) -> set[str]:
    """Return the symbols that the libraries of a release define.

    Raises:
        ExamineError: the wheel cannot be read, or has another library.
    """
    archive = RemoteArchive(reader, release.wheels[0].url, LIMIT)
    names = [name for name in LIBRARIES if name in archive.sizes()]
    if len(names) != len(LIBRARIES):
        raise ExamineError(
            f"torch {release.version}: expected {', '.join(LIBRARIES)}; found {', '.join(names)}"
        )
    return set().union(*(symbols_of(data) for _, data in archive.read(names)))


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description="Propose a diff of compat/symbols/torch.txt.")
    parser.add_argument("--write", action="store_true", help="change the table")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to compare with")
    options = parser.parse_args(arguments)
    try:
        host = Host()
        page = listed_releases("torch", IndexReader(host, SECONDS).files("torch"), SINCE)
        releases = [each for each in page if each.wheels]
        symbols = {each.version: symbols_of_release(IndexReader(host, SECONDS), each) for each in releases}
    except ExamineError as error:
        print(error, file=sys.stderr)
        return 3
    before = options.table.read_text("utf-8") if options.table.is_file() else ""
    return propose(options.table, before, symbols_text(symbols), write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
