"""Overlays: releases in separate folders that are added to a Python with torch, to run programs with them."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess  # noqa: TID251 - a benchmark starts what it measures
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envcheck.commands.atlas_tables import release_table

SOURCE_ONLY = {"deepspeed", "autoawq", "hqq"}
"""Packages whose build needs torch or a compiler; their Python files are used without building."""

LINKED = {"deepspeed": {"deepspeed/ops/op_builder": "op_builder", "deepspeed/accelerator": "accelerator"}}
"""Links that a package's setup.py creates on installation, with the folders that they point to."""

OF_THE_BASE = ("torch", "triton", "nvidia-", "cuda-")
OF_TORCH = ("typing-extensions", "sympy", "networkx", "jinja2", "filelock")
"""Packages that torch itself requires, in releases that may be newer than a draw's day."""

DEADLINE_S = 150
SERVER = """
import importlib, json, os, signal, socket, sys, time, traceback
import torch

def become_ranks(processes):
    # Fork all ranks but this one, which is the first, with the variables of torch's launcher.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    os.environ.update(RANK="0", LOCAL_RANK="0", GLOO_SOCKET_IFNAME="lo")
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(processes)
    for rank in range(1, processes):
        if os.fork() == 0:
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
            signal.alarm(job["deadline"])
            return

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.path[:0] = job["paths"]
        importlib.invalidate_caches()
        os.chdir(job["folder"])
        os.environ["HOME"] = os.environ["HF_HOME"] = job["folder"]
        os.environ.update(job.get("environment", {}))
        if job.get("processes"):
            os.setpgid(0, 0)
        signal.alarm(job["deadline"])
        sys.stdout = sys.stderr
        ending = 0
        try:
            names = {"__name__": "__main__", "become_ranks": become_ranks}
            exec(compile(job["code"], "program.py", "exec"), names)
        except BaseException as error:
            ending = 1
            text = "".join(traceback.format_exception(error))
            while error.__cause__ is not None:
                error = error.__cause__
            frames = [each.filename for each in traceback.extract_tb(error.__traceback__)]
            last = traceback.extract_tb(error.__traceback__)[-1]
            frames = [each for each in frames if "importlib" not in each and "frozen" not in each]
            summary = traceback.format_exception_only(error)[-1].strip()
            found = {"error": summary, "frames": frames, "line": last.lineno, "trace": text[-3000:]}
            try:
                with open("error", "x") as file:
                    json.dump(found, file)
            except FileExistsError:
                time.sleep(60)  # another rank failed first, and ends this one
            if job.get("processes"):
                os.killpg(0, signal.SIGKILL)
        if job.get("processes") and os.environ.get("RANK") == "0":
            for _ in range(job["processes"] - 1):
                os.wait()
        os._exit(ending)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A program that imports torch once and forks for each job.

Overlays with another numpy than the base's need a fresh process instead, because torch has imported numpy.
"""


def command_line(purpose: str | None, steps: Sequence[str], draws: int) -> argparse.ArgumentParser:
    """Return a parser with the options of what draws releases and runs them."""
    parser = argparse.ArgumentParser(description=purpose.splitlines()[0] if purpose else None)
    parser.add_argument("step", choices=steps)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--base", action="append", default=[], help="a Python that has torch; repeatable")
    parser.add_argument("--work", type=Path, help="folder of the overlays and of uv's cache")
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", dest="output", type=Path)
    return parser


