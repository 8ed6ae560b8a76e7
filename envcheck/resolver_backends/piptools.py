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
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.host.machine import Host, own_python, scratch
from envcheck.lock.model import Artifact, Pin
from envcheck.lock.wheels import release_of, usable_tags
from envcheck.resolver_backends import INSTALL_HINT, Backend, CompletionRequest, checked_pins, stand_ins
from envcheck.resolver_backends.index import (
    Index,
    NoProjectError,
    backend_environment,
    one_line,
    redact,
    release_files,
    user_index,
)


def available(_host: Host) -> bool:
    """Whether pip-tools is installed beside envcheck; nothing of it is imported."""
    return importlib.util.find_spec("piptools") is not None


def complete(host: Host, wanted: CompletionRequest) -> tuple[Pin, ...]:
    """Complete pins by `pip-compile`, then read the hashes. Raises as `Backend` says."""
    if not available(host):
        raise ExamineError(f"pip-tools is not installed; {INSTALL_HINT}")
    usable_tags(wanted.python, wanted.platform, wanted.glibc)
    _refuse_foreign(wanted)
    _refuse_date(wanted)
    began = time.monotonic()
    index = user_index(host)
    versions = _resolve(host, wanted, index)
    left = wanted.deadline_s - (time.monotonic() - began)
    pages = release_files(host, index, versions, wanted.python, left)
    found: dict[str, tuple[str, tuple[Artifact, ...]]] = {}
    yanked: dict[str, str] = {}
    for name, version in versions.items():
        # What has no upload time is left out as uv does: nobody knows that it was there.
        listed = [each for each in pages[name] if not wanted.before or "" < each.uploaded < wanted.before]
        found[name] = version, tuple(Artifact(each.name, each.sha256) for each in listed)
        own = [each for each in listed if (release := release_of(each.name)) and str(release[1]) == version]
        if own and all(each.yanked for each in own):
            yanked[name] = one_line(redact(own[0].reason, index))
    return checked_pins(wanted, found, yanked)


def _refuse_foreign(wanted: CompletionRequest) -> None:
    """Raises ExamineError if the lock is for another Python or platform than ours."""
    own = "{}.{}".format(*sys.version_info)
    here = sysconfig.get_platform()
    if (wanted.python, wanted.platform) != (own, here):
        raise ExamineError(
            f"pip-tools locks only for the Python that runs it ({own} on {here}), not for {wanted.python} on "
            f"{wanted.platform}; use uv: {INSTALL_HINT}"
        )


_DATES = (26, 0)
"""The pip that learnt `--uploaded-prior-to`."""


def _refuse_date(wanted: CompletionRequest) -> None:
    """Raises ExamineError if releases up to a day are wanted and this pip cannot tell their days."""
    import importlib.metadata

    pip = Version(importlib.metadata.version("pip"))
    if wanted.before and pip.release < _DATES:
        raise ExamineError(
            f"pip {pip} cannot leave out newer releases, pip {'.'.join(map(str, _DATES))} can: "
            f"update pip beside envcheck, or use uv: {INSTALL_HINT}"
        )


def _resolve(host: Host, wanted: CompletionRequest, index: Index) -> dict[str, str]:
    """Name → version of the closure. Raises ExamineError, NoSolutionError."""
    # /dev/null is pip's word for "read no configuration file".
    extra = {"PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    if index.url:
        extra["PIP_INDEX_URL"] = index.url
    with scratch() as folder:
        asked, bounds, answer = folder / "wanted.in", folder / "bounds.in", folder / "answer.txt"
        asked.write_text(wanted.requirements() + stand_ins(wanted, folder), encoding="utf-8")
        bounds.write_text(wanted.bounds(), encoding="utf-8")
        ran = host.run(
            [
                own_python(),
                "-P",
                "-m",
                "piptools",
                "compile",
                *_options(wanted),
                *("--constraint", str(bounds), "--output-file", str(answer), str(asked)),
            ],
            wanted.deadline_s,
            backend_environment(host, index, extra),
        )
        if ran.code is None:
            raise ExamineError(f"pip-tools did not finish within {wanted.deadline_s:g} s")
        if ran.code != 0 or not answer.is_file():
            raise _failure(host, index, ran.err or ran.out, str(folder))
        answers = answer.read_text(encoding="utf-8").splitlines()
        # What was given comes back as it was: its place in our folder.
        return _versions(
            "\n".join(line for line in answers if not wanted.gives(line.partition(" @ file:")[0]))
        )


def _options(wanted: CompletionRequest) -> list[str]:
    # fast-deps reads a wheel's metadata by range requests: without it, and without PEP 658, pip downloads
    # all of torch to learn what it requires.
    pip_args = ["--use-feature=fast-deps", "--only-binary=:all:"]
    if wanted.build:
        pip_args.append(f"--no-binary={','.join(sorted(wanted.build))}")
    if wanted.before:
        pip_args.append(f"--uploaded-prior-to={wanted.before}")
    return [
        *("--no-config", "--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe"),
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


_UNREACHED = re.compile(
    r"Retrying \(Retry|NewConnectionError|Max retries|ConnectTimeout|ReadTimeout|SSLError"
    r"|NetworkConnectionError|Could not fetch URL|User for "
)
_NO_SOLUTION = re.compile(r"ResolutionImpossible|No matching distribution|Could not find a version")
# In the traceback, the only place where pip-compile tells who asks for what:
# …Information(requirement=SpecifierRequirement('beta<1'), parent=LinkCandidate('…/delta-1.0….whl …'))
_CLASH = re.compile(
    r"RequirementInformation\(requirement=\w+\('([^']+)'\), parent=(?:None|\w+\('([^'\s]+)[^']*'\))\)"
)


def _failure(host: Host, index: Index, said: str, folder: str) -> Exception:
    """Pip's words as an error of ours, one line; of a conflict the requirements that clash."""

    def shown(text: str) -> str:
        return one_line(redact(text, index, [folder]))

    if _UNREACHED.search(said):
        return ExamineError(f"pip-tools could not read the index: {shown(_last_error(said))}")
    if not _NO_SOLUTION.search(said):
        return ExamineError(f"pip-tools failed: {shown(_last_error(said))}")
    unseen = re.search(r"requirement ([A-Za-z0-9._-]+?)(?:[=<>!~;\[ ].*)? ?\(from versions: none\)", said)
    if unseen and (reason := _unreached(host, index, canonicalize_name(unseen[1]))):
        return ExamineError(f"pip-tools could not read the index: {reason}")
    clash = "; ".join(dict.fromkeys(_asks(wish, parent) for wish, parent in _CLASH.findall(said)))
    if clash and ";" not in clash:
        clash += ", and the index has no usable file of such a version"
    return NoSolutionError(f"no versions satisfy this: {shown(clash or _last_error(said))}")


def _unreached(host: Host, index: Index, name: str) -> str:
    """Why a project's page cannot be read, else nothing: pip calls both "no versions"."""
    try:
        release_files(host, index, [name], "3", 20.0)
    except NoProjectError:
        return ""
    except ExamineError as error:
        return str(error)
    return ""


def _asks(wish: str, parent: str) -> str:
    release = release_of(unquote(urlsplit(parent).path).rpartition("/")[2]) if parent else None
    return f"{release[0]} {release[1]} requires {wish}" if release else f"{wish} was asked for"


def _last_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or [
        line for line in lines if "Error" in line
    ]
    return (errors or lines or ["it said nothing"])[-1]


ENGINE = Backend("pip-tools", 2, available, complete)
