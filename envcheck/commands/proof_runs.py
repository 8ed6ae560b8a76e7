"""Run the scripts of proofs, with each release in a folder on top of an environment that has torch.

Each release is installed once, without its dependencies, into a folder that comes first on PYTHONPATH. So
each takes only megabytes, and all share one torch. The proof names the other packages that a release needs.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

from envcheck.core.errors import ExamineError, InputError
from envcheck.host import machine
from envcheck.host.machine import Host
from envcheck.host.package_files import package_folder
from envcheck.knowledge.proofs.checks import SEEN_LIMIT, Sight
from envcheck.knowledge.proofs.declaration import RunCheck
from envcheck.resolver_backends import INSTALL_HINT
from envcheck.resolver_backends.index.redaction import one_line, redact
from envcheck.resolver_backends.index.settings import backend_environment, user_index

INSTALL_S = 600.0
"""Seconds to install one release: some are built from source."""

RUN_S = 300.0
"""Seconds for one script: most are spent on imports."""

_ON_THE_CPU = {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
"""Environment variables of the scripts: no GPU, no network."""


@dataclass(frozen=True, kw_only=True)
class ScriptRunner:
    """Runs scripts by one interpreter; releases are kept in `folder`."""

    host: Host
    python: str
    folder: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, check: RunCheck, version: str) -> Sight:
        """Return whether the script fails with a release, and the line that it prints.

        Raises:
            InputError: there is no interpreter, or no such script.
            ExamineError: a release cannot be installed, or the script neither passes nor fails as
                the proof states.
        """
        if not self.python:
            raise InputError("--python", f"expected an interpreter with torch, which {check.script} runs in")
        script = package_folder("target_scripts/proofs") / f"{check.script}.py"
        if not script.is_file():
            raise InputError(check.script, "no such script in target_scripts/proofs")
        with self._lock:  # one at a time: scripts use all cores
            paths = [self._installed(release) for release in (f"{check.package}=={version}", *check.beside)]
            variables = {**self.host.environ, **_ON_THE_CPU, "PYTHONPATH": ":".join(map(str, paths))}
            ran = self.host.run([self.python, str(script)], RUN_S, variables)
        lines = [line for line in ran.out.splitlines() if line.strip()]
        as_stated = ran.code == 1 and lines and re.search(check.fails, lines[-1])
        if ran.code != 0 and not as_stated:
            reason = one_line(lines[-1] if lines else ran.err)[-300:]
            if ran.code is None:
                reason = f"not done within {RUN_S:g} s"
            raise ExamineError(f"{check.script} beside {check.package} {version}: {reason}")
        line = lines[-1].replace(f"{self.folder}/", "") if lines else ""
        return Sight(ran.code == 1, line[:SEEN_LIMIT] if ran.code else f"{check.script} works")

    def _installed(self, release: str) -> Path:
        """Return the folder of a release, which is installed there first if it is not yet."""
        place = self.folder / release.replace("==", "-")
        done = place / ".installed"
        if not done.exists():
            self._install(release, place)
            done.touch()
        return place

    def _install(self, release: str, place: Path) -> None:
        uv = machine.find_program(self.host, "uv")
        if uv is None:
            raise ExamineError(f"uv is not installed; {INSTALL_HINT}")
        index = user_index(self.host)
        extra = {"UV_NO_PROGRESS": "1", "DS_BUILD_OPS": "0"}
        if index.url:
            extra["UV_DEFAULT_INDEX"] = index.url
        command = [str(uv), "pip", "install", "--quiet", "--python", self.python, "--no-deps"]
        command += ["--target", str(place), release]
        ran = self.host.run(command, INSTALL_S, backend_environment(self.host, index, extra))
        if ran.code:
            raise ExamineError(
                f"{release}: uv could not install it: {one_line(redact(ran.err, index))[:300]}"
            )
