"""`envcheck gate --runtime`: the driver and the GPUs that are here, against what the image needs.

Runs in front of every start (an entrypoint, an init container, a Slurm prolog), so it is dispatched before
the command line is built and imports the standard library and `manifest`, `nvidia` alone. The driver's
library may hang or crash, so a forked child asks it, and is killed when its time is up.

Exit codes: 0 open, 1 shut, 2 wrong use or no readable manifest, 3 the driver could not be examined.
"""

from __future__ import annotations

import json
import os
import sys

from envcheck.core import nvidia
from envcheck.policy import image_manifest

LIMIT = 4 * 1024 * 1024
"""Bytes of a manifest that are read; that of an image with 500 packages has 30 thousand."""

SECONDS = 10.0
"""What the driver may take by default; a cold one wakes GPU after GPU."""

MOST_GPUS = 256

USAGE = "envcheck gate --runtime [--manifest FILE] [--timeout SECONDS] [--json]"


class DriverRefusal(Exception):  # noqa: N818 - it is how a run ends
    """One line, and the exit code that goes with it."""

    def __init__(self, code: int, line: str) -> None:
        """Take the exit code and the line."""
        super().__init__(line)
        self.code = code


class Observation:
    """What was read of this machine; `trouble` says what kept the driver from being read to the end.

    `refused` is NVML's own word that it cannot serve this machine, which no training could do without.
    """

    def __init__(self) -> None:
        """Nothing seen."""
        self.driver = ""
        self.count: int | None = None
        self.names: dict[int, str] = {}
        self.uuids: dict[int, str] = {}
        self.capabilities: dict[int, str] = {}
        self.lost: dict[int, str] = {}
        self.trouble = ""
        self.refused = ""


def run(arguments: list[str]) -> int:
    """Run the command line `gate --runtime …`; print, and return the exit code."""
    try:
        path, seconds, as_json = _options(arguments[1:])
        tree = read_manifest(path)
        seen = observe(seconds)
        code, lines = judge_start(tree, seen, os.environ.get("CUDA_VISIBLE_DEVICES"), _same_order())  # noqa: TID251
    except DriverRefusal as refusal:
        _print("stderr", f"envcheck: {_plain(str(refusal))}")
        return refusal.code
    if as_json:
        text = json.dumps(_said(path, tree, seen, code, lines), indent=2)
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
        return  # nobody reads; the exit code says it all the same


def _same_order() -> bool:
    return os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"  # noqa: TID251


def _options(arguments: list[str]) -> tuple[str, float, bool]:
    path, seconds, as_json = os.environ.get(image_manifest.VARIABLE) or image_manifest.PATH, SECONDS, False  # noqa: TID251
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in ("--manifest", "--timeout"):
            if not equals and not left:
                raise DriverRefusal(2, f"{name} needs a value ({USAGE})")
            value = value if equals else left.pop(0)
            if name == "--manifest":
                path = value
            else:
                seconds = _seconds(value)
        elif word == "--json":
            as_json = True
        elif word != "--runtime":
            raise DriverRefusal(2, f"{word[:80]!r} does not go with --runtime ({USAGE})")
    return path, seconds, as_json


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 600:  # noqa: PLR2004 - as doctor's --timeout
        raise DriverRefusal(2, f"--timeout: expected seconds from 0.1 to 600, found {text[:40]!r}")
    return seconds


