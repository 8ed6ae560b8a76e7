"""What NVML says: a child process asks it, its lines are understood, its numbers become readings.

Nothing here loads the driver's library, nor `pynvml`: that is for `_nvml_child.py`, which may be lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from envcheck.core.facts import Known, Reading, Unknown
from envcheck.core.nvidia import (
    FUNCTION_NOT_FOUND,
    LIBRARY,
    NOT_SUPPORTED,
    OTHER_FOLDERS,
    code_in_words,
)
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
"""Where the dynamic loader looks by itself."""
WSL_DRIVERS = "/usr/lib/wsl/drivers"

PER_GPU = 0.3
"""Share of the deadline that each further GPU may take: 3 of 10 s. A cold driver wakes GPU after GPU."""
MOST_GPUS = 256
MOST_MEMORY_MIB = 16 << 20  # 16 TiB
MOST_CRASHES = 12
ESSENTIAL = ("nvmlInit", "nvmlDeviceGetCount")
NO_LIBRARY = f"no NVIDIA driver library ({LIBRARY}) was found"

COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")  # by NVML's number

VERSION = r"\d{1,6}(\.\d{1,6}){0,5}"  # a text: most machines never need it compiled


def find_library(host: Host) -> str | None:
    """Whether a process here would find the NVML library: None if not, else the folder to add, or "".

    Asked before a child is started, for on a machine without NVIDIA starting one is all cost.
    """
    # The loader takes both separators; an empty entry is the current folder, and ours is the root.
    own = [
        folder for folder in host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if folder
    ]
    if any(host.exists(f"{folder}/{LIBRARY}") for folder in (*own, *LOADER_FOLDERS)):
        return ""
    if LIBRARY in (host.read_text("/etc/ld.so.cache") or ""):
        return ""
    return next((folder for folder in _further_folders(host) if host.exists(f"{folder}/{LIBRARY}")), None)


def other_libraries(host: Host, answered: str) -> tuple[str, ...]:
    """Folders with another NVML library than the file that was loaded; all but the first if none was.

    A toolkit's stub or a library left behind by an older driver may be found before the driver's own.
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


Asked: TypeAlias = tuple[int | None, str]  # the GPU's index, None for the machine; and the call


class DriverProblem(NamedTuple):
    """Why a call has no answer; with NVML's code if NVML gave one, and how it was lost if it was."""

    why: str
    code: int | None = None
    lost: str = ""  # "no answer", "crashed"


@dataclass(slots=True)
class Heard:
    """What came out of the child: answers, problems, and the calls entered and not left, oldest first."""

    answers: dict[Asked, object] = field(default_factory=dict)
    problems: dict[Asked, DriverProblem] = field(default_factory=dict)
    entered: list[Asked] = field(default_factory=list)
    lost: str = ""  # how the child was lost, if it was: "no answer", "crashed"
    silence: str = ""  # why what was never asked was not
    passed_over: tuple[str, int] | None = None  # a library that was found first, and its code

    def value(self, gpu: int | None, call: str) -> object:
        """The answer of a call, or Unknown with the reason that explains it best."""
        asked = (gpu, call)
        if asked in self.answers:
            return self.answers[asked]
        if asked in self.problems:
            return Unknown(self.problems[asked].why)
        same = [problem for (other, _), problem in self.problems.items() if other == gpu]
        # A call that was never left, or a handle never had, is why the calls after it were not made.
        stopped = [problem for problem in same if problem.code is None]
        handle = self.problems.get((gpu, "nvmlDeviceGetHandleByIndex"))
        for problem in (*stopped[-1:], *([handle] if handle else ())):
            # Of a GPU that is not given or does not answer that is the finding, and nothing else was asked.
            return Unknown(problem.why, asked=gpu is None or problem.lost == "crashed")
        return Unknown(self.silence or f"{call} was not asked")

    def code(self, gpu: int, call: str) -> int | None:
        """NVML's code where it refused a call."""
        problem = self.problems.get((gpu, call))
        return problem.code if problem else None

    def asked(self, begins: str) -> tuple[Asked, ...]:
        """The calls that were made whose name begins so, whatever became of them."""
        return tuple(each for each in (*self.answers, *self.problems) if each[1].startswith(begins))

    def text(self, gpu: int | None, call: str) -> str:
        """The answer of a call if it is text, else ""."""
        value = self.value(gpu, call)
        return value if isinstance(value, str) else ""

    @property
    def count(self) -> int | None:
        """How many GPUs NVML counts, if it said."""
        value = self.value(None, "nvmlDeviceGetCount")
        return value if isinstance(value, int) else None

    @property
    def failed(self) -> tuple[str, int] | None:
        """The call without which nothing can be read, and its code, if NVML refused it."""
        for call in ESSENTIAL:
            problem = self.problems.get((None, call))
            if problem is not None and problem.code is not None:
                return call, problem.code
        return None


