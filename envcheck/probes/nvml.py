"""Ask NVML in a child process, parse the lines that it writes, and turn its numbers into readings.

Nothing here loads the driver's library or `pynvml`; `_nvml_child.py` does, because its process may hang or
crash.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from envcheck.core.errors import InputError
from envcheck.core.facts import Known, Reading, Unknown
from envcheck.core.nvidia import (
    FUNCTION_NOT_FOUND,
    LIBRARY,
    NOT_SUPPORTED,
    OTHER_FOLDERS,
    code_in_words,
)
from envcheck.core.records import NamedTuple
from envcheck.host.environment import own_python
from envcheck.host.machine import Host
from envcheck.host.processes import FinishedProcess, Running

LOADER_FOLDERS = (
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
)
"""Where the dynamic loader looks by default."""
WSL_DRIVERS = "/usr/lib/wsl/drivers"

PER_GPU = 0.3
"""Share of the deadline added for each further GPU: 3 of 10 s. A cold driver starts one GPU at a time."""
MOST_GPUS = 256
MOST_MEMORY_MIB = 16 << 20  # 16 TiB
MOST_CRASHES = 12
ESSENTIAL = ("nvmlInit", "nvmlDeviceGetCount")
NO_LIBRARY = f"no NVIDIA driver library ({LIBRARY}) was found"

COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")  # by NVML's number

VERSION = r"\d{1,6}(\.\d{1,6}){0,5}"  # not compiled: most machines never use it


def find_library(host: Host) -> str | None:
    """Return the folder to add to LD_LIBRARY_PATH so that NVML is found, "" if none is needed, else None.

    The result decides whether a child is started, which would be wasted time on a machine without NVIDIA.
    """
    # The loader accepts both separators. An empty entry means the current folder, which for us is the root.
    own = [
        folder for folder in host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if folder
    ]
    if any(host.exists(f"{folder}/{LIBRARY}") for folder in (*own, *LOADER_FOLDERS)):
        return ""
    if LIBRARY in (host.read_text("/etc/ld.so.cache") or ""):
        return ""
    return next((folder for folder in _further_folders(host) if host.exists(f"{folder}/{LIBRARY}")), None)


def other_libraries(host: Host, answered: str) -> tuple[str, ...]:
    """Return folders with another NVML library than the loaded file `answered`.

    If no file was loaded, all but the first folder are returned. A toolkit's stub, or a library left over
    from an older driver, may be found before the driver's own.
    """
    own = host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    found: dict[str, str] = {}
    for folder in (*filter(None, own), *LOADER_FOLDERS, *_further_folders(host)):
        if host.exists(f"{folder}/{LIBRARY}"):
            found.setdefault(host.follow(f"{folder}/{LIBRARY}"), folder)
    failed = answered if answered in found else next(iter(found), "")
    return tuple(folder for file, folder in found.items() if file != failed)


def _further_folders(host: Host) -> tuple[str, ...]:
    return *OTHER_FOLDERS, *(f"{WSL_DRIVERS}/{name}" for name in host.listdir(WSL_DRIVERS))


CallKey: TypeAlias = tuple[int | None, str]
"""A call that was made: the GPU's index, or None for the machine, and the name of the call."""


class FactSource(NamedTuple):
    """Call that a fact comes from, and the function that turns its answer into a reading."""

    call: str
    read: Callable[[object], Reading]


class DriverProblem(NamedTuple):
    """Why a call has no answer.

    `code` is NVML's code if it returned one; `lost` is "no answer" or "crashed" if the call lost the child.
    """

    why: str
    code: int | None = None
    lost: str = ""


