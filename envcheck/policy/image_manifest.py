"""What the gate judged at build, as the image carries it: plain values, read at every start.

Imports nothing, for `gate --runtime` reads it within milliseconds. Fields are only ever added within a
`SCHEMA_VERSION`; a reader passes over those it does not know.
"""

from __future__ import annotations

PATH = "/usr/share/envcheck/manifest.json"
"""Where the gate writes it in an image, and where a start looks for it."""

VARIABLE = "ENVCHECK_MANIFEST"
"""Names another place, to the gate that writes it and to the start that reads it."""

SCHEMA_VERSION = 1

NO_CUDA = "none"
"""What `cuda` says of a torch that was built without it: such an image asks nothing of a driver."""

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
"""What stands in a manifest, and as what: `null` is "not known", and `unknown` says why."""


def problem(tree: object) -> str:
    """What is wrong with a manifest that was read; empty if nothing is."""
    if not isinstance(tree, dict) or "schema_version" not in tree:
        return "not a manifest of envcheck gate"
    if tree["schema_version"] != SCHEMA_VERSION:
        return f"schema_version {repr(tree['schema_version'])[:20]}: this envcheck reads {SCHEMA_VERSION}"
    misshapen = [key for key, kinds in _SHAPE.items() if not isinstance(tree.get(key, ...), kinds)]
    return f"{misshapen[0]}: missing or of the wrong kind" if misshapen else _ill_said(tree)


def _ill_said(tree: dict[str, dict[str, object]]) -> str:
    if tree["gate"].get("verdict") not in ("open", "shut"):
        return "gate.verdict: expected open or shut"
    if str(tree["undecided"]) not in ("pass", "warn", "fail"):
        return "undecided: expected pass, warn or fail"
    if not _all_text(tree["gate"].get("reasons")) or not _all_text(tree["architectures"] or []):
        return "gate.reasons and architectures: expected lists of words"
    least = tree["minimum_driver"]
    if isinstance(least, str) and not driver_order(least):
        return "minimum_driver: expected a version such as 525.60.13"
    return ""


def _all_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def driver_order(version: str) -> tuple[int, ...]:
    """A driver's version as numbers that compare, as NVIDIA counts: 570.26 is older than 570.124.06.

    Empty if it is not one.
    """
    parts = version.split(".")
    if not all(part.isascii() and part.isdecimal() and len(part) < 7 for part in parts):  # noqa: PLR2004 - digits
        return ()
    return tuple(map(int, parts))


def labels(tree: dict[str, object]) -> dict[str, str]:
    """The OCI labels that say what an image needs, for registries and schedulers to read."""
    matrix = tree["matrix"]
    architectures = tree["architectures"]
    said = {
        "target": tree["target"],
        "train": _pairs(tree["train"]),
        "minimum-driver": tree["minimum_driver"],
        "cuda": tree["cuda"],
        "architectures": ",".join(architectures) if isinstance(architectures, list) else None,
        "matrix": matrix["digest"] if isinstance(matrix, dict) else None,
        "date": tree["date"],
    }
    return {f"envcheck.{key}": value for key, value in said.items() if isinstance(value, str) and value}


def _pairs(table: object) -> str:
    rows = table.items() if isinstance(table, dict) else ()
    return ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in rows
    )


def require_cuda(tree: dict[str, object]) -> str:
    """The value of NVIDIA_REQUIRE_CUDA with which the container toolkit refuses a driver that is too old.

    It compares the newest CUDA a driver speaks. Code for CUDA 12.4 runs on every driver of the family, so
    12.0 is what it needs. Empty where that is not known, or where a cuda-compat package may stand in.
    """
    cuda = tree["cuda"]
    if not isinstance(cuda, str) or cuda == NO_CUDA or tree["minimum_driver"] is None or tree["cuda_compat"]:
        return ""
    return f"cuda>={cuda.partition('.')[0]}.0"
