"""pip-tools: resolves with pip's own resolver, for the Python that runs it and for no other.

It resolves only. The hashes are read from the index's pages: `--generate-hashes` downloads every file of
every platform wherever file addresses differ from the public index's (pip-tools issue #1135), which for
this stack are tens of gigabytes.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
import time

from packaging.utils import canonicalize_name

from envcheck.engines import INSTALL_HINT, Engine, Wanted, checked_pins
from envcheck.engines.index import Index, engine_environment, one_line, redact, release_files, user_index
from envcheck.host import Host, own_python, scratch
from envcheck.lock import Pin, usable_tags
from envcheck.model import ExamineError, NoSolutionError


def available(_host: Host) -> bool:
    """Whether pip-tools is installed beside envcheck; nothing of it is imported."""
    return importlib.util.find_spec("piptools") is not None


def complete(host: Host, wanted: Wanted) -> tuple[Pin, ...]:
    """Complete pins by `pip-compile`, then read the hashes. Raises as `Engine` says."""
    if not available(host):
        raise ExamineError(f"pip-tools is not installed; {INSTALL_HINT}")
    usable_tags(wanted.python, wanted.platform, wanted.glibc)
    _refuse_foreign(wanted)
    began = time.monotonic()
    index = user_index(host)
    versions = _resolve(host, wanted, index)
    left = wanted.deadline_s - (time.monotonic() - began)
    files = release_files(host, index, versions, wanted.python, left)
    return checked_pins(wanted, {name: (version, files[name]) for name, version in versions.items()})


def _refuse_foreign(wanted: Wanted) -> None:
    """Raises ExamineError if the lock is for another Python or platform than ours."""
    own = "{}.{}".format(*sys.version_info)
    here = sysconfig.get_platform()
    if (wanted.python, wanted.platform) != (own, here):
        raise ExamineError(
            f"pip-tools locks only for the Python that runs it ({own} on {here}), not for {wanted.python} on "
            f"{wanted.platform}; use uv: {INSTALL_HINT}"
        )


def _resolve(host: Host, wanted: Wanted, index: Index) -> dict[str, str]:
    """Name → version of the closure. Raises ExamineError, NoSolutionError."""
    # /dev/null is pip's word for "read no configuration file".
    extra = {"PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    if index.url:
        extra["PIP_INDEX_URL"] = index.url
    with scratch() as folder:
        asked, answer = folder / "wanted.in", folder / "answer.txt"
        asked.write_text(wanted.requirements(), encoding="utf-8")
        ran = host.run(
            [
                own_python(),
                "-P",
                "-m",
                "piptools",
                "compile",
                *_options(wanted),
                "--output-file",
                str(answer),
                str(asked),
            ],
            wanted.deadline_s,
            engine_environment(host, index, extra),
        )
        if ran.code is None:
            raise ExamineError(f"pip-tools did not finish within {wanted.deadline_s:g} s")
        if ran.code != 0 or not answer.is_file():
            raise _failure(redact(ran.err or ran.out, index, [str(folder)]))
        return _versions(answer.read_text(encoding="utf-8"))


def _options(wanted: Wanted) -> list[str]:
    # fast-deps reads a wheel's metadata by range requests: without it, and without PEP 658, pip downloads
    # all of torch to learn what it requires.
    pip_args = ["--use-feature=fast-deps", "--only-binary=:all:"]
    if wanted.build:
        pip_args.append(f"--no-binary={','.join(sorted(wanted.build))}")
    return [
        *("--no-config", "--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe", "--quiet"),
        *("--no-emit-options", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links"),
        *("--resolver=backtracking", f"--pip-args={' '.join(pip_args)}"),
    ]


def _versions(text: str) -> dict[str, str]:
    versions: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", line.strip())
        if found is None:
            raise ExamineError("pip-tools' answer cannot be read: a line is not name==version")
        versions[canonicalize_name(found[1])] = found[2]
    return versions


# pip says "no matching distribution" also when it never reached the index.
_UNREACHED = re.compile(
    r"Retrying \(Retry|NewConnectionError|Max retries|ConnectTimeout|ReadTimeout|SSLError|[45]\d\d (?:Client|Server)"
    r" Error|Could not fetch URL|User for |HTTP error"
)
_NO_SOLUTION = re.compile(
    r"ResolutionImpossible|No matching distribution|Could not find a version|conflict is caused by"
)


def _failure(said: str) -> Exception:
    """Pip's words as an error of ours, one line; of a conflict the requirements that clash."""
    if _UNREACHED.search(said):
        return ExamineError(f"pip-tools could not read the index: {one_line(_last_error(said))}")
    if _NO_SOLUTION.search(said):
        return NoSolutionError(f"no versions satisfy this: {one_line(_conflict(said))}")
    return ExamineError(f"pip-tools failed: {one_line(_last_error(said))}")


def _conflict(said: str) -> str:
    cause = re.search(r"The conflict is caused by:\n(.*?)(?:\n\s*\n|\Z)", said, re.DOTALL)
    if cause:
        return "; ".join(line.strip() for line in cause[1].splitlines() if line.strip())
    return _last_error(said)


def _last_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "WARNING: Retrying")) or "Error" in line]
    return (errors or lines or ["it said nothing"])[-1]


ENGINE = Engine("pip-tools", 2, available, complete)
