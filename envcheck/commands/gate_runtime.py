"""`envcheck gate --runtime`: compare the driver and the GPUs of this machine with what the image needs.

It runs before every start (in an entrypoint, an init container, a Slurm prolog), so it is dispatched before
the command line is built and imports only the standard library, `core.nvidia` and `policy.image_manifest`.
For the same reason its values are plain classes and dictionaries, not dataclasses. The driver's library may
hang or crash, so a forked child calls it and is killed when its time is up.

Exit codes: 0 open, 1 shut, 2 wrong use or no readable manifest, 3 the driver could not be examined.
"""

from __future__ import annotations

import json
import os
import sys

from envcheck.core import nvidia
from envcheck.policy import image_manifest

LIMIT = 4 * 1024 * 1024
"""Maximum bytes read of a manifest; for an image with 500 packages it has 30 thousand."""

SECONDS = 10.0
"""Seconds that the driver may take by default; a cold driver wakes its GPUs one after the other."""

MOST_GPUS = 256
"""The largest plausible number of GPUs; at a larger one, the GPUs are undecided."""

USAGE = "envcheck gate --runtime [--manifest FILE] [--timeout SECONDS] [--json]"


class DriverRefusal(Exception):  # noqa: N818 - a normal end of a run, not an error
    """One line for the user, and the exit code that goes with it."""

    def __init__(self, code: int, line: str) -> None:
        """Take the exit code and the line."""
        super().__init__(line)
        self.code = code


class Observation:
    """What was read of this machine.

    The keys of `names`, `uuids`, `capabilities` and `lost` (why NVML cannot reach a GPU) are GPU numbers.
    `trouble` says why the driver was not read completely. `refused` is NVML's own report that it cannot
    serve this machine; no training can run then.
    """

    def __init__(self) -> None:
        """Start with nothing read."""
        self.driver = ""
        self.count: int | None = None
        self.names: dict[int, str] = {}
        self.uuids: dict[int, str] = {}
        self.capabilities: dict[int, str] = {}
        self.lost: dict[int, str] = {}
        self.trouble = ""
        self.refused = ""


def run(arguments: list[str]) -> int:
    """Run the command line `gate --runtime …`: print the result and return the exit code."""
    try:
        path, seconds, as_json = _parse_options(arguments[1:])
        manifest = read_manifest(path)
        seen = observe(seconds)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")  # noqa: TID251
        code, lines = judge_start(manifest, seen, visible, same_order=_numbers_follow_the_bus())
    except DriverRefusal as refusal:
        _print("stderr", f"envcheck: {_plain(str(refusal))}")
        return refusal.code
    if as_json:
        text = json.dumps(_json_report(path, manifest, seen, code, lines), indent=2)
    else:
        text = "\n".join(map(_plain, lines))
    _print("stdout", text)
    return code


def _print(name: str, text: str) -> None:
    stream = getattr(sys, name)  # None if it was closed
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except (OSError, AttributeError):
        return  # the stream is closed; the exit code carries the result


def _numbers_follow_the_bus() -> bool:
    """Return whether CUDA numbers the GPUs as NVML does, instead of the fastest first."""
    return os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"  # noqa: TID251


def _parse_options(arguments: list[str]) -> tuple[str, float, bool]:
    """Return the manifest's path, the deadline in seconds, and whether to print JSON."""
    path, seconds, as_json = os.environ.get(image_manifest.VARIABLE) or image_manifest.PATH, SECONDS, False  # noqa: TID251
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, equals, value = argument.partition("=")
        if name in ("--manifest", "--timeout"):
            if not equals and not left:
                raise DriverRefusal(2, f"{name} needs a value ({USAGE})")
            value = value if equals else left.pop(0)
            if name == "--manifest":
                path = value
            else:
                seconds = _parse_seconds(value)
        elif argument == "--json":
            as_json = True
        elif argument != "--runtime":
            raise DriverRefusal(2, f"{argument[:80]!r} does not go with --runtime ({USAGE})")
    return path, seconds, as_json


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 600:  # noqa: PLR2004 - the limits of doctor's --timeout
        raise DriverRefusal(2, f"--timeout: expected seconds from 0.1 to 600, found {text[:40]!r}")
    return seconds