class Overlays:
    """Resolves, unpacks and runs sets of releases."""

    def __init__(self, uv: str, work: Path, pythons: Sequence[str]) -> None:
        """Read what is installed in the bases; `pythons` are their interpreters."""
        self._uv, self._work = uv, work
        # dill takes modules elsewhere for the program's own, and pickles them whole.
        self._laid = work / "site-packages" / "overlays"
        self._servers: dict[tuple[str, bool], subprocess.Popen[str]] = {}
        self._bases: dict[str, tuple[str, dict[str, str]]] = {}
        for python in pythons:
            table = "{each.name: each.version for each in metadata.distributions()}"
            code = f"import json; from importlib import metadata; print(json.dumps({table}))"
            found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
            installed = {str(canonicalize_name(name)): one for name, one in json.loads(found.stdout).items()}
            if _has_pkg_resources(installed.get("setuptools", "82")):
                raise SystemExit(f"{python}: uninstall setuptools; every draw would use its pkg_resources")
            self._bases[installed["torch"].partition("+")[0]] = python, installed
        self.torches = sorted(self._bases)

    def resolve(
        self,
        pinned: Mapping[str, str],
        torch: str,
        day: dt.date,
        more: Sequence[str] = (),
        *,
        newer_torch: bool = False,
    ) -> dict[str, str] | None:
        """Return the releases of an environment with the pinned ones, as of a day; None if there is none.

        `more` names packages that are installed too, in any release. With `newer_torch`, that of the base is
        left out of the resolution, because it was published after the day.
        """
        base = self._bases[torch][1]
        fixed: dict[str, str] = {name: base[name] for name in ("torchvision", "torchaudio") if name in base}
        fixed.update(pinned, torch=torch)
        wanted = [package for package in more if package not in pinned]
        for package, version in fixed.items():
            if package in SOURCE_ONLY:
                row = release_table().row(package, version)
                wanted += [text for text in (row.requires if row else ()) if "extra ==" not in text]
            elif package in {**pinned, "torch": torch} and not (newer_torch and package == "torch"):
                wanted.append(f"{package}=={version}")
        with tempfile.TemporaryDirectory() as scratch:
            done = self._compile(
                Path(scratch, "overrides.txt"), fixed, pinned, wanted, torch, day, newer_torch=newer_torch
            )
        if done is None:
            return None
        found = {}
        for line in done.splitlines():
            if "==" in line:
                requirement = Requirement(line)
                found[str(canonicalize_name(requirement.name))] = str(requirement.specifier).removeprefix(
                    "=="
                )
        found |= {
            package: fixed[package] for package in fixed if package in {*pinned, "torch"} or package in found
        }
        if newer_torch:
            found |= {name: base[name] for name in OF_TORCH if name in base and name in found}
        return {name: version.partition("+")[0] for name, version in sorted(found.items())}

    def _compile(
        self,
        overrides: Path,
        fixed: Mapping[str, str],
        pinned: Mapping[str, str],
        wanted: Sequence[str],
        torch: str,
        day: dt.date,
        *,
        newer_torch: bool,
    ) -> str | None:
        """Return uv's output, or None if it finds no solution.

        Try the base's numpy and the published requirements on torch; then override the requirements on torch;
        then leave numpy free too.
        """
        python, base = self._bases[torch]
        after = (day + dt.timedelta(days=20)).replace(day=28)
        command = [self._uv, "pip", "compile", "-q", "-", "--override", str(overrides), "--no-header"]
        command += ["--no-annotate", "--exclude-newer", str(after), "--only-binary", ":all:"]
        command += ["-p", python, "--no-config"]
        numpy = [] if "numpy" in fixed else [f"numpy=={base['numpy']}"]
        for more, keep in ((numpy, {"torch"} - pinned.keys()), (numpy, set()), ([], set())):
            lines = [
                f"{one}=={version}" for one, version in fixed.items() if one not in {*SOURCE_ONLY, *keep}
            ]
            left_out = {*SOURCE_ONLY, "torch"} if newer_torch else SOURCE_ONLY
            lines = [line for line in lines if not (newer_torch and line.startswith("torch=="))]
            lines += [f'{package}; python_version < "3"' for package in fixed if package in left_out]
            overrides.write_text("\n".join(lines))
            done = subprocess.run(
                command,
                input="\n".join([*wanted, *more]),
                capture_output=True,
                text=True,
                check=False,
                env=self._environment(),
            )
            if done.returncode == 0:
                return done.stdout
        return None

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "UV_CACHE_DIR": str(self._work / "uvcache")}  # noqa: TID251 - a benchmark is a user

    def folders(self, python: str, versions: Mapping[str, str]) -> list[Path] | None:
        """Return the folders of releases, creating missing ones; None if a release cannot be unpacked."""
        self._laid.mkdir(parents=True, exist_ok=True)
        targets = {package: self._laid / f"{package}-{version}" for package, version in versions.items()}
        missing = {package: version for package, version in versions.items() if not targets[package].exists()}
        for package in SOURCE_ONLY & missing.keys():
            if self._from_source(python, package, missing.pop(package), targets[package]) is None:
                return None
        if missing and not self._unpack(python, missing, targets):
            return None
        return [*targets.values()]

    def _unpack(self, python: str, missing: Mapping[str, str], targets: Mapping[str, Path]) -> bool:
        """Make uv unpack wheels into its cache, and link the folder of each."""
        with tempfile.TemporaryDirectory() as scratch:
            command = [self._uv, "pip", "install", "-q", "--no-deps", "--no-config", "--only-binary", ":all:"]
            command += ["-p", python, "--target", scratch, "--link-mode", "symlink"]
            command += [f"{package}=={version}" for package, version in missing.items()]
            if subprocess.run(command, capture_output=True, check=False, env=self._environment()).returncode:
                return False
            for file in Path(scratch).glob("*.dist-info/METADATA"):
                name = str(canonicalize_name(file.parent.name.split("-")[0]))
                link = self._laid / f"{name}.{os.getpid()}"
                link.symlink_to(file.resolve().parent.parent)
                link.rename(targets[name])
        return all(targets[name].exists() for name in missing)

    def _from_source(self, python: str, package: str, version: str, target: Path) -> Path | None:
        import zipfile

        stored = self._work / "store" / package / f"{version}.zip"
        if not stored.is_file():
            return target if self._built(python, f"{package}=={version}", target) else None
        with zipfile.ZipFile(stored) as archive:
            archive.extractall(target)
        for link, source in LINKED.get(package, {}).items():
            if not (target / link).exists():
                (target / link).symlink_to(target / source)
        info = target / f"{package.replace('-', '_')}-{version}.dist-info"
        if not info.exists():
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        return target

    def _built(self, python: str, release: str, target: Path) -> bool:
        """Build a release and install it into a folder; return whether that worked."""
        command = [self._uv, "pip", "install", "-q", "--no-deps", "--no-config", "-p", python]
        command += ["--target", f"{target}.{os.getpid()}", release]
        environment = {**self._environment(), "DS_BUILD_OPS": "0"}
        if subprocess.run(command, capture_output=True, check=False, env=environment).returncode:
            return False
        Path(f"{target}.{os.getpid()}").rename(target)
        return True

    def run(self, row: Mapping[str, Any], program: str) -> dict[str, Any]:
        """Run a program with the releases of a draw.

        Return `ok` (None if it could not be run), `error`, `asker` (the package whose code failed), `trace`.
        A draw may have `processes` and an `environment`. Its program calls `become_ranks` after its imports
        to go on in so many processes, as if torch's launcher had started each.
        """
        python, base = self._bases[row["torch"]]
        laid = {
            package: version
            for package, version in row["versions"].items()
            if not package.startswith(OF_THE_BASE) or (package.startswith("torch") and package != "torch")
        }
        laid = {
            package: version for package, version in laid.items() if _public(base.get(package)) != version
        }
        folders = self.folders(python, laid)
        if folders is None:
            return {"ok": None, "error": "a release has no wheel", "asker": ""}
        paths, numpy_differs = [str(one) for one in folders], "numpy" in laid
        with tempfile.TemporaryDirectory() as scratch:
            job = {"paths": paths, "folder": scratch, "code": program, "deadline": DEADLINE_S}
            job |= {key: row[key] for key in ("processes", "environment", "deadline") if row.get(key)}
            code = self._fresh(python, job) if numpy_differs else self._forked(python, job)
            file = Path(scratch, "error")
            code = abs(code) if file.is_file() else code
            found = json.loads(file.read_text()) if file.is_file() else {"error": str(code), "frames": []}
        asker = next((name for name in map(_distribution, reversed(found["frames"])) if name), "")
        place = next((one for one in reversed(found["frames"])), "").split("overlays/")[-1]
        return {
            "ok": None if code < 0 else code == 0,
            "error": f"{found['error']} ({place}:{found.get('line', 0)})" if code > 0 else str(code),
            "asker": asker,
            "trace": found.get("trace", ""),
        }

    def _fresh(self, python: str, job: Mapping[str, Any]) -> int:
        code = SERVER.replace("import torch\n", "", 1)
        done = subprocess.run(
            [python, "-c", code],
            input=json.dumps(job) + "\n",
            capture_output=True,
            text=True,
            check=False,
            env=_quiet(job["paths"]),
        )
        return int(done.stdout.split()[-1]) if done.stdout.split() else -1

    def _forked(self, python: str, job: Mapping[str, Any]) -> int:
        server = self._servers.get((python, True))
        if server is None or server.poll() is not None:
            server = self._servers[python, True] = subprocess.Popen(
                [python, "-c", SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=_quiet([]),
            )
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("the process of the base has no pipes")
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline() or "-1")

    def close(self) -> None:
        """Kill the processes that fork for jobs."""
        for server in self._servers.values():
            server.kill()
            server.wait()


def _has_pkg_resources(setuptools: str) -> bool:
    return int(setuptools.partition(".")[0]) < 82  # noqa: PLR2004 - the release that dropped it


def _public(version: str | None) -> str:
    return (version or "").partition("+")[0]


def _distribution(file: str) -> str:
    """Return the distribution that a file belongs to: the overlay's, or torch."""
    _, found, rest = file.rpartition("overlays/")
    if found:
        return Path(rest).parts[0].rpartition("-")[0]
    return "torch" if "site-packages/torch/" in file else ""


def _quiet(paths: Sequence[str]) -> dict[str, str]:
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "WANDB_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
    }
    quiet |= {"PYTHONPATH": os.pathsep.join(paths), "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # noqa: TID251
    return {**kept, **quiet}
