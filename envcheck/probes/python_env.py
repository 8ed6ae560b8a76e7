"""Facts of a Python environment: its interpreter and every distribution installed in it.

An interpreter is asked where it looks (`target_scripts/query.py`), under a deadline; metadata is then read
here, by us. With `static`, and always for a tree of files, nothing is run. Asking starts the
interpreter, which runs the environment's own start-up code (`.pth` imports, `sitecustomize`): what
somebody else may have planted there is not run only with `static`.
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
    "python.manager": Key(Kind.WORD, "what made the environment", words=("venv", "conda", "system")),
    "python.base": Key(Kind.WORD, "what a virtual environment was made from"),
    "python.system_site": Key(Kind.FLAG, "whether a virtual environment sees the packages of its base"),
    "python.base_torch": Key(
        Kind.VERSION, "torch of the base, where a virtual environment hides it and has none"
    ),
    "python.externally_managed": Key(Kind.FLAG, "marked so that pip installs nothing into it (PEP 668)"),
    "cuda.copies": Key(Kind.WORDS, "CUDA libraries of which there are several copies, and whose each is"),
    "python.startup_code": Key(Kind.WORDS, "files of package folders that run code at every start of Python"),
    "pkg.*": Key(Kind.VERSION, "version of an installed distribution"),
    "pkg.*.editable": Key(Kind.FLAG, "installed from a checkout; its version is that of the installation"),
    "pkg.*.duplicates": Key(Kind.WORDS, "versions of every record found, the one import takes first"),
    "pkg.*.leftovers": Key(Kind.WORDS, "versions of further records in the very folder it is imported from"),
    "pkg.*.own_version": Key(Kind.VERSION, "version torch's own files state, where it is not the record's"),
    "pkg.*.conda": Key(Kind.VERSION, "version conda installed, where another was put over it"),
    "pkg.*.hidden_by": Key(Kind.WORD, "what an import takes in its place, by where Python looks first"),
    "pkg.*.requires": Key(Kind.WORDS, "what it requires (Requires-Dist), extras left out"),
    "pkg.*.degraded": Key(Kind.FLAG, "its metadata is missing or unreadable; version from the record's name"),
    "pkg.*.unresolved": Key(
        Kind.WORDS, "symbols and libraries that its compiled modules need and the installed torch lacks"
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
# What an interpreter may need to start at all (a shared libpython is found through LD_LIBRARY_PATH),
# and what decides whether the user's own site-packages counts.
_KEPT_VARIABLES = frozenset(
    ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE")
)


def begin(host: Host, request: ProbeRequest) -> Collect:
    """Start asking the interpreter, unless its files or our own process can answer.

    Raises:
        InputError: there is no such interpreter or environment.
        ExamineError: it is there and cannot be examined.
    """
    python = _named(host, request)
    origin = f"{request.python or python} ({request.named_by})" if request.named_by else str(python)
    find = _finder(host, request, python)
    return lambda: _inventory(host, find(), origin, request.deadline_s)


def located(host: Host, request: ProbeRequest) -> Environment:
    """Where the environment's package folders lie.

    Raises:
        InputError: there is no such interpreter or environment.
        ExamineError: it is there and cannot be examined.
    """
    return _finder(host, request, _named(host, request))()


def interpreter(host: Host, request: ProbeRequest) -> str:
    """The interpreter that will be asked; nothing is started.

    Raises:
        InputError: there is no such interpreter or environment.
        ExamineError: it is a broken link.
    """
    return find_interpreter(host, _named(host, request))


def _finder(host: Host, request: ProbeRequest, python: str) -> Callable[[], Environment]:
    """Start what finds out where an environment's parts lie, and return what collects the answer."""
    if not host.staged and _is_own(host, python):
        return lambda: _own_environment(host)
    if request.static or host.staged:
        return lambda: _with_python_path(host, read_layout(host, python))
    marker = os.urandom(16).hex()
    interpreter = find_interpreter(host, python)
    _refuse_no_program(host, interpreter)
    script = str(Path(envcheck.target_scripts.__path__[0]) / "query.py")
    kept = {name: value for name, value in host.environ.items() if name in _KEPT_VARIABLES}
    try:
        running = host.start([interpreter, "-I", "-X", "utf8", script, marker], kept)
    except OSError as error:
        raise ExamineError(
            f"{interpreter}: cannot be run: {_reason(error)}; --static reads files only"
        ) from None

    def answered() -> Environment:
        ran = running.finish(request.deadline_s)
        return _with_python_path(host, _answer(interpreter, ran, marker, request.deadline_s))

    return answered


PROBE = Probe("python_env", YIELDS, begin)


# --- which interpreter ------------------------------------------------------------------------------


def _named(host: Host, request: ProbeRequest) -> str:
    """The absolute path of what is to be examined: links are kept, they tell a venv from its base."""
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
    """Whether the path means the environment we run in: then our own process knows the answer."""
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