def read_manifest(path: str) -> dict[str, object]:
    """Read the manifest in a file.

    Raises:
        DriverRefusal: the file is missing, unreadable or not a manifest; exit code 2.
    """
    try:
        data = _read_bounded(path)
    except FileNotFoundError:
        raise DriverRefusal(
            2, f"{path}: no such file; `envcheck gate` writes it when the image is built"
        ) from None
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", "") or "cannot be read").lower()
        raise DriverRefusal(2, f"{path}: {why}") from None
    if len(data) > LIMIT:
        raise DriverRefusal(2, f"{path}: larger than {LIMIT} bytes")
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DriverRefusal(2, f"{path}: not JSON: {getattr(error, 'msg', 'not readable as text')}") from None
    if problem := image_manifest.problem(tree):
        raise DriverRefusal(2, f"{path}: {problem}")
    return dict(tree)


def _read_bounded(path: str) -> bytes:
    """Return a file's first LIMIT + 1 bytes, without waiting for a writer if it is a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        parts, left = [], LIMIT + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


# --- observing the machine --------------------------------------------------------------------------


def observe(seconds: float) -> Observation:
    """Read the driver and the GPUs of this machine, in at most these seconds and half a second of grace."""
    seen = Observation()
    for event in _events_of_child(seconds, seen):
        _record(seen, event)
    if not seen.driver:
        seen.driver = _kernel_module_version()
    if seen.count is None and not seen.refused and not seen.trouble:
        seen.trouble = "the driver could not be queried"
    return seen


def _record(seen: Observation, event: object) -> None:
    """Record one event of the child; ignore anything malformed."""
    match event:
        case ["driver", str(version)]:
            seen.driver = version
        case ["count", int(count)]:
            seen.count = count
        case ["capabilities", int(gpu), str(value)] if nvidia.is_capability(value):
            seen.capabilities[gpu] = value
        case [("names" | "uuids") as kind, int(gpu), str(value)]:
            getattr(seen, kind)[gpu] = value
        case ["lost", int(gpu), int(code)] if code in nvidia.GONE:
            seen.lost[gpu] = nvidia.code_in_words(code)
        case ["refused", str(call), int(code)]:
            seen.refused = f"NVML {call}: {nvidia.code_in_words(code)}"
        case ["no library"]:
            seen.refused = f"no NVIDIA driver library ({nvidia.LIBRARY}) was found"
        case _:
            pass


def _kernel_module_version() -> str:
    try:
        with open("/sys/module/nvidia/version", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            version = file.read(100).strip()
    except OSError:
        return ""
    return version if image_manifest.driver_order(version) else ""


def _events_of_child(seconds: float, seen: Observation) -> list[object]:
    """Query the driver in a forked child and return its events; set `seen.trouble` if it was lost."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _query_driver(writer, seconds)
        finally:
            os._exit(0)  # every event is written by now, and unloading the library may hang or crash
    os.close(writer)
    written, in_time = _read_until(reader, seconds)
    if not in_time:
        os.kill(child, 9)
        seen.trouble = f"the driver did not answer within {seconds:g} s"
    status = _wait_for(child)
    if in_time and status is not None and os.WIFSIGNALED(status):
        seen.trouble = f"the driver's library crashed (signal {os.WTERMSIG(status)})"
    events = []
    for line in written.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # the line that the child was writing when it was lost
            continue
    return events


def _read_until(reader: int, seconds: float) -> tuple[bytes, bool]:
    """Read a pipe; return what came, and whether its writer closed it within these seconds."""
    import select
    import time

    until = time.monotonic() + seconds
    written = b""
    try:
        while (left := until - time.monotonic()) > 0 and len(written) < LIMIT:
            if not select.select([reader], [], [], left)[0]:
                continue
            part = os.read(reader, 1 << 16)
            if not part:
                return written, True
            written += part
    finally:
        os.close(reader)
    return written, False


