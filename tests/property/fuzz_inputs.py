"""Fuzz whole commands: mutated files of every kind that envcheck reads, each in a process that is measured.

    python -m tests.property.fuzz_inputs --count 500                   # as the tests run it
    python -m tests.property.fuzz_inputs --count 20000 --seed nightly  # every night
    python -m tests.property.fuzz_inputs --kind pylock --seed 1 --number 17 --keep FOLDER   # one input again

An input is decided by its kind, the seed and its number, so a failure can be repeated. Each must end with a
documented exit code, without a traceback, within 5 s of processor time and 300 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import itertools
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.property.fuzz_kinds import KINDS

MOST_SECONDS = 5
MOST_MIB = 300
DOCUMENTED = frozenset({0, 1, 2, 3, 4})
USAGE = 2  # the exit code of input that cannot be read
_HANGS_AFTER_S = 60  # on a machine that is busy with other work
_LARGEST = 1 << 20
_BATCH = 20  # inputs that share a process, unless one of them is dear

FRAGMENTS = (
    b"[" * 70, b"{" * 70, b"(" * 3000, b"[" * 50_000, b"{" * 50_000, b".a" * 5000, b"a." * 40, b"9" * 5000, b"-" * 2000,
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\r\n", b"\n\n", b"\x0c", b"\x1b[2J", b"\xe2\x80\xae",
    b'"', b"'", b'"""', b"'''", b"\\", b"\\\n", b"#", b"//", b"/*", b"<<EOT\n", b"$(", b"${", b"$((1/0))", b"`", b"|", b";", b"&&",
    b"inf", b"nan", b"-0", b"1e999", b"0x", b"null", b"true", b"[]", b"{}", b"!!python/object:os.system ", b"&a [*a]", b"*a",
    b"<<: *b\n", b"? ", b": ", b"- ", b"=", b"==", b">=", b"===", b"~=9", b",", b"@", b"://", b"file://[", b"%00", b"../" * 50,
    b"Traceback (most recent call last):\n", b"SyntaxError: x\n", b'  File "a", line 1\n', b"Requires-Dist:", b"\n\t", b" " * 3000,
    b"python_version", b" and ", b" or (", b"extra == ", b"2026-02-30", b"1.0!2", b"2.6.0.*", b"+cu" + b"1" * 300,
)  # fmt: skip


def mutated(seed: bytes, choice: random.Random) -> bytes:
    """Return a text with some mistakes in it: bytes changed, parts removed, repeated, moved, and hostile ones added."""
    data = seed
    for _ in range(choice.choice((1, 1, 2, 3, 5, 9))):
        at = choice.randrange(len(data) + 1)
        end = min(len(data), at + choice.choice((1, 2, 5, 20, 100)))
        match choice.randrange(8):
            case 0 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes((choice.randrange(256),)) + data[at + 1 :]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + data[at:end] * choice.choice((2, 3, 50, 2000)) + data[end:]
            case 3:
                part, rest = data[at:end], data[:at] + data[end:]
                there = choice.randrange(len(rest) + 1)
                data = rest[:there] + part + rest[there:]
            case 4:
                data = data[:at]
            case 5:
                lines = data.split(b"\n")
                choice.shuffle(lines)
                data = b"\n".join(lines)
            case 6:
                line = choice.choice(data.split(b"\n"))[:3000] + b"\n"
                data = data[:at] + line * choice.choice((1, 10, 3000)) + data[at:]
            case _:
                data = data[:at] + choice.choice(FRAGMENTS) + data[at:]
        data = data[:_LARGEST]
    return data


class Input(NamedTuple):
    """One input: its kind and number, the bytes, and the command that reads it."""

    name: str
    number: int
    data: bytes
    command: tuple[str, ...]