def hear(lines: str) -> Heard:
    """Understand what the child wrote; a line it could not finish is dropped."""
    heard = Heard()
    for line in lines.splitlines():
        match _event(line):
            case ["enter", int() | None as gpu, str(call)]:
                heard.entered.append((gpu, call))
            case ["answer", int() | None as gpu, str(call), answer]:
                heard.answers[_left(heard, gpu, call)] = answer
            case ["refused", int() | None as gpu, str(call), int(code)]:
                asked = _left(heard, gpu, call)
                heard.problems[asked] = DriverProblem(refusal(asked, code), code)
            case ["failed", int() | None as gpu, str(call), str(words)]:
                asked = _left(heard, gpu, call)
                heard.problems[asked] = DriverProblem(f"{_spoken(asked)}: {words}")
            case _:
                pass
    return heard


def _event(line: str) -> object:
    import json

    try:
        return json.loads(line)
    except ValueError:
        return None


def _left(heard: Heard, gpu: int | None, call: str) -> Asked:
    if (gpu, call) in heard.entered:
        heard.entered.remove((gpu, call))
    return gpu, call


def refusal(asked: Asked, code: int) -> str:
    """Why a call failed, in a sentence that says what to make of the code."""
    hint = {
        NOT_SUPPORTED: "not supported by the driver",
        4: "this user may not ask the driver that",
        FUNCTION_NOT_FOUND: "the driver's library is too old to have this call",
        15: "the GPU fell off the bus or cannot be reached; see the kernel log for an Xid message",
        16: "the GPU must be reset before it can be used",
        17: "the operating system or the container's device rules forbid it",
    }.get(code)
    if (code, asked[1]) == (NOT_SUPPORTED, "nvmlDeviceGetMemoryInfo"):
        hint = "not supported by the driver; a GPU that shares the host's memory answers so"
    said = f"{_spoken(asked)}: {code_in_words(code)}"
    return f"{hint} ({said})" if hint else f"NVML {said}"


def _spoken(asked: Asked) -> str:
    gpu, call = asked
    return call if gpu is None else f"{call} of GPU {gpu}"


class Conversation(NamedTuple):
    """A child that was started, how to start another like it, and how long both may take together."""

    host: Host
    command: tuple[str, ...]
    environ: Mapping[str, str]
    running: Running
    started: float  # seconds of the monotonic clock

    def listen(self, allowance_s: float) -> Heard:
        """Everything the child has to say in the seconds it has had since it was started.

        Where the library it found does not start, the others that are here are tried; what the first
        said is kept, unless one of them counts GPUs.
        """
        first = self.listen_once(allowance_s)
        if first.failed is None or first.failed[0] != ESSENTIAL[0]:
            return first
        file = first.text(None, "library")
        for folder in other_libraries(self.host, file):
            if time.monotonic() >= self.started + allowance_s:
                break
            path = ":".join(filter(None, (folder, self.environ.get("LD_LIBRARY_PATH"))))
            environ = {**self.environ, "LD_LIBRARY_PATH": path}
            other = self._replace(environ=environ, running=self.host.start(self.command, environ))
            heard = other.listen_once(allowance_s)
            if heard.count is not None:
                heard.passed_over = (file or LIBRARY, first.failed[1])
                return heard
        return first

    def listen_once(self, allowance_s: float) -> Heard:
        """The same of the one library that the child finds.

        A child that crashed is followed by one that leaves that call out, so that one call of one
        GPU does not cost the facts of the others.
        """
        all_heard = Heard()
        running, skip = self.running, list[str]()
        while True:
            ran = running.finish(max(self.started + allowance_s - time.monotonic(), 0.05))
            heard = hear(ran.out)
            all_heard.answers |= heard.answers
            all_heard.problems |= heard.problems
            died = ran.code is not None and (ran.code < 0 or bool(heard.entered))
            all_heard.lost = "no answer" if ran.code is None else "crashed" if died else ""
            if ending := _ending(ran, allowance_s, died=died):
                for asked in heard.entered:
                    why = f"NVML {ending} in {_spoken(asked)}"
                    all_heard.problems[asked] = DriverProblem(why, lost=all_heard.lost)
                last = heard.entered[-1:]
                all_heard.silence = f"NVML {ending}" + "".join(f" in {_spoken(asked)}" for asked in last)
            if (no_module := heard.problems.get((None, "import pynvml"))) is not None:
                all_heard.silence = f"NVML cannot be asked: {no_module.why}"
            if not self._worth_another(ran, heard, len(skip), allowance_s):
                all_heard.entered = heard.entered
                return all_heard
            gpu, call = heard.entered[-1]
            every, _, number = call.rpartition(" ")  # seven slots of a card would crash seven children
            skip.append(f"{'' if gpu is None else gpu}:{every if number.isdecimal() else call}")
            running = self.host.start((*self.command, *skip), self.environ)

    def _worth_another(self, ran: FinishedProcess, heard: Heard, crashes: int, allowance_s: float) -> bool:
        """Whether to start a child again: it died in a call one can do without, and there is time."""
        return (
            ran.code is not None
            and crashes < MOST_CRASHES
            and bool(heard.entered)
            and heard.entered[-1][1] not in ESSENTIAL
            and time.monotonic() < self.started + allowance_s
        )