class NvmlAnswers:
    """What the child wrote: answers, problems, and the calls that did not return, oldest first.

    `lost` says how the child was lost ("no answer", "crashed"), `silence` why other calls were not made, and
    `passed_over` names a library that was found first and failed, with its code.
    """

    def __init__(self, silence: str = "") -> None:
        """Start without answers; `silence` is why no call will be made, if that is known."""
        self.answers: dict[CallKey, object] = {}
        self.problems: dict[CallKey, DriverProblem] = {}
        self.entered: list[CallKey] = []
        self.lost = ""
        self.silence = silence
        self.passed_over: tuple[str, int] | None = None

    def value(self, gpu: int | None, call: str) -> object:
        """Return the answer of a call, or Unknown with the most specific reason."""
        key = (gpu, call)
        if key in self.answers:
            return self.answers[key]
        if key in self.problems:
            return Unknown(self.problems[key].why)
        of_gpu = [problem for (other, _), problem in self.problems.items() if other == gpu]
        # If a call did not return, or NVML gave no handle, the later calls were not made.
        stopped = [problem for problem in of_gpu if problem.code is None]
        handle = self.problems.get((gpu, "nvmlDeviceGetHandleByIndex"))
        for problem in (*stopped[-1:], *([handle] if handle else ())):
            # For a GPU without a handle or answer, that problem is the finding; no other call was made.
            return Unknown(problem.why, asked=gpu is None or problem.lost == "crashed")
        return Unknown(self.silence or f"{call} was not queried")

    def code(self, gpu: int, call: str) -> int | None:
        """Return the code with which NVML refused a call; None if it did not refuse it."""
        problem = self.problems.get((gpu, call))
        return problem.code if problem else None

    def calls(self, prefix: str) -> tuple[CallKey, ...]:
        """Return the calls that were made, with any result, whose name starts with a prefix."""
        return tuple(key for key in (*self.answers, *self.problems) if key[1].startswith(prefix))

    def text(self, gpu: int | None, call: str) -> str:
        """Return the answer of a call if it is text, else an empty string."""
        value = self.value(gpu, call)
        return value if isinstance(value, str) else ""

    @property
    def count(self) -> int | None:
        """Return the number of GPUs that NVML counts; None if it did not answer."""
        value = self.value(None, "nvmlDeviceGetCount")
        return value if isinstance(value, int) else None

    @property
    def failed(self) -> tuple[str, int] | None:
        """Return the essential call that NVML refused, and its code; None if it refused none."""
        for call in ESSENTIAL:
            problem = self.problems.get((None, call))
            if problem is not None and problem.code is not None:
                return call, problem.code
        return None


def parse(lines: str) -> NvmlAnswers:
    """Parse what the child wrote; an unfinished line is dropped."""
    found = NvmlAnswers()
    for line in lines.splitlines():
        match _event(line):
            case ["enter", int() | None as gpu, str(call)]:
                found.entered.append((gpu, call))
            case ["answer", int() | None as gpu, str(call), answer]:
                found.answers[_leave(found, gpu, call)] = answer
            case ["refused", int() | None as gpu, str(call), int(code)]:
                key = _leave(found, gpu, call)
                found.problems[key] = DriverProblem(refusal(key, code), code)
            case ["failed", int() | None as gpu, str(call), str(message)]:
                key = _leave(found, gpu, call)
                found.problems[key] = DriverProblem(f"{_call_name(key)}: {message}")
            case _:
                pass
    return found


def _event(line: str) -> object:
    from envcheck.core.parsing import parse_json

    try:
        return parse_json(line, "")
    except InputError:
        return None


def _leave(found: NvmlAnswers, gpu: int | None, call: str) -> CallKey:
    """Note that a call has returned, and return its key."""
    if (gpu, call) in found.entered:
        found.entered.remove((gpu, call))
    return gpu, call


def refusal(key: CallKey, code: int) -> str:
    """Return why a call failed, in a sentence that explains the code."""
    hint = {
        NOT_SUPPORTED: "not supported by the driver",
        4: "this user may not query this",
        FUNCTION_NOT_FOUND: "the driver's library is too old to have this call",
        15: "the GPU fell off the bus or cannot be reached; see the kernel log for an Xid message",
        16: "the GPU must be reset before it can be used",
        17: "the operating system or the container's device rules forbid it",
    }.get(code)
    if (code, key[1]) == (NOT_SUPPORTED, "nvmlDeviceGetMemoryInfo"):
        hint = "not supported by the driver; a GPU that shares the host's memory answers so"
    failure = f"{_call_name(key)}: {code_in_words(code)}"
    return f"{hint} ({failure})" if hint else f"NVML {failure}"


def _call_name(key: CallKey) -> str:
    gpu, call = key
    return call if gpu is None else f"{call} of GPU {gpu}"