def _wait_for(child: int) -> int | None:
    """Return the child's exit status, or None if it is stuck in the kernel after half a second."""
    import time

    for attempt in range(50):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001 if attempt < 10 else 0.0125)  # noqa: PLR2004 - half a second in all
    return None


def _query_driver(wire: int, seconds: float) -> None:
    """Isolate this child process and query NVML, writing each answer to the pipe as it comes."""
    import ctypes
    import fcntl
    import resource
    import signal

    wire = fcntl.fcntl(wire, fcntl.F_DUPFD_CLOEXEC, 3)  # it is 1 or 2 if the parent's were closed
    signal.setitimer(signal.ITIMER_REAL, seconds + 10)  # ends this child even if the parent is killed
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # keeps what the driver prints apart from the parent's output
    os.dup2(nowhere, 2)

    for folder in ("", *nvidia.OTHER_FOLDERS):
        try:
            library = ctypes.CDLL(f"{folder}/{nvidia.LIBRARY}" if folder else nvidia.LIBRARY)
        except OSError:
            continue
        _query_nvml(library, wire)
        return
    os.write(wire, b'["no library"]\n')


def _query_nvml(library: object, wire: int) -> None:  # noqa: C901 - one NVML call after the other
    """Write the driver, the number of GPUs and each GPU's identity to the pipe, one JSON list per line."""
    import ctypes

    def write(*event: object) -> None:
        os.write(wire, json.dumps(event).encode() + b"\n")

    def call(name: str, *arguments: object) -> int:
        function = getattr(library, name, None)
        return nvidia.FUNCTION_NOT_FOUND if function is None else int(function(*arguments))

    text = ctypes.create_string_buffer(96)
    number, other = ctypes.c_int(), ctypes.c_int()
    if code := call("nvmlInitWithFlags", 0):
        write("refused", "nvmlInit", code)
        return
    if not call("nvmlSystemGetDriverVersion", text, len(text)):
        write("driver", text.value.decode("ascii", "replace").strip())
    if code := call("nvmlDeviceGetCount_v2", ctypes.byref(number)):
        write("refused", "nvmlDeviceGetCount", code)
        return
    write("count", number.value)
    for gpu in range(min(number.value, MOST_GPUS)):
        handle = ctypes.c_void_p()
        if code := call("nvmlDeviceGetHandleByIndex_v2", gpu, ctypes.byref(handle)):
            write("lost", gpu, code)
            continue
        for kind, name in (("names", "nvmlDeviceGetName"), ("uuids", "nvmlDeviceGetUUID")):
            if not call(name, handle, text, len(text)):
                write(kind, gpu, text.value.decode("utf-8", "replace").strip())
        major, minor = ctypes.byref(number), ctypes.byref(other)
        if not call("nvmlDeviceGetCudaComputeCapability", handle, major, minor):
            write("capabilities", gpu, f"{number.value}.{other.value}")


# --- judging ----------------------------------------------------------------------------------------


def judge_start(
    manifest: dict[str, object], seen: Observation, visible: str | None, *, same_order: bool
) -> tuple[int, list[str]]:
    """Return the exit code, and the lines that explain it.

    `visible` is CUDA_VISIBLE_DEVICES; `same_order` says whether CUDA numbers the GPUs as NVML does.
    """
    gate = manifest["gate"]
    assert isinstance(gate, dict)  # noqa: S101 - `image_manifest.problem` has checked it
    if gate["verdict"] == "shut":
        return 1, [f"gate shut: the image did not pass when it was built: {'; '.join(gate['reasons'])}"]
    if manifest["cuda"] == image_manifest.NO_CUDA:
        return 0, ["gate open: the torch of this image was built without CUDA, and needs no driver"]
    obstacles = _driver_obstacles(manifest, seen)
    undecided = _undecided_needs(manifest, seen)
    if not obstacles:
        obstacles, undecided_gpus = _judge_gpus(manifest, seen, visible, same_order=same_order)
        undecided += undecided_gpus
    if obstacles:
        return 1, [f"gate shut: {line}" for line in obstacles]
    if seen.trouble:
        return 3, [f"could not examine: {seen.trouble}"]
    return _judge_undecided(manifest, seen, undecided)


