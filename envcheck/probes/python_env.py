"""Facts of a Python environment: its interpreter and every distribution installed in it.

The interpreter runs `target_scripts/query.py` under a deadline, which prints where it looks for packages. The
metadata of the packages is then read here. Starting the interpreter also runs the environment's start-up code
(`.pth` imports, `sitecustomize`), which somebody else may have planted; with `static`, and always for a tree
of files, nothing is run.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import envcheck.target_scripts
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.facts import Absent, Fact, Inventory, Key, Kind, Known, Reading, Unknown, package_key
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.host.environment import own_python, working_directory
from envcheck.host.machine import Host
from envcheck.host.processes import FinishedProcess
from envcheck.probes import Collect, Probe, ProbeRequest, builds
from envcheck.probes.distributions import (
    InstalledFiles,
    conda_records,
    imported_first,
    installs_python_files,
    read_site,
    shared_libraries,
)
from envcheck.probes.imports import hidden
from envcheck.probes.layout import (
    Environment,
    base_sites,
    find_interpreter,
    is_externally_managed,
    is_venv,
    read_layout,
    startup_code,
    venv_settings,
)

YIELDS = {
    "python.version": Key(Kind.VERSION, "version of the interpreter, e.g. 3.11.7"),
    "python.implementation": Key(Kind.WORD, "cpython, pypy, …"),
    "python.abi": Key(Kind.WORD, "ABI tag as wheels spell it: cp311, cp313t (free-threaded)"),
    "python.origin": Key(Kind.WORD, "the environment's path and what named it"),
    "python.manager": Key(
        Kind.WORD, "the tool that created the environment", words=("venv", "conda", "system")
    ),
    "python.base": Key(Kind.WORD, "the Python that a virtual environment was created from"),
    "python.system_site": Key(Kind.FLAG, "whether a virtual environment can use the packages of its base"),
    "python.base_torch": Key(
        Kind.VERSION, "torch of the base, if a virtual environment hides it and has none"
    ),
    "python.externally_managed": Key(
        Kind.FLAG, "marked as externally managed, so that pip installs nothing into it (PEP 668)"
    ),
    "cuda.copies": Key(Kind.WORDS, "CUDA libraries with several copies, and the owner of each"),
    "python.startup_code": Key(Kind.WORDS, "files of package folders that run code at every start of Python"),
    "packages.from_conda": Key(
        Kind.WORDS, "packages that conda installed: it builds them for one another, not as the wheels are"
    ),
    "packages.from_source": Key(
        Kind.WORDS, "packages that a lock takes from a repository: each is compiled for the torch beside it"
    ),
    "pkg.*": Key(Kind.VERSION, "version of an installed distribution"),
    "pkg.*.editable": Key(Kind.FLAG, "installed from a checkout; its version is that of the installation"),
    "pkg.*.duplicates": Key(Kind.WORDS, "versions of all records found, the imported one first"),
    "pkg.*.leftovers": Key(Kind.WORDS, "versions of further records in the folder from which it is imported"),
    "pkg.*.own_version": Key(Kind.VERSION, "version in torch's own files, if it differs from the record's"),
    "pkg.*.conda": Key(Kind.VERSION, "version that conda installed, if another one was installed over it"),
    "pkg.*.hidden_by": Key(Kind.WORD, "what is imported instead, because Python searches it first"),
    "pkg.*.requires": Key(Kind.WORDS, "what it requires (Requires-Dist), without extras"),
    "pkg.*.degraded": Key(Kind.FLAG, "its metadata is missing or unreadable; version from the record's name"),
    "pkg.*.unresolved": Key(
        Kind.WORDS, "symbols and libraries that its compiled modules need and the installed torch lacks"
    ),
    "pkg.*.resolved": Key(
        Kind.FLAG, "the installed torch defines every symbol of torch that its compiled modules need"
    ),
    "pkg.*.architectures": Key(
        Kind.WORDS, "GPU architectures its modules for torch have code for: sm_80; compute_90 is PTX"
    ),
    "build.torch.architectures": Key(
        Kind.WORDS, "GPU architectures torch has code for: sm_80, …; compute_90 is PTX"
    ),
    **builds.YIELDS,
}

_CONDA_NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}
_FOR_TORCH = pattern(r"torch|-kernels?$")
# Variables that an interpreter may need to start (LD_LIBRARY_PATH for a shared libpython), and those that
# decide whether it uses the user's own site-packages.
_KEPT_VARIABLES = frozenset(
    ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE")
)


def begin(host: Host, request: ProbeRequest) -> Collect:
    """Start the interpreter, unless its files or our own process can answer.

    Raises:
        InputError: there is no such interpreter or environment.
        ExamineError: it is there and cannot be examined.
    """
    python = _requested(host, request)
    origin = f"{request.python or python} ({request.named_by})" if request.named_by else str(python)
    find = _finder(host, request, python)
    return lambda: _inventory(host, find(), origin, request.deadline_s)


def located(host: Host, request: ProbeRequest) -> Environment:
    """Return the requested environment, with its package folders.

    Raises:
        InputError: there is no such interpreter or environment.
        ExamineError: it is there and cannot be examined.
    """
    return _finder(host, request, _requested(host, request))()


def interpreter(host: Host, request: ProbeRequest) -> str:
    """Return the interpreter that would be run; nothing is started.

    Raises:
        InputError: there is no such interpreter or environment.
        ExamineError: it is a broken link.
    """
    return find_interpreter(host, _requested(host, request))


def _finder(host: Host, request: ProbeRequest, python: str) -> Callable[[], Environment]:
    """Start what finds the parts of an environment, and return the function that collects the result."""
    if not host.staged and _is_own(host, python):
        return lambda: _own_environment(host)
    if request.static or host.staged:
        return lambda: _with_python_path(host, read_layout(host, python))
    marker = os.urandom(16).hex()
    interpreter = find_interpreter(host, python)
    _require_program(host, interpreter)
    script = str(Path(envcheck.target_scripts.__path__[0]) / "query.py")
    kept = {name: value for name, value in host.environ.items() if name in _KEPT_VARIABLES}
    try:
        running = host.start([interpreter, "-I", "-X", "utf8", script, marker], kept)
    except OSError as error:
        raise ExamineError(
            f"{interpreter}: cannot be run: {_reason(error)}; --static reads files only"
        ) from None

    def collect() -> Environment:
        ran = running.finish(request.deadline_s)
        return _with_python_path(host, _answer(interpreter, ran, marker, request.deadline_s))

    return collect


PROBE = Probe("python_env", YIELDS, begin)


# --- which interpreter ------------------------------------------------------------------------------


def _requested(host: Host, request: ProbeRequest) -> str:
    """Return the absolute path to examine; links are kept, because they distinguish a venv from its base."""
    if request.python is None:
        return own_python() if not host.staged else _on_path(host, "python3")
    given = str(request.python)
    if "/" not in given and not host.staged and not Path(given).exists():
        return _on_path(host, given)
    return os.path.normpath(f"/{given}") if host.staged else os.path.abspath(given)  # noqa: PTH100


def _on_path(host: Host, program: str) -> str:
    folders = [*host.environ.get("PATH", "").split(":"), "/usr/local/bin", "/usr/bin"]
    for folder in folders:
        if folder.startswith("/") and host.exists(f"{folder}/{program}"):
            return f"{folder}/{program}"
    raise InputError(program, "no such interpreter or environment; name one with --python")


def _is_own(host: Host, path: str) -> bool:
    """Return whether the path is the environment that envcheck runs in, which needs no other process."""
    real, prefix = os.path.realpath(path), os.path.realpath(sys.prefix)
    if real == prefix:
        return True
    if is_venv(host, sys.prefix):
        folder = os.path.realpath(path.rpartition("/")[0])
        return folder == f"{prefix}/bin" and real == os.path.realpath(own_python())
    return path == own_python()


def _own_environment(host: Host) -> Environment:
    from envcheck.target_scripts import query

    environment = _environment({**query.describe()}, "envcheck's own interpreter")
    return _with_python_path(host, environment)


def _require_program(host: Host, interpreter: str) -> None:
    """Raise ExamineError if the interpreter cannot or should not be started."""
    place = host.path(interpreter)
    if not place.is_file():
        raise ExamineError(f"{interpreter}: not a program")
    if not os.access(place, os.X_OK):
        raise ExamineError(f"{interpreter}: not executable")
    status = place.stat()
    if status.st_mode & stat.S_IWOTH and status.st_uid not in (0, os.getuid()):
        raise ExamineError(
            f"{interpreter}: owned by another user and writable by everyone: not started; "
            "--static reads files only"
        )


def _with_python_path(host: Host, environment: Environment) -> Environment:
    """Put the package folders of PYTHONPATH first, which an interpreter started with `-I` does not list."""
    folders = [path for path in host.environ.get("PYTHONPATH", "").split(":") if path.startswith("/")]
    with_packages = [
        path
        for path in folders
        if path not in environment.sites and any(name.endswith(".dist-info") for name in host.listdir(path))
    ]
    return environment._replace(sites=(*with_packages, *environment.sites))


# --- its answer -------------------------------------------------------------------------------------


def _answer(interpreter: str, ran: FinishedProcess, marker: str, deadline_s: float) -> Environment:
    """Return the environment that an interpreter described.

    Raises:
        ExamineError: the interpreter hung or failed, or its output is not an answer.
    """
    if ran.code is None:
        raise ExamineError(f"{interpreter}: no answer within {deadline_s:g} s; --static reads files only")
    framed = ran.out.split(marker)
    if len(framed) != 3:  # noqa: PLR2004 - text before, the answer, text after
        raise ExamineError(f"{interpreter}: {_complaint(ran)}")
    from envcheck.core.parsing import parse_json

    try:
        return _environment(parse_json(framed[1], interpreter), f"asked {interpreter}")
    except (InputError, KeyError, TypeError, AttributeError):
        raise ExamineError(f"{interpreter}: its output is not that of Python: {framed[1][:60]!r}") from None


def _environment(answer: Mapping[str, Any], source: str) -> Environment:
    """Read the answer of `query.py`.

    Raises:
        KeyError: a value is missing.
        TypeError: a value is not text.
    """
    texts = [answer[name] for name in ("version", "implementation", "abi", "prefix", "base_prefix")]
    sites = answer["sites"]
    if not all(isinstance(text, str) for text in (*texts, *sites)):
        raise TypeError
    version, implementation, abi, prefix, base_prefix = texts
    return Environment(version, implementation, abi, prefix, base_prefix, tuple(dict.fromkeys(sites)), source)


def _complaint(ran: FinishedProcess) -> str:
    """Return what a program that did not answer printed instead, on one line."""
    if "Unknown option: -I" in ran.err or "future feature annotations" in ran.err:
        return "Python 2, or older than 3.7: not examined"
    lines = [line.strip() for line in (ran.err or ran.out).splitlines() if line.strip()]
    if ran.code:
        # The message ends a traceback of Python; that of a shell or a shim comes first.
        message = lines[-1 if "Traceback" in ran.err else 0][:120] if lines else "said nothing"
        return f"failed with exit status {ran.code}: {message}"
    return f"does not behave like a Python interpreter: {lines[0][:120]!r}" if lines else "did not answer"


# --- facts ------------------------------------------------------------------------------------------


def _inventory(host: Host, environment: Environment, origin: str, deadline_s: float) -> Inventory:
    found, unread = _records(host, environment.sites, deadline_s)
    if unread and not found and len(unread) == len(environment.sites):
        raise ExamineError(f"no package folder can be read: {unread[0]}")
    label = _Label(host, environment)
    facts = [*_python_facts(host, environment, origin), *_about_imports(host, environment, found, label)]
    for records in found.values():
        facts += _package_facts(records, label)
    facts += _conda_facts(host, environment, found)
    facts += _build_facts(host, environment, found, label, unread)
    facts += _extension_facts(host, found, label)
    if "torch" in found or any(name.startswith("nvidia-") for name in found):
        from envcheck.probes import _copies  # only environments with CUDA libraries need it

        facts.append(_copies.fact(host, environment.prefix, found))
    by_key = {fact.key: fact for fact in facts}
    if unread:
        return Inventory(by_key, unread={"pkg": "; ".join(unread)})
    return Inventory(by_key, complete=frozenset({"pkg"}))


def _python_facts(host: Host, environment: Environment, origin: str) -> Iterator[Fact]:
    source = environment.source
    yield Fact("python.version", Known(environment.version), source)
    yield Fact("python.implementation", Known(environment.implementation), source)
    yield Fact("python.abi", Known(environment.abi), source)
    yield Fact("python.origin", Known(origin), source)
    if is_venv(host, environment.prefix):
        yield Fact("python.manager", Known("venv"), "pyvenv.cfg")
    elif host.exists(f"{environment.prefix}/conda-meta"):
        yield Fact("python.manager", Known("conda"), "conda-meta")
    else:
        yield Fact("python.manager", Known("system"), "neither pyvenv.cfg nor conda-meta")
    if is_externally_managed(host, environment):
        yield Fact("python.externally_managed", Known(True), "EXTERNALLY-MANAGED")


def _about_imports(
    host: Host, environment: Environment, found: Mapping[str, list[InstalledFiles]], label: _Label
) -> Iterator[Fact]:
    """Yield what decides which package an import finds, apart from what is installed."""
    yield Fact("python.base_torch", Absent(), "no virtual environment that hides one")
    code = tuple(label.path(path) for path in startup_code(host, environment.sites))
    if code:
        yield Fact("python.startup_code", Known(code), "read, not run")
    if is_venv(host, environment.prefix) and environment.base_prefix != environment.prefix:
        system_site = venv_settings(host, environment.prefix).get("include-system-site-packages", "false")
        sees_base = system_site.lower() == "true"
        yield Fact("python.base", Known(environment.base_prefix), "pyvenv.cfg")
        yield Fact("python.system_site", Known(sees_base), "pyvenv.cfg")
        if "torch" not in found and not sees_base:
            yield _torch_of_base(host, environment)
    first = [path for path in host.environ.get("PYTHONPATH", "").split(":") if path.startswith("/")]
    if not host.staged and not host.environ.get("PYTHONSAFEPATH"):
        first.insert(0, working_directory())
    for record, path in hidden(host, [folder for folder in first if folder], environment.sites, found):
        yield Fact(
            package_key(record.name, "hidden_by"),
            Known(path),
            "the order in which Python searches, if started here",
        )


def _torch_of_base(host: Host, environment: Environment) -> Fact:
    for site in base_sites(host, environment):
        for entry in host.listdir(site):
            if entry.startswith("torch-") and entry.endswith(".dist-info"):
                return Fact("python.base_torch", Known(entry[6:-10]), f"{site}/{entry}")
    return Fact("python.base_torch", Absent(), "the base's package folders")


class _RecordsDeadline(NamedTuple):
    """How many seconds reading may take, and when that time ends by the monotonic clock."""

    seconds: float
    at: float


def _records(
    host: Host, sites: Iterable[str], deadline_s: float
) -> tuple[dict[str, list[InstalledFiles]], list[str]]:
    """Return records by name, the one that `import` finds first, and why folders could not be fully read."""
    found: dict[str, list[InstalledFiles]] = {}
    deadline = _RecordsDeadline(deadline_s, monotonic() + deadline_s)
    unread = []
    places: dict[str, str] = {}
    for site in sites:
        place = os.path.realpath(host.path(site))
        if place in places.values():
            continue  # lib64 is a link to lib
        places[site] = place
        if problem := _read_records(host, site, place, found, deadline):
            unread.append(f"{site}: {problem}")
    for name, records in found.items():
        if len(records) > 1:
            found[name] = imported_first(records, places.__getitem__)
    if len(found.get("torch", ())) > 1:
        found["torch"] = _stated_first(host, found["torch"])
    return found, unread


def _read_records(
    host: Host, site: str, place: str, found: dict[str, list[InstalledFiles]], deadline: _RecordsDeadline
) -> str:
    """Add the records of one package folder to `found`; return why it could not be fully read, or ""."""
    try:
        for record in read_site(site, place, lambda path: str(host.path(path))):
            found.setdefault(record.name, []).append(record)
            if monotonic() > deadline.at:
                return f"not completely read within {deadline.seconds:g} s"
    except OSError as error:
        return _reason(error)
    return ""


def _stated_first(host: Host, records: list[InstalledFiles]) -> list[InstalledFiles]:
    """Return torch's records, the one that agrees with the version in torch/version.py first."""
    stated = _public(builds.stated_version(_reader(host, records[0].site)))
    for record in records:
        if record.site == records[0].site and _public(record.version) == stated:
            return [record, *(other for other in records if other is not record)]
    return records


