"""Find the parts of an environment by reading folders, without running its interpreter.

This works on an unpacked image of another architecture: every path is followed inside the host's root. What
only a running interpreter knows (a user's own site-packages, paths added by start-up code) is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envcheck.core.errors import ExamineError, InputError
from envcheck.core.records import NamedTuple
from envcheck.host.machine import Host

INTERPRETERS = ("python", "python3")
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
PLAIN_PTH = frozenset(("distutils-precedence.pth", "_virtualenv.pth"))
"""Files that setuptools and virtualenv put into every environment; their code names no checkout."""

_CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")
_MOST_PTH_LINES = 1000
_MOST_PTH_FILES = 5000  # of one package folder; each is read
MOST_ENTRIES = 200_000
"""Most entries of a package folder: a large environment has some hundred."""


class Environment(NamedTuple):
    """An interpreter and its package folders, as paths of the machine without the root prefix.

    `version` may be only `3.11` if it is only known from the name of a folder. `sites` are in import order,
    and `source` says where the version was found.
    """

    version: str
    implementation: str
    abi: str
    prefix: str
    base_prefix: str
    sites: tuple[str, ...]
    source: str


def find_interpreter(host: Host, path: str) -> str:
    """Return the interpreter at a path: the path itself, or a folder's `bin/python`.

    Raises:
        InputError: there is nothing at that path, or a folder without an interpreter.
        ExamineError: the interpreter is a broken link, as after its base Python was removed.
    """
    place = host.path(path)
    if not place.exists():
        folder, _, name = path.rpartition("/")
        link = host.path(folder or "/") / name
        if link.is_symlink():
            raise ExamineError(f"{path}: broken link to {link.readlink()}; was that Python uninstalled?")
        raise InputError(path, "no such interpreter or environment")
    if not place.is_dir():
        return path
    names = host.listdir(f"{path}/bin")
    for name in INTERPRETERS:
        inside = f"{path.rstrip('/')}/bin/{name}"
        if name in names and not host.path(inside).is_dir():
            return find_interpreter(host, inside)
    raise InputError(path, "a folder without bin/python: name an interpreter or an environment's folder")


def read_layout(host: Host, path: str) -> Environment:
    """Return the environment of an interpreter or a folder, read from its files.

    Raises:
        InputError: there is nothing at that path, or no environment in that folder.
        ExamineError: its Python version or its package folders cannot be found.
    """
    prefix, interpreter = _prefix(host, path)
    settings = venv_settings(host, prefix)
    base = _parent(host.follow(settings["home"])) if settings.get("home") else prefix
    library = _library(host, prefix, settings, interpreter)
    version, source = _version(host, prefix, base, library, settings)
    sites = list(_sites(host, prefix, library))
    if settings.get("include-system-site-packages", "").lower() == "true":
        sites += _sites(host, base, library)
    if not sites:
        raise ExamineError(f"{path}: no package folder lib/{library}/site-packages under {prefix}")
    sites += list(
        _named_in_pth(host, sites)
    )  # as in Python, `.pth` files in the folders that they add do not count
    implementation = "pypy" if library.startswith("pypy") else "cpython"
    unique = {host.follow(site): site for site in reversed(sites)}
    abi = _abi(library)
    return Environment(version, implementation, abi, prefix, base, tuple(reversed(unique.values())), source)


def venv_settings(host: Host, prefix: str) -> Mapping[str, str]:
    """Return the settings in `pyvenv.cfg`, keys in lower case; empty if this is no virtual environment."""
    text = host.read_text(f"{prefix}/pyvenv.cfg") or ""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in lines}


def is_venv(host: Host, prefix: str) -> bool:
    """Return whether a prefix is a virtual environment."""
    return host.exists(f"{prefix}/pyvenv.cfg")


def base_sites(host: Host, environment: Environment) -> tuple[str, ...]:
    """Return the package folders of a virtual environment's base, used by the environment or not."""
    return tuple(_sites(host, environment.base_prefix, f"python{_minor(environment.version)}"))


