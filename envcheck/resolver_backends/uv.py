"""uv: resolves for any Python and platform, and tells every file with its hash."""

from __future__ import annotations

import re
import tomllib
from typing import Any
from urllib.parse import unquote, urlsplit

from envcheck.core.errors import ExamineError, NoSolutionError
from envcheck.host.machine import Host, find_program, own_python, scratch
from envcheck.lock.model import Artifact, Pin
from envcheck.lock.wheels import usable_tags
from envcheck.resolver_backends import INSTALL_HINT, Backend, CompletionRequest, checked_pins, stand_ins
from envcheck.resolver_backends.index import backend_environment, one_line, redact, user_index

# The glibc versions uv has a platform for (0.13), ascending; between them the next lower one is asked.
_GLIBC_MINORS = (17, 28, *range(31, 41))


def complete(host: Host, wanted: CompletionRequest) -> tuple[Pin, ...]:
    """Complete pins by `uv pip compile`. Raises as `Backend` says."""
    usable_tags(wanted.python, wanted.platform, wanted.glibc)  # refuses a bad platform before uv is started
    program = find_program(host, "uv")
    if program is None:
        raise ExamineError(f"uv is not installed; {INSTALL_HINT}")
    index = user_index(host)
    extra = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    if index.url:
        # Not on the command line, where every user of the machine sees it.
        extra["UV_DEFAULT_INDEX"] = index.url
    with scratch() as folder:
        asked, bounds, answer = folder / "wanted.in", folder / "bounds.in", folder / "pylock.toml"
        asked.write_text(wanted.requirements() + stand_ins(wanted, folder), encoding="utf-8")
        bounds.write_text(wanted.bounds(), encoding="utf-8")
        ran = host.run(
            [
                *(program, *_options(wanted)),
                *("--constraint", str(bounds), "--output-file", str(answer), str(asked)),
            ],
            wanted.deadline_s,
            backend_environment(host, index, extra),
        )
        if ran.code is None:
            raise ExamineError(f"uv did not finish within {wanted.deadline_s:g} s")
        if ran.code != 0 or not answer.is_file():
            raise _failure(redact(ran.err, index, [str(folder)]))
        text = answer.read_text(encoding="utf-8")
    yanked = {found[1]: one_line(redact(found[2] or "", index)) for found in _YANKED.finditer(ran.err)}
    return checked_pins(wanted, _packages(text), yanked)


# Told as a warning and nowhere else.
_YANKED = re.compile(r"(?m)^warning: `([^`=]+)==[^`]+` is yanked(?: \(reason: \"?(.*?)\"?\)$)?")


def _options(wanted: CompletionRequest) -> list[str]:
    minor = max((one for one in _GLIBC_MINORS if one <= int(wanted.glibc[2:])), default=_GLIBC_MINORS[0])
    architecture = wanted.platform.partition("-")[2]
    options = ["pip", "compile", "--no-config", "--no-header", "--format", "pylock.toml"]
    options += ["--python", own_python(), "--python-version", wanted.python]
    options += ["--python-platform", f"{architecture}-manylinux_2_{minor}"]
    options += ["--only-binary", ":all:"]
    for name in sorted(wanted.build):
        options += ["--no-binary", name]
    if wanted.before:
        options += ["--exclude-newer", wanted.before]
    return options


def _packages(text: str) -> dict[str, tuple[str, tuple[Artifact, ...]]]:
    """The packages of uv's pylock.toml. Raises ExamineError if it is not what we know."""
    try:
        packages = tomllib.loads(text)["packages"]
        return {package["name"]: (package["version"], tuple(_files(package))) for package in packages}
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError):
        raise ExamineError("uv's answer cannot be read; a newer uv may write it differently") from None


def _files(package: dict[str, Any]) -> list[Artifact]:
    found = list(package.get("wheels", []))
    if "sdist" in package:
        found.append(package["sdist"])
    files = []
    for file in found:
        place = file.get("name") or file.get("path") or urlsplit(file["url"]).path
        if sha256 := file["hashes"].get("sha256"):
            files.append(Artifact(unquote(place).rpartition("/")[2], sha256))
    return files


_NO_SOLUTION = "No solution found when resolving dependencies"
# A package uv could not ask about is not a package that does not exist.
_UNREACHED = re.compile(r"could not be queried|Network|network was disabled|Failed to fetch|[Tt]imed? out")


def _failure(said: str) -> Exception:
    """Uv's words as an error of ours, one line, without its decoration."""
    plain = (
        one_line(re.sub(r"[│╰─▶├\u00d7]|^\s*(?:error|cause|hint):", " ", said, flags=re.MULTILINE))
        or "uv failed silently"
    )
    if _NO_SOLUTION in said and not _UNREACHED.search(said):
        return NoSolutionError(f"no versions satisfy this: {plain.partition(_NO_SOLUTION)[2].lstrip(' :')}")
    return ExamineError(f"uv could not resolve: {plain}")


ENGINE = Backend("uv", 1, lambda host: find_program(host, "uv") is not None, complete)
