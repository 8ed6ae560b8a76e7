"""Compare `pin --resolve` with the resolvers alone: `python benchmarks/resolve.py [RUNS] [PIP_TOOLS_RUNS]`.

Installs envcheck with its resolvers into a fresh environment and lets `pin --resolve` choose versions once.
Then each resolver in turn resolves the same packages, through envcheck and alone with the same settings.
Figures are CPU seconds of the process and its children; the ratio is the median of the ratios of all pairs; F
is `python -c pass`. The packages come from your own index. The first round fills the caches and is not
counted.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess  # noqa: TID251 - a benchmark starts what it measures
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ("pin", "--target", "zero3-lora", "--driver", "580.65.06", "--resolve")
STACK = ("torch", "deepspeed", "transformers", "peft", "accelerate", "setuptools", "nvidia-ml-py")
START_F = 12
"""Allowed cost of envcheck's start-up, in addition to the allowed ratio."""

FAST = "--use-feature=fast-deps --only-binary=:all: --no-binary=deepspeed"


def main(runs: int, runs_of_piptools: int) -> None:
    """Prepare the environment, measure, and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = _environment(folder)
        python = "{}.{}".format(*sys.version_info)
        ours = [str(programs / "envcheck"), *TARGET, "--python-version", python]
        _cpu([*ours, "-o", str(folder / "lock.txt")], os.environ)  # noqa: TID251 - the user's own index
        pins = re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", (folder / "lock.txt").read_text())
        requirements = folder / "requirements.in"
        requirements.write_text("".join(f"{name}=={version}\n" for name, version in pins if name in STACK))
        architecture = os.uname().machine
        uv = [
            *(str(programs / "uv"), "pip", "compile", "--no-config", "--generate-hashes", "--no-header"),
            *("--python-version", python, "--python-platform", f"{architecture}-manylinux_2_28"),
            *(
                "--only-binary",
                ":all:",
                "--no-binary",
                "deepspeed",
                "-o",
                str(folder / "uv.txt"),
                str(requirements),
            ),
        ]
        piptools = [
            *(
                str(programs / "python"),
                "-m",
                "piptools",
                "compile",
                "--no-config",
                "--no-header",
                "--strip-extras",
            ),
            *("--allow-unsafe", f"--pip-args={FAST}", "-o", str(folder / "pip.txt"), str(requirements)),
        ]
        floor = [str(programs / "python"), "-c", "pass"]
        print(f"{'engine':<10} {'alone s':>8} {'with envcheck s':>16} {'ratio':>6} {'less 12 F':>10}  budget")
        _pairs("uv", [*ours, "--engine", "uv"], uv, floor, runs, "<= 1.2 after 12 F")
        _pairs("pip-tools", [*ours, "--engine", "pip-tools"], piptools, floor, runs_of_piptools, "<= 1.3")


def _pairs(
    name: str, ours: Sequence[str], alone: Sequence[str], floor: Sequence[str], runs: int, budget: str
) -> None:
    environ = _resolver_environment()
    rows = []
    for each in range(runs + 1):
        row = _cpu(floor, environ), _cpu(alone, environ), _cpu(ours, os.environ)  # noqa: TID251
        rows += [row] if each else []
    if rows:
        bare, through = (statistics.median(row[which] for row in rows) for which in (1, 2))
        ratio = statistics.median(own / base for _, base, own in rows)
        less = statistics.median((own - START_F * start) / base for start, base, own in rows)
        print(f"{name:<10} {bare:8.2f} {through:16.2f} {ratio:6.2f} {less:10.2f}  {budget}", flush=True)


def _resolver_environment() -> dict[str, str]:
    """Return the environment in which envcheck starts a resolver: one index, no wheel folders."""
    sys.path.insert(0, str(ROOT))
    from envcheck.host.machine import Host
    from envcheck.resolver_backends.index.settings import backend_environment, user_index

    index = user_index(Host())
    named = {"PIP_INDEX_URL": index.url, "UV_DEFAULT_INDEX": index.url} if index.url else {}
    return backend_environment(Host(), index, {"PIP_CONFIG_FILE": os.devnull, **named})


def _cpu(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Return the CPU seconds of a command and of all processes for which it waited."""
    with Path(os.devnull).open("wb") as nowhere, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=nowhere, stderr=errors, env=dict(environ), cwd="/")
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            errors.seek(0)
            sys.exit(f"{command[0]} failed: {errors.read()[-2000:].decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime


def _environment(folder: Path) -> Path:
    venv.create(folder / "env", with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{ROOT}[resolve]"]
    subprocess.run([str(folder / "env/bin/python"), *install], check=True)
    return folder / "env/bin"


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:3]]
    main(*(given + [9, 2][len(given) :]))