def _judge_undecided(
    manifest: dict[str, object], seen: Observation, undecided: list[str]
) -> tuple[int, list[str]]:
    """Return the exit code and the lines if nothing is known to keep the image from running here."""
    if undecided and manifest["undecided"] == "fail":
        return 1, [f"gate shut: undecided: {line}" for line in undecided]
    if manifest["undecided"] == "pass":
        undecided = []
    models = ", ".join(dict.fromkeys(filter(None, seen.names.values())))
    machine = seen.refused or f"driver {seen.driver or '?'}, {seen.count} x {models or 'GPU'}"
    notes = [f"undecided: {line}" for line in undecided] + _note_on_older_driver(manifest, seen)
    return 0, [*notes, f"gate open: {machine}"]


def _undecided_needs(manifest: dict[str, object], seen: Observation) -> list[str]:
    """Return a line for each need that the manifest does not know, and for a driver that was not read."""
    why = manifest["unknown"]
    assert isinstance(why, dict)  # noqa: S101 - `image_manifest.problem` has checked it
    undecided = [
        f"{key}: {why.get(key, 'not known')}"
        for key in ("cuda", "minimum_driver", "architectures")
        if manifest[key] is None
    ]
    if not image_manifest.driver_order(seen.driver):
        undecided.append("the driver's version could not be read")
    return undecided


def _driver_obstacles(manifest: dict[str, object], seen: Observation) -> list[str]:
    """Return why the image cannot run with this driver; empty if it can."""
    cuda = manifest["cuda"]
    if (oldest := _newer_driver_needed(manifest, seen)) and not manifest["cuda_compat"]:
        return [f"driver {seen.driver}: the image (CUDA {cuda}) needs {oldest} or newer"]
    if cuda is None:
        return []  # the CUDA version is unknown: a torch without CUDA needs no driver
    if seen.refused:
        loaded = f"; the kernel module is {seen.driver}" if seen.driver else ""
        return [f"{seen.refused}{loaded}; the image (CUDA {cuda}) needs a driver and a GPU"]
    if seen.count == 0:
        return [f"the driver counts no GPU; the image (CUDA {cuda}) needs one"]
    return []


def _newer_driver_needed(manifest: dict[str, object], seen: Observation) -> str:
    """Return the oldest driver that the image runs on if this one is known to be older; else empty."""
    oldest, here = manifest["minimum_driver"], image_manifest.driver_order(seen.driver)
    if isinstance(oldest, str) and here and here < image_manifest.driver_order(oldest):
        return oldest
    return ""


def _judge_gpus(
    manifest: dict[str, object], seen: Observation, visible: str | None, *, same_order: bool
) -> tuple[list[str], list[str]]:
    """Return why the image cannot run on the GPUs that programs see here, and what is undecided."""
    count = seen.count or 0
    if count > MOST_GPUS:
        return [], [f"the driver reported an implausible number of GPUs: {count}"]
    undecided = _undecided_gpus(manifest, seen, count)
    if visible is not None and visible.startswith("MIG-"):
        return [], [*undecided, "CUDA_VISIBLE_DEVICES names MIG devices, and their cards are not read here"]
    used = nvidia.visible_gpus(visible, [seen.uuids.get(gpu, "") for gpu in range(count)])
    if not used and count:
        return [f"CUDA_VISIBLE_DEVICES={visible} hides every GPU"], []
    if lost := _lost_gpus(used, seen):
        return lost, []
    built = _architectures(manifest)
    unsupported = _gpus_without_code(built, seen)
    if unsupported and len(used) < count and not same_order and _numbers_are_ambiguous(visible, seen):
        differ = "CUDA_VISIBLE_DEVICES counts the fastest GPU first, and these GPUs differ"
        gpu = _gpu_in_words(unsupported[0], seen)
        return [], [*undecided, f"{differ}: which are used is not known, and {gpu} is too new or old"]
    return [_no_code_line(gpu, built, seen) for gpu in unsupported if gpu in used], undecided