def read_manifest(path: str) -> dict[str, object]:
    """The manifest of a file.

    Raises:
        Refused: it is not there, not readable, or none; code 2.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            parts, left = [], LIMIT + 1
            while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise DriverRefusal(
            2, f"{path}: no such file; `envcheck gate` writes it when the image is built"
        ) from None
    except (OSError, ValueError) as error:
        raise DriverRefusal(
            2, f"{path}: {(getattr(error, 'strerror', '') or 'cannot be read').lower()}"
        ) from None
    if left <= 0:
        raise DriverRefusal(2, f"{path}: larger than {LIMIT} bytes")
    try:
        tree = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise DriverRefusal(2, f"{path}: not JSON: {getattr(error, 'msg', 'not readable as text')}") from None
    if problem := image_manifest.problem(tree):
        raise DriverRefusal(2, f"{path}: {problem}")
    return dict(tree)


# --- looking ----------------------------------------------------------------------------------------


def observe(seconds: float) -> Observation:
    """The driver and the GPUs of this machine, in at most so many seconds and half a second of grace."""
    seen = Observation()
    for event in _asked(seconds, seen):
        _hear(seen, event)
    if not seen.driver:
        seen.driver = _kernel_module()
    if seen.count is None and not seen.refused and not seen.trouble:
        seen.trouble = "the driver could not be asked"
    return seen


def _hear(seen: Observation, event: object) -> None:
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


def _kernel_module() -> str:
    try:
        with open("/sys/module/nvidia/version", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            version = file.read(100).strip()
    except OSError:
        return ""
    return version if image_manifest.driver_order(version) else ""


def _asked(seconds: float, seen: Observation) -> list[object]:
    """What a forked child wrote of the driver, a JSON list a line; `seen.trouble` if it was lost."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _ask(writer, seconds)
        finally:
            os._exit(0)  # a library that hangs or crashes when unloaded has already told us everything
    os.close(writer)
    written, in_time = _drained(reader, seconds)
    if not in_time:
        os.kill(child, 9)
        seen.trouble = f"the driver did not answer within {seconds:g} s"
    status = _ended(child)
    if in_time and status is not None and os.WIFSIGNALED(status):
        seen.trouble = f"the driver's library crashed (signal {os.WTERMSIG(status)})"
    events = []
    for line in written.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # the line it was writing when it was lost
            continue
    return events


def _drained(reader: int, seconds: float) -> tuple[bytes, bool]:
    import select
    import time

    until = time.monotonic() + seconds
    written = b""
    try:
        while (left := until - time.monotonic()) > 0 and len(written) < LIMIT:
            if select.select([reader], [], [], left)[0]:
                if not (part := os.read(reader, 1 << 16)):
                    return written, True
                written += part
    finally:
        os.close(reader)
    return written, False


def _ended(child: int) -> int | None:
    """How the child ended; None if it is stuck in the kernel, where it must not hold us."""
    import time

    for _ in range(50):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001 if _ < 10 else 0.0125)  # noqa: PLR2004 - half a second in all
    return None


def _ask(wire: int, seconds: float) -> None:
    """Set the child apart and ask NVML, writing each answer as it comes."""
    import ctypes
    import fcntl
    import resource
    import signal

    wire = fcntl.fcntl(wire, fcntl.F_DUPFD_CLOEXEC, 3)  # where ours were closed it lies at 1 or 2
    signal.setitimer(signal.ITIMER_REAL, seconds + 10)  # should the parent be killed, nothing is left behind
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # what the driver prints must not mix with our lines
    os.dup2(nowhere, 2)

    for place in ("", *nvidia.OTHER_FOLDERS):
        try:
            library = ctypes.CDLL(f"{place}/{nvidia.LIBRARY}" if place else nvidia.LIBRARY)
        except OSError:
            continue
        _question(library, wire)
        return
    os.write(wire, b'["no library"]\n')


