"""pip-tools: resolves with pip's resolver, only for the Python that runs it.

The hashes are read from the index's pages, because `--generate-hashes` downloads every file of every platform
if file addresses differ from those of the public index (pip-tools issue #1135). For this stack, that would be
tens of gigabytes.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
import time
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.host.environment import own_python
from envcheck.host.files import scratch_folder
from envcheck.host.machine import Host
from envcheck.lock.model import Artifact, Pin
from envcheck.lock.wheels import release_of, usable_tags
from envcheck.resolver_backends import INSTALL_HINT, Backend, CompletionRequest, checked_pins, stand_ins
from envcheck.resolver_backends.index.connection import NoProjectError
from envcheck.resolver_backends.index.reader import release_files
from envcheck.resolver_backends.index.redaction import one_line, redact
from envcheck.resolver_backends.index.settings import Index, backend_environment, user_index


def available(_host: Host) -> bool:
    """Return whether pip-tools is installed beside envcheck, without importing it."""
    return importlib.util.find_spec("piptools") is not None


def complete(host: Host, request: CompletionRequest) -> tuple[Pin, ...]:
    """Complete pins with `pip-compile`, then read the hashes. Raises the errors that `Backend` lists."""
    if not available(host):
        raise ExamineError(f"pip-tools is not installed; {INSTALL_HINT}")
    usable_tags(request.python, request.platform, request.glibc)  # raises InputError for a wrong platform
    _refuse_foreign_platform(request)
    _refuse_date_without_support(request)
    started = time.monotonic()
    index = user_index(host)
    versions = _resolve(host, request, index)
    left = request.deadline_s - (time.monotonic() - started)
    pages = release_files(host, index, versions, request.python, left)
    found: dict[str, tuple[str, tuple[Artifact, ...]]] = {}
    yanked: dict[str, str] = {}
    for name, version in versions.items():
        # As in uv, a file without an upload time is left out: it may have been uploaded after that day.
        files = [file for file in pages[name] if not request.before or "" < file.uploaded < request.before]
        found[name] = version, tuple(Artifact(file.name, file.sha256) for file in files)
        of_version = [
            file for file in files if (release := release_of(file.name)) and str(release[1]) == version
        ]
        if of_version and all(file.yanked for file in of_version):
            yanked[name] = one_line(redact(of_version[0].reason, index))
    return checked_pins(request, found, yanked)


def _refuse_foreign_platform(request: CompletionRequest) -> None:
    """Raise ExamineError if the lock is for another Python or platform than envcheck's own."""
    python = "{}.{}".format(*sys.version_info)
    platform = sysconfig.get_platform()
    if (request.python, request.platform) != (python, platform):
        raise ExamineError(
            f"pip-tools locks only for the Python that runs it ({python} on {platform}), not for "
            f"{request.python} on {request.platform}; use uv: {INSTALL_HINT}"
        )


_FIRST_PIP_WITH_DATES = (26, 0)
"""The first pip with the option `--uploaded-prior-to`."""


def _refuse_date_without_support(request: CompletionRequest) -> None:
    """Raise ExamineError if the request has a date limit and this pip has no option for that."""
    import importlib.metadata

    pip = Version(importlib.metadata.version("pip"))
    if request.before and pip.release < _FIRST_PIP_WITH_DATES:
        first = ".".join(map(str, _FIRST_PIP_WITH_DATES))
        raise ExamineError(
            f"pip {pip} cannot ignore newer releases, pip {first} can: "
            f"update pip in envcheck's environment, or use uv: {INSTALL_HINT}"
        )