def is_externally_managed(host: Host, environment: Environment) -> bool:
    """Return whether installers must not change this environment (PEP 668), which never concerns a venv."""
    if is_venv(host, environment.prefix):
        return False
    return host.exists(
        f"{environment.base_prefix}/lib/python{_minor(environment.version)}/EXTERNALLY-MANAGED"
    )


def startup_code(host: Host, sites: Iterable[str]) -> Iterator[str]:
    """Yield files whose code Python runs at every start: `.pth` files with `import` lines, `sitecustomize`.

    They are read, never run. Those that setuptools and virtualenv install are left out.
    """
    for site in sites:
        for name in _names_in(host, site):
            if name in _CUSTOMIZE or (
                name.endswith(".pth") and name not in PLAIN_PTH and _runs_code(host, site, name)
            ):
                yield f"{site}/{name}"


def check_size(site: str, names: Sequence[str]) -> None:
    """Check that a package folder is not too large to be read.

    Raises:
        ExamineError: it has too many entries or `.pth` files.
    """
    if len(names) > MOST_ENTRIES:
        raise ExamineError(
            f"{site}: {len(names)} entries, more than {MOST_ENTRIES}: not read as a package folder"
        )
    if len(names) > _MOST_PTH_FILES:
        count = sum(name.endswith(".pth") for name in names)
        if count > _MOST_PTH_FILES:
            raise ExamineError(f"{site}: {count} .pth files, more than {_MOST_PTH_FILES}: not read")


def _names_in(host: Host, site: str) -> tuple[str, ...]:
    names = host.listdir(site)
    check_size(site, names)
    return names


def _runs_code(host: Host, site: str, name: str) -> bool:
    lines = (host.read_text(f"{site}/{name}") or "").splitlines()[:_MOST_PTH_LINES]
    return any(line.startswith(("import ", "import\t")) for line in lines)


def _minor(version: str) -> str:
    """Return major and minor of a version: 3.11 of 3.11.7."""
    return ".".join(_numbers(version)[:2])


def _prefix(host: Host, path: str) -> tuple[str, str]:
    """Return the prefix, and the interpreter's file name if that may contain its version."""
    real = host.follow(path)
    if not host.exists(real):
        find_interpreter(host, path)  # raises, with the reason
    if host.path(real).is_dir():
        if is_venv(host, real) or host.listdir(f"{real}/conda-meta") or _libraries(host, real):
            return real, ""
        return _prefix(host, find_interpreter(host, path))
    # The folder must not be resolved through the link: a venv's bin/python is a link out of it.
    prefix = _parent(_parent_followed(host, path))
    if is_venv(host, prefix):
        return prefix, ""
    return _parent(_parent(real)), real.rpartition("/")[2]


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "/"


def _parent_followed(host: Host, path: str) -> str:
    return host.follow(_parent(path))


def _libraries(host: Host, prefix: str) -> list[str]:
    """Return the names of `lib` folders that contain packages: python3.11, python3.13t, pypy3.10."""
    return [
        name
        for name in host.listdir(f"{prefix}/lib")
        if _short(name) and any(host.exists(site) for site in _candidates(prefix, name))
    ]


def _short(library: str) -> str:
    """Return `3.11` for `python3.11`; empty for a name of another form."""
    for start in ("python", "pypy"):
        rest = library.removeprefix(start).removesuffix("t")
        if rest != library and rest.startswith("3.") and rest[2:].isdecimal():
            return rest
    return ""