def _public(version: str) -> str:
    """Remove the local label, which only some wheels have, and conda-forge's `.post301` from a version."""
    return version.partition("+")[0].partition(".post")[0]


class _Label:
    """Shortens paths in package folders to be relative to the environment's prefix or the home folder."""

    def __init__(self, host: Host, environment: Environment) -> None:
        self._starts: dict[str, str] = {}
        prefix = environment.prefix.rstrip("/") + "/"
        home = host.environ.get("HOME", "").rstrip("/") + "/"
        for site in environment.sites:
            short = site.removeprefix(prefix)
            self._starts[site] = (
                f"~/{site[len(home) :]}" if short == site and site.startswith(home) else short
            )

    def __call__(self, site: str, path: str) -> str:
        """Return the short name of a path in a package folder."""
        return f"{self._starts.get(site, site)}/{path}"

    def path(self, path: str) -> str:
        """Return the short name of a file directly in a package folder."""
        site, _, name = path.rpartition("/")
        return self(site, name)


def _package_facts(records: list[InstalledFiles], label: _Label) -> Iterator[Fact]:
    record = records[0]
    key = package_key(record.name)
    source = label(record.site, record.entry)
    yield Fact(key, _version(record), source)
    if record.requires:
        yield Fact(f"{key}.requires", Known(record.requires), source)
    if record.editable:
        yield Fact(f"{key}.editable", Known(True), record.checkout or source)
    if record.degraded:
        yield Fact(f"{key}.degraded", Known(True), source)
    if len(records) > 1:
        sources = ", ".join(label(other.site, other.entry) for other in records)
        versions = tuple(other.version or "?" for other in records)
        yield Fact(f"{key}.duplicates", Known(versions), sources)
        leftovers = tuple(other.version or "?" for other in records[1:] if other.site == record.site)
        if leftovers:
            yield Fact(f"{key}.leftovers", Known(leftovers), sources)


