"""Fuzz the four parsers that read hostile bytes without a library, guided by the code that each input reaches.

    python -m tests.property.fuzz_parsers shell CORPUS -max_total_time=600    # needs atheris; options are libFuzzer's
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
from pathlib import Path
from typing import Any

from tests.property.fuzz_kinds import KINDS


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
                elf.describe_symbol(symbol.decode("utf-8", "replace"))

    return check


def _log() -> Callable[[bytes], None]:
    from envcheck.commands import loading
    from envcheck.logs.line_format import log_patterns
    from envcheck.logs.scanner import Scanner

    patterns = log_patterns(loading.source_tree()["tables"])

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


SEEDS: dict[str, tuple[bytes, ...]] = {
    "shell": tuple(
        each for name in ("train-shell", "train-slurm", "train-sourced") for each in KINDS[name].seeds
    ),
    "metadata": KINDS["metadata"].seeds,
    "elf": (smallest_library(),),
    "log": KINDS["log"].seeds,
}
"""What the corpus begins with: inputs that reach what lies behind the first check."""

WORDS: dict[str, tuple[bytes, ...]] = {
    "shell": (
        *b"if then elif else fi for in do done while case esac function local export shift set source eval exit".split(),
        *b"$( ` ${ $(( )) [[ ]] << <<- && || ;; ; | > 2>&1 $@ $# ${1:-x} ${a[@]} ${a%%x*} ${a//b/c}".split(),
        *b"torchrun deepspeed accelerate launch python -m --nproc_per_node srun bash -c #SBATCH EOT".split(),
    ),
    "metadata": (
        b"\nRequires-Dist: ", b"\nName: ", b"\nVersion: ", b" ; ", b" and ", b" or ", b" in ", b" not in ", b"(", b")", b"'",
        b"python_version", b"os_name", b"sys_platform", b"platform_machine", b"extra == ", b">=", b"~=", b"===", b".*", b"!",
        b"+local", b"[extra]", b" @ ", b"\n\t", b"\n\n", b"torch",
    ),
    "elf": (
        *(struct.pack("<Q", number) for number in (1, 5, 6, 10, 0x6FFFFEF5, 0x6FFFFFF0, 256, 4096, 2**63, 2**64 - 1)),
        b"\x7fELF\x02\x01\x01", b"\0libtorch.so\0", b"_ZN2at4_opsE", b".nv_fatbin\0", b"\x50\xed\x55\xba",
    ),
    "log": (
        b"Traceback (most recent call last):\n", b'  File "a.py", line 1, in f\n', b"\nDuring handling of the above", b"[rank1]: ",
        b"RuntimeError: ", b"CUDA out of memory", b"NCCL", b"Killed\n", b"Failures:\n", b"exitcode  : -9", b"\r", b"\x1b[0m", b"\xe2\x94\x82 ",
        b"ray::f() (pid=1, ip=1.1.1.1)\n", b"SyntaxError: ", b"^^^^\n", b"  traceback : ", b"ERROR:torch.distributed.elastic", b"Signal 9",
    ),
}  # fmt: skip
"""Words that libFuzzer puts into its inputs."""


def prepared(target: str, corpus: Path) -> Path:
    """Write the seeds into an empty corpus, and the words into a dictionary beside it; return that."""
    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        for number, seed in enumerate(SEEDS[target]):
            (corpus / f"seed-{number}").write_bytes(seed)
    dictionary = corpus.with_name(f"{corpus.name}.dict")
    spelled = ["".join(f"\\x{byte:02x}" for byte in word) for word in WORDS[target]]
    dictionary.write_text("".join(f'"{word}"\n' for word in spelled))
    return dictionary


def main(arguments: Sequence[str]) -> None:
    """Run libFuzzer on the parser that the first argument names."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=list(_MODULES)):
        check = TARGETS[arguments[0]]()
        for seed in SEEDS[arguments[0]]:  # imports what the parser imports when it is called
            check(seed)
    corpus = Path(arguments[1])
    options = [] if corpus.is_file() else [f"-dict={prepared(arguments[0], corpus)}"]
    atheris.Setup([sys.argv[0], *options, *arguments[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
