"""Fuzz the four parsers that read hostile bytes without a library, guided by the code that each input reaches.

    python -m tests.property.fuzz_parsers shell -max_total_time=600 CORPUS    # needs atheris; options are libFuzzer's
    python -m tests.property.fuzz_parsers elf CRASH-FILE                       # one input again

Parsers: `shell` (launch scripts), `metadata` (headers, requirements and markers), `elf` (shared libraries), `log`.
Each may raise what its documentation names, and nothing else.
"""

from __future__ import annotations

import contextlib
import importlib
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any


def _shell() -> Callable[[bytes], None]:
    from envcheck.core.errors import InputError
    from envcheck.training_config.readers import launch

    def check(data: bytes) -> None:
        with contextlib.suppress(InputError):
            launch.read(data.decode("utf-8", "replace"), "run.sh")

    return check


def _metadata() -> Callable[[bytes], None]:
    from envcheck.core.facts import Fact, Inventory, Known
    from envcheck.knowledge.generated_rules import metadata_rules, requirement_rules
    from envcheck.probes.distributions import header, requirements
    from envcheck.rules.requirements import check_requirements

    def check(data: bytes) -> None:
        head = b"\n" + data
        header(head, b"Name")
        lines = requirements(head)
        facts = {
            "pkg.evil": Fact("pkg.evil", Known("1.0"), "a"),
            "pkg.torch": Fact("pkg.torch", Known("2.6.0"), "a"),
            "pkg.evil.requires": Fact("pkg.evil.requires", Known(lines), "METADATA"),
        }
        found = check_requirements(Inventory(facts, complete=frozenset({"pkg"})))
        list(requirement_rules(found.unmet))
        list(metadata_rules(found.unreadable))

    return check


def _elf() -> Callable[[bytes], None]:
    from envcheck.core import elf

    def check(data: bytes) -> None:
        def read(offset: int, length: int) -> bytes:
            return data[offset : offset + length] if 0 <= offset < len(data) and length > 0 else b""

        library = elf.read_library(read)
        elf.gpu_architectures(read)
        if library is not None:
            exports = elf.Exports(read, library)
            for symbol in (elf.undefined_symbols(read, library) or ())[:50]:
                exports.define(symbol, elf.gnu_hash(symbol))
                elf.demangle(symbol.decode("utf-8", "replace"))

    return check


def _log() -> Callable[[bytes], None]:
    from envcheck.commands import examine
    from envcheck.logs.line_format import log_patterns
    from envcheck.logs.scanner import Scanner

    patterns = log_patterns(examine.source_tree()["tables"])

    def check(data: bytes) -> None:
        scanner = Scanner(patterns)
        for start in range(0, len(data), 300):
            scanner.feed(data[start : start + 300])
        log = scanner.finish()
        assert all(event.numbers for event in log.events)

    return check


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "shell": _shell,
    "metadata": _metadata,
    "elf": _elf,
    "log": _log,
}
_MODULES = ("envcheck.training_config", "envcheck.rules", "envcheck.core", "envcheck.logs", "envcheck.probes")


def smallest_library() -> bytes:
    """Return an ELF shared library with a dynamic section, as a seed for the corpus."""
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, 512, 512, 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 4, 256, 256, 256, 96, 96, 8)
    entries = struct.pack("<12Q", 5, 400, 10, 32, 6, 440, 0x6FFFFEF5, 480, 1, 1, 0, 0)
    names = b"\0libtorch.so\0_ZN2at4_ops\0"
    return (header + load + dynamic).ljust(256, b"\0") + entries.ljust(144, b"\0") + names.ljust(112, b"\0")


SEEDS = (
    b"torchrun --nproc_per_node $((N / 2)) train.py --bf16 true $(cat x) <<EOT\na\nEOT\nif [ $N -gt 1 ]; then :; fi\n",
    b"Name: a\nRequires-Dist: torch (>=2) ; python_version >= '3.8' and (os_name in 'posix' or extra == 'x')\n",
    smallest_library(),
    b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: CUDA error\nSyntaxError: x\n',
)


def main(arguments: Sequence[str]) -> None:
    """Run libFuzzer on the parser that the first argument names."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=list(_MODULES)):
        check = TARGETS[arguments[0]]()
        for seed in SEEDS:  # imports what the parser imports when it is called
            check(seed)
    atheris.Setup([sys.argv[0], *arguments[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