def _library(host: Host, prefix: str, settings: Mapping[str, str], interpreter: str) -> str:
    """Return the name of the `lib` folder of an environment: python3.11.

    Raises:
        ExamineError: there is none, or there are several and the right one is not known.
    """
    found = _libraries(host, prefix)
    wanted = ".".join(_numbers(_stated(settings))[:2]) or _short(interpreter)
    found = [name for name in found if wanted in ("", _short(name))]
    if len(found) > 1 and interpreter.endswith("t") != found[0].endswith("t"):
        found = found[1:]  # python3.13 and python3.13t side by side
    if not found and wanted and not settings:
        return f"python{wanted}"  # Debian: only /usr/lib/python3/dist-packages
    if not found:
        raise ExamineError(f"{prefix}: no lib/python3.*/site-packages there: not a Python environment")
    if len({_short(name) for name in found}) > 1:
        raise ExamineError(f"{prefix}: holds {', '.join(found)}; name the interpreter, as in bin/{found[-1]}")
    return found[0]


def _stated(settings: Mapping[str, str]) -> str:
    """Return the version in `pyvenv.cfg`: `version` by venv, `version_info` by virtualenv and uv."""
    return settings.get("version_info") or settings.get("version") or ""


def _numbers(version: str) -> list[str]:
    """Return the leading whole numbers: 3, 11, 7 of `3.11.7.final.0`."""
    numbers: list[str] = []
    for part in version.split(".")[:3]:
        if not part.isdecimal():
            break
        numbers.append(part)
    return numbers


def _version(
    host: Host, prefix: str, base: str, library: str, settings: Mapping[str, str]
) -> tuple[str, str]:
    """Return the version, as precise as the files state it, and the file that states it."""
    stated = _numbers(_stated(settings))
    if len(stated) == 3:  # noqa: PLR2004 - major, minor, micro
        return ".".join(stated), "pyvenv.cfg"
    for name in host.listdir(f"{prefix}/conda-meta"):
        if name.startswith("python-3.") and name.endswith(".json"):
            return name.split("-")[1], f"conda-meta/{name}"
    header = host.read_text(f"{base}/include/{library}/patchlevel.h") or ""
    for line in header.splitlines():
        if line.startswith("#define PY_VERSION ") and line.count('"') == 2:  # noqa: PLR2004 - one quoted string
            return line.split('"')[1].rstrip("+"), f"include/{library}/patchlevel.h"
    return _short(library), f"lib/{library}"


def _abi(library: str) -> str:
    """Return `cp311` for `python3.11`, `cp313t` for `python3.13t`; no file contains PyPy's own version."""
    digits = _short(library).replace(".", "")
    free_threaded = "t" if library.endswith("t") else ""
    return f"pp{digits}" if library.startswith("pypy") else f"cp{digits}{free_threaded}"


def _candidates(prefix: str, library: str) -> Iterator[str]:
    """Yield the possible package folders of a library folder in import order, with Debian's own."""
    prefix = prefix.rstrip("/")
    if prefix == "/usr":
        yield f"/usr/local/lib/{library}/dist-packages"
        yield "/usr/lib/python3/dist-packages"
        yield f"/usr/lib/{library}/dist-packages"
    yield f"{prefix}/lib/{library}/site-packages"
    yield f"{prefix}/lib64/{library}/site-packages"


def _sites(host: Host, prefix: str, library: str) -> Iterator[str]:
    return (site for site in _candidates(prefix, library) if host.exists(site))


def _named_in_pth(host: Host, sites: list[str]) -> Iterator[str]:
    """Yield package folders that `.pth` files add. Lines that start with `import` are code and never run."""
    for site, line in _pth_lines(host, sites):
        added = line if line.startswith("/") else f"{site}/{line}"
        if line.endswith(PACKAGE_FOLDERS) and os.path.isdir(host.path(added)):  # noqa: PTH112 - False if it cannot be a path
            yield added


def _pth_lines(host: Host, sites: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of all `.pth` files, without surrounding blanks, each with its package folder."""
    for site in sites:
        for name in _names_in(host, site):
            if name.endswith(".pth"):
                lines = (host.read_text(f"{site}/{name}") or "").splitlines()
                yield from ((site, line.strip()) for line in lines[:_MOST_PTH_LINES])