def _version(record: InstalledFiles) -> Reading:
    return (
        Known(record.version)
        if record.version
        else Unknown("no version in its metadata or the record's name")
    )


def _conda_facts(
    host: Host, environment: Environment, found: Mapping[str, list[InstalledFiles]]
) -> Iterator[Fact]:
    """Yield Python packages that only conda knows: with files in a package folder, but no record there.

    conda's C libraries have no such files. A package whose own record was read is not repeated; but if its
    version differs from what conda installed, something else replaced it, and a fact says so.
    """
    folder = f"{environment.prefix}/conda-meta"
    by_conda = set()
    for record in conda_records(host.listdir(folder)):
        name = _CONDA_NAMES.get(record.name, record.name)
        source = f"conda-meta/{record.entry}"
        replaced = name in found and _public(found[name][0].version) != _public(record.version)
        if name in found:
            by_conda |= set() if replaced else {name}
            if replaced and found[name][0].version:
                yield Fact(package_key(name, "conda"), Known(record.version), source)
        elif record.name not in found:
            text = host.read_text(f"{folder}/{record.entry}")
            if text is not None and installs_python_files(text):
                yield Fact(package_key(name), Known(record.version), source)
    if by_conda:
        yield Fact("packages.from_conda", Known(tuple(sorted(by_conda))), "conda-meta")