def _ending(ran: FinishedProcess, allowance_s: float, *, died: bool) -> str:
    """How the child ended if that was not well: "did not answer within 10 s"."""
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
        return f"could not be asked: the child process ended with code {ran.code}" + "".join(
            f" ({line})" for line in last
        )
    return ""


def allowance_s(deadline_s: float, gpus: int) -> float:
    """Seconds a driver with so many GPUs may take in all: 10 by default, and 3 for each further GPU."""
    return deadline_s * (1 + PER_GPU * max(0, gpus - 1))


def start_child(host: Host, deadline_s: float) -> Conversation | str:
    """Start asking NVML; or why that is not done."""
    if host.staged:
        return "NVML cannot be asked: these are the files of a machine, not the machine"
    folder = find_library(host)
    if folder is None and not host.exists("/dev/nvidiactl"):
        return NO_LIBRARY
    pynvml = _folder_of_pynvml()
    if pynvml is None:
        return "NVML cannot be asked: nvidia-ml-py is not installed beside envcheck"
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
        return Conversation(host, command, environ, host.start(command, environ), started)
    except OSError as error:
        return f"NVML cannot be asked: {own_python() or 'no Python'} cannot be started ({error.strerror})"


def _python_alone() -> tuple[str, ...]:
    """Our interpreter deaf to PYTHON* variables, user site and .pth files, which also halves its start.

    What our own interpreter was told about byte code it is told as well: it reads pynvml, 330 kB.
    """
    import sys

    told = [] if sys.pycache_prefix is None else ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return (own_python(), "-I", "-S", *(["-B"] if sys.dont_write_bytecode else []), *told)


def _folder_of_pynvml() -> str | None:
    """The folder to put on the child's path; pynvml itself is never imported here."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    return str(file.parent.parent if file.name.startswith("__init__.") else file.parent)


# --- readings out of answers --------------------------------------------------------------------------


def version_of(value: object) -> Reading:
    """A driver's version, if it looks like one."""
    if isinstance(value, str) and re.fullmatch(VERSION, value.strip()):
        return Known(value.strip())
    return garbage("version", value)


def library_version(value: object, file: str) -> Reading:
    """The driver version of the NVML library, from what it says or else from its file's name.

    NVML puts the newest CUDA it was built for in front: 12.550.54.15 is the library of 550.54.15.
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
    """NVML's number for a CUDA version: 12040 is 12.4."""
    if isinstance(value, int) and 1000 <= value < 1_000_000:  # noqa: PLR2004
        return Known(f"{value // 1000}.{value % 1000 // 10}")
    return garbage("CUDA version", value)


def gpu_name(value: object) -> Reading:
    """A GPU's name as the driver gave it; control characters are for whoever prints it to take out."""
    if isinstance(value, str) and value.strip():
        return Known(value.strip())
    return Unknown("the driver gave an empty name") if value == "" else garbage("name", value)


def total_mib(value: object) -> Reading:
    """Memory of a card in MiB, rounded down, out of [total, free] bytes."""
    match value:
        case [int(total), int(_)] if 0 < total >> 20 <= MOST_MEMORY_MIB:
            return Known(total >> 20)
    return garbage("memory", value)


def free_mib(value: object) -> Reading:
    """Free memory of a card in MiB, rounded down, out of [total, free] bytes."""
    match value:
        case [int(total), int(free)] if 0 <= free <= total and total >> 20 <= MOST_MEMORY_MIB:
            return Known(free >> 20)
    return garbage("memory", value)


def used_mib(value: object) -> Reading:
    """Memory in use in MiB, rounded down, out of [total, free] bytes."""
    match value:
        case [int(total), int(free)] if 0 <= free <= total and total >> 20 <= MOST_MEMORY_MIB:
            return Known((total - free) >> 20)
    return garbage("memory", value)


def capability(value: object) -> Reading:
    """A compute capability out of [major, minor]."""
    match value:
        case [int(major), int(minor)] if 0 < major < 100 and 0 <= minor < 100:  # noqa: PLR2004
            return Known(f"{major}.{minor}")
    return garbage("compute capability", value)


def compute_mode(value: object) -> Reading:
    """The compute mode in NVML's own word."""
    if isinstance(value, int) and 0 <= value < len(COMPUTE_MODES):
        return Known(COMPUTE_MODES[value])
    return garbage("compute mode", value)


def mig_now(value: object) -> Reading:
    """Whether MIG is on, out of [current, pending]."""
    return _mode(value, 0)


def mig_pending(value: object) -> Reading:
    """Whether MIG will be on, out of [current, pending]."""
    return _mode(value, 1)


def _mode(value: object, place: int) -> Reading:
    if value in ([0, 0], [0, 1], [1, 0], [1, 1]) and isinstance(value, list):
        return Known(value[place] == 1)
    return garbage("MIG mode", value)


def garbage(what: str, value: object) -> Unknown:
    """What no driver should say; a value that is unknown already keeps its reason."""
    return value if isinstance(value, Unknown) else Unknown(f"the driver gave an absurd {what}: {value!r}")
