"""The manifest of an image: what the gate judged at build time, as plain values that every start reads.

This module imports nothing, because `gate --runtime` reads a manifest within milliseconds. Within a
`SCHEMA_VERSION` fields are only added; a reader ignores those it does not know.
"""

from __future__ import annotations

PATH = "/usr/share/envcheck/manifest.json"
"""Where the gate writes the manifest in an image, and where a start looks for it."""

VARIABLE = "ENVCHECK_MANIFEST"
"""The environment variable that names another path, for the gate that writes and the start that reads."""

SCHEMA_VERSION = 1

NO_CUDA = "none"
"""The value of `cuda` for a torch built without CUDA: such an image needs no driver."""

_TEXT = (str, type(None))
_SHAPE: dict[str, tuple[type, ...]] = {
    "envcheck": (str,),
    "date": (str,),
    "matrix": (dict,),
    "gate": (dict,),
    "undecided": (str,),
    "target": _TEXT,
    "train": (dict,),
    "python": _TEXT,
    "platform": _TEXT,
    "packages": (dict,),
    "cuda": _TEXT,
    "minimum_driver": _TEXT,
    "cuda_compat": _TEXT,
    "architectures": (list, type(None)),
    "unknown": (dict,),
    "machines": (list,),
}
"""The fields of a manifest and their types. `null` means "not known", and `unknown` says why."""


def problem(tree: object) -> str:
    """Return what is wrong with a manifest that was read; empty if it is valid."""
    if not isinstance(tree, dict) or "schema_version" not in tree:
        return "not a manifest of envcheck gate"
    if tree["schema_version"] != SCHEMA_VERSION:
        return f"schema_version {repr(tree['schema_version'])[:20]}: this envcheck reads {SCHEMA_VERSION}"
    wrong = [key for key, kinds in _SHAPE.items() if not isinstance(tree.get(key, ...), kinds)]
    return f"{wrong[0]}: missing or of the wrong kind" if wrong else _wrong_value(tree)


def _wrong_value(tree: dict[str, dict[str, object]]) -> str:
    """Return the first field whose value is not one of the expected ones; empty if all are."""
    if tree["gate"].get("verdict") not in ("open", "shut"):
        return "gate.verdict: expected open or shut"
    if str(tree["undecided"]) not in ("pass", "warn", "fail"):
        return "undecided: expected pass, warn or fail"
    if not _all_text(tree["gate"].get("reasons")) or not _all_text(tree["architectures"] or []):
        return "gate.reasons and architectures: expected lists of strings"
    minimum = tree["minimum_driver"]
    if isinstance(minimum, str) and not driver_order(minimum):
        return "minimum_driver: expected a version such as 525.60.13"
    return ""


def _all_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def driver_order(version: str) -> tuple[int, ...]:
    """Return a driver's version as numbers that compare as NVIDIA counts: 570.26 is older than 570.124.06.

    Empty if the text is not a version.
    """
    parts = version.split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) < 7 for part in parts):  # noqa: PLR2004 - digits
        return ()
    return tuple(map(int, parts))


def labels(tree: dict[str, object]) -> dict[str, str]:
    """Return the OCI labels that tell registries and schedulers what an image needs."""
    matrix = tree["matrix"]
    architectures = tree["architectures"]
    values = {
        "target": tree["target"],
        "train": _pairs(tree["train"]),
        "minimum-driver": tree["minimum_driver"],
        "cuda": tree["cuda"],
        "architectures": ",".join(architectures) if isinstance(architectures, list) else None,
        "matrix": matrix["digest"] if isinstance(matrix, dict) else None,
        "date": tree["date"],
    }
    return {f"envcheck.{key}": value for key, value in values.items() if isinstance(value, str) and value}


def _pairs(table: object) -> str:
    rows = table.items() if isinstance(table, dict) else ()
    return ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in rows
    )


def require_cuda(tree: dict[str, object]) -> str:
    """Return the value of NVIDIA_REQUIRE_CUDA with which the container toolkit refuses too old a driver.

    The toolkit compares it with the newest CUDA that the driver supports. Code for CUDA 12.4 runs on every
    driver of the 12 family, so it needs 12.0. Empty if the need is not known, or if a cuda-compat package may
    make up for an older driver.
    """
    cuda = tree["cuda"]
    if not isinstance(cuda, str) or cuda == NO_CUDA or tree["minimum_driver"] is None or tree["cuda_compat"]:
        return ""
    return f"cuda>={cuda.partition('.')[0]}.0"