def _build_facts(
    host: Host,
    environment: Environment,
    found: Mapping[str, list[InstalledFiles]],
    label: _Label,
    unread: list[str],
) -> Iterator[Fact]:
    conda = {
        _CONDA_NAMES.get(record.name, record.name): record
        for record in conda_records(host.listdir(f"{environment.prefix}/conda-meta"))
    }
    for name, keys in _BUILD_KEYS.items():
        if name in found or name in conda:
            site = found[name][0].site if name in found else next(iter(environment.sites), "")
            read, source = _reader(host, site), _sourced(label, site)
            if name == "torch":
                build = conda[name].build if name in conda else None
                chooser = conda["pytorch-cuda"].version if "pytorch-cuda" in conda else ""
                yield from builds.torch_facts(read, source, build, chooser)
                yield from _own_version(found.get(name, ()), builds.stated_version(read), source)
            else:
                yield from builds.deepspeed_facts(read, source)
        else:
            missing = Unknown("; ".join(unread)) if unread else Absent()
            yield from (Fact(key, missing, f"{name} is not installed") for key in keys)


def _own_version(
    records: Sequence[InstalledFiles], stated: str, source: Callable[[str], str]
) -> Iterator[Fact]:
    """Yield the version in torch's own files, if its record states another one."""
    recorded = records[0].version if records else ""
    if stated and recorded and _public(stated) != _public(recorded):
        yield Fact("pkg.torch.own_version", Known(stated), source("torch/version.py"))


