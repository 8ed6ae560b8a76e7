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
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MOST_SECONDS = 5
MOST_MIB = 300
DOCUMENTED = frozenset({0, 1, 2, 3, 4})
_HANGS_AFTER_S = 60  # on a machine that is busy with other work
_LARGEST = 1 << 20
_BATCH = 20  # inputs that share a process, unless one of them is dear

FACTS = b"""complete = ["pkg"]
[python]
version = "3.11.7"
[pkg]
torch = "2.6.0+cu124"
deepspeed = "0.15.4"
peft = { version = "0.14.0", requires = ["torch>=1.13", "numpy; python_version < '3.10' and extra == 'x'"] }
[driver]
version = "535.54"
[train]
zero_stage = 3
[[gpu]]
name = "NVIDIA A100-SXM4-80GB"
compute_capability = "8.0"
[unknown]
"cuda.toolkit" = "not read"
"""
FACTS_JSON = (
    b'{"complete": ["pkg"], "pkg": {"torch": "2.6.0", "peft": {"version": "0.14", "requires": ["torch>9"]}},'
    b' "gpu": [{"name": "A100", "memory_mib": 81920}], "gpus": {"count": 1}, "env": {"NCCL_ALGO": "Ring"}}'
)
SHA = b"sha256:" + b"0123456789abcdef" * 4


class Kind(NamedTuple):
    """A kind of input: the file that is mutated, what is in it, other files, and the commands that read it."""

    file: str
    seeds: tuple[bytes, ...]
    commands: tuple[tuple[str, ...], ...]
    beside: Mapping[str, bytes] = {}


def _of_environment(file: str, *seeds: bytes, beside: Mapping[str, bytes] | None = None) -> Kind:
    """Return the kind of a file in a virtual environment, which is read without running anything."""
    site = "env/lib/python3.11/site-packages"
    files = {
        "env/pyvenv.cfg": b"home = /usr/bin\nversion = 3.11.7\n",
        "env/bin/python": b"#!/bin/false\n",
        f"{site}/torch-2.6.0.dist-info/METADATA": b"Name: torch\nVersion: 2.6.0\nRequires-Dist: filelock\n",
        f"{site}/asks-1.0.dist-info/METADATA": b"Name: asks\nVersion: 1.0\nRequires-Dist: torch>=2.7\n",
        **{f"{site}/{name}": content for name, content in (beside or {}).items()},
    }
    commands = (
        ("doctor", "--static", "--python", "env"),
        ("gate", "--static", "--python", "env", "--verify-files", "--no-manifest", "--format", "json"),
    )
    return Kind(f"{site}/{file}" if not file.startswith("env/") else file, seeds, commands, files)


def _train(file: str, *seeds: bytes) -> Kind:
    return Kind(file, seeds, (("doctor", "--facts", "facts.toml", "--train", file),), {"facts.toml": FACTS})


def _listing(file: str, *seeds: bytes) -> Kind:
    return Kind(file, seeds, (("check", file), ("check", file, "--format", "sarif")))