def _question(library: object, wire: int) -> None:  # noqa: C901 - one call of NVML after the other
    import ctypes

    def tell(*event: object) -> None:
        os.write(wire, json.dumps(event).encode() + b"\n")

    def ask(name: str, *arguments: object) -> int:
        function = getattr(library, name, None)
        return nvidia.FUNCTION_NOT_FOUND if function is None else int(function(*arguments))

    text = ctypes.create_string_buffer(96)
    number, other = ctypes.c_int(), ctypes.c_int()
    if code := ask("nvmlInitWithFlags", 0):
        tell("refused", "nvmlInit", code)
        return
    if not ask("nvmlSystemGetDriverVersion", text, len(text)):
        tell("driver", text.value.decode("ascii", "replace").strip())
    if code := ask("nvmlDeviceGetCount_v2", ctypes.byref(number)):
        tell("refused", "nvmlDeviceGetCount", code)
        return
    tell("count", number.value)
    for gpu in range(min(number.value, MOST_GPUS)):
        handle = ctypes.c_void_p()
        if code := ask("nvmlDeviceGetHandleByIndex_v2", gpu, ctypes.byref(handle)):
            tell("lost", gpu, code)
            continue
        for kind, name in (("names", "nvmlDeviceGetName"), ("uuids", "nvmlDeviceGetUUID")):
            if not ask(name, handle, text, len(text)):
                tell(kind, gpu, text.value.decode("utf-8", "replace").strip())
        major, minor = ctypes.byref(number), ctypes.byref(other)
        if not ask("nvmlDeviceGetCudaComputeCapability", handle, major, minor):
            tell("capabilities", gpu, f"{number.value}.{other.value}")


# --- judging ----------------------------------------------------------------------------------------


def judge_start(
    tree: dict[str, object], seen: Observation, visible: str | None, same_order: bool
) -> tuple[int, list[str]]:
    """The exit code, and the lines that say why.

    `visible` is CUDA_VISIBLE_DEVICES, `same_order` whether its numbers are NVML's.
    """
    gate = tree["gate"]
    assert isinstance(gate, dict)  # noqa: S101 - `manifest.problem` looked
    if gate["verdict"] == "shut":
        return 1, [f"gate shut: it was shut when the image was built: {'; '.join(gate['reasons'])}"]
    if tree["cuda"] == image_manifest.NO_CUDA:
        return 0, ["gate open: the torch of this image was built without CUDA, and needs no driver"]
    shut = [*_driver(tree, seen)]
    unread = [f"{key}: {why}" for key, why in _unknown(tree).items()]
    if not image_manifest.driver_order(seen.driver):
        unread.append("the driver's version could not be read")
    if not shut:
        bad, open_questions = _gpus(tree, seen, visible, same_order)
        shut += bad
        unread += open_questions
    if shut:
        return 1, [f"gate shut: {line}" for line in shut]
    if seen.trouble:
        return 3, [f"could not examine: {seen.trouble}"]
    if unread and tree["undecided"] == "fail":
        return 1, [f"gate shut: undecided: {line}" for line in unread]
    if tree["undecided"] == "pass":
        unread = []
    kinds = ", ".join(dict.fromkeys(filter(None, seen.names.values())))
    words = seen.refused or f"driver {seen.driver or '?'}, {seen.count} x {kinds or 'GPU'}"
    return 0, [*(f"undecided: {line}" for line in unread), *_other_machine(tree, seen), f"gate open: {words}"]


def _unknown(tree: dict[str, object]) -> dict[str, str]:
    why = tree["unknown"]
    assert isinstance(why, dict)  # noqa: S101 - `manifest.problem` looked
    return {
        key: str(why.get(key, "not known"))
        for key in ("cuda", "minimum_driver", "architectures")
        if tree[key] is None
    }


def _driver(tree: dict[str, object], seen: Observation) -> list[str]:
    """What speaks against the driver, if anything."""
    if (least := _above(tree, seen)) and not tree["cuda_compat"]:
        return [f"driver {seen.driver}: the image (CUDA {tree['cuda']}) needs {least} or newer"]
    if tree["cuda"] is None:
        return []  # which CUDA it is for is undecided, and for none it would need no driver
    if seen.refused:
        loaded = f"; the kernel module is {seen.driver}" if seen.driver else ""
        return [f"{seen.refused}{loaded}; the image (CUDA {tree['cuda']}) needs a driver and a GPU"]
    if seen.count == 0:
        return [f"the driver counts no GPU; the image (CUDA {tree['cuda']}) needs one"]
    return []