def _extension_facts(host: Host, found: Mapping[str, list[InstalledFiles]], label: _Label) -> Iterator[Fact]:
    """Yield what packages that require torch were compiled for; nothing is read without a torch."""
    if "torch" not in found:
        return
    torch = found["torch"][0]
    if not _is_published(torch.version, host):
        from envcheck.probes import _extensions

        if code := _extensions.architectures_of_torch(host, f"{torch.site}/torch/lib"):
            source = label(torch.site, "torch/lib/libtorch_cuda.so")
            yield Fact("build.torch.architectures", Known(code), source)
    imported = (records[0] for name, records in found.items() if name != "torch")
    # torchaudio, torchao, sgl-kernel and others do not require torch in their metadata.
    for_torch = (rec for rec in imported if _FOR_TORCH.search(rec.name) or any(map(_is_torch, rec.requires)))
    listed = ((record, shared_libraries(str(host.path(record.site)), record)) for record in for_torch)
    compiled = [(record, paths) for record, paths in listed if paths]
    if compiled:
        from envcheck.probes import _extensions  # only needed where compiled packages are installed

        yield from _extensions.facts(host, torch, compiled, label)


def _is_published(version: str, host: Host) -> bool:
    """Return whether the tables list the architectures of this release, whose x86_64 wheel was examined."""
    public, _, label = version.partition(".dev")[0].partition("+")
    plain = public.replace(".", "").isdecimal() and ".dev" not in version
    return (
        plain and (not label or label[:2] in ("cu", "cp")) and (host.staged or os.uname().machine == "x86_64")
    )


def _is_torch(requirement: str) -> bool:
    """Return whether a requirement is for the package torch itself."""
    return (
        requirement.startswith("torch")
        and not requirement[5:6].isalnum()
        and requirement[5:6] not in ("-", "_", ".")
    )


_BUILD_KEYS = {
    name: [key for key in builds.YIELDS if key.startswith(f"build.{name}.")]
    for name in ("torch", "deepspeed")
}


def _reader(host: Host, site: str) -> Callable[[str], str | None]:
    return lambda path: host.read_text(f"{site}/{path}")


def _sourced(label: _Label, site: str) -> Callable[[str], str]:
    return lambda path: label(site, path)


def _reason(error: OSError) -> str:
    return (error.strerror or "cannot be read").lower()