class NvmlChild(NamedTuple):
    """A child that was started, and what is needed to start another one like it."""

    host: Host
    command: tuple[str, ...]
    environ: Mapping[str, str]
    running: Running
    started: float  # seconds of the monotonic clock

    def answers(self, allowance_s: float) -> NvmlAnswers:
        """Return all answers within `allowance_s` seconds, counted from the start of the first child.

        If the library that the child found does not start, the other libraries of this machine are tried. The
        answers of the first are returned unless one of the others counts GPUs.
        """
        first = self.answers_of_one_library(allowance_s)
        if first.failed is None or first.failed[0] != ESSENTIAL[0]:
            return first
        file = first.text(None, "library")
        for folder in other_libraries(self.host, file):
            if time.monotonic() >= self.started + allowance_s:
                break
            path = ":".join(filter(None, (folder, self.environ.get("LD_LIBRARY_PATH"))))
            environ = {**self.environ, "LD_LIBRARY_PATH": path}
            other = self._replace(environ=environ, running=self.host.start(self.command, environ))
            found = other.answers_of_one_library(allowance_s)
            if found.count is not None:
                found.passed_over = (file or LIBRARY, first.failed[1])
                return found
        return first

    def answers_of_one_library(self, allowance_s: float) -> NvmlAnswers:
        """Return all answers of the library that the child finds.

        A child that crashed is followed by one that skips the call it crashed in, so that one call of one GPU
        does not cost the facts of the others.
        """
        merged = NvmlAnswers()
        running, skip = self.running, list[str]()
        while True:
            ran = running.finish(max(self.started + allowance_s - time.monotonic(), 0.05))
            found = parse(ran.out)
            _merge(merged, found, ran, allowance_s)
            if not self._worth_another(ran, found, len(skip), allowance_s):
                merged.entered = found.entered
                return merged
            gpu, call = found.entered[-1]
            # All numbered variants of the call are skipped: seven slots of a card would crash seven children.
            every, _, number = call.rpartition(" ")
            skip.append(f"{'' if gpu is None else gpu}:{every if number.isdecimal() else call}")
            running = self.host.start((*self.command, *skip), self.environ)

    def _worth_another(
        self, ran: FinishedProcess, found: NvmlAnswers, crashes: int, allowance_s: float
    ) -> bool:
        """Return whether to start a child again: it died in a call that can be skipped, and there is time."""
        return (
            ran.code is not None
            and crashes < MOST_CRASHES
            and bool(found.entered)
            and found.entered[-1][1] not in ESSENTIAL
            and time.monotonic() < self.started + allowance_s
        )


def _merge(merged: NvmlAnswers, found: NvmlAnswers, ran: FinishedProcess, allowance_s: float) -> None:
    """Add the answers of one child; for each call that did not return, record how the child ended."""
    merged.answers |= found.answers
    merged.problems |= found.problems
    died = ran.code is not None and (ran.code < 0 or bool(found.entered))
    merged.lost = "no answer" if ran.code is None else "crashed" if died else ""
    if ending := _ending(ran, allowance_s, died=died):
        for key in found.entered:
            why = f"NVML {ending} in {_call_name(key)}"
            merged.problems[key] = DriverProblem(why, lost=merged.lost)
        last = found.entered[-1:]
        merged.silence = f"NVML {ending}" + "".join(f" in {_call_name(key)}" for key in last)
    if (no_module := found.problems.get((None, "import pynvml"))) is not None:
        merged.silence = f"NVML cannot be queried: {no_module.why}"


def _ending(ran: FinishedProcess, allowance_s: float, *, died: bool) -> str:
    """Return how the child ended, "" if it ended well: "did not answer within 10 s"."""
    if ran.code is None:
        return f"did not answer within {allowance_s:g} s"
    if ran.code < 0:
        import signal

        try:
            return f"crashed ({signal.Signals(-ran.code).name})"
        except ValueError:
            return f"crashed (signal {-ran.code})"
    if died:
        return f"ended the process (exit code {ran.code})"
    if ran.code > 0:
        last = ran.err.strip().splitlines()[-1:]
        return f"could not be queried: the child process ended with code {ran.code}" + "".join(
            f" ({line})" for line in last
        )
    return ""


def allowance_s(deadline_s: float, gpus: int) -> float:
    """Return the seconds a driver with `gpus` GPUs may take: by default 10, and 3 for each further GPU."""
    return deadline_s * (1 + PER_GPU * max(0, gpus - 1))


def start_child(host: Host, deadline_s: float) -> NvmlChild | str:
    """Start the child that asks NVML, or return why that is not possible."""
    if host.staged:
        return "NVML cannot be queried: only the files of a machine are given"
    folder = find_library(host)
    if folder is None and not host.exists("/dev/nvidiactl"):
        return NO_LIBRARY
    pynvml = _folder_of_pynvml()
    if pynvml is None:
        return "NVML cannot be queried: nvidia-ml-py is not installed in envcheck's environment"
    environ = dict(host.environ)
    if folder:
        environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (environ.get("LD_LIBRARY_PATH"), folder)))
    command = (
        *_python_alone(),
        str(Path(__file__).with_name("_nvml_child.py")),
        pynvml,
        f"{PER_GPU * deadline_s:g}",
        f"{allowance_s(deadline_s, MOST_GPUS):g}",
    )
    started = time.monotonic()
    try:
        return NvmlChild(host, command, environ, host.start(command, environ), started)
    except OSError as error:
        return f"NVML cannot be queried: {own_python() or 'no Python'} cannot be started ({error.strerror})"