def inputs(count: int, seed: str, kinds: Sequence[str]) -> Iterator[Input]:
    """Yield as many inputs, taking the kinds in turn."""
    for index in range(count):
        name = kinds[index % len(kinds)]
        yield made(name, index // len(kinds), seed)


def made(name: str, number: int, seed: str) -> Input:
    """Return the input of a kind with this number."""
    choice = random.Random(f"{seed}:{name}:{number}")  # noqa: S311 - repeatable, not secret
    kind = KINDS[name]
    return Input(name, number, mutated(choice.choice(kind.seeds), choice), choice.choice(kind.commands))


def write_files(given: Input, folder: Path) -> None:
    """Write the input and the files beside it."""
    kind = KINDS[given.name]
    for name, content in {**kind.beside, kind.file: given.data}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Outcome(NamedTuple):
    """How inputs that shared a process ended: what each one's command did wrong, and what it cost together."""

    faults: list[str]
    whole: bool  # the process reached its end
    mib: int


def faults(batch: Sequence[Input], run: Callable[[list[str]], int]) -> list[str]:
    """Return what is wrong with how each input of a batch ended, or ""; a process each if one was dear."""
    together = _run(batch, run)
    if together.whole and together.mib <= MOST_MIB:
        return together.faults
    if len(batch) == 1:
        return [f"took {together.mib} MiB" if together.whole else "ended its process: it crashed or hung"]
    return [fault for each in batch for fault in faults([each], run)]


def _run(batch: Sequence[Input], run: Callable[[list[str]], int]) -> Outcome:
    """Run the inputs in a process of their own."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as report:
        for number, given in enumerate(batch):
            write_files(given, Path(name, str(number)))
        child = os.fork()
        if child == 0:
            _run_in_child(batch, Path(name), run, report.fileno())
        watchdog = threading.Timer(_HANGS_AFTER_S, os.kill, (child, signal.SIGKILL))
        watchdog.start()
        _, status, usage = os.wait4(child, 0)
        watchdog.cancel()
        report.seek(0)
        found = [
            line.replace("\x1f", "\n") for line in report.read().decode("utf-8", "replace").split("\n")[:-1]
        ]
    return Outcome(found, status == 0 and len(found) == len(batch), usage.ru_maxrss // 1024)


def _run_in_child(batch: Sequence[Input], folder: Path, run: Callable[[list[str]], int], report: int) -> None:
    """Run the commands as their processes would, and write a line on each; never return."""
    try:
        gc.disable()  # as __main__ does
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        for number, given in enumerate(batch):
            os.chdir(folder / str(number))
            start = time.process_time()
            said = _complaint(given, run)
            seconds = time.process_time() - start
            if not said and seconds > MOST_SECONDS:
                said = f"took {seconds:.1f} s"
            os.write(report, said[-3000:].replace("\n", "\x1f").encode("utf-8", "replace") + b"\n")
            gc.collect()
    finally:
        os._exit(0)


def _complaint(given: Input, run: Callable[[list[str]], int]) -> str:
    """Run a command with its output kept; return what it did that it must not do, or ""."""
    err = sys.stderr = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    sys.stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
    try:
        code = run(list(given.command))
        text = err.buffer.getvalue().decode("utf-8", "replace")
        if "internal error" in text:
            os.environ["ENVCHECK_DEBUG"] = "1"  # noqa: TID251 - the same again, with its traceback
            run(list(given.command))
    except BaseException:  # noqa: BLE001 - whatever leaves a command is what is looked for
        return traceback.format_exc()
    finally:
        os.environ.pop("ENVCHECK_DEBUG", None)  # noqa: TID251
    return "" if code in DOCUMENTED else f"exit code {code}: {text}"


def warm_up(run: Callable[[list[str]], int]) -> None:
    """Run each command once on its unchanged seed, so that the children find everything imported."""
    for name, kind in KINDS.items():
        for command in kind.commands:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                write_files(Input(name, 0, kind.seeds[0], command), Path())
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    run(list(command))


def refused_seeds(run: Callable[[list[str]], int]) -> Iterator[str]:
    """Yield the seeds that a command refuses to read."""
    for name, kind in KINDS.items():
        for number, seed in enumerate(kind.seeds):
            for command in kind.commands:
                with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                    write_files(Input(name, number, seed, command), Path())
                    said = io.StringIO()
                    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                        code = run(list(command))
                if code == USAGE:
                    yield f"{name} {number}: {' '.join(command)}: {said.getvalue()}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; print a line for each failure and return 1 if there is one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--number", type=int, help="only this input of the kinds")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    parser.add_argument("--seeds", action="store_true", help="only run each command on its unchanged seeds")
    parser.add_argument("--part", default="0/1", help="run every nth input: 0/2 and 1/2 together are all")
    options = parser.parse_args(arguments)
    from envcheck.__main__ import main as _  # noqa: F401 - as the program starts
    from envcheck.cli.main import run

    def start(words: list[str]) -> int:
        if "--runtime" in words:
            from envcheck.commands.gate_runtime import run as run_runtime

            return run_runtime(words)
        return run(words)

    if options.seeds:
        refused = list(refused_seeds(start))
        print(*refused, sep="\n", end="\n" if refused else "")  # noqa: T201
        return int(bool(refused))
    warm_up(start)
    kinds = options.kind or list(KINDS)
    part, parts = map(int, options.part.split("/"))
    chosen: Iterator[Input]
    if options.number is None:
        chosen = itertools.islice(inputs(options.count, options.seed, kinds), part, None, parts)
    else:
        chosen = (made(name, options.number, options.seed) for name in kinds)
    tried = failures = 0
    while batch := list(itertools.islice(chosen, _BATCH)):  # 20,000 inputs at once are 1 GiB
        tried += len(batch)
        for given, problem in zip(batch, faults(batch, start), strict=True):
            if problem:
                failures += 1
                _report(given, problem, options.seed, options.keep)
    print(f"{tried} inputs of {len(kinds)} kinds, seed {options.seed}: {failures} failures")  # noqa: T201
    return int(failures > 0)


def _report(given: Input, problem: str, seed: str, keep: Path | None) -> None:
    label = f"{given.name}-{seed}-{given.number}"
    print(f"{label}: {' '.join(given.command)}: {problem}", flush=True)  # noqa: T201
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / label).write_bytes(given.data)


if __name__ == "__main__":
    sys.exit(main())