def _refuse_no_program(host: Host, interpreter: str) -> None:
    place = host.path(interpreter)
    if not place.is_file():
        raise ExamineError(f"{interpreter}: not a program but some other kind of file")
    if not os.access(place, os.X_OK):
        raise ExamineError(f"{interpreter}: not executable")
    status = place.stat()
    if status.st_mode & stat.S_IWOTH and status.st_uid not in (0, os.getuid()):
        raise ExamineError(
            f"{interpreter}: another user's, and anyone may change it: not started; --static reads files only"
        )


def _with_python_path(host: Host, environment: Environment) -> Environment:
    """The environment with the folders of PYTHONPATH first that hold packages: `-I` hides them from us."""
    folders = [path for path in host.environ.get("PYTHONPATH", "").split(":") if path.startswith("/")]
    named = [
        path
        for path in folders
        if path not in environment.sites and any(name.endswith(".dist-info") for name in host.listdir(path))
    ]
    return environment._replace(sites=(*named, *environment.sites))


# --- its answer -------------------------------------------------------------------------------------


def _answer(interpreter: str, ran: FinishedProcess, marker: str, deadline_s: float) -> Environment:
    """The environment an interpreter described.

    Raises:
        ExamineError: it hung, failed, or said something else.
    """
    if ran.code is None:
        raise ExamineError(f"{interpreter}: no answer within {deadline_s:g} s; --static reads files only")
    framed = ran.out.split(marker)
    if len(framed) != 3:  # noqa: PLR2004 - before, the answer, after
        raise ExamineError(f"{interpreter}: {_complaint(ran)}")
    import json

    try:
        return _environment(json.loads(framed[1]), f"asked {interpreter}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExamineError(f"{interpreter}: its answer is not one of Python's: {framed[1][:60]!r}") from None


def _environment(answer: Mapping[str, Any], source: str) -> Environment:
    words = [answer[name] for name in ("version", "implementation", "abi", "prefix", "base_prefix")]
    sites = answer["sites"]
    if not all(isinstance(word, str) for word in (*words, *sites)):
        raise TypeError
    version, implementation, abi, prefix, base_prefix = words
    return Environment(version, implementation, abi, prefix, base_prefix, tuple(dict.fromkeys(sites)), source)


def _complaint(ran: FinishedProcess) -> str:
    """What a program that did not answer said instead, on one line."""
    if "Unknown option: -I" in ran.err or "future feature annotations" in ran.err:
        return "Python 2, or older than 3.7: not examined"
    said = [line.strip() for line in (ran.err or ran.out).splitlines() if line.strip()]
    if ran.code:
        # Python's own last words end a traceback; a shell's or a shim's stand first.
        telling = said[-1 if "Traceback" in ran.err else 0][:120] if said else "said nothing"
        return f"failed with exit status {ran.code}: {telling}"
    return f"does not answer as a Python interpreter: {said[0][:120]!r}" if said else "did not answer"


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
        from envcheck.probes import _copies  # where no CUDA is, there are no two

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
    """What decides which package an import takes, beside what is installed."""
    yield Fact("python.base_torch", Absent(), "no virtual environment that hides one")
    code = tuple(label.path(path) for path in startup_code(host, environment.sites))
    if code:
        yield Fact("python.startup_code", Known(code), "read, not run")
    if is_venv(host, environment.prefix) and environment.base_prefix != environment.prefix:
        said = venv_settings(host, environment.prefix).get("include-system-site-packages", "false").lower()
        yield Fact("python.base", Known(environment.base_prefix), "pyvenv.cfg")
        yield Fact("python.system_site", Known(said == "true"), "pyvenv.cfg")
        if "torch" not in found and said != "true":
            yield _torch_of_base(host, environment)
    first = [path for path in host.environ.get("PYTHONPATH", "").split(":") if path.startswith("/")]
    if not host.staged and not host.environ.get("PYTHONSAFEPATH"):
        first.insert(0, working_directory())
    for record, path in hidden(host, [folder for folder in first if folder], environment.sites, found):
        yield Fact(
            package_key(record.name, "hidden_by"),
            Known(path),
            "the order in which Python looks, started here",
        )


def _torch_of_base(host: Host, environment: Environment) -> Fact:
    for site in base_sites(host, environment):
        for entry in host.listdir(site):
            if entry.startswith("torch-") and entry.endswith(".dist-info"):
                return Fact("python.base_torch", Known(entry[6:-10]), f"{site}/{entry}")
    return Fact("python.base_torch", Absent(), "the base's package folders")


def _records(
    host: Host, sites: Iterable[str], deadline_s: float
) -> tuple[dict[str, list[InstalledFiles]], list[str]]:
    """Records by name, the one `import` takes first, and why a folder could not be read to its end."""
    found: dict[str, list[InstalledFiles]] = {}
    until = monotonic() + deadline_s
    unread = []
    places: dict[str, str] = {}

    def locate(path: str) -> str:
        return str(host.path(path))

    for site in sites:
        place = os.path.realpath(locate(site))
        if place in places.values():
            continue  # lib64 is a link to lib
        places[site] = place
        try:
            for record in read_site(site, place, locate):
                found.setdefault(record.name, []).append(record)
                if monotonic() > until:
                    unread.append(f"{site}: not read to its end within {deadline_s:g} s")
                    break
        except OSError as error:
            unread.append(f"{site}: {_reason(error)}")
    for name, records in found.items():
        if len(records) > 1:
            found[name] = imported_first(records, places.__getitem__)
    if len(found.get("torch", ())) > 1:
        found["torch"] = _stated_first(host, found["torch"])
    return found, unread


def _stated_first(host: Host, records: list[InstalledFiles]) -> list[InstalledFiles]:
    """Torch's records with the one first that agrees with what torch/version.py states."""
    stated = _public(builds.stated_version(_reader(host, records[0].site)))
    for record in records:
        if record.site == records[0].site and _public(record.version) == stated:
            return [record, *(each for each in records if each is not record)]
    return records


def _public(version: str) -> str:
    """A version without its local label, which wheels may have or not, and conda-forge's `.post301`."""
    return version.partition("+")[0].partition(".post")[0]


class _Label:
    """Names a record relative to the environment's prefix, as a report shows it."""

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
        """The short name of a path in a package folder."""
        return f"{self._starts.get(site, site)}/{path}"

    def path(self, path: str) -> str:
        """The short name of a file that lies directly in a package folder."""
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
        sources = ", ".join(label(each.site, each.entry) for each in records)
        yield Fact(f"{key}.duplicates", Known(tuple(each.version or "?" for each in records)), sources)
        left = tuple(each.version or "?" for each in records[1:] if each.site == record.site)
        if left:
            yield Fact(f"{key}.leftovers", Known(left), sources)


def _version(record: InstalledFiles) -> Reading:
    return (
        Known(record.version)
        if record.version
        else Unknown("no version in its metadata or the record's name")
    )


def _conda_facts(
    host: Host, environment: Environment, found: Mapping[str, list[InstalledFiles]]
) -> Iterator[Fact]:
    """Python packages only conda knows: no record in any package folder, but files there.

    conda's C libraries have no such files; a package whose own record we read is not named twice, but that
    something else was put over what conda installed is said.
    """
    folder = f"{environment.prefix}/conda-meta"
    for record in conda_records(host.listdir(folder)):
        name = _CONDA_NAMES.get(record.name, record.name)
        source = f"conda-meta/{record.entry}"
        if name in found:
            if _public(found[name][0].version) != _public(record.version) and found[name][0].version:
                yield Fact(package_key(name, "conda"), Known(record.version), source)
        elif record.name not in found:
            text = host.read_text(f"{folder}/{record.entry}")
            if text is not None and installs_python_files(text):
                yield Fact(package_key(name), Known(record.version), source)


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
                yield from _torch_states(found.get(name, ()), builds.stated_version(read), source)
            else:
                yield from builds.deepspeed_facts(read, source)
        else:
            missing = Unknown("; ".join(unread)) if unread else Absent()
            yield from (Fact(key, missing, f"{name} is not installed") for key in keys)


def _torch_states(
    records: Sequence[InstalledFiles], stated: str, source: Callable[[str], str]
) -> Iterator[Fact]:
    """The version that torch itself states, where its record has another."""
    recorded = records[0].version if records else ""
    if stated and recorded and _public(stated) != _public(recorded):
        yield Fact("pkg.torch.own_version", Known(stated), source("torch/version.py"))


def _extension_facts(host: Host, found: Mapping[str, list[InstalledFiles]], label: _Label) -> Iterator[Fact]:
    """What packages that require torch were compiled for; nothing is read where there is no torch."""
    if "torch" not in found:
        return
    torch = found["torch"][0]
    if not _is_published(torch.version, host):
        from envcheck.probes import _extensions

        if code := _extensions.architectures_of_torch(host, f"{torch.site}/torch/lib"):
            source = label(torch.site, "torch/lib/libtorch_cuda.so")
            yield Fact("build.torch.architectures", Known(code), source)
    firsts = (records[0] for name, records in found.items() if name != "torch")
    # torchaudio, torchao and others leave it to the user to have a torch.
    for_torch = (each for each in firsts if "torch" in each.name or any(map(_is_torch, each.requires)))
    listed = ((each, shared_libraries(str(host.path(each.site)), each)) for each in for_torch)
    compiled = [(record, paths) for record, paths in listed if paths]
    if compiled:
        from envcheck.probes import _extensions  # reads ELF files, which few starts need

        yield from _extensions.facts(host, torch, compiled, label)


def _is_published(version: str, host: Host) -> bool:
    """Whether this is a release whose wheel for x86_64 was opened: the tables say what that has code for."""
    public, _, label = version.partition(".dev")[0].partition("+")
    plain = public.replace(".", "").isdecimal() and ".dev" not in version
    return (
        plain and (not label or label[:2] in ("cu", "cp")) and (host.staged or os.uname().machine == "x86_64")
    )


def _is_torch(requirement: str) -> bool:
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
