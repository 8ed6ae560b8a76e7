"""Run the programs of proofs, with each release in a folder on top of an environment that has torch.

The releases that fit a program's requirements are resolved together. Each is installed once, without its
dependencies, into a folder of its own, and the folders come first on PYTHONPATH. So each takes only
megabytes, and all share one torch, which no requirement changes.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envcheck.core.errors import ExamineError, InputError, NoSolutionError
from envcheck.host import machine
from envcheck.host.machine import Host
from envcheck.host.package_files import package_folder
from envcheck.host.processes import FinishedProcess
from envcheck.knowledge.proofs.checks import SEEN_LIMIT
from envcheck.knowledge.proofs.declaration import RunCheck
from envcheck.knowledge.proofs.records import NOT_BUILT, NOT_DONE, OTHERWISE
from envcheck.knowledge.proofs.running import RunResult
from envcheck.resolver_backends import INSTALL_HINT
from envcheck.resolver_backends.index.redaction import one_line, redact
from envcheck.resolver_backends.index.settings import backend_environment, user_index

INSTALL_S = 600.0
"""Seconds to resolve, or to install one release: some are built from source."""

RUN_S = 600.0
"""Seconds for one program: most are spent on imports."""

_ON_THE_CPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "ACCELERATE_USE_CPU": "true",
    "DS_ACCELERATOR": "cpu",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",
}
"""Environment variables of the programs: no GPU, no network; what is imported is compiled once."""

_LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")

_START = """\
import os, sys, tempfile
os.chdir(tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(__file__))))
"""
"""Begins each program: what it writes stays in the folder of the releases."""

_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)\b.*)"
)


class _BuildError(Exception):
    """Say that a release has no wheel for this interpreter, and that its source cannot be built."""


def _check(ran: FinishedProcess, what: str) -> None:
    """Raise the error of a run of uv that failed; a build that fails says nothing about the index."""
    if ran.code is None:
        raise _BuildError(f"not done within {INSTALL_S:g} s")
    if built := re.search(r"Failed to (?:download and )?build `([^`]+)`", ran.err if ran.code else ""):
        raise _BuildError(built[1])
    if ran.code != 0:
        raise ExamineError(f"{what}: {one_line(ran.err)[:300]}")


@dataclass(frozen=True, kw_only=True)
class ProgramRunner:
    """Run programs by one interpreter; releases are kept in `folder`."""

    host: Host
    python: str
    folder: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, check: RunCheck, requirements: Sequence[str]) -> RunResult:
        """Return how the program ends beside the newest releases that fit the requirements.

        Raises:
            InputError: there is no interpreter.
            NoSolutionError: no releases fit all requirements.
            ExamineError: the releases cannot be resolved or installed.
        """
        if not self.python:
            raise InputError(
                "--python", f"expected an interpreter with torch, for a program of {check.package}"
            )
        with self._lock:  # one at a time: programs use all cores
            try:
                resolved = self._resolved(requirements, regardless=check.regardless)
                paths = [self._installed(release) for release in resolved]
            except _BuildError as error:
                return RunResult(passes=False, fails=False, seen=f"{NOT_BUILT}{error}", releases={})
            ran = self._run(check, paths)
        found = dict(release.split("==") for release in resolved)
        asked = [canonicalize_name(Requirement(text).name) for text in requirements]
        stated = ran.code not in (0, None) and bool(check.fails and re.search(check.fails, ran.err))
        return RunResult(
            passes=ran.code == 0,
            fails=stated,
            seen=self._shown(check, ran, stated=stated),
            releases={name: found[name] for name in asked if name in found},
        )

    def _run(self, check: RunCheck, paths: Sequence[Path]) -> FinishedProcess:
        text = _START + check.program
        script = self.folder / f"program-{hashlib.sha256(text.encode()).hexdigest()[:12]}" / "program.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(text, encoding="utf-8")
        launcher = [*_LAUNCHER, str(check.processes)] if check.processes > 1 else []
        folders = [package_folder("target_scripts/proofs"), *paths]
        variables = {**self.host.environ, **_ON_THE_CPU, "PYTHONPATH": ":".join(map(str, folders))}
        return self.host.run([self.python, *launcher, str(script)], RUN_S, variables)

    def _shown(self, check: RunCheck, ran: FinishedProcess, *, stated: bool) -> str:
        """Return the line that shows how a program ended."""
        if ran.code == 0:
            return "works"
        if ran.code is None:
            return f"{NOT_DONE}{RUN_S:g} s"
        text = ran.err.replace(f"{self.folder}/site-packages/", "")
        text = text.replace(f"{Path(self.python).parent.parent}/", "")  # no record names a folder here
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        raised = [found[1] for line in lines if (found := _EXCEPTION.match(line))]
        named = [line for line in raised if stated and re.search(check.fails, line)]
        line = one_line((named or raised or lines or [f"exit code {ran.code}"])[-1])[:SEEN_LIMIT]
        return line if stated else f"{OTHERWISE}{line}"

    def _resolved(self, requirements: Sequence[str], *, regardless: bool) -> list[str]:
        """Return the releases to install, `NAME==VERSION`, without torch, which the interpreter has.

        With `regardless`, the requirements replace what other packages require of the same ones.
        """
        place = self.folder / "resolved"
        place.mkdir(exist_ok=True)
        wanted, without = place / "wanted.in", place / "without.in"
        wanted.write_text("".join(f"{line}\n" for line in requirements), encoding="utf-8")
        replaced = ["torch; python_version < '0'", *(requirements if regardless else ())]
        without.write_text("".join(f"{line}\n" for line in replaced), encoding="utf-8")
        command = ["pip", "compile", "--no-config", "--no-header", "--no-annotate", "--quiet"]
        ran = self._uv([*command, "--python", self.python, "--override", str(without), str(wanted)])
        if ran.code and "No solution found" in ran.err:
            raise NoSolutionError(one_line(ran.err))
        _check(ran, f"uv could not resolve {', '.join(requirements)}")
        return [line.split(" ")[0] for line in ran.out.splitlines() if "==" in line]

    def _installed(self, release: str) -> Path:
        """Return the folder of a release, which is installed there first if it is not yet."""
        # dill takes modules elsewhere for the program's own, and datasets pickles them whole with it.
        place = self.folder / "site-packages" / release.replace("==", "-")
        done = place / ".installed"
        if not done.exists():
            command = ["pip", "install", "--quiet", "--python", self.python, "--no-deps"]
            ran = self._uv([*command, "--target", str(place), release])
            _check(ran, f"{release}: uv could not install it")
            done.touch()
        return place

    def _uv(self, arguments: Sequence[str]) -> FinishedProcess:
        """Run uv with the user's index; what it says names no address of the index."""
        uv = machine.find_program(self.host, "uv")
        if uv is None:
            raise ExamineError(f"uv is not installed; {INSTALL_HINT}")
        index = user_index(self.host)
        extra = {"UV_NO_PROGRESS": "1", "DS_BUILD_OPS": "0"}
        if index.url:
            extra["UV_DEFAULT_INDEX"] = index.url
        ran = self.host.run([str(uv), *arguments], INSTALL_S, backend_environment(self.host, index, extra))
        return ran._replace(err=redact(ran.err, index))