def _resolve(host: Host, request: CompletionRequest, index: Index) -> dict[str, str]:
    """Return name → version of the closure. Raises ExamineError or NoSolutionError."""
    # If the configuration file is /dev/null, pip reads no configuration.
    extra = {"PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    if index.url:
        extra["PIP_INDEX_URL"] = index.url
    with scratch_folder() as folder:
        requirements, bounds, answer = folder / "wanted.in", folder / "bounds.in", folder / "answer.txt"
        requirements.write_text(request.requirements() + stand_ins(request, folder), encoding="utf-8")
        bounds.write_text(request.bounds(), encoding="utf-8")
        ran = host.run(
            [
                own_python(),
                "-P",
                "-m",
                "piptools",
                "compile",
                *_options(request),
                *("--constraint", str(bounds), "--output-file", str(answer), str(requirements)),
            ],
            request.deadline_s,
            backend_environment(host, index, extra),
        )
        if ran.code is None:
            raise ExamineError(f"pip-tools did not finish within {request.deadline_s:g} s")
        if ran.code != 0 or not answer.is_file():
            raise _failure(host, index, ran.err or ran.out, str(folder))
        lines = answer.read_text(encoding="utf-8").splitlines()
        # A given wheel is returned as `name @ file:…`, the address of its stand-in in the scratch folder.
        resolved = (line for line in lines if not request.gives(line.partition(" @ file:")[0]))
        return _versions("\n".join(resolved))


def _options(request: CompletionRequest) -> list[str]:
    # fast-deps reads the metadata of a wheel with range requests. Without it, and without PEP 658, pip
    # downloads all of torch to learn what it requires.
    pip_args = ["--use-feature=fast-deps", "--only-binary=:all:"]
    if request.build:
        pip_args.append(f"--no-binary={','.join(sorted(request.build))}")
    if request.before:
        pip_args.append(f"--uploaded-prior-to={request.before}")
    return [
        *("--no-config", "--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe"),
        *("--no-emit-options", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links"),
        *("--resolver=backtracking", f"--pip-args={' '.join(pip_args)}"),
    ]


def _versions(text: str) -> dict[str, str]:
    """Return name → version of `name==version` lines. Raises ExamineError."""
    versions: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", line.strip())
        if found is None:
            raise ExamineError("pip-tools' answer cannot be read: a line is not name==version")
        versions[canonicalize_name(found[1])] = found[2]
    return versions


# --- failures ---------------------------------------------------------------------------------------

_UNREACHED = re.compile(
    r"Retrying \(Retry|NewConnectionError|Max retries|ConnectTimeout|ReadTimeout|SSLError"
    r"|NetworkConnectionError|Could not fetch URL|User for "
)
_NO_SOLUTION = re.compile(r"ResolutionImpossible|No matching distribution|Could not find a version")
# pip-compile prints which package requires what only in its traceback:
# …Information(requirement=SpecifierRequirement('beta<1'), parent=LinkCandidate('…/delta-1.0….whl …'))
_CONFLICT = re.compile(
    r"RequirementInformation\(requirement=\w+\('([^']+)'\), parent=(?:None|\w+\('([^'\s]+)[^']*'\))\)"
)


def _failure(host: Host, index: Index, output: str, folder: str) -> Exception:
    """Return pip's error output as an error of one line; for a conflict, name the requirements involved."""

    def shown(text: str) -> str:
        return one_line(redact(text, index, [folder]))

    if _UNREACHED.search(output):
        return ExamineError(f"pip-tools could not read the index: {shown(_last_error(output))}")
    if not _NO_SOLUTION.search(output):
        return ExamineError(f"pip-tools failed: {shown(_last_error(output))}")
    unseen = re.search(r"requirement ([A-Za-z0-9._-]+?)(?:[=<>!~;\[ ].*)? ?\(from versions: none\)", output)
    if unseen and (reason := _why_unreadable(host, index, canonicalize_name(unseen[1]))):
        return ExamineError(f"pip-tools could not read the index: {reason}")
    pairs = _CONFLICT.findall(output)
    conflict = "; ".join(dict.fromkeys(_requires(requirement, parent) for requirement, parent in pairs))
    if conflict and ";" not in conflict:
        conflict += ", and the index has no usable file of such a version"
    return NoSolutionError(f"no versions satisfy this: {shown(conflict or _last_error(output))}")


def _why_unreadable(host: Host, index: Index, name: str) -> str:
    """Return why a project's page cannot be read; empty if it can be read or the project does not exist.

    pip reports "no versions" in all of these cases.
    """
    try:
        release_files(host, index, [name], "3", 20.0)
    except NoProjectError:
        return ""
    except ExamineError as error:
        return str(error)
    return ""


def _requires(requirement: str, parent: str) -> str:
    """Return in words which package has a requirement; without a parent, it was part of the request."""
    release = release_of(unquote(urlsplit(parent).path).rpartition("/")[2]) if parent else None
    return f"{release[0]} {release[1]} requires {requirement}" if release else f"{requirement} was requested"


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or [
        line for line in lines if "Error" in line
    ]
    return (errors or lines or ["it printed nothing"])[-1]


ENGINE = Backend("pip-tools", 2, available, complete)