def _lost_gpus(used: tuple[int, ...], seen: Observation) -> list[str]:
    return [f"GPU {gpu}: NVML says {why}" for gpu, why in seen.lost.items() if gpu in used]


def _no_code_line(gpu: int, built: list[str] | None, seen: Observation) -> str:
    return f"{_gpu_in_words(gpu, seen)}: the torch of this image has code for {', '.join(built or ())} only"


def _undecided_gpus(manifest: dict[str, object], seen: Observation, count: int) -> list[str]:
    undecided = [
        f"GPU {gpu}: its compute capability could not be read"
        for gpu in range(count)
        if gpu not in seen.capabilities and gpu not in seen.lost
    ]
    if oldest := _newer_driver_needed(manifest, seen):
        undecided.append(
            f"driver {seen.driver} is below {oldest}; the cuda-compat in the image may replace it"
        )
    return undecided


def _architectures(manifest: dict[str, object]) -> list[str] | None:
    """Return the architectures that torch has machine code for, or None if they are not known."""
    architectures = manifest["architectures"]
    return [str(name) for name in architectures] if isinstance(architectures, list) else None


def _gpus_without_code(built: list[str] | None, seen: Observation) -> list[int]:
    """Return the GPUs that torch is known to have no code for."""
    if built is None:
        return []
    return [
        gpu
        for gpu, capability in sorted(seen.capabilities.items())
        if not nvidia.has_code(built, capability) and not nvidia.has_ptx(built, capability)
    ]


def _numbers_are_ambiguous(visible: str | None, seen: Observation) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES selects by number among different models.

    By default CUDA numbers the fastest GPU first, so its numbers need not be NVML's.
    """
    by_number = visible is not None and not visible.startswith("GPU-")
    return by_number and len(set(seen.names.values())) > 1


def _gpu_in_words(gpu: int, seen: Observation) -> str:
    name, capability = seen.names.get(gpu) or "without a name", seen.capabilities[gpu]
    return f"GPU {gpu} ({name}, compute capability {capability})"


def _note_on_older_driver(manifest: dict[str, object], seen: Observation) -> list[str]:
    """Return a note if this driver is older than any that the image was judged for."""
    machines = manifest["machines"]
    drivers = (
        [str(machine.get("driver")) for machine in machines if isinstance(machine, dict)]
        if isinstance(machines, list)
        else []
    )
    orders = [order for driver in drivers if (order := image_manifest.driver_order(driver))]
    here = image_manifest.driver_order(seen.driver)
    if not here or not orders or here >= min(orders):
        return []
    judged = ", ".join(drivers)
    return [f"note: driver {seen.driver} is older than any driver for which this image was judged ({judged})"]


# --- output -----------------------------------------------------------------------------------------


def _json_report(
    path: str, manifest: dict[str, object], seen: Observation, code: int, lines: list[str]
) -> dict[str, object]:
    gpus = [
        {"name": seen.names.get(gpu), "compute_capability": seen.capabilities.get(gpu)}
        for gpu in range(min(seen.count or 0, MOST_GPUS))
    ]
    return {
        "schema_version": 1,
        "manifest": path,
        "target": manifest["target"],
        "driver": seen.driver or None,
        "gpus": gpus,
        "code": code,
        "lines": lines,
    }


def _plain(text: str) -> str:
    """Return the text as ASCII on one line, so that no GPU name or manifest can act on a terminal."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)