def _above(tree: dict[str, object], seen: Observation) -> str:
    """The oldest driver the image runs on, if the one here is known to be older; else empty."""
    least, here = tree["minimum_driver"], image_manifest.driver_order(seen.driver)
    return least if isinstance(least, str) and here and here < image_manifest.driver_order(least) else ""


def _gpus(
    tree: dict[str, object], seen: Observation, visible: str | None, same_order: bool
) -> tuple[list[str], list[str]]:
    """What speaks against the GPUs that programs here see, and what could not be decided."""
    count = seen.count or 0
    if count > MOST_GPUS:
        return [], [f"the driver gave an absurd number of GPUs: {count}"]
    untold = (gpu for gpu in range(count) if gpu not in seen.capabilities and gpu not in seen.lost)
    unread = [f"GPU {gpu}: its compute capability was not told" for gpu in untold]
    if least := _above(tree, seen):
        unread.append(f"driver {seen.driver} is below {least}; the cuda-compat in the image may stand in")
    if visible is not None and visible.startswith("MIG-"):
        return [], [*unread, "CUDA_VISIBLE_DEVICES names MIG devices, whose card is not read here"]
    used = nvidia.chosen(visible, [seen.uuids.get(gpu, "") for gpu in range(count)])
    if not used and count:
        return [f"CUDA_VISIBLE_DEVICES={visible} hides every GPU"], []
    if gone := [f"GPU {gpu}: NVML says {why}" for gpu, why in seen.lost.items() if gpu in used]:
        return gone, []
    code = tree["architectures"]
    built = [str(each) for each in code] if isinstance(code, list) else None
    lacking = [
        gpu
        for gpu, capability in sorted(seen.capabilities.items())
        if built is not None
        and not nvidia.has_code(built, capability)
        and not nvidia.has_ptx(built, capability)
    ]
    by_number = visible is not None and not visible.startswith("GPU-")
    if lacking and by_number and not same_order and len(set(seen.names.values())) > 1 and len(used) < count:
        differ = "CUDA_VISIBLE_DEVICES counts the fastest GPU first, and these differ"
        return [], [
            *unread,
            f"{differ}: which are used is not known, and {_named(lacking[0], seen)} is too new or old",
        ]
    return [
        f"{_named(gpu, seen)}: the torch of this image has code for {', '.join(built or ())} only"
        for gpu in lacking
        if gpu in used
    ], unread


def _named(gpu: int, seen: Observation) -> str:
    name, capability = seen.names.get(gpu) or "without a name", seen.capabilities[gpu]
    return f"GPU {gpu} ({name}, compute capability {capability})"


def _other_machine(tree: dict[str, object], seen: Observation) -> list[str]:
    """A note where this driver is older than any the image was judged for."""
    rows = tree["machines"]
    declared = (
        [str(row.get("driver")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    )
    orders = [order for each in declared if (order := image_manifest.driver_order(each))]
    here = image_manifest.driver_order(seen.driver)
    if not here or not orders or here >= min(orders):
        return []
    return [f"note: driver {seen.driver} is older than any this image was judged for ({', '.join(declared)})"]


# --- saying -----------------------------------------------------------------------------------------


def _said(
    path: str, tree: dict[str, object], seen: Observation, code: int, lines: list[str]
) -> dict[str, object]:
    gpus = [
        {"name": seen.names.get(gpu), "compute_capability": seen.capabilities.get(gpu)}
        for gpu in range(min(seen.count or 0, MOST_GPUS))
    ]
    return {
        "schema_version": 1,
        "manifest": path,
        "target": tree["target"],
        "driver": seen.driver or None,
        "gpus": gpus,
        "code": code,
        "lines": lines,
    }


def _plain(text: str) -> str:
    """ASCII on one line: a GPU's name or a manifest must not be able to act on a terminal."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)