def _python_alone() -> tuple[str, ...]:
    """Return the command for our interpreter without PYTHON* variables, user site and .pth files.

    This also halves its start-up time. Our own options about byte code are passed on, because the child reads
    pynvml, 330 kB of source.
    """
    import sys

    cache = [] if sys.pycache_prefix is None else ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return (own_python(), "-I", "-S", *(["-B"] if sys.dont_write_bytecode else []), *cache)


def _folder_of_pynvml() -> str | None:
    """Return the folder to put on the child's path; pynvml itself is never imported here."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    return str(file.parent.parent if file.name.startswith("__init__.") else file.parent)


# --- answers to readings ------------------------------------------------------------------------------


def version_of(value: object) -> Reading:
    """Read a driver's version."""
    if isinstance(value, str) and re.fullmatch(VERSION, value.strip()):
        return Known(value.strip())
    return garbage("version", value)


def library_version(value: object, file: str) -> Reading:
    """Read the driver version of the NVML library from its answer, or else from the name of its file.

    NVML puts the major of the newest CUDA it was built for in front: 12.550.54.15 belongs to 550.54.15.
    """
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(VERSION, text):
        first, _, rest = text.partition(".")
        second = rest.partition(".")[0]
        return Known(rest if len(first) <= 2 < len(second) else text)  # noqa: PLR2004 - digits
    in_name = re.fullmatch(VERSION, file.rpartition(".so.")[2])
    if in_name is not None and "." in in_name[0]:
        return Known(in_name[0])
    return garbage("version", value)


def cuda_version(value: object) -> Reading:
    """Read NVML's number for a CUDA version: 12040 is 12.4."""
    if isinstance(value, int) and 1000 <= value < 1_000_000:  # noqa: PLR2004
        return Known(f"{value // 1000}.{value % 1000 // 10}")
    return garbage("CUDA version", value)


def gpu_name(value: object) -> Reading:
    """Read a GPU's name as the driver gave it; control characters are removed where it is printed."""
    if isinstance(value, str) and value.strip():
        return Known(value.strip())
    return Unknown("the driver gave an empty name") if value == "" else garbage("name", value)


def total_mib(value: object) -> Reading:
    """Read the memory of a card in MiB, rounded down, from [total, free] bytes."""
    match value:
        case [int(total), int(_)] if 0 < total >> 20 <= MOST_MEMORY_MIB:
            return Known(total >> 20)
    return garbage("memory", value)


def free_mib(value: object) -> Reading:
    """Read the free memory of a card in MiB, rounded down, from [total, free] bytes."""
    match value:
        case [int(total), int(free)] if 0 <= free <= total and total >> 20 <= MOST_MEMORY_MIB:
            return Known(free >> 20)
    return garbage("memory", value)


def used_mib(value: object) -> Reading:
    """Read the memory in use in MiB, rounded down, from [total, free] bytes."""
    match value:
        case [int(total), int(free)] if 0 <= free <= total and total >> 20 <= MOST_MEMORY_MIB:
            return Known((total - free) >> 20)
    return garbage("memory", value)


def capability(value: object) -> Reading:
    """Read a compute capability from [major, minor]."""
    match value:
        case [int(major), int(minor)] if 0 < major < 100 and 0 <= minor < 100:  # noqa: PLR2004
            return Known(f"{major}.{minor}")
    return garbage("compute capability", value)


def compute_mode(value: object) -> Reading:
    """Read the compute mode, in NVML's term."""
    if isinstance(value, int) and 0 <= value < len(COMPUTE_MODES):
        return Known(COMPUTE_MODES[value])
    return garbage("compute mode", value)


def mig_now(value: object) -> Reading:
    """Read whether MIG is on, from [current, pending]."""
    return _mode(value, 0)


def mig_pending(value: object) -> Reading:
    """Read whether MIG will be on, from [current, pending]."""
    return _mode(value, 1)


def _mode(value: object, place: int) -> Reading:
    if value in ([0, 0], [0, 1], [1, 0], [1, 1]) and isinstance(value, list):
        return Known(value[place] == 1)
    return garbage("MIG mode", value)


def garbage(what: str, value: object) -> Unknown:
    """Return Unknown for an answer that no driver should give; a value that is Unknown keeps its reason."""
    return (
        value
        if isinstance(value, Unknown)
        else Unknown(f"the driver reported an implausible {what}: {value!r}")
    )