EVIL = "evil-1.0.dist-info"
HEAD = b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"
KINDS: Mapping[str, Kind] = {
    "facts-toml": Kind(
        "facts.toml",
        (FACTS,),
        tuple(("doctor", "--facts", "facts.toml", "--format", each) for each in ("text", "html")),
    ),
    "facts-json": Kind(
        "facts.json",
        (FACTS_JSON,),
        tuple(("gate", "--facts", "facts.json", "--format", each) for each in ("json", "junit")),
    ),
    "settings": Kind(
        "envcheck.toml",
        (
            (
                b'threshold = "warning"\nundecided = "fail"\nmachines = ["a"]\n[severity]\n"a" = "error"\n'
                b'[machine.a]\ndriver = "535.54"\ngpu = ["A100 80GB"]\n[[waive]]\nrule = "a"\nreason = "b"\nuntil = 2030-01-01\n'
            ),
        ),
        (("gate", "--facts", "facts.toml", "--no-manifest"),),
        {"facts.toml": FACTS},
    ),
    "overlay": Kind(
        "own.toml",
        (
            (
                b'[[rule]]\nid = "own"\nseverity = "error"\nbasis = "measured"\ntitle = "t"\nwhy = "w"\n'
                b'when = { "pkg.torch" = ">=2.6,<2.7", "gpu.name" = "present" }\n[[rule.fix]]\nset = { "pkg.torch" = ">=2.7" }\n'
                b'[[rule.sources]]\nurl = "https://corp.example/1"\nkind = "issue"\nchecked = 2026-11-01\n'
                b'[target.mine]\npackages = ["torch"]\ntrain = { zero_stage = 3 }\n[machine.m]\ndriver = "535.54"\n'
            ),
        ),
        (
            ("doctor", "--facts", "facts.toml", "--matrix", "own.toml"),
            ("matrix", "show", "--matrix", "own.toml"),
        ),
        {"facts.toml": FACTS},
    ),
    "requirements": _listing(
        "requirements.txt",
        b"torch==2.6.0+cu124 --hash=" + SHA + b"\n-r other.txt\ndeepspeed>=0.15 ; python_version < '3.12'\n"
        b"--extra-index-url https://download.example/whl/cu124\npeft @ https://x.example/peft-0.14.0-py3-none-any.whl\n",
    ),
    "pylock": _listing(
        "pylock.toml",
        b'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\n'
        b'marker = "python_version >= \'3.9\'"\nwheels = [{ name = "torch-2.6.0-py3-none-any.whl", '
        b'url = "https://x.example/t.whl", hashes = { sha256 = "00" } }]\n',
    ),
    "conda": _listing(
        "environment.yml",
        b"name: train\nchannels: [pytorch, nvidia]\ndependencies:\n  - python=3.11\n  - pytorch=2.4.0=py3.11_cuda12.1\n"
        b"  - pytorch-cuda=12.1\n  - &a numpy=1.26.4\n  - pip:\n    - peft==0.14.0\n",
    ),
    "dockerfile": _listing(
        "Dockerfile",
        b"# syntax=docker/dockerfile:1\nARG V=2.6.0\nFROM nvidia/cuda:12.4.1-devel-ubuntu22.04 AS build\n"
        b"ENV A=1\nRUN pip install torch==${V} \\\n  deepspeed==0.15.4 && rm -rf /x\nCOPY <<EOT /r.txt\nnumpy==2.0\nEOT\n"
        b'RUN ["pip", "install", "peft"]\nFROM build\nRUN python3 -m pip install -r /r.txt\n',
    ),
    "pyproject": _listing(
        "pyproject.toml",
        b'[project]\nname = "x"\ndependencies = ["torch==2.6.0", "peft>=0.14"]\ndynamic = ["version"]\n',
    ),
    "lock": Kind(
        "lock.txt",
        (
            b"# envcheck: lock=1 target=zero3-lora\ntorch==2.6.0 --hash="
            + SHA
            + b"\npeft==0.14.0 \\\n  --hash="
            + SHA
            + b"\n",
        ),
        (("gate", "--facts", "facts.toml", "--lock", "lock.txt", "--no-manifest"),),
        {"facts.toml": FACTS},
    ),
    "train-yaml": _train(
        "train.yaml",
        b"model_name_or_path: x\nfinetuning_type: lora\ndeepspeed: ds.json\nbf16: true\nlearning_rate: 1.0e-4\n"
        b"base: &b {a: 1}\nmore:\n  <<: *b\n  list: [1, no, ~]\n",
    ),
    "train-json": _train(
        "ds.json",
        b'{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true},\n'
        b' // a comment\n "train_batch_size": "auto", "gradient_clipping": 1.0}\n',
    ),
    "train-shell": _train(
        "run.sh",
        b'#!/bin/bash\nset -e\nN=${SLURM_NNODES:-2}\nARGS="--bf16 true $(cat x)"\nfor i in 1 2 3; do echo $i; done\n'
        b"if [ $N -gt 1 ]; then P=$((N * 8 / 2)); else P=8; fi\ncase $P in 8) X=1;; *) X=2;; esac\n"
        b"torchrun --nproc_per_node $P train.py --deepspeed ds.json $ARGS <<EOT\nhello\nEOT\n",
    ),
    "nodes": Kind(
        "nodes.jsonl",
        (FACTS_JSON + b"\n" + FACTS_JSON.replace(b"Ring", b"Tree") + b'\n{\n"host": {"name": "n3"}\n}\n',),
        (("fleet", "nodes.jsonl"), ("fleet", "nodes.jsonl", "--json", "--expect", "n[1-3]")),
    ),
    "node-toml": Kind("node.toml", (FACTS,), (("fleet", "node.toml"),)),
    "manifest": Kind(
        "manifest.json",
        (
            (
                b'{"schema_version": 1, "envcheck": "0.1.0", "date": "2026-11-20", "python": "3.11.7", "platform": "linux-x86_64",'
                b' "packages": {"torch": "2.6.0"}, "cuda": "12.4", "minimum_driver": "525.60.13", "architectures": ["sm_80"],'
                b' "unknown": {}, "machines": [{"name": "a", "driver": "535.54", "gpus": ["A100"]}], "gate": {"verdict": "open"}}'
            ),
        ),
        (("gate", "--runtime", "--manifest", "manifest.json", "--timeout", "1"),),
    ),
    "log": Kind(
        "train.log",
        (
            (
                b'[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/train.py", line 3, in main\n'
                b"[rank0]:     x()\n[rank0]: RuntimeError: CUDA error: no kernel image is available for execution\n"
                b"  File \"a.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n"
                b'ray.exceptions.RayTaskError(ValueError): ray::f()\n  File "t.py", line 2, in f\nValueError: x\n'
                b"Failures:\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 12)\n  error_file: <N/A>\n"
                b"  traceback : Signal 9 (SIGKILL) received\n 50%|#####     | 5/10 [00:01<00:01]\r 60%|\nKilled\n"
            ),
        ),
        (
            ("explain", "train.log", "--facts", "facts.toml"),
            ("explain", "train.log", "--json", "--facts", "facts.toml"),
        ),
        {"facts.toml": FACTS},
    ),
    "model": Kind(
        "model/config.json",
        (
            (
                b'{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,'
                b' "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "torch_dtype": "bfloat16"}'
            ),
        ),
        (("fit", "--model", "model", "--facts", "facts.toml"),),
        {"facts.toml": FACTS},
    ),
    "safetensors": Kind(
        "model/model.safetensors",
        (
            (
                b"\x60\0\0\0\0\0\0\0"
                b'{"__metadata__": {}, "a.weight": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [0, 128]}}    '
            ),
        ),
        (("fit", "--model", "model", "--facts", "facts.toml"),),
        {"facts.toml": FACTS, "model/config.json": b'{"model_type": "unheard-of"}'},
    ),
    "metadata": _of_environment(
        f"{EVIL}/METADATA",
        HEAD
        + b"Requires-Dist: torch (>=2.0,<3) ; python_version >= '3.8' and (os_name == 'posix' or extra == 'x')\n"
        b"Requires-Dist: numpy\n  >=1.20\nRequires-Dist: a[b,c]~=1.0\nRequires-Dist: u @ https://x.example/u.whl\n\nText\n",
    ),
    "record": _of_environment(
        f"{EVIL}/RECORD",
        b'evil/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\nevil/_C.cpython-311-x86_64-linux-gnu.so,,\n"a,b.py",,\n',
        beside={f"{EVIL}/METADATA": HEAD + b"Requires-Dist: torch\n", "evil/__init__.py": b""},
    ),
    "direct-url": _of_environment(
        f"{EVIL}/direct_url.json",
        b'{"dir_info": {"editable": true}, "url": "file:///src/evil"}',
        beside={f"{EVIL}/METADATA": HEAD, "evil.pth": b"/src/evil\n"},
    ),
    "egg": _of_environment("evil.egg-link", b"/src/evil\n."),
    "requires-txt": _of_environment(
        "evil-1.0.egg-info/requires.txt",
        b"torch>=2\n\n[x]\nnumpy\n\n[:python_version < '3.9']\nsix\n",
        beside={"evil-1.0.egg-info/PKG-INFO": HEAD},
    ),
    "pth": _of_environment("evil.pth", b"/src/evil\nimport os; os.x\n../site-packages\n"),
    "pyvenv": _of_environment(
        "env/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.7\n"
    ),
    "version-py": _of_environment(
        "torch/version.py",
        b"from typing import Optional\n__version__ = '2.6.0+cu124'\ndebug = False\ncuda: Optional[str] = '12.4'\n",
    ),
    "conda-meta": _of_environment(
        "env/conda-meta/pytorch-2.6.0-py3.11_cuda12.4_0.json",
        b'{"name": "pytorch", "files": ["lib/python3.11/site-packages/x"]}',
    ),
}

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
                line = choice.choice(data.split(b"\n")) + b"\n"
                data = data[:at] + line * choice.choice((1, 10, 3000)) + data[at:]
            case _:
                data = data[:at] + choice.choice(FRAGMENTS) + data[at:]
    return data[:_LARGEST]


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
    parser.add_argument("--part", default="0/1", help="run every nth input: 0/2 and 1/2 together are all")
    options = parser.parse_args(arguments)
    from envcheck.__main__ import main as _  # noqa: F401 - as the program starts
    from envcheck.cli.main import run

    def start(words: list[str]) -> int:
        if "--runtime" in words:
            from envcheck.commands.gate_runtime import run as run_runtime

            return run_runtime(words)
        return run(words)

    warm_up(start)
    kinds = options.kind or list(KINDS)
    part, parts = map(int, options.part.split("/"))
    if options.number is None:
        chosen = [
            each
            for index, each in enumerate(inputs(options.count, options.seed, kinds))
            if index % parts == part
        ]
    else:
        chosen = [made(name, options.number, options.seed) for name in kinds]
    failures = 0
    for start_at in range(0, len(chosen), _BATCH):
        batch = chosen[start_at : start_at + _BATCH]
        for given, problem in zip(batch, faults(batch, start), strict=True):
            if problem:
                failures += 1
                _report(given, problem, options.seed, options.keep)
    print(f"{len(chosen)} inputs of {len(kinds)} kinds, seed {options.seed}: {failures} failures")  # noqa: T201
    return int(failures > 0)


def _report(given: Input, problem: str, seed: str, keep: Path | None) -> None:
    label = f"{given.name}-{seed}-{given.number}"
    print(f"{label}: {' '.join(given.command)}: {problem}", flush=True)  # noqa: T201
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / label).write_bytes(given.data)


if __name__ == "__main__":
    sys.exit(main())
