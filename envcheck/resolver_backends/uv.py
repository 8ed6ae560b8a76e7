"""uv: resolves for any Python and platform, and lists every file with its hash."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from envcheck.core.errors import ExamineError, InputError, NoSolutionError
from envcheck.core.parsing import parse_toml
from envcheck.host.environment import own_python
from envcheck.host.files import scratch_folder
from envcheck.host.machine import Host, find_program
from envcheck.lock.model import Artifact, Pin
from envcheck.lock.wheels import usable_tags
from envcheck.resolver_backends import INSTALL_HINT, Backend, CompletionRequest, checked_pins, stand_ins
from envcheck.resolver_backends.index.redaction import one_line, redact
from envcheck.resolver_backends.index.settings import backend_environment, user_index

# The minor versions of glibc for which uv 0.13 has a platform; for others, the next lower one is requested.
_GLIBC_MINORS = (17, 28, *range(31, 41))


def complete(host: Host, request: CompletionRequest) -> tuple[Pin, ...]:
    """Complete pins with `uv pip compile`. Raises the errors that `Backend` lists."""
    # Raises InputError for a wrong platform before uv starts.
    usable_tags(request.python, request.platform, request.glibc)
    program = find_program(host, "uv")
    if program is None:
        raise ExamineError(f"uv is not installed; {INSTALL_HINT}")
    index = user_index(host)
    extra = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    if index.url:
        # Not on the command line, where every user of the machine could see a login in it.
        extra["UV_DEFAULT_INDEX"] = index.url
    with scratch_folder() as folder:
        requirements, bounds, answer = folder / "wanted.in", folder / "bounds.in", folder / "pylock.toml"
        requirements.write_text(request.requirements() + stand_ins(request, folder), encoding="utf-8")
        bounds.write_text(request.bounds(), encoding="utf-8")
        left_out = folder / "left-out.in"
        left_out.write_text(
            "".join(f"{name}; python_version < '0'\n" for name in request.without), encoding="utf-8"
        )
        ran = host.run(
            [
                *(program, *_options(request)),
                *("--constraint", str(bounds), "--override", str(left_out)),
                *("--output-file", str(answer), str(requirements)),
            ],
            request.deadline_s,
            backend_environment(host, index, extra),
        )
        if ran.code is None:
            raise ExamineError(f"uv did not finish within {request.deadline_s:g} s")
        if ran.code != 0 or not answer.is_file():
            raise _failure(redact(ran.err, index, [str(folder)]))
        text = answer.read_text(encoding="utf-8")
    yanked = {found[1]: one_line(redact(found[2] or "", index)) for found in _YANKED.finditer(ran.err)}
    return checked_pins(request, _packages(text), yanked)


# uv reports a yanked release only as a warning.
_YANKED = re.compile(r"(?m)^warning: `([^`=]+)==[^`]+` is yanked(?: \(reason: \"?(.*?)\"?\)$)?")


def _options(request: CompletionRequest) -> list[str]:
    glibc = int(request.glibc[2:])
    minor = max((minor for minor in _GLIBC_MINORS if minor <= glibc), default=_GLIBC_MINORS[0])
    architecture = request.platform.partition("-")[2]
    options = ["pip", "compile", "--no-config", "--no-header", "--format", "pylock.toml"]
    options += ["--python", own_python(), "--python-version", request.python]
    options += ["--python-platform", f"{architecture}-manylinux_2_{minor}"]
    options += ["--only-binary", ":all:"]
    for name in sorted(request.build):
        options += ["--no-binary", name]
    if request.before:
        options += ["--exclude-newer", request.before]
    return options


def _packages(text: str) -> dict[str, tuple[str, tuple[Artifact, ...]]]:
    """Return the packages of uv's pylock.toml: name → version and files.

    Raises:
        ExamineError: the file does not have the expected layout.
    """
    try:
        packages = parse_toml(text, "uv")["packages"]
        return {package["name"]: (package["version"], tuple(_files(package))) for package in packages}
    except (InputError, KeyError, TypeError, ValueError):
        raise ExamineError("uv's answer cannot be read; a newer uv may write it differently") from None


def _files(package: dict[str, Any]) -> list[Artifact]:
    rows = list(package.get("wheels", []))
    if "sdist" in package:
        rows.append(package["sdist"])
    files = []
    for row in rows:
        path = row.get("name") or row.get("path") or urlsplit(row["url"]).path
        if sha256 := row["hashes"].get("sha256"):
            files.append(Artifact(unquote(path).rpartition("/")[2], sha256))
    return files


_NO_SOLUTION = "No solution found when resolving dependencies"
# uv also finds no solution if it could not query a package, which does not mean that there is none.
_UNREACHED = re.compile(r"could not be queried|Network|network was disabled|Failed to fetch|[Tt]imed? out")


_LONGEST_CHAIN = 40_000
"""Characters that are kept of uv's chain of reasons; some name hundreds of releases."""

_FAILED_BUILD = re.compile(r"Failed to (?:build|download and build) `([^`]+)`")
_EXCEPTION = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception)\b: .{1,200})$", re.MULTILINE)


def _failure(output: str) -> Exception:
    """Return uv's error output as an error of one line, without uv's decoration.

    A build that failed is named with its last exception: the rest is the traceback of a build tool.
    """
    built, raised = _FAILED_BUILD.search(output), _EXCEPTION.findall(output)
    if built and raised:
        return ExamineError(
            f"{built[1]} is built from source to learn what it requires, and its own build fails: "
            f"{raised[-1]}; ask for a release with wheels, or leave it out and install it after the lock"
        )
    bare = re.sub(r"[│╰─▶├\u00d7]|^\s*(?:error|cause|hint):", " ", output, flags=re.MULTILINE)
    if _NO_SOLUTION in output and not _UNREACHED.search(output):
        reasons = one_line(bare, _LONGEST_CHAIN).partition(_NO_SOLUTION)[2].lstrip(" :")
        return NoSolutionError(f"no versions satisfy this: {one_line(reasons)}", reasons)
    return ExamineError(f"uv could not resolve: {one_line(bare) or 'uv failed silently'}")


ENGINE = Backend("uv", 1, lambda host: find_program(host, "uv") is not None, complete)
