"""Behaviour of NVIDIA's software: NVML's codes, which GPU runs which machine code, CUDA_VISIBLE_DEVICES.

`gate --runtime` runs at every start of a container, so this module imports nothing. The probes and
`rules.derive` use it too.
"""

from __future__ import annotations

from collections.abc import Mapping

CODES = {
    1: "not initialised",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    5: "already initialised",
    6: "not found",
    7: "buffer too small",
    8: "external power missing",
    9: "driver not loaded",
    10: "timeout in the driver",
    11: "interrupt problem in the kernel",
    12: "library not found",
    13: "function not found",
    14: "corrupted infoROM",
    15: "GPU lost",
    16: "GPU needs a reset",
    17: "blocked by the operating system",
    18: "driver/library version mismatch",
    19: "in use",
    20: "out of memory",
    21: "no data",
    22: "not possible for a virtual GPU while ECC is on",
    23: "out of resources",
    24: "frequency not supported",
    25: "struct version not known to the driver",
    26: "call no longer supported",
    27: "not ready",
    28: "no GPU found",
    29: "invalid state",
    30: "kind of reset not supported",
    999: "unknown error",
}
"""The meanings of NVML's return codes (nvml.h, `nvmlReturn_t`)."""

NOT_SUPPORTED, NOT_FOUND, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 6, 12, 13
GONE = (15, 16)
"""Codes of a GPU that cannot be used until an administrator acts on the machine."""


def code_in_words(code: int) -> str:
    """Return NVML's code with its meaning: "15 GPU lost"."""
    return f"{code} {CODES.get(code, 'not a code this envcheck knows')}"


SHARES_HOST_MEMORY = ("GB10", "Thor", "Orin", "Xavier")
"""Words in the names of GPUs without separate memory (DGX Spark, Jetson)."""

LIBRARY = "libnvidia-ml.so.1"
OTHER_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Folders of drivers that the loader may not search: WSL, old container toolkits, NixOS."""


# --- machine code -----------------------------------------------------------------------------------

_OWN_BUILD = frozenset({"5.3", "6.2", "7.2", "8.7"})
"""Compute capabilities of Jetsons, which run no desktop machine code, even of the same major version.

Source: the table in torch/cuda/__init__.py (v2.15.0) leaves them out.
"""


def is_capability(text: str) -> bool:
    """Return whether this is a compute capability: two numbers with a dot between them."""
    major, _, minor = text.partition(".")
    return text.isascii() and major.isdecimal() and minor.isdecimal()


def has_code(architectures: list[str] | tuple[str, ...], capability: str) -> bool:
    """Return whether machine code for one of these `sm_XY` runs on a device of this compute capability.

    Code for X.Y runs on X.Z if Z ≥ Y, and never on another major version (CUDA C++ Programming Guide,
    binary compatibility). Jetsons need code for exactly their capability, and so does code with the suffix
    `a` (`sm_90a`).
    """
    major, _, minor = capability.partition(".")
    for name in architectures:
        digits = name.removeprefix("sm_")
        if digits.endswith("a"):
            if digits[:-1] == f"{major}{minor}":
                return True
            continue
        digits = digits.rstrip("f")
        if not digits.isdecimal() or digits[:-1] != major:
            continue
        if digits[-1] == minor or (int(digits[-1]) < int(minor) and capability not in _OWN_BUILD):
            return True
    return False


def has_ptx(architectures: list[str] | tuple[str, ...], capability: str) -> bool:
    """Return whether the driver can compile PTX for one of these `compute_XY` for this capability.

    PTX for X.Y serves X.Y and every later capability, unless it has a suffix (`compute_90a`).
    """
    major, _, minor = capability.partition(".")
    for name in architectures:
        digits = name.removeprefix("compute_")
        if (
            digits != name
            and digits.isdecimal()
            and (int(digits[:-1]), int(digits[-1])) <= (int(major), int(minor))
        ):
            return True
    return False


# --- which GPUs a program sees ------------------------------------------------------------------------


def visible_gpus(value: str | None, uuids: list[str] | tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES shows to a program, in the program's order.

    The rules are CUDA's, as torch.cuda repeats them. The first entry decides whether the list holds indices
    or UUIDs. Indices are read as C's strtoul reads numbers ("1gpu" is 1), UUIDs by unique prefixes. The
    first entry that names no GPU ends the list, and a GPU that is named twice empties it.
    """
    if value is None:
        return tuple(range(len(uuids)))
    by_uuid = value.startswith("GPU-")
    picked: list[int] = []
    ended = False
    for entry in value.split(","):
        index = _by_prefix(entry, uuids) if by_uuid else leading_index(entry)
        if index is None:
            break
        if index in picked:
            return ()
        # An index that is too high ends the list like any mistake, but a later repetition still empties it.
        ended = ended or index >= len(uuids)
        if not ended:
            picked.append(index)
    return tuple(picked)


def leading_index(entry: str) -> int | None:
    """Return the number an entry begins with, as C's strtoul reads it (1 for "1gpu"), or None."""
    entry = entry.strip()
    sign, digits = (entry[:1], entry[1:]) if entry[:1] in "+-" else ("", entry)
    end = next((i for i, char in enumerate(digits) if char not in "0123456789"), len(digits))
    if not end:
        return None
    index = int(digits[: min(end, 20)])  # 20 digits are too high already
    return None if sign == "-" and index else index


def _by_prefix(entry: str, uuids: list[str] | tuple[str, ...]) -> int | None:
    if not entry.startswith("GPU-"):
        return None
    matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def cuda_of_libraries(package_versions: Mapping[str, str]) -> str | None:
    """Return the CUDA, such as `12.8`, of the CUDA libraries in a list of packages; None if they disagree.

    Every build of torch for a CUDA pins the libraries of that CUDA. A list that was resolved against an index
    for another CUDA has other libraries than the build on the public index, even if torch has no local label.
    """
    for suffix in ("", "-cu13", "-cu12", "-cu11"):
        named = [package_versions.get(f"nvidia-cuda-{part}{suffix}", "") for part in ("runtime", "nvrtc")]
        found = {".".join(each.split(".")[:2]) for each in named}
        if all(named) and len(found) == 1:
            return found.pop()
    return None
